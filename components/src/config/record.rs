//! One declaration per configuration object: its fields, their JSON names, their defaults.
//!
//! `record!` turns the declaration into a struct, its `Default` (all defaults applied), its JSON form (the same keys
//! the kubelet's `/configz` shows) and a decoder that reports every wrong field and goes on.
//!
//! The rule after each JSON name says what an absent value means:
//! `plain` the zero value, left out of JSON when zero; `or(D)` absent or zero means `D`; `set(D)` only absent means `D`
//! and JSON always shows it;
//! `list(D)` the same, but JSON leaves out an empty one; `always` the type's default, always shown; `opt` stays absent.

use std::collections::BTreeMap;

use crate::duration::GoDuration;
use crate::quantity::Quantity;

/// What a field type calls zero, and whether JSON leaves a zero out.
pub(super) trait Zero {
    /// Whether the value equals the zero value of the kubelet's own type.
    fn is_zero(&self) -> bool;
    /// Whether the kubelet leaves a zero out of its JSON; durations and objects are always shown.
    fn omitted(&self) -> bool {
        self.is_zero()
    }
}

impl Zero for bool {
    fn is_zero(&self) -> bool {
        !self
    }
}

impl Zero for i32 {
    fn is_zero(&self) -> bool {
        *self == 0
    }
}

impl Zero for i64 {
    fn is_zero(&self) -> bool {
        *self == 0
    }
}

impl Zero for u32 {
    fn is_zero(&self) -> bool {
        *self == 0
    }
}

impl Zero for String {
    fn is_zero(&self) -> bool {
        self.is_empty()
    }
}

impl Zero for GoDuration {
    fn is_zero(&self) -> bool {
        Self::is_zero(*self)
    }
    fn omitted(&self) -> bool {
        false
    }
}

impl Zero for Quantity {
    fn is_zero(&self) -> bool {
        Self::is_zero(*self)
    }
    fn omitted(&self) -> bool {
        false
    }
}

impl<T> Zero for Vec<T> {
    fn is_zero(&self) -> bool {
        self.is_empty()
    }
}

impl<T> Zero for BTreeMap<String, T> {
    fn is_zero(&self) -> bool {
        self.is_empty()
    }
}

impl<T> Zero for Option<T> {
    fn is_zero(&self) -> bool {
        self.is_none()
    }
}

/// Declares a configuration object; see the head of the module for the rules.
macro_rules! record {
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $( $(#[$fmeta:meta])* $field:ident: $ty:ty = $json:literal, $rule:ident $(($default:expr))?; )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            $( $(#[$fmeta])* pub $field: $ty, )*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $( $field: $crate::config::record::record!(@default $rule $(($default))?), )* }
            }
        }

        impl $crate::config::record::Zero for $name {
            fn is_zero(&self) -> bool {
                false
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeMap;
                let mut map = serializer.serialize_map(None)?;
                $( if $crate::config::record::record!(@shown $rule, self.$field) {
                    map.serialize_entry($json, &self.$field)?;
                } )*
                map.end()
            }
        }

        impl $crate::config::decode::Decode for $name {
            const EXPECTED: &'static str = "an object";
            const FIELDS: &'static [&'static str] = &[$($json),*];

            fn decode(
                node: &$crate::config::tree::Node,
                path: &str,
                found: &mut $crate::config::decode::Findings,
            ) -> Option<Self> {
                let mut out = Self::default();
                for entry in $crate::config::decode::object_entries(node, path, found)? {
                    let child = $crate::config::tree::join(path, &entry.key);
                    match entry.key.as_str() {
                        $( $json => $crate::config::record::record!(
                            @read $rule $(($default))?, out.$field, entry, &child, found
                        ), )*
                        _ => found.unknown(entry, child),
                    }
                }
                Some(out)
            }
        }
    };
    (@default or($default:expr)) => { $default };
    (@default set($default:expr)) => { $default };
    (@default list($default:expr)) => { $default };
    (@default $rule:ident) => { Default::default() };
    (@shown set, $value:expr) => { true };
    (@shown always, $value:expr) => { true };
    (@shown $rule:ident, $value:expr) => { !$crate::config::record::Zero::omitted(&$value) };
    (@read or($default:expr), $slot:expr, $entry:expr, $path:expr, $found:expr) => {{
        $crate::config::decode::read(&$entry.value, $path, &mut $slot, $found);
        if $crate::config::record::Zero::is_zero(&$slot) {
            $slot = $default;
        }
    }};
    (@read $rule:ident $(($default:expr))?, $slot:expr, $entry:expr, $path:expr, $found:expr) => {
        $crate::config::decode::read(&$entry.value, $path, &mut $slot, $found)
    };
}

pub(super) use record;
