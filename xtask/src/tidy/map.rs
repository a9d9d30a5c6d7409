//! The map of the repository must not rot: every path that `ARCHITECTURE.md` names exists.

use std::path::Path;

use anyhow::{Context, Result};

const MAP: &str = "ARCHITECTURE.md";

/// Names every path of the map that is gone.
pub(super) fn check(root: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(root.join(MAP)).with_context(|| format!("cannot read {MAP}"))?;
    let gone = paths(&text).filter(|path| !root.join(path).exists());
    Ok(gone.map(|path| format!("map: {MAP} names `{path}`, which does not exist")).collect())
}

/// The words between backquotes that are paths: they hold a slash or end like a file of ours.
fn paths(text: &str) -> impl Iterator<Item = &str> {
    let quoted = text.split('`').skip(1).step_by(2);
    quoted.filter(|word| {
        let is_path = word.contains('/') || [".rs", ".md", ".toml"].iter().any(|end| word.ends_with(end));
        is_path && word.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c)) && !word.starts_with('/')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_are_taken() {
        let text = "See `io/src/cri.rs` and `README.md`; `World` and `/var/lib` and `a b/c` are none.";
        assert_eq!(paths(text).collect::<Vec<_>>(), ["io/src/cri.rs", "README.md"]);
    }
}
