//! Checks of a running gateway as its clients see it, and of its lists and watches beside the API server's.

use http::StatusCode;

use super::catalogue as checks;
use super::certificates::{CertificateFacts, expiry_verdict};
use super::checklist::Checklist;
use super::comparison::{compared_verdict, freshness_verdict, lists_verdict};
use super::files::now;
use super::handshake::{self, TlsFacts, address_of, connect, establish_tls, is_tls, name_of};
use super::requests::{CheckRequestError, get, message, read_json, read_list};
use super::upstream::{UpstreamLink, cluster_uid, is_elsewhere};
use super::verdict::CheckVerdict;
use super::versions::{ListHead, ServerVersion};
use super::watching::watch_from_start;
use super::words::counted;
use crate::config::{CheckCategory, CheckSettings, ClientSettings};
use crate::error_chain::one_line;
use crate::protocol::handover::{HandoverIndex, HandoverTarget};
use crate::resource::Gvr;
use crate::upstream::client::{Client, ConnectError, ConnectSource, ConnectionParts};

const NO_GATEWAY: &str = "there is no --gateway";
const NOT_IT: &str =
    "check --gateway: it must be the gateway's address for clients, and not the API server's";
const GATEWAY_LOG: &str = "look at the gateway's log, and at /readyz?verbose on its admin port";

/// A connection to the gateway, as a client has it.
struct GatewayLink {
    client: Client,
    parts: ConnectionParts,
}

/// Checks the gateway, and compares it with the API servers.
pub(super) async fn check(
    list: &mut Checklist<'_>,
    settings: &CheckSettings,
    upstream: Option<&UpstreamLink>,
) {
    let is_chosen = list.is_chosen(CheckCategory::Gateway) || list.is_chosen(CheckCategory::Live);
    let Some(target) = settings.gateway.as_ref().filter(|_| is_chosen) else {
        list.skip_rest(CheckCategory::Gateway, NO_GATEWAY);
        list.skip_rest(CheckCategory::Live, NO_GATEWAY);
        return;
    };
    let link = check_connection(list, target).await;
    match &link {
        None => list.skip_rest(
            CheckCategory::Gateway,
            "there is no connection to the gateway",
        ),
        Some(link) => {
            let verdict = identity(&link.client);
            list.make(&checks::GATEWAY_IDENTITY, verdict).await;
            match upstream {
                None => list.skip(
                    &checks::GATEWAY_CLUSTER,
                    "there is no connection to the API server",
                ),
                Some(upstream) => {
                    let same = same_cluster(&link.client, &upstream.client);
                    list.make(&checks::GATEWAY_CLUSTER, same).await;
                }
            }
        }
    }
    match (link, upstream) {
        (Some(link), Some(upstream)) => {
            check_live(list, &settings.compared, (&upstream.client, &link.client)).await;
        }
        _ => list.skip_rest(
            CheckCategory::Live,
            "gateway and API server are not both connected",
        ),
    }
}

async fn check_connection(
    list: &mut Checklist<'_>,
    target: &ClientSettings,
) -> Option<GatewayLink> {
    let mut link = None;
    let answered = async {
        match open(target).await {
            Ok(opened) => answered(link.insert(opened), target).await,
            Err(verdict) => verdict,
        }
    };
    let is_ready = list.require(&checks::GATEWAY_READY, answered).await;
    link.filter(|_| is_ready)
}

/// TLS and HTTP, one after the other.
async fn answered(link: &GatewayLink, target: &ClientSettings) -> CheckVerdict {
    let mut verdicts = Vec::new();
    if is_tls(&target.url) {
        match tls(link, target).await {
            Ok(facts) => {
                verdicts.push(http2(&facts));
                verdicts.push(expiry(target, facts.certificate));
            }
            Err(verdict) => return verdict,
        }
    }
    verdicts.push(ready(&link.client).await);
    CheckVerdict::worst_of(verdicts)
}

async fn open(target: &ClientSettings) -> Result<GatewayLink, CheckVerdict> {
    let (host, _) = address_of(&target.url);
    let source = ConnectSource::Peer {
        url: target.url.clone(),
        ca_file: target.ca_file.clone(),
        server_name: target.server_name.clone().unwrap_or(host),
        token_file: target.token_file.clone(),
    };
    let failed = |error: ConnectError| {
        let hint = "check --gateway-ca-file and --gateway-token-file";
        CheckVerdict::failure(one_line(&error), hint)
    };
    let parts = source.parts(Vec::new()).await.map_err(failed)?;
    let client = Client::connect(source).await.map_err(failed)?;
    if let Err(error) = connect(&target.url).await {
        return Err(handshake::unreachable(&name_of(&target.url), &error));
    }
    Ok(GatewayLink { client, parts })
}

