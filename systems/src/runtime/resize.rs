//! What brings a pod's resize into force next: a pure function of what is allocated and what is in force.
//!
//! Memory comes before CPU. Of each, the pod's cgroup grows before its containers do and shrinks after them, and
//! containers that get less come before those that get more: what the containers may use fits into the pod at any time.

use super::{cgroups, resources};
use components::edge::cri::{ContainerState, PodInspection};
use components::edge::host::Cgroup;
use components::node::{Machine, NodeConfig};
use components::resize::Size;
use components::spec::{ContainerKind, PodSpec, Resources};
use components::world::PodLimits;

/// A running container that gets another size without a restart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Member {
    /// Index in the spec.
    pub(super) index: usize,
    /// What is in force for it.
    pub(super) has: Size,
    /// What is allocated to it.
    pub(super) gets: Size,
}

/// What is done next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// Everything is in force.
    Nothing,
    /// Containers that restart hold it up.
    Wait,
    /// The pod's cgroup gets these limits; `None` stays as it is.
    Limit(PodLimits),
    /// A container of this index gets this size.
    Update(usize, Size),
}

/// What a step is computed from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts<'a> {
    /// Limits of the pod's cgroup as they were set last.
    pub(super) has: PodLimits,
    /// Limits that it is to have; a limit that is wanted no more stays, as on the reference.
    pub(super) gets: PodLimits,
    /// Containers that get another size as they run.
    pub(super) members: &'a [Member],
    /// Containers with another size still run and are to be restarted: nothing shrinks around them.
    pub(super) restarting: bool,
}

/// The next step.
pub(super) fn next(facts: Facts<'_>) -> Next {
    let memory = |size: &Size| (size.memory_limit, size.memory_request);
    let cpu = |size: &Size| (size.cpu_limit, size.cpu_request);
    let none = PodLimits::default();
    let (has, gets) = (facts.has, facts.gets);
    if grows(has.memory, gets.memory) {
        return Next::Limit(PodLimits { memory: gets.memory, ..none });
    }
    if let Some(member) = first(facts.members, memory) {
        return Next::Update(member.index, member.has.with_memory_of(member.gets));
    }
    let wider = PodLimits {
        quota: gets.quota.filter(|_| grows(has.quota, gets.quota)),
        shares: gets.shares.filter(|shares| has.shares.is_some_and(|has| *shares > has)),
        memory: None,
    };
    let narrower = |memory| PodLimits {
        memory,
        quota: gets.quota.filter(|_| shrinks(has.quota, gets.quota)),
        shares: gets.shares.filter(|shares| has.shares.is_none_or(|has| *shares < has)),
    };
    let less_memory = gets.memory.filter(|_| shrinks(has.memory, gets.memory));
    if less_memory.is_some() && !facts.restarting {
        return Next::Limit(PodLimits { memory: less_memory, ..none });
    }
    if wider != none {
        return Next::Limit(wider);
    }
    if let Some(member) = first(facts.members, cpu) {
        return Next::Update(member.index, member.has.with_cpu_of(member.gets));
    }
    match narrower(less_memory) {
        left if left == none => Next::Nothing,
        _ if facts.restarting => Next::Wait,
        left => Next::Limit(left),
    }
}

/// The container whose turn it is: those that get less first, and of these the last one first, as on the reference.
fn first(members: &[Member], of: impl Fn(&Size) -> (i64, i64)) -> Option<&Member> {
    let key = |member: &&Member| {
        let (has, gets) = (of(&member.has), of(&member.gets));
        // The limit decides where it changes; no limit is less than any, as the reference counts.
        if has.0 == gets.0 { (has.1, gets.1) } else { (has.0, gets.0) }
    };
    let changes = || members.iter().filter(|member| of(&member.has) != of(&member.gets));
    let less = |member: &&Member| key(member).1 < key(member).0;
    changes().rev().find(less).or_else(|| changes().next())
}

