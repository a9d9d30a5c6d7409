//! What `--help` and `--version=raw` print.

use std::fmt::Write;

use components::config::gates::{self, Stage};

use super::KUBERNETES_VERSION;
use super::table::{self, Flag};

const INTRODUCTION: &str = "\
The kubelet is the node agent of Kubernetes: it runs the pods that belong to its node
and keeps them running. This one is ticklet.

Pods come from the API server when --kubeconfig is given, and besides from a file or
directory (staticPodPath) and a URL (staticPodURL), both read again every 20 seconds
unless the configuration says otherwise. Containers that Kubernetes did not make are
left alone.

Settings belong into the file given with --config. Flags override that file; most of
them are deprecated because the file can say the same.
";
const COLUMN: usize = 30;

/// The text of `--help`.
pub(super) fn text() -> String {
    let mut out = format!("{INTRODUCTION}\nUsage:\n  kubelet [flags]\n\nFlags:\n");
    for flag in table::listed() {
        describe(&mut out, flag);
    }
    out
}

fn describe(out: &mut String, flag: &Flag) {
    let short = flag.short().map_or_else(|| "    ".to_owned(), |letter| format!("-{letter}, "));
    let head = format!("  {short}--{} {}", flag.name, flag.kind);
    let head = head.trim_end();
    // Long heads get a line of their own, so that the texts stay in one column.
    let gap =
        if head.len() + 2 > COLUMN { format!("\n{}", " ".repeat(COLUMN)) } else { " ".repeat(COLUMN - head.len()) };
    let mut text = flag.usage.to_owned();
    if flag.name == "feature-gates" {
        for gate in gates::all().iter().filter(|gate| !gate.locked) {
            let stage = match gate.stage {
                Stage::Alpha => "ALPHA",
                Stage::Beta => "BETA",
                Stage::Ga => "GA",
                Stage::Deprecated => "DEPRECATED",
            };
            // Writing to a string cannot fail.
            let _ = write!(text, "\n{}{} ({stage}, default {})", " ".repeat(COLUMN + 2), gate.name, gate.default);
        }
    }
    if !flag.default.is_empty() {
        let _ = write!(text, " (default {})", flag.default);
    }
    if flag.is_deprecated() {
        text.push_str(" (DEPRECATED)");
    }
    let _ = writeln!(out, "{head}{gap}{text}");
}

/// The text of `--version=raw`.
pub(super) fn raw_version() -> String {
    format!(
        "version.Info{{Major:\"1\", Minor:\"37\", GitVersion:\"{KUBERNETES_VERSION}\", Compiler:\"rustc\", \
         Platform:\"{}/{}\"}}\n",
        std::env::consts::OS,
        std::env::consts::ARCH
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_is_listed_once_with_a_meaning() {
        let help = text();
        for flag in table::listed() {
            let lines = help.lines().filter(|line| line.trim_start().starts_with(&format!("--{} ", flag.name)));
            assert!(!flag.usage.is_empty() && flag.usage.len() < 130, "{}", flag.name);
            assert!(lines.count() <= 1, "{}", flag.name);
        }
        assert!(help.contains("      --max-pods int32        Pods the node takes (default 110) (DEPRECATED)\n"));
        assert!(help.contains("\n  -v, --v Level               How much is logged\n"));
        assert!(help.contains("EventedPLEG (ALPHA, default false)"));
    }
}
