//! The kubelet's own state files below the root directory: checked at start, made when missing.
//!
//! Reads `cpu_manager_state`, `memory_manager_state`, `allocated_pods_state`, `actuated_pods_state` and
//! `device-plugins/kubelet_internal_checkpoint`; writes the first two when they are missing, with the bytes the kubelet
//! writes for its `none` policies, so that a node can go from one to the other. Never deletes or repairs anything.

use super::{StoreError, replace_file};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What the kubelet writes as `cpu_manager_state` under the policy `none`.
const CPU_NONE: &str = r#"{"policyName":"none","defaultCpuSet":"","checksum":1353318690,"data":"{\"policyName\":\"none\",\"defaultCpuSet\":\"\"}","dataChecksum":3028111495}"#;

/// What the kubelet writes as `memory_manager_state` under the policy `None`.
const MEMORY_NONE: &str = r#"{"policyName":"None","machineState":{},"checksum":4236770233,"data":"{\"policyName\":\"None\",\"machineState\":{}}","dataChecksum":3093843326}"#;

/// State files are small; a larger one is not one of them.
const MAX_BYTES: u64 = 64 << 20;

/// Policies as configured: a state file of another policy must be removed by the administrator.
#[derive(Clone, Copy, Debug)]
pub struct Policies<'a> {
    /// `cpuManagerPolicy`, for example `none`.
    pub cpu: &'a str,
    /// `memoryManagerPolicy`, for example `None`.
    pub memory: &'a str,
}

/// Why a state file keeps the node from starting.
#[derive(thiserror::Error, Debug)]
pub enum StateError {
    /// The content is not what a kubelet writes.
    #[error(
        "state file {path} is corrupted: {what}; drain this node, remove that file and start again",
        path = path.display()
    )]
    Corrupted {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// It was written under another policy.
    #[error(
        "state file {path} was written under policy {found:?}, but {configured:?} is configured; drain this node, remove that file and start again",
        path = path.display()
    )]
    OtherPolicy {
        /// The file.
        path: PathBuf,
        /// Policy in the file.
        found: String,
        /// Policy in the configuration.
        configured: String,
    },
    /// It could not be read.
    #[error("read state file {path}: {source}", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// It could not be made.
    #[error(transparent)]
    Unwritable(#[from] StoreError),
}

/// Checks every state file below `root` and makes the missing ones. Returns warnings, one line each.
///
/// # Errors
/// The first file that is corrupted, of another policy, unreadable or unwritable.
pub fn check(root: &Path, policies: Policies<'_>) -> Result<Vec<String>, StateError> {
    for name in ["allocated_pods_state", "actuated_pods_state"] {
        let path = root.join(name);
        if let Some(text) = read(&path)? {
            check_pods(&text).map_err(|what| StateError::Corrupted { path, what })?;
        }
    }
    let managers: [(&str, &str, &str, Verify); 2] = [
        ("cpu_manager_state", policies.cpu, CPU_NONE, check_cpu),
        ("memory_manager_state", policies.memory, MEMORY_NONE, check_memory),
    ];
    for (name, configured, none, verify) in managers {
        let path = root.join(name);
        let Some(text) = read(&path)? else {
            if configured.eq_ignore_ascii_case("none") {
                replace_file(root, name, 0o600, none.as_bytes())?;
            }
            continue;
        };
        let found = verify(&text).map_err(|what| StateError::Corrupted { path: path.clone(), what })?;
        if found != configured {
            return Err(StateError::OtherPolicy { path, found, configured: configured.to_owned() });
        }
    }
    let devices = root.join("device-plugins/kubelet_internal_checkpoint");
    let damaged = read(&devices)?.filter(|text| serde_json::from_str::<&RawValue>(text).is_err());
    Ok(damaged
        .map(|_| {
            format!(
                "device checkpoint {} is damaged; going on without it, plugins will register again",
                devices.display()
            )
        })
        .into_iter()
        .collect())
}

/// Checks one file's text; returns the policy it was written under.
type Verify = fn(&str) -> Result<String, String>;

