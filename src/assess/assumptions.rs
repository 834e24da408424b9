//! What a gateway asks of the API servers: docs/SCALING.md, "Reviews" and "The model".

use std::collections::BTreeMap;

use super::group_resource::GroupResource;
use super::servers::ResourceRates;
use crate::config::CacheLists;

/// A watch of a gateway lasts five to ten minutes, as those of clients.
const WATCH_SECONDS: f64 = 450.0;
/// Each cache is compared with the API server every minute (`--drift-interval`), with three lists of a page or less.
const COMPARISON_SECONDS: f64 = 20.0;
/// What a gateway asks for itself beside watches: twice in 30 s what the API server can do, once a minute what itself may do. A tenth of a
/// request a second was measured.
const OWN_REQUESTS: f64 = 0.1;
/// How long a decision of authorization stands.
const QUESTION_SECONDS: f64 = 3_120.0;
/// How often a token is replaced: kubelets do after four fifths of an hour.
const TOKEN_SECONDS: f64 = 0.8 * 3_600.0;
/// What a gateway watches for itself, whatever clients read: roles and bindings, what tokens are bound to, and who serves which group.
const OWN_WATCHES: [(&str, &str); 7] = [
    ("rbac.authorization.k8s.io", "roles"),
    ("rbac.authorization.k8s.io", "rolebindings"),
    ("rbac.authorization.k8s.io", "clusterroles"),
    ("rbac.authorization.k8s.io", "clusterrolebindings"),
    ("", "pods"),
    ("", "serviceaccounts"),
    ("apiregistration.k8s.io", "apiservices"),
];

/// What flows between API servers and others: open watches, and a second requests, events, and bytes of events and lists.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct GatewayFlow {
    pub(super) watches: f64,
    pub(super) requests: f64,
    pub(super) events: f64,
    pub(super) bytes: f64,
}

impl GatewayFlow {
    pub(super) fn plus(&self, other: &Self) -> Self {
        Self {
            watches: self.watches + other.watches,
            requests: self.requests + other.requests,
            events: self.events + other.events,
            bytes: self.bytes + other.bytes,
        }
    }

    pub(super) fn minus(&self, other: &Self) -> Self {
        self.plus(&other.times(-1.0))
    }

    pub(super) fn times(&self, factor: f64) -> Self {
        Self {
            watches: self.watches * factor,
            requests: self.requests * factor,
            events: self.events * factor,
            bytes: self.bytes * factor,
        }
    }
}

/// How many gateways there will be, and what they cache.
#[derive(Clone, Debug)]
pub(super) struct Assumptions {
    pub(super) gateways: f64,
    /// Of resources of Kubernetes itself.
    pub(super) encodings: f64,
    pub(super) cached: CacheLists,
}

impl Assumptions {
    /// What the caches of a resource cost: a watch for each gateway and encoding, with all events.
    pub(super) fn cache_cost(&self, resource: &GroupResource, rate: &ResourceRates) -> GatewayFlow {
        let encodings = if resource.is_built_in() {
            self.encodings
        } else {
            1.0
        };
        let mut cost = watch_cost(rate);
        cost.requests += 1.0 / COMPARISON_SECONDS;
        cost.times(self.gateways * encodings)
    }

    /// What all gateways watch for themselves. Of pods and service accounts that is only metadata, so their bytes are a bound.
    pub(super) fn own_cost(&self, rates: &BTreeMap<GroupResource, ResourceRates>) -> GatewayFlow {
        let costs = OWN_WATCHES.iter().map(|(group, resource)| {
            let name = GroupResource::new(group, resource);
            let rate = name.and_then(|name| rates.get(&name)).copied();
            watch_cost(&rate.unwrap_or_default())
        });
        let mut sum = costs.fold(GatewayFlow::default(), |sum, cost| sum.plus(&cost));
        sum.requests += OWN_REQUESTS;
        sum.times(self.gateways)
    }
}

/// Reviews a second of so many different questions.
pub(super) fn question_review_rate(questions: f64) -> f64 {
    questions / QUESTION_SECONDS
}

/// Reviews a second of a client that was seen with so many tokens within a time. Those that were replaced meanwhile are not counted.
pub(super) fn token_review_rate(tokens: f64, window_seconds: f64) -> f64 {
    let replaced = window_seconds.max(0.0) / TOKEN_SECONDS;
    tokens / (1.0 + replaced) / TOKEN_SECONDS
}

/// One watch of everything.
fn watch_cost(rate: &ResourceRates) -> GatewayFlow {
    let event_len = if rate.events > 0.0 {
        rate.event_bytes / rate.events
    } else {
        0.0
    };
    // A bookmark a minute comes on top, which is not worth a term.
    GatewayFlow {
        watches: 1.0,
        requests: 1.0 / WATCH_SECONDS,
        events: rate.changes,
        bytes: rate.changes * event_len,
    }
}
