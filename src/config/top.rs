//! Settings of `top`.

use std::path::PathBuf;
use std::time::Duration;

use http::{Uri, uri};

use super::settings_error::{SettingsError, in_range};
use crate::cli::{TimeSpan, TopFlags, TopSort};

/// The gateway makes a document each second at most; a picture that is older than an hour is a typing error.
const INTERVAL_RANGE: (TimeSpan, TimeSpan) = (
    TimeSpan(Duration::from_secs(1)),
    TimeSpan(Duration::from_secs(3_600)),
);

/// Settings of `top`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopSettings {
    /// The gateway's admin port: plain HTTP, with a host.
    pub url: Uri,
    /// File with a bearer token.
    pub token_file: Option<PathBuf>,
    /// Time from one picture to the next.
    pub interval: Duration,
    /// Print one picture and exit.
    pub once: bool,
    /// Which resources are shown first.
    pub sort: TopSort,
    /// Whether colours may be used: `NO_COLOR` is not set.
    pub color: bool,
}

impl TopSettings {
    pub(super) fn resolve(flags: TopFlags, color: bool) -> Result<Self, SettingsError> {
        let invalid = |reason: &str| SettingsError::Value {
            flag: "url",
            given: flags.url.clone(),
            reason: reason.to_owned(),
        };
        let url: Uri = flags
            .url
            .parse()
            .map_err(|_| invalid("not a URL: write http://127.0.0.1:9090"))?;
        if url.scheme() != Some(&uri::Scheme::HTTP) {
            return Err(invalid(
                "the admin port speaks plain HTTP: write http://127.0.0.1:9090",
            ));
        }
        if url
            .authority()
            .is_some_and(|authority| authority.as_str().contains('@'))
        {
            return Err(invalid(
                "users and passwords are not supported: use --token-file",
            ));
        }
        let interval = in_range(
            "interval",
            flags.interval,
            INTERVAL_RANGE.0,
            INTERVAL_RANGE.1,
        )?;
        Ok(Self {
            url,
            token_file: flags.token_file,
            interval: interval.0,
            once: flags.once,
            sort: flags.sort,
            color,
        })
    }
}
