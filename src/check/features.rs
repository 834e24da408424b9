//! Checks of what the API server offers. Lists and watches are those of namespaces, which are few and which the gateway reads anyway.

use http::StatusCode;
use tokio::task::JoinSet;

use super::aggregation;
use super::authorizers::authorizers;
use super::catalogue as checks;
use super::checklist::Checklist;
use super::requests::{CheckRequestError, get, read_json, read_list};
use super::upstream::UpstreamLink;
use super::verdict::CheckVerdict;
use super::versions::{
    LOAD_HINT, ListHead, ServerVersion, consistency_verdict, flow_verdict, version_verdict,
};
use super::watching::watch_from_start;
use crate::config::{CheckCategory, CheckSettings};
use crate::upstream::client::Client;

const NAMESPACES: &str = "/api/v1/namespaces";
/// As many as a gateway sends when it starts to fill its caches.
const REQUESTS_AT_A_TIME: usize = 10;
/// The header in which priority and fairness names the rule that it applied.
const FLOW_SCHEMA: &str = "x-kubernetes-pf-flowschema-uid";
const RIGHTS_HINT: &str =
    "let the gateway list and watch namespaces, or look at the API server's log";

pub(super) async fn check(list: &mut Checklist<'_>, settings: &CheckSettings, link: &UpstreamLink) {
    if !list.is_chosen(CheckCategory::Features) {
        return;
    }
    let client = &link.client;
    list.make(&checks::SERVER_VERSION, version(client)).await;
    list.make(
        &checks::AGGREGATED_APIS,
        aggregation::aggregated(client, settings),
    )
    .await;
    list.make(&checks::UNFILTERED_LISTS, aggregation::unfiltered(client))
        .await;
    list.make(&checks::STREAMED_LISTS, streamed_lists(client))
        .await;
    list.make(&checks::CONSISTENT_READS, consistent_reads(client))
        .await;
    list.make(&checks::FLOW_CONTROL, flow_control(client)).await;
    list.make(&checks::AUTHORIZERS, authorizers(client, settings))
        .await;
}

async fn version(client: &Client) -> CheckVerdict {
    match read_json::<ServerVersion>(client, "/version").await {
        Ok(version) => version_verdict(&version),
        Err(error) => {
            CheckVerdict::failure(error.to_string(), "point the gateway at a kube-apiserver")
        }
    }
}

async fn streamed_lists(client: &Client) -> CheckVerdict {
    let hint = "turn the feature gate WatchList on, or upgrade to 1.32: without it the gateway lists in pages, which costs the API server more memory";
    match watch_from_start(client, NAMESPACES).await {
        Err(error) => match error.status() {
            Some(StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED) => {
                CheckVerdict::skipped(format!("namespaces cannot be watched: {error}"))
            }
            Some(status) if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() => {
                CheckVerdict::failure(error.to_string(), LOAD_HINT)
            }
            Some(_) => CheckVerdict::warning(format!("lists are not streamed: {error}"), hint),
            None => CheckVerdict::failure(error.to_string(), RIGHTS_HINT),
        },
        Ok(progress) => {
            let verdict = progress.verdict(0, hint);
            match verdict.is_failure() {
                true => CheckVerdict::warning(verdict.message, hint),
                false => verdict,
            }
        }
    }
}

/// The verdict on lists that could not be read.
fn unread(error: &CheckRequestError) -> CheckVerdict {
    match error.status() {
        Some(StatusCode::FORBIDDEN) => CheckVerdict::skipped(error.to_string()),
        Some(_) | None => CheckVerdict::failure(error.to_string(), RIGHTS_HINT),
    }
}

async fn consistent_reads(client: &Client) -> CheckVerdict {
    let lists = async {
        let first: ListHead = read_list(client, &format!("{NAMESPACES}?limit=1")).await?;
        let version = first.version().unwrap_or(0);
        let path = format!(
            "{NAMESPACES}?limit=1&resourceVersion={version}&resourceVersionMatch=NotOlderThan"
        );
        let second: ListHead = read_list(client, &path).await?;
        Ok::<_, CheckRequestError>((first, second))
    };
    match lists.await {
        Ok((first, second)) => consistency_verdict(&first, &second),
        Err(error) => unread(&error),
    }
}

async fn flow_control(client: &Client) -> CheckVerdict {
    let mut running = JoinSet::new();
    for _ in 0..REQUESTS_AT_A_TIME {
        let client = client.clone();
        running.spawn(async move { get(&client, &format!("{NAMESPACES}?limit=1")).await });
    }
    let (mut statuses, mut has_schema) = (Vec::new(), false);
    while let Some(answer) = running.join_next().await {
        match answer {
            Ok(Ok(response)) => {
                has_schema |= response.headers.contains_key(FLOW_SCHEMA);
                statuses.push(response.status.as_u16());
            }
            Ok(Err(error)) => {
                return CheckVerdict::failure(error.to_string(), LOAD_HINT);
            }
            Err(_) => {}
        }
    }
    flow_verdict(&statuses, has_schema)
}
