//! Acceptance cases: reports of people who run nodes, each with the right value asserted.
//!
//! They do not ask whether ticklet or the reference kubelet is under them: `cargo xtask test --reference` runs both.

#[path = "cases/config.rs"]
mod config;
#[path = "cases/http.rs"]
mod http;
#[path = "cases/lifecycle.rs"]
pub(crate) mod lifecycle;
#[path = "cases/logs.rs"]
mod logs;
#[path = "cases/probes.rs"]
mod probes;
#[path = "cases/runtime.rs"]
mod runtime;
#[path = "cases/volumes.rs"]
mod volumes;
