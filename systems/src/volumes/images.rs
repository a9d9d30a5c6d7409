//! Image volumes: what came of looking for and pulling the image of one. It is resolved once per life of the pod on this
//! node (a restarted container sees the same files), under its own pull policy, with the back-off of image pulls.

use crate::runtime::{backoff, pullerror};
use components::edge::cri::CriAnswer;
use components::edge::{Answer, Outcome};
use components::spec::{PullPolicy, VolumeSource};
use components::time::Mono;
use components::volumes::{ImageState, VolumeRun};
use components::world::{Backoff, Step};
use std::sync::Arc;

/// Takes one answer.
pub(super) fn take(volume: &mut VolumeRun, source: &VolumeSource, step: &Step, outcome: &Outcome, now: Mono) {
    let VolumeSource::Image { reference, pull_policy, .. } = source else { return };
    volume.image = match (step, outcome) {
        (Step::FindVolumeImage(_), Outcome::Done(Answer::Cri(CriAnswer::ImageFound(found)))) => match found {
            Some(image) if volume.image == ImageState::Pulled => ImageState::Here(Arc::clone(&image.image_ref)),
            Some(image) => ImageState::Found(Arc::clone(&image.image_ref)),
            None if *pull_policy == PullPolicy::Never => {
                let message = pullerror::not_present(reference);
                ImageState::Failed { reason: "ErrImageNeverPull", message, until: now.after(backoff::INITIAL) }
            }
            None => ImageState::Missing,
        },
        (Step::PullVolumeImage(_), Outcome::Done(_)) => {
            volume.pull_backoff = Backoff::default();
            ImageState::Pulled
        }
        (Step::WriteVolumeIntent(_), Outcome::Done(_)) => return,
        (Step::WriteVolumeIntent(_), _) => {
            let message = pullerror::not_noted(reference, &text(outcome));
            ImageState::Failed { reason: "ErrImagePull", message, until: now.after(backoff::INITIAL) }
        }
        // What came before it has failed and said why.
        (_, Outcome::Cancelled) if matches!(volume.image, ImageState::Failed { .. }) => return,
        (_, Outcome::Cancelled) => ImageState::Unknown,
        (Step::PullVolumeImage(_), _) => {
            backoff::fail(&mut volume.pull_backoff, now, backoff::PULL_MAX);
            let until = volume.pull_backoff.until.unwrap_or(now);
            let (reason, message) = pullerror::of(reference, &text(outcome));
            ImageState::Failed { reason, message, until }
        }
        _ => {
            let until = now.after(backoff::INITIAL);
            ImageState::Failed { reason: "ImageInspectError", message: text(outcome), until }
        }
    };
}

fn text(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Failed(failure) => failure.message.clone(),
        Outcome::TimedOut => "context deadline exceeded".to_owned(),
        Outcome::Done(_) | Outcome::Cancelled => "unexpected answer".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use components::edge::cri::FoundImage;
    use components::edge::{Failure, FailureClass};

    fn source(pull_policy: PullPolicy) -> VolumeSource {
        VolumeSource::Image { reference: "reg/data:1".into(), to_pull: "reg/data:1".into(), pull_policy }
    }

    fn found(image: Option<&str>) -> Outcome {
        let image = image.map(|id| FoundImage { image_ref: id.into(), uid: None, username: String::new() });
        Outcome::Done(Answer::Cri(CriAnswer::ImageFound(image)))
    }

    #[track_caller]
    fn check(policy: PullPolicy, step: &Step, outcome: &Outcome, expect: &ImageState) {
        let mut volume = VolumeRun::default();
        take(&mut volume, &source(policy), step, outcome, Mono(0));
        assert_eq!(volume.image, *expect);
    }

    #[test]
    fn answers_lead_to_the_image_under_its_policy() {
        let (find, pull) = (Step::FindVolumeImage(0), Step::PullVolumeImage(0));
        let until = Mono(10_000_000_000);
        let failed = |reason, message: &str| ImageState::Failed { reason, message: message.to_owned(), until };
        let refused = Outcome::Failed(Failure { class: FailureClass::Denied, message: "no".to_owned() });
        let pulled = Outcome::Done(Answer::Cri(CriAnswer::ImagePulled { image_ref: "sha".into() }));
        check(PullPolicy::IfNotPresent, &find, &found(Some("sha")), &ImageState::Found("sha".into()));
        check(PullPolicy::IfNotPresent, &find, &found(None), &ImageState::Missing);
        let never = "Container image \"reg/data:1\" is not present with pull policy of Never";
        check(PullPolicy::Never, &find, &found(None), &failed("ErrImageNeverPull", never));
        check(PullPolicy::Always, &pull, &pulled, &ImageState::Pulled);
        check(PullPolicy::Always, &pull, &refused, &failed("ErrImagePull", "no"));
        check(PullPolicy::Always, &find, &refused, &failed("ImageInspectError", "no"));
        check(PullPolicy::Always, &pull, &Outcome::Cancelled, &ImageState::Unknown);
    }
}
