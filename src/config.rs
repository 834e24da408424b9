//! The settings of each command, validated. The only module that reads flags, the environment and the configuration file.
//!
//! ```text
//! defaults < file < environment < flags ──layers──▶ cli::Flags ──resolve──▶ Settings
//! ```
//!
//! Settings are validated once, here, so that the other modules get plain values that are consistent with each other.
//!
//! Start with [`read`] and [`Settings::resolve`]. `layers` and `file` combine the sources; `serve`, `auth`, `audit`, `embedded`, `kinds`
//! and `patterns` validate; `print` writes settings as a file; [`OpenFiles`] divides the limit of open files.

mod audit;
mod auth;
mod embedded;
mod file;
mod files;
mod kinds;
mod layers;
mod patterns;
mod print;
mod serve;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::cli::{self, Command, ConfigAction, Flags};
use crate::resource::Gvr;

pub use crate::cli::{AuthMode, AuthorizationMode, LogFormat, LogLevel, ObjectCount};
pub use audit::{AuditOutput, AuditSettings};
pub use auth::{AuthSettings, FrontProxySettings};
pub use files::OpenFiles;
pub use kinds::InvalidKind;
pub use layers::FlagsError;
pub use patterns::{CacheLists, InvalidPattern, ResourcePattern};

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
    /// Report that the gateway's settings are valid.
    ConfigCheck,
    /// Print the gateway's settings, given as YAML.
    ConfigPrint(String),
}

/// Settings that every command has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessSettings {
    /// Format of the log.
    pub log_format: LogFormat,
    /// Least severe level that is logged.
    pub log_level: LogLevel,
    /// Number of the runtime's worker threads, at least 1.
    pub worker_threads: usize,
    /// Longest orderly shutdown.
    pub drain_timeout: Duration,
}

/// Settings of the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServeSettings {
    /// The upstream API server.
    pub upstream: UpstreamSource,
    /// Longest frame accepted from upstream, in bytes: one watch event or one list item.
    pub frame_len_max: usize,
    /// Address for clients; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// Plain HTTP or TLS, on `listen` and `operator_listen`.
    pub transport: ListenTransport,
    /// Address for operators, with limits of its own; port 0 lets the system choose.
    pub operator_listen: Option<SocketAddr>,
    /// How callers are authenticated and authorized.
    pub auth: AuthSettings,
    /// The audit log, if there is one.
    pub audit: Option<AuditSettings>,
    /// Address for metrics and health; port 0 lets the system choose.
    pub admin_listen: SocketAddr,
    /// Resources whose caches are filled at start and kept.
    pub pin_resources: Vec<Gvr>,
    /// Resources that may be cached.
    pub cached: CacheLists,
    /// How long a cache is kept after its last client has left.
    pub idle_resource_timeout: Duration,
    /// Bounds of each resource's history.
    pub ring: RingLimits,
    /// Longest delay of an event, under load, in which more events are collected for the same write.
    pub coalesce_delay_max: Duration,
    /// Limits for all clients together.
    pub admission: AdmissionLimits,
    /// Callers that are not limited to a share.
    pub exempt: ExemptSettings,
    /// Limits of forwarded requests.
    pub forwards: ForwardLimits,
}

/// How to reach the upstream API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpstreamSource {
    /// By a kubeconfig file.
    Kubeconfig {
        /// Path of the kubeconfig.
        path: PathBuf,
        /// The context's name; `None` for the current one.
        context: Option<String>,
    },
    /// By the service account of the pod that the process runs in.
    InCluster,
    /// By an `http` or `https` URL, without credentials.
    Url(http::Uri),
}

/// The protocol below HTTP on a port for clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenTransport {
    /// HTTP without TLS.
    PlainHttp,
    /// TLS with these certificates.
    Tls {
        /// Certificate chain, PEM.
        cert: PathBuf,
        /// Private key, PEM.
        key: PathBuf,
        /// Further certificates, chosen by the server name that a client sends (SNI).
        sni: Vec<SniCertificate>,
    },
}

/// A certificate for certain server names (SNI).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SniCertificate {
    /// Certificate chain, PEM.
    pub cert: PathBuf,
    /// Private key, PEM.
    pub key: PathBuf,
    /// Server names; the first label may be `*`. Empty for the names in the certificate.
    pub names: Vec<String>,
}

