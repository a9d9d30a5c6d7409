//! Probes that go over the network: one attempt each. Commands inside of a container are `CriEffect::ExecSync`.
//!
//! The deadline of the attempt is that of its work. Ports are numbers and hosts are set: nothing is left to look up.

use crate::ids::Sensitive;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Attempts over the network.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub enum ProbesEffect {
    /// `httpGet`: passes with a status from 200 to 399.
    ProbeHttp(Arc<HttpTarget>),
    /// `tcpSocket`: passes when a connection is made.
    ProbeTcp(Arc<TcpTarget>),
    /// `grpc`: passes when `grpc.health.v1.Health/Check` answers `SERVING`.
    ProbeGrpc(Arc<GrpcTarget>),
}

/// Where and how an HTTP probe asks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct HttpTarget {
    /// HTTPS, without a look at the certificate.
    pub tls: bool,
    /// Address or name to connect to.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Path with query, as it is sent.
    pub path: String,
    /// Value of the header `Host`.
    pub host_header: String,
    /// All other headers, in order. A user can put a secret into one, so their values are kept out of traces.
    pub headers: Vec<(String, Sensitive)>,
}

/// Where a TCP probe connects to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct TcpTarget {
    /// Address or name.
    pub host: String,
    /// Port.
    pub port: u16,
}

/// Where a gRPC probe asks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct GrpcTarget {
    /// Address or name.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Service asked about; empty for the server as a whole.
    pub service: String,
}

/// How an attempt ended. Every trouble on the way is a failed attempt.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ProbesAnswer {
    /// It passed.
    Passed,
    /// It passed, with something to be said.
    PassedWithWarning {
        /// What.
        message: String,
    },
    /// It failed.
    NotPassed {
        /// Why, as events say it; never holds what the target answered beyond a status code.
        message: String,
    },
}
