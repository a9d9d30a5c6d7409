//! Plays a scenario on a node in virtual time. A failure shows the expectation, what was seen and what happened.

use super::expect::{check_afterwards, check_now};
use super::parse::duration;
use super::{Scenario, What};
use crate::node::faults::Faults;
use crate::node::{LogLine, Node, Options};
use components::node::{ApiConfig, ShutdownBand};
use components::pulls::{PullVerification, VerifyPolicy};
use components::time::Mono;
use engine::Engine;
use std::fmt::Write as _;
use std::time::Duration;

/// Log lines that a failure shows.
const SHOWN: usize = 60;
/// Where the simulated manifest files lie.
const DIRECTORY: &str = "/etc/kubernetes/manifests";

/// Plays the scenario in `text` with these systems.
///
/// # Errors
/// Everything that was not as expected, with the log.
pub fn run(text: &str, plugin: fn(&mut Engine)) -> Result<Node, String> {
    let scenario = super::parse(text)?;
    let mut node = make(&scenario, plugin)?;
    let mut problems = Vec::new();
    for step in &scenario.steps {
        node.run_until(instant(step.at));
        let result = match &step.what {
            What::Expect(expect) => check_now(&node, expect),
            action => act(&mut node, &scenario, action),
        };
        if let Err(seen) = result {
            problems.push((step.line, step.at, seen));
        }
    }
    node.run_until(instant(scenario.end));
    for (line, expect) in &scenario.afterwards {
        if let Err(seen) = check_afterwards(&node.log, expect) {
            problems.push((*line, scenario.end, seen));
        }
    }
    for violation in &node.checks.violations {
        problems.push((0, violation.at.since(Mono(0)), format!("invariant violated: {}", violation.text)));
    }
    if problems.is_empty() { Ok(node) } else { Err(report(text, &problems, &node.log)) }
}

fn make(scenario: &Scenario, plugin: fn(&mut Engine)) -> Result<Node, String> {
    let mut options = Options::new(1, plugin);
    options.log = true;
    options.images.clone_from(&scenario.images);
    for (name, value) in &scenario.options {
        match (name.as_str(), value.as_str()) {
            ("events", "off") => options.events = false,
            ("events", "bare") => options.event_statuses = false,
            ("watch", "off") => options.watch = false,
            ("url", "on") => options.config.url_source = Some("http://manifests.example/pods".into()),
            ("api", "on") => options.config.api = Some(ApiConfig::default()),
            ("node", "on") => options.config.object = Some(Box::new(crate::node::object())),
            ("files", "off") => options.config.file_source = false,
            ("end-orphans", "off") => options.config.end_orphans = false,
            ("file-check", time) => options.config.file_check = duration(time)?,
            ("url-check", time) => options.config.url_check = duration(time)?,
            ("max-restart", time) => options.config.max_restart_period = duration(time)?,
            ("sync", time) => options.config.sync_frequency = duration(time)?,
            ("shutdown", bands) => options.config.shutdown_bands = shutdown_bands(bands)?,
            ("cpu", milli) => options.config.limits.cpu_milli = milli.parse().map_err(|_| "bad option cpu")?,
            ("private", text) if text.contains(' ') => {}
            ("pulls", policy) => options.config.pulls = Some(verification(policy)?),
            ("timeout", time) => options.config.runtime_timeout = duration(time)?,
            _ => reclaim(&mut options, name, value)?,
        }
    }
    let mut node = Node::new(options, Faults::none(1));
    let private = scenario.options.iter().filter(|(name, _)| name == "private");
    for (image, password) in private.filter_map(|(_, text)| text.split_once(' ')) {
        node.runtime.images.private.insert(image.to_owned(), password.to_owned());
    }
    Ok(node)
}

/// A policy that says when pods prove that they may use images.
fn verification(policy: &str) -> Result<PullVerification, String> {
    let policy = VerifyPolicy::from_name(policy).ok_or_else(|| format!("no policy: {policy}"))?;
    Ok(PullVerification { policy, allowlist: Vec::new() })
}

