//! The API server: one client for requests and watches, made from a kubeconfig.
//!
//! Decides nothing: a request is sent once, a watch is one connection and ends with it. Reads the kubeconfig and the
//! files it names; writes facts of watches to the ingress channel, before the watch's completion.

mod counts;
mod exec;
mod identity;
pub mod kubeconfig;
mod limit;
mod pool;
pub mod proxy;
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
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
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

/// The files that say where the API server is and who we are.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Access {
    /// `--kubeconfig`.
    pub kubeconfig: PathBuf,
    /// A certificate with its key that goes before that of the kubeconfig once it is there.
    pub rotated: Option<PathBuf>,
    /// `--bootstrap-kubeconfig`.
    pub bootstrap: Option<PathBuf>,
    /// The client certificate may come later: until then requests are sent without one.
    pub may_begin_without: bool,
}

impl Access {
    /// A kubeconfig that is ready.
    #[must_use]
    pub fn ready(kubeconfig: PathBuf) -> Self {
        Self { kubeconfig, ..Self::default() }
    }
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
    counts: Arc<ApiCounts>,
    transport: Transport,
    limits: Limits,
    /// The bootstrap kubeconfig and its client, made when it is first needed.
    bootstrap: Option<PathBuf>,
    bootstrapper: Mutex<Option<Arc<Transport>>>,
}

impl Server {
    fn bootstrapper(&self) -> Result<Arc<Transport>, CallError> {
        let failed = |message| CallError { class: FailureClass::Invalid, message };
        let path = self.bootstrap.as_ref().ok_or_else(|| failed("there are no bootstrap credentials".to_owned()))?;
        let mut made = self.bootstrapper.lock().map_err(|_| failed("its client is in an unknown state".to_owned()))?;
        if let Some(transport) = made.as_ref() {
            return Ok(Arc::clone(transport));
        }
        let transport = Transport::new(&Access::ready(path.clone()), &self.counts).map_err(failed)?;
        Ok(Arc::clone(made.insert(Arc::new(transport))))
    }
}

impl ApiPort {
    /// The port of a node that works on its own: everything fails.
    #[must_use]
    pub const fn absent(ingress: mpsc::Sender<Ingress>) -> Self {
        Self { server: None, ingress }
    }

    /// Reads the files and makes the client. Nothing is connected before the first request.
    ///
    /// # Errors
    /// One line that names the file and what is wrong with it.
    pub fn from_files(access: &Access, rates: Rates, ingress: mpsc::Sender<Ingress>) -> Result<Self, KubeconfigError> {
        // What is wrong with the kubeconfig itself says where it is; what is wrong with a file that it names does not.
        Kubeconfig::read(&access.kubeconfig)?;
        let counts = Arc::default();
        let transport = Transport::new(access, &counts)
            .map_err(|message| KubeconfigError::Unusable { path: access.kubeconfig.clone(), message })?;
        let bootstrap = access.bootstrap.clone();
        let limits = Limits::new(rates);
        let server = Server { counts, transport, limits, bootstrap, bootstrapper: Mutex::default() };
        Ok(Self { server: Some(server), ingress })
    }
}

impl ApiPort {
    /// Counts of its requests; `None` for a node that works on its own.
    #[must_use]
    pub fn counts(&self) -> Option<Arc<ApiCounts>> {
        self.server.as_ref().map(|server| Arc::clone(&server.counts))
    }
}

impl Server {
    /// Waits for the turn of a request.
    async fn wait(&self, transport: &Transport, class: Class, method: Method) {
        let begun = Instant::now();
        self.limits.wait(class).await;
        transport.counts().waited(method.as_str(), begun.elapsed());
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
                server.wait(&server.transport, request.class, request.method).await;
                server.transport.request(&request).await.map(|it| ApiAnswer::Answered(Box::new(it)))
            }
            ApiEffect::Bootstrap(request) => match server.bootstrapper() {
                Ok(transport) => {
                    server.wait(&transport, request.class, request.method).await;
                    transport.request(&request).await.map(|it| ApiAnswer::Answered(Box::new(it)))
                }
                Err(error) => Err(error),
            },
            ApiEffect::Watch(watch) => {
                server.wait(&server.transport, watch.class, Method::Get).await;
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
