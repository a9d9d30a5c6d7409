//! What a port is: something that runs one effect and says how it ended.
//!
//! A port does just the one thing it was given, once: no order, no limits, no deadline, no retry. Those belong to
//! `io::dispatch`, which runs the works of a tick through the ports of all kinds: first in, first out within a lane,
//! lanes in parallel up to the limit of the effect's kind, each with its deadline. Dropping the future a port
//! returned cancels what it was doing, as far as the other side can be told.

use components::edge::Outcome;
use std::future::Future;

/// Runs effects of type `E`.
pub trait Port<E>: Send + Sync + 'static {
    /// Runs one effect to its end. Never panics; trouble is an [`Outcome::Failed`].
    fn run(&self, effect: E) -> impl Future<Output = Outcome> + Send;
}
