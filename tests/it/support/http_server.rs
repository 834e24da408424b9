//! An HTTP/1.1 server that answers with a function, and what a relay passes on.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;

use http::{Request, Response, Uri};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

pub(crate) type RelayBody = BoxBody<Bytes, hyper::Error>;

/// A running server. Dropping it closes its connections.
pub(crate) struct HttpServer {
    pub(crate) address: SocketAddr,
    _serving: JoinSet<()>,
}

impl HttpServer {
    /// Answers every request with `respond`.
    pub(crate) async fn start<F, R, B>(respond: F) -> Self
    where
        F: Fn(Request<Incoming>) -> R + Clone + Send + 'static,
        R: Future<Output = Response<B>> + Send,
        B: hyper::body::Body<Data = Bytes, Error: std::error::Error + Send + Sync> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let respond = respond.clone();
                connections.spawn(async move {
                    let service = service_fn(move |request| {
                        let response = respond(request);
                        async { Ok::<_, Infallible>(response.await) }
                    });
                    let connection = http1::Builder::new();
                    let connection = connection.serve_connection(TokioIo::new(stream), service);
                    let connection = connection.with_upgrades();
                    // An error is the peer's to notice.
                    drop(connection.await);
                });
            }
        });
        Self {
            address,
            _serving: serving,
        }
    }
}

/// The server behind a relay.
#[derive(Clone)]
pub(crate) struct Upstream {
    address: SocketAddr,
    client: Client<HttpConnector, Incoming>,
}

impl Upstream {
    pub(crate) fn new(address: SocketAddr) -> Self {
        let client = Client::builder(TokioExecutor::new()).build_http();
        Self { address, client }
    }

    /// Passes a request on.
    pub(crate) async fn forward(&self, mut request: Request<Incoming>) -> Response<Incoming> {
        let target = request.uri().path_and_query().unwrap();
        let uri = format!("http://{}{target}", self.address);
        *request.uri_mut() = uri.parse::<Uri>().unwrap();
        self.client.request(request).await.unwrap()
    }
}

/// A body of these bytes.
pub(crate) fn whole(bytes: impl Into<Bytes>) -> RelayBody {
    let body = Full::new(bytes.into()).map_err(|never| match never {});
    body.boxed()
}
