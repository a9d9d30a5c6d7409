//! Connections to the API server: which one a request or a watch goes through.
//!
//! A server lets a connection carry only so many streams at once, kube-apiserver a hundred, and a watch holds its stream
//! for as long as it lives. On one connection the hundredth watch would keep every other request from its turn, the
//! node's lease among them. So watches have connections of their own, each with a part of them; and what says that the node lives
//! never waits behind the rest.

use super::transport::dial::Dial;
use bytes::Bytes;
use components::edge::api::Class;
use http_body_util::Full;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::{Builder, Client};
use std::sync::{Arc, Mutex, PoisonError};

/// Watches that share a connection: below what servers allow, with room for those that are just ending.
const WATCHES: usize = 80;

/// A client with connections of its own; over HTTP/2 that is one connection.
pub(super) type Http = Client<HttpsConnector<Dial>, Full<Bytes>>;

/// The clients.
#[derive(Debug)]
pub(super) struct Pools {
    builder: Builder,
    connector: HttpsConnector<Dial>,
    heartbeats: Http,
    requests: Http,
    watches: Mutex<Vec<Group>>,
}

/// Watches of one connection.
#[derive(Debug)]
struct Group {
    client: Http,
    /// Each watch holds a copy.
    places: Arc<()>,
}

/// A watch's place on a connection, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Place(#[expect(dead_code, reason = "held, not read: it counts as long as it lives")] Arc<()>);

impl Pools {
    /// Connects nothing yet.
    pub(super) fn new(builder: Builder, connector: HttpsConnector<Dial>) -> Self {
        let client = || builder.build(connector.clone());
        let (heartbeats, requests) = (client(), client());
        Self { builder, connector, heartbeats, requests, watches: Mutex::default() }
    }

    /// The client for a request.
    pub(super) const fn request(&self, class: Class) -> &Http {
        match class {
            Class::Lease | Class::Node => &self.heartbeats,
            Class::Event | Class::Pod | Class::Object | Class::Review => &self.requests,
        }
    }

    /// A client with room for one more watch.
    pub(super) fn watch(&self) -> (Http, Place) {
        let mut groups = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        // Its own copy aside.
        let used = |group: &Group| Arc::strong_count(&group.places) - 1;
        groups.retain(|group| used(group) > 0);
        if let Some(group) = groups.iter().find(|group| used(group) < WATCHES) {
            return (group.client.clone(), Place(Arc::clone(&group.places)));
        }
        let group = Group { client: self.builder.build(self.connector.clone()), places: Arc::default() };
        let place = (group.client.clone(), Place(Arc::clone(&group.places)));
        groups.push(group);
        place
    }

    #[cfg(test)]
    fn connections(&self) -> usize {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper_rustls::HttpsConnectorBuilder;
    use hyper_util::client::legacy::connect::HttpConnector;
    use hyper_util::rt::TokioExecutor;
    use rustls::{ClientConfig, RootCertStore};

    #[test]
    fn watches_are_spread_and_places_are_given_back() {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
        let connector = HttpsConnectorBuilder::new().with_tls_config(config).https_only().enable_http2();
        let connector = connector.wrap_connector(Dial::Straight(HttpConnector::new()));
        let pools = Pools::new(Client::builder(TokioExecutor::new()), connector);
        let mut places: Vec<_> = (0..=2 * WATCHES).map(|_| pools.watch().1).collect();
        assert_eq!(pools.connections(), 3);
        places.remove(0);
        places.push(pools.watch().1);
        assert_eq!(pools.connections(), 3, "a place that was given back is taken again");
        places.clear();
        let _last = pools.watch();
        assert_eq!(pools.connections(), 1, "connections without watches end");
    }
}
