//! Writes settings as a configuration file. Reading the file gives the same settings again.

use std::fmt::Write;
use std::path::Path;

use super::audit::{AuditOutput, AuditSettings};
use super::auth::AuthSettings;
use super::file;
use super::handover::HandoverSettings;
use super::process::ProcessSettings;
use super::serve_settings::{ServeSettings, StateSettings, UpstreamSource};
use super::transport::ListenTransport;
use crate::cli::{AuthMode, ByteLen, TimeSpan, choice_name};

/// The complete file, with every setting.
pub(super) fn file(process: &ProcessSettings, serve: &ServeSettings) -> String {
    let mut out = format!("apiVersion: {}\nkind: {}\n", file::API_VERSION, file::KIND);
    upstream(&mut out, serve);
    plain(&mut out, "frameLenMax", ByteLen(serve.frame_len_max));
    line(&mut out, "listen", &serve.listen.to_string());
    match &serve.transport {
        ListenTransport::PlainHttp => plain(&mut out, "plainHttp", true),
        ListenTransport::Tls { cert, key, sni } => {
            path_line(&mut out, "tlsCert", cert);
            path_line(&mut out, "tlsKey", key);
            list(&mut out, "tlsSniCertKey", sni.iter());
        }
    }
    if let Some(address) = serve.operator_listen {
        line(&mut out, "operatorListen", &address.to_string());
    }
    // True only if the printed settings need it: reading the file must succeed, and must not allow more.
    let mut addresses = [Some(serve.listen), serve.operator_listen]
        .into_iter()
        .flatten();
    let exposed = addresses.any(|address| !address.ip().is_loopback())
        && (serve.transport == ListenTransport::PlainHttp || serve.auth.mode == AuthMode::None);
    plain(&mut out, "iKnowThisIsInsecure", exposed);
    line(&mut out, "adminListen", &serve.admin_listen.to_string());
    auth(&mut out, &serve.auth);
    if let Some(settings) = &serve.audit {
        audit(&mut out, settings);
    }
    list(&mut out, "pinResources", serve.pin_resources.iter());
    list(&mut out, "cacheResources", serve.cached.allowed.iter());
    list(&mut out, "passthroughResources", serve.cached.denied.iter());
    plain(
        &mut out,
        "idleResourceTimeout",
        TimeSpan(serve.idle_resource_timeout),
    );
    plain(&mut out, "ringEventsMax", serve.ring.events_max);
    plain(&mut out, "ringBytesMax", ByteLen(serve.ring.bytes_max));
    plain(&mut out, "ringAgeMin", TimeSpan(serve.ring.age_min));
    list(&mut out, "catchUpResources", serve.catch_up.iter());
    plain(
        &mut out,
        "coalesceDelayMax",
        TimeSpan(serve.coalesce_delay_max),
    );
    plain(&mut out, "stalenessBound", TimeSpan(serve.staleness_bound));
    plain(&mut out, "driftInterval", TimeSpan(serve.drift_interval));
    if let Some(settings) = &serve.state {
        state(&mut out, settings);
    }
    if let Some(settings) = &serve.handover {
        handover(&mut out, settings);
    }
    limits(&mut out, serve);
    if let Some(traces) = &serve.traces {
        line(&mut out, "otlpEndpoint", &traces.endpoint.to_string());
        plain(&mut out, "otlpRatio", traces.ratio);
    }
    plain(&mut out, "logFormat", choice_name(process.log_format));
    plain(&mut out, "logLevel", choice_name(process.log_level));
    if let Some(filter) = &process.log_filter {
        line(&mut out, "logFilter", &filter.to_string());
    }
    plain(&mut out, "workerThreads", process.worker_threads);
    plain(&mut out, "drainTimeout", TimeSpan(process.drain_timeout));
    plain(&mut out, "drainDelay", TimeSpan(process.drain_delay));
    out
}

fn upstream(out: &mut String, serve: &ServeSettings) {
    match &serve.upstream {
        UpstreamSource::Kubeconfig { path, context } => {
            path_line(out, "kubeconfig", path);
            if let Some(context) = context {
                line(out, "context", context);
            }
        }
        UpstreamSource::InCluster => plain(out, "inCluster", true),
        UpstreamSource::Url(url) if serve.api_servers.is_empty() => {
            line(out, "upstream", &url.to_string());
        }
        UpstreamSource::Url(_) => list(out, "upstream", serve.api_servers.iter()),
    }
    let is_url = matches!(serve.upstream, UpstreamSource::Url(_));
    if !is_url && !serve.api_servers.is_empty() {
        list(out, "apiServers", serve.api_servers.iter());
    }
}

