//! The command line: which flags exist, what they set, and how the kubelet reads them.
//!
//! Decides nothing about the node; turns arguments into flag values and lays those over a configuration. One table
//! (`table`) holds every flag with its type, default and meaning.

mod help;
mod own;
mod parse;
mod table;
mod values;

use std::collections::BTreeMap;

use components::config::{KubeletConfiguration, Origins, Problem, tree::Origin};

pub(crate) use self::own::KubeletFlags;
use self::parse::Given;
use self::table::{Act, Flag};

/// The version of the kubelet that ticklet stands in for.
pub(crate) const KUBERNETES_VERSION: &str = "v1.37.2";

/// What the command line asks for.
#[derive(Debug)]
pub(crate) enum Request {
    /// Print this text and end well.
    Print(String),
    /// Run with these flags.
    Run(Box<CommandLine>),
}

/// A command line that was understood.
#[derive(Debug, Default)]
pub(crate) struct CommandLine {
    /// The flags that have no field in the configuration.
    pub(crate) flags: KubeletFlags,
    /// What was accepted but means nothing, one line each.
    pub(crate) warnings: Vec<String>,
    given: Vec<Given>,
}

/// Reads the arguments, without the name of the program; every problem is reported, not only the first.
pub(crate) fn parse(args: &[String]) -> Result<Request, Vec<Problem>> {
    let given = parse::parse(args)?;
    let mut line = CommandLine::default();
    let mut problems = Vec::new();
    let (mut help, mut version) = (false, values::Version::No);
    for Given { flag, values } in &given {
        let outcome = match flag.act {
            Act::Own(set) => set(&mut line.flags, values),
            // Checked on a throw-away copy here, applied to the real configuration later.
            Act::Field(_, set) => set(&mut KubeletConfiguration::legacy(), values),
            Act::Help => values::last(values, values::boolean).map(|on| help = on),
            Act::Version => values::last(values, values::version).map(|wish| version = wish),
            Act::Ignored | Act::Removed => Ok(()),
        };
        problems.extend(outcome.err().map(|message| problem(flag, message)));
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    if help {
        return Ok(Request::Print(help::text()));
    }
    match version {
        values::Version::Show => return Ok(Request::Print(format!("Kubernetes {KUBERNETES_VERSION}\n"))),
        values::Version::ShowRaw => return Ok(Request::Print(help::raw_version())),
        values::Version::ReportAs(version) => line.flags.reported_version = Some(version),
        values::Version::No => {}
    }
    problems.extend(line.flags.problems());
    if !problems.is_empty() {
        return Err(problems);
    }
    line.warnings = warnings(&given);
    line.given = given;
    Ok(Request::Run(Box::new(line)))
}

fn problem(flag: &Flag, message: String) -> Problem {
    Problem { at: Origin::whole(&format!("--{}", flag.name)), field: String::new(), message }
}

/// One line for the flags that no longer exist and one for those that belong into the configuration file.
fn warnings(given: &[Given]) -> Vec<String> {
    let names = |wanted: &dyn Fn(&Flag) -> bool| {
        let names: Vec<_> = given.iter().filter(|g| wanted(g.flag)).map(|g| format!("--{}", g.flag.name)).collect();
        names.join(", ")
    };
    let removed = names(&|flag| matches!(flag.act, Act::Removed));
    let deprecated = names(&Flag::is_deprecated);
    let mut lines = Vec::new();
    if !removed.is_empty() {
        lines.push(format!("flags of older kubelets, ignored: {removed}"));
    }
    if !deprecated.is_empty() {
        lines.push(format!("deprecated flags, better set in the --config file: {deprecated}"));
    }
    lines
}

impl CommandLine {
    /// The configuration that the command line means when there are no files.
    #[must_use]
    pub(crate) fn alone(&self) -> KubeletConfiguration {
        let mut config = KubeletConfiguration::legacy();
        self.apply(&mut config, &mut Origins::default());
        config
    }

    /// Lays every flag that has a field over the configuration and notes it as the origin of that field.
    pub(crate) fn apply(&self, config: &mut KubeletConfiguration, origins: &mut Origins) {
        let gates = config.feature_gates.clone();
        for Given { flag, values } in &self.given {
            if let Act::Field(path, set) = flag.act
                && set(config, values).is_ok()
            {
                origins.set(path, Origin::whole(&format!("--{}", flag.name)));
            }
        }
        // Gates are the one map that is merged: a gate on the command line wins, the others stay.
        let flagged: BTreeMap<String, bool> = std::mem::replace(&mut config.feature_gates, gates);
        config.feature_gates.extend(flagged);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(args: &str) -> Result<Request, Vec<Problem>> {
        parse(&args.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[track_caller]
    fn run(args: &str) -> CommandLine {
        match read(args) {
            Ok(Request::Run(line)) => *line,
            other => panic!("{args}: {other:?}"),
        }
    }

    #[track_caller]
    fn field(args: &str, path: &str, expect: serde_json::Value) {
        let json = serde_json::to_value(run(args).alone()).unwrap();
        let pointer = format!("/{}", path.replace('.', "/"));
        assert_eq!(json.pointer(&pointer), Some(&expect), "{args}");
    }

    #[track_caller]
    fn refuse(args: &str, expect: &str) {
        let problems = read(args).unwrap_err();
        let shown: Vec<_> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(shown, [expect], "{args}");
    }

    /// The command lines of the units in `docs/systemd`, with what kubeadm puts into its variables.
    #[test]
    fn units_of_the_documents_start() {
        let kubeadm = [
            ("$KUBELET_KUBECONFIG_ARGS", "--bootstrap-kubeconfig=/etc/b.conf --kubeconfig=/etc/kubelet.conf"),
            ("$KUBELET_CONFIG_ARGS", "--config=/var/lib/kubelet/config.yaml"),
            ("$KUBELET_KUBEADM_ARGS", "--node-ip=192.0.2.1 --node-labels=a=b --pod-infra-container-image=pause:3"),
            ("$KUBELET_EXTRA_ARGS", "--cgroup-root=/kubelet --fail-swap-on=false --provider-id=kind://docker/c/n"),
        ];
        let units =
            [include_str!("../../docs/systemd/ticklet.service"), include_str!("../../docs/systemd/20-ticklet.conf")];
        let files = units.map(|unit| {
            let line = unit.lines().filter_map(|line| line.strip_prefix("ExecStart=/usr/bin/ticklet ")).next().unwrap();
            let args = kubeadm.iter().fold(line.to_owned(), |line, (name, value)| line.replace(name, value));
            run(&args).flags.config
        });
        assert_eq!(files, ["/etc/kubernetes/kubelet.yaml", "/var/lib/kubelet/config.yaml"]);
    }

    #[test]
    fn spellings() {
        use serde_json::json;
        field("--max-pods 7", "maxPods", json!(7));
        field("--max-pods=7", "maxPods", json!(7));
        field("--max_pods=7", "maxPods", json!(7));
        field("--max-pods=7 --max-pods=8", "maxPods", json!(8));
        field("--max-pods=0x10", "maxPods", json!(16));
        field("--fail-swap-on=false", "failSwapOn", json!(false));
        field("--rotate-certificates", "rotateCertificates", json!(true));
        field("--fail-swap-on=F", "failSwapOn", json!(false));
        field("-v=4", "logging.verbosity", json!(4));
        field("-v 4", "logging.verbosity", json!(4));
        field("-v4", "logging.verbosity", json!(4));
        field("--v=4", "logging.verbosity", json!(4));
        field(
            "--vmodule=a=1,b*=2",
            "logging.vmodule",
            json!([
            {"filePattern": "a", "verbosity": 1}, {"filePattern": "b*", "verbosity": 2}]),
        );
    }

    #[test]
    fn lists_and_maps() {
        use serde_json::json;
        field("--cluster-dns=1.1.1.1,2.2.2.2", "clusterDNS", json!(["1.1.1.1", "2.2.2.2"]));
        field("--cluster-dns=1.1.1.1 --cluster-dns=2.2.2.2", "clusterDNS", json!(["1.1.1.1", "2.2.2.2"]));
        field("--enforce-node-allocatable=none", "enforceNodeAllocatable", json!(["none"]));
        let evict = json!({"memory.available": "1Gi", "pid.available": "5%"});
        field("--eviction-hard=memory.available<1Gi,pid.available<5%", "evictionHard", evict);
        field(
            "--kube-reserved=cpu=1,memory=1Gi --kube-reserved=pid=9",
            "kubeReserved",
            json!(
            {"cpu": "1", "memory": "1Gi", "pid": "9"}),
        );
        field(
            "--feature-gates=EventedPLEG=true,MemoryQoS=false",
            "featureGates",
            json!(
            {"EventedPLEG": true, "MemoryQoS": false}),
        );
        field("--manifest-url-header=a:1,b:2,a:3", "staticPodURLHeader", json!({"a": ["1", "3"], "b": ["2"]}));
        field(
            "--register-with-taints=k=v:NoSchedule,x:NoExecute",
            "registerWithTaints",
            json!([
            {"key": "k", "value": "v", "effect": "NoSchedule"}, {"key": "x", "effect": "NoExecute"}]),
        );
        field(
            "--reserved-memory=0:memory=1Gi,hugepages-2Mi=4Mi;1:memory=2Gi",
            "reservedMemory",
            json!([
            {"numaNode": 0, "limits": {"memory": "1Gi", "hugepages-2Mi": "4Mi"}},
            {"numaNode": 1, "limits": {"memory": "2Gi"}}]),
        );
        assert_eq!(run("--node-labels=a=b,c --node-labels=d=e").flags.node_labels.len(), 3);
    }

    #[test]
    fn the_command_lines_of_kubeadm_and_kind_are_understood() {
        let line = run("--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf \
             --kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml \
             --container-runtime=remote --container-runtime-endpoint=unix:///run/containerd/containerd.sock \
             --pod-infra-container-image=registry.k8s.io/pause:3.9 --node-ip=172.18.0.2 \
             --node-labels=node.kubernetes.io/pool=a --provider-id=kind://docker/kind/kind-control-plane \
             --fail-swap-on=false --cgroup-root=/kubelet --runtime-cgroups=/system.slice/containerd.service \
             --hostname-override=N1 --register-with-taints=a=b:NoSchedule --cloud-provider=external \
             --network-plugin=cni --cni-bin-dir=/opt/cni/bin --cni-conf-dir /etc/cni/net.d --logtostderr");
        assert_eq!(line.flags.config, "/var/lib/kubelet/config.yaml");
        assert_eq!(line.flags.hostname_override, "n1");
        assert_eq!(line.flags.node_ips().0, ["172.18.0.2".parse::<std::net::IpAddr>().unwrap()]);
        assert_eq!(line.alone().cgroup_root, "/kubelet");
        assert_eq!(
            line.warnings[0],
            "flags of older kubelets, ignored: --container-runtime, --pod-infra-container-image, --network-plugin, \
             --cni-bin-dir, --cni-conf-dir, --logtostderr"
        );
        assert_eq!(line.warnings.len(), 2, "and one line for the deprecated ones");
    }

    #[test]
    fn refusals() {
        refuse("--no-such-flag=1", "--no-such-flag: unknown flag, see --help");
        refuse("-x", "-x: unknown flag, see --help");
        refuse("--max-pods", "--max-pods: needs a value");
        refuse("--max-pods=many", "--max-pods: want a whole number, got \"many\"");
        refuse("--max-pods=99999999999", "--max-pods: 99999999999 is out of range, want -2147483648 to 2147483647");
        refuse("--fail-swap-on=maybe", "--fail-swap-on: want true or false, got \"maybe\"");
        refuse(
            "--sync-frequency=10",
            "--sync-frequency: \"10\": missing unit in duration: want ns, us, ms, s, m or h after each number",
        );
        refuse("--address=here", "--address: want an IP address, got \"here\"");
        refuse(
            "--eviction-hard=memory.available=1Gi",
            "--eviction-hard: want SIGNAL<AMOUNT, got \"memory.available=1Gi\"",
        );
        refuse("--feature-gates=A", "--feature-gates: want NAME=true or NAME=false, got \"A\"");
        refuse(
            "--register-with-taints=a=b:Never",
            "--register-with-taints: want KEY=VALUE:EFFECT with NoSchedule, PreferNoSchedule or NoExecute, got \"a=b:Never\"",
        );
        refuse("--reserved-memory=memory=1Gi", "--reserved-memory: want NUMA-CELL:TYPE=AMOUNT, got \"memory=1Gi\"");
        refuse("-v=-1", "--v: -1 is out of range, want 0 to 2147483647");
        refuse("run", "run: unknown command, see --help");
        refuse(
            "--node-labels=kubernetes.io/role=x",
            "--node-labels: kubernetes.io/role: a kubelet may not set this label in a kubernetes.io or k8s.io namespace",
        );
        refuse(
            "--node-labels=a=!",
            "--node-labels: a: a value has up to 63 letters, digits, '-', '_' or '.', with a letter or digit at both ends",
        );
        refuse("--cloud-provider=aws", "--cloud-provider: want nothing or external, got \"aws\"");
        refuse(
            "--image-credential-provider-config=/c",
            "--image-credential-provider-config: must be set together with --image-credential-provider-bin-dir",
        );
        refuse(
            "--node-ip=10.0.0.1,10.0.0.2",
            "--node-ip: want one address or one of each IP family, got \"10.0.0.1,10.0.0.2\"",
        );
        refuse("--version=wrong", "--version: want true, raw or a version such as v1.37.2, got \"wrong\"");
    }

    #[test]
    fn all_problems_are_listed() {
        let problems = read("--max-pods=x --port=y --nope --alas=1 --address=z").unwrap_err();
        assert_eq!(problems.len(), 2, "unknown flags first, as nothing else can be trusted then");
        assert_eq!(read("--max-pods=x --port=y").unwrap_err().len(), 2);
    }

    #[test]
    fn help_and_version_print() {
        let print = |args| match read(args) {
            Ok(Request::Print(text)) => text,
            other => panic!("{other:?}"),
        };
        assert_eq!(print("--version"), "Kubernetes v1.37.2\n");
        assert_eq!(print("--version=true"), "Kubernetes v1.37.2\n");
        assert!(print("--version=raw").contains("GitVersion:\"v1.37.2\""));
        assert!(print("--help --max-pods=3").starts_with("The kubelet"));
        assert_eq!(print("-h"), print("--help"));
        assert_eq!(run("--version=false").flags.reported_version, None);
        assert_eq!(run("--version=v1.37.2-lab").flags.reported_version.as_deref(), Some("v1.37.2-lab"));
    }

    #[test]
    fn a_gate_of_the_command_line_wins_over_the_file() {
        let feature_gates = [("A".to_owned(), false), ("B".to_owned(), true)].into();
        let mut config = KubeletConfiguration { feature_gates, ..Default::default() };
        run("--feature-gates=A=true").apply(&mut config, &mut Origins::default());
        assert_eq!(config.feature_gates, [("A".to_owned(), true), ("B".to_owned(), true)].into());
    }
}
