//! Resolves a method and a path to a route (docs/PROTOCOL.md §1). Of the query only `watch` matters: it tells a watch from a list.

use bytes::Bytes;
use http::{Method, Response};

use super::kinds::{Catalogue, ServedKind, StatusPart};
use super::review_kinds::{Review, ReviewEndpoint, discovered};
use super::storage::WritablePart;
use crate::protocol::request::{Query, Verb, is_true};
use crate::protocol::status::{PlainText, Status};
use crate::resource::{Layout, ObjectKey};

/// The route of a request that the server can answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// An object or a collection of a served kind.
    Resource {
        verb: Verb,
        kind_index: usize,
        /// Namespace and name; the name is empty for collections.
        key: ObjectKey,
        part: WritablePart,
    },
    /// Creation of a review.
    Review(ReviewEndpoint),
    /// `/api`.
    CoreVersions,
    /// `/apis`.
    Groups,
    /// `/apis/GROUP`.
    Group(String),
    /// `/api/v1`, `/apis/GROUP/VERSION`.
    Resources(String, String),
    /// `/version`.
    Version,
    /// `/healthz`, `/livez`, `/readyz` and the paths below them.
    Health,
    /// `/debug/faults`.
    Faults,
}

/// The response to a request without a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RouteError {
    /// 404 with the plain text `404 page not found`.
    Page,
    /// An error as a `Status`.
    Refused(Status),
}

impl RouteError {
    pub(super) fn to_response(&self) -> Response<Bytes> {
        match self {
            Self::Page => PlainText::not_found().to_response(),
            Self::Refused(refusal) => refusal.to_response(),
        }
    }
}

impl Route {
    /// Resolves a method, a percent-decoded path and a raw query.
    pub(super) fn of(
        catalogue: &Catalogue,
        method: &Method,
        path: &str,
        query: &str,
    ) -> Result<Self, RouteError> {
        let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
        match segments.as_slice() {
            ["api"] => Ok(Self::CoreVersions),
            ["apis"] => Ok(Self::Groups),
            ["version"] => Ok(Self::Version),
            ["healthz" | "livez" | "readyz", ..] => Ok(Self::Health),
            ["debug", "faults"] => Ok(Self::Faults),
            ["apis", group] => Ok(Self::Group((*group).to_owned())),
            ["api", version] => Ok(Self::Resources(String::new(), (*version).to_owned())),
            ["apis", group, version] => {
                Ok(Self::Resources((*group).to_owned(), (*version).to_owned()))
            }
            ["api", version, rest @ ..] => resource(catalogue, ("", version), rest, method, query),
            ["apis", group, version, rest @ ..] => {
                resource(catalogue, (group, version), rest, method, query)
            }
            _ => Err(RouteError::Page),
        }
    }
}

