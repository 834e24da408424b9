//! Validates the flags of `serve` and turns them into settings.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use super::audit::AuditSettings;
use super::auth::AuthSettings;
use super::handover::HandoverSettings;
use super::kinds;
use super::patterns::{CacheLists, InvalidPattern, ResourcePattern};
use super::serve_settings::{
    AdmissionLimits, ExemptSettings, ForwardLimits, RingLimits, ServeSettings, StateSettings,
    UpstreamSource,
};
use super::serving;
use super::settings_error::{SettingsError, in_range, refuse_user_info, time_in, words};
use super::traces::TraceSettings;
use super::transport::{ListenTransport, SniCertificate};
use crate::cli::{AuthMode, ByteLen, ServeFlags};
use crate::resource::names::is_dns_subdomain;

/// Ten times etcd's limit of 1.5 MiB for one object, because JSON can be longer than the stored form.
const FRAME_LEN_MAX: usize = 16 << 20;
/// People do not notice 2 ms, and controllers do not react faster; under load many events then share one write.
const COALESCE_DELAY_MAX: Duration = Duration::from_millis(2);
/// The API server's own upper bound for the history of a watch cache (docs/PROTOCOL.md §10, "history window").
const RING_EVENTS: usize = 102_400;
/// A history that may be longer than usual has one event for this many bytes, about what a pod of a busy cluster has.
const RING_EVENT_LEN: usize = 4 << 10;
/// As much as a large cluster's objects take twice: each cache's file has at most about twice the length of its objects.
const STATE_BYTES_MAX: usize = 8 << 30;
/// The checkpoints of caches that fit into the bound of memory have at most about twice its length, for the same reason.
const STATE_PER_MEMORY: usize = 2;
/// What a killed process loses is read again from upstream, which has a minute's history.
const STATE_INTERVAL: Duration = Duration::from_secs(1);
/// A waiting list costs little more than its connection, so a thundering herd can wait in the queue instead of being refused and
/// coming back.
const LISTS_WAITING_PER_PERMIT: usize = 64;
/// Half of the minute within which the API server answers a request.
const LIST_WAIT_MAX: Duration = Duration::from_secs(30);
/// With the frames in which lists are sent, a client that reads less than 32 KB/s. A busy but healthy client reads faster.
const LIST_STALL_MAX: Duration = Duration::from_secs(2);

/// A shorter history does not hold an ordinary object; a terabyte is a typing error.
const RING_BYTES_RANGE: (ByteLen, ByteLen) = (ByteLen(64 << 10), ByteLen(1 << 40));
/// A day; memory bounds the history much earlier.
const RING_AGE_SECONDS: RangeInclusive<u64> = 0..=86_400;
/// A page a day compares hardly anything; a longer interval is a typing error.
const DRIFT_INTERVAL_SECONDS: RangeInclusive<u64> = 0..=86_400;
/// Without a minimum every reconnect of a single client would cause a list upstream; longer than a week is as good as pinned.
const IDLE_SECONDS: RangeInclusive<u64> = 1..=7 * 86_400;
/// Within a second no watch can be opened again; after a day nobody needs to be told.
const STALENESS_SECONDS: RangeInclusive<u64> = 1..=86_400;
/// As many as the client keeps states of. Control planes have three to five.
const API_SERVERS_MAX: usize = 16;
/// Zero would serve no client; more than sixteen million exceed one machine.
const COUNT_RANGE: (usize, usize) = (1, 1 << 24);
/// With less than the process itself needs, every client would be refused.
const MEMORY_RANGE: (ByteLen, ByteLen) = (ByteLen(64 << 20), ByteLen(1 << 50));

