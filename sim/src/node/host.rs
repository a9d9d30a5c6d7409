//! The simulated host: which directories, volumes and logs exist. Decides how host effects end.

use crate::runtime::model::Refusal;
use components::edge::FailureClass;
use components::edge::host::{
    Cgroup, CleanPod, EnvFileKey, HostAnswer, HostEffect, HostPathKind, PrepareContainer, PreparePod, VolumeSetup,
};
use components::ids::Sensitive;
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
    /// Limits of the cgroups that hold those of pods, by path.
    pub limits: BTreeMap<String, Cgroup>,
    /// Values of environment files, by path in the volume and key.
    pub env: BTreeMap<(String, String), Sensitive>,
    /// Highest attempt that wrote a log, by container log directory.
    pub logs: BTreeMap<String, u32>,
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
            HostEffect::SetCgroups(cgroups) => {
                self.limits = cgroups.iter().map(|c| (c.path.clone(), c.clone())).collect();
                Ok(None)
            }
            HostEffect::ReadEnvFiles(keys) => {
                let value = |key: &EnvFileKey| self.env.get(&(key.path.clone(), key.key.clone())).cloned();
                Ok(Some(HostAnswer::EnvFilesRead(keys.iter().map(|key| Ok(value(key))).collect())))
            }
        }
    }

    /// A container wrote to its log.
    pub fn logged(&mut self, path: &str) {
        let Some((directory, file)) = path.rsplit_once('/') else { return };
        let Some(attempt) = file.strip_suffix(".log").and_then(|n| n.parse().ok()) else { return };
        let highest = self.logs.entry(directory.to_owned()).or_insert(attempt);
        *highest = (*highest).max(attempt);
    }

    /// Anything below this path.
    pub fn below<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a str> {
        let inside = move |p: &&String| p.as_str() == path || is_inside(p, path);
        self.paths.iter().filter(inside).map(String::as_str)
    }

    fn prepare_pod(&mut self, pod: &PreparePod) -> Result<HostAnswer, Refusal> {
        self.cgroups.extend(pod.cgroup.iter().map(|c| c.path.clone()));
        self.paths.extend(pod.dirs.iter().map(|d| d.path.clone()));
        self.paths.extend(pod.files.iter().map(|f| f.path.clone()));
        for volume in &pod.volumes {
            self.set_up(volume)?;
        }
        let attempts = pod.log_dirs.iter().filter_map(|(name, dir)| Some((name.clone(), *self.logs.get(dir)?)));
        let mut log_attempts: Vec<_> = attempts.collect();
        log_attempts.sort();
        Ok(HostAnswer::PodPrepared { log_attempts })
    }

    fn set_up(&mut self, volume: &VolumeSetup) -> Result<(), Refusal> {
        match volume {
            VolumeSetup::EmptyDir { path, .. } | VolumeSetup::EmptyDirMemory { path, .. } => {
                self.paths.insert(path.clone());
            }
            VolumeSetup::HostPath { path, kind, .. } => match kind {
                HostPathKind::Unset | HostPathKind::DirectoryOrCreate | HostPathKind::FileOrCreate => {
                    self.existing.insert(path.clone());
                }
                _ if self.existing.contains(path) => {}
                _ => {
                    let message = format!("hostPath type check failed: {path} is not there");
                    return Err(Refusal::new(FailureClass::Invalid, message));
                }
            },
        }
        Ok(())
    }

    fn prepare_container(&mut self, container: &PrepareContainer) {
        self.paths.extend(container.dirs.iter().map(|d| d.path.clone()));
        self.paths.extend(container.files.iter().map(|f| f.path.clone()));
    }

    fn clean(&mut self, pod: &CleanPod) {
        for path in [&pod.pod_dir, &pod.log_dir].into_iter().flatten() {
            self.paths.retain(|p| p != path && !is_inside(p, path));
            self.logs.retain(|p, _| !is_inside(p, path));
        }
        if let Some(cgroup) = &pod.cgroup {
            self.cgroups.retain(|c| c != cgroup && !is_inside(c, cgroup));
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
