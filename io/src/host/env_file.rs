//! Environment files in volumes (`fileKeyRef`): lines `NAME='value'`, as a shell would read them.
//!
//! Finds values; decides nothing about them. A file lies in a volume that containers write to, so it is opened without
//! leaving the volume, and only its beginning is read.

use super::HostError;
use components::edge::FailureClass;
use components::edge::host::EnvFileKey;
use components::ids::Sensitive;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::Mode;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Largest file that is read.
const MAX_BYTES: u64 = 1 << 20;

/// The value of a key; `None` when there is no such file or key.
pub(super) fn find(wanted: &EnvFileKey) -> Result<Option<Sensitive>, HostError> {
    let path = Path::new(&wanted.path);
    let root = Path::new(&wanted.volume);
    let volume = open(root, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())
        .map_err(|errno| HostError::errno("open volume", root, errno))?;
    let how = OpenHow::new()
        .flags(OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    let file = match openat2(&volume, path, how) {
        Ok(file) => File::from(file),
        Err(nix::errno::Errno::ENOENT) => return Ok(None),
        Err(errno) => return Err(HostError::errno("open environment file", path, errno)),
    };
    if !file.metadata().is_ok_and(|found| found.is_file()) {
        return Err(HostError::new(FailureClass::Invalid, format!("{} is not a file", path.display())));
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|error| HostError::io("read", path, &error))?;
    if bytes.len() as u64 > MAX_BYTES {
        let message = format!("{} is larger than {} MiB", path.display(), MAX_BYTES >> 20);
        return Err(HostError::new(FailureClass::Exhausted, message));
    }
    let text = String::from_utf8_lossy(&bytes);
    value_of(&text, &wanted.key).map(|found| found.map(Sensitive)).map_err(|(line, what)| {
        let message = format!("invalid environment variable format at line {line}: {what}");
        HostError::new(FailureClass::Invalid, message)
    })
}

/// The first value of `key`, or line and nature of the first mistake before it.
fn value_of(text: &str, key: &str) -> Result<Option<String>, (usize, &'static str)> {
    let blank = [' ', '\t'];
    let mut lines = (1..).zip(text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line)));
    while let Some((number, line)) = lines.next() {
        let line = line.trim_start_matches(blank);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, value) = line.split_once('=').ok_or((number, "missing '='"))?;
        if name.trim_end_matches(blank).is_empty() {
            return Err((number, "empty variable name"));
        }
        if name.ends_with(blank) {
            return Err((number, "whitespace before '=' is not allowed"));
        }
        if value.starts_with(blank) {
            // To a shell this sets nothing.
            if name == key {
                return Ok(Some(String::new()));
            }
            continue;
        }
        let rest = value.strip_prefix('\'').ok_or((number, "value must be enclosed in single quotes"))?;
        let found = quoted(rest, number, &mut lines)?;
        if name == key {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The rest of a quoted value, which may go on over lines.
fn quoted<'t>(
    first: &'t str,
    began: usize,
    lines: &mut impl Iterator<Item = (usize, &'t str)>,
) -> Result<String, (usize, &'static str)> {
    let mut value = String::new();
    let (mut number, mut rest) = (began, first);
    loop {
        if let Some((end, after)) = rest.split_once('\'') {
            value.push_str(end);
            let after = after.trim_start_matches([' ', '\t']);
            let fine = after.is_empty() || after.starts_with('#');
            return if fine { Ok(value) } else { Err((number, "unexpected content after closing quote")) };
        }
        value.push_str(rest);
        value.push('\n');
        (number, rest) = lines.next().ok_or((began, "unclosed single quote"))?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: Result<Option<&str>, &str>) {
        let said = value_of(text, "K").map_err(|(line, what)| format!("{line}: {what}"));
        assert_eq!(said.as_ref().map(|v| v.as_deref()).map_err(String::as_str), expect, "{text:?}");
    }

    #[test]
    fn values_are_quoted_and_may_span_lines() {
        check("K='v'", Ok(Some("v")));
        check("# c\n\n  \tK='v 1' # more\nK='later'\n", Ok(Some("v 1")));
        check("A='1'\nK='a\nb\n'\n", Ok(Some("a\nb\n")));
        check("A='K=\n'\nK='$(X) \\n \"'\r\n", Ok(Some("$(X) \\n \"")));
        check("K=''", Ok(Some("")));
        check("K= 'v'", Ok(Some("")));
        check("", Ok(None));
        check("KK='v'\nk='v'\n", Ok(None));
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        check("\nK", Err("2: missing '='"));
        check("='v'", Err("1: empty variable name"));
        check("K ='v'", Err("1: whitespace before '=' is not allowed"));
        check("K=v", Err("1: value must be enclosed in single quotes"));
        check("A='1'\nK=\"v\"", Err("2: value must be enclosed in single quotes"));
        check("K='v'x", Err("1: unexpected content after closing quote"));
        check("A='1\n2\n", Err("1: unclosed single quote"));
        check("K='v'\nnonsense", Ok(Some("v")));
    }

    #[test]
    fn a_file_cannot_lead_out_of_its_volume() {
        let top = tempfile::tempdir().unwrap();
        let volume = top.path().join("volume");
        std::fs::create_dir(&volume).unwrap();
        std::fs::write(top.path().join("outside.env"), "K='secret'\n").unwrap();
        std::fs::write(volume.join("good.env"), "K='v'\n").unwrap();
        std::os::unix::fs::symlink("../outside.env", volume.join("up.env")).unwrap();
        std::os::unix::fs::symlink(top.path().join("outside.env"), volume.join("far.env")).unwrap();
        std::os::unix::fs::symlink("good.env", volume.join("near.env")).unwrap();
        let wanted = |path: &str| EnvFileKey {
            volume: volume.display().to_string(),
            path: path.to_owned(),
            key: "K".to_owned(),
        };
        for path in ["good.env", "near.env"] {
            assert_eq!(find(&wanted(path)).unwrap(), Some(Sensitive::from("v")), "{path}");
        }
        for path in ["up.env", "far.env", "../outside.env"] {
            find(&wanted(path)).unwrap_err();
        }
        assert_eq!(find(&wanted("none.env")).unwrap(), None);
        find(&wanted(".")).unwrap_err();
    }
}
