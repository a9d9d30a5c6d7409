//! `cargo xtask tidy`: the structure of the repository, checked by machine.
//!
//! Decides whether layers import only what the design allows and whether files follow the house rules. Reads the
//! repository and `cargo metadata`; writes nothing. One line per finding: rule, place, what to do.

mod board;
mod imports;
mod licences;
mod map;
mod sources;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::run::{command, output, root};

/// Prints all findings; any is a failure.
pub(crate) fn task() -> Result<()> {
    let findings = findings()?;
    for finding in &findings {
        eprintln!("{finding}");
    }
    if !findings.is_empty() {
        bail!("{} findings", findings.len());
    }
    println!("tidy");
    Ok(())
}

/// All findings in the repository.
fn findings() -> Result<Vec<String>> {
    let root = root();
    let files = tracked_files(&root)?;
    let mut findings = imports::check()?;
    findings.extend(licences::check()?);
    findings.extend(sources::check(&root, &files)?);
    findings.extend(map::check(&root)?);
    findings.extend(board::check(&root)?);
    Ok(findings)
}

/// Files of the repository that git tracks or would track, relative to the root.
fn tracked_files(root: &Path) -> Result<Vec<PathBuf>> {
    let listed = output(command("git", &["ls-files", "--cached", "--others", "--exclude-standard"]))?;
    Ok(listed.lines().map(PathBuf::from).filter(|path| root.join(path).is_file()).collect())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_repository_is_tidy() {
        assert_eq!(super::findings().unwrap(), Vec::<String>::new());
    }
}
