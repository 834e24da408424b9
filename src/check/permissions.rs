//! Asks the API server which rights the gateway's identity has.

use std::collections::VecDeque;

use http::StatusCode;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::api_services::knowledge;
use super::catalogue as checks;
use super::checklist::Checklist;
use super::requests::{self, CheckRequestError};
use super::rights::{self, CacheRights, Right};
use super::upstream::UpstreamLink;
use super::verdict::CheckVerdict;
use super::versions::LOAD_HINT;
use crate::cache_rule::may_cache;
use crate::cli::PASSTHROUGH_RESOURCES;
use crate::config::{
    AuthMode, CheckCategory, CheckSettings, ResourcePattern, ServeSettings, did_you_mean, nearest,
};
use crate::resource::Gvr;
use crate::upstream::client::Client;
use crate::upstream::discovery::{Discovery, discover};

const ACCESS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const RULES: &str = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
const UNAUTHENTICATED: &str = "clients are not authenticated (--auth none)";
/// Reviews at a time: few enough for the share that priority and fairness gives one user.
const REVIEWS_MAX: usize = 8;
/// Clusters with a thousand resources are rare; more are not asked about.
const RESOURCES_MAX: usize = 1_024;

pub(super) async fn check(list: &mut Checklist<'_>, settings: &CheckSettings, link: &UpstreamLink) {
    if !list.is_chosen(CheckCategory::Rights) {
        return;
    }
    let (client, serve) = (&link.client, &settings.serve);
    list.make(&checks::RIGHTS_RESOURCES, of_caches(client, settings))
        .await;
    let mode = serve.auth.mode;
    let reviews = rights::of_reviews(mode);
    let what = "callers cannot be authenticated or authorized";
    let reviews = needed(
        client,
        reviews,
        (what, true),
        "--auth needs no reviews under the gateway's identity",
    );
    list.make(&checks::RIGHTS_REVIEWS, reviews).await;
    let (what, is_vital) = match mode {
        AuthMode::Rbac => ("--auth rbac decides by these objects", true),
        AuthMode::SelfCheck | AuthMode::Review => (
            "changes of roles are noticed only when remembered decisions expire",
            false,
        ),
        AuthMode::None => ("", false),
    };
    let roles = match mode {
        AuthMode::None => Vec::new(),
        AuthMode::SelfCheck | AuthMode::Review | AuthMode::Rbac => rights::of_roles(),
    };
    let roles = needed(client, roles, (what, is_vital), UNAUTHENTICATED);
    list.make(&checks::RIGHTS_ROLES, roles).await;
    let what = "tokens of deleted pods and service accounts end only when they are checked again";
    let credentials = needed(
        client,
        rights::of_bound_objects(mode),
        (what, false),
        UNAUTHENTICATED,
    );
    list.make(&checks::RIGHTS_CREDENTIALS, credentials).await;
    list.make(&checks::RIGHTS_IMPERSONATE, impersonation(client, settings))
        .await;
    list.make(&checks::RIGHTS_SHARED, shared(client, mode))
        .await;
}

fn unanswered(error: &CheckRequestError) -> CheckVerdict {
    let hint = match error.status() {
        Some(StatusCode::FORBIDDEN) => {
            "let the gateway create selfsubjectaccessreviews: bind its identity to the ClusterRole system:basic-user"
        }
        Some(_) | None => LOAD_HINT,
    };
    let text = format!("the API server does not say which rights the gateway has: {error}");
    CheckVerdict::failure(text, hint)
}

/// The rights among these that the gateway does not have.
pub(super) async fn missing(
    client: &Client,
    asked: Vec<Right>,
) -> Result<Vec<Right>, CheckRequestError> {
    let mut waiting = VecDeque::from(asked);
    let mut running = JoinSet::new();
    let mut missing = Vec::new();
    loop {
        while running.len() < REVIEWS_MAX {
            let Some(right) = waiting.pop_front() else {
                break;
            };
            let client = client.clone();
            running.spawn(async move {
                let allowed = is_allowed(&client, &right).await;
                allowed.map(|is_allowed| (right, is_allowed))
            });
        }
        match running.join_next().await {
            None => break,
            Some(Ok(answer)) => {
                let (right, is_allowed) = answer?;
                missing.extend((!is_allowed).then_some(right));
            }
            // A task that panics has decided nothing.
            Some(Err(_)) => {}
        }
    }
    missing.sort_by_key(ToString::to_string);
    Ok(missing)
}

async fn is_allowed(client: &Client, right: &Right) -> Result<bool, CheckRequestError> {
    let spec = match right {
        Right::Path { verb, path } => {
            json!({"nonResourceAttributes": {"verb": verb, "path": path}})
        }
        Right::Resource {
            verb,
            group,
            resource,
            subresource,
        } => json!({"resourceAttributes": {
            "verb": verb, "group": group, "resource": resource, "subresource": subresource,
        }}),
    };
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec,
    });
    let answer: Value = requests::review(client, ACCESS, &review).await?;
    Ok(answer["status"]["allowed"].as_bool().unwrap_or(false))
}

async fn needed(
    client: &Client,
    asked: Vec<Right>,
    (what, is_vital): (&str, bool),
    none: &str,
) -> CheckVerdict {
    if asked.is_empty() {
        return CheckVerdict::skipped(none);
    }
    match missing(client, asked).await {
        Ok(missing) => rights::needed_verdict(&missing, what, is_vital),
        Err(error) => unanswered(&error),
    }
}