/// No limit is wider than any.
fn grows(has: Option<i64>, gets: Option<i64>) -> bool {
    has.zip(gets).is_some_and(|(has, gets)| gets > has)
}

fn shrinks(has: Option<i64>, gets: Option<i64>) -> bool {
    gets.is_some_and(|gets| has.is_none_or(|has| gets < has))
}

/// True when the step lowers a limit of memory: what is used is looked at first.
pub(super) fn lowers_memory(facts: Facts<'_>) -> bool {
    let lower = |member: &Member| {
        let (has, gets) = (member.has.memory_limit, member.gets.memory_limit);
        gets != 0 && (has == 0 || gets < has)
    };
    facts.members.iter().any(lower) || (!facts.restarting && shrinks(facts.has.memory, facts.gets.memory))
}

/// Why limits of memory cannot become lower, if so: what is used, of the pod and of the containers that get less.
pub(super) fn too_low(facts: Facts<'_>, names: &[&str], pod: Option<u64>, used: &[Option<u64>]) -> Option<String> {
    let mut why = Vec::new();
    let below = |limit: i64, used: u64| used >= u64::try_from(limit).unwrap_or(0);
    if let Some(limit) = facts.gets.memory.filter(|_| shrinks(facts.has.memory, facts.gets.memory) && !facts.restarting)
    {
        match pod {
            None => why.push("missing pod memory usage".to_owned()),
            Some(used) if below(limit, used) => {
                why.push(format!("attempting to set pod memory limit ({limit}) below current usage ({used})"));
            }
            Some(_) => {}
        }
    }
    for (at, member) in facts.members.iter().enumerate() {
        let (has, limit) = (member.has.memory_limit, member.gets.memory_limit);
        if limit == 0 || (has != 0 && limit >= has) {
            continue;
        }
        let name = names.get(at).copied().unwrap_or_default();
        match used.get(at).copied().flatten() {
            None => why.push(format!("missing container \"{name}\" memory usage")),
            Some(used) if below(limit, used) => why.push(format!(
                "attempting to set container \"{name}\" memory limit ({limit}) below current usage ({used})"
            )),
            Some(_) => {}
        }
    }
    let text = match why.as_slice() {
        [] => return None,
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    };
    Some(format!("cannot decrease memory limits: {text}"))
}

/// The limits in a cgroup's description.
pub(super) const fn limits(cgroup: &Cgroup) -> PodLimits {
    PodLimits { shares: cgroup.cpu_shares, quota: cgroup.cpu_quota, memory: cgroup.memory_bytes }
}

/// A spec whose containers may use what is allocated and what is still in force, whichever is more: a pod's cgroup that
/// is described anew in the middle of a resize leaves room for both.
pub(super) fn widest(spec: &PodSpec, sizes: impl Fn(usize) -> Option<Size>) -> Option<PodSpec> {
    let mut wide: Option<PodSpec> = None;
    for index in 0..spec.containers.len() {
        let gets = Size::of_container(spec, index);
        let Some(has) = sizes(index).filter(|has| *has != gets) else { continue };
        let own = &mut wide.get_or_insert_with(|| spec.clone()).containers[index].resources;
        let limit = |a: i64, b: i64| Some(a.max(b)).filter(|_| a != 0 && b != 0);
        let set = |list: &mut Resources, cpu, memory| (list.cpu_milli, list.memory_bytes) = (cpu, memory);
        let request = |a: i64, b: i64| Some(a.max(b)).filter(|most| *most != 0);
        set(
            &mut own.requests,
            request(has.cpu_request, gets.cpu_request),
            request(has.memory_request, gets.memory_request),
        );
        set(&mut own.limits, limit(has.cpu_limit, gets.cpu_limit), limit(has.memory_limit, gets.memory_limit));
    }
    wide
}

