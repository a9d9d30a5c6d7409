//! The served runtime as a client sees it, over a real socket.

use super::*;
use proto::runtime::v1 as cri;
use proto::runtime::v1::image_service_client::ImageServiceClient;
use proto::runtime::v1::runtime_service_client::RuntimeServiceClient;
use std::collections::BTreeMap;
use tonic::Code;
use tonic::transport::Channel;

struct Served {
    client: RuntimeServiceClient<Channel>,
    images: ImageServiceClient<Channel>,
    directory: PathBuf,
    socket: PathBuf,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    server: tokio::task::JoinHandle<io::Result<()>>,
}

impl Served {
    async fn start(name: &str, events: bool) -> Self {
        let directory = std::env::temp_dir().join(format!("ticklet-sim-{name}-{}", std::process::id()));
        let socket = directory.join("cri.sock");
        let options = Options {
            socket: socket.clone(),
            latency: Duration::ZERO,
            events,
            root: directory.join("root"),
            images: vec!["busybox:1".into()],
            systemd_cgroups: false,
        };
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let server = tokio::spawn(serve(options, async {
            let _ = stopped.await;
        }));
        let channel = loop {
            match tonic::transport::Endpoint::try_from(format!("unix://{}", socket.display())).unwrap().connect().await
            {
                Ok(channel) => break channel,
                Err(_) => tokio::task::yield_now().await,
            }
        };
        Self {
            client: RuntimeServiceClient::new(channel.clone()),
            images: ImageServiceClient::new(channel),
            directory,
            socket,
            stop: Some(stop),
            server,
        }
    }

    async fn run(&mut self, pod: &str, command: &[&str]) -> (String, String) {
        let config = cri::PodSandboxConfig {
            metadata: Some(cri::PodSandboxMetadata {
                name: pod.into(),
                uid: format!("uid-{pod}"),
                namespace: "default".into(),
                attempt: 0,
            }),
            log_directory: self.directory.join("logs").display().to_string(),
            labels: labels(pod),
            ..Default::default()
        };
        let request = cri::RunPodSandboxRequest { config: Some(config), runtime_handler: String::new() };
        let sandbox = self.client.run_pod_sandbox(request).await.unwrap().into_inner().pod_sandbox_id;
        let config = cri::ContainerConfig {
            metadata: Some(cri::ContainerMetadata { name: "c".into(), attempt: 0 }),
            image: Some(cri::ImageSpec { image: "busybox:1".into(), ..Default::default() }),
            command: command.iter().map(|w| (*w).to_owned()).collect(),
            labels: labels(pod),
            log_path: "c/0.log".into(),
            ..Default::default()
        };
        let request =
            cri::CreateContainerRequest { pod_sandbox_id: sandbox.clone(), config: Some(config), sandbox_config: None };
        let id = self.client.create_container(request).await.unwrap().into_inner().container_id;
        self.client.start_container(cri::StartContainerRequest { container_id: id.clone() }).await.unwrap();
        (sandbox, id)
    }

    async fn status(&mut self, id: &str) -> cri::ContainerStatus {
        let request = cri::ContainerStatusRequest { container_id: id.into(), verbose: false };
        self.client.container_status(request).await.unwrap().into_inner().status.unwrap()
    }

    async fn ctl(&self, line: &str) -> io::Result<String> {
        let (socket, words) = (self.socket.clone(), line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        tokio::task::spawn_blocking(move || command(&socket, &words)).await.unwrap()
    }

    async fn end(mut self) {
        drop(self.client);
        drop(self.images);
        self.stop.take().unwrap().send(()).unwrap();
        self.server.await.unwrap().unwrap();
        assert!(!self.socket.exists());
        std::fs::remove_dir_all(&self.directory).unwrap();
    }
}

fn labels(pod: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(wire::UID_LABEL.to_owned(), format!("uid-{pod}"))])
}

#[tokio::test]
async fn a_pod_runs_is_listed_and_logs() {
    let mut served = Served::start("runs", true).await;
    let (sandbox, id) = served.run("web", &["serve"]).await;
    served.run("other", &["serve"]).await;
    let filter = cri::ContainerFilter { label_selector: labels("web"), ..Default::default() };
    let request = cri::ListContainersRequest { filter: Some(filter) };
    let listed = served.client.list_containers(request).await.unwrap().into_inner().containers;
    assert_eq!(listed.iter().map(|c| c.id.as_str()).collect::<Vec<_>>(), [id.as_str()]);
    assert_eq!(listed[0].state(), cri::ContainerState::ContainerRunning);
    let request = cri::PodSandboxStatusRequest { pod_sandbox_id: sandbox.clone(), verbose: true };
    let answer = served.client.pod_sandbox_status(request).await.unwrap().into_inner();
    assert_eq!(answer.status.unwrap().network.unwrap().ip, "10.88.0.2");
    let log = std::fs::read_to_string(served.directory.join("logs/c/0.log")).unwrap();
    assert!(log.ends_with(" stdout F c started\n"), "{log}");
    let stop = cri::StopContainerRequest { container_id: id.clone(), timeout: 30 };
    served.client.stop_container(stop).await.unwrap();
    assert_eq!(served.status(&id).await.exit_code, 143);
    let remove = cri::RemovePodSandboxRequest { pod_sandbox_id: sandbox };
    served.client.remove_pod_sandbox(remove.clone()).await.unwrap();
    served.client.remove_pod_sandbox(remove).await.unwrap();
    let request = cri::ContainerStatusRequest { container_id: id, verbose: false };
    assert_eq!(served.client.container_status(request).await.unwrap_err().code(), Code::NotFound);
    served.end().await;
}

