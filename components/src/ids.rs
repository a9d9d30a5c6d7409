//! Typed ids: one registry, so that no bare string id crosses a function boundary.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

macro_rules! string_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(pub Arc<str>);

        impl $name {
            /// The id as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(Arc::from(text))
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(Arc::from(text))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }
    };
}

string_id!(
    /// Id that the runtime gave to a container.
    ContainerId
);
string_id!(
    /// `metadata.uid` of a pod.
    PodUid
);
string_id!(
    /// Id that the runtime gave to a pod sandbox.
    SandboxId
);

/// Names one asked-for piece of work; its completion carries it back. Unique within a run of the engine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Ticket(pub u64);

/// Text that may hold a secret: never printed, never serialised (so it is outside of effect hashes and traces).
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Sensitive(pub String);

impl fmt::Debug for Sensitive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<redacted>")
    }
}

impl Serialize for Sensitive {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_unit()
    }
}

/// What was not serialised comes back as a placeholder.
impl<'de> Deserialize<'de> for Sensitive {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <()>::deserialize(deserializer).map(|()| Self("<redacted>".to_owned()))
    }
}

impl From<&str> for Sensitive {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

/// Bytes that may hold a secret: never printed, never serialised, as [`Sensitive`].
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Hidden(pub Arc<[u8]>);

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<redacted>")
    }
}

impl Serialize for Hidden {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_unit()
    }
}

impl From<Vec<u8>> for Hidden {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Arc::from(bytes))
    }
}
