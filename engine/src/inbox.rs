//! The facts of this tick, sorted out by port; completions with the owner of their ticket.

use crate::outbox::{Outbox, Owner};
use bevy_ecs::prelude::*;
use components::edge::api::ApiIngress;
use components::edge::control::ControlIngress;
use components::edge::cri::CriIngress;
use components::edge::sources::SourcesIngress;
use components::edge::store::StoreIngress;
use components::edge::{Ingress, Outcome};
use components::ids::Ticket;

/// A completion whose ticket was known.
#[derive(Clone, Debug)]
pub struct Arrived {
    /// Who asked.
    pub owner: Owner,
    /// For what.
    pub ticket: Ticket,
    /// How it ended.
    pub outcome: Outcome,
}

/// All facts of one tick. Read by any system, written only between ticks.
#[derive(Resource, Default, Debug)]
pub struct Inbox {
    /// Completions in order of arrival.
    pub completions: Vec<Arrived>,
    /// Requests of the process.
    pub control: Vec<ControlIngress>,
    /// Facts of the runtime.
    pub cri: Vec<CriIngress>,
    /// Facts of the pod sources.
    pub sources: Vec<SourcesIngress>,
    /// Facts of the store.
    pub store: Vec<StoreIngress>,
    /// Facts of the API server.
    pub api: Vec<ApiIngress>,
}

impl Inbox {
    pub(crate) fn fill(world: &mut World, batch: Vec<Ingress>) {
        world.resource_scope::<Outbox, ()>(|world, mut outbox| {
            outbox.counts.ticks += 1;
            outbox.counts.inputs += batch.len() as u64;
            let mut inbox = Self::default();
            for fact in batch {
                match fact {
                    Ingress::Completed(done) => match outbox.settle(done.ticket) {
                        Some(owner) if owner.lives(world) => {
                            inbox.completions.push(Arrived { owner, ticket: done.ticket, outcome: done.outcome });
                        }
                        _ => outbox.counts.stale_completions += 1,
                    },
                    Ingress::Control(fact) => inbox.control.push(fact),
                    Ingress::Cri(fact) => inbox.cri.push(fact),
                    Ingress::Sources(fact) => inbox.sources.push(fact),
                    Ingress::Store(fact) => inbox.store.push(fact),
                    Ingress::Api(fact) => inbox.api.push(fact),
                }
            }
            world.insert_resource(inbox);
        });
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}
