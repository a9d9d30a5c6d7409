//! The kubelet's configuration: types, decoding, defaults, merging, validation, feature gates.
//!
//! Everything here is pure: bytes and names come in, a configuration or a list of problems goes out. Reading files and
//! the command line is the binary's work.

mod acted;
mod assemble;
mod decode;
mod eviction;
pub mod gates;
mod names;
mod objects;
mod record;
mod syntax;
pub mod tree;
mod types;
mod validate;

pub use self::acted::not_acted_on;
pub use self::assemble::{Assembled, Document, Origins, assemble, resolve_path};
pub use self::decode::{Findings, Problem};
pub use self::eviction::{SIGNALS, Threshold, is_signal, parse_minimum_reclaim, parse_threshold};
pub use self::names::{label_value_problem, qualified_name_problem};
pub use self::objects::*;
pub use self::syntax::{MAX_FILE_BYTES, parse};
pub use self::types::*;
pub use self::validate::FieldError;
