//! A small picture for tests: one pod with one container and its sandbox.

use super::picture::{ContainerPicture, Measured, Picture, PodPicture};
use super::sample::{Cpu, Depth, Interface, Memory, Sample};
use components::ids::PodUid;
use components::snapshot::PodView;
use components::status::PodStatus;
use components::time::{Mono, Now, Wall};
use components::world::Stage;
use std::sync::Arc;

pub(super) const WALL: Wall = Wall(1_700_000_000_000_000_000);

fn measured(cgroup: &str) -> Measured {
    let memory = Memory { usage: 1000, inactive_file: 250, rss: 600, faults: (3, 1), ..Memory::default() };
    let sample = Sample {
        wall: WALL,
        created: Some(WALL),
        cpu: Some(Cpu { usage: 2_000_000_000, ..Cpu::default() }),
        memory: Some(memory),
        processes: vec![1],
        ..Sample::default()
    };
    Measured { cgroup: cgroup.to_owned(), sample, nano_cores: Some(5) }
}

pub(super) fn picture() -> Picture {
    let eth0 = Interface { name: "eth0".to_owned(), rx_bytes: 11, tx_bytes: 12, ..Interface::default() };
    let view = PodView {
        spec: None,
        namespace: "ns".into(),
        name: "p".into(),
        uid: PodUid::from("u"),
        stage: Stage::Syncing,
        buried: false,
        status: Arc::new(PodStatus { start_time: WALL, ..PodStatus::default() }),
        last_event: "".into(),
    };
    let container = ContainerPicture {
        name: "c".into(),
        id: "c0ffee".to_owned(),
        image: "img:1".to_owned(),
        started: WALL,
        used: measured("/kubepods/podu/c0ffee"),
    };
    let pod = PodPicture {
        view: Arc::new(view),
        own: Some(measured("/kubepods/podu")),
        containers: vec![container],
        sandbox: Some(("5a4d".to_owned(), measured("/kubepods/podu/5a4d"))),
        network: vec![eth0.clone()],
        processes: 2,
    };
    Picture {
        depth: Depth::Detail,
        now: Now { mono: Mono(1), wall: WALL },
        root: measured("/"),
        pods_cgroup: Some(measured("/kubepods")),
        classes: vec![measured("/kubepods/burstable")],
        daemons: Vec::new(),
        network: vec![eth0],
        pods: vec![pod],
    }
}
