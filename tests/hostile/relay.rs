//! A server between API server and gateway that puts words into the API server's mouth.

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

/// What happens to the next request for a resource.
pub(crate) enum Script {
    /// These bytes come before those of the watch, be it a streamed list or not.
    BeforeWatch(String),
    /// This is the answer, with code 200; lists and streamed lists alike.
    Instead(String),
}

/// The relay, running.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    scripts: Arc<Mutex<VecDeque<(String, Script)>>>,
    _serving: JoinSet<()>,
}

#[derive(Clone)]
struct Way {
    upstream: SocketAddr,
    client: Client<HttpConnector, Incoming>,
    scripts: Arc<Mutex<VecDeque<(String, Script)>>>,
}

impl Relay {
    pub(crate) async fn before(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let scripts = Arc::<Mutex<VecDeque<_>>>::default();
        let way = Way {
            upstream,
            client: Client::builder(TokioExecutor::new()).build_http(),
            scripts: Arc::clone(&scripts),
        };
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, way));
        Self {
            address,
            scripts,
            _serving: serving,
        }
    }

    /// Orders what the next request for `resource` that it fits gets.
    pub(crate) fn order(&self, resource: &str, script: Script) {
        let order = (format!("/{resource}"), script);
        self.scripts.lock().unwrap().push_back(order);
    }

    /// Whether all orders were carried out.
    pub(crate) fn is_done(&self) -> bool {
        self.scripts.lock().unwrap().is_empty()
    }
}

async fn serve(listener: TcpListener, way: Way) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let way = way.clone();
        connections.spawn(async move {
            let answer = service_fn(move |request| {
                let way = way.clone();
                async move { Ok::<_, Infallible>(way.answer(request).await) }
            });
            // How a connection ends is for its peer to see.
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), answer)
                .await;
        });
    }
}

impl Way {
    async fn answer(&self, mut request: Request<Incoming>) -> Response<RelayBody> {
        let script = self.script(&request);
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

    fn script(&self, request: &Request<Incoming>) -> Option<Script> {
        let query = request.uri().query().unwrap_or_default();
        let watch = query.contains("watch=");
        let mut scripts = self.scripts.lock().unwrap();
        let fits = |(path, script): &(String, Script)| {
            request.uri().path().ends_with(path.as_str())
                && (watch || matches!(script, Script::Instead(_)))
        };
        let place = scripts.iter().position(fits)?;
        scripts.remove(place).map(|(_, script)| script)
    }
}

/// Some bytes, then a body.
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
