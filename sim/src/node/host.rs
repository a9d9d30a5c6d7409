//! The simulated host: which directories, volumes and logs exist. Decides how host effects end.

mod logs;

use crate::runtime::model::Refusal;
use components::edge::FailureClass;
use components::edge::host::podkeys::PodKeyEffect;
use components::edge::host::{
    Cgroup, CleanPod, EnvFileKey, FileContent, HostAnswer, HostEffect, HostPathKind, PrepareContainer, PreparePod,
    VolumeSetup,
};
use components::ids::Sensitive;
use components::podcerts::PodKey;
use components::time::Mono;
use std::collections::{BTreeMap, BTreeSet};

/// Directories, files and cgroups of the simulated host.
#[derive(Debug, Clone, Default)]
pub struct Host {
    /// Directories and mount points that were made.
    pub paths: BTreeSet<String>,
    /// cgroups that were made.
    pub cgroups: BTreeSet<String>,
    /// Paths that host path volumes may ask for; none of them is ever removed.
    pub existing: BTreeSet<String>,
    /// Log files with the time since which each is written.
    pub logs: BTreeMap<String, Mono>,
    /// Bytes that each container writes a second.
    pub log_rate: u64,
    /// Links to log files.
    pub links: BTreeMap<String, String>,
    /// When the effect that runs takes effect.
    pub clock: Mono,
    /// Logins of the node's docker configuration.
    pub logins: Vec<components::registry::RegistryLogin>,
    /// Files of volumes by the volume's path: their paths within and their content.
    pub written: BTreeMap<String, BTreeMap<String, String>>,
    /// Limits of the cgroups that hold those of pods, by path.
    pub limits: BTreeMap<String, Cgroup>,
    /// The cgroups of pods with their limits, by path.
    pub pods: BTreeMap<String, Cgroup>,
    /// Memory in use, by the last part of the cgroup's path; nothing where unset.
    pub memory: BTreeMap<String, u64>,
    /// Records of image pulls.
    pub pulls: super::pulls::Records,
    /// Keys of pods that are in memory.
    pub keys: BTreeSet<PodKey>,
    /// Values of environment files, by path in the volume and key.
    pub env: BTreeMap<(String, String), Sensitive>,
}

impl Host {
    /// Runs one effect.
    ///
    /// # Errors
    /// When a host path is not there.
    pub fn run(&mut self, effect: &HostEffect) -> Result<Option<HostAnswer>, Refusal> {
        match effect {
            HostEffect::PreparePod(pod) => self.prepare_pod(pod).map(Some),
            HostEffect::PrepareContainer(container) => {
                self.prepare_container(container);
                Ok(None)
            }
            HostEffect::CleanPod(pod) => {
                self.clean(pod);
                Ok(None)
            }
            HostEffect::SetUpVolume(volume) => self.set_up(volume).map(|()| None),
            HostEffect::SetCgroups(cgroups) if cgroups.iter().any(|c| self.cgroups.contains(&c.path)) => {
                for cgroup in cgroups {
                    self.limit(cgroup);
                }
                Ok(None)
            }
            HostEffect::ReadMemory { pod, containers } => {
                // By the id of a container, and by the last part of a pod's cgroup.
                let used = |of: &str| self.memory.get(of.rsplit('/').next().unwrap_or(of)).copied().or(Some(0));
                let containers = containers.iter().map(|path| used(path)).collect();
                Ok(Some(HostAnswer::MemoryRead { pod: used(pod), containers }))
            }
            HostEffect::SetCgroups(cgroups) => {
                self.limits = cgroups.iter().map(|c| (c.path.clone(), c.clone())).collect();
                Ok(None)
            }
            HostEffect::ReadEnvFiles(keys) => {
                let value = |key: &EnvFileKey| self.env.get(&(key.path.clone(), key.key.clone())).cloned();
                Ok(Some(HostAnswer::EnvFilesRead(keys.iter().map(|key| Ok(value(key))).collect())))
            }
            HostEffect::AllowShutdown => Ok(None),
            HostEffect::PodKeys(effect) => Ok(self.key(effect)),
            HostEffect::ReadLogins { .. } => {
                Ok(Some(HostAnswer::LoginsRead { logins: self.logins.clone(), problems: Vec::new() }))
            }
            HostEffect::Pulls(effect) => Ok(self.pulls.run(effect).map(|answer| HostAnswer::Pulls(Box::new(answer)))),
            other => self.run_reclaim(other),
        }
    }

    /// Anything below this path.
    pub fn below<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a str> {
        let inside = move |p: &&String| p.as_str() == path || is_inside(p, path);
        self.paths.iter().filter(inside).map(String::as_str)
    }

    fn prepare_pod(&mut self, pod: &PreparePod) -> Result<HostAnswer, Refusal> {
        if let Some(cgroup) = &pod.cgroup {
            self.cgroups.insert(cgroup.path.clone());
            self.limit(cgroup);
        }
        self.paths.extend(pod.dirs.iter().map(|d| d.path.clone()));
        self.paths.extend(pod.files.iter().map(|f| f.path.clone()));
        let mut failed = Vec::new();
        for volume in &pod.volumes {
            if let Err(refusal) = self.set_up(volume) {
                failed.push((volume.name().clone(), refusal.message));
            }
        }
        let attempts = pod.log_dirs.iter().filter_map(|(name, dir)| Some((name.clone(), self.highest_attempt(dir)?)));
        let mut log_attempts: Vec<_> = attempts.collect();
        log_attempts.sort();
        Ok(if failed.is_empty() {
            HostAnswer::PodPrepared { log_attempts }
        } else {
            HostAnswer::PodPreparedInPart { log_attempts, failed }
        })
    }

