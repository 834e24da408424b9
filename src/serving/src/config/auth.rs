//! Settings of authentication and authorization, and their validation.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use http::HeaderName;

use super::settings_error::{SettingsError, time_in, words};
use super::transport::ListenTransport;
use crate::cli::{self, AuthMode, ReviewBudget, ServeFlags, UpstreamAuthorizers};

/// A decision that is older than an hour says little about the caller's present rights.
const TTL_SECONDS: RangeInclusive<u64> = 0..=3_600;
/// kube-apiserver's default for denials of an authorization webhook (`--authorization-webhook-cache-unauthorized-ttl`).
const DENY_TTL: Duration = Duration::from_secs(30);
/// Checking more often than every second would be a load of its own; checking less often than every hour would hardly revoke anything.
const INTERVAL_SECONDS: RangeInclusive<u64> = 1..=3_600;
/// Streams must not continue without a successful check for longer than a day.
const GRACE_SECONDS: RangeInclusive<u64> = 0..=86_400;

/// How callers are authenticated and authorized.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthSettings {
    /// How callers are authenticated and authorized.
    pub mode: AuthMode,
    /// Whether requests without credentials are those of `system:anonymous`. Otherwise they are refused.
    pub anonymous: bool,
    /// Audiences, one of which a token must be valid for; empty for the API server's own.
    pub token_audiences: Vec<String>,
    /// How long an allowed access is cached; zero for not at all.
    pub allow_ttl: Duration,
    /// How long a denied access is cached; zero for not at all.
    pub deny_ttl: Duration,
    /// Permissions of open streams that no event covers are checked again at most once in this interval.
    pub reauthorize_interval: Duration,
    /// How many reviews these checks may send.
    pub review_budget: ReviewBudget,
    /// How long open streams continue while checks of their permission fail.
    pub reauthorize_grace: Duration,
    /// Whether the gateway finds out what else than RBAC and the node authorizer decides upstream.
    pub upstream_authorizers: UpstreamAuthorizers,
    /// PEM file with the authorities of client certificates.
    pub client_ca: Option<PathBuf>,
    /// The trusted front proxies, if any.
    pub front_proxy: Option<FrontProxySettings>,
}

/// Which front proxies are trusted, and in which headers they name the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrontProxySettings {
    /// PEM file with the authorities of the front proxies' certificates.
    pub client_ca: PathBuf,
    /// Common names of the front proxies; empty for any.
    pub allowed_names: Vec<String>,
    /// Headers with the user's name; at least one.
    pub username_headers: Vec<HeaderName>,
    /// Headers with the user's uid.
    pub uid_headers: Vec<HeaderName>,
    /// Headers with the user's groups.
    pub group_headers: Vec<HeaderName>,
    /// Prefixes of the headers with extra attributes of the user, in lower case.
    pub extra_header_prefixes: Vec<String>,
}

impl AuthSettings {
    /// The defaults, with this mode.
    #[must_use]
    pub const fn of_mode(mode: AuthMode) -> Self {
        Self {
            mode,
            anonymous: false,
            token_audiences: Vec::new(),
            allow_ttl: cli::AUTH_ALLOW_TTL.0,
            deny_ttl: DENY_TTL,
            reauthorize_interval: cli::REAUTHORIZE_INTERVAL.0,
            review_budget: cli::REVIEW_BUDGET,
            reauthorize_grace: cli::REAUTHORIZE_GRACE.0,
            upstream_authorizers: cli::UPSTREAM_AUTHORIZERS,
            client_ca: None,
            front_proxy: None,
        }
    }

    /// Whether the TLS handshake requests a client certificate.
    #[must_use]
    pub const fn wants_certificates(&self) -> bool {
        self.client_ca.is_some() || self.front_proxy.is_some()
    }

