//! The attributes of a request that authorization decides on, and the `Status` of a denied request.

use http::{Method, Uri};

use crate::auth::access::{Access, ResourceAccess};
use crate::auth::user::User;
use crate::protocol::request::{
    PathForm, Query, RequestTarget, ResourcePath, Verb, authorized_name, decoded_path, verb,
};
use crate::protocol::status::{ForbiddenAccess, Status};
use crate::resource::Gvr;

/// The access that a request needs (docs/PROTOCOL.md §1.1).
pub(super) fn access(method: &Method, uri: &Uri) -> Access {
    match RequestTarget::parse(uri) {
        RequestTarget::Resource(path) => Access::Resource(resource(method, &path, uri.query())),
        RequestTarget::NonResource => Access::Path {
            verb: method.as_str().to_ascii_lowercase(),
            path: decoded_path(uri).unwrap_or_default(),
        },
    }
}

fn resource(method: &Method, path: &ResourcePath, query: Option<&str>) -> ResourceAccess {
    let query = Query::parse(query);
    let verb = verb(method, path, &query);
    let name = authorized_name(path, verb, &query);
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    let is_selected = path.form == PathForm::Plain
        && matches!(verb, Verb::List | Verb::Watch | Verb::DeleteCollection);
    let selector = |parameter| match is_selected {
        true => query.first(parameter).unwrap_or_default().to_owned(),
        false => String::new(),
    };
    let verb = match path.form {
        PathForm::ProxyPrefix => "proxy",
        PathForm::Plain | PathForm::WatchPrefix => verb.as_str(),
    };
    ResourceAccess {
        verb: verb.to_owned(),
        group: path.gvr.group.to_string(),
        version: path.gvr.version.to_string(),
        resource: path.gvr.resource.to_string(),
        subresource: text(&path.subresource),
        namespace: text(&path.namespace),
        name: text(&name),
        field_selector: selector("fieldSelector"),
        label_selector: selector("labelSelector"),
    }
}

/// 403 with kube-apiserver's message (docs/PROTOCOL.md §6.7).
pub(super) fn denied(user: &User, access: &Access, reason: &str) -> Status {
    match access {
        Access::Path { verb, path } => Status::forbidden_path(&user.name, verb, path, reason),
        Access::Resource(access) => Status::forbidden(&ForbiddenAccess {
            user: &user.name,
            verb: &access.verb,
            resource: &Gvr::new(&access.group, &access.version, &access.resource),
            subresource: &access.subresource,
            namespace: &access.namespace,
            name: &access.name,
            reason,
        }),
    }
}
