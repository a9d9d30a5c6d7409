//! `cargo xtask race`: ticklet against the reference kubelet on the simulated runtime, with the same configuration
//! and manifests; a table with ratios, the goals' verdicts and JSON. With the word `probes` every pod has a probe a
//! second, over HTTP or TCP, at a real target on the loopback. With the word `api` the pods come from a real API server.
//!
//! Starts processes and writes below one folder of its own; stops and removes all of it, also after a failure or
//! Ctrl-C. Fails only when a run itself failed: a missed goal is printed, not returned.

mod cluster;
mod floor;
mod laps;
mod racer;
mod report;
mod runtime;
mod site;
mod targets;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::run::{cargo, root, run};
use laps::Laps;
use racer::Contender;

/// What was asked for.
#[derive(Debug, PartialEq)]
struct Options {
    kubelet: Option<PathBuf>,
    ticklet: Option<PathBuf>,
    pods: usize,
    runs: usize,
    steady_seconds: u64,
    only: Option<String>,
    json: Option<PathBuf>,
    keep: bool,
    /// Every pod has a probe a second: HTTP for the even ones, TCP for the odd ones.
    probes: bool,
    /// The pods come from a real API server.
    api: bool,
    /// Requests a second that either kubelet may send to the API server; the kubelet's default when not given.
    qps: Option<usize>,
}

/// Runs the race.
pub(crate) fn task(args: &[String]) -> Result<()> {
    let options = parse(args)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot wait for signals")?;
    }
    if !crate::run::has_program("curl") {
        bail!("the race asks both kubelets for their pods with `curl`: install it");
    }
    let ticklet = options.ticklet.clone().map_or_else(build_ticklet, Ok)?;
    let mut contenders = Vec::new();
    if options.only.as_deref() != Some("ticklet") {
        let program = options.kubelet.clone().map_or_else(::tests::tools::kubelet, Ok)?;
        contenders.push(Contender { name: "kubelet", program });
    }
    if options.only.as_deref() != Some("kubelet") {
        contenders.push(Contender { name: "ticklet", program: ticklet.clone() });
    }
    if options.api {
        ::tests::tools::ensure_cluster()?;
        race(&options, &contenders, (&ticklet, &stop), cluster::run, |racers| {
            let medians: Vec<_> = racers.iter().map(|(name, laps)| (*name, cluster::median(laps))).collect();
            let of = |laps: &[cluster::Laps]| laps.iter().map(cluster::Laps::json).collect();
            Outcome { lines: cluster::lines(&medians, options.pods), goals: Value::Null, runs: runs(racers, of) }
        })
    } else {
        race(&options, &contenders, (&ticklet, &stop), laps::run, |racers| {
            let medians: Vec<_> = racers.iter().map(|(name, laps)| (*name, report::median(laps))).collect();
            let of = |laps: &[Laps]| laps.iter().map(Laps::json).collect();
            let goals = report::goals_json(&medians);
            Outcome { lines: report::lines(&medians, options.pods), goals, runs: runs(racers, of) }
        })
    }
}

/// What all runs say.
struct Outcome {
    lines: Vec<String>,
    goals: Value,
    runs: Vec<Value>,
}

fn runs<L>(racers: &[(&'static str, Vec<L>)], of: fn(&[L]) -> Vec<Value>) -> Vec<Value> {
    racers.iter().map(|(name, laps)| json!({"name": name, "runs": of(laps)})).collect()
}

/// Lets every contender run as often as was asked for, in turn, and tells what came of it.
fn race<L>(
    options: &Options,
    contenders: &[Contender],
    (simulator, stop): (&Path, &AtomicBool),
    run: fn(&Contender, &laps::Plan<'_>) -> Result<L>,
    tell: impl Fn(&[(&'static str, Vec<L>)]) -> Outcome,
) -> Result<()> {
    let mut results: Vec<(&'static str, Vec<L>)> = contenders.iter().map(|c| (c.name, Vec::new())).collect();
    for number in 1..=options.runs {
        for (contender, (_, laps)) in contenders.iter().zip(&mut results) {
            println!("run {number} of {}: {} with {} pods", options.runs, contender.name, options.pods);
            let plan = laps::Plan {
                pods: options.pods,
                steady_seconds: options.steady_seconds,
                simulator,
                stop,
                keep: options.keep,
                probes: options.probes,
                qps: options.qps,
            };
            laps.push(run(contender, &plan).with_context(|| format!("the run of {} failed", contender.name))?);
        }
    }
    let outcome = tell(&results);
    for line in outcome.lines {
        println!("{line}");
    }
    if options.probes {
        // After what the race itself says, which is not lost should this fail.
        for line in floor::lines(options.pods)? {
            println!("{line}");
        }
    }
    let document = json!({"pods": options.pods, "contenders": outcome.runs, "goals": outcome.goals});
    match &options.json {
        Some(path) => {
            std::fs::write(path, format!("{document:#}\n")).with_context(|| format!("cannot write {}", path.display()))
        }
        None => {
            println!("{document}");
            Ok(())
        }
    }
}

/// The program as it is installed on nodes.
fn build_ticklet() -> Result<PathBuf> {
    run(cargo(&["build", "--profile", "dist", "--locked", "-p", "ticklet"]))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    Ok(target.join("dist/ticklet"))
}

fn parse(args: &[String]) -> Result<Options> {
    let mut options = Options {
        kubelet: None,
        ticklet: None,
        pods: 500,
        runs: 1,
        steady_seconds: 60,
        only: None,
        json: None,
        keep: false,
        probes: false,
        api: false,
        qps: None,
    };
    let mut pods = None;
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        if arg == "--keep" {
            options.keep = true;
            continue;
        }
        if arg == "probes" {
            options.probes = true;
            continue;
        }
        if arg == "api" {
            options.api = true;
            continue;
        }
        let Some(value) = args.next() else { bail!("{arg} is unknown or needs a value") };
        let number =
            || value.parse::<usize>().ok().filter(|n| *n > 0).context(format!("{arg}: `{value}` is no number"));
        match arg.as_str() {
            "--kubelet" => options.kubelet = Some(value.into()),
            "--ticklet" => options.ticklet = Some(value.into()),
            "--pods" => pods = Some(number()?),
            "--qps" => options.qps = Some(number()?),
            "--runs" => options.runs = number()?,
            "--steady" => options.steady_seconds = number()? as u64,
            "--only" if ["kubelet", "ticklet"].contains(&value.as_str()) => options.only = Some(value.clone()),
            "--json" => options.json = Some(value.into()),
            other => bail!("unknown argument `{other} {value}`"),
        }
    }
    if options.api && options.probes {
        bail!("`api` and `probes` are two races: run one after the other");
    }
    options.pods = pods.unwrap_or(if options.api { 300 } else { 500 });
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn the_command_line_has_defaults_and_refuses_what_it_does_not_know() {
        let options = parse(&[]).unwrap();
        assert_eq!((options.pods, options.runs, options.steady_seconds, options.only), (500, 1, 60, None));
        let options = parse(&words("--pods 20 --kubelet /k --json out.json --only ticklet --keep")).unwrap();
        assert_eq!((options.pods, options.kubelet, options.keep), (20, Some("/k".into()), true));
        assert!(parse(&words("probes --pods 20")).unwrap().probes);
        assert_eq!(parse(&words("api")).unwrap().pods, 300);
        assert_eq!(parse(&words("--pods 7 api")).unwrap().pods, 7);
        for wrong in ["--pods", "--pods 0", "--pods x", "--only both", "--fast 1", "api probes"] {
            assert!(parse(&words(wrong)).is_err(), "{wrong}");
        }
    }
}
