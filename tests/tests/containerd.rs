//! Integration tests on a real containerd, one program for all of them.
//!
//! `cargo xtask test` runs it once per runtime, named in `TICKLET_RUNTIME`. Without the variable no runtime was
//! chosen: every test says so and ends, and nothing is counted for this rung.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

#[path = "containerd/cases.rs"]
mod cases;
#[path = "containerd/crashes.rs"]
mod crashes;
#[path = "containerd/health.rs"]
mod health;
#[path = "containerd/input.rs"]
mod input;
#[path = "containerd/lab.rs"]
mod lab;
#[path = "containerd/machine.rs"]
mod machine;
#[path = "containerd/matrix.rs"]
mod matrix;
#[path = "containerd/pods.rs"]
mod pods;
#[path = "containerd/probes.rs"]
mod probes;
#[path = "containerd/restarts.rs"]
mod restarts;
#[path = "containerd/runtime.rs"]
mod runtime;
#[path = "containerd/sees.rs"]
mod sees;
#[path = "containerd/stats.rs"]
mod stats;
#[path = "containerd/streams.rs"]
mod streams;
#[path = "containerd/traces.rs"]
mod traces;
#[path = "containerd/volumes.rs"]
mod volumes;

use std::time::Duration;

use tests::lab::{Lab, Runtime};
use tests::manifest::{WAIT, shell_pod, shell_pod_with_uid};
use tests::node::Node;

/// Long enough for anything that should happen soon, also on a busy machine.
const SOON: Duration = Duration::from_secs(30);

/// A lab on the chosen runtime; `None`, said aloud, when none was chosen.
fn chosen_lab() -> Option<Lab> {
    let Some(runtime) = Runtime::from_environment().unwrap() else {
        eprintln!("{} is not set: this rung was not selected", Runtime::VARIABLE);
        return None;
    };
    Some(Lab::start(runtime).unwrap())
}

/// A node with a running ticklet on the chosen runtime.
fn chosen_node() -> Option<Node> {
    Some(Node::start_new(chosen_lab()?).unwrap())
}
