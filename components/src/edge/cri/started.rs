//! What an event of the runtime carries of the object that started.

use super::{ContainerStatus, RuntimeSize, SandboxStatus};
use serde::{Deserialize, Serialize};

/// An object that started, as an inspection would show it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[expect(clippy::large_enum_variant, reason = "it is always in a box of its own")]
pub enum StartedObject {
    /// A sandbox, which is ready.
    Sandbox {
        /// Pod namespace.
        namespace: String,
        /// Pod name.
        name: String,
        /// Its status.
        status: SandboxStatus,
    },
    /// A container, which runs.
    Container {
        /// Its status.
        status: ContainerStatus,
        /// What it has, where the runtime says it.
        size: Option<RuntimeSize>,
    },
}

impl StartedObject {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> &str {
        match self {
            Self::Sandbox { status, .. } => status.id.as_str(),
            Self::Container { status, .. } => status.id.as_str(),
        }
    }
}
