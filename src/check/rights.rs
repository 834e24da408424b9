//! Which rights the gateway's own identity needs, and verdicts about those that it has (docs/SECURITY.md, "Modes").

use std::fmt;

use serde_json::Value;

use super::verdict::CheckVerdict;
use super::words::{RESOURCES, counted};
use crate::config::{AuthMode, HandoverSettings, ServeSettings};
use crate::protocol::handover::HandoverTarget;
use crate::resource::{CacheKey, Gvr};

const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";
/// Roles and bindings, as `--auth rbac` decides from them.
const ROLE_RESOURCES: [&str; 4] = [
    "roles",
    "rolebindings",
    "clusterroles",
    "clusterrolebindings",
];

/// A right that a role can grant, in all namespaces.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Right {
    Resource {
        verb: &'static str,
        group: String,
        resource: String,
        subresource: String,
    },
    Path {
        verb: &'static str,
        path: String,
    },
}

impl Right {
    pub(super) fn new(verb: &'static str, group: &str, resource: &str) -> Self {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        Self::Resource {
            verb,
            group: group.to_owned(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
        }
    }

    fn of(verb: &'static str, gvr: &Gvr) -> Self {
        Self::new(verb, &gvr.group, &gvr.resource)
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path { verb, path } => write!(f, "{verb} {path}"),
            Self::Resource {
                verb,
                group,
                resource,
                subresource,
            } => {
                write!(f, "{verb} {resource}")?;
                if !group.is_empty() {
                    write!(f, ".{group}")?;
                }
                if !subresource.is_empty() {
                    write!(f, "/{subresource}")?;
                }
                Ok(())
            }
        }
    }
}

/// Whether a rule of a SelfSubjectRulesReview grants the right for some names. A question without a name is denied then.
pub(super) fn is_named(answer: &Value, right: &Right) -> bool {
    let names = rule_of(answer, right).map(|rule| &rule["resourceNames"]);
    names.is_some_and(|names| names.as_array().is_some_and(|names| !names.is_empty()))
}

/// A rule of a SelfSubjectRulesReview that grants the right.
fn rule_of<'a>(answer: &'a Value, right: &Right) -> Option<&'a Value> {
    let Right::Resource {
        verb,
        group,
        resource,
        subresource,
        ..
    } = right
    else {
        return None;
    };
    let resource = match subresource.as_str() {
        "" => resource.clone(),
        subresource => format!("{resource}/{subresource}"),
    };
    let has = |value: &Value, word: &str| {
        let words = value.as_array().into_iter().flatten();
        words.into_iter().any(|one| one == word || one == "*")
    };
    let rules = answer["status"]["resourceRules"].as_array();
    rules.into_iter().flatten().find(|rule| {
        has(&rule["verbs"], verb)
            && has(&rule["apiGroups"], group)
            && has(&rule["resources"], &resource)
    })
}

/// What filling the cache of a resource needs.
pub(super) fn of_cache(gvr: &Gvr) -> [Right; 2] {
    [Right::of("list", gvr), Right::of("watch", gvr)]
}

/// The same for all resources at once.
pub(super) fn of_everything() -> [Right; 2] {
    [Right::new("list", "*", "*"), Right::new("watch", "*", "*")]
}

/// The reviews that a mode creates under the gateway's identity.
pub(super) fn of_reviews(mode: AuthMode) -> Vec<Right> {
    let tokens = Right::new("create", AUTHENTICATION, "tokenreviews");
    let accesses = Right::new("create", AUTHORIZATION, "subjectaccessreviews");
    match mode {
        AuthMode::Review => vec![tokens, accesses],
        AuthMode::Rbac => vec![tokens],
        AuthMode::SelfCheck | AuthMode::None => Vec::new(),
    }
}

/// Following roles and bindings.
pub(super) fn of_roles() -> Vec<Right> {
    let rights = ROLE_RESOURCES
        .iter()
        .flat_map(|resource| ["list", "watch"].map(|verb| Right::new(verb, RBAC, resource)));
    rights.collect()
}

