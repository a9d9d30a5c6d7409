//! The API server: requests and watches as they go over the wire. What is asked for, when it is asked again and what
//! an answer means are decisions; this port only carries them.
//!
//! A watch is one work that lasts as long as its connection: [`ApiIngress`] facts carry its ticket, its completion is
//! its end, and cancelling its ticket closes it. A list is a GET. Everything a watch brought is told before its end.

use crate::ids::{Sensitive, Ticket};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// What is asked of the API server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub enum ApiEffect {
    /// One request, sent once.
    Request(Box<ApiRequest>),
    /// One connection that tells changes until it ends.
    Watch(Box<ApiWatch>),
    /// One request, sent once, with the credentials of `--bootstrap-kubeconfig`.
    Bootstrap(Box<ApiRequest>),
}

impl ApiEffect {
    /// Path and query.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::Request(request) | Self::Bootstrap(request) => &request.path,
            Self::Watch(watch) => &watch.path,
        }
    }
}

/// One request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ApiRequest {
    /// What is done.
    pub method: Method,
    /// Path with query, percent-encoded, for example `/api/v1/nodes/n`.
    pub path: String,
    /// What is sent.
    pub body: Body,
    /// Whose limit of requests a second it counts against.
    pub class: Class,
    /// The answer holds secrets: its values are kept out of traces.
    pub secret: bool,
}

impl ApiRequest {
    /// A GET whose answer holds no secrets.
    #[must_use]
    pub const fn get(path: String, class: Class) -> Self {
        Self { method: Method::Get, path, body: Body::Empty, class, secret: false }
    }

    /// A request that sends JSON without secrets.
    #[must_use]
    pub const fn send(method: Method, path: String, json: String, class: Class) -> Self {
        Self { method, path, body: Body::Json(json), class, secret: false }
    }
}

/// What a request does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Method {
    /// Read an object or a list.
    Get,
    /// Create.
    Post,
    /// Replace.
    Put,
    /// Strategic merge patch.
    PatchStrategic,
    /// JSON merge patch.
    PatchMerge,
    /// JSON patch.
    PatchJson,
    /// Delete.
    Delete,
}

impl Method {
    /// The HTTP method.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::PatchStrategic | Self::PatchMerge | Self::PatchJson => "PATCH",
            Self::Delete => "DELETE",
        }
    }

    /// Media type of the body.
    #[must_use]
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::PatchStrategic => "application/strategic-merge-patch+json",
            Self::PatchMerge => "application/merge-patch+json",
            Self::PatchJson => "application/json-patch+json",
            _ => "application/json",
        }
    }
}

/// Body of a request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub enum Body {
    /// None.
    Empty,
    /// JSON without secrets.
    Json(String),
    /// JSON that may hold secrets.
    Secret(Sensitive),
}

impl Body {
    /// The text to send.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Empty => "",
            Self::Json(text) => text,
            Self::Secret(text) => &text.0,
        }
    }
}

/// Classes of requests, for limits and metrics.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Class {
    /// Leases of the node: never held back.
    Lease,
    /// The node's own object: never held back.
    Node,
    /// Pods and their statuses (`kubeAPIQPS`, `kubeAPIBurst`).
    Pod,
    /// Objects that pods refer to, tokens for them, and services (`kubeAPIQPS`, `kubeAPIBurst`).
    Object,
    /// Events (`eventRecordQPS`, `eventBurst`).
    Event,
    /// Questions about who may do what, and certificates (`kubeAPIQPS`, `kubeAPIBurst`).
    Review,
}

impl Class {
    /// Value of the label `class`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lease => "lease",
            Self::Node => "node",
            Self::Pod => "pod",
            Self::Object => "object",
            Self::Event => "event",
            Self::Review => "review",
        }
    }
}

/// One watch. Its deadline as a work must be longer than `timeout`, after which the server ends it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ApiWatch {
    /// Path and query, complete: with `watch=1`, `resourceVersion`, `timeoutSeconds` and selectors.
    pub path: String,
    /// Whose limit its opening counts against.
    pub class: Class,
    /// The objects hold secrets: their values are kept out of traces.
    pub secret: bool,
    /// Without a byte for this long the connection counts as lost; longer than the server's bookmarks are apart.
    pub silence: Duration,
}

/// Unasked facts of the API server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ApiIngress {
    /// A watch was accepted.
    WatchOpened {
        /// Ticket of its work.
        watch: Ticket,
    },
    /// A watch told changes, in order.
    WatchEvents {
        /// Ticket of its work.
        watch: Ticket,
        /// The objects hold secrets.
        secret: bool,
        /// The changes.
        events: Vec<ApiEvent>,
    },
}

/// One change.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ApiEvent {
    /// What kind.
    pub kind: EventKind,
    /// The object as JSON text; of an `Error` a `Status`. In a trace secrets are redacted.
    pub object: Arc<str>,
}

/// Kinds of change.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum EventKind {
    /// It is new in what is watched.
    Added,
    /// It changed.
    Modified,
    /// It is gone from what is watched; the object is its last state.
    Deleted,
    /// Everything up to this resource version was told.
    Bookmark,
    /// The watch cannot go on.
    Error,
}

/// Answers of the API server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ApiAnswer {
    /// To a request, whatever its status, and to a watch that was refused.
    Answered(Box<Answered>),
    /// A watch that was accepted has ended.
    WatchEnded {
        /// Why, for people.
        message: String,
    },
}

/// An HTTP answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Answered {
    /// HTTP status.
    pub status: u16,
    /// The body holds secrets.
    pub secret: bool,
    /// The body as text, JSON as a rule. In a trace secrets are redacted.
    pub body: Arc<str>,
    /// `Retry-After` in seconds.
    pub retry_after: Option<u32>,
}

impl Answered {
    /// True for a status of 2xx.
    #[must_use]
    pub const fn is_success(&self) -> bool {
        self.status >= 200 && self.status < 300
    }
}
