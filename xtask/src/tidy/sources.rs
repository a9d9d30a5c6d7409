//! House rules of files: heads, sizes, names, suppressions, words that have no place here.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// No file is longer.
const MAX_LINES: usize = 800;

/// Longer files that were let in, with their length. The list may only shrink.
const LONG_FILES: [(&str, usize); 0] = [];

/// Layers that run in production: nothing there may panic on outside trouble.
const PRODUCTION: [&str; 9] = ["components", "engine", "podspec", "systems", "trace", "io", "proto", "sim", "ticklet"];

/// Words that belong to some machine and not to the project, cut in two so that this file passes.
const MACHINE_WORDS: [&str; 8] = [
    concat!("/wo", "rk/"),
    concat!("bash_", "jobs"),
    concat!("/ro", "ot/."),
    concat!("proxy.go", "lang.org"),
    concat!("sum.go", "lang.org"),
    concat!("index.cra", "tes.io"),
    concat!("pypi", ".org"),
    concat!("deb.deb", "ian.org"),
];

/// Checks every file of the repository.
pub(super) fn check(root: &Path, files: &[PathBuf]) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for path in files {
        let bytes = std::fs::read(root.join(path)).with_context(|| format!("cannot read {}", path.display()))?;
        // Golden traces and other binary test data follow no rule of text.
        let Ok(text) = String::from_utf8(bytes) else {
            continue;
        };
        let rules = check_file(&path.to_string_lossy(), &text);
        findings.extend(rules.into_iter().map(|rule| format!("{}: {rule}", path.display())));
    }
    for (path, _) in LONG_FILES {
        if !files.iter().any(|file| file == Path::new(path)) {
            findings.push(format!("{path}: gone; take it off LONG_FILES"));
        }
    }
    Ok(findings)
}

/// Findings in one text file.
fn check_file(path: &str, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    let generated = path.starts_with("proto/src/gen/");
    let data = path.contains("testdata/") || path == "Cargo.lock" || path == "LICENSE";
    if !data && !generated {
        findings.extend(check_spaces(text));
    }
    if path != "Cargo.lock" {
        for word in MACHINE_WORDS.iter().filter(|word| text.contains(**word)) {
            findings.push(format!("names a machine: `{word}`"));
        }
    }
    if path.ends_with(".rs") && !generated {
        findings.extend(check_rust(path, text));
    }
    findings
}

/// Lines end where their text ends, files with a line end.
fn check_spaces(text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.ends_with([' ', '\t']) {
            findings.push(format!("space at the end of line {}", number + 1));
        }
    }
    if !text.is_empty() && !text.ends_with('\n') {
        findings.push("no line end at the end".to_owned());
    }
    findings
}

/// Rules of a source file written by hand.
fn check_rust(path: &str, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    let lines = text.lines().count();
    match LONG_FILES.iter().find(|(name, _)| *name == path) {
        Some((_, let_in)) if lines > *let_in => {
            findings.push(format!("grew to {lines} lines; it was let in with {let_in}"))
        }
        Some((_, let_in)) if lines < *let_in => {
            findings.push(format!("shrank to {lines} lines: note that in LONG_FILES"))
        }
        Some(_) => {}
        None if lines > MAX_LINES => findings.push(format!("{lines} lines; {MAX_LINES} are the limit: split it")),
        None => {}
    }
    if !text.starts_with("//!") {
        findings.push("does not open with `//!`: say what it decides, reads and writes".to_owned());
    }
    if path.ends_with("/mod.rs") {
        findings.push("call it after its folder, beside it".to_owned());
    }
    let forbidden = [
        (concat!("#[all", "ow("), "say `#[expect(lint, reason = \"…\")]`"),
        (concat!("#![all", "ow("), "say `#[expect(lint, reason = \"…\")]`"),
        (concat!("#[ign", "ore"), "a test that does not run is no test"),
        (concat!("#[should_", "panic"), "check the result instead"),
        (concat!("todo", "!("), "no stubs"),
        (concat!("unimplemented", "!("), "no stubs"),
    ];
    for (word, remedy) in forbidden {
        if text.contains(word) {
            findings.push(format!("`{word}`: {remedy}"));
        }
    }
    if is_production(path) {
        findings.extend(check_panics(text));
    }
    findings
}

