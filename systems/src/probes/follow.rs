//! Which instance each probe looks at and when it is asked first: decided when something of its pod changed.

use super::memo::Memo;
use super::on_grid;
use components::edge::cri::{ContainerState, ContainerStatus, PodInspection};
use components::ids::Ticket;
use components::probes::{Probe, ProbeCounts, ProbeKind, ProbeSpec, Probes, Verdict};
use components::spec::PodSpec;
use components::time::{Mono, Now};
use components::world::Stage;
use std::time::Duration;

/// What probes follow.
pub(super) struct Facts<'a> {
    pub(super) spec: &'a PodSpec,
    pub(super) seen: Option<&'a PodInspection>,
    pub(super) stage: Stage,
    pub(super) now: Now,
    /// When this run of the agent began.
    pub(super) began: Now,
    /// What an earlier run of the agent, or this one, had found out.
    pub(super) memo: Option<&'a Memo>,
    /// Seed of this pod's choices.
    pub(super) seed: u64,
}

/// Makes the list fit a changed spec. A probe that is as it was keeps what it knows.
pub(super) fn rebuild(probes: &mut Probes, spec: &PodSpec, version: u64) {
    let mut old = std::mem::take(&mut probes.list);
    for (index, container) in spec.containers.iter().enumerate() {
        let index = u16::try_from(index).unwrap_or(u16::MAX);
        for (kind, _) in &container.probes {
            let kept = old.iter().position(|p| p.container == index && p.kind == *kind);
            probes.list.push(kept.map_or_else(|| fresh(*kind, index), |at| old.swap_remove(at)));
        }
    }
    for probe in &mut probes.list {
        probe.attempt = None;
    }
    probes.made_from = version;
}

fn fresh(kind: ProbeKind, container: u16) -> Probe {
    Probe {
        kind,
        container,
        target: None,
        attempt: None,
        due: None,
        in_flight: None,
        run: (false, 0),
        verdict: Verdict::Unknown,
        on_hold: false,
        message: "".into(),
        counts: ProbeCounts::default(),
    }
}

/// Brings every probe in line; returns attempts that nobody waits for any more.
pub(super) fn follow(probes: &mut Probes, facts: &Facts<'_>) -> Vec<Ticket> {
    let mut cancels = Vec::new();
    for at in 0..probes.list.len() {
        let index = usize::from(probes.list[at].container);
        let Some(container) = facts.spec.containers.get(index) else { continue };
        let running = facts.seen.and_then(|seen| running(seen, &container.name));
        retarget(&mut probes.list[at], running, facts.memo, &mut cancels);
    }
    for at in 0..probes.list.len() {
        let index = usize::from(probes.list[at].container);
        let Some(container) = facts.spec.containers.get(index) else { continue };
        let Some(status) = facts.seen.and_then(|seen| running(seen, &container.name)) else { continue };
        let started = probes.health(index, &status.id).started;
        let probe = &mut probes.list[at];
        let Some((_, set)) = container.probes.iter().find(|(kind, _)| *kind == probe.kind) else { continue };
        if !wanted(probe, facts.stage, started) {
            probe.due = None;
            cancels.extend(probe.in_flight.take().map(|(ticket, ..)| ticket));
        } else if probe.due.is_none() {
            probe.due = Some(on_grid(first(probe, set, status, facts)));
        }
    }
    cancels
}

fn running<'a>(seen: &'a PodInspection, name: &str) -> Option<&'a ContainerStatus> {
    seen.containers.iter().find(|c| &*c.name == name).filter(|c| c.state == ContainerState::Running)
}

/// Another instance, or none: what was found out about the one before says nothing of it.
fn retarget(probe: &mut Probe, running: Option<&ContainerStatus>, memo: Option<&Memo>, cancels: &mut Vec<Ticket>) {
    if probe.target.as_ref() == running.map(|c| &c.id) {
        return;
    }
    cancels.extend(probe.in_flight.take().map(|(ticket, ..)| ticket));
    probe.target = running.map(|c| c.id.clone());
    probe.attempt = None;
    probe.due = None;
    probe.run = (false, 0);
    probe.verdict = Verdict::Unknown;
    probe.on_hold = false;
    // An instance that is known already, from before a restart of the agent: it is what it was until it is asked.
    let known = memo.zip(running).and_then(|(memo, c)| memo.containers.iter().find(|known| known.id == c.id));
    match (known, probe.kind) {
        (Some(known), ProbeKind::Startup) if known.started => {
            probe.verdict = Verdict::Passed;
            probe.on_hold = true;
        }
        (Some(known), ProbeKind::Readiness) if known.ready => probe.verdict = Verdict::Passed,
        _ => {}
    }
}

