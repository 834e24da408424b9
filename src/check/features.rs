//! Checks of what the API server offers. Lists and watches are those of namespaces, which are few and which the gateway reads anyway.

use http::StatusCode;
use serde_json::Value;
use tokio::task::JoinSet;

use super::aggregation;
use super::catalogue as checks;
use super::checklist::Checklist;
use super::requests::{CheckRequestError, get, read_json, read_list};
use super::rights;
use super::upstream::UpstreamLink;
use super::verdict::CheckVerdict;
use super::versions::{
    LOAD_HINT, ListHead, ServerVersion, consistency_verdict, exactness_verdict, flow_verdict,
    pages_verdict, version_verdict,
};
use super::watching::watch_from_start;
use super::words::{RESOURCES, counted};
use crate::config::{AuthMode, CheckCategory, CheckSettings};
use crate::upstream::client::Client;
use crate::upstream::discovery::discover;

const NAMESPACES: &str = "/api/v1/namespaces";
/// As many as a gateway sends when it starts to fill its caches.
const REQUESTS_AT_A_TIME: usize = 10;
/// The header in which priority and fairness names the rule that it applied.
const FLOW_SCHEMA: &str = "x-kubernetes-pf-flowschema-uid";
const PARTS: (&str, &str) = ("part of the API", "parts of the API");
const RIGHTS_HINT: &str =
    "let the gateway list and watch namespaces, or look at the API server's log";

pub(super) async fn check(list: &mut Checklist<'_>, settings: &CheckSettings, link: &UpstreamLink) {
    if !list.is_chosen(CheckCategory::Features) {
        return;
    }
    let client = &link.client;
    list.make(&checks::SERVER_VERSION, version(client)).await;
    list.make(&checks::DISCOVERY, discovery(client, settings))
        .await;
    list.make(
        &checks::AGGREGATED_APIS,
        aggregation::aggregated(client, settings),
    )
    .await;
    list.make(&checks::UNFILTERED_LISTS, aggregation::unfiltered(client))
        .await;
    list.make(
        &checks::REVIEW_APIS,
        review_apis(client, settings.serve.auth.mode),
    )
    .await;
    list.make(&checks::STREAMED_LISTS, streamed_lists(client))
        .await;
    list.make(&checks::CONSISTENT_READS, consistent_reads(client))
        .await;
    list.make(&checks::EXACT_VERSIONS, exact_versions(client))
        .await;
    list.make(&checks::PAGES, pages(client)).await;
    list.make(&checks::FLOW_CONTROL, flow_control(client)).await;
}

async fn version(client: &Client) -> CheckVerdict {
    match read_json::<ServerVersion>(client, "/version").await {
        Ok(version) => version_verdict(&version),
        Err(error) => {
            CheckVerdict::failure(error.to_string(), "point the gateway at a kube-apiserver")
        }
    }
}

async fn discovery(client: &Client, settings: &CheckSettings) -> CheckVerdict {
    let discovery = match discover(client).await {
        Ok(discovery) => discovery,
        Err(error) => {
            return CheckVerdict::failure(
                error.reason(),
                "let the gateway read /api and /apis: bind its identity to the ClusterRole system:discovery",
            );
        }
    };
    let is_missing = |gvr: &&crate::resource::Gvr| {
        let found = discovery.resource(gvr);
        found.is_none_or(|found| !found.can_be_cached())
    };
    let missing: Vec<_> = settings
        .serve
        .pin_resources
        .iter()
        .filter(is_missing)
        .collect();
    if !missing.is_empty() {
        let text = "resources of --pin-resources are not served, or cannot be watched: the gateway will not be ready";
        let hint = "correct --pin-resources, or install what serves them";
        let names = missing.iter().map(ToString::to_string);
        return CheckVerdict::failure(text, hint).with_details(names);
    }
    let count = discovery
        .resources()
        .filter(|one| one.can_be_cached())
        .count();
    let failed = discovery.failed();
    let text = format!("{} can be listed and watched", counted(count, RESOURCES));
    if failed.is_empty() {
        return CheckVerdict::ok(text);
    }
    let text = format!("{text}; no answer from {}", counted(failed.len(), PARTS));
    let hint = "aggregated API servers are down: kubectl get apiservices; their resources are forwarded until they answer";
    let parts = failed
        .iter()
        .map(|part| format!("{}: {}", part.path, part.reason));
    CheckVerdict::warning(text, hint).with_details(parts)
}

