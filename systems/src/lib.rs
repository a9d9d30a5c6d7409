//! Decision domains of the kubelet, one module each; shared helpers are `pods`.

mod admission;
pub mod apicall;
pub mod apistatus;
pub mod events;
pub mod expand;
#[cfg(test)]
mod fixtures;
pub mod gc;
pub mod health;
pub mod identity;
pub mod journal;
pub mod lease;
pub mod lifecycle;
pub mod links;
pub mod logrotate;
pub mod mirrors;
pub mod node_object;
pub mod objects;
mod planted;
pub mod pleg;
pub mod pods;
pub mod probes;
pub mod qos;
pub mod reflector;
pub mod registry;
pub mod report;
pub mod resize;
mod restart;
pub mod runtime;
pub mod shutdown;
pub mod sources;
pub mod status;
mod sysctls;
pub mod turns;
pub mod volumes;

use engine::Engine;

/// Adds every domain. What they share is made first.
pub fn plugin(engine: &mut Engine) {
    pods::plugin(engine);
    journal::plugin(engine);
    health::plugin(engine);
    pleg::plugin(engine);
    sources::plugin(engine);
    shutdown::plugin(engine);
    lifecycle::plugin(engine);
    resize::plugin(engine);
    objects::plugin(engine);
    registry::plugin(engine);
    volumes::plugin(engine);
    probes::plugin(engine);
    runtime::plugin(engine);
    qos::plugin(engine);
    status::plugin(engine);
    apistatus::plugin(engine);
    mirrors::plugin(engine);
    logrotate::plugin(engine);
    gc::plugin(engine);
    links::plugin(engine);
    node_object::plugin(engine);
    identity::plugin(engine);
    lease::plugin(engine);
    events::plugin(engine);
    report::plugin(engine);
}