    /// Sets the limits of a pod's cgroup; what is not said stays.
    fn limit(&mut self, wanted: &Cgroup) {
        let has = self.pods.entry(wanted.path.clone()).or_default();
        has.path.clone_from(&wanted.path);
        has.cpu_shares = wanted.cpu_shares.or(has.cpu_shares);
        has.cpu_quota = wanted.cpu_quota.or(has.cpu_quota);
        has.cpu_period = wanted.cpu_period.or(has.cpu_period);
        has.memory_bytes = wanted.memory_bytes.or(has.memory_bytes);
        has.pids = wanted.pids.or(has.pids);
        has.unified.extend(wanted.unified.clone());
    }

    fn key(&mut self, effect: &PodKeyEffect) -> Option<HostAnswer> {
        match effect {
            PodKeyEffect::Make { key, kind, in_use } => {
                self.keys.retain(|own| own.pod != key.pod || own.slot != key.slot || Some(own.turn) == *in_use);
                self.keys.insert(key.clone());
                Some(HostAnswer::PodKeyMade { request: format!("{kind:?} {}", key.turn) })
            }
            PodKeyEffect::Forget { pod } => {
                self.keys.retain(|own| own.pod != *pod);
                None
            }
        }
    }

    fn set_up(&mut self, volume: &VolumeSetup) -> Result<(), Refusal> {
        match volume {
            VolumeSetup::EmptyDir { place, .. } => {
                self.paths.insert(place.path.clone());
            }
            VolumeSetup::Files { place, files, .. } => {
                self.paths.insert(place.path.clone());
                let text = |content: &FileContent| match content {
                    FileContent::Key { key, then } if self.keys.contains(key) => {
                        Ok(format!("KEY-{}\n{then}", key.turn))
                    }
                    FileContent::Key { .. } => Err(Refusal::new(FailureClass::NotFound, "the key is not known")),
                    other => Ok(String::from_utf8_lossy(other.bytes().unwrap_or_default()).into_owned()),
                };
                let all = files.iter().map(|file| Ok((file.path.clone(), text(&file.content)?)));
                let content = all.collect::<Result<_, Refusal>>()?;
                self.written.insert(place.path.clone(), content);
            }
            VolumeSetup::HostPath { path, kind, .. } => match kind {
                HostPathKind::Unset | HostPathKind::DirectoryOrCreate | HostPathKind::FileOrCreate => {
                    self.existing.insert(path.clone());
                }
                _ if self.existing.contains(path) => {}
                _ => {
                    let message = format!("hostPath {path} doesn't exist");
                    return Err(Refusal::new(FailureClass::Invalid, message));
                }
            },
        }
        Ok(())
    }

    fn prepare_container(&mut self, container: &PrepareContainer) {
        self.paths.extend(container.dirs.iter().map(|d| d.path.clone()));
        self.paths.extend(container.files.iter().map(|f| f.path.clone()));
        self.paths.extend(container.sub_paths.iter().map(|part| part.target.clone()));
    }

    fn clean(&mut self, pod: &CleanPod) {
        for path in [&pod.pod_dir, &pod.log_dir].into_iter().flatten() {
            self.paths.retain(|p| p != path && !is_inside(p, path));
            self.logs.retain(|p, _| !is_inside(p, path));
            self.written.retain(|p, _| !is_inside(p, path));
        }
        if let Some(cgroup) = &pod.cgroup {
            self.cgroups.retain(|c| c != cgroup && !is_inside(c, cgroup));
            self.pods.remove(cgroup);
        }
    }
}

fn is_inside(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use components::edge::host::Dir;

    #[test]
    fn cleaning_takes_what_is_inside_and_nothing_beside() {
        let mut host = Host::default();
        let dirs = ["/r/pods/a", "/r/pods/a/volumes", "/r/pods/ab"];
        let pod = PreparePod {
            dirs: dirs.iter().map(|p| Dir { path: (*p).to_owned(), mode: 0o755 }).collect(),
            ..PreparePod::default()
        };
        host.run(&HostEffect::PreparePod(Box::new(pod))).unwrap();
        let clean = CleanPod { pod_dir: Some("/r/pods/a".into()), ..CleanPod::default() };
        host.run(&HostEffect::CleanPod(Box::new(clean))).unwrap();
        assert_eq!(host.paths.iter().collect::<Vec<_>>(), ["/r/pods/ab"]);
    }

    #[test]
    fn logs_of_earlier_attempts_are_found() {
        let mut host = Host::default();
        host.logged("/l/pod/c/3.log");
        host.logged("/l/pod/c/1.log");
        let pod = PreparePod { log_dirs: vec![("c".into(), "/l/pod/c".into())], ..PreparePod::default() };
        let answer = host.run(&HostEffect::PreparePod(Box::new(pod))).unwrap();
        assert_eq!(answer, Some(HostAnswer::PodPrepared { log_attempts: vec![("c".into(), 3)] }));
    }
}
