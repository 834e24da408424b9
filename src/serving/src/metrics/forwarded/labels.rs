//! The labels of a forwarded request, derived as kube-apiserver derives them (`MonitorRequest` in k8s.io/apiserver, `pkg/endpoints/metrics`).
//! Nothing here allocates before a label set is stored.

use hashbrown::Equivalent;
use http::header::CONTENT_TYPE;
use http::{Method, Request};
use strum::{IntoStaticStr, VariantArray};

use crate::metrics::labels::Label;
use crate::protocol::request::{RequestInfo, ResourcePath, Verb};
use crate::resource::Gvr;

/// The `resource` of requests that have no label set of their own, and what stands for unknown subresources and codes.
pub(super) const OTHER: &str = "other";

/// The verb as kube-apiserver's metrics have it: a method, except where the request is more than that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "UPPERCASE")]
pub(super) enum RequestVerb {
    Get,
    List,
    Watch,
    Post,
    Put,
    Patch,
    /// A server-side apply.
    Apply,
    Delete,
    /// Logs, exec, attach, port-forward and proxied services, whatever their method is.
    Connect,
    /// A method that the API does not have.
    #[strum(serialize = "other")]
    Other,
}

/// How much a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(super) enum RequestScope {
    /// One object, or a new one.
    Resource,
    /// The objects of a namespace.
    Namespace,
    /// All objects.
    Cluster,
    /// The path is not that of a resource.
    #[strum(serialize = "")]
    None,
}

/// The subresources with a label value of their own: those of built-in resources, and the ones that custom resources may have.
const SUBRESOURCES: [&str; 16] = [
    "approval",
    "attach",
    "binding",
    "ephemeralcontainers",
    "eviction",
    "exec",
    "finalize",
    "log",
    "portforward",
    "proxy",
    "resize",
    "scale",
    "status",
    "token",
    "bind",
    "resourceclaims",
];

/// The subresources whose requests count as `CONNECT`.
const CONNECT_SUBRESOURCES: [&str; 5] = ["log", "exec", "portforward", "attach", "proxy"];

/// The labels of a request, with the resource that its path names.
#[derive(Clone, Copy, Debug, Hash)]
pub struct ForwardedLabels<'a> {
    pub(super) verb: RequestVerb,
    pub(super) scope: RequestScope,
    /// `None` if the path is not that of a resource.
    pub(super) gvr: Option<&'a Gvr>,
    pub(super) subresource: &'static str,
}

/// Labels that have series.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct LabelSet {
    pub(super) verb: RequestVerb,
    pub(super) scope: RequestScope,
    pub(super) gvr: Option<Gvr>,
    pub(super) subresource: &'static str,
}

impl Equivalent<LabelSet> for ForwardedLabels<'_> {
    fn equivalent(&self, set: &LabelSet) -> bool {
        self.verb == set.verb
            && self.scope == set.scope
            && self.gvr == set.gvr.as_ref()
            && self.subresource == set.subresource
    }
}

impl<'a> ForwardedLabels<'a> {
    /// The labels of a request and its parsed head.
    #[must_use]
    pub fn of<B>(request: &Request<B>, info: &'a RequestInfo) -> Self {
        let path = info.resource();
        let scope = scope(request.method(), path);
        let subresource = path.and_then(|path| path.subresource.as_deref());
        let subresource = subresource.map_or("", known_subresource);
        Self {
            verb: verb(request, info.verb, scope, subresource),
            scope,
            gvr: path.map(|path| &path.gvr),
            subresource,
        }
    }

    pub(super) fn to_set(self) -> LabelSet {
        LabelSet {
            verb: self.verb,
            scope: self.scope,
            gvr: self.gvr.cloned(),
            subresource: self.subresource,
        }
    }
}

impl LabelSet {
    /// The values of the labels, in the order of their names.
    pub(super) fn values(&self) -> [&str; 6] {
        let (group, version, resource) = match &self.gvr {
            Some(gvr) => (&*gvr.group, &*gvr.version, &*gvr.resource),
            None => ("", "", ""),
        };
        [
            self.verb.as_str(),
            group,
            version,
            resource,
            self.subresource,
            self.scope.as_str(),
        ]
    }
}

fn scope(method: &Method, path: Option<&ResourcePath>) -> RequestScope {
    match path {
        None => RequestScope::None,
        Some(path) if path.name.is_some() || *method == Method::POST => RequestScope::Resource,
        Some(path) if path.namespace.is_some() => RequestScope::Namespace,
        Some(_) => RequestScope::Cluster,
    }
}

fn known_subresource(name: &str) -> &'static str {
    let known = SUBRESOURCES.into_iter().find(|known| *known == name);
    known.unwrap_or(OTHER)
}

fn verb<B>(
    request: &Request<B>,
    verb: Verb,
    scope: RequestScope,
    subresource: &str,
) -> RequestVerb {
    if CONNECT_SUBRESOURCES.contains(&subresource) {
        return RequestVerb::Connect;
    }
    if verb == Verb::Watch {
        return RequestVerb::Watch;
    }
    let is_collection = matches!(scope, RequestScope::Namespace | RequestScope::Cluster);
    match *request.method() {
        Method::GET | Method::HEAD if is_collection => RequestVerb::List,
        Method::GET | Method::HEAD => RequestVerb::Get,
        Method::POST => RequestVerb::Post,
        Method::PUT => RequestVerb::Put,
        Method::PATCH if is_apply(request) => RequestVerb::Apply,
        Method::PATCH => RequestVerb::Patch,
        Method::DELETE => RequestVerb::Delete,
        _ => RequestVerb::Other,
    }
}

fn is_apply<B>(request: &Request<B>) -> bool {
    let content_type = request.headers().get(CONTENT_TYPE);
    content_type.is_some_and(|value| value == "application/apply-patch+yaml")
}
