//! A relay between the gateway and the API server that replaces responses, or inserts bytes before them.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

type RelayBody = BoxBody<Bytes, hyper::Error>;

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
    scripts: Arc<Mutex<VecDeque<(String, Script)>>>,
    _serving: JoinSet<()>,
}

#[derive(Clone)]
struct RelayService {
    upstream: SocketAddr,
    client: Client<HttpConnector, Incoming>,
    scripts: Arc<Mutex<VecDeque<(String, Script)>>>,
}

impl Relay {
    /// Starts a relay in front of this server.
    pub(crate) async fn start(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let scripts = Arc::<Mutex<VecDeque<_>>>::default();
        let service = RelayService {
            upstream,
            client: Client::builder(TokioExecutor::new()).build_http(),
            scripts: Arc::clone(&scripts),
        };
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, service));
        Self {
            address,
            scripts,
            _serving: serving,
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

async fn serve(listener: TcpListener, service: RelayService) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let service = service.clone();
        connections.spawn(async move {
            let respond = service_fn(move |request| {
                let service = service.clone();
                async move { Ok::<_, Infallible>(service.respond(request).await) }
            });
            // An error here is the peer's to notice.
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), respond)
                .await;
        });
    }
}

impl RelayService {
    async fn respond(&self, mut request: Request<Incoming>) -> Response<RelayBody> {
        let script = self.take_script(&request);
        if let Some(Script::Instead(body)) = script {
            let body = Full::new(Bytes::from(body)).map_err(|never| match never {});
            return Response::builder()
                .header("content-type", "application/json")
                .body(body.boxed())
                .unwrap();
        }
        let target = request.uri().path_and_query().unwrap();
        let uri = format!("http://{}{target}", self.upstream);
        *request.uri_mut() = uri.parse::<Uri>().unwrap();
        let answer = self.client.request(request).await.unwrap();
        match script {
            Some(Script::BeforeWatch(text)) => answer.map(|rest| {
                let first = Some(Bytes::from(text));
                Prefixed { first, rest }.boxed()
            }),
            _ => answer.map(BodyExt::boxed),
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
