//! Decision domains of the kubelet, one module each; shared helpers are `pods`.

mod admission;
pub mod expand;
#[cfg(test)]
mod fixtures;
pub mod health;
pub mod journal;
pub mod lifecycle;
mod planted;
pub mod pleg;
pub mod pods;
pub mod qos;
pub mod report;
pub mod runtime;
pub mod sources;
pub mod status;
mod sysctls;
pub mod turns;

use engine::Engine;

/// Adds every domain. What they share is made first.
pub fn plugin(engine: &mut Engine) {
    pods::plugin(engine);
    journal::plugin(engine);
    health::plugin(engine);
    pleg::plugin(engine);
    sources::plugin(engine);
    lifecycle::plugin(engine);
    runtime::plugin(engine);
    qos::plugin(engine);
    status::plugin(engine);
    report::plugin(engine);
}
