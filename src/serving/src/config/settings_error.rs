//! Why settings are refused, and the checks that every command shares.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::suggestion::did_you_mean;
use crate::cli::TimeSpan;

/// An invalid setting, or settings that contradict each other. The message names the flag.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum SettingsError {
    /// No upstream, or more than one.
    #[error("give one of --kubeconfig, --in-cluster and --upstream")]
    Upstream,
    /// Other API servers than those of `--upstream`.
    #[error(
        "--api-servers needs --kubeconfig or --in-cluster; give --upstream several URLs instead"
    )]
    ApiServersAlone,
    /// A context without a kubeconfig.
    #[error("--context needs --kubeconfig")]
    ContextAlone,
    /// `inject percent` without a number.
    #[error("inject percent needs a whole number from 0 to 100")]
    Percent,
    /// A number for another action of `inject`.
    #[error("only inject percent takes a number")]
    PercentAlone,
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
    /// A path that a configuration file cannot hold.
    #[error("a path is not UTF-8, so it cannot be written into a file")]
    NotUtf8,
    /// A pipe that a setting names as a file cannot be read in time.
    #[error("cannot read {}: {reason}", path.display())]
    Pipe {
        /// The pipe.
        path: std::path::PathBuf,
        /// Why.
        reason: String,
    },
    /// A manual page for a command that does not exist.
    #[error(
        "there is no command {given:?}{}",
        match meant {
            Some(_) => did_you_mean(meant.as_deref()),
            None => "; --help lists the commands".to_owned(),
        }
    )]
    NoCommand {
        /// The words that were given.
        given: String,
        /// The command that was probably meant.
        meant: Option<String>,
    },
    /// Two listeners that cannot be open at the same time: the same port on the same address, or one of them on all addresses.
    #[error(
        "{one} and {other} cannot both listen: {address} and {other_address} are the same port"
    )]
    SameAddress {
        /// One flag.
        one: &'static str,
        /// Its address.
        address: SocketAddr,
        /// The other flag.
        other: &'static str,
        /// The other flag's address.
        other_address: SocketAddr,
    },
}

/// Returns `given` if it lies between `min` and `max`, both included.
pub(super) fn in_range<T: PartialOrd + std::fmt::Display>(
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

/// Returns `given` if it has so many seconds.
pub(super) fn time_in(
    flag: &'static str,
    given: TimeSpan,
    seconds: RangeInclusive<u64>,
) -> Result<Duration, SettingsError> {
    let bound = |seconds| TimeSpan(Duration::from_secs(seconds));
    let (min, max) = (bound(*seconds.start()), bound(*seconds.end()));
    in_range(flag, given, min, max).map(|time| time.0)
}

/// The elements of a list. Empty strings are left out: an empty value is how a shell or a file writes an empty list.
pub(super) fn words(elements: &[String]) -> Vec<String> {
    elements
        .iter()
        .filter(|word| !word.is_empty())
        .cloned()
        .collect()
}

/// Refuses a URL with a user or a password, which nothing would use. The error does not show them.
pub(super) fn refuse_user_info(flag: &'static str, text: &str) -> Result<(), SettingsError> {
    text.rsplit_once('@').map_or(Ok(()), |(_, host)| {
        Err(SettingsError::Value {
            flag,
            given: format!("…@{host}"),
            reason: "write no user and password before the host: they are not used".to_owned(),
        })
    })
}
