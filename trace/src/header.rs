//! What stands once in a file: the header, and what is said of missing frames and of the end.
//!
//! The header is JSON, so that a later ticklet with more configuration fields still reads it (fields it adds need a
//! serde default) and `ticklet trace info` can show it whatever it holds.

use components::node::Boot;
use components::time::Wall;
use serde::{Deserialize, Serialize};

use crate::format::TraceError;

/// What a run began with.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Header {
    /// Version of the ticklet that ran.
    pub ticklet: String,
    /// Wall time of the start of the run.
    pub started: Wall,
    /// Number of the file within its run; only file 0 begins at the start.
    pub segment: u32,
    /// True when the first frame is the first tick of the run: only then it can be replayed.
    pub from_boot: bool,
    /// What the engine began with.
    pub boot: Boot,
}

/// Frames that were not written (slow disk, full disk).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Gap {
    /// The last tick before it; 0 when there is none.
    pub after_tick: u64,
    /// How many frames are missing.
    pub frames: u64,
}

/// How a file ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Ending {
    /// The run ended and closed it.
    Closed,
    /// It reached its size limit; the run went on, see later segments.
    Full,
    /// No end was written: the process was killed, or it is still recording.
    Open,
    /// The last block is cut off at this offset: the machine or the process stopped while it was written.
    CutOff {
        /// Bytes up to the last whole block.
        offset: u64,
    },
    /// It was cut by `ticklet trace cut`.
    Cut,
}

impl Ending {
    /// The ending as a clause for people.
    #[must_use]
    pub fn describe(self) -> String {
        match self {
            Self::Closed => "closed at the end of the run".to_owned(),
            Self::Full => "full; the run went on".to_owned(),
            Self::Open => "not closed: ticklet was killed or is still recording".to_owned(),
            Self::CutOff { offset } => format!("cut off after byte {offset}, read up to there"),
            Self::Cut => "cut by `ticklet trace cut`".to_owned(),
        }
    }
}

impl Header {
    /// As the content of a block.
    ///
    /// # Errors
    /// When it cannot be put into JSON.
    pub fn encode(&self) -> Result<Vec<u8>, TraceError> {
        serde_json::to_vec(self).map_err(|e| TraceError::Encode { what: e.to_string() })
    }

    /// From the content of a block.
    ///
    /// # Errors
    /// When a field is missing or has another type.
    pub fn decode(content: &[u8]) -> Result<Self, TraceError> {
        serde_json::from_slice(content).map_err(|e| TraceError::BadHeader { what: e.to_string() })
    }
}
