//! What bounds pods on this node: reservations, sysctls and memory protection, from KubeletConfiguration.

use components::config::gates::GateSet;
use components::config::{KubeletConfiguration, Threshold, parse_threshold};
use components::edge::cri::IdRange;
use components::node::{Machine, NodeLimits, UserIds};
use components::quantity::Quantity;
use std::collections::BTreeMap;

/// The bounds; configuration was validated before, so what cannot be read counts as nothing.
pub(super) fn limits(config: &KubeletConfiguration, machine: &Machine, disk_bytes: i64) -> NodeLimits {
    let (gates, _) = GateSet::from_map(&config.feature_gates);
    let amount = |list: &BTreeMap<String, String>, name: &str| list.get(name).and_then(|q| Quantity::parse(q).ok());
    let reserved = |name: &str, number: fn(Quantity) -> i64| {
        [&config.kube_reserved, &config.system_reserved]
            .iter()
            .filter_map(|list| amount(list, name))
            .map(number)
            .fold(0_i64, i64::saturating_add)
    };
    let set_aside = match count(&config.reserved_system_cpus) {
        0 => reserved("cpu", Quantity::milli_value),
        cpus => i64::from(cpus) * 1000,
    };
    let left = |capacity: i64, taken: i64| capacity.saturating_sub(taken).max(0);
    let memory_bytes = left(machine.memory_bytes, reserved("memory", Quantity::value));
    let memory_qos = gates.enabled("MemoryQoS");
    NodeLimits {
        cpu_milli: left(i64::from(machine.cpus) * 1000, set_aside),
        memory_bytes,
        allocatable_memory_bytes: left(memory_bytes, kept_free(config, "memory.available", machine.memory_bytes)),
        allocatable_disk_bytes: left(
            left(disk_bytes, reserved("ephemeral-storage", Quantity::value)),
            kept_free(config, "nodefs.available", disk_bytes),
        ),
        enforced: config.enforce_node_allocatable.iter().any(|what| what == "pods"),
        unsafe_sysctls: config.allowed_unsafe_sysctls.clone(),
        default_sysctls: if gates.enabled("DefaultPodSysctls") {
            config.default_pod_sysctls.clone()
        } else {
            BTreeMap::new()
        },
        memory_throttling_factor: config.memory_throttling_factor.filter(|_| memory_qos),
        tiered_memory: memory_qos && config.memory_reservation_policy == "TieredReservation",
        limited_swap: config.memory_swap.swap_behavior == "LimitedSwap",
        users: user_ids(config, None),
    }
}

/// Ids for user namespaces: what was set aside for the kubelet, else everything above the first range, which is the
/// system's own.
pub(crate) fn user_ids(config: &KubeletConfiguration, set_aside: Option<IdRange>) -> Option<UserIds> {
    let asked = config.user_namespaces.as_ref().and_then(|users| users.ids_per_pod);
    let per_pod = u32::try_from(asked.unwrap_or(65_536)).ok().filter(|ids| *ids > 0)?;
    let range = set_aside.unwrap_or(IdRange { first: per_pod, length: u32::MAX - per_pod + 1 });
    Some(UserIds { range, per_pod })
}

/// Checks ids that were set aside.
///
/// # Errors
/// Why pods cannot get theirs from them.
pub(crate) fn check_user_ids(ids: UserIds, max_pods: u32) -> Result<(), String> {
    let (range, unit) = (ids.range, ids.per_pod);
    if range.first % unit != 0 || range.length % unit != 0 {
        return Err(format!("first id {} and number {} must be multiples of {unit}", range.first, range.length));
    }
    if range.first < unit {
        return Err(format!("the first id {} must not be below {unit}", range.first));
    }
    if range.length / unit < max_pods {
        return Err(format!("{} ids are too few for {max_pods} pods of {unit} ids", range.length));
    }
    Ok(())
}

