//! The log on standard error. What is logged is for the library to say.

#[path = "log/queue.rs"]
mod queue;

use kube_fanout::config::{LogFormat, LogLevel, ProcessSettings, ProcessTask};
use queue::{LogEnd, LogQueue};
use std::io::IsTerminal;
use tracing::Level;

/// Starts the log. Figures are drawn where the demo's log would go: only what breaks the demo, or what was asked for,
/// may disturb them. Lines are written until what is returned is dropped.
///
/// # Errors
/// No thread can be started.
pub(crate) fn start(process: ProcessSettings, task: &ProcessTask) -> std::io::Result<LogEnd> {
    let level = match (process.log_level, task) {
        (LogLevel::Info | LogLevel::Warn, ProcessTask::Demo(_)) | (LogLevel::Error, _) => {
            Level::ERROR
        }
        (LogLevel::Warn, _) => Level::WARN,
        (LogLevel::Info, _) => Level::INFO,
        (LogLevel::Debug, _) => Level::DEBUG,
        (LogLevel::Trace, _) => Level::TRACE,
    };
    let (queue, end) = LogQueue::start(std::io::stderr())?;
    let log = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(queue);
    match process.log_format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().init(),
    }
    Ok(end)
}