async fn tls(link: &GatewayLink, target: &ClientSettings) -> Result<TlsFacts, CheckVerdict> {
    let server_name = link.parts.server_name.as_deref();
    let established = establish_tls(&target.url, &link.parts.tls, server_name).await;
    established.map_err(|error| {
        let authority = "--gateway-ca-file, or in the system's authorities without it";
        handshake::untrusted(&name_of(&target.url), &error, authority)
    })
}

fn http2(facts: &TlsFacts) -> CheckVerdict {
    match facts.is_http2 {
        true => CheckVerdict::ok("ALPN chooses HTTP/2"),
        false => CheckVerdict::warning(
            "ALPN chooses HTTP/1.1: each watch of a client takes a connection",
            "let the load balancer pass TLS through to the gateway, or offer h2 itself",
        ),
    }
}

fn expiry(target: &ClientSettings, certificate: Option<CertificateFacts>) -> CheckVerdict {
    let certificates: Vec<_> = certificate
        .map(|facts| (name_of(&target.url), facts))
        .into_iter()
        .collect();
    let hint = "issue a new certificate; a gateway reads the files again when they change, so look whether the new file has arrived";
    expiry_verdict(&certificates, now(), hint)
}

async fn ready(client: &Client) -> CheckVerdict {
    match get(client, "/readyz").await {
        Err(error) => CheckVerdict::failure(error.to_string(), GATEWAY_LOG),
        Ok(response) if is_elsewhere(response.status) => CheckVerdict::failure(
            format!("/readyz is answered {}", response.status.as_u16()),
            NOT_IT,
        ),
        Ok(response) if response.status.is_server_error() => CheckVerdict::failure(
            format!(
                "/readyz is answered {}{}",
                response.status.as_u16(),
                message(&response.body)
            ),
            GATEWAY_LOG,
        ),
        Ok(response) if response.status == StatusCode::UNAUTHORIZED => CheckVerdict::warning(
            "the gateway answers 401: the checks below see what a client without valid credentials sees",
            "give a client's token with --gateway-token-file",
        ),
        Ok(response) if response.status == StatusCode::TOO_MANY_REQUESTS => CheckVerdict::failure(
            "the gateway answers 429",
            "look for the bound that is reached: docs/TROUBLESHOOTING.md, \"429 Too Many Requests\"",
        ),
        Ok(response) => {
            CheckVerdict::ok(format!("/readyz is answered {}", response.status.as_u16()))
        }
    }
}