impl ServeSettings {
    pub(super) fn resolve(flags: ServeFlags) -> Result<Self, SettingsError> {
        let (upstream, api_servers) = upstream(&flags)?;
        let transport = transport(&flags)?;
        refuse_exposure(&flags, &transport)?;
        refuse_same_address(&flags)?;
        let auth = AuthSettings::resolve(&flags, &transport)?;
        let cached = cache_lists(&flags)?;
        let serving = serving::parsed(&flags.serving)?;
        Ok(Self {
            upstream,
            api_servers,
            // A history that cannot hold the longest frame would drop an event before a client could read it.
            frame_len_max: FRAME_LEN_MAX.min(flags.ring_bytes_max.0),
            listen: flags.listen,
            transport,
            operator_listen: flags.operator_listen,
            auth,
            audit: AuditSettings::resolve(&flags)?,
            admin_listen: flags.admin_listen,
            pin_resources: pinned(&flags, &cached)?,
            cached,
            serving,
            idle_resource_timeout: time_in(
                "idle-resource-timeout",
                flags.idle_resource_timeout,
                IDLE_SECONDS,
            )?,
            ring: ring(&flags)?,
            catch_up: patterns("catch-up-resources", &flags.catch_up_resources)?,
            coalesce_delay_max: COALESCE_DELAY_MAX,
            staleness_bound: time_in("staleness-bound", flags.staleness_bound, STALENESS_SECONDS)?,
            drift_interval: time_in(
                "drift-interval",
                flags.drift_interval,
                DRIFT_INTERVAL_SECONDS,
            )?,
            state: state(&flags)?,
            handover: HandoverSettings::resolve(&flags)?,
            admission: admission(&flags)?,
            exempt: ExemptSettings {
                users: words(&flags.exempt_users),
                groups: words(&flags.exempt_groups),
            },
            forwards: ForwardLimits::default(),
            requests_per_goaway: flags.requests_per_goaway,
            compress_watches: flags.compress_watches,
            relay_percent: flags.relay_percent,
            traces: TraceSettings::resolve(&flags)?,
        })
    }
}

/// The source of credentials, and the API servers to use instead of the one that it names.
fn upstream(flags: &ServeFlags) -> Result<(UpstreamSource, Vec<http::Uri>), SettingsError> {
    let urls = parse_urls("upstream", &words(&flags.upstream))?;
    let mut api_servers = parse_urls("api-servers", &words(&flags.api_servers))?;
    let source = match (&flags.kubeconfig, flags.in_cluster, urls.first()) {
        (Some(path), false, None) => UpstreamSource::Kubeconfig {
            path: path.clone(),
            context: flags.context.clone(),
        },
        (None, true, None) => UpstreamSource::InCluster,
        (None, false, Some(_)) if !api_servers.is_empty() => {
            return Err(SettingsError::ApiServersAlone);
        }
        (None, false, Some(url)) => UpstreamSource::Url(url.clone()),
        _ => return Err(SettingsError::Upstream),
    };
    if flags.context.is_some() && flags.kubeconfig.is_none() {
        return Err(SettingsError::ContextAlone);
    }
    if urls.len() > 1 {
        api_servers = urls;
    }
    Ok((source, api_servers))
}

/// The addresses of API servers of one cluster.
fn parse_urls(flag: &'static str, texts: &[String]) -> Result<Vec<http::Uri>, SettingsError> {
    let urls = texts.iter().map(|text| parse_url(flag, text));
    let urls = urls.collect::<Result<Vec<_>, _>>()?;
    let refuse = |reason: &str| SettingsError::Value {
        flag,
        given: texts.join(","),
        reason: reason.to_owned(),
    };
    if urls.len() > API_SERVERS_MAX {
        return Err(refuse(&format!(
            "give at most {API_SERVERS_MAX} API servers"
        )));
    }
    if urls.iter().any(|url| url.scheme() != urls[0].scheme()) {
        return Err(refuse("write https:// for all API servers or for none"));
    }
    let addresses: Vec<_> = urls.iter().map(address).collect();
    let is_repeated = |(index, address)| addresses[..index].contains(address);
    if addresses.iter().enumerate().any(is_repeated) {
        return Err(refuse("an API server is given twice"));
    }
    Ok(urls)
}

/// Host and port that a URL names, with the scheme's port if it names none.
fn address(url: &http::Uri) -> (Option<String>, u16) {
    let port = match url.scheme_str() {
        Some("https") => 443,
        _ => 80,
    };
    let host = url.host().map(str::to_ascii_lowercase);
    (host, url.port_u16().unwrap_or(port))
}

