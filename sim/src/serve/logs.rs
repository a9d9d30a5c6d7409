//! Log files of served containers, in the CRI log format. Trouble with a log never stops a container.

use components::time::Wall;
use std::io::Write;
use std::path::Path;

/// Appends one line of standard output.
pub(super) fn append(path: &str, at: Wall, text: &str) {
    let path = Path::new(path);
    let line = format!("{} stdout F {text}\n", at.rfc3339_nano());
    let open = || std::fs::OpenOptions::new().create(true).append(true).open(path);
    let file = open().or_else(|_| {
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        open()
    });
    if let Ok(mut file) = file {
        let _ = file.write_all(line.as_bytes());
    }
}
