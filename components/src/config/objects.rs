//! The objects inside a `KubeletConfiguration`.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use crate::config::decode::{Decode, Findings};
use crate::config::record::{Zero, record};
use crate::config::tree::{Node, Value};
use crate::duration::GoDuration;
use crate::quantity::Quantity;

const fn secs(n: i64) -> GoDuration {
    GoDuration::from_secs(n)
}

record! {
    /// How callers prove who they are.
    pub struct Authentication {
        /// By client certificate.
        x509: X509Authentication = "x509", always;
        /// By token, asked of the API server.
        webhook: WebhookAuthentication = "webhook", always;
        /// Not at all.
        anonymous: AnonymousAuthentication = "anonymous", always;
    }
}

record! {
    /// Client certificates.
    pub struct X509Authentication {
        /// Authorities that may sign them.
        client_ca_file: String = "clientCAFile", plain;
    }
}

record! {
    /// Token reviews.
    pub struct WebhookAuthentication {
        /// Whether tokens are accepted.
        enabled: bool = "enabled", set(true);
        /// How long an answer is kept.
        cache_ttl: GoDuration = "cacheTTL", or(secs(120));
    }
}

record! {
    /// Callers without credentials.
    pub struct AnonymousAuthentication {
        /// Whether they are let in.
        enabled: bool = "enabled", set(false);
    }
}

record! {
    /// What callers may do.
    pub struct Authorization {
        /// `Webhook` or `AlwaysAllow`.
        mode: String = "mode", or("Webhook".to_owned());
        /// Access reviews.
        webhook: WebhookAuthorization = "webhook", always;
    }
}

record! {
    /// Access reviews by the API server.
    pub struct WebhookAuthorization {
        /// How long a yes is kept.
        cache_authorized_ttl: GoDuration = "cacheAuthorizedTTL", or(secs(300));
        /// How long a no is kept.
        cache_unauthorized_ttl: GoDuration = "cacheUnauthorizedTTL", or(secs(30));
    }
}

record! {
    /// Use of swap by pods.
    pub struct MemorySwap {
        /// Empty, `NoSwap` or `LimitedSwap`.
        swap_behavior: String = "swapBehavior", plain;
    }
}

record! {
    /// Limits of the restart back-off.
    pub struct CrashLoopBackOff {
        /// The longest back-off; absent when its gate is off.
        max_container_restart_period: Option<GoDuration> = "maxContainerRestartPeriod", or(Some(secs(300)));
    }
}

record! {
    /// Grace of pods of a priority and above during shutdown.
    pub struct ShutdownGracePeriodByPodPriority {
        /// The lowest priority it is for.
        priority: i32 = "priority", always;
        /// How long they get.
        shutdown_grace_period_seconds: i64 = "shutdownGracePeriodSeconds", always;
    }
}

record! {
    /// Memory kept on one NUMA cell.
    pub struct MemoryReservation {
        /// The cell.
        numa_node: i32 = "numaNode", always;
        /// How much, by memory type.
        limits: BTreeMap<String, Quantity> = "limits", always;
    }
}

record! {
    /// A taint of the node.
    pub struct Taint {
        /// Its key.
        key: String = "key", always;
        /// Its value.
        value: String = "value", plain;
        /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
        effect: String = "effect", always;
        /// Must not be set here.
        time_added: Option<String> = "timeAdded", opt;
    }
}

record! {
    /// Where spans are sent.
    pub struct Tracing {
        /// The collector; absent means the usual local port.
        endpoint: Option<String> = "endpoint", opt;
        /// Samples per million spans.
        sampling_rate_per_million: Option<i32> = "samplingRatePerMillion", opt;
    }
}

record! {
    /// Id ranges of user namespaces.
    pub struct UserNamespaces {
        /// Ids given to each pod.
        ids_per_pod: Option<i64> = "idsPerPod", opt;
    }
}

record! {
    /// Logging.
    pub struct Logging {
        /// `text` or `json`.
        format: String = "format", or("text".to_owned());
        /// Longest time that a message stays in a buffer.
        flush_frequency: FlushFrequency = "flushFrequency", or(FlushFrequency::DEFAULT);
        /// How much is logged.
        verbosity: u32 = "verbosity", always;
        /// Other verbosity for some files.
        vmodule: Vec<VModule> = "vmodule", plain;
        /// Settings of each format.
        options: LoggingOptions = "options", always;
    }
}

record! {
    /// Verbosity of files.
    pub struct VModule {
        /// Which files.
        file_pattern: String = "filePattern", always;
        /// How much they log.
        verbosity: u32 = "verbosity", always;
    }
}

record! {
    /// Settings of each log format.
    pub struct LoggingOptions {
        /// Of `text`.
        text: OutputRouting = "text", always;
        /// Of `json`.
        json: OutputRouting = "json", always;
    }
}

record! {
    /// Where messages go.
    pub struct OutputRouting {
        /// Whether information goes to another stream than errors.
        split_stream: bool = "splitStream", plain;
        /// Buffer of the information stream.
        info_buffer_size: Quantity = "infoBufferSize", always;
    }
}

/// A flush period; older files give it as nanoseconds, and it is shown the way it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushFrequency {
    /// The period.
    pub every: GoDuration,
    /// Whether it is shown as text.
    pub as_text: bool,
}

impl FlushFrequency {
    /// Five seconds.
    pub const DEFAULT: Self = Self { every: secs(5), as_text: true };
}

impl Zero for FlushFrequency {
    fn is_zero(&self) -> bool {
        self.every.is_zero()
    }
    fn omitted(&self) -> bool {
        false
    }
}

impl Serialize for FlushFrequency {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.as_text { self.every.serialize(serializer) } else { serializer.serialize_i64(self.every.0) }
    }
}

impl Decode for FlushFrequency {
    const EXPECTED: &'static str = GoDuration::EXPECTED;

    fn decode(node: &Node, path: &str, found: &mut Findings) -> Option<Self> {
        if let Value::Int(nanos) = node.value {
            return Some(Self { every: GoDuration(nanos), as_text: false });
        }
        GoDuration::decode(node, path, found).map(|every| Self { every, as_text: true })
    }
}
