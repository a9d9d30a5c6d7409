//! `cargo xtask conformance`: the official suite on a node that ticklet runs, compared with what the reference passes.
//!
//! Reads the record of the reference in `tests/conformance`, writes reports below `target/conformance` and the table in
//! `docs/conformance.md`. Fails when a spec that the reference passes does not pass.

mod page;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tests::suite::report::{self, Outcomes};
use tests::suite::{GROUPS, Group, Rig, group};
use tests::tunables::Tunables;

use crate::run::{cargo, root, run};
use crate::{install, lab};

/// What the command line asks for.
#[derive(Debug, Default)]
struct Asked {
    groups: Vec<&'static Group>,
    focus: Option<String>,
    procs: u16,
    reference: bool,
    /// A program to use in place of a new build.
    ticklet: Option<PathBuf>,
    /// The node stays up until Ctrl-C, before the groups and after them.
    hold: bool,
    /// Writes what passed as the new record.
    record: bool,
    /// Reports of an earlier run, a folder for each group, to compare instead of a new run.
    from: Option<PathBuf>,
}

/// Runs the groups and reports.
pub(crate) fn task(args: &[String]) -> Result<()> {
    let asked = parse(args)?;
    if let Some(dir) = &asked.from {
        return judge(&asked, &earlier(&asked, dir)?);
    }
    let kubelet = kubelet(&asked)?;
    install::tools()?;
    install::sweep()?;
    tests::tools::ensure_cluster()?;
    let tools = tests::tools::ensure_suite()?;
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot wait for signals")?;
    // The reference sets kernel parameters at start; they are put back when this ends.
    let _tunables = Tunables::save();
    let mut rig = Rig::start(tools, &kubelet)?;
    println!("the node is ready; it lies in {}", rig.node.lab.dir().display());
    let results = all(&asked, &rig, &mut signals);
    if asked.hold && results.is_ok() {
        println!("Ctrl-C ends it");
        signals.forever().next();
    }
    keep_log(&rig)?;
    rig.stop()?;
    lab::clean(&mut rig.node.lab)?;
    judge(&asked, &results?)
}

/// Groups that ran, with what was found and how long it took.
type Results = Vec<(&'static Group, Outcomes, Duration)>;

fn all(asked: &Asked, rig: &Rig, signals: &mut Signals) -> Result<Results> {
    let mut results = Results::new();
    for group in &asked.groups {
        println!("running {}", group.name);
        let since = Instant::now();
        let mut running = rig.run(group, asked.focus.as_deref(), asked.procs, &out(group))?;
        let found = loop {
            if signals.pending().next().is_some() {
                bail!("interrupted");
            }
            if let Some(path) = running.wait(Duration::from_millis(500))? {
                break report::read(&fs::read_to_string(path)?)?;
            }
        };
        results.push((group, found, since.elapsed()));
        show(group, &results);
    }
    Ok(results)
}

/// Reads the reports of an earlier run.
fn earlier(asked: &Asked, dir: &Path) -> Result<Results> {
    let mut results = Results::new();
    for group in &asked.groups {
        let path = dir.join(group.name).join("report.json");
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        results.push((group, report::read(&text)?, report::run_time(&text)?));
        show(group, &results);
    }
    Ok(results)
}

/// Says what a group lost as soon as it ended.
fn show(group: &Group, results: &Results) {
    let Some((_, found, took)) = results.last() else { return };
    let passed = found.values().filter(|outcome| **outcome == report::Outcome::Passed).count();
    println!("{}: {passed} of {} passed in {} s", group.name, found.len(), took.as_secs());
    for (name, outcome) in found {
        if let report::Outcome::Failed(why) = outcome {
            println!("  {name}\n    {why}");
        }
    }
}

fn judge(asked: &Asked, results: &Results) -> Result<()> {
    if asked.record {
        for (group, found, _) in results {
            fs::write(record_file(group), report::write_record(found))?;
        }
        return Ok(());
    }
    let mut lost = 0;
    let mut groups = Vec::new();
    for (group, found, took) in results {
        let mut reference = report::read_record(&fs::read_to_string(record_file(group))?)?;
        if asked.focus.is_some() {
            reference.retain(|name, _| found.contains_key(name));
        }
        let missed = report::lost(&reference, found);
        lost += missed.len();
        groups.push(page::Section { group, reference, found, took: *took, missed });
    }
    // The page speaks of whole groups of ticklet's.
    if asked.focus.is_none() && !asked.reference && !groups.is_empty() {
        let path = root().join("docs/conformance.md");
        fs::write(&path, page::update(&fs::read_to_string(&path).unwrap_or_default(), &groups))?;
        println!("wrote {}", path.display());
    }
    if lost > 0 {
        bail!("{lost} specs that the reference passes did not pass");
    }
    Ok(())
}

fn kubelet(asked: &Asked) -> Result<PathBuf> {
    if asked.reference {
        return tests::tools::kubelet();
    }
    if let Some(path) = &asked.ticklet {
        return Ok(path.clone());
    }
    run(cargo(&["build", "--release", "--locked", "--package", "ticklet"]))?;
    Ok(root().join("target/release/ticklet"))
}

fn keep_log(rig: &Rig) -> Result<()> {
    let kept = root().join("target/conformance");
    fs::create_dir_all(&kept)?;
    fs::write(kept.join("kubelet.log"), rig.node.log()?).context("cannot keep the kubelet's log")
}

fn out(group: &Group) -> PathBuf {
    root().join("target/conformance").join(group.name)
}

fn record_file(group: &Group) -> PathBuf {
    root().join(Path::new("tests/conformance")).join(format!("{}.tsv", group.name))
}

fn parse(args: &[String]) -> Result<Asked> {
    let mut asked = Asked { procs: 8, ..Asked::default() };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--kubelet" => match value()?.as_str() {
                "reference" => asked.reference = true,
                "ticklet" => asked.reference = false,
                other => bail!("no kubelet `{other}`: say reference or ticklet"),
            },
            "--focus" => asked.focus = Some(value()?.clone()),
            "--procs" => asked.procs = value()?.parse().context("--procs needs a number")?,
            "--ticklet" => asked.ticklet = Some(PathBuf::from(value()?)),
            "--from" => asked.from = Some(PathBuf::from(value()?)),
            "--hold" => asked.hold = true,
            "--record" => asked.record = true,
            name => asked.groups.push(group(name).with_context(|| format!("no group `{name}`"))?),
        }
    }
    if asked.groups.is_empty() && !asked.hold {
        asked.groups = GROUPS.iter().collect();
    }
    if asked.record && (!asked.reference || asked.focus.is_some()) {
        bail!("--record is for whole groups of the reference: --kubelet reference, no --focus");
    }
    Ok(asked)
}

#[cfg(test)]
mod tests_of_words {
    use super::*;

    fn words(text: &str) -> Result<Asked> {
        parse(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn groups_and_options_are_read() {
        assert_eq!(words("").unwrap().groups.len(), GROUPS.len());
        let asked = words("storage --focus EmptyDir --procs 3 --kubelet reference").unwrap();
        assert_eq!((asked.groups.len(), asked.groups[0].name, asked.procs, asked.reference), (1, "storage", 3, true));
        assert_eq!(asked.focus.as_deref(), Some("EmptyDir"));
        for bad in ["nonsense", "--procs", "--procs x", "--kubelet other", "--record storage"] {
            assert!(words(bad).is_err(), "{bad}");
        }
    }
}