pub(super) fn read(path: &Path) -> Result<Option<String>, StateError> {
    let unreadable = |source| StateError::Unreadable { path: path.to_owned(), source };
    match fs::metadata(path) {
        Ok(found) if found.len() > MAX_BYTES => {
            return Err(StateError::Corrupted { path: path.to_owned(), what: format!("it has {} bytes", found.len()) });
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error)),
    }
    let bytes = fs::read(path).map_err(unreadable)?;
    String::from_utf8(bytes)
        .map(Some)
        .map_err(|_| StateError::Corrupted { path: path.to_owned(), what: "it is not UTF-8 text".to_owned() })
}

#[derive(Deserialize)]
struct PodsState {
    data: String,
    checksum: u64,
}

pub(super) fn check_pods(text: &str) -> Result<(), String> {
    let state: PodsState = parse(text)?;
    check_data(&state.data, state.checksum, "checksum")
}

/// Entries of `cpu_manager_state`: pod uid, container name, CPU list.
type CpuEntries = BTreeMap<String, BTreeMap<String, String>>;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CpuState {
    policy_name: String,
    default_cpu_set: String,
    #[serde(default)]
    entries: CpuEntries,
    checksum: u64,
    data: Option<String>,
    data_checksum: Option<u64>,
}

fn check_cpu(text: &str) -> Result<String, String> {
    let state: CpuState = parse(text)?;
    let printed = cpu_text(&state.policy_name, &state.default_cpu_set, &state.entries);
    expect("checksum", state.checksum, fnv1a(&printed))?;
    check_newer(state.data.as_deref(), state.data_checksum)?;
    Ok(state.policy_name)
}