/// Parses a URL with a scheme and a host. A path is refused, because forwarding would have to prefix every path with it.
pub(super) fn parse_url(flag: &'static str, text: &str) -> Result<http::Uri, SettingsError> {
    let refuse = |reason: &str| SettingsError::Value {
        flag,
        given: text.to_owned(),
        reason: reason.to_owned(),
    };
    refuse_user_info(flag, text)?;
    let url: http::Uri = text.parse().map_err(|_| refuse("not a URL"))?;
    if !matches!(url.scheme_str(), Some("http" | "https")) {
        return Err(refuse("write http:// or https:// and a host"));
    }
    if url.path() != "/" || url.query().is_some() {
        return Err(refuse(
            "write only the scheme, host and port, without a path",
        ));
    }
    Ok(url)
}

fn transport(flags: &ServeFlags) -> Result<ListenTransport, SettingsError> {
    let sni = words(&flags.tls_sni_cert_key);
    match (flags.plain_http, &flags.tls_cert, &flags.tls_key) {
        (true, None, None) if sni.is_empty() => Ok(ListenTransport::PlainHttp),
        (true, None, None) => Err(SettingsError::Needs {
            flag: "tls-sni-cert-key",
            needed: "--tls-cert and --tls-key",
        }),
        (false, Some(cert), Some(key)) => Ok(ListenTransport::Tls {
            cert: cert.clone(),
            key: key.clone(),
            sni: sni
                .iter()
                .map(|text| sni_certificate(text))
                .collect::<Result<_, _>>()?,
        }),
        _ => Err(SettingsError::Transport),
    }
}

/// Parses `cert,key` or `cert,key:name,name`, the syntax of kube-apiserver's `--tls-sni-cert-key`.
fn sni_certificate(text: &str) -> Result<SniCertificate, SettingsError> {
    let refuse = |reason: &str| SettingsError::Value {
        flag: "tls-sni-cert-key",
        given: text.to_owned(),
        reason: reason.to_owned(),
    };
    let (files, names) = match text.split_once(':') {
        Some((files, names)) => (files, names.split(',').collect()),
        None => (text, Vec::new()),
    };
    let syntax = "write certificate,key or certificate,key:name,name";
    let (cert, key) = files.split_once(',').ok_or_else(|| refuse(syntax))?;
    if cert.is_empty() || key.is_empty() || key.contains(',') {
        return Err(refuse(syntax));
    }
    let is_name = |name: &&str| {
        let name = name.strip_prefix("*.").unwrap_or(name);
        is_dns_subdomain(&name.to_ascii_lowercase()) || name.parse::<IpAddr>().is_ok()
    };
    if !names.iter().all(is_name) {
        return Err(refuse("a name is not a host name"));
    }
    Ok(SniCertificate {
        cert: PathBuf::from(cert),
        key: PathBuf::from(key),
        names: names.into_iter().map(str::to_ascii_lowercase).collect(),
    })
}

/// Refuses plain HTTP and `--auth none` on addresses other than loopback, unless the operator confirmed the risk.
fn refuse_exposure(flags: &ServeFlags, transport: &ListenTransport) -> Result<(), SettingsError> {
    let addresses = [Some(flags.listen), flags.operator_listen];
    let exposed = addresses
        .into_iter()
        .flatten()
        .find(|address| !address.ip().is_loopback());
    let Some(listen) = exposed.filter(|_| !flags.i_know_this_is_insecure) else {
        return Ok(());
    };
    let what = match (transport, flags.auth) {
        (ListenTransport::PlainHttp, _) => "--plain-http",
        (ListenTransport::Tls { .. }, AuthMode::None) => "--auth none",
        (ListenTransport::Tls { .. }, AuthMode::Review | AuthMode::SelfCheck | AuthMode::Rbac) => {
            return Ok(());
        }
    };
    Err(SettingsError::Insecure { what, listen })
}

fn refuse_same_address(flags: &ServeFlags) -> Result<(), SettingsError> {
    let admin = ("--admin-listen", Some(flags.admin_listen));
    let listen = ("--listen", Some(flags.listen));
    let operator = ("--operator-listen", flags.operator_listen);
    for ((one, a), (other, b)) in [(listen, admin), (listen, operator), (operator, admin)] {
        if let Some((address, other_address)) = a.zip(b)
            && overlap(address, other_address)
        {
            return Err(SettingsError::SameAddress {
                one,
                address,
                other,
                other_address,
            });
        }
    }
    Ok(())
}

