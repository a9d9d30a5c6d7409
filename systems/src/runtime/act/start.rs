//! Starting containers, one at a time in spec order; one that waits lets the next go on.

use super::super::actions::{self, PodActions};
use super::super::steps::{HOST_TIMEOUT, Next, starts_container};
use super::super::{backoff, config, env, hosts, paths, pullerror};
use super::Pod;
use super::access::PullSteps;
use super::pull::{self, Login};
use crate::{status, volumes};
use components::edge::Effect;
use components::edge::cri::{ContainerState, CriEffect, PodInspection, SandboxConfig};
use components::edge::host::{Dir, File, HostEffect, PrepareContainer};
use components::ids::{ContainerId, SandboxId};
use components::planted::Bug;
use components::spec::{ContainerSpec, PodSpec, PullPolicy};
use components::world::{Progress, Step};

/// Where and for what a container is started.
#[derive(Clone, Copy)]
pub(super) struct Start<'a> {
    pub(super) spec: &'a PodSpec,
    pub(super) seen: &'a PodInspection,
    pub(super) sandbox: &'a SandboxId,
    pub(super) index: usize,
    pub(super) container: &'a ContainerSpec,
}

impl Pod<'_, '_> {
    pub(super) fn start_containers(&mut self, spec: &PodSpec, seen: &PodInspection, actions: &PodActions) {
        let Some(sandbox) = &actions.sandbox else { return };
        if self.removes_what_runs(seen) {
            return;
        }
        for &index in &actions.start {
            if self.flow.in_flight.iter().any(|(_, step)| starts_container(step)) {
                return;
            }
            let Some(container) = spec.containers.get(index) else { continue };
            if self.being_removed(seen, actions, &container.name) || index >= self.runs.len() {
                continue;
            }
            self.advance(Start { spec, seen, sandbox, index, container });
        }
    }

    /// True while an instance is being removed that was given up and started after all: nothing builds on it until the
    /// answer to its removal has the pod inspected.
    fn removes_what_runs(&self, seen: &PodInspection) -> bool {
        let runs = |id: &ContainerId| seen.containers.iter().any(|c| c.id == *id && actions::may_run(c.state));
        self.flow.in_flight.iter().any(|(_, step)| matches!(step, Step::RemoveContainer(id) if runs(id)))
    }

    /// A half-made instance of the same name is on its way out and still holds its name.
    fn being_removed(&self, seen: &PodInspection, actions: &PodActions, name: &str) -> bool {
        let half_made = |c: &&components::edge::cri::ContainerStatus| c.state == ContainerState::Created;
        seen.containers.iter().filter(half_made).any(|c| &*c.name == name && actions.remove.contains(&c.id))
    }

    /// Takes the container one step further, or notes why it waits.
    fn advance(&mut self, start: Start<'_>) {
        let now = self.node.now();
        if let Some(at) = self.runs[start.index].retry_at.filter(|at| *at > now) {
            if !self.has_news(start.index) {
                self.wake_at(at);
                return;
            }
            self.runs[start.index].retry_at = None;
        }
        match self.runs[start.index].progress.clone() {
            Progress::Idle => {
                if self.restart_allowed(start) {
                    self.look_for_image(start);
                }
            }
            Progress::ImageAbsent => {
                let policy = start.container.pull_policy;
                self.count_image(policy, "false", if policy == PullPolicy::Never { "unknown" } else { "true" });
                self.runs[start.index].progress = Progress::ImageMissing;
                self.image_missing(start);
            }
            Progress::ImageMissing => self.image_missing(start),
            Progress::ImagePulled => self.find_image(start, "the pulled image's id and user are needed"),
            Progress::ImageFound => self.image_found(start),
            Progress::ImageReady => self.create(start),
            Progress::Created(id) => {
                let index = u16::try_from(start.index).unwrap_or(u16::MAX);
                let effect = Effect::Cri(CriEffect::StartContainer { id: id.clone() });
                self.emit(Step::StartContainer(index, id), effect, self.node.timeout(), "it was made to be started");
            }
        }
    }

    /// Back-off of an ended container; `CrashLoopBackOff` while it lasts.
    fn restart_allowed(&mut self, start: Start<'_>) -> bool {
        let Some(ended) = actions::newest(start.seen, &start.container.name) else { return true };
        if ended.state != ContainerState::Exited {
            return true;
        }
        let id = ended.id.clone();
        self.back_off_is_over(start.spec, start.index, &id)
    }

