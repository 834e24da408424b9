//! The command line: commands, flags, their help texts and their defaults.
//!
//! `serve`, `serving`, `apiserver`, `demo`, `check`, `assess` and `inject` hold the flags of one command each, `defaults` every default with its
//! reason, `choices` and `words` the values. Flags are checked one by one here; [`config`](crate::config) checks them together and turns
//! them into settings.

mod apiserver;
mod assess;
mod check;
mod choices;
mod defaults;
mod demo;
mod inject;
mod serve;
mod serving;
mod words;

use std::ffi::OsString;

use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use serde::Serialize;

use crate::log_filter::LogFilter;

pub use apiserver::ApiserverFlags;
pub use assess::AssessFlags;
pub use check::{CheckCategory, CheckFlags};
pub use choices::{
    AuthMode, AuthorizationMode, CompressWatches, LogFormat, LogLevel, OutputFormat,
    UpstreamAuthorizers, choice_name,
};
pub use defaults::*;
pub use demo::DemoFlags;
pub use inject::{InjectAction, InjectFlags};
pub use serve::ServeFlags;
pub use serving::ServingFlags;
pub use words::{ByteLen, InvalidValue, ObjectCount, Percentage, Ratio, ReviewBudget, TimeSpan};

#[cfg(test)]
mod tests;

const AFTER_HELP: &str = "\
Every flag can also be given as an environment variable (--tls-cert is KUBE_FANOUT_TLS_CERT). `serve` also reads a YAML \
file (--config). Precedence: defaults < file < environment < flags.

Exit codes: 0 after an orderly shutdown, 1 for a failure while running, a check that fails or a second signal, 2 for wrong usage, invalid \
settings or a failure at start.";

/// List/watch fan-out gateway for Kubernetes: one upstream watch per resource, thousands of watchers downstream.
#[derive(Clone, Debug, Parser)]
#[command(name = "kube-fanout", version = crate::build_info::long_version(), max_term_width = 110, after_help = AFTER_HELP)]
pub struct Flags {
    /// The command to execute, with its own flags.
    #[command(subcommand)]
    pub command: Command,
    /// Flags of the process, the same for every command.
    #[command(flatten)]
    pub process: ProcessFlags,
}

/// The commands, each with its own flags.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Run the gateway in front of a Kubernetes API server.
    Serve(Box<ServeFlags>),
    /// Run the embedded API server, an in-memory API server for trials and tests.
    Apiserver(Box<ApiserverFlags>),
    /// Run the embedded API server, a gateway and watchers in one process and show live figures, until Ctrl-C.
    Demo(DemoFlags),
    /// Check or print the gateway's settings without starting it.
    Config {
        /// Check or print.
        #[command(subcommand)]
        action: ConfigAction,
    },
    /// Show the status of a running gateway in the terminal: resources, slow clients, rates (docs/STATUS.md).
    #[command(disable_help_flag = true)]
    Top {
        /// Flags of the program `kube-fanout-top`, which this command runs.
        #[arg(value_name = "FLAGS", num_args = 0.., trailing_var_arg = true, allow_hyphen_values = true)]
        flags: Vec<OsString>,
    },
    /// Check whether the gateway will work, before and after it is installed (docs/CHECK.md). Takes the flags of `serve`.
    Check(Box<CheckFlags>),
    /// Show or change whose lists and watches running gateways answer from memory, for a while (docs/CONFIGURATION.md#serving-rules).
    Serving(ServingFlags),
    /// Estimate from two scrapes of the API servers' metrics, and from their audit logs, what a gateway would take off them, and which
    /// clients to move first (docs/ASSESS.md).
    Assess(AssessFlags),
    /// Lead the clients of new pods to gateways by degrees, and all of them back to the API servers
    /// (docs/HOWTO.md#in-cluster-clients-by-degrees).
    Inject(InjectFlags),
    /// Print a script that completes commands and flags in a shell.
    Completions {
        /// The shell.
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Print a manual page, for `man -l -`.
    Man {
        /// The command that the page is about, such as `serve` or `config print`; without it, the program.
        #[arg(value_name = "COMMAND", num_args = 0..)]
        command: Vec<String>,
    },
}

/// Actions on the gateway's settings.
#[derive(Clone, Debug, Subcommand)]
pub enum ConfigAction {
    /// Check the settings that `serve` would use with the same flags.
    Check(Box<ServeFlags>),
    /// Print these settings as a complete configuration file.
    Print(Box<ServeFlags>),
}

/// Flags of the process, the same for every command.
#[derive(Clone, Debug, Args, Serialize)]
#[command(next_help_heading = "Process")]
pub struct ProcessFlags {
    /// Format of the log on standard error.
    #[arg(long, global = true, value_enum, default_value_t = LOG_FORMAT)]
    pub log_format: LogFormat,
    /// Least severe level that is logged.
    #[arg(long, global = true, value_enum, default_value_t = LOG_LEVEL)]
    pub log_level: LogLevel,
    /// Levels of single modules, such as `kube_fanout::upstream=debug,h2=off`; a level without a module replaces --log-level.
    ///
    /// Can be changed at the admin port: docs/CONFIGURATION.md#log-filter.
    #[arg(long, global = true, value_name = "FILTER")]
    pub log_filter: Option<LogFilter>,
    /// Number of worker threads; 0 means one per CPU.
    #[arg(long, global = true, value_name = "N", default_value_t = WORKER_THREADS)]
    pub worker_threads: usize,
    /// Longest orderly shutdown after SIGTERM or SIGINT; what is still open then is cut. A second signal ends the process
    /// immediately.
    #[arg(long, global = true, value_name = "TIME", default_value_t = DRAIN_TIMEOUT)]
    pub drain_timeout: TimeSpan,
    /// How long new clients are still served after SIGTERM or SIGINT, while `/readyz` fails already, so that load balancers
    /// notice. A part of --drain-timeout.
    #[arg(long, global = true, value_name = "TIME", default_value_t = DRAIN_DELAY)]
    pub drain_delay: TimeSpan,
}

/// The command line as clap describes it: commands, flags, help. Global flags have been passed on to the subcommands.
#[must_use]
pub fn command() -> clap::Command {
    let mut command = Flags::command();
    command.build();
    command
}

/// The script that completes commands and flags in `shell`.
#[must_use]
pub fn completions(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Flags::command(), "kube-fanout", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// The manual page of a command, in roff; `path` are its names below the program, such as `config print`.
///
/// None if there is no such command.
#[must_use]
pub fn manual(path: &[String]) -> Option<String> {
    let mut command = &command();
    for name in path {
        command = command.find_subcommand(name)?;
    }
    let mut page = Vec::new();
    // Writing into memory cannot fail.
    let _ = clap_mangen::Man::new(command.clone()).render(&mut page);
    Some(String::from_utf8_lossy(&page).into_owned())
}
