//! The lab: a private containerd with its own network, cgroup and images, and a ticklet node on it.
//!
//! Used by the integration tests of this crate and by `cargo xtask`. Everything a lab makes carries its number, so
//! that it can be found and removed after a crash; nothing else on the machine is touched.

pub mod cluster;
pub mod crictl;
pub mod lab;
pub mod manifest;
pub mod node;
pub mod process;
pub mod suite;
pub mod tools;
pub mod tunables;
