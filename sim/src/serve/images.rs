//! `ImageService`.

use super::state::{Shared, status};
use super::wire;
use proto::runtime::v1 as cri;
use proto::runtime::v1::image_service_server::ImageService;
use tonic::{Request, Response, Status};

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl ImageService for Shared {
    async fn list_images(&self, request: Request<cri::ListImagesRequest>) -> Answer<cri::ListImagesResponse> {
        self.gate("ListImages").await?;
        let wanted = request.into_inner().filter.and_then(|f| f.image).map(|i| i.image).filter(|i| !i.is_empty());
        let state = self.lock();
        let images = match wanted {
            Some(name) => state.runtime.find_image(&name).into_iter().map(wire::image).collect(),
            None => state.runtime.images.iter().map(wire::image).collect(),
        };
        Ok(Response::new(cri::ListImagesResponse { images }))
    }

    async fn image_status(&self, request: Request<cri::ImageStatusRequest>) -> Answer<cri::ImageStatusResponse> {
        self.gate("ImageStatus").await?;
        let name = image_name(request.into_inner().image)?;
        let image = self.lock().runtime.find_image(&name).map(wire::image);
        Ok(Response::new(cri::ImageStatusResponse { image, ..Default::default() }))
    }

    async fn pull_image(&self, request: Request<cri::PullImageRequest>) -> Answer<cri::PullImageResponse> {
        self.gate("PullImage").await?;
        let name = image_name(request.into_inner().image)?;
        let image_ref = self.change(|state, _| state.runtime.images.pull(&name)).map_err(status)?;
        Ok(Response::new(cri::PullImageResponse { image_ref: image_ref.to_string() }))
    }

    async fn remove_image(&self, request: Request<cri::RemoveImageRequest>) -> Answer<cri::RemoveImageResponse> {
        self.gate("RemoveImage").await?;
        let name = image_name(request.into_inner().image)?;
        self.change(|state, _| state.runtime.images.remove(&name));
        Ok(Response::new(cri::RemoveImageResponse {}))
    }

    async fn image_fs_info(&self, _: Request<cri::ImageFsInfoRequest>) -> Answer<cri::ImageFsInfoResponse> {
        self.gate("ImageFsInfo").await?;
        let used: u64 = self.lock().runtime.images.iter().map(|i| i.size).sum();
        let usage = cri::FilesystemUsage {
            timestamp: self.now().wall.0,
            fs_id: Some(cri::FilesystemIdentifier { mountpoint: self.options.root.display().to_string() }),
            used_bytes: Some(cri::UInt64Value { value: used }),
            inodes_used: Some(cri::UInt64Value { value: 1 }),
        };
        Ok(Response::new(cri::ImageFsInfoResponse {
            image_filesystems: vec![usage.clone()],
            container_filesystems: vec![usage],
        }))
    }
}

fn image_name(image: Option<cri::ImageSpec>) -> Result<String, Status> {
    let name = image.map(|i| i.image).unwrap_or_default();
    if name.is_empty() { Err(Status::invalid_argument("image name is missing")) } else { Ok(name) }
}
