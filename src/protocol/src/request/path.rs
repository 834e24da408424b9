//! Parses URL paths and verbs as the API server's request info does (docs/PROTOCOL.md §1.1). Does no routing.

use http::{Method, Uri};
use serde::Deserialize;

use super::options::{ListOptions, is_true};
use super::query::{PlusSign, Query, unescape};
use crate::resource::Gvr;
use crate::selector::{LabelSelector, pinned_in};

/// What a request's path refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestTarget {
    /// A resource of an API group.
    Resource(ResourcePath),
    /// Anything else: discovery, health, metrics, unknown paths, and paths that the API server does not parse.
    NonResource,
}

/// The parts of a path under `/api` or `/apis`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourcePath {
    /// Group, version, plural name.
    pub gvr: Gvr,
    /// The namespace; for a path to one Namespace object, its name. `None` if it is empty.
    pub namespace: Option<String>,
    /// The object's name.
    pub name: Option<String>,
    /// The subresource, such as `status`.
    pub subresource: Option<String>,
    /// Whether the path contains a verb.
    pub form: PathForm,
    /// Whether upstream's router reads the path the same way.
    pub spelling: Spelling,
}

/// Whether a path contains a verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathForm {
    /// No verb.
    Plain,
    /// `…/watch/…`: the deprecated forced watch (docs/PROTOCOL.md §1.4).
    WatchPrefix,
    /// `…/proxy/…`.
    ProxyPrefix,
}

/// Whether a path is written in the canonical way, which upstream's router reads the same for all kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spelling {
    /// Canonical, as client libraries write it.
    Clean,
    /// Repeated or trailing slashes, escapes, too many parts, or `namespaces` below a namespace: upstream's response depends on the
    /// kind, so it is forwarded.
    Odd,
}

/// The verb of a request, as authorization names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    /// Read a collection.
    List,
    /// Watch a collection.
    Watch,
    /// Read one object.
    Get,
    /// Create an object.
    Create,
    /// Replace an object.
    Update,
    /// Change a part of an object.
    Patch,
    /// Delete an object.
    Delete,
    /// Delete a collection.
    DeleteCollection,
    /// `proxy`, or a method without a verb.
    #[serde(skip)]
    Other,
}

impl Verb {
    /// The verb's name in access reviews and messages; empty for [`Verb::Other`].
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Watch => "watch",
            Self::Get => "get",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
            Self::Other => "",
        }
    }
}

/// The path with its escapes resolved; `None` if an escape is invalid.
#[must_use]
pub fn decoded_path(uri: &Uri) -> Option<String> {
    unescape(uri.path(), PlusSign::IsPlus)
}

impl RequestTarget {
    /// Parses a request's path. A path with an invalid escape, or that ends after its verb, is not a resource.
    #[must_use]
    pub fn parse(uri: &Uri) -> Self {
        let Some(path) = decoded_path(uri) else {
            return Self::NonResource;
        };
        let trimmed = path.trim_matches('/');
        let parts: Vec<&str> = trimmed.split('/').collect();
        let (group, version, mut rest) = match &parts[..] {
            ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
            ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
            _ => return Self::NonResource,
        };
        let form = match rest[0] {
            "watch" => PathForm::WatchPrefix,
            "proxy" => PathForm::ProxyPrefix,
            _ => PathForm::Plain,
        };
        if form != PathForm::Plain {
            rest = &rest[1..];
            if rest.is_empty() {
                return Self::NonResource;
            }
        }
        let mut namespace = "";
        // No route of the API server has `namespaces` below a namespace.
        let mut namespaces_below = false;
        if let ["namespaces", name, tail @ ..] = rest {
            namespace = name;
            if !matches!(tail, [] | ["status" | "finalize", ..]) {
                rest = tail;
                namespaces_below = tail.first() == Some(&"namespaces");
            }
        }
        let part_at = |at: usize| rest.get(at).filter(|part| !part.is_empty());
        let owned = |part: &&str| (*part).to_owned();
        let subresource = part_at(2).filter(|_| form != PathForm::ProxyPrefix);
        // No route of the API server has more parts.
        let part_count_max = 3;
        let clean = path.len() == trimmed.len() + 1
            && path == uri.path()
            && !parts.contains(&"")
            && !namespaces_below
            && rest.len() <= part_count_max;
        Self::Resource(ResourcePath {
            gvr: Gvr::new(group, version, rest[0]),
            namespace: Some(namespace.to_owned()).filter(|name| !name.is_empty()),
            name: part_at(1).map(owned),
            subresource: subresource.map(owned),
            form,
            spelling: if clean {
                Spelling::Clean
            } else {
                Spelling::Odd
            },
        })
    }
}

/// The verb of a resource request (docs/PROTOCOL.md §1.1 d–i).
#[must_use]
pub fn verb(method: &Method, path: &ResourcePath, query: &Query) -> Verb {
    match path.form {
        PathForm::WatchPrefix => return Verb::Watch,
        PathForm::ProxyPrefix => return Verb::Other,
        PathForm::Plain => {}
    }
    let named = path.name.is_some();
    match *method {
        Method::POST => Verb::Create,
        Method::PUT => Verb::Update,
        Method::PATCH => Verb::Patch,
        Method::DELETE if named => Verb::Delete,
        Method::DELETE => Verb::DeleteCollection,
        Method::GET | Method::HEAD if named => Verb::Get,
        Method::GET | Method::HEAD if is_true(query.first("watch")) => Verb::Watch,
        Method::GET | Method::HEAD => Verb::List,
        _ => Verb::Other,
    }
}

/// The object's name for authorization and audit: the one in the path; for lists and watches the one that the field selector
/// requires, if it could appear in a path (docs/PROTOCOL.md §1.1 h). `None` if the options do not parse.
#[must_use]
pub fn authorized_name(path: &ResourcePath, verb: Verb, query: &Query) -> Option<String> {
    if path.name.is_some() {
        return path.name.clone();
    }
    let pins = matches!(verb, Verb::List | Verb::Watch) && path.form == PathForm::Plain;
    if pins { pinned_by(query) } else { None }
}

fn pinned_by(query: &Query) -> Option<String> {
    let name = pinned_in(query.first("fieldSelector")?, "metadata.name")?;
    let in_path = !matches!(&*name, "" | "." | "..") && !name.contains(['/', '%']);
    let labels = query.first("labelSelector").unwrap_or_default();
    let decodes = || ListOptions::from_query(query).is_some();
    (in_path && LabelSelector::parse(labels).is_some() && decodes()).then_some(name)
}
