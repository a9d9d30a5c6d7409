//! Reads a scenario. Every mistake names its line.

use super::{Afterwards, Now, Scenario, Step, What};
use crate::node::faults::{Planned, PlannedFault};
use crate::node::probes::Mood;
use components::edge::FailureClass;
use components::edge::sources::Source;
use serde_json::{Value, json};
use std::time::Duration;

/// Time that a run goes on after the last thing that is said about it.
const TAIL: Duration = Duration::from_secs(1);

/// Reads a scenario.
///
/// # Errors
/// The first mistake, with its line.
pub fn parse(text: &str) -> Result<Scenario, String> {
    let mut scenario = Scenario::default();
    let mut end = None;
    let mut lines = text.lines().enumerate().map(|(n, l)| (n + 1, l)).peekable();
    while let Some((number, line)) = lines.next() {
        let code = line.split(" #").next().unwrap_or(line).trim_end();
        if code.trim().is_empty() || code.starts_with('#') {
            continue;
        }
        let problem = |what: String| format!("line {number}: {what}: {line:?}");
        if let Some(name) = code.strip_prefix("manifest ") {
            let mut block = String::new();
            while let Some((_, body)) = lines.next_if(|(_, l)| l.starts_with(' ') || l.trim().is_empty()) {
                block.push_str(body);
                block.push('\n');
            }
            let name = name.trim_end_matches(':');
            scenario.manifests.insert(name.to_owned(), manifest(name, &block).map_err(problem)?);
            continue;
        }
        let words: Vec<&str> = code.split_whitespace().collect();
        match words.as_slice() {
            ["image", name] => scenario.images.push((*name).to_owned()),
            ["option", name, value @ ..] => scenario.options.push(((*name).to_owned(), value.join(" "))),
            ["end", time] => end = Some(duration(time).map_err(problem)?),
            ["fault", rest @ ..] => {
                let what = fault(rest).map_err(problem)?;
                scenario.steps.push(Step { at: Duration::ZERO, line: number, what });
            }
            ["at", time, rest @ ..] => {
                let at = duration(time).map_err(problem)?;
                let what = action(rest).map_err(problem)?;
                scenario.steps.push(Step { at, line: number, what });
            }
            ["expect", "at", time, rest @ ..] => {
                let at = duration(time).map_err(problem)?;
                let what = What::Expect(state(rest).map_err(problem)?);
                scenario.steps.push(Step { at, line: number, what });
            }
            ["expect", rest @ ..] => scenario.afterwards.push((number, whole(rest).map_err(problem)?)),
            _ => return Err(problem("not understood".into())),
        }
    }
    scenario.steps.sort_by_key(|s| s.at);
    let last = scenario.steps.last().map_or(Duration::ZERO, |s| s.at);
    scenario.end = end.unwrap_or(last + TAIL).max(last);
    Ok(scenario)
}

/// The pod of a block as JSON, with its defaults.
fn manifest(name: &str, block: &str) -> Result<String, String> {
    let mut pod: Value = serde_saphyr::from_str(block).map_err(|e| format!("bad YAML: {e}"))?;
    let object = pod.as_object_mut().ok_or("a pod is a mapping")?;
    object.entry("apiVersion").or_insert(json!("v1"));
    object.entry("kind").or_insert(json!("Pod"));
    let metadata = object.entry("metadata").or_insert(json!({}));
    let metadata = metadata.as_object_mut().ok_or("metadata is a mapping")?;
    metadata.entry("name").or_insert(json!(name));
    metadata.entry("uid").or_insert(json!(format!("uid-{name}")));
    metadata.entry("namespace").or_insert(json!("default"));
    for group in ["initContainers", "containers"] {
        let containers = pod.pointer_mut(&format!("/spec/{group}")).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let container = container.as_object_mut().ok_or("a container is a mapping")?;
            container.entry("image").or_insert(json!("busybox:1"));
        }
    }
    Ok(pod.to_string())
}

