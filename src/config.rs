//! Settings: resolved and valid, one struct a command. The only place that reads flags, environment and file.
//!
//! ```text
//! defaults < file < environment < flags ──layers──▶ cli::Flags ──resolve──▶ Settings
//! ```
//!
//! A setting is checked once, here; parts get plain values that are true together.

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

/// Everything a process needs to know at start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The same for every command.
    pub process: ProcessSettings,
    /// What to do, with what.
    pub task: ProcessTask,
}

/// What the process does.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "there is one in a process")]
pub enum ProcessTask {
    /// Run the gateway.
    Serve(ServeSettings),
    /// Run the embedded API server.
    Apiserver(ApiserverSettings),
    /// Run both, and watchers.
    Demo(DemoSettings),
    /// Say that the gateway's settings are valid.
    ConfigCheck,
    /// Print the gateway's settings: this YAML.
    ConfigPrint(String),
}

/// Settings of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessSettings {
    /// Form of the log.
    pub log_format: LogFormat,
    /// Least severe level logged.
    pub log_level: LogLevel,
    /// Threads of the runtime, at least 1.
    pub worker_threads: usize,
    /// Longest orderly end.
    pub drain_timeout: Duration,
}

/// Settings of the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServeSettings {
    /// Where objects come from.
    pub upstream: UpstreamSource,
    /// Longest frame taken from upstream, in bytes: one watch event or one list item.
    pub frame_len_max: usize,
    /// Address for clients; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// What is spoken on that address.
    pub transport: ListenTransport,
    /// Address for operators, with places of its own; port 0 lets the system choose.
    pub operator_listen: Option<SocketAddr>,
    /// How callers are authenticated and authorized.
    pub auth: AuthSettings,
    /// What is audited, if anything.
    pub audit: Option<AuditSettings>,
    /// Address for metrics and health; port 0 lets the system choose.
    pub admin_listen: SocketAddr,
    /// Caches that start at once and stay.
    pub pin_resources: Vec<Gvr>,
    /// What may be cached at all.
    pub cached: CacheLists,
    /// How long a cache outlives its last client.
    pub idle_resource_timeout: Duration,
    /// Bounds of every resource's ring.
    pub ring: RingLimits,
    /// Longest wait for more events before clients are woken.
    pub coalesce_delay_max: Duration,
    /// Bounds of what clients may take together.
    pub admission: AdmissionLimits,
    /// Whose requests shares do not limit.
    pub exempt: ExemptSettings,
    /// What is forwarded at once.
    pub forwards: ForwardLimits,
}

/// Where objects come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpstreamSource {
    /// A kubeconfig file and, if not its current one, a context.
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// The context's name.
        context: Option<String>,
    },
    /// The service account of the pod around.
    InCluster,
    /// An `http` or `https` address without credentials.
    Url(http::Uri),
}

/// What is spoken to clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenTransport {
    /// HTTP in clear.
    PlainHttp,
    /// TLS with this identity.
    Tls {
        /// Certificate chain, PEM.
        cert: PathBuf,
        /// Private key, PEM.
        key: PathBuf,
        /// Further identities, for the names that clients ask for.
        sni: Vec<SniCertificate>,
    },
}

/// A certificate for clients that ask for certain names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SniCertificate {
    /// Certificate chain, PEM.
    pub cert: PathBuf,
    /// Private key, PEM.
    pub key: PathBuf,
    /// Names, the first label may be `*`; empty for those in the certificate.
    pub names: Vec<String>,
}

impl std::fmt::Display for SniCertificate {
    /// As `--tls-sni-cert-key` takes it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{},{}", self.cert.display(), self.key.display())?;
        if self.names.is_empty() {
            return Ok(());
        }
        write!(f, ":{}", self.names.join(","))
    }
}

/// Bounds of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingLimits {
    /// Most events.
    pub events_max: usize,
    /// Most bytes.
    pub bytes_max: usize,
    /// Younger events stay while the other two allow.
    pub age_min: Duration,
}

/// Bounds of what clients may take together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionLimits {
    /// Connections at once; 0 for what the limit of open files leaves.
    pub connections_max: usize,
    /// Watches at once.
    pub watches_max: usize,
    /// Lists sent at once.
    pub lists_max: usize,
    /// Lists that wait for their turn at once.
    pub lists_waiting_max: usize,
    /// How long one waits.
    pub list_wait_max: Duration,
    /// How long a list may wait for its client and keep its place while others wait for one.
    pub list_stall_max: Duration,
    /// Resident bytes of the process above which no new list or watch is let in; 0 for no bound.
    pub memory_max: usize,
}

/// Callers whom shares do not limit. The bounds of all callers together hold for them, too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExemptSettings {
    /// Names of users.
    pub users: Vec<String>,
    /// Groups.
    pub groups: Vec<String>,
}

/// Bounds of what is forwarded for all clients together. Open files may allow less (see [`OpenFiles`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForwardLimits {
    /// Requests at once that end soon.
    pub requests_max: usize,
    /// Watches, logs and the like at once.
    pub watches_max: usize,
    /// Upgraded connections at once.
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
    /// Objects at first.
    pub objects: Vec<ObjectCount>,
    /// Writes a second.
    pub churn: u32,
    /// About the length of an object's JSON, in bytes.
    pub object_len: usize,
    /// Kinds besides the built-in ones.
    pub extra_kinds: Vec<ExtraKind>,
    /// Plain HTTP, or TLS.
    pub transport: ListenTransport,
    /// How callers are checked, if they are.
    pub auth: Option<ApiserverAuth>,
}