/// Only a gateway serves the path of handovers. With a client that may not get it, the check cannot tell.
async fn identity(client: &Client) -> CheckVerdict {
    let path = HandoverTarget::Index.path();
    match read_json::<HandoverIndex>(client, &path).await {
        Ok(index) => CheckVerdict::ok(format!(
            "a gateway with {}",
            counted(index.keys().count(), ("cache", "caches"))
        )),
        Err(error) => match error.status() {
            Some(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => CheckVerdict::skipped(
                format!("the client may not get {path}, which only a gateway serves"),
            ),
            Some(status) if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() => {
                CheckVerdict::failure(error.to_string(), GATEWAY_LOG)
            }
            Some(_) | None => CheckVerdict::failure(
                format!("it does not answer as a gateway does: {error}"),
                NOT_IT,
            ),
        },
    }
}

/// The uid of kube-system is the cluster's; where it may not be read, the version is compared.
async fn same_cluster(gateway: &Client, upstream: &Client) -> CheckVerdict {
    let hint = "check --gateway, and the upstream of the gateway: they are two clusters";
    match (cluster_uid(gateway).await, cluster_uid(upstream).await) {
        (Ok(one), Ok(other)) if one == other => CheckVerdict::ok(format!("both are cluster {one}")),
        (Ok(one), Ok(other)) => CheckVerdict::failure(
            format!(
                "the gateway is in front of cluster {one}, and the API server belongs to {other}"
            ),
            hint,
        ),
        (Err(_), _) | (_, Err(_)) => {
            let (one, other) = (version(gateway).await, version(upstream).await);
            match (one, other) {
                (Ok(one), Ok(other)) if one == other => {
                    CheckVerdict::ok(format!("both say version {}", one.git_version))
                }
                (Ok(one), Ok(other)) => CheckVerdict::warning(
                    format!(
                        "the gateway says version {}, and the API server {}",
                        one.git_version, other.git_version
                    ),
                    hint,
                ),
                (Err(error), _) | (_, Err(error)) => {
                    CheckVerdict::skipped(format!("it cannot be compared: {error}"))
                }
            }
        }
    }
}

async fn version(client: &Client) -> Result<ServerVersion, CheckRequestError> {
    read_json(client, "/version").await
}

/// The verdict where one of the two sides did not answer.
pub(super) fn unread(side: &str, error: &CheckRequestError) -> CheckVerdict {
    if matches!(error, CheckRequestError::Body { .. }) {
        return CheckVerdict::failure(
            format!("{side}: {error}"),
            "look at the network on the way; of a list longer than 128 MiB, choose a smaller resource with --compare-resource",
        );
    }
    match error.status() {
        Some(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
            CheckVerdict::skipped(format!("{side}: {error}"))
        }
        Some(StatusCode::NOT_FOUND) => CheckVerdict::failure(
            format!("{side}: {error}"),
            "choose a resource that the cluster has with --compare-resource",
        ),
        Some(_) | None => CheckVerdict::failure(format!("{side}: {error}"), GATEWAY_LOG),
    }
}

async fn check_live(
    list: &mut Checklist<'_>,
    compared: &Gvr,
    (upstream, gateway): (&Client, &Client),
) {
    let collection = compared.collection_path();
    let fresh = compare_versions(&collection, upstream, gateway);
    list.make(
        &checks::LIVE_LIST,
        compare_lists(compared, upstream, gateway),
    )
    .await;
    list.make(&checks::LIVE_WATCH, watch(&collection, upstream, gateway))
        .await;
    list.make(&checks::LIVE_FRESH, fresh).await;
}

async fn newest(client: &Client, collection: &str) -> Result<u64, CheckRequestError> {
    let path = format!("{collection}?limit=1");
    let list: ListHead = read_list(client, &path).await?;
    list.version().ok_or_else(|| CheckRequestError::Json {
        path,
        reason: format!("its version is {:?}", list.metadata.resource_version),
    })
}

/// A list from the gateway's memory, and one of the API server at the version of the first.
async fn compare_lists(compared: &Gvr, upstream: &Client, gateway: &Client) -> CheckVerdict {
    let collection = &compared.collection_path();
    let version = match newest(upstream, collection).await {
        Ok(version) => version,
        Err(error) => return unread("the API server", &error),
    };
    let path = format!("{collection}?resourceVersion={version}&resourceVersionMatch=NotOlderThan");
    let found: ListHead = match read_list(gateway, &path).await {
        Ok(found) => found,
        Err(error) => return unread("the gateway", &error),
    };
    let has_cache = has_cache(gateway, compared).await;
    let version = &found.metadata.resource_version;
    if version.parse::<u64>().is_err() {
        return CheckVerdict::failure(
            format!("the gateway lists version {version:?}"),
            GATEWAY_LOG,
        );
    }
    let path = format!("{collection}?resourceVersion={version}&resourceVersionMatch=Exact");
    match read_list::<ListHead>(upstream, &path).await {
        Ok(expected) => compared_verdict(lists_verdict(&expected, &found), has_cache),
        Err(error) if error.status() == Some(StatusCode::GONE) => {
            CheckVerdict::skipped("the API server does not have this version any longer")
        }
        Err(error) => unread("the API server", &error),
    }
}

/// Whether the gateway has a cache of the resource; `None` if the client may not see that.
async fn has_cache(gateway: &Client, compared: &Gvr) -> Option<bool> {
    let path = HandoverTarget::Index.path();
    let index = read_json::<HandoverIndex>(gateway, &path).await.ok()?;
    Some(index.keys().any(|key| key.gvr == *compared))
}

async fn watch(collection: &str, upstream: &Client, gateway: &Client) -> CheckVerdict {
    let version = match newest(upstream, collection).await {
        Ok(version) => version,
        Err(error) => return unread("the API server", &error),
    };
    match watch_from_start(gateway, collection).await {
        Ok(progress) => progress.verdict(version, GATEWAY_LOG),
        Err(error) => unread("the gateway", &error),
    }
}

/// A consistent list must have what was written before it.
async fn compare_versions(collection: &str, upstream: &Client, gateway: &Client) -> CheckVerdict {
    let version = match newest(upstream, collection).await {
        Ok(version) => version,
        Err(error) => return unread("the API server", &error),
    };
    match newest(gateway, collection).await {
        Ok(found) => freshness_verdict(version, Some(found)),
        Err(error) => unread("the gateway", &error),
    }
}
