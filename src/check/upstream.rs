//! Checks of the way to the API servers. The checks of other categories use the connection that is made here.

use std::io;
use std::sync::Arc;

use http::{StatusCode, Uri};
use serde_json::{Value, json};

use super::catalogue as checks;
use super::certificates::CertificateFacts;
use super::checklist::Checklist;
use super::handshake::{self, connect, establish_tls, is_tls, name_of};
use super::parallel::at_once;
use super::requests::{self, CheckRequestError, get, message};
use super::verdict::{CheckLevel, CheckVerdict};
use super::versions::ObjectHead;
use crate::config::{AuthMode, CheckCategory, CheckSettings, UpstreamSource};
use crate::error_chain::one_line;
use crate::gateway::connect_source;
use crate::upstream::client::{Client, ConnectError, ConnectionParts};

const SELF_SUBJECT: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const CLUSTER: &str = "/api/v1/namespaces/kube-system";
/// Whom an API server takes a client without credentials for.
const ANONYMOUS: &str = "system:anonymous";
const NO_APISERVER: &str = "check what listens at the address: it must be a kube-apiserver";

/// A connection to the API servers, as far as it came.
pub(super) struct UpstreamLink {
    pub(super) client: Client,
    pub(super) parts: ConnectionParts,
    /// The certificates that the API servers have shown, with their addresses.
    pub(super) certificates: Vec<(String, CertificateFacts)>,
    /// Whether requests can be sent. If not, only what is known of credentials and certificates can be used.
    pub(super) is_usable: bool,
}

/// Checks the way to the API servers; `None` if none is configured.
pub(super) async fn check(
    list: &mut Checklist<'_>,
    settings: &CheckSettings,
) -> Option<UpstreamLink> {
    let mut link = None;
    let configured = async {
        match configure(settings).await {
            Ok((made, verdict)) => {
                link = Some(made);
                verdict
            }
            Err(verdict) => verdict,
        }
    };
    if !list.require(&checks::UPSTREAM_CONFIG, configured).await {
        list.skip_rest(CheckCategory::Upstream, "upstream-config failed");
        return None;
    }
    let mut link = link?;
    let mut shown = Vec::new();
    let answered = answered(&link, &settings.serve.upstream, &mut shown);
    let is_answered = list.require(&checks::UPSTREAM_READY, answered).await;
    link.certificates = shown;
    if !is_answered {
        list.skip_rest(CheckCategory::Upstream, "upstream-ready failed");
        return Some(link);
    }
    let accepted = credentials(&link, settings.serve.auth.mode);
    link.is_usable = list.require(&checks::UPSTREAM_CREDENTIALS, accepted).await;
    Some(link)
}

/// Reads configuration and credentials; nothing is sent.
async fn configure(settings: &CheckSettings) -> Result<(UpstreamLink, CheckVerdict), CheckVerdict> {
    let source = connect_source(&settings.serve.upstream);
    let servers = &settings.serve.api_servers;
    let hint = match settings.serve.upstream {
        UpstreamSource::Kubeconfig { .. } => {
            "check the file, its context, and the files and programs that it names: kubectl must work with it"
        }
        UpstreamSource::InCluster => {
            "--in-cluster works in a pod with a service account (automountServiceAccountToken)"
        }
        UpstreamSource::Url(_) => "write http://host:port or https://host:port",
    };
    let failed = |error: ConnectError| CheckVerdict::failure(one_line(&error), hint);
    let parts = source.parts(servers.clone()).await.map_err(failed)?;
    let client = Client::connect_to(source, servers.clone())
        .await
        .map_err(failed)?;
    // A URL may have a password.
    let names: Vec<String> = parts.servers.iter().map(name_of).collect();
    let verdict = CheckVerdict::ok(names.join(", "));
    let link = UpstreamLink {
        client,
        parts,
        certificates: Vec::new(),
        is_usable: false,
    };
    Ok((link, verdict))
}

