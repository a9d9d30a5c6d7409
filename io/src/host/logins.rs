//! Reads the logins of docker configurations on this host.

use components::registry::{self, RegistryLogin};
use std::fs;
use std::io::ErrorKind;

/// Longest file that is read.
const MAX_BYTES: u64 = 1 << 20;

/// The logins of the first file that can be read, and what is wrong with those before it.
pub(super) fn read(paths: &[String]) -> (Vec<RegistryLogin>, Vec<String>) {
    let mut problems = Vec::new();
    for path in paths {
        match one(path) {
            Ok(Some(logins)) => return (logins, problems),
            Ok(None) => {}
            Err(why) => problems.push(format!("{path}: {why}")),
        }
    }
    (Vec::new(), problems)
}

fn one(path: &str) -> Result<Option<Vec<RegistryLogin>>, String> {
    let size = match fs::metadata(path) {
        Ok(found) => found.len(),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    if size > MAX_BYTES {
        return Err(format!("has {size} bytes, more than {MAX_BYTES}"));
    }
    let text = fs::read(path).map_err(|error| error.to_string())?;
    registry::logins(&text, !path.ends_with(".dockercfg")).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_readable_file_counts() {
        let top = tempfile::tempdir().unwrap();
        let at = |name: &str| top.path().join(name).display().to_string();
        let paths = [at("none.json"), at("config.json"), at(".dockercfg")];
        assert_eq!(read(&paths), (Vec::new(), Vec::new()));
        fs::write(&paths[2], r#"{"old":{"username":"u","password":"p"}}"#).unwrap();
        assert_eq!(read(&paths).0[0].server, "old");
        fs::write(&paths[1], "geheim").unwrap();
        let (logins, problems) = read(&paths);
        assert_eq!((logins[0].server.as_str(), problems.len()), ("old", 1));
        assert!(problems[0].contains("config.json: not valid JSON") && !problems[0].contains("geheim"), "{problems:?}");
        fs::write(&paths[1], r#"{"auths":{"new":{"username":"u","password":"p"}}}"#).unwrap();
        assert_eq!(read(&paths).0[0].server, "new");
    }
}
