//! Checks of who serves what: aggregated API servers, and an API server that is itself a filtering proxy (decision 59).

use std::collections::BTreeMap;

use http::StatusCode;

use super::api_services::known;
use super::permissions::missing;
use super::requests::{CheckRequestError, get};
use super::rights::of_cache;
use super::verdict::CheckVerdict;
use super::versions::LOAD_HINT;
use super::words::counted;
use crate::cache_rule::{ApiServiceKnowledge, ApiServices, ForwardReason, may_cache};
use crate::config::CheckSettings;
use crate::resource::Gvr;
use crate::upstream::client::Client;
use crate::upstream::discovery::{DiscoveredResource, discover};

const GROUPS: (&str, &str) = ("group and version", "groups and versions");
/// Resources that the gateway may not list, of which the API server is asked for one object.
const FORBIDDEN_LISTS_MAX: usize = 3;
/// Names of groups in one line of details.
const LINE_LEN_MAX: usize = 160;

/// Which groups services serve, and what becomes of them.
pub(super) async fn aggregated(client: &Client, settings: &CheckSettings) -> CheckVerdict {
    let services = match known(client).await {
        Ok(services) => services,
        Err(error) => return unknown(&error),
    };
    let serve = &settings.serve;
    let discovered = discover(client).await.unwrap_or_default();
    aggregated_verdict(&AggregatedApis {
        named: discovered
            .resources()
            .map(|one| &one.gvr)
            .filter(|gvr| services.service(gvr).is_some() && serve.cached.name_group_of(gvr))
            .map(ToString::to_string)
            .collect(),
        pinned: serve
            .pin_resources
            .iter()
            .filter(|gvr| {
                let known = ApiServiceKnowledge::Known(services.clone());
                let ruling = may_cache(gvr, &serve.cached, &known);
                matches!(ruling, Err(ForwardReason::Service(_)))
            })
            .map(ToString::to_string)
            .collect(),
        services,
    })
}

fn unknown(error: &CheckRequestError) -> CheckVerdict {
    let what = "custom resources are forwarded, unless --cache-resources names them";
    match error.status() {
        Some(StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED) => CheckVerdict::warning(
            format!("who serves which group is unknown, so {what}: {error}"),
            "let the gateway get, list and watch apiservices.apiregistration.k8s.io",
        ),
        Some(StatusCode::NOT_FOUND) => CheckVerdict::warning(
            format!("the API server has no APIServices, so {what}"),
            "name the groups of custom resources in --cache-resources, if it shows every caller the same lists",
        ),
        Some(_) | None => CheckVerdict::failure(error.to_string(), LOAD_HINT),
    }
}

/// The groups that services serve, and the settings that concern them.
struct AggregatedApis {
    services: ApiServices,
    /// Resources of theirs that `--cache-resources` names.
    named: Vec<String>,
    /// Resources of theirs that must be filled before the gateway is ready, and never will be.
    pinned: Vec<String>,
}

fn aggregated_verdict(apis: &AggregatedApis) -> CheckVerdict {
    if !apis.pinned.is_empty() {
        let text = "services serve resources of --pin-resources, which are not cached: the gateway will not be ready";
        let hint = "leave them out of --pin-resources; or name them in --cache-resources, if their service shows every caller the same list";
        return CheckVerdict::failure(text, hint).with_details(&apis.pinned);
    }
    let count = apis.services.aggregated().count();
    let groups = counted(count, GROUPS);
    if !apis.named.is_empty() {
        let text = "services serve resources that --cache-resources names: every caller who may list them gets what the gateway's identity gets";
        let hint = "be sure that their service shows every caller the same list, or leave them out of --cache-resources";
        return CheckVerdict::warning(text, hint).with_details(&apis.named);
    }
    if count == 0 {
        return CheckVerdict::ok("kube-apiserver serves all groups itself");
    }
    let text = format!(
        "services serve {groups}, which are forwarded: each list and each watch costs the API server and the service what it costs without the gateway"
    );
    CheckVerdict::ok(text).with_details(lines(&apis.services))
}