    /// Whether what follows the end of an instance may happen now; notes why the container waits if not.
    pub(super) fn back_off_is_over(&mut self, spec: &PodSpec, index: usize, ended: &ContainerId) -> bool {
        let now = self.node.now();
        let Some(&failed) = self.observed.exits.get(ended) else { return true };
        let max = self.node.config.max_restart_period;
        let ignored = self.node.planted(Bug::BackoffIgnored);
        let (Some(container), Some(run)) = (spec.containers.get(index), self.runs.get_mut(index)) else { return true };
        if run.cleared.as_ref() == Some(ended) || ignored {
            return true;
        }
        match backoff::try_again(&mut run.backoff, failed, now, max) {
            Ok(()) => {
                run.cleared = Some(ended.clone());
                run.waiting = None;
                true
            }
            Err(until) => {
                let delay = std::time::Duration::from_nanos(run.backoff.delay_nanos);
                let message = format!(
                    "back-off {} restarting failed container={} pod={}",
                    go_duration(delay),
                    container.name,
                    spec.described()
                );
                let known = run.waiting.as_ref().is_some_and(|(reason, _)| *reason == "CrashLoopBackOff");
                run.waiting = Some(("CrashLoopBackOff", message));
                if !known {
                    let (name, pod) = (&container.name, spec.described());
                    let text = format!("Back-off restarting failed container {name} in pod {pod}");
                    self.flow.events.warning("BackOff", text, u16::try_from(index).ok());
                }
                self.flow.last_event = format!("Back-off restarting failed container {}", container.name).into();
                self.wake_at(until);
                false
            }
        }
    }

    fn look_for_image(&mut self, start: Start<'_>) {
        if self.image_has_no_name(start) {
            return;
        }
        if start.container.pull_policy == PullPolicy::Always {
            self.count_image(PullPolicy::Always, "unknown", "true");
            self.runs[start.index].progress = Progress::ImageMissing;
            self.image_missing(start);
        } else {
            self.find_image(start, "the pull policy asks whether the image is here");
        }
    }

    /// True when the image's name is none: no runtime is asked for it.
    fn image_has_no_name(&mut self, start: Start<'_>) -> bool {
        let Some(message) = podspec::image::problem(&start.container.image) else { return false };
        let until = self.node.now().after(backoff::INITIAL);
        self.wait_for_image(start, "InvalidImageName", message, until);
        true
    }

    fn find_image(&mut self, start: Start<'_>, rule: &'static str) {
        let index = u16::try_from(start.index).unwrap_or(u16::MAX);
        let effect = Effect::Cri(CriEffect::FindImage { image: start.container.image_to_pull.to_string() });
        self.emit(Step::FindImage(index), effect, self.node.timeout(), rule);
    }

    pub(super) fn image_missing(&mut self, start: Start<'_>) {
        if self.image_has_no_name(start) {
            return;
        }
        let now = self.node.now();
        let image = &start.container.image;
        if self.records_busy(image) {
            return;
        }
        if start.container.pull_policy == PullPolicy::Never {
            let message = pullerror::not_present(image);
            self.wait_for_image(start, "ErrImageNeverPull", message, now.after(backoff::INITIAL));
            return;
        }
        if let Some(until) = self.runs[start.index].pull_backoff.until.filter(|until| *until > now) {
            let error = &self.runs[start.index].pull_error;
            let message = format!("Back-off pulling image \"{image}\": {error}");
            self.wait_for_image(start, "ImagePullBackOff", message, until);
            return;
        }
        let tries = self.runs[start.index].pull.clone();
        let logins = match self.all_logins(start.spec, &start.container.image_to_pull, tries.tried == 0) {
            Login::Wait => return,
            Login::All(logins) => logins,
            Login::Broken(why) => return self.refuse_pull(start, why),
        };
        let (login, more) = pull::turn(logins, &tries);
        let (qps, burst) = (self.node.config.pull_qps, self.node.config.pull_burst);
        // All attempts of one pull count as one.
        if tries.tried == 0 && !self.budget.take(qps, burst, now) {
            return self.refuse_pull(start, "pull QPS exceeded".to_owned());
        }
        let config = match self.sandbox_config(start) {
            Ok(config) => Box::new(config),
            Err(message) => return self.refuse_configuration(start, message),
        };
        self.flow.last_event = format!("Pulling image \"{image}\"").into();
        let told = u16::try_from(start.index).ok();
        self.flow.events.normal("Pulling", format!("Pulling image \"{image}\""), told);
        self.runs[start.index].pull.more = more;
        let index = u16::try_from(start.index).unwrap_or(u16::MAX);
        self.emit_pull(PullSteps {
            image,
            to_pull: start.container.image_to_pull.to_string(),
            config,
            login,
            intent: Step::WriteIntent(index),
            pull: Step::PullImage(index),
            rule: "the pull policy wants the image pulled",
        });
    }

