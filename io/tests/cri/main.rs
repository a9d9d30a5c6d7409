//! The runtime bridge against a scripted runtime on a unix socket.

#![expect(clippy::unwrap_used, reason = "tests")]

mod calls;
mod events;
mod failures;
mod fake;
mod inspect;
mod rich;