impl std::fmt::Display for SniCertificate {
    /// Writes the syntax of `--tls-sni-cert-key`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{},{}", self.cert.display(), self.key.display())?;
        if self.names.is_empty() {
            return Ok(());
        }
        write!(f, ":{}", self.names.join(","))
    }
}

/// Bounds of the history of one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingLimits {
    /// Maximum number of events.
    pub events_max: usize,
    /// Maximum number of bytes.
    pub bytes_max: usize,
    /// Events younger than this stay as long as the other two bounds allow.
    pub age_min: Duration,
}

/// Limits of connections, watches, lists and memory, for all clients together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionLimits {
    /// Maximum number of client connections; 0 for what the limit of open files leaves.
    pub connections_max: usize,
    /// Maximum number of watches.
    pub watches_max: usize,
    /// Maximum number of lists that are sent at the same time.
    pub lists_max: usize,
    /// Maximum number of lists in the queue.
    pub lists_waiting_max: usize,
    /// Longest wait of a list in the queue.
    pub list_wait_max: Duration,
    /// How long a list keeps its permit while its client reads nothing and other lists wait for a permit.
    pub list_stall_max: Duration,
    /// Resident bytes of the process above which new watches and lists are refused; 0 for no bound.
    pub memory_max: usize,
}

/// Callers that are not limited to a share. The limits for all clients together apply to them, too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExemptSettings {
    /// Names of users.
    pub users: Vec<String>,
    /// Names of groups.
    pub groups: Vec<String>,
}

/// Limits of forwarded requests, for all clients together. The limit of open files may allow fewer (see [`OpenFiles`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForwardLimits {
    /// Maximum number of short requests.
    pub requests_max: usize,
    /// Maximum number of watches, logs and other long requests.
    pub watches_max: usize,
    /// Maximum number of upgraded connections.
    pub tunnels_max: usize,
}

impl Default for ForwardLimits {
    fn default() -> Self {
        Self {
            requests_max: cli::FORWARDED_REQUESTS_MAX,
            watches_max: cli::FORWARDED_WATCHES_MAX,
            tunnels_max: cli::TUNNELS_MAX,
        }
    }
}

/// Settings of the embedded API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiserverSettings {
    /// Loopback address; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// Initial objects.
    pub objects: Vec<ObjectCount>,
    /// Writes per second.
    pub churn: u32,
    /// Approximate length of an object's JSON, in bytes.
    pub object_len: usize,
    /// Kinds besides the built-in ones.
    pub extra_kinds: Vec<ExtraKind>,
    /// Plain HTTP, or TLS.
    pub transport: ListenTransport,
    /// How callers are authenticated and authorized; `None` if every request is allowed.
    pub auth: Option<ApiserverAuth>,
}

/// How the embedded API server authenticates and authorizes its callers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiserverAuth {
    /// File with users by bearer token.
    pub token_file: Option<PathBuf>,
    /// PEM file with the authorities of client certificates.
    pub client_ca: Option<PathBuf>,
    /// PEM file with the authorities of front proxies, and the accepted common names; empty for any.
    pub front_proxy: Option<(PathBuf, Vec<String>)>,
    /// The server's own audiences.
    pub audiences: Vec<String>,
    /// Whether requests without credentials are those of `system:anonymous`. Otherwise they are refused.
    pub anonymous: bool,
    /// How requests are authorized.
    pub authorization: AuthorizationMode,
}

/// A kind that the embedded API server serves like a custom resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtraKind {
    /// Group, version and plural name.
    pub gvr: Gvr,
    /// The kind's name, such as `Widget`.
    pub kind: String,
    /// Whether its objects are namespaced.
    pub namespaced: bool,
}

/// Settings of the demo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DemoSettings {
    /// The embedded API server, on a port that the system chooses.
    pub apiserver: ApiserverSettings,
    /// Number of watchers that connect to the gateway.
    pub watchers: usize,
    /// Ends the demo after this time; `None` runs until the drain begins.
    pub duration: Option<Duration>,
}

