//! The log on standard error. What is logged is for the library to say.

use kube_fanout::config::{LogFormat, LogLevel, ProcessSettings, Task};
use tracing::Level;

/// Starts the log. Figures are drawn where the demo's log would go: only what breaks the demo, or what was asked for,
/// may disturb them.
pub(crate) fn start(process: ProcessSettings, task: &Task) {
    let level = match (process.log_level, task) {
        (LogLevel::Info | LogLevel::Warn, Task::Demo(_)) | (LogLevel::Error, _) => Level::ERROR,
        (LogLevel::Warn, _) => Level::WARN,
        (LogLevel::Info, _) => Level::INFO,
        (LogLevel::Debug, _) => Level::DEBUG,
        (LogLevel::Trace, _) => Level::TRACE,
    };
    let log = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr);
    match process.log_format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().init(),
    }
}
