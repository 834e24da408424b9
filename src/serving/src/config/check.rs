//! Settings of `check`.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use http::{Uri, uri};

use super::kinds;
use super::serve::parse_url;
use super::serve_settings::ServeSettings;
use super::settings_error::{SettingsError, time_in, words};
use crate::cli::{CheckCategory, CheckFlags, OutputFormat};
use crate::resource::Gvr;
use crate::resource::names::is_dns_subdomain;

/// A rollout that takes longer than an hour has failed.
const WAIT_SECONDS: RangeInclusive<u64> = 0..=3_600;

/// Settings of `check`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckSettings {
    /// The gateway's own settings, which are checked.
    pub serve: ServeSettings,
    /// The categories of checks to make, without repetition.
    pub categories: Vec<CheckCategory>,
    /// Whether no gateway runs here yet.
    pub before_install: bool,
    /// A running gateway, as clients reach it.
    pub gateway: Option<ClientSettings>,
    /// The running gateway's admin port: plain HTTP.
    pub admin: Option<Uri>,
    /// Names and addresses that clients use.
    pub client_names: Vec<String>,
    /// The resource whose objects are compared.
    pub compared: Gvr,
    /// How long the checks are repeated while one fails.
    pub wait: Duration,
    /// Form of the report.
    pub output: OutputFormat,
    /// Whether colours may be used: `NO_COLOR` is not set.
    pub color: bool,
}

/// How a client reaches the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientSettings {
    /// The gateway: `http` or `https`, with a host.
    pub url: Uri,
    /// PEM bundle of the certificate authorities to trust instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// The name in the gateway's certificate, if it is not the host of `url`.
    pub server_name: Option<String>,
    /// File with a client's bearer token.
    pub token_file: Option<PathBuf>,
}

impl CheckSettings {
    pub(super) fn resolve(flags: CheckFlags, color: bool) -> Result<Self, SettingsError> {
        let gateway = gateway(&flags)?;
        if flags.pre && (gateway.is_some() || flags.gateway_admin.is_some()) {
            return Err(SettingsError::Value {
                flag: "pre",
                given: "true".to_owned(),
                reason: "leave it out with --gateway and --gateway-admin: a gateway runs already"
                    .to_owned(),
            });
        }
        let compared = kinds::named_resource(&flags.compare_resource).map_err(|error| {
            let reason = error.to_string();
            invalid("compare-resource", &flags.compare_resource, &reason)
        })?;
        Ok(Self {
            categories: categories(&flags, gateway.is_some())?,
            before_install: flags.pre,
            admin: admin(&flags)?,
            client_names: client_names(&flags, gateway.as_ref())?,
            gateway,
            compared,
            wait: time_in("wait", flags.wait, WAIT_SECONDS)?,
            output: flags.output,
            color,
            serve: ServeSettings::resolve(flags.serve)?,
        })
    }
}

fn invalid(flag: &'static str, given: &str, reason: &str) -> SettingsError {
    SettingsError::Value {
        flag,
        given: given.to_owned(),
        reason: reason.to_owned(),
    }
}

/// The chosen categories. One that could not check anything is refused, because its silence would be taken for success.
fn categories(flags: &CheckFlags, has_gateway: bool) -> Result<Vec<CheckCategory>, SettingsError> {
    let mut chosen = flags.category.clone();
    chosen.sort_unstable();
    chosen.dedup();
    for category in &chosen {
        let needs = |needed| SettingsError::Needs {
            flag: "category",
            needed,
        };
        match category {
            CheckCategory::Gateway | CheckCategory::Live if !has_gateway => {
                return Err(needs("--gateway for the categories gateway and live"));
            }
            CheckCategory::Admin if flags.gateway_admin.is_none() => {
                return Err(needs("--gateway-admin for the category admin"));
            }
            CheckCategory::Upstream
            | CheckCategory::Certificates
            | CheckCategory::Rights
            | CheckCategory::Features
            | CheckCategory::Limits
            | CheckCategory::Clock
            | CheckCategory::Handover
            | CheckCategory::Gateway
            | CheckCategory::Live
            | CheckCategory::Admin => {}
        }
    }
    if chosen.is_empty() {
        chosen = <CheckCategory as clap::ValueEnum>::value_variants().to_vec();
    }
    Ok(chosen)
}

fn gateway(flags: &CheckFlags) -> Result<Option<ClientSettings>, SettingsError> {
    let Some(text) = &flags.gateway else {
        let given = [
            ("gateway-ca-file", flags.gateway_ca_file.is_some()),
            ("gateway-server-name", flags.gateway_server_name.is_some()),
            ("gateway-token-file", flags.gateway_token_file.is_some()),
        ];
        let alone = given.into_iter().find(|(_, is_given)| *is_given);
        return alone.map_or(Ok(None), |(flag, _)| {
            Err(SettingsError::Needs {
                flag,
                needed: "--gateway",
            })
        });
    };
    let url = parse_url("gateway", text)?;
    if let Some(name) = &flags.gateway_server_name
        && !is_name(name)
    {
        return Err(invalid("gateway-server-name", name, "not a host name"));
    }
    if flags.gateway_token_file.is_some() && url.scheme() == Some(&uri::Scheme::HTTP) {
        let host = host_of(&url);
        let ip = host.parse::<std::net::IpAddr>();
        if !ip.is_ok_and(|ip| ip.is_loopback()) {
            let reason = "write https://: a token is sent in clear text to loopback addresses only";
            return Err(invalid("gateway", text, reason));
        }
    }
    Ok(Some(ClientSettings {
        url,
        ca_file: flags.gateway_ca_file.clone(),
        server_name: flags.gateway_server_name.clone(),
        token_file: flags.gateway_token_file.clone(),
    }))
}

fn admin(flags: &CheckFlags) -> Result<Option<Uri>, SettingsError> {
    let Some(text) = &flags.gateway_admin else {
        return Ok(None);
    };
    let url = parse_url("gateway-admin", text)?;
    if url.scheme() != Some(&uri::Scheme::HTTP) {
        let reason = "the admin port speaks plain HTTP: write http://127.0.0.1:9090";
        return Err(invalid("gateway-admin", text, reason));
    }
    Ok(Some(url))
}

fn client_names(
    flags: &CheckFlags,
    gateway: Option<&ClientSettings>,
) -> Result<Vec<String>, SettingsError> {
    let mut names = words(&flags.client_names);
    if let Some(name) = names.iter().find(|name| !is_name(name)) {
        return Err(invalid("client-names", name, "not a host name"));
    }
    // Through `kubectl port-forward` the host is not the name that the certificate is checked against.
    let own = gateway.filter(|gateway| gateway.url.scheme() == Some(&uri::Scheme::HTTPS));
    let own = own.map(|gateway| match &gateway.server_name {
        Some(name) => name.clone(),
        None => host_of(&gateway.url).to_owned(),
    });
    names.extend(own.filter(|own| !names.contains(own)));
    Ok(names)
}

fn host_of(url: &Uri) -> &str {
    url.host().unwrap_or_default().trim_matches(['[', ']'])
}

fn is_name(name: &str) -> bool {
    is_dns_subdomain(&name.to_ascii_lowercase()) || name.parse::<std::net::IpAddr>().is_ok()
}
