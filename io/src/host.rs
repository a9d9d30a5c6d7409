//! This host: directories, files, volumes and cgroups of pods, and the machine's facts.
//!
//! Decides nothing: it makes and removes exactly what an effect names, and refuses paths outside of the places that
//! belong to pods. The work blocks, so it runs on tokio's blocking pool; dropping the future stops it at its next step.

mod cgroup;
mod env_file;
mod files;
mod logins;
mod logs;
pub mod machine;
pub mod memory;
pub(crate) mod mounts;
mod priority;
mod provider;
mod pulls;
mod remains;
mod remove;
mod shared;
mod shutdown;
mod subpath;
mod volume;

use self::cgroup::Cgroups;
use components::edge::host::{Cgroup, CleanPod, HostAnswer, HostEffect, PrepareContainer, PreparePod};
use components::edge::{Answer, Failure, FailureClass, Outcome};
use nix::errno::Errno;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::certs::podkeys::PodKeys;
use crate::logind::ShutdownLock;
use crate::port::Port;

pub use self::machine::{machine, swap_on};
pub(crate) use self::priority::give_way;
pub use self::shared::share;
pub use self::shutdown::shutdown_under_way;

/// Where pods' things lie. Nothing outside is ever removed.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// Directory of pod directories, `ROOT/pods`.
    pub pods_dir: String,
    /// `podLogsDir`.
    pub pod_logs_dir: String,
    /// `cgroupRoot` in cgroupfs form; `/` or empty for the root of each hierarchy.
    pub cgroup_root: String,
    /// Delays a shutdown of the machine while it is held.
    pub shutdown_lock: ShutdownLock,
}

/// Why something on this host did not work.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
#[error("{message}")]
pub struct HostError {
    /// Class that decisions branch on.
    pub class: FailureClass,
    /// What was tried, where, and what the system said.
    pub message: String,
}

impl HostError {
    fn new(class: FailureClass, message: impl Into<String>) -> Self {
        Self { class, message: message.into() }
    }

    /// `what path: system's text`, with the class that the error number stands for.
    fn io(what: &str, path: &Path, error: &io::Error) -> Self {
        let class = error.raw_os_error().map_or(FailureClass::Other, |number| class_of(Errno::from_raw(number)));
        Self::new(class, format!("{what} {}: {error}", path.display()))
    }

    fn errno(what: &str, path: &Path, errno: Errno) -> Self {
        Self::io(what, path, &io::Error::from(errno))
    }
}

impl From<HostError> for Outcome {
    fn from(error: HostError) -> Self {
        Self::Failed(Failure { class: error.class, message: error.message })
    }
}

const fn class_of(errno: Errno) -> FailureClass {
    match errno {
        Errno::ENOENT => FailureClass::NotFound,
        Errno::EEXIST => FailureClass::AlreadyExists,
        Errno::EACCES | Errno::EPERM | Errno::EROFS => FailureClass::Denied,
        Errno::ENOSPC | Errno::EDQUOT | Errno::ENOMEM | Errno::EMFILE | Errno::ENFILE | Errno::EFBIG => {
            FailureClass::Exhausted
        }
        Errno::EINVAL | Errno::ENAMETOOLONG | Errno::ENOTDIR | Errno::EISDIR | Errno::ELOOP => FailureClass::Invalid,
        Errno::ENOSYS | Errno::EOPNOTSUPP => FailureClass::Unimplemented,
        _ => FailureClass::Other,
    }
}

/// Set when nobody waits for the work any more.
#[derive(Clone, Default, Debug)]
struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Called between steps.
    fn check(&self) -> Result<(), HostError> {
        if self.0.load(Ordering::Relaxed) {
            return Err(HostError::new(FailureClass::Other, "stopped half-way on request"));
        }
        Ok(())
    }
}

