//! Who reads a resource: the rows of the audit log, and what of the metrics no row explains.

use std::collections::BTreeMap;

use super::assumptions::token_review_rate;
use super::audit_entry::WatchScope;
use super::client::{AuditedClient, ClientClass};
use super::group_resource::GroupResource;
use super::servers::{ResourceRates, ServerRates};
use super::usage::{ReadUsage, UsageSums};

/// The name of what the metrics count and no line of the audit log tells of.
const UNEXPLAINED: &str = "not in the audit log";
/// Watches and requests a second below which there is nothing to explain: sums of two ways to count never agree exactly.
const UNEXPLAINED_MIN: f64 = 0.01;

/// A client's use of one resource, a second.
#[derive(Clone, Debug)]
pub(super) struct Reader {
    /// `None` without an audit log: all clients.
    pub(super) client: Option<AuditedClient>,
    pub(super) class: ClientClass,
    pub(super) watches: f64,
    /// Those of its watches that have every event.
    pub(super) whole: f64,
    /// The others, as if each were of the whole resource.
    pub(super) weight: f64,
    pub(super) watch_requests: f64,
    pub(super) list_requests: f64,
    /// Reads for which a gateway asks the API server how new the newest state is.
    pub(super) consistent: f64,
    /// Requests that a gateway forwards.
    forwarded: f64,
    /// Different ones, in the whole log.
    pub(super) questions: f64,
}

impl Reader {
    pub(super) fn requests(&self) -> f64 {
        self.watch_requests + self.list_requests
    }

    pub(super) fn movable_requests(&self) -> f64 {
        (self.requests() - self.forwarded).max(0.0)
    }
}

/// What of the cluster the readers of every resource depend on.
pub(super) struct ReaderContext<'a> {
    usage: Option<&'a UsageSums>,
    nodes: f64,
    namespaces: f64,
    knows_stored: bool,
}

impl<'a> ReaderContext<'a> {
    pub(super) fn new(rates: &ServerRates, usage: Option<&'a UsageSums>) -> Self {
        let objects = |resource| {
            let name = GroupResource::new("", resource)?;
            rates.resources.get(&name)?.objects
        };
        Self {
            usage,
            nodes: objects("nodes").unwrap_or(1.0).max(1.0),
            namespaces: objects("namespaces").unwrap_or(1.0).max(1.0),
            knows_stored: rates.resources.values().any(|rate| rate.objects.is_some()),
        }
    }

    /// Whether the API server stores a resource itself, as far as it says what it stores.
    pub(super) const fn is_stored(&self, rate: &ResourceRates) -> bool {
        rate.objects.is_some() || !self.knows_stored
    }

    /// Reviews of a client's tokens, a second.
    pub(super) fn review_rate(&self, client: &AuditedClient) -> f64 {
        let Some(usage) = self.usage else { return 0.0 };
        let tokens = usage.facts.get(client).map_or(0, |facts| facts.tokens);
        token_review_rate(tokens as f64, usage.window_seconds)
    }

    fn reader(&self, client: &AuditedClient, usage: &ReadUsage, rate: &ResourceRates) -> Reader {
        let facts = self.usage.and_then(|usage| usage.facts.get(client));
        let facts = facts.copied().unwrap_or_default();
        let seconds = self
            .usage
            .map_or(1.0, |usage| usage.window_seconds)
            .max(1.0);
        let per_second = |count: u64| count as f64 / seconds;
        let open = usage.watch_seconds.map(|watched| watched / seconds);
        let weights = self.weights(rate);
        let whole = open[WatchScope::Cluster as usize];
        let selective = open.iter().zip(weights).skip(1);
        Reader {
            class: client.class(facts.is_in_pod, facts.nodes as f64, self.nodes),
            client: Some(client.clone()),
            watches: open.iter().sum(),
            whole,
            weight: selective.map(|(one, weight)| one * weight).sum(),
            watch_requests: per_second(usage.watch_requests),
            list_requests: per_second(usage.list_requests),
            consistent: per_second(usage.consistent),
            forwarded: per_second(usage.forwarded),
            questions: usage.questions as f64,
        }
    }