    /// The image is not pulled now.
    pub(super) fn refuse_pull(&mut self, start: Start<'_>, why: String) {
        let now = self.node.now();
        let run = &mut self.runs[start.index];
        backoff::fail(&mut run.pull_backoff, now, backoff::PULL_MAX);
        run.pull_error = format!("ErrImagePull: {why}");
        let until = run.pull_backoff.until.unwrap_or(now);
        self.wait_for_image(start, "ErrImagePull", why, until);
    }

    fn wait_for_image(
        &mut self,
        start: Start<'_>,
        reason: &'static str,
        message: String,
        until: components::time::Mono,
    ) {
        self.flow.last_event = message.as_str().into();
        let run = &mut self.runs[start.index];
        if run.waiting.as_ref().is_none_or(|(known, _)| *known != reason) {
            tracing::warn!(pod = %start.spec.described(), container = %start.container.name, reason, error = %message, "Container waits");
            tell_wait(&mut self.flow.events, start, reason, &message);
        }
        run.waiting = Some((reason, message));
        // The image may have come by another way: look again rather than pull at once.
        run.progress = match start.container.pull_policy {
            PullPolicy::Always => Progress::ImageMissing,
            PullPolicy::IfNotPresent | PullPolicy::Never => Progress::Idle,
        };
        if reason != "ImagePullBackOff" || start.container.pull_policy != PullPolicy::Always {
            run.retry_at = Some(until);
        }
        self.wake_at(until);
    }

    pub(super) fn create(&mut self, start: Start<'_>) {
        let Some(image) = self.runs[start.index].image.clone() else {
            self.runs[start.index].progress = Progress::Idle;
            return;
        };
        if !self.image_volumes_ready(start) {
            return;
        }
        let Some(env_files) = self.env_files(start) else { return };
        let site = self.node.site();
        if env::pending(site.objects, site.services, start.spec, start.container) {
            // The answer is on its way and touches the pod.
            return;
        }
        let target = match target(start) {
            Ok(target) => target,
            Err(message) => return self.refuse_configuration(start, message),
        };
        let own = status::in_order(pod_ips(start), &site.machine.node_ips);
        let ips = if start.spec.host_network { site.machine.node_ips.as_slice() } else { own.as_slice() };
        let number = self.attempt(start);
        let attempt = config::Attempt {
            spec: start.spec,
            container: start.container,
            attempt: number,
            image: &image,
            pod_ips: ips,
            mounting: self.mounting(),
            env_files: &env_files,
            target,
        };
        let both = config::container(&attempt, self.site()).and_then(|made| Ok((made, self.sandbox_config(start)?)));
        let (made, sandbox_config) = match both {
            Ok((made, sandbox)) => (made, Box::new(sandbox)),
            Err(message) => return self.refuse_configuration(start, message),
        };
        let mut files = self.files(start, number, ips);
        match volumes::sub_paths_of(start.spec, start.container, self.node.site().config, &made.envs) {
            Ok(sub_paths) => files.sub_paths = sub_paths,
            Err(message) => return self.refuse_configuration(start, message),
        }
        let run = &mut self.runs[start.index];
        run.attempt = number;
        run.retry_at = None;
        self.note_new_size(start.spec, start.index);
        let index = u16::try_from(start.index).unwrap_or(u16::MAX);
        let effect = Effect::Host(HostEffect::PrepareContainer(Box::new(files)));
        self.emit(Step::PrepareContainer(index), effect, HOST_TIMEOUT, "its files come before the container");
        let effect =
            CriEffect::CreateContainer { sandbox: start.sandbox.clone(), config: Box::new(made), sandbox_config };
        let next = Next {
            step: Step::CreateContainer(index),
            effect: Effect::Cri(effect),
            timeout: self.node.timeout(),
            chained: true,
            rule: "it does not run and is wanted to",
        };
        self.emitter.emit(self.flow, next);
    }

    /// Values of environment files; they are asked for when they are not at hand. Each attempt reads them anew.
    fn env_files(&mut self, start: Start<'_>) -> Option<Vec<env::FileValue>> {
        if let Some(values) = self.runs[start.index].env_files.take() {
            return Some(values);
        }
        let keys = env::file_keys(start.spec, start.container, self.node.site().config);
        if keys.is_empty() {
            return Some(Vec::new());
        }
        let index = u16::try_from(start.index).unwrap_or(u16::MAX);
        let effect = Effect::Host(HostEffect::ReadEnvFiles(keys));
        self.emit(Step::ReadEnvFiles(index), effect, HOST_TIMEOUT, "its environment comes from files");
        None
    }

