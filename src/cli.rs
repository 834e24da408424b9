//! Flags as typed, with the help text. Nothing is checked across flags here; `config` makes settings of them.

mod apiserver;
mod defaults;
mod demo;
mod serve;
mod words;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};

pub use apiserver::{ApiserverFlags, AuthorizationMode};
pub use defaults::*;
pub use demo::DemoFlags;
pub use serve::{AuthMode, ServeFlags};
pub use words::{ByteLen, DurationWord, InvalidWord, ObjectCount};

#[cfg(test)]
mod tests;

const AFTER_HELP: &str = "\
Every flag can also be given as an environment variable (--tls-cert is KUBE_FANOUT_TLS_CERT). `serve` also reads a YAML \
file (--config). Precedence: defaults < file < environment < flags.

Exit codes: 0 after an orderly end, 1 for a failure while running, 2 for wrong usage or settings.";

/// List/watch fan-out gateway for Kubernetes: one upstream watch per resource, thousands of watchers downstream.
#[derive(Clone, Debug, Parser)]
#[command(name = "kube-fanout", version = crate::build_info::long_version(), max_term_width = 110, after_help = AFTER_HELP)]
pub struct Flags {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Flags of the process, the same for every command.
    #[command(flatten)]
    pub process: ProcessFlags,
}

/// What the process is to do.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Run the gateway in front of a Kubernetes API server.
    Serve(Box<ServeFlags>),
    /// Run the embedded API server: lists, watches and churn from memory, plain HTTP, for trials and tests.
    Apiserver(Box<ApiserverFlags>),
    /// Run embedded API server, gateway and watchers in one process and show live figures, until Ctrl-C.
    Demo(DemoFlags),
    /// Check or print the gateway's settings without starting it.
    Config {
        /// Which of the two.
        #[command(subcommand)]
        action: ConfigAction,
    },
}

/// What to do with the gateway's settings.
#[derive(Clone, Debug, Subcommand)]
pub enum ConfigAction {
    /// Check the settings that `serve` would use, given the same flags.
    Check(Box<ServeFlags>),
    /// Print these settings as a complete configuration file.
    Print(Box<ServeFlags>),
}

/// Flags of the process, the same for every command.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Process")]
pub struct ProcessFlags {
    /// Form of the log on standard error.
    #[arg(long, global = true, value_enum, default_value_t = LOG_FORMAT)]
    pub log_format: LogFormat,
    /// Least severe level that is logged.
    #[arg(long, global = true, value_enum, default_value_t = LOG_LEVEL)]
    pub log_level: LogLevel,
    /// Threads that serve; 0 means one per CPU.
    #[arg(long, global = true, value_name = "N", default_value_t = WORKER_THREADS)]
    pub worker_threads: usize,
    /// Longest orderly end after SIGTERM or SIGINT; what is open then is cut.
    #[arg(long, global = true, value_name = "TIME", default_value_t = DRAIN_TIMEOUT)]
    pub drain_timeout: DurationWord,
}

/// Form of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Levels of the log, most severe first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// What somebody must act on.
    Error,
    /// What somebody should look at.
    Warn,
    /// Changes of state.
    Info,
    /// What a request did.
    Debug,
    /// Everything.
    Trace,
}

/// The word by which flags, files and the printed configuration name a choice.
#[must_use]
pub fn word_of<T: ValueEnum>(choice: T) -> String {
    choice
        .to_possible_value()
        .map(|value| value.get_name().to_owned())
        .unwrap_or_default()
}

/// The command line's description: commands, flags, help.
#[must_use]
pub fn command() -> clap::Command {
    let mut command = Flags::command();
    command.build();
    command
}