    pub(super) fn resolve(
        flags: &ServeFlags,
        transport: &ListenTransport,
    ) -> Result<Self, SettingsError> {
        let allow_ttl = time_in("auth-allow-ttl", flags.auth_allow_ttl, TTL_SECONDS)?;
        let settings = Self {
            mode: flags.auth,
            anonymous: flags.anonymous,
            token_audiences: words(&flags.token_audiences),
            allow_ttl,
            deny_ttl: DENY_TTL.min(allow_ttl),
            reauthorize_interval: time_in(
                "reauthorize-interval",
                flags.reauthorize_interval,
                INTERVAL_SECONDS,
            )?,
            review_budget: flags.review_budget,
            reauthorize_grace: time_in(
                "reauthorize-grace",
                flags.reauthorize_grace,
                GRACE_SECONDS,
            )?,
            upstream_authorizers: flags.upstream_authorizers,
            client_ca: flags.client_ca_file.clone(),
            front_proxy: FrontProxySettings::resolve(flags)?,
        };
        refuse_ineffective(flags, transport)?;
        Ok(settings)
    }
}

impl FrontProxySettings {
    fn resolve(flags: &ServeFlags) -> Result<Option<Self>, SettingsError> {
        let allowed_names = words(&flags.requestheader_allowed_names);
        let Some(client_ca) = flags.requestheader_client_ca_file.clone() else {
            if allowed_names.is_empty() {
                return Ok(None);
            }
            return Err(SettingsError::Needs {
                flag: "requestheader-allowed-names",
                needed: "--requestheader-client-ca-file",
            });
        };
        let username_headers = header_names(
            "requestheader-username-headers",
            &flags.requestheader_username_headers,
        )?;
        if username_headers.is_empty() {
            return Err(SettingsError::Needs {
                flag: "requestheader-client-ca-file",
                needed: "at least one of --requestheader-username-headers",
            });
        }
        let prefixes = header_names(
            "requestheader-extra-headers-prefix",
            &flags.requestheader_extra_headers_prefix,
        )?;
        Ok(Some(Self {
            client_ca,
            allowed_names,
            username_headers,
            uid_headers: header_names(
                "requestheader-uid-headers",
                &flags.requestheader_uid_headers,
            )?,
            group_headers: header_names(
                "requestheader-group-headers",
                &flags.requestheader_group_headers,
            )?,
            extra_header_prefixes: prefixes
                .iter()
                .map(|prefix| prefix.as_str().to_owned())
                .collect(),
        }))
    }
}

/// Refuses flags that would have no effect, because an operator who sets them relies on their effect.
fn refuse_ineffective(
    flags: &ServeFlags,
    transport: &ListenTransport,
) -> Result<(), SettingsError> {
    let authorities = [
        ("client-ca-file", &flags.client_ca_file),
        (
            "requestheader-client-ca-file",
            &flags.requestheader_client_ca_file,
        ),
    ];
    let authority = authorities.into_iter().find(|(_, file)| file.is_some());
    let exempt = [
        ("exempt-users", &flags.exempt_users),
        ("exempt-groups", &flags.exempt_groups),
    ];
    let exempt = exempt.into_iter().find(|(_, list)| !words(list).is_empty());
    if let Some((flag, _)) = authority {
        if *transport == ListenTransport::PlainHttp {
            let needed = "--tls-cert and --tls-key: clients present certificates only over TLS";
            return Err(SettingsError::Needs { flag, needed });
        }
        if flags.auth == AuthMode::None {
            let needed = "another --auth than none, which ignores certificates";
            return Err(SettingsError::Needs { flag, needed });
        }
    }
    if flags.auth == AuthMode::SelfCheck && !words(&flags.token_audiences).is_empty() {
        let flag = "token-audiences";
        let needed = "--auth review or rbac: a SelfSubjectReview cannot check audiences";
        return Err(SettingsError::Needs { flag, needed });
    }
    if let (Some((flag, _)), AuthMode::None) = (exempt, flags.auth) {
        let needed = "another --auth than none, which does not identify users";
        return Err(SettingsError::Needs { flag, needed });
    }
    Ok(())
}

fn header_names(flag: &'static str, given: &[String]) -> Result<Vec<HeaderName>, SettingsError> {
    let parse = |text: String| {
        text.trim().parse().map_err(|_| SettingsError::Value {
            flag,
            given: text,
            reason: "not the name of a header".to_owned(),
        })
    };
    words(given).into_iter().map(parse).collect()
}
