//! Sets up logging to standard error.

use tracing::level_filters::LevelFilter;

/// Starts logging: text or JSON; verbosity 0 to 3 shows information, from 4 on also details.
pub fn init(json: bool, verbosity: u32) {
    let level = if verbosity >= 4 { LevelFilter::DEBUG } else { LevelFilter::INFO };
    let builder = tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(level).with_target(false);
    // A second call in one process changes nothing.
    let _ = if json { builder.json().try_init() } else { builder.with_ansi(false).try_init() };
}
