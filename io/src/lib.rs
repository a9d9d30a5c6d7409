//! Bridges to everything outside. They carry data in and out and decide nothing.

pub mod clock;
pub mod cri;
pub mod dispatch;
pub mod host;
pub mod port;
pub mod sources;
pub mod store;
pub mod traces;
