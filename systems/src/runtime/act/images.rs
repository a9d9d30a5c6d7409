//! Image volumes of a container: found or pulled under their own policy before the container is made.

use super::super::{backoff, config, pullerror};
use super::Pod;
use super::access::{May, PullSteps, Wanted};
use super::pull::{self, Login};
use super::start::Start;
use components::edge::Effect;
use components::edge::cri::CriEffect;
use components::registry::PullTries;
use components::spec::{PullPolicy, VolumeSource};
use components::volumes::ImageState;
use components::world::Step;

impl Pod<'_, '_> {
    /// True when every image that the container mounts is here. Else emits the next step towards it, or notes why the
    /// container waits.
    pub(super) fn image_volumes_ready(&mut self, start: Start<'_>) -> bool {
        for mount in &start.container.mounts {
            let Some(index) = start.spec.volumes.iter().position(|volume| *volume.name == *mount.volume) else {
                continue;
            };
            let volume = &start.spec.volumes[index];
            let VolumeSource::Image { reference, to_pull, pull_policy } = &volume.source else { continue };
            if let Some(message) = podspec::image::problem(reference) {
                let until = self.node.now().after(backoff::INITIAL);
                self.wait_for_volume_image(start, "InvalidImageName", message, reference, until);
                return false;
            }
            let known = self.volumes.volumes.get(index).map(|run| run.image.clone()).unwrap_or_default();
            let step = u16::try_from(index).unwrap_or(u16::MAX);
            let image = to_pull.to_string();
            match known {
                ImageState::Here(_) => continue,
                ImageState::Found(id) => {
                    let wanted = Wanted { spec: start.spec, image: reference, to_pull: &image, image_ref: &id };
                    match self.may_use(wanted, None) {
                        May::Use => continue,
                        May::Wait => {}
                        May::Pull | May::Ask(_) if *pull_policy == PullPolicy::Never => {
                            let until = self.node.now().after(backoff::INITIAL);
                            let message = pullerror::not_present(reference);
                            self.wait_for_volume_image(start, "ErrImageNeverPull", message, reference, until);
                            self.runs[start.index].retry_at = Some(until);
                        }
                        // A pull is as good as a comparison.
                        May::Pull | May::Ask(_) => self.pull_volume_image(start, step, image, reference),
                        May::Broken(why) => {
                            let until = self.node.now().after(backoff::INITIAL);
                            self.wait_for_volume_image(start, "ErrImagePull", why, reference, until);
                            self.runs[start.index].retry_at = Some(until);
                        }
                    }
                }
                ImageState::Failed { reason, message, until } if self.node.now() < until => {
                    self.wait_for_volume_image(start, reason, message, reference, until);
                }
                ImageState::Missing => self.pull_volume_image(start, step, image, reference),
                ImageState::Unknown | ImageState::Failed { .. } if *pull_policy == PullPolicy::Always => {
                    self.pull_volume_image(start, step, image, reference);
                }
                ImageState::Unknown | ImageState::Failed { .. } | ImageState::Pulled => {
                    let effect = Effect::Cri(CriEffect::FindImage { image });
                    let rule = "the container mounts the image";
                    self.emit(Step::FindVolumeImage(step), effect, self.node.timeout(), rule);
                }
            }
            return false;
        }
        true
    }

    fn pull_volume_image(&mut self, start: Start<'_>, step: u16, image: String, reference: &str) {
        let now = self.node.now();
        // The first login that fits; others are not tried for volumes.
        if self.records_busy(reference) {
            return;
        }
        let login = match self.all_logins(start.spec, &image, true) {
            Login::Wait => return,
            Login::All(logins) => pull::turn(logins, &PullTries::default()).0,
            Login::Broken(why) => {
                let until = now.after(backoff::INITIAL);
                return self.wait_for_volume_image(start, "ErrImagePull", why, reference, until);
            }
        };
        let (qps, burst) = (self.node.config.pull_qps, self.node.config.pull_burst);
        if !self.budget.take(qps, burst, now) {
            let until = now.after(backoff::INITIAL);
            self.wait_for_volume_image(start, "ErrImagePull", "pull QPS exceeded".to_owned(), reference, until);
            self.runs[start.index].retry_at = Some(until);
            return;
        }
        self.flow.last_event = format!("Pulling image \"{reference}\"").into();
        let attempt = start.seen.sandboxes.iter().find(|s| s.id == *start.sandbox).map_or(0, |s| s.attempt);
        let Ok(config) = config::sandbox(start.spec, self.node.site(), attempt).map(Box::new) else {
            // It would refuse the container in the same words, which says more there.
            self.flow.last_event = "The sandbox cannot be described".into();
            return;
        };
        self.emit_pull(PullSteps {
            image: reference,
            to_pull: image,
            config,
            login,
            intent: Step::WriteVolumeIntent(step),
            pull: Step::PullVolumeImage(step),
            rule: "the image of a volume is wanted",
        });
    }

    fn wait_for_volume_image(
        &mut self,
        start: Start<'_>,
        reason: &'static str,
        message: String,
        reference: &str,
        until: components::time::Mono,
    ) {
        let run = &mut self.runs[start.index];
        let again =
            run.waiting.as_ref().is_some_and(|(known, _)| pullerror::is_one(known) || *known == "ImagePullBackOff");
        let shown = if pullerror::is_one(reason) && again {
            ("ImagePullBackOff", format!("Back-off pulling image \"{reference}\": {reason}: {message}"))
        } else {
            (reason, message)
        };
        if run.waiting.as_ref().is_none_or(|(known, _)| *known != shown.0) {
            tracing::warn!(pod = %start.spec.described(), container = %start.container.name, reason = shown.0, error = %shown.1, "Container waits");
        }
        self.flow.last_event = shown.1.as_str().into();
        run.waiting = Some(shown);
        self.wake_at(until);
    }
}