/// Of several servers one suffices; each that does not answer is named.
fn of_servers(good: Vec<String>, bad: Vec<CheckVerdict>) -> CheckVerdict {
    let Some(first) = bad.first() else {
        return CheckVerdict::ok(good.join(", "));
    };
    let (count, total) = (bad.len(), good.len() + bad.len());
    let text = match count {
        1 => first.message.clone(),
        _ => "see the reason of each".to_owned(),
    };
    let text = format!("{count} of {total} API servers: {text}");
    let verdict = match good.is_empty() {
        true if total == 1 => return first.clone(),
        true => CheckVerdict::failure(text, &first.hint),
        false => CheckVerdict::warning(text, &first.hint),
    };
    let reasons = bad.iter().map(|one| &one.message);
    verdict.with_details(reasons.filter(|_| count > 1))
}

/// TCP, TLS and HTTP, one after the other.
async fn answered(
    link: &UpstreamLink,
    source: &UpstreamSource,
    shown: &mut Vec<(String, CertificateFacts)>,
) -> CheckVerdict {
    let mut servers = Vec::new();
    let reached = reachable(&link.parts, &mut servers).await;
    if reached.is_failure() {
        return reached;
    }
    let trusted = trusted(&link.parts, servers, source, shown).await;
    if trusted.is_failure() {
        return trusted;
    }
    CheckVerdict::worst_of([reached, trusted, ready(link).await])
}

async fn reachable(parts: &ConnectionParts, servers: &mut Vec<Uri>) -> CheckVerdict {
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    let steps = parts.servers.clone().into_iter().map(|url| async move {
        let connected = connect(&url).await;
        (url, connected)
    });
    for (url, connected) in at_once(steps).await {
        let name = name_of(&url);
        match connected {
            Ok(_) => {
                good.push(name);
                servers.push(url);
            }
            Err(error) => bad.push(handshake::unreachable(&name, &error)),
        }
    }
    of_servers(good, bad)
}

/// Whether the servers that were reached show certificates that clients accept.
async fn trusted(
    parts: &ConnectionParts,
    servers: Vec<Uri>,
    source: &UpstreamSource,
    shown: &mut Vec<(String, CertificateFacts)>,
) -> CheckVerdict {
    if !servers.iter().all(is_tls) {
        let hint = "use https:// unless the connection never leaves this machine";
        let local = |url: &Uri| {
            let (host, _) = handshake::address_of(url);
            host == "localhost"
                || host
                    .parse()
                    .is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
        };
        if servers.iter().all(local) {
            return CheckVerdict::skipped("plain HTTP to loopback");
        }
        return CheckVerdict::warning(
            "plain HTTP: everybody on the way can read and change everything",
            hint,
        );
    }
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    let steps = servers.into_iter().map(|url| {
        let (tls, server_name) = (Arc::clone(&parts.tls), parts.server_name.clone());
        async move {
            let established = establish_tls(&url, &tls, server_name.as_deref()).await;
            (name_of(&url), established)
        }
    });
    for (name, established) in at_once(steps).await {
        match established {
            Ok(facts) => {
                let http = if facts.is_http2 { "HTTP/2" } else { "HTTP/1.1" };
                good.push(format!("{name} ({http})"));
                shown.extend(facts.certificate.map(|facts| (name, facts)));
            }
            Err(error) => bad.push(untrusted(&name, &error, source)),
        }
    }
    let verdict = of_servers(good, bad);
    if parts.is_unverified && verdict.level < CheckLevel::Warning {
        return CheckVerdict::warning(
            "certificates are not verified: everybody on the way can read and change everything",
            "give the kubeconfig a certificate-authority instead of insecure-skip-tls-verify",
        );
    }
    verdict
}

fn untrusted(name: &str, error: &io::Error, source: &UpstreamSource) -> CheckVerdict {
    let authority = match source {
        UpstreamSource::Kubeconfig { .. } => "the kubeconfig (certificate-authority)",
        UpstreamSource::InCluster => "ca.crt of the service account",
        UpstreamSource::Url(_) => {
            "the system's bundle; with --kubeconfig, another one can be named (certificate-authority)"
        }
    };
    handshake::untrusted(name, error, authority)
}

