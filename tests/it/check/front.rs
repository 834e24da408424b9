//! A server that answers some requests as a test says, and passes all others on to a real one.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

type Body = BoxBody<Bytes, hyper::Error>;

/// The response to requests whose method and target, such as `GET /readyz`, contain `target`.
#[derive(Clone)]
pub(crate) struct Reply {
    pub(crate) target: String,
    pub(crate) status: u16,
    pub(crate) body: String,
    /// The `Date` to send instead of the present time.
    pub(crate) date: Option<&'static str>,
}

impl Reply {
    pub(crate) fn new(target: &str, status: u16, body: impl Into<String>) -> Self {
        Self {
            target: target.to_owned(),
            status,
            body: body.into(),
            date: None,
        }
    }
}

/// The server; it ends when this is dropped.
pub(crate) struct Front {
    pub(crate) address: SocketAddr,
    _tasks: JoinSet<()>,
}

impl Front {
    /// Serves plain HTTP. Without a server behind it, what no reply is for is answered 404.
    pub(crate) async fn new(behind: Option<SocketAddr>, replies: Vec<Reply>) -> Self {
        Self::start(behind, replies, None).await
    }

    /// Serves HTTPS.
    pub(crate) async fn with_tls(
        behind: Option<SocketAddr>,
        replies: Vec<Reply>,
        tls: Arc<ServerConfig>,
    ) -> Self {
        Self::start(behind, replies, Some(TlsAcceptor::from(tls))).await
    }

    async fn start(
        behind: Option<SocketAddr>,
        replies: Vec<Reply>,
        tls: Option<TlsAcceptor>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let script = Arc::new(Script {
            behind,
            replies,
            client: Client::builder(TokioExecutor::new()).build_http(),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (tls, script) = (tls.clone(), Arc::clone(&script));
                connections.spawn(async move {
                    match tls {
                        None => script.serve(stream).await,
                        // A client that does not trust the certificate ends the handshake.
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                script.serve(stream).await;
                            }
                        }
                    }
                });
            }
        });
        Self {
            address,
            _tasks: tasks,
        }
    }
}

struct Script {
    behind: Option<SocketAddr>,
    replies: Vec<Reply>,
    client: Client<HttpConnector, Incoming>,
}

impl Script {
    async fn serve(self: Arc<Self>, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let service = service_fn(move |request| {
            let script = Arc::clone(&self);
            async move { script.answer(request).await }
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service);
        let _ = connection.await;
    }

    async fn answer(
        &self,
        mut request: Request<Incoming>,
    ) -> Result<Response<Body>, hyper_util::client::legacy::Error> {
        let target = request.uri().path_and_query().unwrap().clone();
        let line = format!("{} {target}", request.method());
        let reply = self
            .replies
            .iter()
            .find(|reply| line.contains(&reply.target));
        if let Some(reply) = reply {
            return Ok(reply.response());
        }
        let Some(behind) = self.behind else {
            return Ok(Reply::new("", 404, "{}").response());
        };
        *request.uri_mut() = format!("http://{behind}{target}").parse().unwrap();
        let response = self.client.request(request).await?;
        Ok(response.map(Incoming::boxed))
    }
}

impl Reply {
    fn response(&self) -> Response<Body> {
        let body = Full::new(Bytes::from(self.body.clone()));
        let mut response = Response::builder().status(self.status);
        if let Some(date) = self.date {
            response = response.header("date", date);
        }
        let body = body.map_err(|never| match never {}).boxed();
        response.body(body).unwrap()
    }
}
