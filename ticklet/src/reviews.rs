//! Questions of the server about tokens and access, asked of the API server of the kubeconfig.

use components::config::KubeletConfiguration;
use components::edge::api::{ApiAnswer, ApiEffect, ApiRequest, Body, Class, Method};
use components::edge::{Answer, Ingress, Outcome};
use components::ids::{Sensitive, Ticket};
use io::apiserver::{Access, ApiCall, ApiPort, KubeconfigError, Rates};
use io::port::Port;
use io::server::review::{AskReview, ReviewAnswer, ReviewTimes, Reviews};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Longest wait for one answer: somebody waits for it.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A client of its own, so that nobody's questions hold up the node's own writes.
///
/// # Errors
/// When the kubeconfig is unusable.
pub(crate) fn reviews(
    access: &Access,
    rates: Rates,
    ingress: mpsc::Sender<Ingress>,
    config: &KubeletConfiguration,
) -> Result<Arc<Reviews>, KubeconfigError> {
    let port = ApiPort::from_files(access, rates, ingress)?;
    let webhook = &config.authorization.webhook;
    let times = ReviewTimes::new(
        config.authentication.webhook.cache_ttl,
        webhook.cache_authorized_ttl,
        webhook.cache_unauthorized_ttl,
    );
    Ok(Arc::new(Reviews::new(Box::new(Asker(port)), times)))
}

/// Asks through a port.
struct Asker(ApiPort);

impl AskReview for Asker {
    fn ask<'a>(&'a self, path: &'static str, body: String) -> ReviewAnswer<'a> {
        let request = ApiRequest {
            method: Method::Post,
            path: path.to_owned(),
            body: Body::Secret(Sensitive(body)),
            class: Class::Review,
            secret: true,
        };
        // Nobody waits for its ticket: it is no work of the core.
        let call = ApiCall { ticket: Ticket(0), effect: ApiEffect::Request(Box::new(request)) };
        Box::pin(async move {
            match tokio::time::timeout(TIMEOUT, self.0.run(call)).await {
                Ok(Outcome::Done(Answer::Api(ApiAnswer::Answered(it)))) => Ok((it.status, it.body.to_string())),
                Ok(Outcome::Failed(failure)) => Err(failure.message),
                Ok(_) => Err("the answer does not fit the question".to_owned()),
                Err(_) => Err("no answer in time".to_owned()),
            }
        })
    }
}