fn limits(out: &mut String, serve: &ServeSettings) {
    let admission = &serve.admission;
    plain(out, "connectionsMax", admission.connections_max);
    plain(out, "watchesMax", admission.watches_max);
    plain(out, "listsMax", admission.lists_max);
    plain(out, "listsWaitingMax", admission.lists_waiting_max);
    plain(out, "listWaitMax", TimeSpan(admission.list_wait_max));
    plain(out, "listStallMax", TimeSpan(admission.list_stall_max));
    list(out, "exemptUsers", serve.exempt.users.iter());
    list(out, "exemptGroups", serve.exempt.groups.iter());
    let forwards = &serve.forwards;
    plain(out, "forwardedRequestsMax", forwards.requests_max);
    plain(out, "forwardedWatchesMax", forwards.watches_max);
    plain(out, "tunnelsMax", forwards.tunnels_max);
    plain(out, "requestsPerGoaway", serve.requests_per_goaway);
    plain(out, "memoryMax", ByteLen(admission.memory_max));
}

fn auth(out: &mut String, auth: &AuthSettings) {
    plain(out, "auth", choice_name(auth.mode));
    plain(out, "anonymous", auth.anonymous);
    list(out, "tokenAudiences", auth.token_audiences.iter());
    plain(out, "authAllowTtl", TimeSpan(auth.allow_ttl));
    plain(out, "authDenyTtl", TimeSpan(auth.deny_ttl));
    plain(
        out,
        "reauthorizeInterval",
        TimeSpan(auth.reauthorize_interval),
    );
    plain(out, "reauthorizeGrace", TimeSpan(auth.reauthorize_grace));
    if let Some(file) = &auth.client_ca {
        path_line(out, "clientCaFile", file);
    }
    let Some(proxy) = &auth.front_proxy else {
        return;
    };
    path_line(out, "requestheaderClientCaFile", &proxy.client_ca);
    list(out, "requestheaderAllowedNames", proxy.allowed_names.iter());
    list(
        out,
        "requestheaderUsernameHeaders",
        proxy.username_headers.iter(),
    );
    list(out, "requestheaderUidHeaders", proxy.uid_headers.iter());
    list(out, "requestheaderGroupHeaders", proxy.group_headers.iter());
    list(
        out,
        "requestheaderExtraHeadersPrefix",
        proxy.extra_header_prefixes.iter(),
    );
}

fn audit(out: &mut String, audit: &AuditSettings) {
    path_line(out, "auditPolicyFile", &audit.policy);
    match &audit.log {
        AuditOutput::Stdout => line(out, "auditLogPath", "-"),
        AuditOutput::File(path) => path_line(out, "auditLogPath", path),
    }
}

fn state(out: &mut String, state: &StateSettings) {
    path_line(out, "stateDir", &state.directory);
    if let Some(file) = &state.key_file {
        path_line(out, "stateKeyFile", file);
    }
    let len_max = usize::try_from(state.len_max).unwrap_or(usize::MAX);
    plain(out, "stateBytesMax", ByteLen(len_max));
    plain(out, "stateInterval", TimeSpan(state.interval));
    list(out, "stateExclude", state.excluded.iter());
}

fn handover(out: &mut String, handover: &HandoverSettings) {
    line(out, "handoverFrom", &handover.from.to_string());
    if let Some(file) = &handover.ca_file {
        path_line(out, "handoverCaFile", file);
    }
    if let Some(name) = &handover.server_name {
        line(out, "handoverServerName", name);
    }
    if let Some(file) = &handover.token_file {
        path_line(out, "handoverTokenFile", file);
    }
    plain(out, "handoverTimeout", TimeSpan(handover.timeout));
    let len_max = usize::try_from(handover.len_max).unwrap_or(usize::MAX);
    plain(out, "handoverBytesMax", ByteLen(len_max));
    let interval = handover.rebalance_interval.unwrap_or_default();
    plain(out, "rebalanceInterval", TimeSpan(interval));
}

/// Writes a value that is a plain YAML scalar without quotes.
fn plain(out: &mut String, key: &str, value: impl std::fmt::Display) {
    let _ = writeln!(out, "{key}: {value}");
}

/// Writes a string, quoted as in JSON, which is valid YAML.
fn line(out: &mut String, key: &str, text: &str) {
    let _ = writeln!(out, "{key}: {}", serde_json::Value::from(text));
}

fn path_line(out: &mut String, key: &str, path: &Path) {
    line(out, key, &path.to_string_lossy());
}

fn list(out: &mut String, key: &str, items: impl Iterator<Item = impl std::fmt::Display>) {
    let words: Vec<String> = items
        .map(|item| serde_json::Value::from(item.to_string()).to_string())
        .collect();
    let _ = writeln!(out, "{key}: [{}]", words.join(", "));
}
