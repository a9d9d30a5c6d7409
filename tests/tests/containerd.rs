//! Integration tests on a real containerd, one program for all of them.
//!
//! `cargo xtask test` runs it once per runtime, named in `TICKLET_RUNTIME`. Without the variable no runtime was
//! chosen: every test says so and ends, and nothing is counted for this rung.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

#[path = "containerd/lab.rs"]
mod lab;

use tests::lab::{Lab, Runtime};

/// A lab on the chosen runtime; `None`, said aloud, when none was chosen.
fn lab() -> Option<Lab> {
    let Some(runtime) = Runtime::from_environment().unwrap() else {
        eprintln!(
            "{} is not set: this rung was not selected",
            Runtime::VARIABLE
        );
        return None;
    };
    Some(Lab::start(runtime).unwrap())
}
