//! Emits what the volumes domain wants done.

use super::super::steps::HOST_TIMEOUT;
use super::Pod;
use crate::volumes;
use components::edge::Effect;
use components::edge::host::{HostEffect, VolumeSetup};
use components::spec::PodSpec;
use components::world::Step;

impl Pod<'_, '_> {
    /// Set-ups of all volumes that can be set up, for the preparation of the pod.
    pub(super) fn all_volumes(&self, spec: &PodSpec) -> Vec<VolumeSetup> {
        let all = spec.volumes.iter();
        all.filter_map(|volume| volumes::of_volume(spec, volume, self.origin()).ok().flatten()).collect()
    }

    /// What the files of volumes are made from.
    fn origin(&self) -> volumes::Origin<'_> {
        let site = self.node.site();
        volumes::Origin { config: site.config, machine: site.machine, objects: site.objects, refs: self.refs }
    }

    /// What the mounts of a container depend on.
    pub(super) fn mounting(&self) -> volumes::Mounting<'_> {
        let site = self.node.site();
        // Pods run under the default handler.
        let handler = self.node.health.handlers.iter().find(|handler| handler.name.is_empty());
        volumes::Mounting {
            config: site.config,
            selinux: site.machine.selinux,
            recursive_read_only: handler.is_some_and(|handler| handler.recursive_read_only),
            volumes: self.volumes,
        }
    }

    /// Tries again what failed and writes what changed. True when containers may be started.
    pub(super) fn set_up_volumes(&mut self, spec: &PodSpec) -> bool {
        let now = self.node.now();
        let all = self.volumes;
        for (index, run) in all.volumes.iter().enumerate() {
            let step = Step::SetUpVolume(u16::try_from(index).unwrap_or(u16::MAX));
            if let Some(at) = run.retry_at.filter(|at| *at > now) {
                self.wake_at(at);
            }
            if !run.due(now) || self.flow.in_flight.iter().any(|(_, other)| *other == step) {
                continue;
            }
            let volume = spec.volumes.iter().find(|volume| volume.name == run.name);
            let setup = volume.map(|volume| volumes::of_volume(spec, volume, self.origin()));
            if let Some(Ok(Some(setup))) = setup {
                let effect = Effect::Host(HostEffect::SetUpVolume(Box::new(setup)));
                self.emit(step, effect, HOST_TIMEOUT, "the volume is not as it is wanted");
            }
        }
        if let Some((missing, why)) = all.missing() {
            let text = format!("unmounted volumes=[{}]: {why}", missing.join(" "));
            self.flow.last_event = format!("FailedMount: {text}").into();
            self.flow.error = Some(("FailedMount", text));
        } else if all.ready() && self.flow.error.as_ref().is_some_and(|(reason, _)| *reason == "FailedMount") {
            self.flow.error = None;
        }
        all.ready()
    }
}