fn action(words: &[&str]) -> Result<What, String> {
    let file = |name: &str| if name.contains('.') { name.to_owned() } else { format!("{name}.yaml") };
    Ok(match words {
        ["put", name] => What::Put(Source::File, (*name).into(), file(name)),
        ["put", name, "in", origin] => What::Put(Source::File, (*name).into(), file(origin)),
        ["put-url", name] => What::Put(Source::Http, (*name).into(), file(name)),
        ["remove", name] => What::Remove(Source::File, file(name)),
        ["remove-url", name] => What::Remove(Source::Http, file(name)),
        ["spoil", name, problem @ ..] => What::Spoil(Source::File, file(name), problem.join(" ")),
        ["kill", target, "exit", code] => {
            let (pod, container) = target.split_once('/').map_or((*target, None), |(p, c)| (p, Some(c.to_owned())));
            What::Kill(pod.into(), container, number(code)?)
        }
        ["lose", pod] => What::Lose((*pod).into()),
        ["prune", pod] => What::Prune((*pod).into()),
        ["restart-runtime", pause] => What::RestartRuntime(duration(pause)?),
        ["close-events"] => What::CloseEvents,
        ["crash"] => What::Crash(Duration::from_millis(100)),
        ["crash", pause] => What::Crash(duration(pause)?),
        ["reboot", pause] => What::Reboot(duration(pause)?),
        ["step-clock", by] => What::StepClock(step(by)?),
        ["shutdown"] => What::Shutdown(true),
        ["shutdown", "cancelled"] => What::Shutdown(false),
        ["drain"] => What::Drain(None),
        ["drain", grace] => What::Drain(Some(number(grace)?)),
        ["wipe"] => What::Wipe,
        ["ghost", uid] => What::Ghost((*uid).into()),
        ["use-memory", target, bytes] => What::UseMemory((*target).into(), number(bytes)?),
        ["make-path", path] => What::MakePath((*path).into()),
        ["network", "up"] => What::Network(true),
        ["network", "down"] => What::Network(false),
        ["probe", target, mood] => {
            let mood = match *mood {
                "pass" => Mood::Pass,
                "fail" => Mood::Fail,
                "hang" => Mood::Hang,
                other => return Err(format!("unknown mood {other}")),
            };
            What::Probe(format!("default/{target}"), mood)
        }
        ["fault", rest @ ..] => fault(rest)?,
        ["api", rest @ ..] => What::Api(super::api::act(rest)?),
        _ => return Err("unknown action".into()),
    })
}

/// `EFFECT [TARGET] KIND COUNT [TEXT…]`.
fn fault(words: &[&str]) -> Result<What, String> {
    const KINDS: [&str; 11] = [
        "fail",
        "unavailable",
        "missing",
        "fail-after",
        "hang",
        "lose-answer",
        "late",
        "slow",
        "crash-before",
        "crash-after",
        "refuse",
    ];
    let at = words.iter().position(|w| KINDS.contains(w)).ok_or("unknown kind of fault")?;
    let (effect, target) = match words.get(..at) {
        Some([effect]) => (*effect, ""),
        Some([effect, target]) => (*effect, *target),
        _ => return Err("an effect and at most one target come before the kind of fault".into()),
    };
    let count = number(words.get(at + 1).ok_or("the count is missing")?)?;
    let rest = words.get(at + 2..).unwrap_or_default();
    let text = if rest.is_empty() { "simulated fault".to_owned() } else { rest.join(" ") };
    let time = || rest.first().map_or(Ok(Duration::from_secs(1)), |t| duration(t));
    let what = match words[at] {
        "unavailable" => PlannedFault::Fail(FailureClass::Unavailable, text),
        "missing" => PlannedFault::Fail(FailureClass::NotFound, text),
        "fail-after" => PlannedFault::FailAfter(FailureClass::Other, text),
        "hang" => PlannedFault::Hang,
        "lose-answer" => PlannedFault::LoseAnswer,
        "late" => PlannedFault::Late(time()?),
        "slow" => PlannedFault::Slow(time()?),
        "crash-before" => PlannedFault::Crash(false),
        "crash-after" => PlannedFault::Crash(true),
        _ => PlannedFault::Fail(FailureClass::Other, text),
    };
    Ok(What::Fault(Planned { effect: effect.into(), target: target.into(), left: count, what }))
}

fn state(words: &[&str]) -> Result<Now, String> {
    let container = |target: &str| {
        let (pod, name) = target.split_once('/').ok_or_else(|| format!("{target:?} is not POD/CONTAINER"))?;
        Ok::<_, String>((pod.to_owned(), name.to_owned()))
    };
    Ok(match words {
        ["phase", pod, phase] => Now::Phase((*pod).into(), (*phase).into()),
        ["stage", pod, stage] => Now::Stage((*pod).into(), (*stage).into()),
        ["file", uid, path, content @ ..] => Now::File((*uid).into(), (*path).into(), content.join(" ")),
        ["gone", pod] => Now::Gone((*pod).into()),
        ["running", target] => container(target).map(|(p, c)| Now::Running(p, c))?,
        ["stopped", target] => container(target).map(|(p, c)| Now::Stopped(p, c))?,
        ["restarts", target, n] => {
            let (pod, name) = container(target)?;
            Now::Restarts(pod, name, number(n)?)
        }
        ["reason", target, reason] => {
            let (pod, name) = container(target)?;
            Now::Reason(pod, name, (*reason).into())
        }
        ["exit", target, code] => {
            let (pod, name) = container(target)?;
            Now::Exit(pod, name, number(code)?)
        }
        ["message", target, text @ ..] => {
            let (pod, name) = container(target)?;
            Now::Message(pod, name, text.join(" "))
        }
        ["ready", pod] => Now::Ready((*pod).into(), true),
        ["notready", pod] => Now::Ready((*pod).into(), false),
        ["dirs", uid] => Now::Dirs((*uid).into(), true),
        ["nodirs", uid] => Now::Dirs((*uid).into(), false),
        ["logs", target, files @ ..] => {
            let (pod, name) = container(target)?;
            Now::Logs(pod, name, files.join(" "))
        }
        ["dead", target, n] => {
            let (pod, name) = container(target)?;
            Now::Dead(pod, name, number(n)?)
        }
        ["size", target, text @ ..] => {
            let (pod, name) = container(target)?;
            Now::Size(pod, name, text.join(" "))
        }
        ["limits", uid, text @ ..] => Now::Limits((*uid).into(), text.join(" ")),
        ["links", n] => Now::Links(number(n)?),
        ["api", rest @ ..] => Now::Api(super::api::seen(rest)?),
        ["sandboxes", pod, n] => Now::Sandboxes((*pod).into(), number(n)?),
        _ => return Err("unknown expectation".into()),
    })
}

