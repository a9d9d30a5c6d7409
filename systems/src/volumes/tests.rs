//! Tests of desired against actual.

use super::*;
use crate::fixtures;
use components::edge::{Failure, FailureClass};
use components::objects::{ObjectState, TokenKey, TokenRun};
use components::spec::{EnvSource, FileSource, FilesKind, Volume, VolumeFile, VolumeSource};
use std::sync::Arc;

fn pod() -> PodSpec {
    let mut spec = fixtures::spec("always a");
    let labels =
        VolumeFile { path: "labels".to_owned(), mode: 0o644, source: EnvSource::Field("metadata.labels".to_owned()) };
    let sources = vec![FileSource::Known(labels)];
    spec.volumes = vec![
        Volume { name: "e".into(), source: VolumeSource::EmptyDir { size_bytes: None } },
        Volume { name: "d".into(), source: VolumeSource::Files { kind: FilesKind::DownwardApi, sources } },
    ];
    spec
}

fn planned(spec: &PodSpec, volumes: &mut PodVolumes) {
    planned_with(spec, volumes, &fixtures::objects(), &PodRefs::default());
}

fn planned_with(spec: &PodSpec, volumes: &mut PodVolumes, objects: &Objects, refs: &PodRefs) {
    let (config, machine) = (fixtures::node(), Machine::default());
    plan(volumes, spec, Origin { config: &config, machine: &machine, objects, refs });
}

/// A pod with one volume of this object.
fn of_object(text: &str) -> PodSpec {
    let mut spec = pod();
    let source = FileSource::Object { object: fixtures::reference(text), items: Vec::new(), mode: 0o644 };
    let kind = FilesKind::ConfigMap;
    spec.volumes = vec![Volume { name: "o".into(), source: VolumeSource::Files { kind, sources: vec![source] } }];
    spec
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

#[test]
fn a_volume_waits_for_its_object_and_follows_it() {
    let (spec, mut objects) = (of_object("map:new"), fixtures::objects());
    let mut volumes = PodVolumes::default();
    let refs = PodRefs::default();
    let state = |objects: &mut Objects, state| {
        objects.entries.entry(fixtures::place("map:new")).or_default().state = state;
    };
    state(&mut objects, ObjectState::Missing);
    planned_with(&spec, &mut volumes, &objects, &refs);
    let why = "MountVolume.SetUp failed for volume \"o\" : configmap \"new\" not found";
    assert_eq!(volumes.missing(), Some((vec!["o"], why)));
    assert!(due(&volumes, Mono(u64::MAX)).is_empty());
    let here = |version, value| ObjectState::Here(Arc::new(fixtures::data(version, &[("k", value)])));
    state(&mut objects, here("1", "a"));
    planned_with(&spec, &mut volumes, &objects, &refs);
    assert_eq!(due(&volumes, Mono(0)), ["o"]);
    settle(&mut volumes.volumes[0], Ok(()), Mono(0));
    assert!(volumes.ready() && due(&volumes, Mono(u64::MAX)).is_empty());
    state(&mut objects, here("2", "b"));
    planned_with(&spec, &mut volumes, &objects, &refs);
    assert_eq!(due(&volumes, Mono(0)), ["o"]);
    settle(&mut volumes.volumes[0], Ok(()), Mono(0));
    state(&mut objects, ObjectState::Missing);
    planned_with(&spec, &mut volumes, &objects, &refs);
    assert!(volumes.ready() && due(&volumes, Mono(u64::MAX)).is_empty(), "what was written stays");
    assert_eq!(volumes.volumes[0].error.as_deref(), Some(why));
    state(&mut objects, here("2", "b"));
    planned_with(&spec, &mut volumes, &objects, &refs);
    assert_eq!((due(&volumes, Mono(0)).len(), volumes.volumes[0].error.clone()), (0, None));
}

#[test]
fn a_new_wish_does_not_wait_for_the_failure_of_the_old_one() {
    let (spec, mut objects) = (of_object("map:m"), fixtures::objects());
    let mut volumes = PodVolumes::default();
    planned_with(&spec, &mut volumes, &objects, &PodRefs::default());
    settle(&mut volumes.volumes[0], Err("disk full".to_owned()), Mono(0));
    planned_with(&spec, &mut volumes, &objects, &PodRefs::default());
    assert!(due(&volumes, Mono(0)).is_empty(), "the same wish waits");
    let newer = ObjectState::Here(Arc::new(fixtures::data("9", &[])));
    objects.entries.entry(fixtures::place("map:m")).or_default().state = newer;
    planned_with(&spec, &mut volumes, &objects, &PodRefs::default());
    assert_eq!(due(&volumes, Mono(0)), ["o"]);
}

#[test]
fn a_token_under_way_keeps_the_pod_waiting() {
    let mut spec = pod();
    let token = FileSource::Token { audience: String::new(), seconds: 3607, path: "token".to_owned(), mode: 0o644 };
    let source = VolumeSource::Files { kind: FilesKind::Projected, sources: vec![token] };
    spec.volumes = vec![Volume { name: "t".into(), source }];
    let mut refs = PodRefs::default();
    let key = TokenKey { audience: String::new(), seconds: 3607 };
    refs.tokens.insert(key.clone(), TokenRun::default());
    let mut volumes = PodVolumes::default();
    planned_with(&spec, &mut volumes, &fixtures::objects(), &refs);
    assert!(!volumes.ready() && volumes.missing().is_none(), "nothing is wrong yet");
    refs.tokens.insert(key, TokenRun { error: Some("failed to fetch token: no".to_owned()), ..TokenRun::default() });
    planned_with(&spec, &mut volumes, &fixtures::objects(), &refs);
    assert!(volumes.missing().unwrap().1.ends_with(" : failed to fetch token: no"));
}
