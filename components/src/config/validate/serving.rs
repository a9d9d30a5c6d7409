//! Rules for listeners, TLS, authentication and the kubelet's own clients.

use std::net::IpAddr;

use super::Check;
use crate::config::decode::quote;
use crate::config::tree::index;

const CIPHER_SUITES: [&str; 27] = [
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
];
const TLS_VERSIONS: [&str; 4] = ["VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"];
/// P-256, P-384, P-521, X25519 and the three hybrids with ML-KEM.
const CURVES: [i32; 7] = [23, 24, 25, 29, 4587, 4588, 4589];

pub(super) fn check(c: &mut Check<'_>) {
    ports(c);
    tls(c);
    let config = c.config;
    c.one_of("authorization.mode", &config.authorization.mode, &["Webhook", "AlwaysAllow"]);
    c.at_least("eventRecordQPS", config.event_record_qps.into(), 0);
    c.at_least("eventBurst", config.event_burst.into(), 0);
    c.at_least("kubeAPIQPS", config.kube_api_qps.into(), 0);
    c.at_least("kubeAPIBurst", config.kube_api_burst.into(), 0);
    if config.server_tls_bootstrap {
        c.needs_gate("serverTLSBootstrap", "RotateKubeletServerCertificate");
    }
    if config.enable_system_log_query && !config.enable_system_log_handler {
        c.fail("enableSystemLogQuery", "needs enableSystemLogHandler".to_owned());
    }
    if !matches!(config.show_hidden_metrics_for_version.as_str(), "" | "1.36") {
        let text = quote(&config.show_hidden_metrics_for_version);
        c.fail("showHiddenMetricsForVersion", format!("{text} cannot be shown, want 1.36 or nothing"));
    }
    tracing(c);
}

fn ports(c: &mut Check<'_>) {
    let config = c.config;
    c.range("port", config.port.into(), 1, 65535);
    c.range("readOnlyPort", config.read_only_port.into(), 0, 65535);
    c.range("healthzPort", config.healthz_port.into(), 0, 65535);
    for (path, text) in [("address", &config.address), ("healthzBindAddress", &config.healthz_bind_address)] {
        if text.parse::<IpAddr>().is_err() {
            c.fail(path, format!("{} is not an IP address", quote(text)));
        }
    }
}

fn tls(c: &mut Check<'_>) {
    let config = c.config;
    if config.tls_cert_file.is_empty() != config.tls_private_key_file.is_empty() {
        c.fail("tlsCertFile", "must be set together with tlsPrivateKeyFile".to_owned());
    }
    if !config.tls_min_version.is_empty() {
        c.one_of("tlsMinVersion", &config.tls_min_version, &TLS_VERSIONS);
    }
    for (i, suite) in config.tls_cipher_suites.iter().enumerate() {
        if !CIPHER_SUITES.contains(&suite.as_str()) {
            c.fail(&index("tlsCipherSuites", i), format!("{} is not a known cipher suite", quote(suite)));
        }
    }
    for (i, curve) in config.tls_curve_preferences.iter().enumerate() {
        let path = index("tlsCurvePreferences", i);
        if !CURVES.contains(curve) {
            c.fail(&path, format!("{curve} is not a known group, want one of {CURVES:?}"));
        } else if config.tls_curve_preferences[..i].contains(curve) {
            c.fail(&path, format!("{curve} is listed twice"));
        }
    }
}

/// Whether the text can be the address of a page.
pub(super) fn is_web_address(url: &str) -> bool {
    let host = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    host.is_some_and(|host| !host.is_empty() && !host.starts_with('/')) && !url.contains(char::is_whitespace)
}

fn tracing(c: &mut Check<'_>) {
    let Some(tracing) = &c.config.tracing else { return };
    if let Some(rate) = tracing.sampling_rate_per_million {
        c.range("tracing.samplingRatePerMillion", rate.into(), 0, 1_000_000);
    }
    if let Some(endpoint) = &tracing.endpoint
        && let Some((scheme, _)) = endpoint.split_once("://")
        && !matches!(scheme, "dns" | "unix" | "unix-abstract")
    {
        let message = format!("{}: want host:port, or a dns, unix or unix-abstract address", quote(endpoint));
        c.fail("tracing.endpoint", message);
    }
}
