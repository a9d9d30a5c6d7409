//! Scenario files: pods, what happens to them and when, and what is expected, as text.
//!
//! ```text
//! manifest web:                     a pod; its name, uid (uid-web) and image have defaults
//!   spec:
//!     containers: [{name: c, command: [sh, -c, "exit 1"]}]
//! image busybox:1                   an image that is here from the start
//! option events off                 also: watch, url, file-check 20s, max-restart 300s, sync 60s, timeout 120s, grace-all
//! fault StartContainer web/c fail 2 some text
//! at 0s put web                     into the file web.yaml, or `put web in other.yaml`, or `put-url web`
//! at 5s kill web/c exit 3
//! at 8s probe web:8080 fail          or `hang`, `pass`; `web/c` for commands in a container
//! expect at 12s phase web Running
//! expect effect StopContainer web/c within 2s of 5s
//! expect order RunSandbox web < StartContainer web/c
//! end 60s
//! ```
//! Names are of pods in the namespace `default`. [`parse`] reads the text, [`run`] plays it.

pub mod api;
mod expect;
mod parse;
mod play;

pub use parse::parse;
pub use play::run;

use components::edge::sources::Source;
use std::collections::BTreeMap;
use std::time::Duration;

/// A scenario.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Scenario {
    /// Pods by the name of their block, as JSON.
    pub manifests: BTreeMap<String, String>,
    /// Images that are here from the start.
    pub images: Vec<String>,
    /// Options.
    pub options: Vec<(String, String)>,
    /// What happens, by time, then by line.
    pub steps: Vec<Step>,
    /// What is expected of the whole run.
    pub afterwards: Vec<(usize, Afterwards)>,
    /// How long it runs.
    pub end: Duration,
}

/// Something at a time.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// When.
    pub at: Duration,
    /// Line in the file.
    pub line: usize,
    /// What.
    pub what: What,
}

/// What happens or is expected at a time.
#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// A manifest is put into a source: block name, origin.
    Put(Source, String, String),
    /// A file is removed.
    Remove(Source, String),
    /// A file becomes unusable, with this problem.
    Spoil(Source, String, String),
    /// A container ends.
    Kill(String, Option<String>, i32),
    /// Someone removes all of a pod from the runtime.
    Prune(String),
    /// The sandbox of a pod dies.
    Lose(String),
    /// The runtime restarts and is away for so long.
    RestartRuntime(Duration),
    /// The event stream ends.
    CloseEvents,
    /// The agent dies and is away for so long.
    Crash(Duration),
    /// The machine restarts and is away for so long.
    Reboot(Duration),
    /// The wall clock steps, in seconds.
    StepClock(i64),
    /// A shutdown of the node is announced, or called off.
    Shutdown(bool),
    /// The node is drained.
    Drain(Option<u32>),
    /// A container uses so much memory.
    UseMemory(String, u64),
    /// A path of the host appears.
    MakePath(String),
    /// The runtime's network comes or goes.
    Network(bool),
    /// A target of probes answers otherwise.
    Probe(String, crate::node::probes::Mood),
    /// Directories of a pod (by uid) that nobody knows are there.
    Ghost(String),
    /// The runtime loses everything.
    Wipe,
    /// A planned fault.
    Fault(crate::node::faults::Planned),
    /// Something on the API server.
    Api(api::Act),
    /// An expectation.
    Expect(Now),
}

/// What is expected at a time.
#[derive(Debug, Clone, PartialEq)]
pub enum Now {
    /// Phase of a pod.
    Phase(String, String),
    /// Stage of a pod.
    Stage(String, String),
    /// The pod is not published any more.
    Gone(String),
    /// A container runs.
    Running(String, String),
    /// No such container runs.
    Stopped(String, String),
    /// Restart count.
    Restarts(String, String, u32),
    /// Reason of a container's waiting or ended state.
    Reason(String, String, String),
    /// Exit code of a container that is ended now or was before.
    Exit(String, String, i32),
    /// Text within the message of a container's ended state.
    Message(String, String, String),
    /// Condition Ready.
    Ready(String, bool),
    /// Directories of the pod (by uid) are there.
    Dirs(String, bool),
    /// A file of the pod's (by uid) volumes, given by the end of its path, has this content.
    File(String, String, String),
    /// Sandboxes of the pod in the runtime.
    Sandboxes(String, usize),
    /// Names of a container's log files; the time in a rotated one as `T`.
    Logs(String, String, String),
    /// Ended instances of a container in the runtime.
    Dead(String, String, usize),
    /// What a running container has: shares, quota, memory limit.
    Size(String, String, String),
    /// Limits of the cgroup of a pod (by uid): shares, quota, memory, `-` for none.
    Limits(String, String),
    /// Links to log files.
    Links(usize),
    /// Something of the API server.
    Api(api::Seen),
}

/// What is expected of the whole run. Effects are `NAME TARGET`.
#[derive(Debug, Clone, PartialEq)]
pub enum Afterwards {
    /// An effect starts within a time span.
    Effect(String, Duration, Duration),
    /// No such effect starts within a time span.
    NoEffect(String, Duration, Duration),
    /// So many of them start.
    Count(String, usize),
    /// They start at these times (to the second).
    Times(String, Vec<Duration>),
    /// Each starts after the one before it.
    Order(Vec<String>),
    /// After its first minute condition Ready of this pod does not change, nor does its time.
    NeverFlaps(String),
}
