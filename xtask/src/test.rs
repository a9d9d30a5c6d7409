//! `cargo xtask test`: the steps of CI in order, and the report at the end.
//!
//! Goes on after a failed step, so that one run shows everything that is wrong.

use anyhow::{Result, bail};

use crate::step::Report;
use crate::{checks, codegen, install, rungs, tidy};

/// Runs all steps, or those named after `--only`; what follows `--` filters tests by name.
pub(crate) fn task(args: &[String]) -> Result<()> {
    if let Some(("--reference", rest)) = args.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        return crate::cases::task(rest.strip_prefix(&["--".to_owned()][..]).unwrap_or(rest));
    }
    let (only, filter) = parse(args)?;
    let mut report = Report::new(only);
    report
        .step("install", "needs root, apt-get and a network on a machine that lacks a program", |_| install::missing());
    report.step("tidy", "each line names the rule and the file", |_| tidy::task());
    report.step("fmt", "run `cargo fmt --all`", |_| checks::format());
    report.step("clippy", "run `cargo clippy --workspace --all-targets` and mend what it names", |_| checks::lints());
    report.step("codegen", "run `cargo xtask codegen` and commit what it writes", |_| codegen::run(true));
    report.step("wasm", "the core may use no operating system: move that code to `io`", |_| checks::pure_core());
    rungs::run(&mut report, &filter);
    if let Some(name) = report.unknown() {
        bail!("there is no step `{name}`");
    }
    if !report.finish() {
        bail!("not green");
    }
    Ok(())
}

/// Splits `--only A,B -- FILTER…`.
fn parse(args: &[String]) -> Result<(Vec<String>, Vec<String>)> {
    let mut only = Vec::new();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--only" => {
                let Some(names) = args.next() else { bail!("--only needs the name of a step") };
                only.extend(names.split(',').map(str::to_owned));
            }
            "--" => return Ok((only, args.cloned().collect())),
            other => bail!("unknown argument `{other}`"),
        }
    }
    Ok((only, Vec::new()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_name_steps_and_tests() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(parse(&words("--only unit,fmt -- backoff")).unwrap(), (words("unit fmt"), words("backoff")));
        assert_eq!(parse(&[]).unwrap(), (vec![], vec![]));
        assert!(parse(&words("--onyl unit")).is_err());
    }
}
