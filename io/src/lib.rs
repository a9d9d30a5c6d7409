//! Bridges to everything outside. They carry data in and out and decide nothing.

pub mod clock;
pub mod dispatch;
pub mod port;
pub mod sources;
pub mod store;