/// The pod's cgroup with some of its limits, as they are set in a resize.
pub(super) fn cgroup(whole: &Cgroup, part: PodLimits) -> Cgroup {
    Cgroup {
        path: whole.path.clone(),
        cpu_shares: part.shares,
        cpu_quota: part.quota,
        cpu_period: whole.cpu_period.filter(|_| part.quota.is_some()),
        memory_bytes: part.memory,
        unified: if part.memory.is_some() { whole.unified.clone() } else { Default::default() },
        ..Cgroup::default()
    }
}

/// What the runtime is told of a container that gets this size.
pub(super) fn update(
    spec: &PodSpec,
    index: usize,
    size: Size,
    config: &NodeConfig,
    machine: &Machine,
) -> Option<components::edge::cri::LinuxResources> {
    let mut container = spec.containers.get(index)?.clone();
    let set = |list: &mut Resources, cpu, memory| (list.cpu_milli, list.memory_bytes) = (Some(cpu), Some(memory));
    set(&mut container.resources.requests, size.cpu_request, size.memory_request);
    set(&mut container.resources.limits, size.cpu_limit, size.memory_limit);
    Some(resources::of_container(spec, &container, config, machine))
}

/// True for a container that gets another size while its pod runs.
pub(super) const fn changes_live(kind: ContainerKind) -> bool {
    matches!(kind, ContainerKind::Main | ContainerKind::Sidecar | ContainerKind::Init)
}

/// True when an instance of this name runs.
pub(crate) fn runs(seen: &PodInspection, name: &str) -> bool {
    seen.containers.iter().find(|c| *c.name == *name).is_some_and(|c| c.state == ContainerState::Running)
}

