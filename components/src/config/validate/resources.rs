//! Rules for cgroups, reservations, eviction and the CPU, memory and topology managers.

use std::collections::{BTreeMap, BTreeSet};

use super::Check;
use crate::config::decode::quote;
use crate::config::eviction::{is_signal, parse_minimum_reclaim, parse_threshold};
use crate::config::tree::{index, join};
use crate::duration::GoDuration;
use crate::quantity::Quantity;

pub(super) fn check(c: &mut Check<'_>) {
    cgroups(c);
    enforcement(c);
    reservations(c);
    eviction(c);
    cpu_manager(c);
    memory(c);
    topology_manager(c);
}

fn cgroups(c: &mut Check<'_>) {
    let config = c.config;
    c.one_of("cgroupDriver", &config.cgroup_driver, &["cgroupfs", "systemd"]);
    if !config.system_cgroups.is_empty() && config.cgroup_root.is_empty() {
        c.fail("systemCgroups", "needs cgroupRoot".to_owned());
    }
    let period = config.cpu_cfs_quota_period;
    if !c.gates.enabled("CustomCPUCFSQuotaPeriod") {
        if period != GoDuration::from_millis(100) {
            c.needs_gate("cpuCFSQuotaPeriod", "CustomCPUCFSQuotaPeriod");
        }
    } else if period < GoDuration::from_millis(1) || period > GoDuration::from_secs(1) {
        c.fail("cpuCFSQuotaPeriod", format!("{period} is out of range, want 1ms to 1s"));
    }
}

fn enforcement(c: &mut Check<'_>) {
    const CHOICES: [&str; 6] = [
        "none",
        "pods",
        "system-reserved",
        "system-reserved-compressible",
        "kube-reserved",
        "kube-reserved-compressible",
    ];
    let config = c.config;
    let listed = &config.enforce_node_allocatable;
    for (i, choice) in listed.iter().enumerate() {
        let path = index("enforceNodeAllocatable", i);
        c.one_of(&path, choice, &CHOICES);
        if !CHOICES.contains(&choice.as_str()) {
            continue;
        }
        if listed[..i].contains(choice) {
            c.fail(&path, format!("{choice} is listed twice"));
            continue;
        }
        if choice == "none" {
            if listed.len() > 1 {
                c.fail(&path, "none must stand alone".to_owned());
            }
            continue;
        }
        if choice.starts_with("system-reserved") && config.system_reserved_cgroup.is_empty() {
            c.fail(&path, format!("{choice} needs systemReservedCgroup"));
        }
        if choice.starts_with("kube-reserved") && config.kube_reserved_cgroup.is_empty() {
            c.fail(&path, format!("{choice} needs kubeReservedCgroup"));
        }
        if let Some(plain) = choice.strip_suffix("-compressible")
            && listed.iter().any(|other| other == plain)
        {
            c.fail(&path, format!("{choice} and {plain} exclude each other"));
        }
        if !config.cgroups_per_qos {
            c.fail(&path, format!("{choice} needs cgroupsPerQOS to be true"));
        }
    }
}

fn reservations(c: &mut Check<'_>) {
    let config = c.config;
    for (field, map) in [("systemReserved", &config.system_reserved), ("kubeReserved", &config.kube_reserved)] {
        for (name, text) in map {
            let path = join(field, name);
            c.one_of(&path, name, &["cpu", "memory", "ephemeral-storage", "pid"]);
            match Quantity::parse(text) {
                Err(e) => c.fail(&path, format!("{}: {e}", quote(text))),
                Ok(q) if q.is_negative() => c.fail(&path, format!("{q} must not be negative")),
                Ok(_) => {}
            }
        }
    }
    for (name, text) in &config.qos_reserved {
        let path = join("qosReserved", name);
        c.one_of(&path, name, &["memory"]);
        let percent = text.strip_suffix('%').and_then(|number| number.parse::<u8>().ok());
        if percent.is_none_or(|percent| percent > 100) {
            c.fail(&path, format!("{}: want 0% to 100%", quote(text)));
        }
    }
    if config.reserved_system_cpus.is_empty() {
        return;
    }
    if !config.system_reserved_cgroup.is_empty() || !config.kube_reserved_cgroup.is_empty() {
        let message = "must not be set together with systemReservedCgroup or kubeReservedCgroup".to_owned();
        c.fail("reservedSystemCPUs", message);
    }
    if !is_cpu_list(&config.reserved_system_cpus) {
        let text = quote(&config.reserved_system_cpus);
        c.fail("reservedSystemCPUs", format!("{text}: want CPU numbers and ranges, such as 0-2,7"));
    }
}

fn is_cpu_list(text: &str) -> bool {
    let number = |text: &str| text.parse::<u16>().ok().filter(|_| text.bytes().all(|b| b.is_ascii_digit()));
    text.split(',').all(|part| match part.split_once('-') {
        None => number(part).is_some(),
        Some((first, last)) => number(first).zip(number(last)).is_some_and(|(first, last)| first <= last),
    })
}

