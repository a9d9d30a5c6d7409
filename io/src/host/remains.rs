//! Directories whose pods are gone: found, and removed when nothing is mounted in them.

use super::{Cancel, HostError, below, mounts, remove};
use components::edge::FailureClass;
use components::edge::host::HostAnswer;
use components::edge::host::reclaim::{LookAtRemains, RemoveRemains};
use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::Path;

/// Names of the directories that belong to no known pod.
pub(super) fn look(asked: &LookAtRemains) -> Result<HostAnswer, HostError> {
    let known: HashSet<&str> = asked.known.iter().map(components::ids::PodUid::as_str).collect();
    let pod_dirs = directories(&asked.pods_dir, |name| !known.contains(name))?;
    // NAMESPACE_NAME_UID; none of the three has an underscore in it. Anything else is not of a kubelet.
    let log_dirs = directories(&asked.logs_dir, |name| {
        let parts: Vec<&str> = name.split('_').collect();
        matches!(parts[..], [_, _, uid] if !known.contains(uid))
    })?;
    Ok(HostAnswer::RemainsFound { pod_dirs, log_dirs })
}

fn directories(dir: &str, counts: impl Fn(&str) -> bool) -> Result<Vec<String>, HostError> {
    let dir = Path::new(dir);
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(HostError::io("read directory", dir, &error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| HostError::io("read directory", dir, &error))?;
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if let Some(name) = entry.file_name().to_str().filter(|name| is_dir && counts(name)) {
            names.push(name.to_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// Removes a directory, unless something is mounted in it.
pub(super) fn remove(gone: &RemoveRemains, pods_dir: &str, logs_dir: &str, cancel: &Cancel) -> Result<(), HostError> {
    let (path, top) = match gone {
        RemoveRemains::PodDir(path) => (path, pods_dir),
        RemoveRemains::LogDir(path) => (path, logs_dir),
    };
    let dir = below(path, top)?;
    // The mount table names places as they really are, the root directory may be a link.
    let real = match dir.canonicalize() {
        Ok(real) => real,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(HostError::io("find", &dir, &error)),
    };
    if let Some(mount) = mounts::read()?.into_iter().find(|mount| mount.point.starts_with(&real)) {
        return Err(HostError::new(
            FailureClass::Invalid,
            format!("refused to remove {}: {} is mounted", dir.display(), mount.point.display()),
        ));
    }
    remove::remove_tree(&dir, cancel)
}

#[cfg(test)]
mod tests {
    use super::*;
    use components::ids::PodUid;
    use nix::mount::{MntFlags, MsFlags, mount, umount2};

    #[test]
    fn directories_of_no_known_pod_are_found() {
        let top = tempfile::tempdir().unwrap();
        let at = |name: &str| top.path().join(name).display().to_string();
        for dir in ["pods/a", "pods/b", "logs/ns_p_a", "logs/ns_q_b", "logs/foreign", "logs/x_y", "logs/1_2_3_4"] {
            fs::create_dir_all(at(dir)).unwrap();
        }
        fs::write(at("pods/file"), "").unwrap();
        let mut asked = LookAtRemains { pods_dir: at("pods"), logs_dir: at("logs"), known: vec![PodUid::from("a")] };
        let expect = HostAnswer::RemainsFound { pod_dirs: vec!["b".into()], log_dirs: vec!["ns_q_b".into()] };
        assert_eq!(look(&asked).unwrap(), expect);
        asked.pods_dir = at("none");
        asked.logs_dir = at("none");
        assert_eq!(look(&asked).unwrap(), HostAnswer::RemainsFound { pod_dirs: vec![], log_dirs: vec![] });
    }

    #[test]
    fn nothing_is_removed_under_a_mount_even_through_a_linked_root() {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir_all(top.path().join("real/pods/u/volumes/v")).unwrap();
        fs::create_dir(top.path().join("outside")).unwrap();
        fs::write(top.path().join("outside/precious"), "1").unwrap();
        std::os::unix::fs::symlink(top.path().join("real"), top.path().join("root")).unwrap();
        let pods = top.path().join("root/pods").display().to_string();
        let point = top.path().join("real/pods/u/volumes/v");
        let bind = MsFlags::MS_BIND;
        mount(Some(&top.path().join("outside")), &point, None::<&str>, bind, None::<&str>).unwrap();
        let gone = RemoveRemains::PodDir(format!("{pods}/u"));
        let refused = remove(&gone, &pods, "/nonexistent", &Cancel::default());
        umount2(&point, MntFlags::MNT_DETACH).unwrap();
        let refused = refused.unwrap_err();
        assert!(refused.message.contains("is mounted"), "{refused}");
        assert!(top.path().join("outside/precious").exists());
        for _ in 0..2 {
            remove(&gone, &pods, "/nonexistent", &Cancel::default()).unwrap();
        }
        assert!(!top.path().join("real/pods/u").exists());
        let outside = RemoveRemains::LogDir(format!("{pods}/u"));
        assert_eq!(remove(&outside, &pods, "/logs", &Cancel::default()).unwrap_err().class, FailureClass::Invalid);
    }
}