/// Whether the gateway may list and watch what it may cache.
async fn of_caches(client: &Client, settings: &CheckSettings) -> CheckVerdict {
    let serve = &settings.serve;
    let discovery = match discover(client).await {
        Ok(discovery) => discovery,
        Err(error) => {
            return CheckVerdict::failure(
                format!("the resources are unknown: {}", error.reason()),
                "let the gateway read /api and /apis: bind its identity to the ClusterRole system:discovery",
            );
        }
    };
    let known = knowledge(client).await;
    let resources = discovery.resources();
    let resources = resources
        .filter(|one| one.can_be_cached() && may_cache(&one.gvr, &serve.cached, &known).is_ok());
    let wanted: Vec<Gvr> = resources
        .map(|one| one.gvr.clone())
        .take(RESOURCES_MAX)
        .collect();
    let everything = missing(client, rights::of_everything().into()).await;
    let denied = match everything {
        Ok(missing) if missing.is_empty() => Ok(Vec::new()),
        Ok(_) => denied(client, &wanted).await,
        Err(error) => Err(error),
    };
    match denied {
        Err(error) => unanswered(&error),
        Ok(denied) => rights::cache_verdict(&CacheRights {
            wanted,
            pinned: serve.pin_resources.clone(),
            denied,
            absent: absent(&serve.pin_resources, &discovery),
            is_named: !serve.cached.allowed.contains(&ResourcePattern::ALL),
            unknown: unknown(serve, &discovery),
        }),
    }
}

/// The pinned resources that the API server does not have, or does not let anybody watch.
fn absent(pinned: &[Gvr], discovery: &Discovery) -> Vec<Gvr> {
    // A part that does not answer may have them.
    if !discovery.failed().is_empty() {
        return Vec::new();
    }
    let can_be_cached = |gvr: &Gvr| {
        let found = discovery.resource(gvr);
        found.is_some_and(|found| found.can_be_cached())
    };
    let absent = pinned.iter().filter(|gvr| !can_be_cached(gvr));
    absent.cloned().collect()
}

/// The resources that settings name and the API server does not have. What all gateways forward by default is in few clusters.
fn unknown(serve: &ServeSettings, discovery: &Discovery) -> Vec<String> {
    // A part that does not answer may have them.
    if !discovery.failed().is_empty() {
        return Vec::new();
    }
    let names: Vec<String> = discovery
        .resources()
        .map(|one| match &*one.gvr.group {
            "" => one.gvr.resource.to_string(),
            group => format!("{}.{group}", one.gvr.resource),
        })
        .collect();
    let excluded = serve.state.as_ref().map(|state| &*state.excluded);
    let lists = [
        ("--cache-resources", &*serve.cached.allowed),
        ("--passthrough-resources", &*serve.cached.denied),
        ("--catch-up-resources", &*serve.catch_up),
        ("--state-exclude", excluded.unwrap_or_default()),
    ];
    let mut found = Vec::new();
    for (flag, patterns) in lists {
        for pattern in patterns {
            let name = pattern.to_string();
            let is_known = discovery.resources().any(|one| pattern.covers(&one.gvr))
                || PASSTHROUGH_RESOURCES.split(',').any(|known| known == name);
            if !is_known {
                let meant = nearest_resource(&name, &names);
                found.push(format!("{flag} {name}{}", did_you_mean(meant)));
            }
        }
    }
    found
}

/// The resource of the API server that a name probably means, which may lack the group.
fn nearest_resource<'a>(name: &str, names: &'a [String]) -> Option<&'a str> {
    if name.contains('.') {
        return nearest(name, names.iter().map(String::as_str));
    }
    let plurals = || {
        let parts = names.iter().map(|known| known.split('.').next());
        parts.map(Option::unwrap_or_default)
    };
    let plural = nearest(name, plurals())?;
    let at = plurals().position(|known| known == plural)?;
    Some(&names[at])
}

async fn denied(client: &Client, wanted: &[Gvr]) -> Result<Vec<Gvr>, CheckRequestError> {
    let asked = wanted.iter().flat_map(rights::of_cache).collect();
    let missing = missing(client, asked).await?;
    let is_denied = |gvr: &&Gvr| {
        let needed = rights::of_cache(gvr);
        needed.iter().any(|right| missing.contains(right))
    };
    Ok(wanted.iter().filter(is_denied).cloned().collect())
}

/// Roles may name the users whom the gateway may impersonate; then a question without a name is denied.
async fn impersonation(client: &Client, settings: &CheckSettings) -> CheckVerdict {
    let asked = rights::of_impersonation(&settings.serve);
    if asked.is_empty() {
        let reason =
            "no callers with certificates or behind front proxies are expected (--client-ca-file)";
        return CheckVerdict::skipped(reason);
    }
    let missing = match missing(client, asked).await {
        Ok(missing) => missing,
        Err(error) => return unanswered(&error),
    };
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": "default"},
    });
    let rules = match missing.is_empty() {
        true => Value::Null,
        false => {
            let answer = requests::review(client, RULES, &review).await;
            answer.unwrap_or_default()
        }
    };
    rights::impersonation_verdict(missing, &rules)
}

/// What clients may do if everybody acts as the gateway.
async fn shared(client: &Client, mode: AuthMode) -> CheckVerdict {
    if mode != AuthMode::None {
        return CheckVerdict::skipped("callers are authenticated, and act as themselves");
    }
    let asked = rights::of_danger();
    match missing(client, asked.clone()).await {
        Ok(missing) => {
            let granted: Vec<_> = asked
                .into_iter()
                .filter(|right| !missing.contains(right))
                .collect();
            rights::shared_verdict(&granted)
        }
        Err(error) => unanswered(&error),
    }
}