/// Following what tokens are bound to.
pub(super) fn of_bound_objects(mode: AuthMode) -> Vec<Right> {
    if mode == AuthMode::None {
        return Vec::new();
    }
    let rights = ["pods", "serviceaccounts"]
        .iter()
        .flat_map(|resource| ["list", "watch"].map(|verb| Right::new(verb, "", resource)));
    rights.collect()
}

/// Acting for callers whose credentials cannot be forwarded; empty where there are none.
pub(super) fn of_impersonation(settings: &ServeSettings) -> Vec<Right> {
    let auth = &settings.auth;
    if auth.mode == AuthMode::None || !auth.wants_certificates() {
        return Vec::new();
    }
    let mut rights = vec![
        Right::new("impersonate", "", "users"),
        Right::new("impersonate", "", "groups"),
    ];
    if auth.client_ca.is_some() {
        // The key under which a certificate is named.
        let key = "userextras/authentication.kubernetes.io/credential-id";
        rights.push(Right::new("impersonate", AUTHENTICATION, key));
    }
    let proxy = auth.front_proxy.as_ref();
    if proxy.is_some_and(|proxy| !proxy.uid_headers.is_empty()) {
        rights.push(Right::new("impersonate", AUTHENTICATION, "uids"));
    }
    rights
}

/// Taking caches over from gateways that share this one's identity: their list, one of them for all, and the load if it is compared.
pub(super) fn of_handover(settings: &HandoverSettings) -> Vec<Right> {
    let pods = CacheKey::json(&Gvr::new("", "v1", "pods"));
    let mut targets = vec![HandoverTarget::Index, HandoverTarget::Cache(pods)];
    targets.extend(settings.rebalance_interval.map(|_| HandoverTarget::Load));
    let rights = targets.iter().map(|target| Right::Path {
        verb: "get",
        path: target.path(),
    });
    rights.collect()
}

/// Rights that no client should get from a gateway that does not authenticate its clients: to read secrets, to run or stop programs, and
/// to get more rights.
pub(super) fn of_danger() -> Vec<Right> {
    vec![
        Right::new("get", "", "secrets"),
        Right::new("list", "", "secrets"),
        Right::new("watch", "", "secrets"),
        Right::new("create", "", "pods"),
        Right::new("create", "", "pods/exec"),
        Right::new("delete", "", "pods"),
        Right::new("patch", "apps", "deployments"),
        Right::new("create", RBAC, "clusterrolebindings"),
        Right::new("impersonate", "", "users"),
    ]
}

/// What may be cached, and what of it the gateway may read.
pub(super) struct CacheRights {
    /// Resources that may be cached and that the API server lists and watches.
    pub(super) wanted: Vec<Gvr>,
    /// Those of them that must be filled before the gateway is ready.
    pub(super) pinned: Vec<Gvr>,
    /// Those of them that the gateway may not list, or may not watch.
    pub(super) denied: Vec<Gvr>,
    /// Pinned resources that the API server does not list and watch.
    pub(super) absent: Vec<Gvr>,
    /// Whether `--cache-resources` names resources, instead of allowing all.
    pub(super) is_named: bool,
    /// Settings that name resources which the API server does not have, one line each.
    pub(super) unknown: Vec<String>,
}

