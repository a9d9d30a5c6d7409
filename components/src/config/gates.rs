//! Feature gates: which exist, their stage and default, and the set that a configuration switches on.

mod table;

use std::collections::BTreeMap;

use self::table::GATES;

/// How settled a feature is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Off unless asked for.
    Alpha,
    /// Complete, still switchable.
    Beta,
    /// Settled.
    Ga,
    /// On its way out.
    Deprecated,
}

/// One feature gate.
#[derive(Clone, Copy, Debug)]
pub struct Gate {
    /// Its name.
    pub name: &'static str,
    /// How settled it is.
    pub stage: Stage,
    /// Whether it is on when nothing is said.
    pub default: bool,
    /// Whether it can no longer be changed.
    pub locked: bool,
    /// Gates that must be on when this one is.
    pub needs: &'static [&'static str],
}

const fn gate(name: &'static str, stage: Stage, default: bool, locked: bool, needs: &'static [&'static str]) -> Gate {
    Gate { name, stage, default, locked, needs }
}

/// Switches every alpha gate that is not named itself.
pub const ALL_ALPHA: &str = "AllAlpha";
/// Switches every beta gate that is not named itself.
pub const ALL_BETA: &str = "AllBeta";

/// The gates as one configuration sets them; what it does not set has its default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GateSet {
    changed: BTreeMap<&'static str, bool>,
}

/// Something wrong, or worth knowing, about one gate.
pub type GateFinding = (String, String);

impl GateSet {
    /// The set that `wanted` asks for; what cannot be had is left at its default and named in the errors.
    #[must_use]
    pub fn from_map(wanted: &BTreeMap<String, bool>) -> (Self, Vec<GateFinding>) {
        let mut set = Self::default();
        let mut errors = Vec::new();
        for (stage, name) in [(Stage::Alpha, ALL_ALPHA), (Stage::Beta, ALL_BETA)] {
            if let Some(on) = wanted.get(name) {
                set.changed.extend(GATES.iter().filter(|g| g.stage == stage && !g.locked).map(|g| (g.name, *on)));
            }
        }
        for (name, on) in wanted.iter().filter(|(name, _)| !is_group(name)) {
            match find(name) {
                None => errors.push((name.clone(), "unknown feature gate".to_owned())),
                Some(gate) if gate.locked && gate.default != *on => {
                    errors.push((name.clone(), format!("feature gate is locked to {}", gate.default)));
                }
                Some(gate) => {
                    set.changed.insert(gate.name, *on);
                }
            }
        }
        if errors.is_empty() {
            errors = set.missing_needs();
        }
        (set, errors)
    }

    /// Whether the feature is on; an unknown name is off.
    #[must_use]
    pub fn enabled(&self, name: &str) -> bool {
        find(name).is_some_and(|gate| self.changed.get(gate.name).copied().unwrap_or(gate.default))
    }

    fn missing_needs(&self) -> Vec<GateFinding> {
        let mut errors = Vec::new();
        for gate in GATES.iter().filter(|g| self.enabled(g.name)) {
            let off: Vec<_> = gate.needs.iter().copied().filter(|need| !self.enabled(need)).collect();
            if !off.is_empty() {
                let message = format!("feature gate is on but needs {}, which is off", off.join(", "));
                errors.push((gate.name.to_owned(), message));
            }
        }
        errors
    }
}

/// Gates whose explicit setting is worth a warning: they will stop being accepted one day.
#[must_use]
pub fn short_lived(wanted: &BTreeMap<String, bool>) -> Vec<GateFinding> {
    let note = |gate: &Gate| match gate.stage {
        Stage::Ga => Some("feature is settled: its gate will be removed in a later release"),
        Stage::Deprecated => Some("feature gate is deprecated and will be removed in a later release"),
        Stage::Alpha | Stage::Beta => None,
    };
    wanted.keys().filter_map(|name| Some((name.clone(), note(find(name)?)?.to_owned()))).collect()
}

/// Every gate, sorted by name.
#[must_use]
pub fn all() -> &'static [Gate] {
    GATES
}

fn is_group(name: &str) -> bool {
    name == ALL_ALPHA || name == ALL_BETA
}

fn find(name: &str) -> Option<&'static Gate> {
    GATES.binary_search_by(|gate| gate.name.cmp(name)).ok().map(|i| &GATES[i])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(pairs: &[(&str, bool)]) -> (GateSet, Vec<GateFinding>) {
        GateSet::from_map(&pairs.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect())
    }

    #[track_caller]
    fn check(pairs: &[(&str, bool)], gate: &str, expect: bool) {
        let (set, errors) = set(pairs);
        assert_eq!(errors, []);
        assert_eq!(set.enabled(gate), expect, "{gate}");
    }

    #[track_caller]
    fn refuse(pairs: &[(&str, bool)], gate: &str, message: &str) {
        let (_, errors) = set(pairs);
        assert!(errors.iter().any(|(g, m)| g == gate && m.contains(message)), "{errors:?}");
    }

    #[test]
    fn the_table_is_sorted_and_closed() {
        assert!(GATES.windows(2).all(|w| w[0].name < w[1].name));
        for gate in GATES {
            assert!(gate.needs.iter().all(|need| find(need).is_some()), "{}", gate.name);
            assert!(gate.stage != Stage::Alpha || !gate.default, "{}: alpha is off", gate.name);
        }
        assert_eq!(GateSet::default().missing_needs(), [], "the defaults agree with each other");
    }

    #[test]
    fn defaults_groups_and_single_gates() {
        check(&[], "MemoryQoS", true);
        check(&[], "EventedPLEG", false);
        check(&[], "UserNamespacesSupport", true);
        check(&[("EventedPLEG", true)], "EventedPLEG", true);
        check(&[(ALL_BETA, false)], "MemoryQoS", false);
        check(&[(ALL_BETA, false), ("MemoryQoS", true)], "MemoryQoS", true);
        check(&[(ALL_ALPHA, true), ("GenericWorkload", true)], "EventedPLEG", true);
        check(&[("NodeSwap", true)], "NodeSwap", true);
        assert!(!GateSet::default().enabled("NoSuchGate"));
    }

    #[test]
    fn refusals() {
        refuse(&[("NoSuchGate", true)], "NoSuchGate", "unknown");
        refuse(&[("memoryQoS", true)], "memoryQoS", "unknown");
        refuse(&[("NodeSwap", false)], "NodeSwap", "locked to true");
        refuse(&[("GitRepoVolumeDriver", true)], "GitRepoVolumeDriver", "locked to false");
        refuse(
            &[("GracefulNodeShutdown", false)],
            "GracefulNodeShutdownBasedOnPodPriority",
            "needs GracefulNodeShutdown",
        );
        let (_, errors) = set(&[("A", true), ("B", true)]);
        assert_eq!(errors.len(), 2, "every unknown gate is named");
    }

    #[test]
    fn settled_and_deprecated_gates_are_pointed_out() {
        let map = [("NodeSwap", true), ("AllowDNSOnlyNodeCSR", true), ("MemoryQoS", true)];
        let notes = short_lived(&map.map(|(k, v)| (k.to_owned(), v)).into());
        assert_eq!(notes.iter().map(|(g, _)| g.as_str()).collect::<Vec<_>>(), ["AllowDNSOnlyNodeCSR", "NodeSwap"]);
    }
}
