//! Writes settings as a configuration file that reads back as the same settings.

use std::fmt::Write;
use std::path::Path;

use super::{
    AuditOutput, AuditSettings, AuthSettings, ListenTransport, ProcessSettings, ServeSettings,
    UpstreamSource, audit, file,
};
use crate::cli::{AuthMode, ByteLen, DurationWord, word_of};

/// The whole file, every setting named.
pub(super) fn file(process: &ProcessSettings, serve: &ServeSettings) -> String {
    let mut out = format!("apiVersion: {}\nkind: {}\n", file::API_VERSION, file::KIND);
    match &serve.upstream {
        UpstreamSource::Kubeconfig { path, context } => {
            path_line(&mut out, "kubeconfig", path);
            if let Some(context) = context {
                line(&mut out, "context", context);
            }
        }
        UpstreamSource::InCluster => plain(&mut out, "inCluster", true),
        UpstreamSource::Url(url) => line(&mut out, "upstream", &url.to_string()),
    }
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
    // What was allowed must be allowed again when the file is read, and only then.
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
        DurationWord(serve.idle_resource_timeout),
    );
    plain(&mut out, "ringEventsMax", serve.ring.events_max);
    plain(&mut out, "ringBytesMax", ByteLen(serve.ring.bytes_max));
    plain(&mut out, "ringAgeMin", DurationWord(serve.ring.age_min));
    plain(
        &mut out,
        "coalesceDelayMax",
        DurationWord(serve.coalesce_delay_max),
    );
    let admission = &serve.admission;
    plain(&mut out, "connectionsMax", admission.connections_max);
    plain(&mut out, "watchesMax", admission.watches_max);
    plain(&mut out, "listsMax", admission.lists_max);
    plain(&mut out, "listsWaitingMax", admission.lists_waiting_max);
    plain(
        &mut out,
        "listWaitMax",
        DurationWord(admission.list_wait_max),
    );
    plain(
        &mut out,
        "listStallMax",
        DurationWord(admission.list_stall_max),
    );
    list(&mut out, "exemptUsers", serve.exempt.users.iter());
    list(&mut out, "exemptGroups", serve.exempt.groups.iter());
    let forwards = &serve.forwards;
    plain(&mut out, "forwardedRequestsMax", forwards.requests_max);
    plain(&mut out, "forwardedWatchesMax", forwards.watches_max);
    plain(&mut out, "tunnelsMax", forwards.tunnels_max);
    plain(&mut out, "memoryMax", ByteLen(admission.memory_max));
    plain(&mut out, "logFormat", word_of(process.log_format));
    plain(&mut out, "logLevel", word_of(process.log_level));
    plain(&mut out, "workerThreads", process.worker_threads);
    plain(
        &mut out,
        "drainTimeout",
        DurationWord(process.drain_timeout),
    );
    out
}

fn auth(out: &mut String, auth: &AuthSettings) {
    plain(out, "auth", word_of(auth.mode));
    plain(out, "anonymous", auth.anonymous);
    list(out, "tokenAudiences", auth.token_audiences.iter());
    plain(out, "authAllowTtl", DurationWord(auth.allow_ttl));
    plain(out, "authDenyTtl", DurationWord(auth.deny_ttl));
    plain(
        out,
        "reauthorizeInterval",
        DurationWord(auth.reauthorize_interval),
    );
    plain(
        out,
        "reauthorizeGrace",
        DurationWord(auth.reauthorize_grace),
    );
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
        AuditOutput::File {
            path,
            len_max,
            backups_max,
            backup_age_max,
        } => {
            path_line(out, "auditLogPath", path);
            plain(out, "auditLogMaxsize", len_max / audit::MEGABYTE);
            plain(out, "auditLogMaxbackup", backups_max);
            let days = backup_age_max.map_or(0, |age| age.as_secs() / audit::DAY_SECONDS);
            plain(out, "auditLogMaxage", days);
        }
    }
}

/// Values that are one YAML word as they stand.
fn plain(out: &mut String, key: &str, value: impl std::fmt::Display) {
    let _ = writeln!(out, "{key}: {value}");
}

/// Text, quoted as JSON does, which YAML reads.
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
