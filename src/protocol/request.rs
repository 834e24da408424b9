//! What a request asks for: its path, verb and options, and the read plan that follows from them. Reads no data and no clock.
//!
//! [`RequestInfo`] is the head of a request, parsed once. From it follow the format of the response ([`Accept::negotiate`]) and, with the
//! resource's kind, the plan ([`CacheRead::decide`]).

use crate::resource::names::is_dns_label;
use crate::resource::{FieldTable, ResourceKind};
use crate::selector::{FieldSelector, FieldSelectorError, LabelSelector, Selector, ShardSelector};

use strum::{IntoStaticStr, VariantArray};

use super::status::Status;

mod accept;
mod info;
mod latest;
mod options;
mod path;
mod plan;
mod query;

pub use accept::{Accept, AcceptPurpose, JsonChoice, Representation, wants_pretty};
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

/// Why a list or watch does not become a [`CacheRead`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadRefusal {
    /// The request is invalid; the Status is the response.
    Bad(RequestFault, Status),
    /// The request cannot be served now; the Status is the response.
    Answer(Status),
    /// Upstream has to answer: either only upstream knows the error message (unknown field label, bad shard selector, a path that
    /// it may not route), or the selectors cost more than the gateway spends on one request.
    Forward,
}

/// Maximum length of a request's selectors together, in bytes; requests with longer ones are forwarded. A selector with a set of a
/// few hundred names is still shorter.
pub(crate) const SELECTORS_LEN_MAX: usize = 16 << 10;
/// Maximum number of selector terms that the gateway evaluates; requests with more are forwarded. Selectors in practice have fewer
/// than ten. The values of a set count as one term, because they are looked up.
const SELECTOR_TERMS_MAX: usize = 64;

/// The part of a request that is invalid; a label of the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum RequestFault {
    /// The path. It is checked before a [`CacheRead`] is decided.
    #[strum(serialize = "http")]
    Path,
    /// The label selector or the field selector.
    Selector,
    /// A combination of options that is not allowed.
    #[strum(serialize = "parameter")]
    Options,
    /// The resource version.
    ResourceVersion,
    /// The continue token, or an option that may not accompany it.
    ContinueToken,
}

impl CacheRead {
    /// Runs the API server's checks in its order, so that a request with several faults gets the same error message: label grammar,
    /// field grammar, option combinations, field labels, name conflict, continue token and resource version (docs/PROTOCOL.md §0,
    /// checks 11–14). The media type is negotiated before.
    ///
    /// # Errors
    /// [`ReadRefusal`] has the Status to respond with, or says that the request has to be forwarded.
    pub fn decide(
        path: &ResourcePath,
        options: &ListOptions,
        kind: &ResourceKind,
    ) -> Result<Self, ReadRefusal> {
        if !is_routed(path, kind) {
            return Err(ReadRefusal::Forward);
        }
        if options.selectors_len() > SELECTORS_LEN_MAX {
            return Err(ReadRefusal::Forward);
        }
        let bad = |message: String| {
            ReadRefusal::Bad(RequestFault::Selector, Status::bad_request(message))
        };
        let labels =
            LabelSelector::parse(&options.label_selector).map_err(|e| bad(e.to_string()))?;
        let fields = match FieldSelector::parse(&options.field_selector, FieldTable::of(&kind.gvr))
        {
            // Cluster-scoped kinds differ in whether they know the field.
            Ok(fields) if fields.names_namespace() && !kind.namespaced => {
                return Err(ReadRefusal::Forward);
            }
            Ok(fields) => fields,
            Err(FieldSelectorError::Syntax(message)) => return Err(bad(message)),
            Err(FieldSelectorError::UnknownLabel(_)) => return Err(ReadRefusal::Forward),
        };
        // Shard selectors that upstream ignores are already removed from the options. One that does not parse is forwarded for its
        // error message.
        let shard = match &*options.shard_selector {
            "" => None,
            text => Some(ShardSelector::parse(text).ok_or(ReadRefusal::Forward)?),
        };
        options
            .validate()
            .map_err(|status| ReadRefusal::Bad(RequestFault::Options, status))?;
        let fields = with_name(path, fields)
            .map_err(|status| ReadRefusal::Bad(RequestFault::Selector, status))?;
        let namespace = namespace(path, options, &fields).filter(|_| kind.namespaced);
        let selector = Selector {
            namespace,
            labels,
            fields,
            shard,
        };
        if selector.term_count() > SELECTOR_TERMS_MAX {
            return Err(ReadRefusal::Forward);
        }
        let plan = if options.watch || path.form == PathForm::WatchPrefix {
            WatchPlan::decide(options).map(ReadPlan::Watch)
        } else if is_single(&selector, kind) {
            ListPlan::decide_single(options).map(ReadPlan::List)
        } else {
            ListPlan::decide(options).map(ReadPlan::List)
        };
        let fault = if options.watch || options.continue_token.is_empty() {
            RequestFault::ResourceVersion
        } else {
            RequestFault::ContinueToken
        };
        let plan = plan.map_err(|status| ReadRefusal::Bad(fault, status))?;
        Ok(Self { selector, plan })
    }
}

/// Whether upstream is certain to have a route for a list or watch with this path. `namespaces` is itself a resource, whose paths
/// look like those of namespaced ones.
#[must_use]
pub fn is_routed(path: &ResourcePath, kind: &ResourceKind) -> bool {
    let is_namespace = path.namespace.is_some() && path.namespace == path.name;
    let scope_ok = kind.namespaced || path.namespace.is_none() || is_namespace;
    let name_ok = match (path.form, &path.name) {
        (PathForm::ProxyPrefix, _) | (PathForm::Plain, Some(_)) => false,
        (PathForm::WatchPrefix, Some(_)) => !kind.namespaced || path.namespace.is_some(),
        (PathForm::WatchPrefix | PathForm::Plain, None) => true,
    };
    path.spelling == Spelling::Clean && path.subresource.is_none() && scope_ok && name_ok
}

/// Adds the name in the path, which only the `/watch/` prefix allows here, as a field selector (docs/PROTOCOL.md §1.2).
fn with_name(path: &ResourcePath, fields: FieldSelector) -> Result<FieldSelector, Status> {
    match &path.name {
        None => Ok(fields),
        Some(name) if fields.is_empty() => Ok(FieldSelector::named(name)),
        Some(name) if fields.pinned_name() == Some(name) => Ok(fields),
        Some(_) => Err(Status::bad_request(
            "fieldSelector metadata.name doesn't match requested name",
        )),
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

/// Whether the selectors are too long or have too many terms, so that upstream has to evaluate them.
#[must_use]
pub fn is_oversized(options: &ListOptions, kind: &ResourceKind) -> bool {
    if options.selectors_len() > SELECTORS_LEN_MAX {
        return true;
    }
    let fields = FieldSelector::parse(&options.field_selector, FieldTable::of(&kind.gvr));
    let selector = Selector {
        labels: LabelSelector::parse(&options.label_selector).unwrap_or_default(),
        fields: fields.unwrap_or_default(),
        ..Selector::default()
    };
    selector.term_count() > SELECTOR_TERMS_MAX
}

#[cfg(test)]
mod tests;
