//! The API server: one client for requests and watches, made from a kubeconfig.
//!
//! Decides nothing: a request is sent once, a watch is one connection and ends with it. Reads the kubeconfig and the
//! files it names; writes facts of watches to the ingress channel, before the watch's completion.

mod counts;
mod identity;
pub mod kubeconfig;
mod limit;
mod pool;
mod transport;
mod watch;

pub use self::counts::ApiCounts;
pub use self::kubeconfig::{Kubeconfig, KubeconfigError};
pub use self::limit::Rates;

use self::limit::Limits;
use self::transport::{CallError, Transport};
use crate::port::Port;
use components::edge::api::{ApiAnswer, ApiEffect, Class, Method};
use components::edge::{Answer, Failure, FailureClass, Ingress, Outcome};
use components::ids::Ticket;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::mpsc;

/// One effect with the ticket that facts of a watch carry.
#[derive(Debug)]
pub struct ApiCall {
    /// Ticket of the work.
    pub ticket: Ticket,
    /// What to do.
    pub effect: ApiEffect,
}

/// How the API server is reached.
#[derive(Debug)]
pub struct ApiPort {
    /// `None` for a node that works on its own.
    server: Option<Server>,
    ingress: mpsc::Sender<Ingress>,
}

#[derive(Debug)]
struct Server {
    transport: Transport,
    limits: Limits,
}

impl ApiPort {
    /// The port of a node that works on its own: everything fails.
    #[must_use]
    pub const fn absent(ingress: mpsc::Sender<Ingress>) -> Self {
        Self { server: None, ingress }
    }

    /// Reads a kubeconfig and makes the client. Nothing is connected before the first request.
    ///
    /// # Errors
    /// One line that names the file and what is wrong with it.
    pub fn from_file(path: &Path, rates: Rates, ingress: mpsc::Sender<Ingress>) -> Result<Self, KubeconfigError> {
        let kubeconfig = Kubeconfig::read(path)?;
        let transport = Transport::new(&kubeconfig)
            .map_err(|message| KubeconfigError::Unusable { path: path.to_owned(), message })?;
        Ok(Self { server: Some(Server { transport, limits: Limits::new(rates) }), ingress })
    }
}

impl ApiPort {
    /// Counts of its requests; `None` for a node that works on its own.
    #[must_use]
    pub fn counts(&self) -> Option<Arc<ApiCounts>> {
        self.server.as_ref().map(|server| server.transport.counts())
    }
}

impl Server {
    /// Waits for the turn of a request.
    async fn wait(&self, class: Class, method: Method) {
        let begun = Instant::now();
        self.limits.wait(class).await;
        self.transport.counts().waited(method.as_str(), begun.elapsed());
    }
}

impl Port<ApiCall> for ApiPort {
    async fn run(&self, call: ApiCall) -> Outcome {
        let Some(server) = &self.server else {
            let message = "no API server is configured".to_owned();
            return Outcome::Failed(Failure { class: FailureClass::Unavailable, message });
        };
        let answer = match call.effect {
            ApiEffect::Request(request) => {
                server.wait(request.class, request.method).await;
                server.transport.request(&request).await.map(|it| ApiAnswer::Answered(Box::new(it)))
            }
            ApiEffect::Watch(watch) => {
                server.wait(watch.class, Method::Get).await;
                watch::run(&server.transport, call.ticket, &watch, &self.ingress).await
            }
        };
        match answer {
            Ok(answer) => Outcome::Done(Answer::Api(answer)),
            Err(CallError { class, message }) => Outcome::Failed(Failure { class, message }),
        }
    }
}

#[cfg(test)]
mod tests;
