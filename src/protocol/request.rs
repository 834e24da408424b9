//! What a request asks for: path, verb, options, and the plan that follows from them. It reads no data and no clock.

use crate::resource::{FieldTable, ResourceKind};
use crate::view::selector::{
    FieldSelector, FieldSelectorError, LabelSelector, Selector, ShardSelector,
};

use super::status::Status;

mod accept;
mod options;
mod path;
mod plan;
mod query;

pub use accept::{
    AcceptPurpose, JsonChoice, Representation, json_refusal_form, negotiate, refusal_form,
    wanted_table, wants_pretty, wish,
};
pub use options::{ListOptions, is_true};
pub use path::{
    PathForm, RequestTarget, ResourcePath, Spelling, Verb, authorized_name, decoded_path, verb,
};
pub use plan::{
    Bookmarks, EndMarker, Freshness, ListPlan, ListRead, WatchPlan, WatchStart, WatchTimeout,
};
pub use query::Query;

/// A list or watch that the cache may answer: what is selected and how it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheRead {
    /// Which objects.
    pub selector: Selector,
    /// From which state, and how it goes on.
    pub plan: ReadPlan,
}

/// One of the two ways to read a collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadPlan {
    /// One answer.
    List(ListPlan),
    /// A stream.
    Watch(WatchPlan),
}

/// Why a list or watch does not become a [`CacheRead`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadRefusal {
    /// The client's mistake; this is the answer.
    Bad(RequestFault, Status),
    /// It cannot be served now; this is the answer.
    Answer(Status),
    /// Upstream is to answer. Only it knows what to say: of an unknown field label, a bad shard selector, a path that routing
    /// there may not know; or the selectors cost more than memory gives to one request.
    Forward,
}

/// Longest text of a request's selectors that is read here, in bytes, all together; longer ones are upstream's. Clients that
/// select by a set of a few hundred names stay below.
pub(crate) const SELECTORS_LEN_MAX: usize = 16 << 10;
/// Most conditions that objects are held against here; more are upstream's. Selectors that people and controllers write have
/// fewer than ten; the values of a set count as one, because they are looked up.
const SELECTOR_TERMS_MAX: usize = 64;

/// What is wrong with a request, for counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestFault {
    /// A label or field selector.
    Selector,
    /// Options that do not go together.
    Options,
    /// The resource version.
    ResourceVersion,
    /// The continue token, or what stands beside it.
    ContinueToken,
}

impl CacheRead {
    /// Takes a request through the server's checks in the server's order, so that of several faults the same one is
    /// told: label grammar, field grammar, option combinations, field labels, name conflict, continue token and
    /// resource version (docs/PROTOCOL.md §0, checks 11–14). The media type is negotiated before this.
    ///
    /// # Errors
    /// See [`ReadRefusal`].
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
            // Kinds without a scope differ in whether they know the field.
            Ok(fields) if fields.names_namespace() && !kind.namespaced => {
                return Err(ReadRefusal::Forward);
            }
            Ok(fields) => fields,
            Err(FieldSelectorError::Syntax(message)) => return Err(bad(message)),
            Err(FieldSelectorError::UnknownLabel(_)) => return Err(ReadRefusal::Forward),
        };
        // What upstream ignores was taken out of the options; what it refuses, it has the words for.
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

/// Whether upstream surely has a route for a list or watch by this path. `namespaces` is a resource of its own, whose
/// paths look as if they had a scope.
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

/// A name in the path, which only the `/watch/` prefix allows here, selects that one object (docs/PROTOCOL.md §1.2).
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

/// The namespace that upstream narrows its range to, and continue tokens are relative to: the path's, or that of the
/// fields. Only a first page is narrowed by fields; upstream reads later ones from the whole range.
fn namespace(path: &ResourcePath, options: &ListOptions, fields: &FieldSelector) -> Option<String> {
    let pinned = || fields.pinned_namespace().filter(|name| is_label(name));
    match &path.namespace {
        None if options.continue_token.is_empty() => pinned().map(str::to_owned),
        given => given.clone(),
    }
}

/// A DNS label, as namespaces are called.
fn is_label(text: &str) -> bool {
    const LEN_MAX: usize = 63;
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=LEN_MAX).contains(&text.len())
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// Whether upstream would look up one key instead of scanning a range (docs/PROTOCOL.md §3.1).
fn is_single(selector: &Selector, kind: &ResourceKind) -> bool {
    selector.fields.pinned_name().is_some() && (!kind.namespaced || selector.namespace.is_some())
}

/// Whether selectors are left to upstream because of their length or the number of their terms.
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
