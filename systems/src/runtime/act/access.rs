//! An image that is here: whether the pod may use it, and pulls with what is recorded of them.

use super::super::steps::{HOST_TIMEOUT, Next, PULL_TIMEOUT};
use super::Pod;
use super::pull::Login;
use super::start::Start;
use crate::registry::pulls::{self, First, Found, Shows};
use components::edge::Effect;
use components::edge::cri::{CriEffect, SandboxConfig};
use components::edge::host::HostEffect;
use components::edge::host::pulls::{Compared, PullsEffect};
use components::pulls::{Pulling, TrackedLogin};
use components::spec::{PodSpec, PullPolicy};
use components::world::{Progress, Step};
use std::sync::Arc;

/// An image as a pod asks for it, and its id in the runtime.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) spec: &'a PodSpec,
    pub(super) image: &'a str,
    pub(super) to_pull: &'a str,
    pub(super) image_ref: &'a Arc<str>,
}

/// Whether a pod may use an image that is here.
pub(super) enum May {
    /// It may.
    Use,
    /// Only a pull can tell.
    Pull,
    /// The answer to a question comes first; it touches the pod.
    Wait,
    /// This question comes first.
    Ask(PullsEffect),
    /// A pull secret cannot be understood.
    Broken(String),
}

/// A pull and the steps it is made of.
pub(super) struct PullSteps<'a> {
    pub(super) image: &'a str,
    pub(super) to_pull: String,
    pub(super) config: Box<SandboxConfig>,
    pub(super) login: Option<TrackedLogin>,
    pub(super) intent: Step,
    pub(super) pull: Step,
    pub(super) rule: &'static str,
}

impl Pod<'_, '_> {
    /// True while nothing can be said of images, or pulled: the records were not read yet, or one is being dropped.
    pub(super) fn records_busy(&self, image: &str) -> bool {
        self.node.config.pulls.is_some() && (!self.logins.records.read || self.logins.records.drops(image))
    }

    /// The image of a container is here: goes on with it, or pulls it.
    pub(super) fn image_found(&mut self, start: Start<'_>) {
        let Some(found) = self.runs[start.index].image.clone() else {
            self.runs[start.index].progress = Progress::Idle;
            return;
        };
        let compared = self.runs[start.index].compared.take();
        let image = &start.container.image;
        let (to_pull, image_ref) = (&start.container.image_to_pull, &found.image_ref);
        let policy = start.container.pull_policy;
        match self.may_use(Wanted { spec: start.spec, image, to_pull, image_ref }, compared) {
            May::Use => {
                self.count_image(policy, "true", "false");
                let text =
                    format!("Container image \"{image}\" already present on machine and can be accessed by the pod");
                self.flow.events.normal("Pulled", text, u16::try_from(start.index).ok());
                self.runs[start.index].progress = Progress::ImageReady;
                self.create(start);
            }
            May::Pull => {
                self.count_image(policy, "true", "true");
                self.runs[start.index].image = None;
                self.runs[start.index].progress = Progress::ImageMissing;
                self.image_missing(start);
            }
            May::Wait => {}
            May::Ask(effect) => {
                let step = Step::CompareLogins(u16::try_from(start.index).unwrap_or(u16::MAX));
                self.emit_records(step, effect, "a record may hold the credentials of a secret");
            }
            May::Broken(why) => self.refuse_pull(start, why),
        }
    }

    fn emit_records(&mut self, step: Step, effect: PullsEffect, rule: &'static str) {
        self.emit(step, Effect::Host(HostEffect::Pulls(Box::new(effect))), HOST_TIMEOUT, rule);
    }

    /// Whether the pod may use an image that is here. `compared` is the answer to the last question.
    pub(super) fn may_use(&mut self, wanted: Wanted<'_>, compared: Option<Compared>) -> May {
        let Some(rule) = &self.node.config.pulls else { return May::Use };
        if self.records_busy(wanted.image) {
            return May::Wait;
        }
        let dir = pulls::dir(&self.node.config.root_dir);
        let first = pulls::first(rule, &self.logins.records, wanted.image, wanted.image_ref, compared);
        let access = match first {
            First::Known(found) => return self.found(found),
            First::Look => {
                let image_ref = Arc::clone(wanted.image_ref);
                let name = pulls::name_of(wanted.image).to_owned();
                return May::Ask(PullsEffect::Compare { dir, image_ref, name, credentials: Vec::new() });
            }
            First::Depends(access) => access.clone(),
        };
        let logins = match self.all_logins(wanted.spec, wanted.to_pull, false) {
            Login::Wait => return May::Wait,
            Login::Broken(why) => return May::Broken(why),
            Login::All(logins) => logins,
        };
        let login = match pulls::shows(&access, &logins) {
            Shows::Account => return self.found(Found::Recorded),
            Shows::Nothing => return self.found(Found::Unknown),
            Shows::Secret(at) => logins.get(at),
            Shows::Compare => match compared {
                None => {
                    let credentials = pulls::of_secrets(&logins).map(|login| login.credential.clone()).collect();
                    let image_ref = Arc::clone(wanted.image_ref);
                    let name = pulls::name_of(wanted.image).to_owned();
                    return May::Ask(PullsEffect::Compare { dir, image_ref, name, credentials });
                }
                Some(Compared { known: None, .. }) => return self.found(Found::Unknown),
                Some(Compared { known: Some(at), .. }) => {
                    pulls::of_secrets(&logins).nth(usize::try_from(at).unwrap_or(usize::MAX))
                }
            },
        };
        let at = self.node.clock.now.wall;
        let image = (wanted.image, wanted.image_ref);
        let news = login.and_then(|it| pulls::confirmation(&mut self.logins.records, &dir, image, it, at));
        if let Some(effect) = news {
            let ticket = self.emitter.outbox.emit(pulls::work(effect, "another secret opens a recorded image"));
            self.logins.records.writing.insert(ticket, None);
        }
        self.found(Found::Recorded)
    }

    fn found(&mut self, found: Found) -> May {
        pulls::count_check(&mut self.logins.records, found);
        if found.allows() { May::Use } else { May::Pull }
    }

    /// Counts an image that a container wanted.
    pub(super) fn count_image(&mut self, policy: PullPolicy, here: &'static str, pull: &'static str) {
        let policy = match policy {
            PullPolicy::Always => "always",
            PullPolicy::IfNotPresent => "ifnotpresent",
            PullPolicy::Never => "never",
        };
        pulls::count_wanted(&mut self.logins.records, policy, here, pull);
    }

    /// Emits a pull; what it is about is noted durably before.
    pub(super) fn emit_pull(&mut self, steps: PullSteps<'_>) {
        let recorded = self.node.config.pulls.is_some();
        if recorded {
            let (dir, image) = (pulls::dir(&self.node.config.root_dir), steps.image.to_owned());
            let rule = "an image that is about to be pulled is noted first";
            self.emit_records(steps.intent, PullsEffect::WriteIntent { dir, image }, rule);
        }
        let login = steps.login.as_ref().map(|tracked| tracked.login.clone());
        let effect = Effect::Cri(CriEffect::PullImage { image: steps.to_pull, config: steps.config, login });
        let next = Next { step: steps.pull, effect, timeout: PULL_TIMEOUT, chained: recorded, rule: steps.rule };
        self.emitter.emit(self.flow, next);
        if let Some((ticket, _)) = self.flow.in_flight.last().filter(|_| recorded) {
            let image = steps.image.to_owned();
            self.logins.records.intents.insert(image.clone());
            self.logins.records.pulling.insert(*ticket, Pulling { image, login: steps.login });
        }
    }
}
