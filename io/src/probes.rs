//! Probes over the network: one attempt per effect, on a connection of its own that is closed at once.
//!
//! Decides nothing but whether an attempt passed, which the protocols say. No retry; the deadline is the dispatcher's,
//! and dropping the attempt closes its connection. Written by hand on plain sockets, because a node asks hundreds of
//! these a second and a pooled client costs a multiple of the question.

mod dial;
mod grpc;
mod http;
mod response;
mod tls;

pub(crate) use self::tls::{anyone, configuration as trusting};

use crate::port::Port;
use components::edge::probes::{ProbesAnswer, ProbesEffect, TcpTarget};
use components::edge::{Answer, Outcome};
use std::sync::Arc;

/// The port of network probes.
#[derive(Debug, Default)]
pub struct ProbesPort {
    tls: tls::Lazy,
}

impl ProbesPort {
    /// Makes the port.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    async fn attempt(&self, effect: ProbesEffect) -> ProbesAnswer {
        let result = match &effect {
            ProbesEffect::ProbeHttp(target) => return http::get(Arc::clone(target), &self.tls).await,
            ProbesEffect::ProbeTcp(target) => tcp(target).await,
            ProbesEffect::ProbeGrpc(target) => grpc::check(target).await,
        };
        match result {
            Ok(()) => ProbesAnswer::Passed,
            Err(message) => ProbesAnswer::NotPassed { message },
        }
    }
}

impl Port<ProbesEffect> for ProbesPort {
    async fn run(&self, effect: ProbesEffect) -> Outcome {
        Outcome::Done(Answer::Probes(self.attempt(effect).await))
    }
}

async fn tcp(target: &TcpTarget) -> Result<(), String> {
    dial::dial(&target.host, target.port).await.map(drop)
}

#[cfg(test)]
mod tests;
