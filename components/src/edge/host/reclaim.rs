//! Logs that are rotated or removed, links to them, and what pods of the past left on this host.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Input of [`super::HostEffect::LookAtLogs`].
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct LookAtLogs {
    /// Absolute paths of log files that are being written.
    pub logs: Vec<Arc<str>>,
    /// Only files of at least this size, and missing ones, are told of.
    pub at_least: u64,
}

/// A log file that is large, or missing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LogFound {
    /// Its path, as asked for.
    pub path: Arc<str>,
    /// Its size; `None` when it is missing.
    pub bytes: Option<u64>,
    /// Names of the files beside it that begin with its name and a dot, sorted.
    pub rotated: Vec<String>,
}

/// Input of [`super::HostEffect::RotateLog`]: removes, compresses and renames, in this order. Stops at the first trouble.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct RotateLog {
    /// Absolute path of the log file.
    pub path: Arc<str>,
    /// Names of files beside it to remove; a missing one counts as removed.
    pub remove: Vec<String>,
    /// Names of files beside it to compress to `NAME.gz`.
    pub compress: Vec<String>,
    /// The log file's new name.
    pub rename_to: String,
}

/// Input of [`super::HostEffect::RestoreLog`]: gives a renamed log file its name back, if no other has it by now.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct RestoreLog {
    /// Absolute path it had.
    pub path: Arc<str>,
    /// The name beside it that it has now.
    pub renamed: String,
}

/// Input of [`super::HostEffect::RemoveLogs`].
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct RemoveLogs {
    /// Absolute path of a log file; the files beside it that begin with its name and a dot go as well.
    pub path: Arc<str>,
    /// A link to it that goes as well.
    pub link: Option<String>,
}

/// Input of [`super::HostEffect::LinkLogs`]: (link, target). Links are made where their target is there and replaced
/// where they point elsewhere.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct LinkLogs {
    /// The directory of the links, made when missing.
    pub dir: String,
    /// Absolute paths of links and their targets.
    pub links: Vec<(String, Arc<str>)>,
}

/// Input of [`super::HostEffect::CleanLogLinks`]: removes links that point below `logs_dir` to nothing.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct CleanLogLinks {
    /// The directory of the links.
    pub dir: String,
    /// Only links that point below this directory.
    pub logs_dir: String,
    /// Links that stay, by path: their log file may be missing for a moment.
    pub keep: Vec<String>,
}

/// Input of [`super::HostEffect::LookAtRemains`].
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct LookAtRemains {
    /// Directory of pod directories.
    pub pods_dir: String,
    /// Directory of pod log directories.
    pub logs_dir: String,
    /// Uids of pods whose directories are not told of.
    pub known: Vec<crate::ids::PodUid>,
}

/// Input of [`super::HostEffect::RemoveRemains`]: removes a directory whose pod is gone. Refused while anything is
/// mounted below it; nothing is unmounted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub enum RemoveRemains {
    /// A pod directory, by its absolute path.
    PodDir(String),
    /// A pod's log directory, by its absolute path.
    LogDir(String),
}

impl Default for RemoveRemains {
    fn default() -> Self {
        Self::PodDir(String::new())
    }
}
