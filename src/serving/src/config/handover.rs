//! Settings of taking caches over from other gateways.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use super::settings_error::{SettingsError, refuse_user_info, time_in};
use crate::cli::ServeFlags;
use crate::resource::names::is_dns_subdomain;

/// Leaves half of what upstream keeps of its history at least, so that its watch continues where the handover ended.
const TIMEOUT: Duration = Duration::from_secs(30);
/// As much as the largest resource of a large cluster takes, with its history.
const BYTES_MAX: u64 = 4 << 30;
/// Clients that were sent away take some seconds to arrive elsewhere; a longer interval than an hour is a typing error.
const REBALANCE_SECONDS: RangeInclusive<u64> = 5..=3_600;
const FROM: &str = "handover-from";

/// From where and how caches are taken over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandoverSettings {
    /// Another gateway, or the name of several; `http` or `https`, with a host.
    pub from: http::Uri,
    /// PEM bundle of the certificate authorities to trust instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// The name in the certificates, if it is not the host of `from`.
    pub server_name: Option<String>,
    /// The file with the bearer token.
    pub token_file: Option<PathBuf>,
    /// Longest time of one handover.
    pub timeout: Duration,
    /// Maximum size of a cache, in bytes.
    pub len_max: u64,
    /// How often the number of watches is compared with the other gateways'; `None` for never.
    pub rebalance_interval: Option<Duration>,
}

impl HandoverSettings {
    pub(super) fn resolve(flags: &ServeFlags) -> Result<Option<Self>, SettingsError> {
        let Some(text) = &flags.handover_from else {
            let given = [
                ("handover-ca-file", flags.handover_ca_file.is_some()),
                ("handover-server-name", flags.handover_server_name.is_some()),
                ("handover-token-file", flags.handover_token_file.is_some()),
                ("rebalance-interval", !flags.rebalance_interval.0.is_zero()),
            ];
            let alone = given.into_iter().find(|(_, is_given)| *is_given);
            return alone.map_or(Ok(None), |(flag, _)| {
                Err(SettingsError::Needs {
                    flag,
                    needed: "--handover-from",
                })
            });
        };
        Ok(Some(Self {
            from: parse(text)?,
            ca_file: flags.handover_ca_file.clone(),
            server_name: server_name(flags)?,
            token_file: flags.handover_token_file.clone(),
            timeout: TIMEOUT,
            len_max: BYTES_MAX,
            rebalance_interval: rebalance_interval(flags)?,
        }))
    }
}

#[cfg(any(test, feature = "testing"))]
#[allow(clippy::unwrap_used, reason = "only tests use it")]
impl HandoverSettings {
    /// Settings for tests, without files.
    ///
    /// # Panics
    /// If the address is none.
    #[must_use]
    pub fn without_files(from: &str) -> Self {
        Self {
            from: from.parse().unwrap(),
            ca_file: None,
            server_name: None,
            token_file: None,
            timeout: Duration::from_secs(1),
            len_max: 1 << 20,
            rebalance_interval: None,
        }
    }
}

fn rebalance_interval(flags: &ServeFlags) -> Result<Option<Duration>, SettingsError> {
    let interval = flags.rebalance_interval;
    if interval.0.is_zero() {
        return Ok(None);
    }
    time_in("rebalance-interval", interval, REBALANCE_SECONDS).map(Some)
}

/// Parses the URL. Objects and the token travel in clear text over `http`, so it is for loopback only.
fn parse(text: &str) -> Result<http::Uri, SettingsError> {
    let refuse = |reason: &str| SettingsError::Value {
        flag: FROM,
        given: text.to_owned(),
        reason: reason.to_owned(),
    };
    refuse_user_info(FROM, text)?;
    let url: http::Uri = text.parse().map_err(|_| refuse("not a URL"))?;
    let host = url.host().unwrap_or_default();
    let host = host.trim_matches(|c| matches!(c, '[' | ']'));
    let is_loopback = host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    let is_known = matches!(url.scheme_str(), Some("http" | "https"));
    if !is_known || host.is_empty() {
        return Err(refuse("write https:// and a host"));
    }
    if url.scheme_str() == Some("http") && !is_loopback {
        return Err(refuse("write https://; http:// is for loopback addresses"));
    }
    if url.path() != "/" || url.query().is_some() {
        return Err(refuse(
            "write only the scheme, host and port, without a path",
        ));
    }
    Ok(url)
}

fn server_name(flags: &ServeFlags) -> Result<Option<String>, SettingsError> {
    let Some(name) = &flags.handover_server_name else {
        return Ok(None);
    };
    if !is_dns_subdomain(name) && name.parse::<IpAddr>().is_err() {
        return Err(SettingsError::Value {
            flag: "handover-server-name",
            given: name.clone(),
            reason: "not a host name".to_owned(),
        });
    }
    Ok(Some(name.clone()))
}
