//! The settings of each command, validated. The only module that reads flags, the environment and the configuration file.
//!
//! ```text
//! defaults < file < environment < flags ──layers──▶ cli::Flags ──resolve──▶ Settings
//! ```
//!
//! Settings are validated once, here, so that the other modules get plain values that are consistent with each other.
//!
//! Start with [`read`] and [`Settings::resolve`]. `layers` and `file` combine the sources; `serve`, `process`, `auth`, `audit`, `handover`,
//! `embedded`, `check`, `assess`, `inject`, `traces`, `kinds`, `patterns`, `serving` and `serving_rules` validate; `print` writes settings as a file;
//! `live` reads a changed file again; [`OpenFiles`] divides the limit of open files.

mod assess;
mod audit;
mod auth;
mod check;
mod embedded;
mod file;
mod files;
mod handover;
mod inject;
mod kinds;
mod layers;
mod live;
mod patterns;
mod pipes;
mod print;
mod process;
mod removed;
mod serve;
mod serve_settings;
mod serving;
mod serving_rules;
mod settings_error;
mod suggestion;
mod traces;
mod transport;

use std::ffi::OsString;

use crate::cli::{self, Command, ConfigAction, Flags};

pub use crate::cli::{
    AuthMode, AuthorizationMode, CheckCategory, CompressWatches, LogFormat, LogLevel, ObjectCount,
    OutputFormat, Ratio, ReviewBudget, UpstreamAuthorizers,
};
pub use assess::AssessSettings;
pub use audit::{AuditOutput, AuditSettings};
pub use auth::{AuthSettings, FrontProxySettings};
pub use check::{CheckSettings, ClientSettings};
pub use embedded::{ApiserverAuth, ApiserverSettings, DemoSettings};
pub use files::OpenFiles;
pub use handover::HandoverSettings;
pub use inject::{InjectSettings, InjectTask, inject_percent};
pub use kinds::{ExtraKind, InvalidKind};
pub use layers::FlagsError;
pub use live::{ConfigurationFile, InvalidConfiguration, LiveChange, LiveSetting, Reconfiguration};
pub use patterns::{CacheLists, InvalidPattern, ResourcePattern};
pub use pipes::PipeCopies;
pub use process::ProcessSettings;
pub use serve_settings::{
    AdmissionLimits, ExemptSettings, ForwardLimits, RingLimits, ServeSettings, StateSettings,
    UpstreamSource,
};
pub use serving::{ServingChange, ServingRequest};
pub use serving_rules::{
    Answerer, InvalidRules, KnownUser, PASSTHROUGH, RULES_LEN_MAX, ReadSubject, ServingRules,
};
pub use settings_error::SettingsError;
pub use suggestion::{did_you_mean, nearest};
pub use traces::TraceSettings;
pub use transport::{ListenTransport, SniCertificate};

#[cfg(test)]
mod tests;

/// Everything that a process is configured with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Settings that every command has.
    pub process: ProcessSettings,
    /// The command and its settings.
    pub task: ProcessTask,
}

/// A command with its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "a process has only one")]
pub enum ProcessTask {
    /// Run the gateway.
    Serve(ServeSettings),
    /// Run the embedded API server.
    Apiserver(ApiserverSettings),
    /// Run the embedded API server, a gateway and watchers.
    Demo(DemoSettings),
    /// Run `kube-fanout-top` with these flags.
    Top(Vec<OsString>),
    /// Check whether the gateway will work.
    Check(Box<CheckSettings>),
    /// Show or change the serving rules of running gateways.
    Serving(ServingRequest),
    /// Estimate what a gateway would take off the API servers.
    Assess(AssessSettings),
    /// Lead the clients of pods to gateways or back.
    Inject(InjectSettings),
    /// Print the names of all checks.
    CheckList(OutputFormat),
    /// Check what the gateway's settings name, and report that they are valid.
    ConfigCheck(Box<ServeSettings>),
    /// Print this text: settings, an answer, a script or a manual page.
    Print(String),
}

/// Combines flags, environment and file: each returned flag has the value of the source with the highest precedence.
///
/// `variable` looks up an environment variable. The file is the one that `--config` names.
///
/// # Errors
/// [`FlagsError`]; `--help` and `--version` are also returned as errors.
pub fn read(
    arguments: Vec<OsString>,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Flags, FlagsError> {
    layers::read(arguments, variable)
}

/// Refuses variables that begin like the gateway's and are of no flag. Those that Kubernetes sets for a Service are ignored.
///
/// # Errors
/// [`FlagsError::UnknownVariable`].
pub fn check_variables(
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<(), FlagsError> {
    layers::check_variables(variables)
}

/// Looks up a variable in the process environment; an argument for [`read`].
#[must_use]
pub fn environment(name: &str) -> Option<OsString> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the only place where the environment is read"
    )]
    std::env::var_os(name)
}

/// Whether the user has not asked for text without colours (no-color.org).
fn allows_color() -> bool {
    environment("NO_COLOR").is_none_or(|value| value.is_empty())
}

impl Settings {
    /// Validates flags and turns them into settings.
    ///
    /// # Errors
    /// The first invalid setting.
    pub fn resolve(flags: Flags) -> Result<Self, SettingsError> {
        let process = ProcessSettings::resolve(&flags.process)?;
        let task = match flags.command {
            Command::Serve(flags) => ProcessTask::Serve(ServeSettings::resolve(*flags)?),
            Command::Apiserver(flags) => {
                ProcessTask::Apiserver(ApiserverSettings::resolve(*flags)?)
            }
            Command::Demo(flags) => ProcessTask::Demo(DemoSettings::resolve(flags)?),
            Command::Top { flags } => ProcessTask::Top(flags),
            Command::Check(flags) if flags.list => ProcessTask::CheckList(flags.output),
            Command::Check(flags) => {
                let settings = CheckSettings::resolve(*flags, allows_color())?;
                ProcessTask::Check(Box::new(settings))
            }
            Command::Assess(flags) => ProcessTask::Assess(AssessSettings::resolve(flags)?),
            Command::Inject(flags) => ProcessTask::Inject(InjectSettings::resolve(flags)?),
            Command::Config {
                action: ConfigAction::Check(flags),
            } => {
                let settings = ServeSettings::resolve(*flags)?;
                ProcessTask::ConfigCheck(Box::new(settings))
            }
            Command::Config {
                action: ConfigAction::Print(serve),
            } => {
                let text = print::file(&flags.process, &serve)?;
                ServeSettings::resolve(*serve)?;
                ProcessTask::Print(text)
            }
            Command::Serving(flags) => ProcessTask::Serving(ServingRequest::resolve(&flags)?),
            Command::Completions { shell } => ProcessTask::Print(cli::completions(shell)),
            Command::Man { command } => match cli::manual(&command) {
                Some(page) => ProcessTask::Print(page),
                None => {
                    let given = command.join(" ");
                    let known = layers::commands();
                    let names = known.iter().map(|(name, _)| name.as_str());
                    let meant = nearest(&given, names).map(str::to_owned);
                    return Err(SettingsError::NoCommand { given, meant });
                }
            },
        };
        Ok(Self { process, task })
    }
}