/// The groups of each service, several in a line.
fn lines(services: &ApiServices) -> Vec<String> {
    let mut by_service = BTreeMap::<&str, Vec<String>>::new();
    for (group, service) in services.aggregated() {
        by_service.entry(service).or_default().push(group);
    }
    let mut lines = Vec::new();
    for (service, groups) in by_service {
        let mut line = format!("{service}:");
        for group in groups {
            if line.len() + group.len() > LINE_LEN_MAX {
                lines.push(std::mem::replace(&mut line, format!("{service}:")));
            }
            line.push(' ');
            line.push_str(&group);
        }
        lines.push(line);
    }
    lines
}

/// Whether the API server refuses the lists that the gateway may not read. A proxy that filters by caller answers them with what it shows.
pub(super) async fn unfiltered(client: &Client) -> CheckVerdict {
    let discovered = match discover(client).await {
        Ok(discovered) => discovered,
        Err(error) => return CheckVerdict::skipped(error.reason()),
    };
    let services = known(client).await.unwrap_or_default();
    let resources = discovered.resources();
    let own: Vec<_> = resources
        .filter(|one| one.list && services.service(&one.gvr).is_none())
        .collect();
    let forbidden = match forbidden(client, &own).await {
        Ok(forbidden) => forbidden,
        Err(error) => return CheckVerdict::skipped(error.to_string()),
    };
    if forbidden.is_empty() {
        return CheckVerdict::skipped(
            "the gateway may list everything that was asked about, so a filter would not show",
        );
    }
    let mut answered = Vec::new();
    for gvr in &forbidden {
        match get(client, &format!("{}?limit=1", gvr.collection_path())).await {
            Ok(response) if response.status == StatusCode::OK => answered.push(gvr.to_string()),
            Ok(_) => {}
            Err(error) => return CheckVerdict::skipped(error.to_string()),
        }
    }
    if answered.is_empty() {
        return CheckVerdict::ok("lists that the gateway may not read are refused");
    }
    CheckVerdict::failure(
        "lists that the gateway may not read are answered: something on the way filters them by caller, and memory would show every caller the gateway's part",
        "point the gateway at kube-apiserver itself, or authorize all requests there",
    )
    .with_details(answered)
}

/// A few of the resources that the gateway may not list.
async fn forbidden(
    client: &Client,
    resources: &[&DiscoveredResource],
) -> Result<Vec<Gvr>, CheckRequestError> {
    let mut forbidden = Vec::new();
    for chunk in resources.chunks(8) {
        let asked = chunk.iter().map(|one| {
            let [list, _] = of_cache(&one.gvr);
            list
        });
        let missing = missing(client, asked.collect()).await?;
        let denied = chunk.iter().filter(|one| {
            let [list, _] = of_cache(&one.gvr);
            missing.contains(&list)
        });
        forbidden.extend(denied.map(|one| one.gvr.clone()));
        if forbidden.len() >= FORBIDDEN_LISTS_MAX {
            break;
        }
    }
    forbidden.truncate(FORBIDDEN_LISTS_MAX);
    Ok(forbidden)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache_rule::ApiService;
    use crate::check::verdict::CheckLevel;

    fn services(count: usize) -> ApiServices {
        let service = |index| {
            let json = format!(
                r#"{{"spec":{{"group":"g{index}.example.com","version":"v1","service":{{"namespace":"ns","name":"s"}}}}}}"#
            );
            ApiService::read("", json.as_bytes())
        };
        (0..count).map(service).collect()
    }

    fn verdict(count: usize, named: &[&str], pinned: &[&str]) -> CheckVerdict {
        let owned = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        aggregated_verdict(&AggregatedApis {
            services: services(count),
            named: owned(named),
            pinned: owned(pinned),
        })
    }

    #[test]
    fn every_group_that_a_service_serves_is_named() {
        let none = verdict(0, &[], &[]);
        assert_eq!((none.level, none.details.len()), (CheckLevel::Ok, 0));
        let many = verdict(60, &[], &[]);
        assert_eq!(many.level, CheckLevel::Ok);
        let details = many.details.join(" ");
        for index in 0..60 {
            assert!(
                details.contains(&format!(" g{index}.example.com/v1")),
                "{details}"
            );
        }
        assert!(many.details.iter().all(|line| line.starts_with("ns/s: ")));
    }

    #[test]
    fn caching_what_a_service_serves_is_a_warning_and_pinning_it_a_failure() {
        assert_eq!(verdict(1, &["a"], &[]).level, CheckLevel::Warning);
        assert_eq!(verdict(1, &[], &["a"]).level, CheckLevel::Failure);
    }
}
