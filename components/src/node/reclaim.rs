//! What the node reclaims by itself: sizes of logs, dead containers, links. The default reclaims nothing, so that
//! traces from before there was any still replay.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Settings of everything that is reclaimed without pressure.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ReclaimConfig {
    /// Rotation of container logs; `None` for none.
    pub rotation: Option<RotationConfig>,
    /// Collection of what dead containers and pods leave; `None` for none.
    pub collection: Option<CollectionConfig>,
    /// Directory of links to container logs; `None` for none.
    pub log_links: Option<String>,
}

impl ReclaimConfig {
    /// Everything is reclaimed, with the kubelet's defaults.
    #[must_use]
    pub fn usual() -> Self {
        let period = Duration::from_secs(10);
        Self {
            rotation: Some(RotationConfig { max_bytes: 10 << 20, max_files: 5, workers: 1, period }),
            collection: Some(CollectionConfig {
                period: Duration::from_secs(60),
                min_age: Duration::ZERO,
                per_container: Some(1),
                total: None,
            }),
            log_links: Some("/var/log/containers".to_owned()),
        }
    }
}

/// `containerLog…` settings.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RotationConfig {
    /// `containerLogMaxSize` in bytes.
    pub max_bytes: u64,
    /// `containerLogMaxFiles`.
    pub max_files: u32,
    /// `containerLogMaxWorkers`.
    pub workers: u32,
    /// `containerLogMonitorInterval`.
    pub period: Duration,
}

/// How dead containers are collected.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CollectionConfig {
    /// Time between two collections.
    pub period: Duration,
    /// `--minimum-container-ttl-duration`.
    pub min_age: Duration,
    /// `--maximum-dead-containers-per-container`; `None` for any number.
    pub per_container: Option<u32>,
    /// `--maximum-dead-containers`; `None` for any number.
    pub total: Option<u32>,
}

impl ReclaimConfig {
    /// Ended instances of one container name that are kept whatever the collection does.
    #[must_use]
    pub fn kept_per_container(&self) -> usize {
        let kept = self.collection.as_ref().and_then(|collection| collection.per_container).unwrap_or(1);
        usize::try_from(kept).unwrap_or(usize::MAX).max(1)
    }
}
