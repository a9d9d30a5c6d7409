//! `cargo xtask race`: ticklet against the reference kubelet on the simulated runtime, with the same configuration
//! and manifests; a table with ratios, the goals' verdicts and JSON. With the word `probes` every pod has a probe a
//! second, over HTTP or TCP, at a real target on the loopback.
//!
//! Starts processes and writes below one folder of its own; stops and removes all of it, also after a failure or
//! Ctrl-C. Fails only when a run itself failed: a missed goal is printed, not returned.

mod laps;
mod racer;
mod report;
mod runtime;
mod site;
mod targets;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, bail};
use serde_json::json;
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
    let mut results: Vec<(&'static str, Vec<Laps>)> = contenders.iter().map(|c| (c.name, Vec::new())).collect();
    for number in 1..=options.runs {
        for (contender, (_, laps)) in contenders.iter().zip(&mut results) {
            println!("run {number} of {}: {} with {} pods", options.runs, contender.name, options.pods);
            let plan = laps::Plan {
                pods: options.pods,
                steady_seconds: options.steady_seconds,
                simulator: &ticklet,
                stop: &stop,
                keep: options.keep,
                probes: options.probes,
            };
            laps.push(laps::run(contender, &plan).with_context(|| format!("the run of {} failed", contender.name))?);
        }
    }
    let medians: Vec<(&'static str, Laps)> = results.iter().map(|(name, laps)| (*name, report::median(laps))).collect();
    for line in report::lines(&medians, options.pods) {
        println!("{line}");
    }
    let all: Vec<_> = results
        .iter()
        .map(|(name, laps)| json!({"name": name, "runs": laps.iter().map(Laps::json).collect::<Vec<_>>()}))
        .collect();
    let document = json!({"pods": options.pods, "contenders": all, "goals": report::goals_json(&medians)});
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

fn build_ticklet() -> Result<PathBuf> {
    run(cargo(&["build", "--release", "--locked", "-p", "ticklet"]))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    Ok(target.join("release/ticklet"))
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
    };
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
        let Some(value) = args.next() else { bail!("{arg} is unknown or needs a value") };
        let number =
            || value.parse::<usize>().ok().filter(|n| *n > 0).context(format!("{arg}: `{value}` is no number"));
        match arg.as_str() {
            "--kubelet" => options.kubelet = Some(value.into()),
            "--ticklet" => options.ticklet = Some(value.into()),
            "--pods" => options.pods = number()?,
            "--runs" => options.runs = number()?,
            "--steady" => options.steady_seconds = number()? as u64,
            "--only" if ["kubelet", "ticklet"].contains(&value.as_str()) => options.only = Some(value.clone()),
            "--json" => options.json = Some(value.into()),
            other => bail!("unknown argument `{other} {value}`"),
        }
    }
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
        for wrong in ["--pods", "--pods 0", "--pods x", "--only both", "--fast 1"] {
            assert!(parse(&words(wrong)).is_err(), "{wrong}");
        }
    }
}