/// Whether the file runs on nodes, so not a file of tests.
fn is_production(path: &str) -> bool {
    let layer = path.split('/').next().unwrap_or_default();
    PRODUCTION.contains(&layer)
        && !path.starts_with("proto/codegen/")
        && path.contains("/src/")
        && !path.ends_with("tests.rs")
        && !path.contains("/tests/")
}

/// Calls that panic on outside trouble, before the tests at the end of the file.
fn check_panics(text: &str) -> Vec<String> {
    let code = before_tests(text);
    let calls = [concat!(".unw", "rap()"), concat!(".exp", "ect(\"")];
    let mut findings = Vec::new();
    for (number, line) in code.lines().enumerate() {
        let is_comment = line.trim_start().starts_with("//");
        if !is_comment && calls.iter().any(|call| line.contains(call)) {
            findings.push(format!("line {} panics on outside trouble: return a typed error", number + 1));
        }
    }
    findings
}

/// The text up to the module of tests, whatever stands between its condition and its name.
fn before_tests(text: &str) -> &str {
    let parts = text.match_indices("#[cfg(test)]\n").find(|(at, condition)| {
        let after = text[at + condition.len()..].lines().find(|line| !line.trim_start().starts_with("#["));
        after.is_some_and(|line| line.contains("mod ") && line.ends_with('{'))
    });
    parts.map_or(text, |(at, _)| &text[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, text: &str, expect: &[&str]) {
        let findings = check_file(path, text);
        assert_eq!(findings.len(), expect.len(), "{findings:?}");
        for (finding, part) in findings.iter().zip(expect) {
            assert!(finding.contains(part), "`{finding}` lacks `{part}`");
        }
    }

    #[test]
    fn heads_names_and_spaces() {
        check("io/src/cri.rs", "//! The port.\n", &[]);
        check("io/src/cri.rs", "use std::fs;\n", &["does not open"]);
        check("io/src/cri/mod.rs", "//! The port.\n", &["after its folder"]);
        check("README.md", "a \nb", &["line 1", "no line end"]);
        check("io/tests/testdata/cut.yaml", "a \nb", &[]);
    }

    #[test]
    fn long_files_are_split() {
        let text = format!("//! Head.\n{}", "\n".repeat(MAX_LINES));
        check("io/src/cri.rs", &text, &["801 lines"]);
        check("proto/src/gen/cri.rs", &text, &[]);
    }

    #[test]
    fn panics_live_in_tests_only() {
        let call = concat!("    x.unw", "rap();\n");
        check("io/src/cri.rs", &format!("//! Head.\nfn f() {{\n{call}}}\n"), &["line 3"]);
        check("io/src/cri.rs", &format!("//! Head.\n#[cfg(test)]\nmod tests {{\n{call}}}\n"), &[]);
        check("io/src/cri.rs", &format!("//! Head.\n#[cfg(test)]\npub(crate) mod tests {{\n{call}}}\n"), &[]);
        check("io/src/cri.rs", &format!("//! Head.\n#[cfg(test)]\nfn f() {{\n{call}}}\n"), &["line 4"]);
        check("io/tests/wire.rs", &format!("//! Head.\n{call}"), &[]);
    }

    #[test]
    fn suppressions_and_machines() {
        check("io/src/cri.rs", concat!("//! Head.\n#[all", "ow(dead_code)]\nfn f() {}\n"), &["expect"]);
        check("docs/a.md", concat!("see /wo", "rk/x\n"), &["names a machine"]);
    }
}
