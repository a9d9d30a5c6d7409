//! The durable store: records that cannot be observed again after a crash.

use crate::ids::{ContainerId, PodUid};
use crate::resize::SizeTexts;
use crate::status::PodStatus;
use crate::time::Wall;
use serde::{Deserialize, Serialize};

/// One durable fact; the journal is the list of them, later ones override earlier ones of the same pod.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Record {
    /// The pod was admitted with these resources.
    PodAdmitted {
        /// The pod.
        uid: PodUid,
        /// `namespace/name`.
        name: String,
        /// CPU requests in thousandths of a core.
        cpu_milli: i64,
        /// Memory requests in bytes.
        memory_bytes: i64,
    },
    /// The pod reached a terminal phase, which must never change.
    PodFinished {
        /// The pod.
        uid: PodUid,
        /// True for `Succeeded`, false for `Failed`.
        succeeded: bool,
    },
    /// Nothing of the pod is left; its records can be dropped at the next compaction.
    PodForgotten {
        /// The pod.
        uid: PodUid,
    },
    /// What probes had found out of the pod when it was last shown: a restart goes on from there. Written some time
    /// after it came about, together with others.
    PodProbed {
        /// The pod.
        uid: PodUid,
        /// What is known of each container with a startup or readiness probe.
        containers: Vec<ProbedContainer>,
        /// When condition `Ready` last changed.
        ready_since: Wall,
        /// Its status.
        ready: bool,
    },
    /// What is shown of a pod that reached a terminal phase: its containers may be removed, this stays.
    PodEnded {
        /// The pod.
        uid: PodUid,
        /// Its status.
        status: Box<PodStatus>,
    },
    /// These resources are allocated to the pod; they are also in force unless a record says otherwise.
    PodAllocated {
        /// The pod.
        uid: PodUid,
        /// The resources.
        sizes: SizeTexts,
    },
    /// These resources are in force for the pod's containers.
    PodActuated {
        /// The pod.
        uid: PodUid,
        /// The resources.
        sizes: SizeTexts,
    },
}

/// What probes had found out of one instance of a container.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct ProbedContainer {
    /// The instance.
    pub id: ContainerId,
    /// It has started.
    pub started: bool,
    /// It serves.
    pub ready: bool,
}

/// Unasked facts of the store.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum StoreIngress {
    /// The group commit of a tick failed: none of its records is durable and none of its works was started
    /// (each was answered `Cancelled`).
    CommitFailed {
        /// Records that were to be written.
        records: Vec<Record>,
        /// What the file system said.
        message: String,
    },
}
