//! Lifecycle hooks that go over the network. Commands inside of a container are `CriEffect::ExecSync`.

use crate::ids::Sensitive;
use serde::{Deserialize, Serialize};

/// Hooks over the network.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub enum HooksEffect {
    /// `httpGet`: done when there is an answer, whatever its status; an HTTPS port that speaks plain HTTP is asked
    /// again without TLS and without the header `Authorization`.
    CallHttp(Box<HookCall>),
}

/// Where and how an HTTP hook asks. The deadline is that of its work.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct HookCall {
    /// HTTPS, without a look at the certificate.
    pub tls: bool,
    /// Address or name to connect to.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Path with query.
    pub path: String,
    /// Headers as given. A user can put a secret into one, so their values are kept out of traces.
    pub headers: Vec<(String, Sensitive)>,
}

/// What came of a hook.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum HooksAnswer {
    /// There was an answer.
    Called {
        /// HTTP status.
        status: u16,
        /// It was asked without TLS although TLS was wanted.
        fell_back: bool,
    },
}
