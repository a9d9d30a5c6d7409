//! What only the runtime can tell of disks: where images and writable layers lie, and how much they take.
//!
//! Decides nothing and never retries; on a connection of its own.

use super::client::Client;
use super::{CriOptions, EndpointError};
use components::ids::ContainerId;
use components::time::Wall;
use prost::Message;
use proto::runtime::v1 as pb;
use std::collections::HashMap;
use std::time::Duration;

/// Asks a runtime what lies on disks.
#[derive(Clone, Debug)]
pub struct UsageCalls {
    runtime: Client,
    images: Client,
}

/// What something takes of a file system.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LayerUsage {
    /// When the runtime measured it.
    pub at: Wall,
    /// A path on the file system.
    pub mount: String,
    /// Bytes.
    pub bytes: u64,
    /// Inodes; `None` when the runtime does not count them.
    pub inodes: Option<u64>,
}

/// Where images and writable layers lie.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ImageFileSystems {
    /// Of images.
    pub images: Option<LayerUsage>,
    /// Of writable layers, where the runtime names it.
    pub containers: Option<LayerUsage>,
}

impl UsageCalls {
    /// Makes the clients without connecting.
    ///
    /// # Errors
    /// When an endpoint can't be used at all.
    pub fn new(options: &CriOptions) -> Result<Self, EndpointError> {
        let runtime = Client::new(&options.runtime_endpoint)?;
        let images =
            if options.image_endpoint.is_empty() { runtime.clone() } else { Client::new(&options.image_endpoint)? };
        Ok(Self { runtime, images })
    }

    /// Where images and writable layers lie.
    ///
    /// # Errors
    /// What the runtime said, or that it said nothing in time.
    pub async fn image_file_systems(&self, limit: Duration) -> Result<ImageFileSystems, String> {
        const PATH: &str = "/runtime.v1.ImageService/ImageFsInfo";
        let answer: pb::ImageFsInfoResponse = ask(&self.images, limit, PATH, pb::ImageFsInfoRequest {}).await?;
        Ok(ImageFileSystems {
            images: answer.image_filesystems.into_iter().next().map(usage),
            containers: answer.container_filesystems.into_iter().next().map(usage),
        })
    }

    /// The writable layer of every container.
    ///
    /// # Errors
    /// What the runtime said, or that it said nothing in time.
    pub async fn writable_layers(&self, limit: Duration) -> Result<HashMap<ContainerId, LayerUsage>, String> {
        const PATH: &str = "/runtime.v1.RuntimeService/ListContainerStats";
        let request = pb::ListContainerStatsRequest { filter: None };
        let answer: pb::ListContainerStatsResponse = ask(&self.runtime, limit, PATH, request).await?;
        let layer = |stats: pb::ContainerStats| {
            let id = stats.attributes?.id;
            Some((ContainerId::from(id), usage(stats.writable_layer?)))
        };
        Ok(answer.stats.into_iter().filter_map(layer).collect())
    }
}

fn usage(found: pb::FilesystemUsage) -> LayerUsage {
    LayerUsage {
        at: Wall(found.timestamp.max(0)),
        mount: found.fs_id.unwrap_or_default().mountpoint,
        bytes: found.used_bytes.map_or(0, |value| value.value),
        inodes: found.inodes_used.map(|value| value.value),
    }
}

async fn ask<Q, A>(client: &Client, limit: Duration, path: &'static str, request: Q) -> Result<A, String>
where
    Q: Message + 'static,
    A: Message + Default,
{
    match tokio::time::timeout(limit, client.call(path, request)).await {
        Ok(answer) => answer.map_err(|error| error.message()),
        Err(_) => Err(format!("no answer within {} s", limit.as_secs())),
    }
}
