//! Log files of the simulated host, and directories of pods that are gone.

use super::{Host, is_inside};
use crate::runtime::model::Refusal;
use components::edge::FailureClass;
use components::edge::host::reclaim::{LogFound, LookAtLogs, LookAtRemains, RemoveRemains, RotateLog};
use components::edge::host::{HostAnswer, HostEffect};
use std::collections::BTreeSet;
use std::sync::Arc;

impl Host {
    /// A container opened its log.
    pub fn logged(&mut self, path: &str) {
        let clock = self.clock;
        self.logs.entry(path.to_owned()).or_insert(clock);
    }

    /// The highest `N` of `N.log*` in a container's log directory.
    pub(super) fn highest_attempt(&self, dir: &str) -> Option<u32> {
        let names = self.logs.keys().filter_map(|path| path.strip_prefix(dir)?.strip_prefix('/'));
        names.filter_map(|name| name.split_once(".log")?.0.parse().ok()).max()
    }

    pub(super) fn run_reclaim(&mut self, effect: &HostEffect) -> Result<Option<HostAnswer>, Refusal> {
        match effect {
            HostEffect::LookAtLogs(asked) => return Ok(Some(self.look_at_logs(asked))),
            HostEffect::LookAtRemains(asked) => return Ok(Some(self.look_at_remains(asked))),
            HostEffect::RotateLog(rotate) => self.rotate(rotate)?,
            HostEffect::RestoreLog(restore) => self.rename(&beside(&restore.path, &restore.renamed), &restore.path)?,
            HostEffect::RemoveLogs(gone) => {
                let rotated = format!("{}.", gone.path);
                self.logs.retain(|path, _| **path != *gone.path && !path.starts_with(&rotated));
                if let Some(link) = &gone.link {
                    self.links.remove(link);
                }
            }
            HostEffect::LinkLogs(wanted) => {
                for (link, target) in wanted.links.iter().filter(|(_, target)| self.logs.contains_key(&**target)) {
                    self.links.insert(link.clone(), target.to_string());
                }
            }
            HostEffect::CleanLogLinks(clean) => {
                let logs = &self.logs;
                self.links.retain(|link, target| {
                    logs.contains_key(target) || clean.keep.contains(link) || !is_inside(target, &clean.logs_dir)
                });
            }
            HostEffect::RemoveRemains(gone) => {
                let (RemoveRemains::PodDir(path) | RemoveRemains::LogDir(path)) = &**gone;
                self.paths.retain(|p| p != path && !is_inside(p, path));
                self.logs.retain(|p, _| !is_inside(p, path));
                self.written.retain(|p, _| !is_inside(p, path));
            }
            HostEffect::PreparePod(_)
            | HostEffect::PrepareContainer(_)
            | HostEffect::CleanPod(_)
            | HostEffect::SetUpVolume(_)
            | HostEffect::SetCgroups(_)
            | HostEffect::ReadEnvFiles(_)
            | HostEffect::AllowShutdown
            | HostEffect::ReadMemory { .. }
            | HostEffect::ReadLogins { .. }
            | HostEffect::Identity(_)
            | HostEffect::PodKeys(_)
            | HostEffect::RunProvider(_)
            | HostEffect::Pulls(_) => {}
        }
        Ok(None)
    }

    fn look_at_logs(&self, asked: &LookAtLogs) -> HostAnswer {
        let found = |path: &Arc<str>| {
            let Some(since) = self.logs.get(&**path) else {
                return Some(LogFound { path: path.clone(), bytes: None, rotated: Vec::new() });
            };
            let bytes = self.clock.since(*since).as_secs() * self.log_rate;
            (bytes >= asked.at_least).then(|| {
                let rotated = self.rotated(path).into_iter().collect();
                LogFound { path: path.clone(), bytes: Some(bytes), rotated }
            })
        };
        HostAnswer::LogsFound { logs: asked.logs.iter().filter_map(found).collect() }
    }

    /// Names of the rotated files of a log.
    pub fn rotated(&self, path: &str) -> BTreeSet<String> {
        let name = |path: &str| path.rsplit_once('/').map(|(_, name)| name.to_owned());
        let rotated = format!("{path}.");
        self.logs.keys().filter(|other| other.starts_with(&rotated)).filter_map(|other| name(other)).collect()
    }

    fn rotate(&mut self, rotate: &RotateLog) -> Result<(), Refusal> {
        for name in &rotate.remove {
            self.logs.remove(&beside(&rotate.path, name));
        }
        for name in &rotate.compress {
            let path = beside(&rotate.path, name);
            if let Some(since) = self.logs.remove(&path) {
                self.logs.insert(format!("{path}.gz"), since);
            }
        }
        self.rename(&rotate.path, &beside(&rotate.path, &rotate.rename_to))
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), Refusal> {
        if self.logs.contains_key(to) {
            return Err(Refusal::new(FailureClass::AlreadyExists, format!("rename {from}: {to} is there")));
        }
        let Some(since) = self.logs.remove(from) else {
            return Err(Refusal::new(FailureClass::NotFound, format!("rename {from}: no such file")));
        };
        self.logs.insert(to.to_owned(), since);
        Ok(())
    }

    fn look_at_remains(&self, asked: &LookAtRemains) -> HostAnswer {
        let known = |uid: &str| asked.known.iter().any(|k| k.as_str() == uid);
        let inside = |top: &str, path: &str| {
            let rest = path.strip_prefix(top)?.strip_prefix('/')?;
            Some(rest.split('/').next().unwrap_or(rest).to_owned())
        };
        let all = || self.paths.iter().chain(self.logs.keys());
        let pod_dirs: BTreeSet<String> =
            all().filter_map(|p| inside(&asked.pods_dir, p)).filter(|name| !known(name)).collect();
        let uid = |name: &str| name.rsplit_once('_').map(|(_, uid)| uid.to_owned()).unwrap_or_default();
        let log_dirs: BTreeSet<String> =
            all().filter_map(|p| inside(&asked.logs_dir, p)).filter(|name| !known(&uid(name))).collect();
        HostAnswer::RemainsFound { pod_dirs: pod_dirs.into_iter().collect(), log_dirs: log_dirs.into_iter().collect() }
    }
}

/// A file beside a log.
fn beside(log: &str, name: &str) -> String {
    log.rsplit_once('/').map_or_else(|| name.to_owned(), |(dir, _)| format!("{dir}/{name}"))
}
