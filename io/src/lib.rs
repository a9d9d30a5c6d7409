//! Bridges to everything outside. They carry data in and out and decide nothing.

pub mod apiserver;
pub mod certs;
pub mod clock;
pub mod cri;
pub mod dispatch;
mod files;
pub mod hooks;
pub mod host;
pub mod klog;
pub mod logind;
pub mod logs;
pub mod metrics;
mod percent;
pub mod port;
pub mod probes;
mod program;
pub mod server;
pub mod sources;
pub mod spdy;
pub mod stats;
pub mod store;
pub mod traces;