fn resource(
    catalogue: &Catalogue,
    (group, version): (&str, &str),
    rest: &[&str],
    method: &Method,
    query: &str,
) -> Result<Route, RouteError> {
    let (forced_watch, rest) = match rest {
        ["watch", rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let (namespace, rest) = match rest {
        ["namespaces", namespace, tail @ ..] if !matches!(tail, [] | ["status" | "finalize"]) => {
            (*namespace, tail)
        }
        rest => ("", rest),
    };
    let (plural, name, subresource) = match rest {
        [plural] => (*plural, "", ""),
        [plural, name] => (*plural, *name, ""),
        [plural, name, subresource] => (*plural, *name, *subresource),
        _ => return Err(unknown(catalogue, group)),
    };
    if let Some(review) = Review::of(group, version, plural) {
        let has_name = !name.is_empty() || forced_watch;
        return ReviewEndpoint::of(review, namespace, has_name, method)
            .map(Route::Review)
            .map_err(RouteError::Refused);
    }
    let kind_index = catalogue
        .index_of(group, version, plural)
        .ok_or_else(|| unknown(catalogue, group))?;
    let kind = catalogue.kind(kind_index);
    let fits_scope = kind.resource.namespaced || namespace.is_empty();
    let part = match subresource {
        "" => WritablePart::Whole,
        "status" if kind.status == StatusPart::Apart => WritablePart::Status,
        _ if kind.resource.layout == Layout::Dynamic => {
            return Err(RouteError::Refused(Status::not_found(
                &kind.resource.gvr,
                name,
            )));
        }
        _ => return Err(RouteError::Refused(Status::unknown_resource())),
    };
    if !fits_scope {
        return Err(unknown(catalogue, group));
    }
    let verb = verb(
        method,
        name,
        forced_watch || is_true(Query::parse(Some(query)).first("watch")),
    )
    .filter(|verb| match (verb, part) {
        // Namespaced objects are read and written in their namespace; a status can be neither created nor deleted.
        (Verb::List | Verb::Watch, _) => true,
        (Verb::Get | Verb::Update | Verb::Patch, WritablePart::Status) => !name.is_empty(),
        (_, WritablePart::Status) => false,
        _ => !kind.resource.namespaced || !namespace.is_empty(),
    });
    match verb {
        Some(verb) => {
            let key = ObjectKey::new(namespace, name);
            Ok(Route::Resource {
                verb,
                kind_index,
                key,
                part,
            })
        }
        None => Err(RouteError::Refused(not_allowed(kind, method))),
    }
}

/// The error for a method that a kind does not support; it differs for custom resources (docs/PROTOCOL.md §1.5).
fn not_allowed(kind: &ServedKind, method: &Method) -> Status {
    let verb = match (method.as_str(), kind.resource.layout) {
        (_, Layout::Typed) => return Status::method_not_allowed(),
        ("PUT" | "PATCH", Layout::Dynamic) => return Status::bad_request("name must be provided"),
        ("POST", Layout::Dynamic) => "create",
        ("DELETE", Layout::Dynamic) => "delete",
        (_, Layout::Dynamic) => "",
    };
    Status::verb_not_supported(&kind.resource.gvr, verb)
}

fn verb(method: &Method, name: &str, watch: bool) -> Option<Verb> {
    match (method.as_str(), name.is_empty()) {
        ("GET", false) => Some(Verb::Get),
        ("GET", true) if watch => Some(Verb::Watch),
        ("GET", true) => Some(Verb::List),
        ("POST", true) => Some(Verb::Create),
        ("PUT", false) => Some(Verb::Update),
        ("PATCH", false) => Some(Verb::Patch),
        ("DELETE", false) => Some(Verb::Delete),
        ("DELETE", true) => Some(Verb::DeleteCollection),
        _ => None,
    }
}

/// The error for an unknown resource: a `Status` if the group has compiled-in kinds, otherwise the 404 of any unknown path
/// (docs/PROTOCOL.md §6.1, §6.2).
fn unknown(catalogue: &Catalogue, group: &str) -> RouteError {
    let compiled_in = discovered(catalogue)
        .any(|kind| kind.resource.layout == Layout::Typed && &*kind.resource.gvr.group == group);
    if compiled_in {
        RouteError::Refused(Status::unknown_resource())
    } else {
        RouteError::Page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalogue() -> Catalogue {
        let extra = [
            "widgets.v1.example.com=Widget",
            "gizmos.v1.example.com=Gizmo:cluster",
        ];
        Catalogue::new(&extra.map(|text| text.parse().unwrap()))
    }

    #[track_caller]
    fn check(method: &Method, target: &str, expected: &str) {
        let catalogue = catalogue();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let resolved = match Route::of(&catalogue, method, path, query) {
            Ok(Route::Resource {
                verb,
                kind_index,
                key,
                part,
            }) => {
                format!(
                    "{verb:?} {} {key} {part:?}",
                    catalogue.kind(kind_index).resource.gvr.resource
                )
            }
            Ok(other) => format!("{other:?}"),
            Err(RouteError::Page) => "page".to_owned(),
            Err(RouteError::Refused(refusal)) => format!("{} {}", refusal.code, refusal.reason),
        };
        assert_eq!(resolved, expected, "{method} {target}");
    }

    #[test]
    fn paths_and_methods_name_a_verb_and_an_object() {
        for (method, target, expected) in [
            (Method::GET, "/api/v1/pods", "List pods  Whole"),
            (Method::GET, "/api/v1/pods?watch=1", "Watch pods  Whole"),
            (Method::GET, "/api/v1/pods?watch", "Watch pods  Whole"),
            (Method::GET, "/api/v1/pods?watch=False", "List pods  Whole"),
            (
                Method::GET,
                "/api/v1/watch/namespaces/ns/pods",
                "Watch pods ns/ Whole",
            ),
            (
                Method::GET,
                "/api/v1/namespaces/ns/pods/p",
                "Get pods ns/p Whole",
            ),
            (
                Method::GET,
                "/api/v1/namespaces/ns/pods/p?watch=1",
                "Get pods ns/p Whole",
            ),
            (
                Method::GET,
                "/api/v1/namespaces/ns",
                "Get namespaces ns Whole",
            ),
            (
                Method::PUT,
                "/api/v1/namespaces/ns/status",
                "Update namespaces ns Status",
            ),
            (
                Method::POST,
                "/api/v1/namespaces",
                "Create namespaces  Whole",
            ),
            (
                Method::POST,
                "/apis/apps/v1/namespaces/ns/deployments",
                "Create deployments ns/ Whole",
            ),
            (
                Method::PATCH,
                "/apis/example.com/v1/namespaces/ns/widgets/w/status",
                "Patch widgets ns/w Status",
            ),
            (
                Method::DELETE,
                "/apis/example.com/v1/gizmos/g",
                "Delete gizmos g Whole",
            ),
            (
                Method::DELETE,
                "/api/v1/namespaces/ns/pods",
                "DeleteCollection pods ns/ Whole",
            ),
        ] {
            check(&method, target, expected);
        }
    }

    #[test]
    fn what_is_not_served_is_refused_as_a_real_server_does() {
        for (method, target, expected) in [
            (Method::GET, "/nope", "page"),
            (Method::GET, "/apis/nope/v1/things", "page"),
            (Method::GET, "/apis/example.com/v1/nopes", "page"),
            (
                Method::GET,
                "/apis/example.com/v1/namespaces/ns/gizmos",
                "page",
            ),
            (Method::GET, "/api/v1/nopes", "404 NotFound"),
            (Method::GET, "/api/v1/namespaces/ns/nodes", "404 NotFound"),
            (
                Method::GET,
                "/api/v1/namespaces/ns/secrets/s/status",
                "404 NotFound",
            ),
            (
                Method::GET,
                "/api/v1/namespaces/ns/pods/x/y/z",
                "404 NotFound",
            ),
            (Method::POST, "/api/v1/pods", "405 MethodNotAllowed"),
            (Method::DELETE, "/api/v1/pods", "405 MethodNotAllowed"),
            (
                Method::PUT,
                "/api/v1/namespaces/ns/pods",
                "405 MethodNotAllowed",
            ),
            (
                Method::POST,
                "/api/v1/namespaces/ns/pods/p",
                "405 MethodNotAllowed",
            ),
            (
                Method::PUT,
                "/apis/example.com/v1/namespaces/ns/widgets",
                "400 BadRequest",
            ),
            (
                Method::OPTIONS,
                "/apis/example.com/v1/gizmos",
                "405 MethodNotAllowed",
            ),
            (
                Method::DELETE,
                "/api/v1/namespaces/ns/pods/p/status",
                "405 MethodNotAllowed",
            ),
        ] {
            check(&method, target, expected);
        }
    }
}