/// Sets the flag when the future that waits is dropped.
struct CancelOnDrop(Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

/// The port of this host.
#[derive(Clone, Debug)]
pub struct Host {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    config: HostConfig,
    cgroups: Cgroups,
    keys: PodKeys,
}

impl Host {
    /// Looks at the cgroup hierarchies that are mounted and takes the places that belong to pods.
    ///
    /// # Errors
    /// When the mount table cannot be read or shows no cgroup hierarchy.
    pub fn new(config: HostConfig) -> Result<Self, HostError> {
        let mounts = mounts::read()?;
        let cgroups = Cgroups::find(&mounts, &config.cgroup_root)?;
        Ok(Self { inner: Arc::new(Inner { config, cgroups, keys: PodKeys::default() }) })
    }

    #[cfg(test)]
    fn with(config: HostConfig, cgroups: Cgroups) -> Self {
        Self { inner: Arc::new(Inner { config, cgroups, keys: PodKeys::default() }) }
    }
}

impl Port<HostEffect> for Host {
    async fn run(&self, effect: HostEffect) -> Outcome {
        if let HostEffect::RunProvider(asked) = &effect {
            return match provider::run(asked).await {
                Ok(provided) => Outcome::Done(Answer::Host(HostAnswer::Provided(Box::new(provided)))),
                Err(message) => HostError::new(FailureClass::Other, message).into(),
            };
        }
        let inner = Arc::clone(&self.inner);
        let cancel = Cancel::default();
        let _guard = CancelOnDrop(cancel.clone());
        let done = tokio::task::spawn_blocking(move || inner.run(&effect, &cancel)).await;
        match done {
            Ok(Ok(answer)) => Outcome::Done(answer),
            Ok(Err(error)) => error.into(),
            Err(error) => HostError::new(FailureClass::Other, format!("host work did not end: {error}")).into(),
        }
    }
}

impl Inner {
    fn run(&self, effect: &HostEffect, cancel: &Cancel) -> Result<Answer, HostError> {
        match effect {
            HostEffect::PreparePod(prepare) => self.prepare_pod(prepare, cancel),
            HostEffect::PrepareContainer(prepare) => prepare_container(prepare, cancel),
            HostEffect::CleanPod(clean) => self.clean_pod(clean, cancel),
            HostEffect::LookAtLogs(asked) => {
                Ok(Answer::Host(HostAnswer::LogsFound { logs: logs::look(asked, cancel)? }))
            }
            HostEffect::RotateLog(rotate) => done(logs::rotate(rotate, &self.config.pod_logs_dir, cancel)),
            HostEffect::RestoreLog(restore) => done(logs::restore(restore, &self.config.pod_logs_dir)),
            HostEffect::RemoveLogs(remove) => done(logs::remove(remove, &self.config.pod_logs_dir, cancel)),
            HostEffect::LinkLogs(wanted) => done(logs::link(wanted)),
            HostEffect::CleanLogLinks(clean) => done(logs::clean_links(clean, cancel)),
            HostEffect::LookAtRemains(asked) => remains::look(asked).map(Answer::Host),
            HostEffect::RemoveRemains(gone) => {
                done(remains::remove(gone, &self.config.pods_dir, &self.config.pod_logs_dir, cancel))
            }
            HostEffect::SetUpVolume(setup) => done(volume::set_up(&self.keys.fill(setup), cancel)),
            HostEffect::SetCgroups(cgroups) => self.set_cgroups(cgroups, cancel),
            HostEffect::ReadEnvFiles(keys) => {
                let found = keys.iter().map(|key| env_file::find(key).map_err(|error| error.message)).collect();
                Ok(Answer::Host(HostAnswer::EnvFilesRead(found)))
            }
            HostEffect::AllowShutdown => {
                self.config.shutdown_lock.release();
                Ok(Answer::Nothing)
            }
            HostEffect::ReadMemory { pod, containers } => {
                let used = |path: &String| self.cgroups.memory(path);
                let containers = containers.iter().map(used).collect::<Result<_, _>>()?;
                Ok(Answer::Host(HostAnswer::MemoryRead { pod: used(pod)?, containers }))
            }
            HostEffect::ReadLogins { paths } => {
                let (logins, problems) = logins::read(paths);
                Ok(Answer::Host(HostAnswer::LoginsRead { logins, problems }))
            }
            HostEffect::Pulls(effect) => {
                let answer = pulls::run(effect)?;
                Ok(answer.map_or(Answer::Nothing, |answer| Answer::Host(HostAnswer::Pulls(Box::new(answer)))))
            }
            HostEffect::RunProvider(_) => Err(HostError::new(FailureClass::Invalid, "programs are not run here")),
            HostEffect::PodKeys(effect) => match self.keys.run(effect) {
                Ok(None) => Ok(Answer::Nothing),
                Ok(Some(request)) => Ok(Answer::Host(HostAnswer::PodKeyMade { request })),
                Err(error) => Err(HostError::new(FailureClass::Other, error)),
            },
            HostEffect::Identity(effect) => match crate::certs::run(effect) {
                Ok(answer) => Ok(Answer::Host(HostAnswer::Identity(Box::new(answer)))),
                Err(failure) => Err(HostError::new(failure.class, failure.message)),
            },
        }
    }

    fn prepare_pod(&self, prepare: &PreparePod, cancel: &Cancel) -> Result<Answer, HostError> {
        if let Some(cgroup) = &prepare.cgroup {
            self.cgroups.create(cgroup)?;
        }
        files::make_dirs(&prepare.dirs, || cancel.check())?;
        prepare.files.iter().try_for_each(files::write_file)?;
        // One volume's trouble is told and keeps none of the others.
        let mut failed = Vec::new();
        for setup in &prepare.volumes {
            cancel.check()?;
            if let Err(error) = volume::set_up(&self.keys.fill(setup), cancel) {
                failed.push((Arc::clone(setup.name()), error.message));
            }
        }
        let mut log_attempts = Vec::new();
        for (container, dir) in &prepare.log_dirs {
            if let Some(highest) = files::highest_log_attempt(Path::new(dir))? {
                log_attempts.push((Arc::clone(container), highest));
            }
        }
        log_attempts.sort();
        Ok(Answer::Host(if failed.is_empty() {
            HostAnswer::PodPrepared { log_attempts }
        } else {
            HostAnswer::PodPreparedInPart { log_attempts, failed }
        }))
    }

    fn set_cgroups(&self, cgroups: &[Cgroup], cancel: &Cancel) -> Result<Answer, HostError> {
        for cgroup in cgroups {
            cancel.check()?;
            self.cgroups.create(cgroup)?;
        }
        Ok(Answer::Nothing)
    }

    fn clean_pod(&self, clean: &CleanPod, cancel: &Cancel) -> Result<Answer, HostError> {
        // All three are tried, so that one obstacle does not keep the rest; the first trouble is reported.
        let mut results = Vec::new();
        if let Some(path) = &clean.cgroup {
            results.push(self.cgroups.remove(path, cancel));
        }
        if let Some(dir) = &clean.pod_dir {
            let removed = below(dir, &self.config.pods_dir).and_then(|dir| {
                mounts::unmount_below(&dir, cancel)?;
                remove::remove_tree(&dir, cancel)
            });
            results.push(removed);
        }
        if let Some(dir) = &clean.log_dir {
            let removed = below(dir, &self.config.pod_logs_dir).and_then(|dir| remove::remove_tree(&dir, cancel));
            results.push(removed);
        }
        results.into_iter().collect::<Result<Vec<()>, _>>()?;
        Ok(Answer::Nothing)
    }
}

fn prepare_container(prepare: &PrepareContainer, cancel: &Cancel) -> Result<Answer, HostError> {
    for dir in &prepare.dirs {
        cancel.check()?;
        // Parents belong to the pod: no other start waits for a mkdir that finds the directory there.
        files::create_dir(Path::new(&dir.path), dir.mode)?;
    }
    for file in &prepare.files {
        cancel.check()?;
        files::write_file(file)?;
    }
    for part in &prepare.sub_paths {
        cancel.check()?;
        subpath::bind(part)?;
    }
    Ok(Answer::Nothing)
}

fn done(result: Result<(), HostError>) -> Result<Answer, HostError> {
    result.map(|()| Answer::Nothing)
}

/// The path when it is plain, absolute and strictly below `top`.
fn below(path: &str, top: &str) -> Result<PathBuf, HostError> {
    let path = Path::new(path);
    let plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    match path.strip_prefix(top) {
        Ok(rest) if plain && path.is_absolute() && rest.components().next().is_some() => Ok(path.to_owned()),
        _ => Err(HostError::new(
            FailureClass::Invalid,
            format!("refused to remove {}: it is not below {top}", path.display()),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use components::edge::host::{Dir, File, Medium, OwnPlace, SubPath, VolumeSetup};
    use std::fs;

    struct Rig {
        top: tempfile::TempDir,
        host: Host,
    }

    impl Rig {
        fn new() -> Self {
            let top = tempfile::tempdir().unwrap();
            let at = |name: &str| top.path().join(name).display().to_string();
            let config = HostConfig {
                pods_dir: at("pods"),
                pod_logs_dir: at("logs"),
                cgroup_root: String::new(),
                shutdown_lock: ShutdownLock::default(),
            };
            // No cgroup is touched here: the hierarchy is an empty folder.
            let line = format!("1 1 0:1 / {} rw - cgroup2 cgroup2 rw", at("cgroup"));
            let cgroups = Cgroups::find(&mounts::parse(&line), "").unwrap();
            Self { host: Host::with(config, cgroups), top }
        }

        fn path(&self, name: &str) -> String {
            self.top.path().join(name).display().to_string()
        }

        async fn run(&self, effect: HostEffect) -> Result<Answer, Failure> {
            match self.host.run(effect).await {
                Outcome::Done(answer) => Ok(answer),
                Outcome::Failed(failure) => Err(failure),
                other => panic!("{other:?}"),
            }
        }
    }

    #[tokio::test]
    async fn a_pod_is_prepared_and_cleaned_twice_each() {
        let rig = Rig::new();
        let pod = rig.path("pods/uid");
        let logs = rig.path("logs/ns_p_uid");
        let prepare = PreparePod {
            files: Vec::new(),
            dirs: vec![Dir { path: pod.clone(), mode: 0o750 }, Dir { path: format!("{logs}/c"), mode: 0o755 }],
            volumes: vec![VolumeSetup::EmptyDir {
                name: Arc::from("m"),
                place: OwnPlace {
                    path: format!("{pod}/volumes/m"),
                    marker: format!("{pod}/plugins/m"),
                    group: None,
                    only_on_mismatch: false,
                },
                medium: Medium::Memory { size_bytes: 65536 },
            }],
            log_dirs: vec![(Arc::from("c"), format!("{logs}/c")), (Arc::from("a"), format!("{logs}/a"))],
            cgroup: None,
        };
        let container = PrepareContainer {
            dirs: vec![Dir { path: format!("{pod}/containers/c"), mode: 0o750 }],
            files: vec![File { path: format!("{pod}/etc-hosts"), mode: 0o644, content: "h".to_owned() }],
            sub_paths: vec![SubPath {
                volume: Arc::from("m"),
                container: Arc::from("c"),
                root: format!("{pod}/volumes/m"),
                path: "sub".to_owned(),
                target: format!("{pod}/volume-subpaths/m/c/0"),
            }],
        };
        for attempts in [vec![], vec![(Arc::from("c"), 3)]] {
            let answer = rig.run(HostEffect::PreparePod(Box::new(prepare.clone()))).await.unwrap();
            assert_eq!(answer, Answer::Host(HostAnswer::PodPrepared { log_attempts: attempts }));
            rig.run(HostEffect::PrepareContainer(Box::new(container.clone()))).await.unwrap();
            fs::write(format!("{logs}/c/3.log"), "").unwrap();
            fs::write(format!("{pod}/volumes/m/file"), "").unwrap();
        }
        let clean = CleanPod { pod_dir: Some(pod.clone()), log_dir: Some(logs.clone()), cgroup: Some("/podu".into()) };
        for _ in 0..2 {
            let answer = rig.run(HostEffect::CleanPod(Box::new(clean.clone()))).await.unwrap();
            assert_eq!(answer, Answer::Nothing);
            assert!(!Path::new(&pod).exists() && !Path::new(&logs).exists());
        }
        assert!(Path::new(&rig.path("pods")).exists());
    }

    #[tokio::test]
    async fn nothing_outside_the_pods_places_is_removed() {
        let rig = Rig::new();
        fs::create_dir_all(rig.path("pods/uid")).unwrap();
        for dir in ["pods", "", "logs/x", "pods/../pods/uid"] {
            let clean = CleanPod { pod_dir: Some(rig.path(dir)), ..CleanPod::default() };
            let failure = rig.run(HostEffect::CleanPod(Box::new(clean))).await.unwrap_err();
            assert_eq!(failure.class, FailureClass::Invalid);
            assert!(failure.message.starts_with("refused to remove"), "{}", failure.message);
        }
        // One refused part does not keep the others from being cleaned.
        fs::create_dir_all(rig.path("logs/pod")).unwrap();
        let clean = CleanPod {
            pod_dir: Some("relative".to_owned()),
            log_dir: Some(rig.path("logs/pod")),
            cgroup: Some("/".to_owned()),
        };
        rig.run(HostEffect::CleanPod(Box::new(clean))).await.unwrap_err();
        assert!(Path::new(&rig.path("pods/uid")).exists());
        assert!(!Path::new(&rig.path("logs/pod")).exists());
    }

    #[tokio::test]
    async fn a_failed_volume_says_what_the_kubelet_says() {
        let rig = Rig::new();
        let prepare = PreparePod {
            volumes: vec![VolumeSetup::HostPath {
                name: Arc::from("h"),
                path: "/no/such".to_owned(),
                kind: components::edge::host::HostPathKind::Directory,
            }],
            ..PreparePod::default()
        };
        let answer = rig.run(HostEffect::PreparePod(Box::new(prepare))).await.unwrap();
        let failed = vec![(Arc::from("h"), "hostPath /no/such doesn't exist".to_owned())];
        assert_eq!(answer, Answer::Host(HostAnswer::PodPreparedInPart { log_attempts: Vec::new(), failed }));
    }

    #[test]
    fn errors_have_their_class() {
        for (errno, class) in [
            (Errno::ENOSPC, FailureClass::Exhausted),
            (Errno::EDQUOT, FailureClass::Exhausted),
            (Errno::ENOENT, FailureClass::NotFound),
            (Errno::EROFS, FailureClass::Denied),
            (Errno::EBUSY, FailureClass::Other),
        ] {
            let error = HostError::errno("write", Path::new("/x"), errno);
            assert_eq!(error.class, class);
            assert!(error.message.starts_with("write /x: "), "{error}");
        }
    }
}