async fn ready(link: &UpstreamLink) -> CheckVerdict {
    link.client.check_endpoints().await;
    let hint = "wait until the control plane is ready, and look at its log";
    match get(&link.client, "/readyz").await {
        Err(error) => CheckVerdict::failure(error.to_string(), NO_APISERVER),
        Ok(response) if is_elsewhere(response.status) => CheckVerdict::failure(
            format!("/readyz is answered {}", response.status.as_u16()),
            NO_APISERVER,
        ),
        Ok(response) if response.status.is_server_error() => CheckVerdict::failure(
            format!(
                "/readyz is answered {}{}",
                response.status.as_u16(),
                message(&response.body)
            ),
            hint,
        ),
        Ok(response) if response.status.is_success() => CheckVerdict::ok("/readyz is answered 200"),
        // Who may not see it learns at least that the server answers.
        Ok(response) => CheckVerdict::ok(format!(
            "it answers; /readyz is answered {}",
            response.status.as_u16()
        )),
    }
}

/// Whether `/readyz` is not there. Every kube-apiserver has it, and redirects nobody.
pub(super) fn is_elsewhere(status: StatusCode) -> bool {
    status == StatusCode::NOT_FOUND || status.is_redirection()
}

/// Asks the API server who the gateway is.
async fn credentials(link: &UpstreamLink, mode: AuthMode) -> CheckVerdict {
    let has_credentials = link.parts.has_credentials;
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let answer = requests::review::<Value>(&link.client, SELF_SUBJECT, &review).await;
    let user = match answer {
        Ok(answer) => {
            let name = answer["status"]["userInfo"]["username"].as_str();
            name.unwrap_or_default().to_owned()
        }
        Err(error) if is_anonymous(&error, has_credentials) => ANONYMOUS.to_owned(),
        Err(error) => return unknown_user(&error),
    };
    if user == ANONYMOUS || user.is_empty() {
        let text = format!("the API server does not know the gateway: it is {ANONYMOUS}");
        if mode == AuthMode::None && !has_credentials {
            return CheckVerdict::warning(
                text,
                "give the gateway credentials: --kubeconfig or --in-cluster",
            );
        }
        return CheckVerdict::failure(
            text,
            "give the gateway credentials that the API server accepts: --kubeconfig or --in-cluster",
        );
    }
    CheckVerdict::ok(format!("the gateway is {user}"))
}

/// Whether the API server does not let the gateway ask because it does not know it: only users that it knows may.
fn is_anonymous(error: &CheckRequestError, has_credentials: bool) -> bool {
    error.status() == Some(StatusCode::FORBIDDEN)
        && (!has_credentials || error.to_string().contains(ANONYMOUS))
}

fn unknown_user(error: &CheckRequestError) -> CheckVerdict {
    match error.status() {
        Some(StatusCode::UNAUTHORIZED) => CheckVerdict::failure(
            "the API server refuses the gateway's credentials (401)",
            "renew the token or the client certificate; check that it is for this cluster",
        ),
        Some(StatusCode::FORBIDDEN) => {
            CheckVerdict::ok("accepted, but the gateway may not ask who it is (403)")
        }
        Some(StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED) => {
            CheckVerdict::skipped("the API server has no SelfSubjectReview")
        }
        Some(_) | None => CheckVerdict::failure(
            error.to_string(),
            "look at the API server's log; its authentication webhook may fail",
        ),
    }
}

/// The uid of the namespace kube-system.
pub(super) async fn cluster_uid(client: &Client) -> Result<String, CheckRequestError> {
    let namespace: ObjectHead = requests::read_json(client, CLUSTER).await?;
    match namespace.metadata.uid {
        uid if uid.is_empty() => Err(CheckRequestError::Json {
            path: CLUSTER.to_owned(),
            reason: "it has no uid".to_owned(),
        }),
        uid => Ok(uid),
    }
}