/// Whether attempts are to come. Of a pod that ends only readiness is of interest.
fn wanted(probe: &Probe, stage: Stage, started: bool) -> bool {
    let asked = match stage {
        Stage::Queued | Stage::Syncing => true,
        Stage::Terminating => probe.kind == ProbeKind::Readiness,
        Stage::Terminated | Stage::Done => false,
    };
    asked && !probe.on_hold && (started || probe.kind == ProbeKind::Startup)
}

/// When a probe is asked for the first time about an instance.
///
/// Readiness at once, so that a pod serves as soon as it can. The others some way into their period: at once would find
/// hardly any application up and use up a threshold. What ran before this agent is asked at a random time within the
/// period, so that a restart does not ask everything in one instant.
fn first(probe: &Probe, set: &ProbeSpec, status: &ContainerStatus, facts: &Facts<'_>) -> Mono {
    let second = |n: u32| Duration::from_secs(u64::from(n));
    let age = u64::try_from(facts.now.wall.0.saturating_sub(status.started_at.0)).unwrap_or(0);
    let delay = second(set.initial_delay).saturating_sub(Duration::from_nanos(age));
    let period = second(set.period);
    let chance = chance(facts.seed, probe);
    let old = status.started_at < facts.began.wall;
    let spread = match probe.kind {
        _ if old => period.mul_f64(chance),
        ProbeKind::Readiness => Duration::ZERO,
        ProbeKind::Startup if set.initial_delay == 0 => period.mul_f64(chance / 2.0),
        ProbeKind::Liveness if set.initial_delay == 0 => period.mul_f64(0.5 + chance / 2.0),
        ProbeKind::Startup | ProbeKind::Liveness => Duration::ZERO,
    };
    facts.now.mono.after(delay.max(spread))
}

/// A number in [0, 1) that depends on the seed and the probe only.
fn chance(seed: u64, probe: &Probe) -> f64 {
    let own = (u64::from(probe.container) << 8) | probe.kind as u64;
    let mut x = seed ^ own.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^= x >> 31;
    f64::from(u32::try_from(x >> 40).unwrap_or(0)) / f64::from(1_u32 << 24)
}

