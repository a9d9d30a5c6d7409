//! The node's certificates on this host: keys are made and kept here, requests and facts of certificates come out.
//!
//! A store is a name such as `kubelet-client` in `--cert-dir`: certificates lie in `NAME-TIME.pem` together with their
//! keys, and `NAME-current.pem` links to the one in use. The key of a request waits in `NAME.key.tmp`.

use crate::time::Wall;
use serde::{Deserialize, Serialize};

/// What is done with a store.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub enum IdentityEffect {
    /// Look at the certificate in use.
    Look {
        /// The store.
        store: CertificateStore,
        /// Where to look when the store has none.
        otherwise: Otherwise,
    },
    /// Make a request for a certificate.
    MakeRequest {
        /// The store.
        store: CertificateStore,
        /// What the certificate is to say.
        wanted: CertificateTemplate,
        /// What it is to be used for, as the API names it.
        usages: Vec<String>,
        /// Make a new key, even when that of an earlier request is there.
        new_key: bool,
    },
    /// Put a certificate into use together with the key that it was asked for with.
    Keep {
        /// The store.
        store: CertificateStore,
        /// PEM in base64, as the API has it.
        certificate: String,
        /// Part of the file's name.
        time: String,
    },
}

impl IdentityEffect {
    /// The store that it is about.
    #[must_use]
    pub const fn store(&self) -> &CertificateStore {
        match self {
            Self::Look { store, .. } | Self::MakeRequest { store, .. } | Self::Keep { store, .. } => store,
        }
    }

    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Look { .. } => "LookAtCertificate",
            Self::MakeRequest { .. } => "MakeCertificateRequest",
            Self::Keep { .. } => "KeepCertificate",
        }
    }
}

/// A store of certificates.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct CertificateStore {
    /// `--cert-dir`.
    pub dir: String,
    /// First part of its files' names.
    pub name: String,
}

/// A certificate outside of the store.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub enum Otherwise {
    /// None.
    Nowhere,
    /// That of a kubeconfig's current user.
    Kubeconfig(String),
    /// Certificate and key.
    Files(String, String),
}

/// What a certificate says of whom it was given to.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CertificateTemplate {
    /// Common name.
    pub common_name: String,
    /// Organizations.
    pub organizations: Vec<String>,
    /// DNS names, sorted.
    pub dns_names: Vec<String>,
    /// IP addresses, sorted.
    pub addresses: Vec<String>,
}

/// What decisions read of a certificate.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CertificateFacts {
    /// Whom it was given to.
    pub subject: CertificateTemplate,
    /// It is valid from then on.
    pub not_before: Wall,
    /// It is not valid after that.
    pub not_after: Wall,
}

/// Answers to [`IdentityEffect`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum IdentityAnswer {
    /// The certificate in use.
    Found {
        /// `None` when there is none.
        certificate: Option<CertificateFacts>,
        /// It stands in the kubeconfig itself, which is for the first start only.
        given_inline: bool,
    },
    /// The request.
    Made {
        /// PEM in base64, as the API takes it.
        request: String,
        /// A name made from key, subject and usages: the same request always has the same one.
        name: String,
    },
    /// The certificate is in use.
    Kept(CertificateFacts),
}