/// The struct as the kubelet's checksum prints it.
fn cpu_text(policy: &str, default: &str, entries: &CpuEntries) -> String {
    let pods: Vec<String> = entries
        .iter()
        .map(|(uid, containers)| {
            let sets: Vec<String> = containers.iter().map(|(name, cpus)| format!("{name}:{cpus}")).collect();
            format!("{uid}:map[{}]", sets.join(" "))
        })
        .collect();
    format!(
        "(*state.CPUManagerCheckpoint){{PolicyName:(string){policy} DefaultCPUSet:(string){default} \
         Entries:(map[string]map[string]string)map[{}] Checksum:(checksum.Checksum)0}}",
        pods.join(" ")
    )
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MemoryState {
    policy_name: String,
    machine_state: BTreeMap<String, Box<RawValue>>,
    #[serde(default)]
    entries: BTreeMap<String, Box<RawValue>>,
    checksum: u64,
    data: Option<String>,
    data_checksum: Option<u64>,
}

fn check_memory(text: &str) -> Result<String, String> {
    let state: MemoryState = parse(text)?;
    // How the older checksum prints a populated state is not known; there the newer one must do.
    if state.machine_state.is_empty() && state.entries.is_empty() {
        let printed = format!(
            "(*state.MemoryManagerCheckpoint){{PolicyName:(string){} MachineState:(state.NUMANodeMap)map[] \
             Entries:(state.ContainerMemoryAssignments)map[] Checksum:(checksum.Checksum)0}}",
            state.policy_name
        );
        expect("checksum", state.checksum, fnv1a(&printed))?;
    }
    check_newer(state.data.as_deref(), state.data_checksum)?;
    Ok(state.policy_name)
}

/// Checks the fields that newer kubelets add; older files lack both.
fn check_newer(data: Option<&str>, checksum: Option<u64>) -> Result<(), String> {
    match (data, checksum) {
        (Some(data), Some(checksum)) => check_data(data, checksum, "dataChecksum"),
        (None, None) => Ok(()),
        (Some(_), None) => Err("it has data without dataChecksum".to_owned()),
        (None, Some(_)) => Err("it has dataChecksum without data".to_owned()),
    }
}

/// The checksum of a `data` field.
pub(super) fn data_checksum(data: &str) -> u32 {
    fnv1a(&format!("(string){data}"))
}

fn check_data(data: &str, checksum: u64, field: &str) -> Result<(), String> {
    expect(field, checksum, data_checksum(data))?;
    serde_json::from_str::<&RawValue>(data).map(|_| ()).map_err(|error| format!("its data is not JSON: {error}"))
}

fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

fn expect(field: &str, found: u64, computed: u32) -> Result<(), String> {
    if found == u64::from(computed) {
        Ok(())
    } else {
        Err(format!("its {field} is {found}, its content gives {computed}"))
    }
}

/// FNV-1a with 32 bits.
fn fnv1a(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Policies<'_> = Policies { cpu: "none", memory: "None" };

    fn sample(name: &str) -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/state");
        fs::read_to_string(path.join(name)).unwrap()
    }

    /// What `check` says of a root with these files: `ok`, the warnings, or the error without the file's path.
    #[track_caller]
    fn run(policies: Policies<'_>, files: &[(&str, &str)], expect: &str) {
        let root = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let got = match check(root.path(), policies) {
            Ok(warnings) if warnings.is_empty() => "ok".to_owned(),
            Ok(warnings) => warnings.join("\n"),
            Err(error) => error.to_string(),
        };
        let got = got.replace(&root.path().display().to_string(), "ROOT");
        assert!(got.starts_with(expect), "{got}\nexpected {expect}");
        for (name, content) in files {
            let after = fs::read_to_string(root.path().join(name)).unwrap();
            assert_eq!(after, *content, "{name} was changed");
        }
    }

    #[test]
    fn files_of_the_reference_are_accepted() {
        for text in [sample("state-cpu_manager_state.json"), sample("state-static-cpu_manager_state.json")] {
            check_cpu(&text).unwrap();
        }
        for text in [sample("state-memory_manager_state.json"), sample("state-static-memory_manager_state.json")] {
            check_memory(&text).unwrap();
        }
        check_pods(&sample("state-allocated_pods_state.json")).unwrap();
        check_pods(&sample("state-actuated_pods_state.json")).unwrap();
        let printed = |policy, cpus| fnv1a(&cpu_text(policy, cpus, &CpuEntries::new()));
        assert_eq!(printed("static", "0-1"), 1_636_926_438);
        assert_eq!(printed("static", "0-63"), 1_058_907_510);
        let older = r#"{"policyName":"none","defaultCpuSet":"","checksum":1353318690}"#;
        assert_eq!(check_cpu(older).unwrap(), "none");
    }

    #[test]
    fn missing_files_are_made_as_the_kubelet_makes_them() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(check(root.path(), NONE).unwrap(), Vec::<String>::new());
        for name in ["cpu_manager_state", "memory_manager_state"] {
            let made = fs::read_to_string(root.path().join(name)).unwrap();
            assert_eq!(made, sample(&format!("state-{name}.json")));
        }
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 2);
        check(root.path(), NONE).unwrap();
    }

    #[test]
    fn damage_keeps_the_node_from_starting_and_is_left_as_it_is() {
        let cpu = sample("state-static-cpu_manager_state.json");
        let fixed = Policies { cpu: "static", memory: "None" };
        run(fixed, &[("cpu_manager_state", &cpu)], "ok");
        run(
            fixed,
            &[("cpu_manager_state", &cpu[..cpu.len() / 2])],
            "state file ROOT/cpu_manager_state is corrupted: EOF while parsing",
        );
        run(
            fixed,
            &[("cpu_manager_state", &cpu.replacen(r#""0""#, r#""1""#, 1))],
            "state file ROOT/cpu_manager_state is corrupted: its checksum is 310243930, its content gives",
        );
        run(
            fixed,
            &[("cpu_manager_state", CPU_NONE)],
            "state file ROOT/cpu_manager_state was written under policy \"none\", but \"static\" is configured; \
             drain this node, remove that file",
        );
        run(NONE, &[("cpu_manager_state", "")], "state file ROOT/cpu_manager_state is corrupted: EOF");
        let memory = sample("state-static-memory_manager_state.json");
        run(
            NONE,
            &[("memory_manager_state", &memory)],
            "state file ROOT/memory_manager_state was written under policy \"Static\"",
        );
        run(
            NONE,
            &[("memory_manager_state", &memory.replace("944741730", "1"))],
            "state file ROOT/memory_manager_state is corrupted: its dataChecksum is 1",
        );
        let pods = sample("state-allocated_pods_state.json") + "\"}";
        run(
            NONE,
            &[("allocated_pods_state", &pods)],
            "state file ROOT/allocated_pods_state is corrupted: trailing characters",
        );
        run(
            NONE,
            &[("device-plugins/kubelet_internal_checkpoint", "")],
            "device checkpoint ROOT/device-plugins/kubelet_internal_checkpoint is damaged; going on",
        );
    }
}
