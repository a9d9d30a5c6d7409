//! Every dependency's licence is one we may ship with.

use anyhow::{Context, Result};
use serde_json::Value;

use crate::run::{cargo, output};

/// Licences that go with Apache-2.0 without further duties than a notice.
const ALLOWED: [&str; 13] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Zlib",
];

/// Names every package whose licence expression can't be met.
pub(super) fn check() -> Result<Vec<String>> {
    let metadata =
        output(cargo(&["metadata", "--format-version=1", "--locked", "--filter-platform=x86_64-unknown-linux-gnu"]))?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let packages = metadata["packages"].as_array().context("cargo metadata without packages")?;
    let mut findings = Vec::new();
    for package in packages {
        let licence = package["license"].as_str().unwrap_or("none named");
        if !is_allowed(licence) {
            findings.push(format!("licences: {} {}: {licence}", package["name"], package["version"]));
        }
    }
    Ok(findings)
}

/// Whether an SPDX expression (with the old `/` for OR) can be met with allowed licences.
fn is_allowed(expression: &str) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    any_of(&mut rest) && rest.is_empty()
}

/// Alternatives joined by OR, the loosest binding.
fn any_of(words: &mut &[&str]) -> bool {
    let mut met = all_of(words);
    while let [first, rest @ ..] = *words
        && *first == "OR"
    {
        *words = rest;
        met |= all_of(words);
    }
    met
}

/// Terms joined by AND.
fn all_of(words: &mut &[&str]) -> bool {
    let mut met = term(words);
    while let [first, rest @ ..] = *words
        && *first == "AND"
    {
        *words = rest;
        met &= term(words);
    }
    met
}

/// One licence, maybe with an exception, or an expression in brackets.
fn term(words: &mut &[&str]) -> bool {
    match *words {
        ["(", rest @ ..] => {
            *words = rest;
            let met = any_of(words);
            let closed = words.first() == Some(&")");
            *words = words.get(1..).unwrap_or_default();
            met && closed
        }
        [licence, "WITH", exception, rest @ ..] => {
            *words = rest;
            ALLOWED.contains(&format!("{licence} WITH {exception}").as_str())
        }
        [licence, rest @ ..] => {
            *words = rest;
            ALLOWED.contains(licence)
        }
        [] => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(expression: &str, expect: bool) {
        assert_eq!(is_allowed(expression), expect, "{expression}");
    }

    #[test]
    fn expressions_are_understood() {
        check("MIT", true);
        check("MIT/Apache-2.0", true);
        check("GPL-3.0", false);
        check("GPL-3.0 OR MIT", true);
        check("GPL-3.0 AND MIT", false);
        check("ISC AND (Apache-2.0 OR ISC)", true);
        check("ISC AND (GPL-2.0 OR OpenSSL)", false);
        check("Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT", true);
        check("(MIT OR Apache-2.0) AND Unicode-3.0", true);
        check("(MIT", false);
        check("none named", false);
    }
}
