//! What a request asks for: its path, verb and options, and the read plan that follows from them. Reads no data and no clock.
//!
//! [`RequestInfo`] is the head of a request, parsed once. From it follow the format of the response ([`Accept::negotiate`]) and, with the
//! resource's kind, the plan ([`CacheRead::decide`]).

use crate::resource::names::is_dns_label;
use crate::resource::{FieldTable, ResourceKind};
use crate::selector::{FieldSelector, LabelSelector, Selector, ShardSelector};

mod accept;
mod info;
mod latest;
mod options;
mod path;
mod plan;
mod query;

pub use accept::{Accept, AcceptPurpose, Representation, wants_pretty};
pub use info::RequestInfo;
pub use options::{ListOptions, is_true};
pub use path::{
    PathForm, RequestTarget, ResourcePath, Spelling, Verb, authorized_name, decoded_path, verb,
};
pub use plan::{
    Bookmarks, EndMarker, Freshness, ListPlan, ListRead, WatchPlan, WatchStart, WatchTimeout,
};
pub use query::Query;

/// A list or watch that the cache may answer: which objects it selects, and how they are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheRead {
    /// Selects the objects.
    pub selector: Selector,
    /// The state to read, and for a watch how it continues.
    pub plan: ReadPlan,
}

/// One of the two ways to read a collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadPlan {
    /// One response.
    List(ListPlan),
    /// A stream of events.
    Watch(WatchPlan),
}

impl ReadPlan {
    /// Whether the answer may be as old as the cache. A consistent list is not: it is proven, or upstream answers. Nor is a list at one
    /// version: it is the same at any time.
    #[must_use]
    pub const fn may_be_stale(&self) -> bool {
        match self {
            Self::List(plan) => match plan.read {
                ListRead::Latest | ListRead::Exact(_) => false,
                ListRead::Cached | ListRead::AtLeast(_) | ListRead::AtLeastNow(_) => true,
            },
            Self::Watch(_) => true,
        }
    }
}

/// Maximum length of a request's selectors together, in bytes; requests with longer ones are forwarded. A selector with a set of a
/// few hundred names is still shorter.
pub const SELECTORS_LEN_MAX: usize = 16 << 10;
/// Maximum number of selector terms that the gateway evaluates; requests with more are forwarded. Selectors in practice have fewer
/// than ten. The values of a set count as one term, because they are looked up.
const SELECTOR_TERMS_MAX: usize = 64;

impl CacheRead {
    /// What the request asks of the cache (docs/PROTOCOL.md §0, checks 11–14); `None` if upstream must answer: the request is not certain to
    /// be valid, only upstream knows its fields, or its selectors cost more than the gateway spends on one request. The media type is
    /// negotiated before.
    #[must_use]
    pub fn decide(path: &ResourcePath, options: &ListOptions, kind: &ResourceKind) -> Option<Self> {
        if !is_routed(path, kind) || options.selectors_len() > SELECTORS_LEN_MAX {
            return None;
        }
        let fields = FieldSelector::parse(&options.field_selector, FieldTable::of(&kind.gvr))?;
        // Cluster-scoped kinds differ in whether they know the field.
        if fields.names_namespace() && !kind.namespaced {
            return None;
        }
        let fields = with_name(path, fields)?;
        let selector = Selector {
            namespace: namespace(path, options, &fields).filter(|_| kind.namespaced),
            labels: LabelSelector::parse(&options.label_selector)?,
            fields,
            // Shard selectors that upstream ignores are already removed from the options.
            shard: match &*options.shard_selector {
                "" => None,
                text => Some(ShardSelector::parse(text)?),
            },
        };
        if selector.term_count() > SELECTOR_TERMS_MAX {
            return None;
        }
        let plan = if options.watch || path.form == PathForm::WatchPrefix {
            ReadPlan::Watch(WatchPlan::decide(options)?)
        } else if is_single(&selector, kind) {
            ReadPlan::List(ListPlan::decide_single(options)?)
        } else {
            ReadPlan::List(ListPlan::decide(options)?)
        };
        Some(Self { selector, plan })
    }
}

/// Whether upstream is certain to have a route for a list or watch with this path. `namespaces` is itself a resource, whose paths
/// look like those of namespaced ones.
fn is_routed(path: &ResourcePath, kind: &ResourceKind) -> bool {
    let is_namespace = path.namespace.is_some() && path.namespace == path.name;
    let scope_ok = kind.namespaced || path.namespace.is_none() || is_namespace;
    let name_ok = match (path.form, &path.name) {
        (PathForm::ProxyPrefix, _) | (PathForm::Plain, Some(_)) => false,
        (PathForm::WatchPrefix, Some(_)) => !kind.namespaced || path.namespace.is_some(),
        (PathForm::WatchPrefix | PathForm::Plain, None) => true,
    };
    path.spelling == Spelling::Clean && path.subresource.is_none() && scope_ok && name_ok
}

/// Adds the name in the path, which only the `/watch/` prefix allows here, as a field selector (docs/PROTOCOL.md §1.2); `None` if the
/// selector is another one.
fn with_name(path: &ResourcePath, fields: FieldSelector) -> Option<FieldSelector> {
    match &path.name {
        None => Some(fields),
        Some(name) if fields.is_empty() => Some(FieldSelector::named(name)),
        Some(name) => (fields.pinned_name() == Some(name)).then_some(fields),
    }
}

/// The namespace that upstream narrows its range to, and that continue tokens are relative to: the path's, or the one that the
/// field selector requires. The field selector narrows a first page only; upstream reads later pages from the whole range.
fn namespace(path: &ResourcePath, options: &ListOptions, fields: &FieldSelector) -> Option<String> {
    let pinned = || fields.pinned_namespace().filter(|name| is_dns_label(name));
    match &path.namespace {
        None if options.continue_token.is_empty() => pinned().map(str::to_owned),
        in_path => in_path.clone(),
    }
}

/// Whether upstream would look up a single key instead of scanning a range (docs/PROTOCOL.md §3.1).
fn is_single(selector: &Selector, kind: &ResourceKind) -> bool {
    selector.fields.pinned_name().is_some() && (!kind.namespaced || selector.namespace.is_some())
}

#[cfg(test)]
mod tests;
