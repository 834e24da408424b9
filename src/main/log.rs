//! Sets up the log on standard error: its level, its format, and the queue that writes it.

#[path = "log/queue.rs"]
mod queue;

use kube_fanout::config::{LogFormat, LogLevel, ProcessSettings, ProcessTask};
use queue::{LogEnd, LogQueue};
use std::io::IsTerminal;
use tracing::Level;

/// Starts the log. The demo, `top` and `check` write to the same terminal, so their log shows only errors unless a more verbose level was
/// chosen. Dropping the returned value writes all remaining lines and stops the log.
///
/// # Errors
/// If the thread that writes the log cannot be started.
pub(crate) fn start(process: ProcessSettings, task: &ProcessTask) -> std::io::Result<LogEnd> {
    let level = match (process.log_level, task) {
        (
            LogLevel::Info | LogLevel::Warn,
            ProcessTask::Demo(_) | ProcessTask::Top(_) | ProcessTask::Check(_),
        )
        | (LogLevel::Error, _) => Level::ERROR,
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