    /// The part of all events that a watch of each scope has, if events are spread evenly and selectors select everything.
    fn weights(&self, rate: &ResourceRates) -> [f64; WatchScope::COUNT] {
        let mut weights = [1.0; WatchScope::COUNT];
        let objects = rate.objects.unwrap_or(self.nodes).max(1.0);
        weights[WatchScope::Namespace as usize] = 1.0 / self.namespaces;
        weights[WatchScope::Node as usize] = 1.0 / self.nodes;
        weights[WatchScope::Object as usize] = 1.0 / objects;
        weights
    }
}

/// The readers of each resource; of the resource `None` those that the bounds left without one.
pub(super) fn readers_of(
    rates: &ServerRates,
    usage: Option<&UsageSums>,
    context: &ReaderContext<'_>,
) -> BTreeMap<Option<GroupResource>, Vec<Reader>> {
    let mut found = BTreeMap::<_, Vec<Reader>>::new();
    for ((client, resource), sums) in usage.iter().flat_map(|usage| &usage.rows) {
        let rate = resource.as_ref().and_then(|name| rates.resources.get(name));
        let mut reader = context.reader(client, sums, &rate.copied().unwrap_or_default());
        if resource.is_none() {
            reader.class = ClientClass::Unknown;
        }
        found.entry(resource.clone()).or_default().push(reader);
    }
    for (name, rate) in &rates.resources {
        let readers = found.entry(Some(name.clone())).or_default();
        scale_requests(readers, rate);
        let rest = rest_of(rate, readers, usage.is_some());
        let is_read = rest.watches + rest.requests() > UNEXPLAINED_MIN;
        if is_read || (readers.is_empty() && rate.events > 0.0) {
            readers.push(rest);
        }
    }
    found.retain(|_, readers| !readers.is_empty());
    found
}

/// Where the log tells of more requests than the servers counted, what they counted is divided.
fn scale_requests(readers: &mut [Reader], rate: &ResourceRates) {
    let watches: f64 = readers.iter().map(|reader| reader.watch_requests).sum();
    let lists: f64 = readers.iter().map(|reader| reader.list_requests).sum();
    let times = |counted: f64, known: f64| {
        if known > counted {
            counted / known
        } else {
            1.0
        }
    };
    let (of_watches, of_lists) = (
        times(rate.watch_requests, watches),
        times(rate.list_requests, lists),
    );
    for reader in readers {
        let before = reader.requests();
        reader.watch_requests *= of_watches;
        reader.list_requests *= of_lists;
        let times = if before > 0.0 {
            reader.requests() / before
        } else {
            1.0
        };
        reader.consistent *= times;
        reader.forwarded *= times;
    }
}

/// What the metrics count beyond the known readers, whose average watch it is taken to have.
fn rest_of(rate: &ResourceRates, readers: &[Reader], has_audit: bool) -> Reader {
    let sum = |figure: fn(&Reader) -> f64| readers.iter().map(figure).sum::<f64>();
    let known = sum(|reader| reader.watches);
    let watches = (rate.watches - known).max(0.0);
    let average = match known > 0.0 {
        true => sum(|reader| reader.whole + reader.weight) / known,
        false => 1.0,
    };
    let list_requests = (rate.list_requests - sum(|reader| reader.list_requests)).max(0.0);
    Reader {
        client: has_audit.then(|| AuditedClient::others(UNEXPLAINED)),
        class: if has_audit {
            ClientClass::Unknown
        } else {
            ClientClass::Everybody
        },
        watches,
        whole: 0.0,
        weight: watches * average,
        watch_requests: (rate.watch_requests - sum(|reader| reader.watch_requests)).max(0.0),
        list_requests,
        // Metrics do not tell which lists want the newest state, so all may.
        consistent: list_requests,
        forwarded: 0.0,
        questions: 0.0,
    }
}
