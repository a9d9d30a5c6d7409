//! The edge: everything that comes in is an [`Ingress`] fact, everything that goes out is an [`Effect`].
//!
//! Both enums are closed and nested by port, one file per port. Facts are past tense, effects imperative. Work that
//! is asked for travels as [`Work`] with a ticket and comes back as exactly one [`Completion`].

pub mod api;
pub mod control;
pub mod cri;
pub mod hooks;
pub mod host;
pub mod label;
pub mod probes;
pub mod sources;
pub mod store;

use crate::ids::{PodUid, Ticket};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// One fact from outside, in the order of its arrival.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Ingress {
    /// The one answer to a piece of work.
    Completed(Completion),
    /// Requests of the process itself (signals, command line).
    Control(control::ControlIngress),
    /// Unasked facts of the container runtime.
    Cri(cri::CriIngress),
    /// Unasked facts of the pod sources.
    Sources(sources::SourcesIngress),
    /// Unasked facts of the durable store.
    Store(store::StoreIngress),
    /// Unasked facts of the API server.
    Api(api::ApiIngress),
}

/// One thing to be done outside; complete, so that its executor has nothing to decide.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub enum Effect {
    /// A call to the container runtime.
    Cri(cri::CriEffect),
    /// A change to or a look at this host's files and cgroups.
    Host(host::HostEffect),
    /// A read of a pod source.
    Sources(sources::SourcesEffect),
    /// One attempt of a probe over the network.
    Probes(probes::ProbesEffect),
    /// A lifecycle hook over the network.
    Hooks(hooks::HooksEffect),
    /// A request to the API server, or a watch.
    Api(api::ApiEffect),
}

/// An effect with what its executor must know to run it in order, in time and once.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Work {
    /// Comes back in the completion.
    pub ticket: Ticket,
    /// Works of one lane run in the order they were emitted.
    pub lane: Lane,
    /// When true and the work before it in its lane did not end in `Done`, this one is answered `Cancelled` unrun.
    pub chained: bool,
    /// Deadline from the moment it starts to run (time in the queue is not counted).
    pub timeout: Duration,
    /// Which system asked, by which rule.
    pub why: Why,
    /// What to do.
    pub effect: Effect,
}

/// The queue a work belongs to. Different lanes run in parallel up to the limit of the effect's kind.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub enum Lane {
    /// No order with anything else.
    Free,
    /// One strand of a pod: 0 for the pod itself, container index + 1 for its containers.
    /// Strands run in parallel; order between strands is kept by the core, which waits for completions.
    Pod {
        /// The pod.
        uid: PodUid,
        /// Which strand of it.
        strand: u16,
    },
}

/// Why an effect was emitted: read by `explain` and by divergence reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Why {
    /// System that decided.
    pub system: &'static str,
    /// Rule that applied, as a short sentence.
    pub rule: &'static str,
}

/// The answer to one [`Work`].
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Completion {
    /// Ticket of the work.
    pub ticket: Ticket,
    /// How it ended.
    pub outcome: Outcome,
}

/// How a piece of work ended.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Outcome {
    /// It was done.
    Done(Answer),
    /// It was tried and refused.
    Failed(Failure),
    /// No answer came before its deadline; it may still happen.
    TimedOut,
    /// It was never started, or was stopped half-way on our request.
    Cancelled,
}

/// What a done piece of work has to say.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// Nothing beyond "done".
    Nothing,
    /// Answers of the container runtime.
    Cri(cri::CriAnswer),
    /// Answers of the host.
    Host(host::HostAnswer),
    /// Answers of the pod sources.
    Sources(sources::SourcesAnswer),
    /// How an attempt of a probe ended.
    Probes(probes::ProbesAnswer),
    /// What came of a lifecycle hook.
    Hooks(hooks::HooksAnswer),
    /// Answers of the API server.
    Api(api::ApiAnswer),
}

/// Why a piece of work failed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Failure {
    /// Class that decisions branch on.
    pub class: FailureClass,
    /// Text for people, from the other side; without secrets.
    pub message: String,
}

/// Classes of failure that decisions distinguish.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum FailureClass {
    /// The other side could not be reached.
    Unavailable,
    /// The object does not exist (CRI `NotFound`, `ENOENT`).
    NotFound,
    /// The object exists already.
    AlreadyExists,
    /// The other side does not know the call.
    Unimplemented,
    /// A limit was met (message size, disk full, quota).
    Exhausted,
    /// The request itself was refused as wrong.
    Invalid,
    /// The answer could not be understood.
    Garbage,
    /// Not allowed (`EACCES`, `EPERM`, registry credentials).
    Denied,
    /// Anything else.
    Other,
}