/// Options of what the node reclaims.
fn reclaim(options: &mut Options, name: &str, value: &str) -> Result<(), String> {
    let number = || value.parse::<u32>().map_err(|_| format!("option {name}: {value:?} is not a number"));
    if name == "log-rate" {
        options.log_rate = number()?.into();
        return Ok(());
    }
    let reclaim = &mut options.config.reclaim;
    let rotation = reclaim.rotation.as_mut().ok_or("rotation is off")?;
    let collection = reclaim.collection.as_mut().ok_or("collection is off")?;
    match name {
        "log-size" => rotation.max_bytes = number()?.into(),
        "log-files" => rotation.max_files = number()?,
        "log-workers" => rotation.workers = number()?,
        "log-check" => rotation.period = duration(value)?,
        "gc-period" => collection.period = duration(value)?,
        "dead-per-container" => collection.per_container = Some(number()?),
        "dead-in-all" => collection.total = Some(number()?),
        "dead-min-age" => collection.min_age = duration(value)?,
        _ => return Err(format!("unknown option {name} {value}")),
    }
    Ok(())
}

/// `PRIORITY=SECONDS …`, lowest priority first.
fn shutdown_bands(text: &str) -> Result<Vec<ShutdownBand>, String> {
    let band = |word: &str| {
        let (priority, seconds) = word.split_once('=')?;
        Some(ShutdownBand { priority: priority.parse().ok()?, seconds: seconds.parse().ok()? })
    };
    text.split_whitespace().map(|word| band(word).ok_or_else(|| format!("no band: {word}"))).collect()
}

fn act(node: &mut Node, scenario: &Scenario, action: &What) -> Result<(), String> {
    match action {
        What::Put(source, name, origin) => {
            let json = scenario.manifests.get(name).ok_or_else(|| format!("there is no manifest {name}"))?;
            node.put(*source, &path(origin), json);
        }
        What::Remove(source, origin) => node.remove(*source, &path(origin)),
        What::Spoil(source, origin, problem) => node.spoil(*source, &path(origin), problem),
        What::Kill(pod, container, code) => {
            if !node.kill(&format!("default/{pod}"), container.as_deref(), *code) {
                return Err(format!("nothing runs in {pod}"));
            }
        }
        What::Prune(pod) => {
            if !node.prune(&format!("default/{pod}")) {
                return Err(format!("the runtime has nothing of {pod}"));
            }
        }
        What::Lose(pod) => {
            if !node.lose_sandbox(&format!("default/{pod}")) {
                return Err(format!("no sandbox of {pod} is ready"));
            }
        }
        What::RestartRuntime(pause) => node.restart_runtime(*pause),
        What::CloseEvents => node.close_events(),
        What::Crash(pause) => node.crash(*pause),
        What::Reboot(pause) => node.reboot(*pause),
        What::StepClock(seconds) => node.step_wall(seconds.saturating_mul(1_000_000_000)),
        What::Shutdown(announced) => node.shut_down(*announced),
        What::Drain(grace) => node.drain(*grace),
        What::UseMemory(target, bytes) => {
            let (pod, container) = target.split_once('/').ok_or_else(|| format!("{target:?} is not POD/CONTAINER"))?;
            let running = node.running(&format!("default/{pod}"), Some(container));
            let id = running.first().ok_or_else(|| format!("{target} does not run"))?;
            node.host.memory.insert(id.to_string(), *bytes);
        }
        What::MakePath(path) => {
            node.host.existing.insert(path.clone());
        }
        What::Network(ready) => node.runtime.network_ready = *ready,
        What::Probe(target, mood) => {
            node.moods.0.insert(target.clone(), *mood);
        }
        What::Wipe => node.wipe_runtime(),
        What::Ghost(uid) => node.ghost(uid),
        What::Fault(planned) => node.faults.planned.push(planned.clone()),
        What::Api(act) => super::api::play(node, act, |name| scenario.manifests.get(name).cloned())?,
        What::Expect(_) => {}
    }
    Ok(())
}

fn path(origin: &str) -> String {
    format!("{DIRECTORY}/{origin}")
}

fn instant(at: Duration) -> Mono {
    Mono(0).after(at)
}

fn report(text: &str, problems: &[(usize, Duration, String)], log: &[LogLine]) -> String {
    let mut out = String::new();
    for (line, at, seen) in problems {
        let source = line.checked_sub(1).and_then(|n| text.lines().nth(n)).unwrap_or("");
        let _ = writeln!(out, "line {line}, at {at:?}: {source}\n    but {seen}");
    }
    let first = problems.iter().map(|p| p.1).min().unwrap_or_default();
    let until = log.iter().position(|l| l.at.since(Mono(0)) > first + Duration::from_secs(1)).unwrap_or(log.len());
    let _ = writeln!(out, "what happened until then:");
    for line in &log[until.saturating_sub(SHOWN)..until] {
        let _ = writeln!(out, "  {:>12.3} s  {}", line.at.since(Mono(0)).as_secs_f64(), line.text);
    }
    out
}
