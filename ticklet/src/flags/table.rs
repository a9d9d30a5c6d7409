//! Every flag of a 1.37 kubelet: name, type and default as it prints them, what the flag sets, what it means.

mod fields;
mod others;

use components::config::KubeletConfiguration;

use super::own::KubeletFlags;
use super::values;

use self::fields::FIELDS;
use self::others::{OTHERS, REMOVED};

/// One flag.
#[derive(Debug)]
pub(super) struct Flag {
    pub(super) name: &'static str,
    /// The type as `--help` shows it; a switch has none.
    pub(super) kind: &'static str,
    /// The default as `--help` shows it; empty when it shows none.
    pub(super) default: &'static str,
    pub(super) act: Act,
    pub(super) usage: &'static str,
}

/// What a flag does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Act {
    /// Sets the field of the configuration with this path.
    Field(&'static str, fn(&mut KubeletConfiguration, &[String]) -> Result<(), String>),
    /// Sets a value that has no field.
    Own(fn(&mut KubeletFlags, &[String]) -> Result<(), String>),
    /// Asks for help.
    Help,
    /// Asks for the version.
    Version,
    /// Nothing, as on the kubelet.
    Ignored,
    /// Nothing any more.
    Removed,
}

/// Whether a removed flag was followed by a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    Switch,
    Value,
}

const fn flag(name: &'static str, kind: &'static str, default: &'static str, act: Act, usage: &'static str) -> Flag {
    Flag { name, kind, default, act, usage }
}

const fn removed(name: &'static str, takes: Takes) -> Flag {
    let kind = match takes {
        Takes::Switch => "",
        Takes::Value => "string",
    };
    flag(name, kind, "", Act::Removed, "")
}

/// A flag for a field: `field!("jsonPath", rust.path, type)`; with `all` the type reads every value given.
macro_rules! field {
    ($json:literal, $($part:ident).+, all $read:ident) => {
        Act::Field($json, |config, given| {
            config.$($part).+ = $crate::flags::values::$read(given)?;
            Ok(())
        })
    };
    ($json:literal, $($part:ident).+, $read:ident) => {
        Act::Field($json, |config, given| {
            config.$($part).+ = $crate::flags::values::last(given, $crate::flags::values::$read)?;
            Ok(())
        })
    };
}

/// A flag without a field: `own!(name, type)`.
macro_rules! own {
    ($name:ident, all $read:ident) => {
        Act::Own(|flags, given| {
            flags.$name = $crate::flags::values::$read(given)?;
            Ok(())
        })
    };
    ($name:ident, $read:ident) => {
        Act::Own(|flags, given| {
            flags.$name = $crate::flags::values::last(given, $crate::flags::values::$read)?;
            Ok(())
        })
    };
}

use {field, own};

/// The flag can only switch on what the configuration leaves off, never off what it switches on.
fn switch_on_seccomp(config: &mut KubeletConfiguration, given: &[String]) -> Result<(), String> {
    config.seccomp_default |= values::last(given, values::boolean)?;
    Ok(())
}

impl Flag {
    /// The value that the flag has when it stands alone.
    pub(super) fn bare_value(&self) -> Option<&'static str> {
        let switch = self.kind.is_empty() || matches!(self.act, Act::Version) || self.name == "seccomp-default";
        switch.then_some("true")
    }

    /// The letter that stands for the flag.
    pub(super) fn short(&self) -> Option<char> {
        match self.name {
            "help" => Some('h'),
            "v" => Some('v'),
            _ => None,
        }
    }

    /// Whether the flag should be set in the configuration file instead.
    pub(super) fn is_deprecated(&self) -> bool {
        const KEPT: [&str; 6] =
            ["fail-cgroupv1", "log-flush-frequency", "provider-id", "seccomp-default", "v", "vmodule"];
        const AGED: [&str; 5] = [
            "experimental-allocatable-ignore-eviction",
            "experimental-mounter-path",
            "maximum-dead-containers",
            "maximum-dead-containers-per-container",
            "minimum-container-ttl-duration",
        ];
        match self.act {
            Act::Field(..) => !KEPT.contains(&self.name),
            _ => AGED.contains(&self.name),
        }
    }
}

/// The flag of this name, older ones included.
pub(super) fn find(name: &str) -> Option<&'static Flag> {
    [FIELDS, OTHERS, REMOVED].into_iter().flatten().find(|flag| flag.name == name)
}

/// The flag of this letter.
pub(super) fn find_short(letter: char) -> Option<&'static Flag> {
    [FIELDS, OTHERS].into_iter().flatten().find(|flag| flag.short() == Some(letter))
}

/// The flags that `--help` lists, sorted by name.
pub(super) fn listed() -> Vec<&'static Flag> {
    let mut flags: Vec<_> = [FIELDS, OTHERS].into_iter().flatten().collect();
    flags.sort_by_key(|flag| flag.name);
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_unique() {
        for table in [FIELDS, OTHERS, REMOVED] {
            assert!(table.windows(2).all(|w| w[0].name < w[1].name));
        }
        for flag in REMOVED {
            assert!(matches!(find(flag.name).map(|f| f.act), Some(Act::Removed)), "{} is still a flag", flag.name);
        }
    }

    /// The reference's list: `-s, --name type<TAB>(default x)`.
    #[test]
    fn the_table_is_the_reference_list() {
        let ours: Vec<String> = listed()
            .iter()
            .map(|flag| {
                let short = flag.short().map(|letter| format!("-{letter}, ")).unwrap_or_default();
                let default =
                    if flag.default.is_empty() { String::new() } else { format!("(default {})", flag.default) };
                format!("{short}--{} {}\t{default}", flag.name, flag.kind).replace(" \t", "\t")
            })
            .collect();
        let theirs: Vec<String> =
            include_str!("../../tests/testdata/reference-flags.tsv").lines().map(normal).collect();
        assert_eq!(ours.iter().map(|line| normal(line)).collect::<Vec<_>>(), theirs);
    }

    fn normal(line: &str) -> String {
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn printed_defaults_are_the_real_ones() {
        let plain = serde_json::to_value(KubeletConfiguration::legacy()).unwrap();
        for flag in FIELDS.iter().filter(|flag| !flag.default.is_empty()) {
            let Act::Field(path, set) = flag.act else { continue };
            let mut config = KubeletConfiguration::legacy();
            let text = flag.default.trim_matches(['"', '[', ']']).to_owned();
            set(&mut config, &[text]).unwrap();
            assert_eq!(serde_json::to_value(&config).unwrap(), plain, "{}: default of {path}", flag.name);
        }
        let mut flags = KubeletFlags::default();
        for flag in OTHERS.iter().filter(|flag| !flag.default.is_empty()) {
            if let Act::Own(set) = flag.act {
                set(&mut flags, &[flag.default.trim_matches('"').to_owned()]).unwrap();
                assert_eq!(flags, KubeletFlags::default(), "{}", flag.name);
            }
        }
    }

    #[test]
    fn every_field_flag_names_its_field() {
        let known = |path: &str| {
            let head = path.split('.').next().unwrap_or_default();
            KubeletConfiguration::field_names().contains(&head)
        };
        for flag in FIELDS {
            assert!(matches!(flag.act, Act::Field(path, _) if known(path)), "{}", flag.name);
        }
    }
}