/// The next beat after `due`, in step with it, and not in the past.
pub(super) fn next(due: Mono, period: u32, now: Mono) -> Mono {
    let period = Duration::from_secs(u64::from(period));
    let late = now.since(due).as_nanos() / period.as_nanos().max(1);
    let beats = u32::try_from(late).unwrap_or(u32::MAX - 1) + 1;
    due.after(period * beats)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::fixtures;
    use components::probes::ProbeAction;
    use components::time::Wall;

    pub(crate) fn probe(kind: ProbeKind) -> Probe {
        fresh(kind, 0)
    }

    pub(crate) fn set() -> ProbeSpec {
        let action = ProbeAction::Tcp { host: None, port: 80 };
        ProbeSpec { action, initial_delay: 0, period: 10, timeout: 1, successes: 1, failures: 3, grace_seconds: None }
    }

    const SECOND: i64 = 1_000_000_000;

    struct Rig {
        spec: PodSpec,
        probes: Probes,
        stage: Stage,
        memo: Option<Memo>,
    }

    impl Rig {
        fn new(kinds: &[ProbeKind]) -> Self {
            let mut spec = fixtures::spec("always c");
            spec.containers[0].probes = kinds.iter().map(|k| (*k, set())).collect();
            let mut probes = Probes::default();
            rebuild(&mut probes, &spec, 1);
            Self { spec, probes, stage: Stage::Syncing, memo: None }
        }

        /// What follows when this is seen `at` seconds; the container started at second 100, the agent at 50.
        fn see(&mut self, text: &str, at: u64) -> Vec<Ticket> {
            let mut seen = fixtures::inspection(&self.spec, text);
            for container in &mut seen.containers {
                container.started_at = Wall(100 * SECOND);
            }
            let now = |s: u64| Now { mono: Mono(s * 1_000_000_000), wall: Wall(i64::try_from(s).unwrap() * SECOND) };
            let facts = Facts {
                spec: &self.spec,
                seen: Some(&seen),
                stage: self.stage,
                now: now(at),
                began: now(50),
                memo: self.memo.as_ref(),
                seed: 7,
            };
            follow(&mut self.probes, &facts)
        }

        /// Seconds until each probe is due.
        fn due(&self, at: u64) -> Vec<Option<f64>> {
            let after = |due: Mono| due.since(Mono(at * 1_000_000_000)).as_secs_f64();
            self.probes.list.iter().map(|p| p.due.map(after)).collect()
        }
    }

    #[test]
    fn readiness_is_asked_at_once_and_life_later() {
        let mut rig = Rig::new(&[ProbeKind::Readiness, ProbeKind::Liveness]);
        rig.see("s0+ c0:created", 100);
        assert_eq!(rig.due(100), [None, None]);
        rig.see("s0+ c0:run", 100);
        let due = rig.due(100);
        assert_eq!(due[0], Some(0.0));
        assert!((5.0..10.0).contains(&due[1].unwrap()), "{due:?}");
    }

    #[test]
    fn nothing_but_startup_is_asked_before_it_passed() {
        let mut rig = Rig::new(&[ProbeKind::Startup, ProbeKind::Readiness, ProbeKind::Liveness]);
        rig.see("s0+ c0:run", 100);
        assert!(matches!(rig.due(100)[..], [Some(_), None, None]), "{:?}", rig.due(100));
        rig.probes.list[0].verdict = Verdict::Passed;
        rig.probes.list[0].on_hold = true;
        rig.probes.list[0].due = None;
        rig.see("s0+ c0:run", 130);
        assert!(matches!(rig.due(130)[..], [None, Some(_), Some(_)]), "{:?}", rig.due(130));
        // A new instance starts all over.
        rig.see("s0+ c1:run c0:exit1", 140);
        assert!(matches!(rig.due(140)[..], [Some(_), None, None]), "{:?}", rig.due(140));
    }

    #[test]
    fn of_a_pod_that_ends_only_readiness_is_asked() {
        let mut rig = Rig::new(&[ProbeKind::Readiness, ProbeKind::Liveness]);
        rig.see("s0+ c0:run", 100);
        for probe in &mut rig.probes.list {
            probe.in_flight = Some((Ticket(probe.kind as u64), Mono(0), "c0".into()));
        }
        rig.stage = Stage::Terminating;
        assert_eq!(rig.see("s0+ c0:run", 101), [Ticket(ProbeKind::Liveness as u64)]);
        assert!(matches!(rig.due(101)[..], [Some(_), None]));
        assert_eq!(rig.see("s0+ c0:exit0", 110), [Ticket(ProbeKind::Readiness as u64)]);
        assert_eq!(rig.due(110), [None, None]);
    }

    #[test]
    fn the_initial_delay_runs_from_the_start_of_the_container() {
        let mut rig = Rig::new(&[ProbeKind::Readiness]);
        rig.spec.containers[0].probes[0].1.initial_delay = 30;
        rig.see("s0+ c0:run", 110);
        assert_eq!(rig.due(110), [Some(20.0)]);
    }

    #[test]
    fn a_restart_goes_on_from_what_was_known() {
        use components::edge::store::ProbedContainer;
        let mut rig = Rig::new(&[ProbeKind::Startup, ProbeKind::Readiness]);
        let known = ProbedContainer { id: "c0".into(), started: true, ready: true };
        rig.memo = Some(Memo { containers: vec![known], ready: true, ready_since: Wall(1) });
        rig.see("s0+ c0:run", 100);
        let health = rig.probes.health(0, &"c0".into());
        assert_eq!((health.started, health.ready), (true, true));
        assert!(matches!(rig.due(100)[..], [None, Some(_)]), "{:?}", rig.due(100));
        // Of the next instance nothing is known.
        rig.see("s0+ c1:run", 120);
        let health = rig.probes.health(0, &"c1".into());
        assert_eq!((health.started, health.ready), (false, false));
    }

    #[test]
    fn beats_stay_in_step() {
        let second = |s: u64| Mono(s * 1_000_000_000);
        assert_eq!(next(second(10), 5, second(10)), second(15));
        assert_eq!(next(second(10), 5, second(14)), second(15));
        assert_eq!(next(second(10), 5, second(15)), second(20));
        assert_eq!(next(second(10), 5, second(27)), second(30));
    }
}