/// True when the pod's cgroup has the limits that its spec asks for, or none is made by us.
pub(crate) fn limits_in_force(
    spec: &PodSpec,
    has: PodLimits,
    config: &NodeConfig,
    machine: &Machine,
    systemd: bool,
) -> bool {
    let Some(cgroup) = cgroups::of_pod(spec, config, machine, systemd) else { return true };
    let gets = limits(&cgroup);
    next(Facts { has, gets, members: &[], restarting: false }) == Next::Nothing
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    fn limits_of(shares: u64, quota: i64, memory: i64) -> PodLimits {
        let some = |value| Some(value).filter(|value| *value != 0);
        PodLimits { shares: Some(shares), quota: some(quota), memory: some(memory) }
    }

    /// `REQUEST/LIMIT REQUEST/LIMIT` of CPU and memory.
    fn size(text: &str) -> Size {
        let mut parts = text.split([' ', '/']).map(|n| n.parse().unwrap());
        let mut part = || parts.next().unwrap();
        Size { cpu_request: part(), cpu_limit: part(), memory_request: part(), memory_limit: part() }
    }

    /// Carries out every step and writes them down.
    #[track_caller]
    fn check(has: PodLimits, gets: PodLimits, members: &[(&str, &str)], expect: &str) {
        let member = |(index, (has, gets)): (usize, &(&str, &str))| Member { index, has: size(has), gets: size(gets) };
        let mut members: Vec<Member> = members.iter().enumerate().map(member).collect();
        let (mut has, mut steps) = (has, Vec::new());
        loop {
            match next(Facts { has, gets, members: &members, restarting: false }) {
                Next::Nothing => break,
                Next::Wait => panic!("nothing restarts"),
                Next::Limit(part) => {
                    let said = [
                        part.shares.map(|n| format!("shares={n}")),
                        part.quota.map(|n| format!("quota={n}")),
                        part.memory.map(|n| format!("memory={n}")),
                    ];
                    steps.push(said.into_iter().flatten().collect::<Vec<_>>().join(","));
                    has.shares = part.shares.or(has.shares);
                    has.quota = part.quota.or(has.quota);
                    has.memory = part.memory.or(has.memory);
                }
                Next::Update(index, size) => {
                    let s = size;
                    let text = [s.cpu_request, s.cpu_limit, s.memory_request, s.memory_limit];
                    steps.push(format!("{index}:{}/{},{}/{}", text[0], text[1], text[2], text[3]));
                    members[index].has = size;
                }
            }
            assert!(steps.len() < 20, "{steps:?}");
        }
        assert_eq!(steps.join(" "), expect);
    }

    #[test]
    fn the_pod_grows_first_and_shrinks_last() {
        let (small, big) = (limits_of(102, 10, 64), limits_of(204, 20, 128));
        check(
            small,
            big,
            &[("100/100 64/64", "200/200 128/128")],
            "memory=128 0:100/100,128/128 shares=204,quota=20 0:200/200,128/128",
        );
        check(
            big,
            small,
            &[("200/200 128/128", "100/100 64/64")],
            "0:200/200,64/64 memory=64 0:100/100,64/64 shares=102,quota=10",
        );
        check(small, small, &[], "");
    }

    #[test]
    fn less_comes_before_more() {
        let same = limits_of(300, 30, 0);
        let members = [("100/100 0/0", "200/200 0/0"), ("200/200 0/0", "150/150 0/0"), ("100/100 0/0", "50/50 0/0")];
        check(same, same, &members, "2:50/50,0/0 1:150/150,0/0 0:200/200,0/0");
    }

    #[test]
    fn a_first_limit_of_the_pod_comes_after_its_containers() {
        let (free, bound) = (limits_of(102, 0, 0), limits_of(102, 10, 64));
        check(free, bound, &[("100/0 0/0", "100/100 64/64")], "0:100/0,64/64 memory=64 0:100/100,64/64 quota=10");
        // One that is wanted no more stays.
        check(bound, free, &[], "");
    }

    #[test]
    fn what_restarts_holds_a_shrinking_pod_up() {
        let (small, big) = (limits_of(102, 10, 64), limits_of(204, 20, 128));
        let facts = Facts { has: big, gets: small, members: &[], restarting: true };
        assert_eq!(next(facts), Next::Wait);
        assert_eq!(
            next(Facts { has: small, gets: big, ..facts }),
            Next::Limit(PodLimits { memory: Some(128), ..PodLimits::default() })
        );
        assert!(!lowers_memory(facts) && lowers_memory(Facts { restarting: false, ..facts }));
    }

    #[test]
    fn memory_in_use_is_not_taken_away() {
        let members = [Member { index: 0, has: size("0/0 0/100"), gets: size("0/0 0/50") }];
        let facts =
            Facts { has: limits_of(2, 0, 200), gets: limits_of(2, 0, 100), members: &members, restarting: false };
        assert!(lowers_memory(facts));
        assert_eq!(too_low(facts, &["a"], Some(99), &[Some(49)]), None);
        let one = too_low(facts, &["a"], Some(99), &[Some(50)]).unwrap();
        let said = "attempting to set container \"a\" memory limit (50) below current usage (50)";
        assert_eq!(one, format!("cannot decrease memory limits: {said}"));
        let two = too_low(facts, &["a"], Some(100), &[None]).unwrap();
        let said = "attempting to set pod memory limit (100) below current usage (100)";
        assert_eq!(two, format!("cannot decrease memory limits: [{said}, missing container \"a\" memory usage]"));
    }

    #[test]
    fn a_cgroup_described_in_between_leaves_room_for_both() {
        let mut spec = fixtures::spec("always a b");
        let list = |cpu, memory| Resources { cpu_milli: Some(cpu), memory_bytes: Some(memory), ..Resources::default() };
        for container in &mut spec.containers {
            container.resources.requests = list(100, 10);
            container.resources.limits = list(200, 20);
        }
        assert_eq!(widest(&spec, |_| Some(size("100/200 10/20"))), None);
        let wide = widest(&spec, |index| Some(size("50/300 10/0")).filter(|_| index == 1)).unwrap();
        assert_eq!(wide.containers[0], spec.containers[0]);
        let own = &wide.containers[1].resources;
        assert_eq!((own.requests.cpu_milli, own.limits.cpu_milli), (Some(100), Some(300)));
        assert_eq!((own.requests.memory_bytes, own.limits.memory_bytes), (Some(10), None));
    }
}