    /// Restart count of the next instance: one more than the newest's; with none, one more than the newest log's.
    fn attempt(&self, start: Start<'_>) -> u32 {
        if let Some(newest) = actions::newest(start.seen, &start.container.name) {
            // One that never started gives its number back.
            return if newest.state == ContainerState::Created {
                newest.restart_count
            } else {
                newest.restart_count + 1
            };
        }
        let logs = self.flow.log_attempts.iter().find(|(name, _)| *name == start.container.name);
        logs.map_or(0, |(_, highest)| highest + 1)
    }

    /// The container cannot be described as its spec wants it.
    fn refuse_configuration(&mut self, start: Start<'_>, message: String) {
        let until = self.node.now().after(backoff::INITIAL);
        self.wait_for_image(start, "CreateContainerConfigError", message, until);
        self.runs[start.index].refused = Some(self.refs.version);
    }

    /// An object that the pod refers to came or changed since the container could not be described.
    fn has_news(&self, index: usize) -> bool {
        let run = &self.runs[index];
        let waits = run.waiting.as_ref().is_some_and(|(reason, _)| *reason == "CreateContainerConfigError");
        waits && run.refused.is_some_and(|version| version != self.refs.version)
    }

    fn sandbox_config(&self, start: Start<'_>) -> Result<SandboxConfig, String> {
        let attempt = start.seen.sandboxes.iter().find(|s| s.id == *start.sandbox).map_or(0, |s| s.attempt);
        config::sandbox(start.spec, self.site(), attempt)
    }

    fn files(&self, start: Start<'_>, number: u32, ips: &[String]) -> PrepareContainer {
        let config = self.node.site().config;
        let uid = start.spec.uid.as_str();
        let name = &start.container.name;
        let dir = |path: String, mode| Dir { path, mode };
        let mut out = PrepareContainer {
            dirs: vec![
                dir(format!("{}/containers/{name}", config.pod_dir(uid)), 0o750),
                dir(format!("{}/{name}", paths::log_dir(config, start.spec)), 0o755),
            ],
            ..PrepareContainer::default()
        };
        if config::wants_hosts_file(start.spec, start.container, ips) {
            let (hostname, fqdn) = hosts::names(start.spec, &config.cluster_domain);
            let content = hosts::content(start.spec, self.node.site().machine, ips, &hostname, &fqdn);
            out.files.push(File { path: paths::etc_hosts(config, uid), mode: 0o644, content });
        }
        if !start.container.termination_message_path.is_empty() {
            let path = paths::termination_log(config, uid, name, number);
            out.files.push(File { path, mode: 0o666, content: String::new() });
        }
        out
    }
}

/// The instance whose processes an ephemeral container is to see, if it names one.
fn target(start: Start<'_>) -> Result<Option<&ContainerId>, String> {
    let Some(name) = &start.container.target else { return Ok(None) };
    match actions::newest(start.seen, name) {
        Some(status) => Ok(Some(&status.id)),
        None => Err(format!("unable to find target container {name}")),
    }
}

/// Tells the cluster why a container waits.
fn tell_wait(events: &mut components::events::PodEvents, start: Start<'_>, reason: &'static str, message: &str) {
    let (index, image) = (u16::try_from(start.index).ok(), &start.container.image);
    match reason {
        "ErrImageNeverPull" => events.warning(reason, message, index),
        "InvalidImageName" => events.warning("InspectFailed", message, index),
        "ImagePullBackOff" => events.normal("BackOff", format!("Back-off pulling image \"{image}\""), index),
        _ => {}
    }
    let said = if reason == "CreateContainerConfigError" { message } else { reason };
    events.warning("Failed", format!("Error: {said}"), index);
}

fn pod_ips<'a>(start: Start<'a>) -> &'a [String] {
    start.seen.sandboxes.iter().find(|s| s.id == *start.sandbox).map(|s| s.ips.as_slice()).unwrap_or_default()
}

/// As Go prints whole seconds: `10s`, `2m40s`, `5m0s`.
fn go_duration(duration: std::time::Duration) -> String {
    let seconds = duration.as_secs();
    if seconds < 60 { format!("{seconds}s") } else { format!("{}m{}s", seconds / 60, seconds % 60) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_print_as_go_does() {
        let text = |s| go_duration(std::time::Duration::from_secs(s));
        assert_eq!([text(10), text(160), text(300)], ["10s", "2m40s", "5m0s"]);
    }
}
