//! Tests of desired against actual.

use super::*;
use crate::fixtures;
use components::edge::{Failure, FailureClass};
use components::spec::{EnvSource, Volume, VolumeFile, VolumeSource};
use std::sync::Arc;

fn pod() -> PodSpec {
    let mut spec = fixtures::spec("always a");
    let items = vec![VolumeFile {
        path: "labels".to_owned(),
        mode: 0o644,
        source: EnvSource::Field("metadata.labels".to_owned()),
    }];
    spec.volumes = vec![
        Volume { name: "e".into(), source: VolumeSource::EmptyDir { size_bytes: None } },
        Volume { name: "d".into(), source: VolumeSource::Files { projected: false, items } },
    ];
    spec
}

fn planned(spec: &PodSpec, volumes: &mut PodVolumes) {
    plan(volumes, spec, &fixtures::node(), &Machine::default());
}

fn done(failed: &[&str]) -> Outcome {
    let failed: Vec<_> = failed.iter().map(|name| (Arc::from(*name), "no".to_owned())).collect();
    Outcome::Done(Answer::Host(if failed.is_empty() {
        HostAnswer::PodPrepared { log_attempts: Vec::new() }
    } else {
        HostAnswer::PodPreparedInPart { log_attempts: Vec::new(), failed }
    }))
}

fn due(volumes: &PodVolumes, at: Mono) -> Vec<&str> {
    volumes.volumes.iter().filter(|volume| volume.due(at)).map(|volume| &*volume.name).collect()
}

#[test]
fn what_failed_is_tried_again_alone_and_later_each_time() {
    let mut volumes = PodVolumes::default();
    planned(&pod(), &mut volumes);
    assert_eq!(due(&volumes, Mono(0)), ["e", "d"]);
    prepared(&mut volumes, &done(&["d"]), Mono(0));
    assert!(!volumes.ready());
    assert_eq!(volumes.missing(), Some((vec!["d"], "MountVolume.SetUp failed for volume \"d\" : no")));
    assert!(due(&volumes, Mono(499_999_999)).is_empty());
    assert_eq!(due(&volumes, Mono(500_000_000)), ["d"]);
    let refused = Outcome::Failed(Failure { class: FailureClass::Other, message: "still no".to_owned() });
    settle(&mut volumes.volumes[1], set_up(&refused), Mono(500_000_000));
    assert!(due(&volumes, Mono(1_400_000_000)).is_empty());
    assert_eq!(due(&volumes, Mono(1_500_000_000)), ["d"]);
    settle(&mut volumes.volumes[1], Ok(()), Mono(1_500_000_000));
    assert!(volumes.ready() && volumes.missing().is_none());
    assert!(due(&volumes, Mono(u64::MAX)).is_empty());
    assert_eq!(wait(0), RETRY_FIRST);
    assert_eq!(wait(40), RETRY_MAX);
}

#[test]
fn changed_labels_write_the_files_anew_and_containers_may_go_on() {
    let mut volumes = PodVolumes::default();
    let mut spec = pod();
    planned(&spec, &mut volumes);
    prepared(&mut volumes, &done(&[]), Mono(0));
    planned(&spec, &mut volumes);
    assert!(due(&volumes, Mono(1)).is_empty());
    spec.labels.insert("app".to_owned(), "web".to_owned());
    planned(&spec, &mut volumes);
    assert_eq!(due(&volumes, Mono(1)), ["d"]);
    assert!(volumes.ready(), "the old content is still there");
}

#[test]
fn a_preparation_without_answer_leaves_all_to_be_done() {
    let mut volumes = PodVolumes::default();
    planned(&pod(), &mut volumes);
    prepared(&mut volumes, &Outcome::TimedOut, Mono(0));
    assert_eq!(due(&volumes, Mono(0)), ["e", "d"]);
}

#[test]
fn what_can_not_be_set_up_says_so_and_is_never_due() {
    let mut spec = pod();
    spec.volumes[0].source = VolumeSource::EmptyDirHugePages { page_bytes: None };
    let mut volumes = PodVolumes::default();
    planned(&spec, &mut volumes);
    prepared(&mut volumes, &done(&[]), Mono(0));
    assert!(!volumes.ready());
    let (missing, why) = volumes.missing().unwrap();
    assert_eq!(missing, ["e"]);
    assert!(why.contains("no resource request for huge pages"), "{why}");
    assert!(due(&volumes, Mono(u64::MAX)).is_empty());
}
