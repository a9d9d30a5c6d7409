//! Wire types of the services ticklet talks to: our own lean `.proto` files and the code generated from them.
//! Decides nothing. `cargo xtask codegen` writes `src/gen`; a test compares the files with the published ones.

/// Container Runtime Interface.
pub mod runtime {
    /// `runtime.v1`, the only version since Kubernetes 1.26.
    #[expect(
        unused_qualifications,
        clippy::allow_attributes,
        clippy::allow_attributes_without_reason,
        clippy::too_many_lines,
        reason = "generated code"
    )]
    pub mod v1 {
        include!("gen/runtime.v1.rs");
    }
}

mod secrets {
    //! `Debug` for messages with secrets: shows that a value is there, never the value.

    use std::fmt::{Debug, Formatter, Result};

    use crate::runtime::v1::{AuthConfig, KeyValue};

    fn mask(value: &str) -> &'static str {
        if value.is_empty() { "" } else { "***" }
    }

    impl Debug for KeyValue {
        fn fmt(&self, f: &mut Formatter<'_>) -> Result {
            f.debug_struct("KeyValue").field("key", &self.key).field("value_len", &self.value.len()).finish()
        }
    }

    impl Debug for AuthConfig {
        fn fmt(&self, f: &mut Formatter<'_>) -> Result {
            f.debug_struct("AuthConfig")
                .field("username", &mask(&self.username))
                .field("password", &mask(&self.password))
                .field("auth", &mask(&self.auth))
                .field("server_address", &self.server_address)
                .field("identity_token", &mask(&self.identity_token))
                .field("registry_token", &mask(&self.registry_token))
                .finish()
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::runtime::v1::{AuthConfig, ContainerConfig, KeyValue, PullImageRequest};

    #[test]
    fn debug_shows_no_secret() {
        let pull = PullImageRequest {
            auth: Some(AuthConfig {
                username: "s3cret".into(),
                password: "s3cret".into(),
                auth: "s3cret".into(),
                server_address: "registry.example".into(),
                identity_token: "s3cret".into(),
                registry_token: "s3cret".into(),
            }),
            ..Default::default()
        };
        let config = ContainerConfig {
            envs: vec![KeyValue { key: "TOKEN".into(), value: "s3cret".into() }],
            ..Default::default()
        };
        for (text, shown) in [(format!("{pull:?}"), "registry.example"), (format!("{config:?}"), "TOKEN")] {
            assert!(text.contains(shown), "{text}");
            assert!(!text.contains("s3cret"), "{text}");
        }
    }
}
