//! Which lists of Tables can share a request to upstream, and that request. Pure.

use http::header::{ACCEPT, ACCEPT_ENCODING};
use http::{HeaderValue, Request};

use super::super::request::{Key, include_object};
use crate::fairness::Peer;
use crate::protocol::request::{ListOptions, PathForm, RequestInfo, ResourcePath, Spelling, Verb};
use crate::resource::Gvr;
use crate::serve::gzip::{GzipReader, gzip_reader};
use crate::upstream::client::RequestBody;

/// The parameters that kubectl sends for the first page of the newest state. A list with any other parameter is forwarded.
const KNOWN: [&str; 4] = ["fieldSelector", "includeObject", "labelSelector", "limit"];

/// What two lists must have in common to share a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ListKey {
    rows: Key,
    limit: i64,
    is_gzip: bool,
}

/// One client's list.
#[derive(Clone, Debug)]
pub struct TableListRequest {
    pub(super) key: ListKey,
    /// The client whose share pays for a request that is begun for it.
    pub(super) peer: Peer,
}

impl TableListRequest {
    /// Reads a request of a client of `peer`; `None` if it must be forwarded: later pages, given versions, unusual parameters.
    #[must_use]
    pub fn of<B>(request: &Request<B>, info: &RequestInfo, peer: Peer) -> Option<Self> {
        let (path, query) = (info.resource()?, &info.query);
        let mut names: Vec<&str> = query.names().collect();
        names.sort_unstable();
        let twice = names.windows(2).any(|pair| pair[0] == pair[1]);
        if twice
            || !names.iter().all(|name| KNOWN.contains(name))
            || !is_collection(info.verb, path)
        {
            return None;
        }
        if info.prefers_indented {
            return None;
        }
        let options = ListOptions::from_query(query)?;
        let rows = Key {
            gvr: path.gvr.clone(),
            path: request.uri().path().to_owned(),
            label_selector: options.label_selector,
            field_selector: options.field_selector,
            include_object: include_object(query)?,
            version: info.accept.wanted_table()?,
        };
        let key = ListKey {
            rows,
            limit: options.limit,
            is_gzip: gzip_reader(request.headers()) == Some(GzipReader::Client),
        };
        Some(Self { key, peer })
    }
}

fn is_collection(verb: Verb, path: &ResourcePath) -> bool {
    verb == Verb::List
        && path.form == PathForm::Plain
        && path.spelling == Spelling::Clean
        && path.subresource.is_none()
}

impl ListKey {
    pub(super) fn gvr(&self) -> &Gvr {
        &self.rows.gvr
    }

    /// The request to upstream: of the first page of the newest state.
    pub(super) fn request(&self) -> Option<Request<RequestBody>> {
        let mut text = format!(
            "{}?includeObject={}",
            self.rows.path, self.rows.include_object
        );
        if self.limit != 0 {
            text.push_str(&format!("&limit={}", self.limit));
        }
        self.rows.push_selectors(&mut text);
        let mut request = Request::get(text).header(ACCEPT, self.rows.accept());
        if self.is_gzip {
            request = request.header(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        }
        request.body(RequestBody::Empty).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "/api/v1/namespaces/a/pods";
    const KUBECTL: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";

    fn key(uri: &str, headers: &[(&'static str, &str)]) -> Option<ListKey> {
        let mut request = Request::get(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(()).unwrap();
        let read = TableListRequest::of(&request, &RequestInfo::of(&request), Peer::UNKNOWN)?;
        Some(read.key)
    }

    fn of_kubectl(query: &str) -> Option<ListKey> {
        key(&format!("{PATH}{query}"), &[("accept", KUBECTL)])
    }

    #[test]
    fn a_list_as_kubectl_sends_it_is_shared() {
        let query = "?labelSelector=a%3Db%2Cc&limit=500";
        let headers = [("accept", KUBECTL), ("accept-encoding", "gzip")];
        let request = key(&format!("{PATH}{query}"), &headers)
            .unwrap()
            .request()
            .unwrap();
        assert_eq!(
            request.uri().to_string(),
            format!("{PATH}?includeObject=Metadata&limit=500&labelSelector=a%3Db%2Cc")
        );
        assert_eq!(
            request.headers()[ACCEPT],
            "application/json;as=Table;v=v1;g=meta.k8s.io"
        );
        assert_eq!(request.headers()[ACCEPT_ENCODING], "gzip");
        let request = of_kubectl("").unwrap().request().unwrap();
        assert!(!request.headers().contains_key(ACCEPT_ENCODING));
    }

    #[test]
    fn lists_that_differ_in_what_they_get_share_nothing() {
        let plain = of_kubectl("?limit=500").unwrap();
        assert_eq!(
            of_kubectl("?limit=500&includeObject=Metadata").unwrap(),
            plain
        );
        for other in [
            of_kubectl(""),
            of_kubectl("?limit=501"),
            of_kubectl("?limit=500&includeObject=None"),
            of_kubectl("?limit=500&labelSelector=a"),
            of_kubectl("?limit=500&fieldSelector=metadata.name%3Da"),
            key("/api/v1/pods?limit=500", &[("accept", KUBECTL)]),
            key(
                "/api/v1/namespaces/b/pods?limit=500",
                &[("accept", KUBECTL)],
            ),
            key(
                "/api/v1/namespaces/a/services?limit=500",
                &[("accept", KUBECTL)],
            ),
            key(
                &format!("{PATH}?limit=500"),
                &[("accept", KUBECTL), ("accept-encoding", "gzip")],
            ),
            key(
                &format!("{PATH}?limit=500"),
                &[(
                    "accept",
                    "application/json;as=Table;v=v1beta1;g=meta.k8s.io",
                )],
            ),
        ] {
            assert_ne!(other.unwrap(), plain);
        }
    }

    #[test]
    fn an_unusual_list_is_not_shared() {
        for query in [
            "?resourceVersion=0",
            "?resourceVersion=5&resourceVersionMatch=Exact",
            "?limit=500&continue=abc",
            "?limit=x",
            "?limit=500&limit=500",
            "?watch=1",
            "?pretty=1",
            "?includeObject=X",
            "/a?limit=500",
        ] {
            assert_eq!(of_kubectl(query), None, "{query}");
        }
        assert_eq!(key(PATH, &[("accept", "application/json")]), None);
        let indented = [("accept", KUBECTL), ("user-agent", "curl/8.5.0")];
        assert_eq!(key(PATH, &indented), None);
        let pretty = "application/json;as=Table;v=v1;g=meta.k8s.io;pretty=1";
        assert_eq!(key(PATH, &[("accept", pretty)]), None);
        assert_eq!(key("/api/v1//pods", &[("accept", KUBECTL)]), None);
    }
}