/// How the embedded API server checks its callers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiserverAuth {
    /// File with users by token.
    pub token_file: Option<PathBuf>,
    /// PEM file with the authorities of client certificates.
    pub client_ca: Option<PathBuf>,
    /// PEM file with the authorities of front proxies, and their common names.
    pub front_proxy: Option<(PathBuf, Vec<String>)>,
    /// The server's own audiences.
    pub audiences: Vec<String>,
    /// Whether requests without credentials are taken.
    pub anonymous: bool,
    /// What decides.
    pub authorization: AuthorizationMode,
}

/// A kind that the embedded API server serves as it would a custom resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtraKind {
    /// Plural, version, group.
    pub gvr: Gvr,
    /// `Widget`.
    pub kind: String,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
}

/// Settings of the demo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DemoSettings {
    /// The embedded API server, on a port the system chooses.
    pub apiserver: ApiserverSettings,
    /// Watchers behind the gateway.
    pub watchers: usize,
    /// Ends by itself after this time.
    pub duration: Option<Duration>,
}

/// Settings that cannot be true together, or not at all. The message names the flag.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// No upstream, or more than one.
    #[error("give one of --kubeconfig, --in-cluster and --upstream")]
    Upstream,
    /// A context without the file it is in.
    #[error("--context needs --kubeconfig")]
    ContextAlone,
    /// Neither TLS nor the wish to go without, or both.
    #[error("give either --tls-cert and --tls-key, or --plain-http")]
    Transport,
    /// Something open to whoever reaches the port.
    #[error(
        "{what} is refused on {listen}, which is not loopback; add --i-know-this-is-insecure to do it anyway"
    )]
    Insecure {
        /// `--plain-http` or `--auth none`.
        what: &'static str,
        /// The address.
        listen: SocketAddr,
    },
    /// The embedded API server is for trials and stays on loopback, whether or not it checks its callers.
    #[error("--listen {0}: the embedded API server serves loopback addresses only")]
    ApiserverOffLoopback(SocketAddr),
    /// A flag that does nothing without another.
    #[error("--{flag} needs {needed}")]
    Needs {
        /// The flag.
        flag: &'static str,
        /// What else to give.
        needed: &'static str,
    },
    /// A number out of its range.
    #[error("--{flag} must be between {min} and {max}, not {given}")]
    OutOfRange {
        /// The flag.
        flag: &'static str,
        /// What was given.
        given: String,
        /// Least value.
        min: String,
        /// Greatest value.
        max: String,
    },
    /// A value of a flag that stands for something else than it says.
    #[error("--{flag} {given}: {reason}")]
    Value {
        /// The flag.
        flag: &'static str,
        /// What was given.
        given: String,
        /// Why not.
        reason: String,
    },
    /// One port for two listeners.
    #[error("{one} and {other} are both {address}")]
    SameAddress {
        /// A flag.
        one: &'static str,
        /// Another.
        other: &'static str,
        /// The address.
        address: SocketAddr,
    },
}

/// Reads flags, environment and file into flags that carry the value of the highest layer.
///
/// `variable` looks an environment variable up. Reads the file that `--config` names.
///
/// # Errors
/// [`FlagsError`], which is also how `--help` and `--version` come back.
pub fn read(
    arguments: Vec<std::ffi::OsString>,
    variable: impl Fn(&str) -> Option<std::ffi::OsString>,
) -> Result<Flags, FlagsError> {
    layers::read(arguments, variable)
}

/// The process environment, for [`read`].
#[must_use]
pub fn environment(name: &str) -> Option<std::ffi::OsString> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place where the environment is read"
    )]
    std::env::var_os(name)
}

impl Settings {
    /// Makes settings of flags.
    ///
    /// # Errors
    /// The first of the settings that is not valid.
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

/// More threads than any machine that this was tried on has CPUs; a larger number is a slip of the pen.
const WORKER_THREADS_MAX: usize = 1_024;
/// An end that takes longer than an hour is not an end.
const DRAIN_TIMEOUT_MAX: Duration = Duration::from_secs(3_600);

impl ProcessSettings {
    fn resolve(flags: &cli::ProcessFlags) -> Result<Self, SettingsError> {
        let worker_threads = match flags.worker_threads {
            0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            given => in_range("worker-threads", given, 1, WORKER_THREADS_MAX)?,
        };
        Ok(Self {
            log_format: flags.log_format,
            log_level: flags.log_level,
            worker_threads,
            drain_timeout: in_range(
                "drain-timeout",
                flags.drain_timeout,
                cli::DurationWord(Duration::ZERO),
                cli::DurationWord(DRAIN_TIMEOUT_MAX),
            )?
            .0,
        })
    }
}

/// The words of a list. An empty one is how a shell or a file says "none".
fn words(given: &[String]) -> Vec<String> {
    given
        .iter()
        .filter(|word| !word.is_empty())
        .cloned()
        .collect()
}

/// `given`, if it lies between `min` and `max`, both included.
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
