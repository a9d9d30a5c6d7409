//! Host ids for user namespaces: those that are set aside for the kubelet, and those that pods already have.

use super::super::HostError;
use components::edge::FailureClass;
use components::edge::cri::IdRange;
use components::ids::PodUid;
use std::fs;
use std::io;
use std::path::Path;

/// The user to whom ids for pods are assigned in `/etc/subuid` and `/etc/subgid`.
const USER: &str = "kubelet";

/// The range of [`USER`]; `None` when there is no such user or it has no range.
///
/// # Errors
/// When its ranges cannot be used: more than one, or users and groups differ.
pub fn set_aside() -> Result<Option<IdRange>, HostError> {
    if !matches!(nix::unistd::User::from_name(USER), Ok(Some(_))) {
        return Ok(None);
    }
    let users = ranges(Path::new("/etc/subuid"))?;
    let groups = ranges(Path::new("/etc/subgid"))?;
    match (users.as_slice(), groups.as_slice()) {
        ([], []) => Ok(None),
        ([user], [group]) if user == group => Ok(Some(*user)),
        _ => Err(HostError::new(
            FailureClass::Invalid,
            format!("/etc/subuid and /etc/subgid must have one and the same range for user {USER}"),
        )),
    }
}

fn ranges(path: &Path) -> Result<Vec<IdRange>, HostError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(parse(&text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(HostError::io("read", path, &error)),
    }
}

fn parse(text: &str) -> Vec<IdRange> {
    let range = |line: &str| {
        let mut parts = line.trim().strip_prefix(USER)?.strip_prefix(':')?.split(':');
        let range = IdRange { first: parts.next()?.parse().ok()?, length: parts.next()?.parse().ok()? };
        parts.next().is_none().then_some(range)
    };
    text.lines().filter_map(range).collect()
}

/// The ranges recorded in pod folders (`UID/userns`), sorted by pod.
///
/// # Errors
/// When the folder of pods or a record cannot be read; a pod whose ids are not known might share them with another.
pub fn recorded(pods_dir: &Path) -> Result<Vec<(PodUid, IdRange)>, HostError> {
    let entries = match fs::read_dir(pods_dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(HostError::io("read", pods_dir, &error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let dir = entry.map_err(|error| HostError::io("read", pods_dir, &error))?.path();
        let file = dir.join("userns");
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => continue,
            Err(error) => return Err(HostError::io("read", &file, &error)),
        };
        let range = record(&text).ok_or_else(|| {
            let message = format!("{} is no record of a user namespace; remove it if the pod is gone", file.display());
            HostError::new(FailureClass::Garbage, message)
        })?;
        if let Some(pod) = dir.file_name().and_then(|name| name.to_str()) {
            found.push((PodUid::from(pod), range));
        }
    }
    found.sort();
    Ok(found)
}

/// One mapping of the ids from 0, the same for users and groups.
fn record(text: &str) -> Option<IdRange> {
    let value: serde_json::Value = serde_json::from_str(text).ok()?;
    let one = |key: &str| {
        let [mapping] = value[key].as_array()?.as_slice() else { return None };
        let number = |key: &str| u32::try_from(mapping[key].as_u64()?).ok();
        (number("containerId")? == 0).then_some(IdRange { first: number("hostId")?, length: number("length")? })
    };
    let users = one("uidMappings")?;
    (one("gidMappings")? == users).then_some(users)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_kubelets_lines_count() {
        let text = "root:0:1\nkubelet:65536:7208960\nkubeletx:1:1\nkubelet:x:1\nkubelet:1:2:3\n";
        assert_eq!(parse(text), [IdRange { first: 65_536, length: 7_208_960 }]);
    }

    #[test]
    fn records_of_pods_are_found_and_bad_ones_named() {
        let top = tempfile::tempdir().unwrap();
        assert_eq!(recorded(&top.path().join("none")).unwrap(), []);
        for (pod, text) in [("b", Some(131_072)), ("a", Some(65_536)), ("plain", None)] {
            let dir = top.path().join(pod);
            fs::create_dir(&dir).unwrap();
            if let Some(first) = text {
                let one = format!(r#"[{{"hostId":{first},"containerId":0,"length":65536}}]"#);
                fs::write(dir.join("userns"), format!(r#"{{"uidMappings":{one},"gidMappings":{one}}}"#)).unwrap();
            }
        }
        let range = |first| IdRange { first, length: 65_536 };
        let expect = [("a".into(), range(65_536)), ("b".into(), range(131_072))];
        assert_eq!(recorded(top.path()).unwrap(), expect);
        fs::write(top.path().join("b/userns"), "{}").unwrap();
        let error = recorded(top.path()).unwrap_err();
        assert!(error.message.contains("b/userns is no record"), "{error}");
    }
}