/// The lists of resources say what exists; a request for a resource itself may be forbidden before anybody looks whether it does.
async fn review_apis(client: &Client, mode: AuthMode) -> CheckVerdict {
    let apis = rights::review_apis(mode);
    if apis.is_empty() {
        return CheckVerdict::skipped("--auth none needs no reviews");
    }
    let mut missing = Vec::new();
    for gvr in &apis {
        let path = format!("/apis/{}/{}", gvr.group, gvr.version);
        match read_json::<Value>(client, &path).await {
            Ok(resources) if names_resource(&resources, &gvr.resource) => {}
            Ok(_) => missing.push(gvr.to_string()),
            Err(error) if error.status() == Some(StatusCode::NOT_FOUND) => {
                missing.push(gvr.to_string());
            }
            Err(error) if error.status() == Some(StatusCode::FORBIDDEN) => {
                return CheckVerdict::skipped(error.to_string());
            }
            Err(error) => {
                return CheckVerdict::failure(error.to_string(), "look at the API server's log");
            }
        }
    }
    if missing.is_empty() {
        let names = apis.iter().map(|gvr| gvr.resource.to_string());
        return CheckVerdict::ok(names.collect::<Vec<_>>().join(", "));
    }
    let hint = match mode {
        AuthMode::SelfCheck => {
            "upgrade the API server, or use --auth review, whose reviews every version has"
        }
        AuthMode::Review | AuthMode::Rbac | AuthMode::None => {
            "point the gateway at a kube-apiserver: every version has these reviews"
        }
    };
    CheckVerdict::failure("the API server lacks reviews that --auth needs", hint)
        .with_details(missing)
}

/// Whether a list of the resources of a group has this one.
fn names_resource(list: &Value, name: &str) -> bool {
    let resources = list["resources"].as_array().into_iter().flatten();
    resources
        .into_iter()
        .any(|resource| resource["name"] == name)
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

async fn exact_versions(client: &Client) -> CheckVerdict {
    let first = match read_list::<ListHead>(client, &format!("{NAMESPACES}?limit=1")).await {
        Ok(first) => first,
        Err(error) => return unread(&error),
    };
    let version = first.version().unwrap_or(0);
    let path = format!("{NAMESPACES}?limit=1&resourceVersion={version}&resourceVersionMatch=Exact");
    match read_list::<ListHead>(client, &path).await {
        Ok(list) => exactness_verdict(version, Some(&list)),
        Err(error) => match error.status() {
            // It knows no exact versions, or forgets them at once.
            Some(StatusCode::BAD_REQUEST | StatusCode::GONE) => exactness_verdict(version, None),
            Some(_) | None => unread(&error),
        },
    }
}

async fn pages(client: &Client) -> CheckVerdict {
    let first = match read_list::<ListHead>(client, &format!("{NAMESPACES}?limit=1")).await {
        Ok(first) => first,
        Err(error) => return unread(&error),
    };
    let token = &first.metadata.continue_token;
    if token.is_empty() {
        return pages_verdict(&first, None);
    }
    let token = percent_encoding::utf8_percent_encode(token, percent_encoding::NON_ALPHANUMERIC);
    let path = format!("{NAMESPACES}?limit=1&continue={token}");
    match read_list::<ListHead>(client, &path).await {
        Ok(second) => pages_verdict(&first, Some(&second)),
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
