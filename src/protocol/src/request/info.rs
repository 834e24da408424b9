//! What the head of a request asks for, parsed once. Whoever needs a part of it later takes it from here.

use http::Request;
use http::header::USER_AGENT;

use super::accept::{Accept, wants_pretty};
use super::options::is_true;
use super::path::{RequestTarget, ResourcePath, Verb, authorized_name, verb};
use super::query::Query;
use crate::status::StatusForm;

/// The parsed head of a request: the API server's `RequestInfo`, and the media types.
#[derive(Clone, Debug)]
pub struct RequestInfo {
    /// What the path refers to.
    pub target: RequestTarget,
    /// The verb; [`Verb::Other`] if the path is not a resource.
    pub verb: Verb,
    /// The parameters.
    pub query: Query,
    /// The media types that the client accepts.
    pub accept: Accept,
    /// Whether the query or the `User-Agent` asks for indented JSON; the media type can ask for it, too.
    pub prefers_indented: bool,
}

impl RequestInfo {
    /// Parses the head of a request.
    #[must_use]
    pub fn of<B>(request: &Request<B>) -> Self {
        let headers = request.headers();
        let target = RequestTarget::parse(request.uri());
        let query = Query::parse(request.uri().query());
        let verb = match &target {
            RequestTarget::Resource(path) => verb(request.method(), path, &query),
            RequestTarget::NonResource => Verb::Other,
        };
        let agent = headers.get(USER_AGENT);
        let agent = agent.and_then(|value| value.to_str().ok());
        Self {
            prefers_indented: wants_pretty(&query, agent),
            accept: Accept::of(headers),
            target,
            verb,
            query,
        }
    }

    /// The path, if it refers to a resource.
    #[must_use]
    pub fn resource(&self) -> Option<&ResourcePath> {
        match &self.target {
            RequestTarget::Resource(path) => Some(path),
            RequestTarget::NonResource => None,
        }
    }

    /// Whether this is a watch that continues from a version, without initial events.
    #[must_use]
    pub fn resumes_watch(&self) -> bool {
        let version = self.query.first("resourceVersion");
        let is_version = version.and_then(|version| version.parse::<u64>().ok());
        self.verb == Verb::Watch
            && is_version.is_some_and(|version| version > 0)
            && !is_true(self.query.first("sendInitialEvents"))
    }

    /// The object's name for authorization and audit; empty if the request has none.
    #[must_use]
    pub fn authorized_name(&self) -> String {
        let path = self.resource();
        let name = path.and_then(|path| authorized_name(path, self.verb, &self.query));
        name.unwrap_or_default()
    }

    /// The form of an error response; `None` if only upstream can write it.
    #[must_use]
    pub fn refusal_form(&self) -> Option<StatusForm> {
        match self.accept.refusal_form() {
            Some(StatusForm::Json) if self.prefers_indented => Some(StatusForm::Indented),
            form => form,
        }
    }
}
