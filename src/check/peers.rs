//! Checks of other gateways, from which caches are taken over (decision 43).

use std::collections::BTreeSet;
use std::net::SocketAddr;

use http::StatusCode;
use tokio::net::lookup_host;

use super::catalogue as checks;
use super::checklist::Checklist;
use super::handshake::{address_of, name_of};
use super::parallel::{SERVERS_MAX, STEP_TIME_MAX, at_once, in_time};
use super::permissions::missing;
use super::requests::{CheckRequestError, read_json};
use super::rights::{needed_verdict, of_handover};
use super::upstream::UpstreamLink;
use super::verdict::CheckVerdict;
use super::words::counted;
use crate::config::{CheckCategory, CheckSettings, HandoverSettings};
use crate::error_chain::one_line;
use crate::protocol::handover::{HandoverIndex, HandoverTarget};
use crate::upstream::client::{Client, ConnectSource};

pub(super) async fn check(
    list: &mut Checklist<'_>,
    settings: &CheckSettings,
    upstream: Option<&UpstreamLink>,
) {
    let Some(handover) = &settings.serve.handover else {
        list.skip_rest(CheckCategory::Handover, "there is no --handover-from");
        return;
    };
    match upstream {
        None => list.skip(
            &checks::HANDOVER_RIGHTS,
            "there is no connection to the API server",
        ),
        Some(link) => {
            let rights = rights(handover, &link.client);
            list.make(&checks::HANDOVER_RIGHTS, rights).await;
        }
    }
    list.make(
        &checks::HANDOVER_PEERS,
        peers(handover, settings.before_install),
    )
    .await;
}

/// How one of the gateways is reached. The name is that of all, the address that of one.
fn source(settings: &HandoverSettings, address: SocketAddr) -> ConnectSource {
    let (host, _) = address_of(&settings.from);
    let scheme = settings.from.scheme_str().unwrap_or("https");
    let url = format!("{scheme}://{address}");
    ConnectSource::Peer {
        url: url.parse().unwrap_or_else(|_| settings.from.clone()),
        ca_file: settings.ca_file.clone(),
        server_name: settings.server_name.clone().unwrap_or(host),
        token_file: settings.token_file.clone(),
    }
}

/// The right that the other gateways ask about, if the token is that of the gateway's own identity.
async fn rights(settings: &HandoverSettings, client: &Client) -> CheckVerdict {
    if settings.token_file.is_none() {
        return CheckVerdict::skipped("there is no --handover-token-file");
    }
    match missing(client, of_handover(settings)).await {
        Ok(missing) => {
            let what = "with the token of the gateway's own identity, other gateways answer 403";
            needed_verdict(&missing, what, false)
        }
        Err(error) => CheckVerdict::skipped(error.to_string()),
    }
}

async fn peers(settings: &HandoverSettings, before_install: bool) -> CheckVerdict {
    let name = name_of(&settings.from);
    let found = lookup_host(address_of(&settings.from)).await;
    let found: BTreeSet<SocketAddr> = match found {
        Ok(found) => found.take(SERVERS_MAX).collect(),
        Err(error) if before_install => {
            return CheckVerdict::skipped(format!("{name} does not resolve yet: {error}"));
        }
        Err(error) => {
            return CheckVerdict::warning(
                format!("{name} does not resolve: {error}"),
                "name a headless Service of the gateways with --handover-from, with publishNotReadyAddresses: true",
            );
        }
    };
    let steps = found.iter().map(|&address| {
        let source = source(settings, address);
        async move { (address, in_time(ask(source)).await) }
    });
    let (mut failed, mut answers) = (Vec::new(), 0);
    for (address, answer) in at_once(steps).await {
        let overdue = || {
            Err(PeerFailure::Silent(format!(
                "no answer within {} s",
                STEP_TIME_MAX.as_secs()
            )))
        };
        if let Err(failure) = answer.unwrap_or_else(overdue) {
            answers += usize::from(matches!(failure, PeerFailure::Refusal(_)));
            failed.push(format!("{address}: {failure}"));
        }
    }
    let count = found.len() - failed.len();
    let total = counted(found.len(), ("gateway", "gateways"));
    match (count, failed.is_empty()) {
        (_, true) => CheckVerdict::ok(format!("caches are handed over by {total}")),
        (0, _) if before_install && answers == 0 => {
            CheckVerdict::skipped("no gateway runs yet").with_details(failed)
        }
        _ => CheckVerdict::warning(
            format!("caches are handed over by {count} of {total}; other caches are listed upstream"),
            "check port, authority, server name and token of --handover-from, and the right to get /kube-fanout/handover",
        )
        .with_details(failed),
    }
}

/// Why a gateway hands nothing over.
#[derive(Debug, thiserror::Error)]
enum PeerFailure {
    /// It does not answer, so it may not run yet.
    #[error("{0}")]
    Silent(String),
    /// It answers something else.
    #[error("{0}")]
    Refusal(String),
}

async fn ask(source: ConnectSource) -> Result<(), PeerFailure> {
    let client = Client::connect(source).await;
    let client = client.map_err(|error| PeerFailure::Silent(one_line(&error)))?;
    let path = HandoverTarget::Index.path();
    let index = read_json::<HandoverIndex>(&client, &path).await;
    match index {
        Ok(_) => Ok(()),
        Err(error) if error.status() == Some(StatusCode::NOT_FOUND) => {
            Err(PeerFailure::Refusal("it is no gateway".to_owned()))
        }
        Err(error @ CheckRequestError::Send { .. }) => Err(PeerFailure::Silent(error.to_string())),
        Err(error) => Err(PeerFailure::Refusal(error.to_string())),
    }
}
