//! Log lines on standard error, as text or JSON.
//!
//! Owns the set-up of `tracing`, once per process. Which modules say how much is a filter in the
//! settings.

use std::io;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

use crate::config::{LogFormat, LogSettings};

/// Starts logging for the process.
///
/// **Errors** A sentence for the operator when the filter cannot be understood or logging has
/// been started before.
pub fn start(settings: &LogSettings) -> Result<(), String> {
    let filter = EnvFilter::try_new(&settings.level).map_err(|e| {
        format!("--log-level {:?}: {e}; use error, warn, info, debug or trace", settings.level)
    })?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_span_events(FmtSpan::NONE)
        .with_writer(io::stderr);
    let started = match settings.format {
        LogFormat::Text => lines.with_ansi(false).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    started.map_err(|e| format!("logging cannot be started: {e}"))
}