/// An invalid setting, or settings that contradict each other. The message names the flag.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// No upstream, or more than one.
    #[error("give one of --kubeconfig, --in-cluster and --upstream")]
    Upstream,
    /// A context without a kubeconfig.
    #[error("--context needs --kubeconfig")]
    ContextAlone,
    /// Neither TLS nor plain HTTP was chosen, or both.
    #[error("give either --tls-cert and --tls-key, or --plain-http")]
    Transport,
    /// A choice that lets every client that reaches the port read the cluster.
    #[error(
        "{what} is refused on {listen}, which is not loopback; add --i-know-this-is-insecure to do it anyway"
    )]
    Insecure {
        /// `--plain-http` or `--auth none`.
        what: &'static str,
        /// The address.
        listen: SocketAddr,
    },
    /// The embedded API server is for trials and serves only loopback, whether or not it authenticates its callers.
    #[error("--listen {0}: the embedded API server serves loopback addresses only")]
    ApiserverOffLoopback(SocketAddr),
    /// A flag that has no effect without another one.
    #[error("--{flag} needs {needed}")]
    Needs {
        /// The flag.
        flag: &'static str,
        /// What the flag needs.
        needed: &'static str,
    },
    /// A number outside its range.
    #[error("--{flag} must be between {min} and {max}, not {given}")]
    OutOfRange {
        /// The flag.
        flag: &'static str,
        /// The value that was given.
        given: String,
        /// Smallest allowed value.
        min: String,
        /// Largest allowed value.
        max: String,
    },
    /// A value of a flag that has the right syntax for the command line, but no valid meaning.
    #[error("--{flag} {given}: {reason}")]
    Value {
        /// The flag.
        flag: &'static str,
        /// The value that was given.
        given: String,
        /// Why the value is invalid.
        reason: String,
    },
    /// The same address and port for two listeners.
    #[error("{one} and {other} are both {address}")]
    SameAddress {
        /// One flag.
        one: &'static str,
        /// The other flag.
        other: &'static str,
        /// The address.
        address: SocketAddr,
    },
}

/// Combines flags, environment and file: each returned flag has the value of the source with the highest precedence.
///
/// `variable` looks up an environment variable. The file is the one that `--config` names.
///
/// # Errors
/// [`FlagsError`]; `--help` and `--version` are also returned as errors.
pub fn read(
    arguments: Vec<std::ffi::OsString>,
    variable: impl Fn(&str) -> Option<std::ffi::OsString>,
) -> Result<Flags, FlagsError> {
    layers::read(arguments, variable)
}

/// Looks up a variable in the process environment; an argument for [`read`].
#[must_use]
pub fn environment(name: &str) -> Option<std::ffi::OsString> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the only place where the environment is read"
    )]
    std::env::var_os(name)
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
            Command::Config {
                action: ConfigAction::Check(flags),
            } => {
                ServeSettings::resolve(*flags)?;
                ProcessTask::ConfigCheck
            }
            Command::Config {
                action: ConfigAction::Print(flags),
            } => ProcessTask::ConfigPrint(print::file(&process, &ServeSettings::resolve(*flags)?)),
        };
        Ok(Self { process, task })
    }
}

/// More than any machine has CPUs; a larger number is a typing error.
const WORKER_THREADS_MAX: usize = 1_024;
/// A longer shutdown than an hour is a typing error.
const DRAIN_TIMEOUT_MAX: Duration = Duration::from_secs(3_600);

impl ProcessSettings {
    fn resolve(flags: &cli::ProcessFlags) -> Result<Self, SettingsError> {
        let worker_threads = match flags.worker_threads {
            0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            count => in_range("worker-threads", count, 1, WORKER_THREADS_MAX)?,
        };
        Ok(Self {
            log_format: flags.log_format,
            log_level: flags.log_level,
            worker_threads,
            drain_timeout: in_range(
                "drain-timeout",
                flags.drain_timeout,
                cli::TimeSpan(Duration::ZERO),
                cli::TimeSpan(DRAIN_TIMEOUT_MAX),
            )?
            .0,
        })
    }
}

/// The elements of a list. Empty strings are left out: an empty value is how a shell or a file writes an empty list.
fn words(elements: &[String]) -> Vec<String> {
    elements
        .iter()
        .filter(|word| !word.is_empty())
        .cloned()
        .collect()
}

/// Returns `given` if it lies between `min` and `max`, both included.
fn in_range<T: PartialOrd + std::fmt::Display>(
    flag: &'static str,
    given: T,
    min: T,
    max: T,
) -> Result<T, SettingsError> {
    if given >= min && given <= max {
        return Ok(given);
    }
    Err(SettingsError::OutOfRange {
        flag,
        given: given.to_string(),
        min: min.to_string(),
        max: max.to_string(),
    })
}