/// What the hard eviction threshold of a signal keeps free.
fn kept_free(config: &KubeletConfiguration, signal: &str, capacity: i64) -> i64 {
    let threshold = config.eviction_hard.get(signal).and_then(|text| parse_threshold(text).ok().flatten());
    match threshold {
        None => 0,
        Some(Threshold::Amount(amount)) => amount.value(),
        #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "a part of the capacity")]
        Some(Threshold::Fraction(part)) => (capacity as f64 * f64::from(part)) as i64,
    }
}

/// Members of a CPU list like `0-1,4`.
fn count(list: &str) -> u32 {
    let members = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.trim().parse::<u32>().ok()?, last.trim().parse::<u32>().ok()?);
        last.checked_sub(first).map(|more| more + 1)
    };
    list.split(',').filter_map(members).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reserved_is_not_for_pods() {
        let machine = Machine { cpus: 4, memory_bytes: 8 << 30, ..Machine::default() };
        let mut config = KubeletConfiguration::default();
        let bounds = limits(&config, &machine, 0);
        assert_eq!((bounds.cpu_milli, bounds.memory_bytes, bounds.enforced), (4000, 8 << 30, true));
        config.kube_reserved = BTreeMap::from([("cpu".into(), "250m".into()), ("memory".into(), "1Gi".into())]);
        config.system_reserved = BTreeMap::from([("cpu".into(), "1".into()), ("memory".into(), "512Mi".into())]);
        config.eviction_hard = BTreeMap::from([("memory.available".into(), "100Mi".into())]);
        let bounds = limits(&config, &machine, 0);
        assert_eq!((bounds.cpu_milli, bounds.memory_bytes), (2750, (8 << 30) - (1536 << 20)));
        assert_eq!(bounds.allocatable_memory_bytes, (8 << 30) - (1636 << 20));
        config.reserved_system_cpus = "0,2-3".into();
        config.eviction_hard = BTreeMap::from([("memory.available".into(), "50%".into())]);
        config.eviction_hard.insert("nodefs.available".into(), "10%".into());
        let bounds = limits(&config, &machine, 1000);
        assert_eq!(bounds.allocatable_disk_bytes, 900);
        assert_eq!((bounds.cpu_milli, bounds.allocatable_memory_bytes), (1000, (4 << 30) - (1536 << 20)));
    }

    #[test]
    fn gates_decide_about_sysctls_and_memory() {
        let machine = Machine::default();
        let mut config = KubeletConfiguration { memory_throttling_factor: Some(0.9), ..Default::default() };
        config.memory_reservation_policy = "TieredReservation".into();
        config.default_pod_sysctls = BTreeMap::from([("net.core.somaxconn".into(), "1024".into())]);
        let bounds = limits(&config, &machine, 0);
        assert_eq!((bounds.memory_throttling_factor, bounds.tiered_memory), (Some(0.9), true));
        assert!(bounds.default_sysctls.is_empty());
        config.feature_gates = BTreeMap::from([("MemoryQoS".into(), false), ("DefaultPodSysctls".into(), true)]);
        let bounds = limits(&config, &machine, 0);
        assert_eq!((bounds.memory_throttling_factor, bounds.tiered_memory), (None, false));
        assert_eq!(bounds.default_sysctls.len(), 1);
    }

    #[test]
    fn ids_of_user_namespaces_fit_their_range() {
        let config = KubeletConfiguration::default();
        let all = user_ids(&config, None).unwrap();
        assert_eq!((all.range.first, all.range.length, all.per_pod), (65_536, 4_294_901_760, 65_536));
        assert_eq!(check_user_ids(all, 110), Ok(()));
        let check = |first: u32, length: u32| {
            let ids = user_ids(&config, Some(IdRange { first, length })).unwrap();
            check_user_ids(ids, 110).is_ok()
        };
        assert!(check(65_536, 110 * 65_536));
        assert!(!check(65_537, 110 * 65_536));
        assert!(!check(0, 110 * 65_536));
        assert!(!check(65_536, 109 * 65_536));
        assert!(!check(65_536, 110 * 65_536 + 1));
    }
}