/// Whether the gateway may read what it is to cache.
pub(super) fn cache_verdict(rights: &CacheRights) -> CheckVerdict {
    let CacheRights {
        wanted,
        pinned,
        denied,
        absent,
        is_named,
        unknown,
    } = rights;
    let hint = "grant list and watch in the gateway's ClusterRole, one rule for each resource that clients watch";
    let pinned: Vec<String> = pinned
        .iter()
        .filter(|gvr| denied.contains(gvr) || absent.contains(gvr))
        .map(ToString::to_string)
        .collect();
    if !pinned.is_empty() {
        let text = format!(
            "{} of --pin-resources cannot be listed and watched: the gateway will not be ready",
            counted(pinned.len(), RESOURCES)
        );
        return CheckVerdict::failure(text, hint).with_details(pinned);
    }
    let (all, count) = (wanted.len(), wanted.len() - denied.len().min(wanted.len()));
    if all == 0 && unknown.is_empty() {
        let text = "no resource of the API server may be cached";
        return CheckVerdict::warning(text, "see --cache-resources and --passthrough-resources");
    }
    if !unknown.is_empty() {
        let text = format!(
            "{count} of {} may be listed and watched; {} unknown to the API server",
            counted(all + unknown.len(), RESOURCES),
            unknown.len()
        );
        let hint = "correct the names, or install what serves them: kubectl api-resources";
        return CheckVerdict::warning(text, hint).with_details(unknown.iter().cloned());
    }
    let total = counted(all, RESOURCES);
    if count == 0 {
        let text =
            format!("0 of {total} may be listed and watched: all requests will be forwarded");
        return CheckVerdict::failure(text, hint);
    }
    let text = format!("{count} of {total} may be listed and watched");
    if denied.is_empty() {
        return CheckVerdict::ok(text);
    }
    let names = denied.iter().map(ToString::to_string);
    if *is_named {
        let text = format!("{text}; requests for the others will be forwarded");
        return CheckVerdict::warning(text, hint).with_details(names);
    }
    CheckVerdict::ok(format!("{text}; requests for the others are forwarded"))
}

/// Whether the gateway may act for callers without these rights, some of which `rules` may grant for certain names only.
pub(super) fn impersonation_verdict(missing: Vec<Right>, rules: &Value) -> CheckVerdict {
    let what = "requests of callers with certificates that memory cannot answer get 403";
    let (named, missing): (Vec<_>, Vec<_>) = missing
        .into_iter()
        .partition(|right| is_named(rules, right));
    let groups = Right::new("impersonate", "", "groups");
    let node = Right::new("impersonate:arbitrary-node", AUTHENTICATION, "nodes");
    match missing.as_slice() {
        [] if named.is_empty() => needed_verdict(&[], what, true),
        [] => CheckVerdict::ok("roles name those whom the gateway may impersonate")
            .with_details(named.iter().map(|right| format!("{right}, for some names"))),
        // Named users need no group that is sent: most of their groups are, so this is said.
        [only] if *only == groups && !named.is_empty() => needed_verdict(
            &missing,
            "requests of callers in groups that memory cannot answer get 403",
            false,
        ),
        _ if missing.contains(&groups) && rule_of(rules, &node).is_some() => {
            let review = "impersonate-on:arbitrary-node:create";
            let review = Right::new(review, AUTHORIZATION, "selfsubjectaccessreviews");
            match rule_of(rules, &review) {
                Some(_) => CheckVerdict::ok(
                    "the gateway may act as nodes, by constrained impersonation; requests of other callers with certificates get 403",
                ),
                None => needed_verdict(&[review], "what nodes may read is not known", true),
            }
        }
        _ => needed_verdict(&missing, what, true),
    }
}

/// Whether all of these rights are there. `what` works only with them.
pub(super) fn needed_verdict(missing: &[Right], what: &str, is_vital: bool) -> CheckVerdict {
    if missing.is_empty() {
        return CheckVerdict::ok("they are granted");
    }
    let text = format!(
        "{} missing: {what}",
        counted(missing.len(), ("right", "rights"))
    );
    let hint = "grant them in the gateway's ClusterRole: docs/SECURITY.md, \"Least rights\" and \"Handover\"";
    let verdict = match is_vital {
        true => CheckVerdict::failure(text, hint),
        false => CheckVerdict::warning(text, hint),
    };
    verdict.with_details(missing.iter().map(ToString::to_string))
}

/// What every client may do if clients are not authenticated.
pub(super) fn shared_verdict(granted: &[Right]) -> CheckVerdict {
    if granted.is_empty() {
        return CheckVerdict::ok(
            "clients are not authenticated (--auth none), and have none of the dangerous rights that were asked about",
        );
    }
    CheckVerdict::warning(
        "clients are not authenticated (--auth none): everybody who reaches the port may",
        "use another --auth, or credentials for the gateway that may only list and watch",
    )
    .with_details(granted.iter().map(ToString::to_string))
}