fn eviction(c: &mut Check<'_>) {
    let config = c.config;
    for (field, map) in [("evictionHard", &config.eviction_hard), ("evictionSoft", &config.eviction_soft)] {
        check_signals(c, field, map, |text| parse_threshold(text).map(|_| ()));
    }
    check_signals(c, "evictionMinimumReclaim", &config.eviction_minimum_reclaim, |text| {
        parse_minimum_reclaim(text).map(|_| ())
    });
    check_signals(c, "evictionSoftGracePeriod", &config.eviction_soft_grace_period, |text| {
        let period = GoDuration::parse(text).map_err(|e| format!("{}: {e}", quote(text)))?;
        if period < GoDuration::ZERO { Err(format!("{period} must not be negative")) } else { Ok(()) }
    });
    for (signal, text) in &config.eviction_soft {
        let watched = !matches!(parse_threshold(text), Ok(None));
        if watched && !config.eviction_soft_grace_period.contains_key(signal) {
            c.fail(&join("evictionSoft", signal), "needs an entry in evictionSoftGracePeriod".to_owned());
        }
    }
    c.not_negative_time("evictionPressureTransitionPeriod", config.eviction_pressure_transition_period);
}

fn check_signals(
    c: &mut Check<'_>,
    field: &str,
    map: &BTreeMap<String, String>,
    parse: impl Fn(&str) -> Result<(), String>,
) {
    for (signal, text) in map {
        let path = join(field, signal);
        if !is_signal(signal) {
            c.fail(&path, format!("{} is not a known eviction signal", quote(signal)));
        } else if let Err(message) = parse(text) {
            c.fail(&path, message);
        }
    }
}

fn cpu_manager(c: &mut Check<'_>) {
    let config = c.config;
    c.one_of("cpuManagerPolicy", &config.cpu_manager_policy, &["none", "static"]);
    c.not_negative_time("cpuManagerReconcilePeriod", config.cpu_manager_reconcile_period);
    let is_static = config.cpu_manager_policy == "static";
    for (name, text) in &config.cpu_manager_policy_options {
        let path = join("cpuManagerPolicyOptions", name);
        if !is_static {
            c.fail(&path, "needs cpuManagerPolicy to be static".to_owned());
            continue;
        }
        match name.as_str() {
            "full-pcpus-only" | "strict-cpu-reservation" | "prefer-align-cpus-by-uncorecache" => {}
            "distribute-cpus-across-numa" => c.needs_gate(&path, "CPUManagerPolicyBetaOptions"),
            "align-by-socket" | "distribute-cpus-across-cores" => c.needs_gate(&path, "CPUManagerPolicyAlphaOptions"),
            _ => {
                c.fail(&path, "is not a known option".to_owned());
                continue;
            }
        }
        boolean(c, &path, text);
    }
    let reserved = |map: &BTreeMap<String, String>| map.get("cpu").and_then(|text| Quantity::parse(text).ok());
    let cpus: Quantity = [&config.system_reserved, &config.kube_reserved].into_iter().filter_map(reserved).sum();
    if is_static && config.reserved_system_cpus.is_empty() && cpus.is_zero() {
        let message = "static needs some CPU in reservedSystemCPUs, systemReserved or kubeReserved".to_owned();
        c.fail("cpuManagerPolicy", message);
    }
}

/// The spellings of a boolean that options take.
fn boolean(c: &mut Check<'_>, path: &str, text: &str) {
    const SPELLINGS: [&str; 12] = ["1", "t", "T", "TRUE", "true", "True", "0", "f", "F", "FALSE", "false", "False"];
    if !SPELLINGS.contains(&text) {
        c.fail(path, format!("{}: want true or false", quote(text)));
    }
}

fn memory(c: &mut Check<'_>) {
    let config = c.config;
    c.one_of("memoryManagerPolicy", &config.memory_manager_policy, &["None", "Static"]);
    c.one_of("memoryReservationPolicy", &config.memory_reservation_policy, &["None", "TieredReservation"]);
    if config.memory_reservation_policy == "TieredReservation" {
        c.needs_gate("memoryReservationPolicy", "MemoryQoS");
    }
    if let Some(factor) = config.memory_throttling_factor {
        if !(factor > 0.0 && factor <= 1.0) {
            c.fail("memoryThrottlingFactor", format!("{factor} must be greater than 0 and at most 1"));
        }
        // 0.9 was once the default, so files that spell it out stay usable without the gate.
        if factor != 0.9 {
            c.needs_gate("memoryThrottlingFactor", "MemoryQoS");
        }
    }
    let mut seen = BTreeSet::new();
    for (i, reservation) in config.reserved_memory.iter().enumerate() {
        let limits = join(&index("reservedMemory", i), "limits");
        let cell = reservation.numa_node;
        for (name, amount) in &reservation.limits {
            let path = join(&limits, name);
            if name != "memory" && !name.starts_with("hugepages-") {
                c.fail(&path, format!("{} is not a type of memory, want memory or hugepages-SIZE", quote(name)));
            }
            if amount.is_zero() {
                c.fail(&path, "must not be zero".to_owned());
            }
            if !seen.insert((cell, name)) {
                c.fail(&path, format!("is reserved twice on NUMA cell {cell}"));
            }
        }
    }
}

fn topology_manager(c: &mut Check<'_>) {
    let config = c.config;
    let policies = ["none", "best-effort", "restricted", "single-numa-node"];
    c.one_of("topologyManagerPolicy", &config.topology_manager_policy, &policies);
    c.one_of("topologyManagerScope", &config.topology_manager_scope, &["container", "pod"]);
    for (name, text) in &config.topology_manager_policy_options {
        let path = join("topologyManagerPolicyOptions", name);
        match name.as_str() {
            "prefer-closest-numa-nodes" => boolean(c, &path, text),
            // Fewer cells than the kubelet's own limit of 8 cannot be asked for.
            "max-allowable-numa-nodes" => match text.parse::<i64>() {
                Ok(cells) => c.at_least(&path, cells, 8),
                Err(_) => c.fail(&path, format!("{}: want a whole number", quote(text))),
            },
            _ => c.fail(&path, "is not a known option".to_owned()),
        }
    }
}
