//! Settings of the embedded API server and the demo, and of servers that run inside one process for the demo and the tests.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, FromArgMatches};

use super::kinds::{self, ExtraKind};
use super::serve_settings::ServeSettings;
use super::settings_error::{SettingsError, in_range, time_in, words};
use super::transport::ListenTransport;
use crate::cli::{
    self, ApiserverFlags, AuthorizationMode, ByteLen, DemoFlags, ObjectCount, ServeFlags,
};

/// Any free port on loopback.
const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
/// Metadata alone has about 300 bytes; etcd accepts no object of more than 1.5 MiB.
const OBJECT_LEN_RANGE: (ByteLen, ByteLen) = (ByteLen(512), ByteLen(1 << 20));
/// More writes per second than a real API server can do; a higher rate would only measure the machine's scheduler.
const CHURN_MAX: u32 = 100_000;
/// A watcher has two sockets in the process; more watchers need other system limits than a demo should require.
const WATCHERS_MAX: usize = 100_000;
/// A shorter run shows no figures; a longer one is a typing error.
const DURATION_SECONDS: RangeInclusive<u64> = 1..=86_400;

impl ApiserverSettings {
    pub(super) fn resolve(flags: ApiserverFlags) -> Result<Self, SettingsError> {
        if !flags.listen.ip().is_loopback() {
            return Err(SettingsError::ApiserverOffLoopback(flags.listen));
        }
        let mut extra_kinds = Vec::new();
        for text in flags.extra_kinds.iter().filter(|text| !text.is_empty()) {
            let kind = kinds::extra_kind(text).map_err(|error| SettingsError::Value {
                flag: "extra-kinds",
                given: text.clone(),
                reason: error.to_string(),
            })?;
            extra_kinds.push(kind);
        }
        let object_len = in_range(
            "object-len",
            flags.object_len,
            OBJECT_LEN_RANGE.0,
            OBJECT_LEN_RANGE.1,
        )?;
        Ok(Self {
            transport: transport(&flags)?,
            auth: ApiserverAuth::resolve(&flags)?,
            listen: flags.listen,
            objects: flags.objects,
            churn: in_range("churn", flags.churn, 0, CHURN_MAX)?,
            object_len: object_len.0,
            extra_kinds,
        })
    }

    /// An embedded API server on any port, without extra kinds.
    #[must_use]
    pub fn embedded(objects: Vec<ObjectCount>, churn: u32) -> Self {
        Self {
            listen: ANY_PORT,
            objects,
            churn,
            object_len: cli::OBJECT_LEN.0,
            extra_kinds: Vec::new(),
            transport: ListenTransport::PlainHttp,
            auth: None,
        }
    }
}

fn transport(flags: &ApiserverFlags) -> Result<ListenTransport, SettingsError> {
    let needs = |flag, needed| Err(SettingsError::Needs { flag, needed });
    match (&flags.tls_cert, &flags.tls_key) {
        (None, None) => Ok(ListenTransport::PlainHttp),
        (Some(cert), Some(key)) => Ok(ListenTransport::Tls {
            cert: cert.clone(),
            key: key.clone(),
            sni: Vec::new(),
        }),
        (Some(_), None) => needs("tls-cert", "--tls-key"),
        (None, Some(_)) => needs("tls-key", "--tls-cert"),
    }
}

impl ApiserverAuth {
    /// `None` if no flag requires authentication.
    fn resolve(flags: &ApiserverFlags) -> Result<Option<Self>, SettingsError> {
        let needs = |flag, needed| Err(SettingsError::Needs { flag, needed });
        let names = words(&flags.requestheader_allowed_names);
        let proxy_ca = &flags.requestheader_client_ca_file;
        if flags.tls_cert.is_none() {
            if flags.client_ca_file.is_some() {
                return needs("client-ca-file", "--tls-cert and --tls-key");
            }
            if proxy_ca.is_some() {
                return needs("requestheader-client-ca-file", "--tls-cert and --tls-key");
            }
        }
        if proxy_ca.is_none() && !names.is_empty() {
            return needs(
                "requestheader-allowed-names",
                "--requestheader-client-ca-file",
            );
        }
        let is_checked = flags.token_auth_file.is_some()
            || flags.client_ca_file.is_some()
            || proxy_ca.is_some()
            || flags.authorization_mode.is_some();
        Ok(is_checked.then(|| Self {
            token_file: flags.token_auth_file.clone(),
            client_ca: flags.client_ca_file.clone(),
            front_proxy: proxy_ca.clone().map(|path| (path, names)),
            audiences: words(&flags.api_audiences),
            anonymous: flags.anonymous_auth,
            authorization: flags
                .authorization_mode
                .unwrap_or(AuthorizationMode::AlwaysAllow),
        }))
    }
}

impl DemoSettings {
    pub(super) fn resolve(flags: DemoFlags) -> Result<Self, SettingsError> {
        let duration = flags.duration;
        let duration = duration.map(|time| time_in("duration", time, DURATION_SECONDS));
        let churn = in_range("churn", flags.churn, 0, CHURN_MAX)?;
        Ok(Self {
            apiserver: ApiserverSettings::embedded(flags.objects, churn),
            watchers: in_range("watchers", flags.watchers, 1, WATCHERS_MAX)?,
            duration: duration.transpose()?,
        })
    }
}

impl ServeSettings {
    /// A gateway on any port of loopback with plain HTTP and `--auth none`, and the defaults for everything else.
    #[must_use]
    #[expect(
        clippy::expect_used,
        reason = "the defaults are valid; every test with a gateway begins here"
    )]
    pub fn embedded(upstream: http::Uri) -> Self {
        let command = ServeFlags::augment_args(clap::Command::new("serve"));
        let matches = command.try_get_matches_from([
            "serve",
            &format!("--upstream={upstream}"),
            &format!("--listen={ANY_PORT}"),
            &format!("--admin-listen={ANY_PORT}"),
            "--plain-http",
            "--auth=none",
        ]);
        let flags = matches.and_then(|matches| ServeFlags::from_arg_matches(&matches));
        Self::resolve(flags.expect("each flag has a valid value")).expect("they fit together")
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