/// Whether both cannot be listened on at the same time. `[::]` is all addresses of both families.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let covers = |all: IpAddr, ip: IpAddr| {
        all.is_unspecified()
            && (all.is_ipv6() || ip.to_canonical().is_ipv4() || ip.is_unspecified())
    };
    let (a, b) = (one.ip(), other.ip());
    one.port() != 0
        && one.port() == other.port()
        && (a.to_canonical() == b.to_canonical() || covers(a, b) || covers(b, a))
}

pub(super) fn patterns(
    flag: &'static str,
    given: &[String],
) -> Result<Vec<ResourcePattern>, SettingsError> {
    let parse = |text: String| {
        text.parse()
            .map_err(|error: InvalidPattern| SettingsError::Value {
                flag,
                reason: error.to_string(),
                given: text.clone(),
            })
    };
    words(given).into_iter().map(parse).collect()
}

fn state(flags: &ServeFlags) -> Result<Option<StateSettings>, SettingsError> {
    let Some(directory) = &flags.state_dir else {
        let needs = |flag| SettingsError::Needs {
            flag,
            needed: "--state-dir",
        };
        return match (
            &flags.state_key_file,
            words(&flags.state_exclude).is_empty(),
        ) {
            (Some(_), _) => Err(needs("state-key-file")),
            (None, false) => Err(needs("state-exclude")),
            (None, true) => Ok(None),
        };
    };
    let memory_max = match flags.memory_max.0 {
        0 => usize::MAX,
        bytes => bytes,
    };
    let len_max = STATE_BYTES_MAX.min(memory_max.saturating_mul(STATE_PER_MEMORY));
    Ok(Some(StateSettings {
        directory: directory.clone(),
        key_file: flags.state_key_file.clone(),
        len_max: len_max as u64,
        interval: STATE_INTERVAL,
        excluded: patterns("state-exclude", &flags.state_exclude)?,
    }))
}

fn cache_lists(flags: &ServeFlags) -> Result<CacheLists, SettingsError> {
    Ok(CacheLists {
        allowed: patterns("cache-resources", &flags.cache_resources)?,
        denied: patterns("passthrough-resources", &flags.passthrough_resources)?,
    })
}

fn pinned(
    flags: &ServeFlags,
    cached: &CacheLists,
) -> Result<Vec<crate::resource::Gvr>, SettingsError> {
    let refuse = |text: &str, reason: String| SettingsError::Value {
        flag: "pin-resources",
        given: text.to_owned(),
        reason,
    };
    let mut pinned = Vec::new();
    for text in words(&flags.pin_resources) {
        let gvr = kinds::named_resource(&text).map_err(|error| refuse(&text, error.to_string()))?;
        let reason = if gvr.is_events() {
            Some("events are never cached")
        } else if !cached.allow(&gvr) {
            Some("never cached: see --cache-resources and --passthrough-resources")
        } else {
            None
        };
        if let Some(reason) = reason {
            return Err(refuse(&text, reason.to_owned()));
        }
        pinned.push(gvr);
    }
    Ok(pinned)
}

fn ring(flags: &ServeFlags) -> Result<RingLimits, SettingsError> {
    let (min, max) = RING_BYTES_RANGE;
    let bytes_max = in_range("ring-bytes-max", flags.ring_bytes_max, min, max)?.0;
    Ok(RingLimits {
        events_max: RING_EVENTS.max(bytes_max / RING_EVENT_LEN),
        bytes_max,
        age_min: time_in("ring-age-min", flags.ring_age_min, RING_AGE_SECONDS)?,
    })
}

fn admission(flags: &ServeFlags) -> Result<AdmissionLimits, SettingsError> {
    let (min, max) = COUNT_RANGE;
    if flags.memory_max.0 > 0 {
        in_range(
            "memory-max",
            flags.memory_max,
            MEMORY_RANGE.0,
            MEMORY_RANGE.1,
        )?;
    }
    let lists_max = in_range("lists-max", flags.lists_max, min, max)?;
    Ok(AdmissionLimits {
        connections_max: in_range("connections-max", flags.connections_max, 0, max)?,
        watches_max: in_range("watches-max", flags.watches_max, min, max)?,
        lists_max,
        lists_waiting_max: LISTS_WAITING_PER_PERMIT * lists_max,
        list_wait_max: LIST_WAIT_MAX,
        list_stall_max: LIST_STALL_MAX,
        memory_max: flags.memory_max.0,
    })
}