fn whole(words: &[&str]) -> Result<Afterwards, String> {
    let forever = Duration::from_secs(u64::from(u32::MAX));
    Ok(match words {
        ["effect", name, target, "within", span] => {
            Afterwards::Effect(format!("{name} default/{target}"), Duration::ZERO, duration(span)?)
        }
        ["effect", name, target, "within", span, "of", from] => {
            let from = duration(from)?;
            Afterwards::Effect(format!("{name} default/{target}"), from, from + duration(span)?)
        }
        ["no", "effect", name, target] => {
            Afterwards::NoEffect(format!("{name} default/{target}"), Duration::ZERO, forever)
        }
        ["no", "effect", name, target, "after", from] => {
            Afterwards::NoEffect(format!("{name} default/{target}"), duration(from)?, forever)
        }
        ["no", "effect", name, target, "before", to] => {
            Afterwards::NoEffect(format!("{name} default/{target}"), Duration::ZERO, duration(to)?)
        }
        ["no", "effect", name, target, "from", from, "to", to] => {
            Afterwards::NoEffect(format!("{name} default/{target}"), duration(from)?, duration(to)?)
        }
        ["count", name, n] => Afterwards::Count((*name).to_owned(), number(n)?),
        ["count", name, target, n] => Afterwards::Count(format!("{name} default/{target}"), number(n)?),
        ["times", name, target, times @ ..] => {
            let times: Result<Vec<_>, _> = times.iter().map(|t| duration(t)).collect();
            Afterwards::Times(format!("{name} default/{target}"), times?)
        }
        ["never-flaps", pod] => Afterwards::NeverFlaps(format!("default/{pod}")),
        ["order", rest @ ..] => {
            let links = rest.split(|w| *w == "<");
            let links = links.map(|link| match link {
                [name, target] => Ok(format!("{name} default/{target}")),
                _ => Err(format!("{link:?} is not EFFECT TARGET")),
            });
            Afterwards::Order(links.collect::<Result<_, _>>()?)
        }
        _ => return Err("unknown expectation".into()),
    })
}

/// `5s`, `250ms`, `2m`, `1h`, or several of them in a row.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("{text:?} is not a time");
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(bad)?;
        let amount: f64 = rest[..digits].parse().map_err(|_| bad())?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let unit = match &rest[..letters] {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return Err(bad()),
        };
        total += Duration::try_from_secs_f64(amount * unit).map_err(|_| bad())?;
        rest = &rest[letters..];
    }
    Ok(total)
}

fn step(text: &str) -> Result<i64, String> {
    let (sign, rest) = match text.split_at_checked(1) {
        Some(("-", rest)) => (-1, rest),
        Some(("+", rest)) => (1, rest),
        _ => return Err(format!("{text:?} is not a signed time")),
    };
    Ok(sign * i64::try_from(duration(rest)?.as_secs()).map_err(|e| e.to_string())?)
}

pub(super) fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text:?} is not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_error(text: &str, expect: &str) {
        let error = parse(text).unwrap_err();
        assert!(error.starts_with(expect), "{error}");
    }

    #[test]
    fn mistakes_name_their_line() {
        check_error("image a\nfoo", "line 2: not understood");
        check_error("at 5x put web", "line 1: \"5x\" is not a time");
        check_error("at 5s jump", "line 1: unknown action");
        check_error("expect at 5s running web", "line 1: \"web\" is not POD/CONTAINER");
        check_error("manifest web:\n  spec: [", "line 1: bad YAML");
        check_error("fault StartContainer web/c explode 1", "line 1: unknown kind of fault");
    }

    #[test]
    fn times_and_defaults() {
        assert_eq!(duration("1m30s").unwrap(), Duration::from_secs(90));
        assert_eq!(duration("250ms").unwrap(), Duration::from_millis(250));
        let scenario = parse("manifest web:\n  spec: {containers: [{name: c}]}\nat 3s put web\nat 1s crash").unwrap();
        let pod: Value = serde_json::from_str(&scenario.manifests["web"]).unwrap();
        assert_eq!(pod["metadata"]["uid"], "uid-web");
        assert_eq!(pod["spec"]["containers"][0]["image"], "busybox:1");
        assert_eq!(scenario.steps[0].at, Duration::from_secs(1));
        assert_eq!(scenario.end, Duration::from_secs(4));
    }
}
