//! Objects of the API server that the pods of this node refer to: config maps, secrets, tokens, services.
//!
//! Owns [`Objects`] and [`Services`], which environments and volumes are made from. So far nothing asks the API server
//! for them, so that a pod that needs one waits for it.

pub(crate) mod services;

use components::objects::{Objects, Services};
use engine::Engine;

/// Adds the domain to the engine.
pub fn plugin(engine: &mut Engine) {
    engine.world_mut().init_resource::<Objects>();
    engine.world_mut().init_resource::<Services>();
}