#[tokio::test]
async fn stop_waits_for_a_deaf_process_and_time_ends_a_short_one() {
    let mut served = Served::start("stop", true).await;
    let (_, id) = served.run("deaf", &["sh", "-c", "trap '' TERM; sleep 999"]).await;
    let begun = std::time::Instant::now();
    served.client.stop_container(cri::StopContainerRequest { container_id: id.clone(), timeout: 1 }).await.unwrap();
    assert!(begun.elapsed() >= Duration::from_secs(1));
    assert_eq!(served.status(&id).await.exit_code, 137);

    let mut events = served.client.get_container_events(cri::GetEventsRequest {}).await.unwrap().into_inner();
    let (_, id) = served.run("short", &["sh", "-c", "sleep 0.2; exit 4"]).await;
    let stopped = loop {
        let event = events.message().await.unwrap().unwrap();
        if event.container_event_type() == cri::ContainerEventType::ContainerStoppedEvent {
            break event;
        }
    };
    assert_eq!(stopped.container_id, id);
    assert_eq!(stopped.containers_statuses[0].exit_code, 4);
    assert_eq!(stopped.pod_sandbox_status.unwrap().labels, labels("short"));
    served.end().await;
}

#[tokio::test]
async fn an_old_runtime_has_no_events_and_images_are_pulled() {
    let mut served = Served::start("old", false).await;
    let refused = served.client.get_container_events(cri::GetEventsRequest {}).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
    let image = |name: &str| Some(cri::ImageSpec { image: name.into(), ..Default::default() });
    let find = cri::ImageStatusRequest { image: image("new:1"), verbose: false };
    assert_eq!(served.images.image_status(find.clone()).await.unwrap().into_inner().image, None);
    let pull = cri::PullImageRequest { image: image("new:1"), ..Default::default() };
    let id = served.images.pull_image(pull).await.unwrap().into_inner().image_ref;
    assert_eq!(served.images.image_status(find).await.unwrap().into_inner().image.unwrap().id, id);
    let pull = cri::PullImageRequest { image: image("missing:1"), ..Default::default() };
    assert_eq!(served.images.pull_image(pull).await.unwrap_err().code(), Code::NotFound);
    let info = served.images.image_fs_info(cri::ImageFsInfoRequest {}).await.unwrap().into_inner();
    let mountpoint = info.image_filesystems[0].fs_id.clone().unwrap().mountpoint;
    assert!(Path::new(&mountpoint).is_dir());
    served.end().await;
}

#[tokio::test]
async fn faults_come_on_demand() {
    let mut served = Served::start("faults", true).await;
    let (_, id) = served.run("web", &["serve"]).await;
    assert_eq!(served.ctl("kill default/web/c 9").await.unwrap(), "killed 1\n");
    assert_eq!(served.status(&id).await.exit_code, 9);
    assert!(served.ctl("list").await.unwrap().contains("c 0 exited(9)"));
    let counts = served.ctl("count").await.unwrap();
    assert!(counts.starts_with("running 0\n") && counts.contains("\nContainerStatus 1\n"), "{counts}");
    assert!(served.ctl("kill default/web").await.unwrap_err().to_string().contains("nothing runs"));
    served.ctl("fail Version 1 no luck").await.unwrap();
    let ask = cri::VersionRequest::default();
    assert_eq!(served.client.version(ask.clone()).await.unwrap_err().message(), "no luck");
    served.client.version(ask.clone()).await.unwrap();
    served.ctl("hang Version 1").await.unwrap();
    let hung = tokio::time::timeout(Duration::from_millis(100), served.client.version(ask.clone())).await;
    assert!(hung.is_err());
    served.ctl("down 60").await.unwrap();
    assert_eq!(served.client.version(ask.clone()).await.unwrap_err().code(), Code::Unavailable);
    served.ctl("clear").await.unwrap();
    served.client.version(ask).await.unwrap();
    served.end().await;
}
