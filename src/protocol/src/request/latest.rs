//! Turns a read of any version into one of the latest version, for the time after upstream's API server was replaced by another one,
//! whose caches may be behind.

use http::Uri;

use super::info::RequestInfo;
use super::options::is_true;
use super::path::{PathForm, Verb};
use super::query::{PlusSign, unescape};

/// The subresources that are read like the object itself. For any other one, `resourceVersion` may mean anything.
const OBJECT_SUBRESOURCES: [&str; 3] = ["", "scale", "status"];

impl RequestInfo {
    /// The URI of the same read at the latest version, if this one accepts any version: a list, an object, or a streamed list with
    /// `resourceVersion=0`. A watch that starts at any version has no such form.
    #[must_use]
    pub fn at_latest(&self, uri: &Uri) -> Option<Uri> {
        let path = self.resource()?;
        let subresource = path.subresource.as_deref().unwrap_or_default();
        let is_any = self.query.first("resourceVersion") == Some("0");
        if !is_any || path.form != PathForm::Plain || !OBJECT_SUBRESOURCES.contains(&subresource) {
            return None;
        }
        let dropped: &[&str] = match self.verb {
            Verb::Get | Verb::List => &["resourceVersion", "resourceVersionMatch"],
            Verb::Watch if is_true(self.query.first("sendInitialEvents")) => &["resourceVersion"],
            Verb::Watch
            | Verb::Create
            | Verb::Update
            | Verb::Patch
            | Verb::Delete
            | Verb::DeleteCollection
            | Verb::Other => return None,
        };
        let is_kept = |pair: &&str| {
            let name = pair.split_once('=').map_or(*pair, |(name, _)| name);
            unescape(name, PlusSign::IsBlank).is_none_or(|name| !dropped.contains(&&*name))
        };
        let kept: Vec<&str> = uri.query()?.split('&').filter(is_kept).collect();
        let query = kept.join("&");
        let mark = if query.is_empty() { "" } else { "?" };
        let mut parts = uri.clone().into_parts();
        parts.path_and_query = Some(format!("{}{mark}{query}", uri.path()).parse().ok()?);
        Uri::from_parts(parts).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(method: &str, target: &str, expected: Option<&str>) {
        let request = http::Request::builder().method(method).uri(target).body(());
        let request = request.unwrap();
        let latest = RequestInfo::of(&request).at_latest(request.uri());
        assert_eq!(latest.map(|uri| uri.to_string()).as_deref(), expected);
    }

    #[test]
    fn only_reads_of_any_version_change() {
        let object = "/api/v1/nodes/n";
        check("GET", "/api/v1/nodes/n?resourceVersion=0", Some(object));
        check("GET", "/api/v1/nodes/n?resource%56ersion=%30", Some(object));
        check(
            "GET",
            "/api/v1/events?limit=5&resourceVersion=0&resourceVersionMatch=NotOlderThan&pretty=a%26b",
            Some("/api/v1/events?limit=5&pretty=a%26b"),
        );
        check(
            "GET",
            "/api/v1/events?watch=1&resourceVersion=0&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
            Some("/api/v1/events?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"),
        );
        for target in [
            object,
            "/api/v1/nodes/n?resourceVersion=",
            "/api/v1/nodes/n?resourceVersion=7&resourceVersion=0",
            "/api/v1/events?watch=1&resourceVersion=0",
            "/api/v1/events?watch=1&resourceVersion=0&sendInitialEvents=false",
            "/api/v1/namespaces/a/services/b/proxy/c?resourceVersion=0",
            "/api/v1/namespaces/a/pods/b/log?resourceVersion=0",
            "/version?resourceVersion=0",
        ] {
            check("GET", target, None);
        }
        check("PUT", "/api/v1/nodes/n?resourceVersion=0", None);
        check("DELETE", "/api/v1/events?resourceVersion=0", None);
    }
}
