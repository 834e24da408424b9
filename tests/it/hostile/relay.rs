//! A relay between the gateway and the API server that replaces responses, or inserts bytes before them.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming};

use crate::support::http_server::{HttpServer, RelayBody, Upstream, whole};

/// What the relay does with the next request for a resource.
pub(crate) enum Script {
    /// Sends these bytes before those of the next watch, be it a streamed list or not.
    BeforeWatch(String),
    /// Responds with this body and code 200 to the next list or watch, without asking the API server.
    Instead(String),
}

/// A running relay. Dropping it closes its connections.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    scripts: Scripts,
    _server: HttpServer,
}

type Scripts = Arc<Mutex<VecDeque<(String, Script)>>>;

#[derive(Clone)]
struct RelayService {
    upstream: Upstream,
    scripts: Scripts,
}

impl Relay {
    /// Starts a relay in front of this server.
    pub(crate) async fn start(upstream: SocketAddr) -> Self {
        let scripts = Scripts::default();
        let service = RelayService {
            upstream: Upstream::new(upstream),
            scripts: Arc::clone(&scripts),
        };
        let server = HttpServer::start(move |request| {
            let service = service.clone();
            async move { service.respond(request).await }
        })
        .await;
        Self {
            address: server.address,
            scripts,
            _server: server,
        }
    }

    /// Queues a script for the next request for `resource` to which it applies.
    pub(crate) fn order(&self, resource: &str, script: Script) {
        let order = (format!("/{resource}"), script);
        self.scripts.lock().unwrap().push_back(order);
    }

    /// Whether all scripts have been used.
    pub(crate) fn is_done(&self) -> bool {
        self.scripts.lock().unwrap().is_empty()
    }
}

impl RelayService {
    async fn respond(&self, request: Request<Incoming>) -> Response<RelayBody> {
        let script = self.take_script(&request);
        if let Some(Script::Instead(body)) = script {
            let response = Response::builder().header("content-type", "application/json");
            return response.body(whole(body)).unwrap();
        }
        let response = self.upstream.forward(request).await;
        match script {
            Some(Script::BeforeWatch(text)) => response.map(|rest| {
                let first = Some(Bytes::from(text));
                Prefixed { first, rest }.boxed()
            }),
            _ => response.map(BodyExt::boxed),
        }
    }

    /// Removes and returns the first script that applies to this request.
    fn take_script(&self, request: &Request<Incoming>) -> Option<Script> {
        let query = request.uri().query().unwrap_or_default();
        let watch = query.contains("watch=");
        let mut scripts = self.scripts.lock().unwrap();
        let applies = |(path, script): &(String, Script)| {
            request.uri().path().ends_with(path.as_str())
                && (watch || matches!(script, Script::Instead(_)))
        };
        let index = scripts.iter().position(applies)?;
        scripts.remove(index).map(|(_, script)| script)
    }
}

/// A body with some bytes before it.
struct Prefixed {
    first: Option<Bytes>,
    rest: Incoming,
}

impl Body for Prefixed {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        match this.first.take() {
            Some(first) => Poll::Ready(Some(Ok(Frame::data(first)))),
            None => Pin::new(&mut this.rest).poll_frame(context),
        }
    }
}
