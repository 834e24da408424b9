//! The server behind the pass-through. Depending on the path it describes the request, streams, breaks the connection or upgrades.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::header::{CONNECTION, CONTENT_LENGTH, HeaderValue, LOCATION, UPGRADE};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio_rustls::TlsAcceptor;

pub(crate) type PeerBody = UnsyncBoxBody<Bytes, std::io::Error>;

/// A running server; `seen` receives the events that responses do not show.
pub(crate) struct Peer {
    pub(crate) address: std::net::SocketAddr,
    pub(crate) seen: mpsc::Receiver<&'static str>,
}

/// Starts a peer on a free port, over TLS with ALPN if an acceptor is given.
pub(crate) async fn start(tls: Option<TlsAcceptor>) -> Peer {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, seen) = mpsc::channel(16);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (tls, sender) = (tls.clone(), sender.clone());
            tokio::spawn(async move {
                match tls {
                    None => serve(stream, (0, false), sender).await,
                    Some(tls) => {
                        if let Ok(stream) = tls.accept(stream).await {
                            let session = stream.get_ref().1;
                            let shown = session.peer_certificates().map_or(0, <[_]>::len);
                            let is_http2 = session.alpn_protocol() == Some(b"h2");
                            serve(stream, (shown, is_http2), sender).await;
                        }
                    }
                }
            });
        }
    });
    Peer { address, seen }
}

/// The number of certificates that the client of a connection presented.
#[derive(Clone, Copy)]
struct ShownCertificates(usize);

async fn serve<S>(stream: S, (shown, is_http2): (usize, bool), seen: mpsc::Sender<&'static str>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let seen = Arc::new(seen);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(ShownCertificates(shown));
        let seen = seen.clone();
        async move { Ok::<_, Infallible>(respond(request, &seen).await) }
    });
    let io = TokioIo::new(stream);
    // The client may leave at any time.
    let _ = match is_http2 {
        true => {
            http2::Builder::new(TokioExecutor::new())
                .serve_connection(io, service)
                .await
        }
        false => {
            http1::Builder::new()
                .serve_connection(io, service)
                .with_upgrades()
                .await
        }
    };
}

async fn respond(
    request: Request<Incoming>,
    seen: &Arc<mpsc::Sender<&'static str>>,
) -> Response<PeerBody> {
    match request.uri().path() {
        "/body" => stream_back(request),
        "/trailers" => trailers(request).await,
        "/broken" => Response::new(breaking()),
        "/endless" => endless(seen.clone()),
        "/silent" => silent(seen.clone()),
        "/swallow" => swallow(request, seen).await,
        "/hang" => hang(seen.clone()).await,
        "/upgrade" => upgrade(request),
        path if path.starts_with("/apis/auth") => review(&request),
        "/redirect" => {
            let mut response = plain(StatusCode::FOUND, "");
            let location = HeaderValue::from_static("/upgrade");
            response.headers_mut().insert(LOCATION, location);
            response
        }
        "/bad-request" => plain(StatusCode::BAD_REQUEST, ""),
        "/unauthorized" => plain(StatusCode::UNAUTHORIZED, "{\"code\":401}"),
        "/refuse" => refuse(request).await,
        "/status" => plain(StatusCode::CONFLICT, "{\"kind\":\"Status\",\"code\":409}"),
        "/length" => {
            let mut response = Response::new(Empty::new().map_err(never).boxed_unsync());
            let length = HeaderValue::from_static("1234");
            response.headers_mut().insert(CONTENT_LENGTH, length);
            response
        }
        _ => describe(&request),
    }
}

/// Refuses a request as Go's server does: over HTTP/1.1 it first reads the body, unless the connection ends with the response.
async fn refuse(request: Request<Incoming>) -> Response<PeerBody> {
    let options = request.headers().get(CONNECTION);
    let options = options.map_or("", |options| options.to_str().unwrap());
    let closes = options.split(',').any(|option| option.trim() == "close");
    if request.version() < http::Version::HTTP_2 && !closes {
        let _ = request.into_body().collect().await;
    }
    plain(StatusCode::FORBIDDEN, "{\"code\":403}")
}

/// Answers a review with the request's HTTP version as the user's name or as the reason.
fn review(request: &Request<Incoming>) -> Response<PeerBody> {
    let version = format!("{:?}", request.version());
    let review = match request.uri().path().ends_with("/selfsubjectreviews") {
        true => serde_json::json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "metadata": {},
            "status": {"userInfo": {"username": version}},
        }),
        false => serde_json::json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "metadata": {},
            "spec": {}, "status": {"allowed": true, "reason": version},
        }),
    };
    plain(StatusCode::CREATED, review.to_string())
}

fn describe(request: &Request<Incoming>) -> Response<PeerBody> {
    let target = request
        .uri()
        .path_and_query()
        .map_or("", |target| target.as_str());
    let authority = request.uri().authority().map(ToString::to_string);
    let mut lines = vec![format!(
        "{} {target} {:?}",
        request.method(),
        request.version()
    )];
    lines.extend(authority.map(|authority| format!("host: {authority}")));
    for (name, value) in request.headers() {
        lines.push(format!("{name}: {}", value.to_str().unwrap()));
    }
    if let Some(ShownCertificates(count @ 1..)) = request.extensions().get() {
        lines.push(format!("client certificates: {count}"));
    }
    let mut response = plain(StatusCode::OK, lines.join("\n"));
    let headers = response.headers_mut();
    for (name, value) in [
        ("audit-id", "from-upstream"),
        ("warning", "299 - \"old\""),
        ("proxy-authenticate", "Basic"),
        ("keep-alive", "timeout=9"),
    ] {
        headers.append(name, HeaderValue::from_static(value));
    }
    headers.append("warning", HeaderValue::from_static("299 - \"older\""));
    response
}

fn stream_back(request: Request<Incoming>) -> Response<PeerBody> {
    Response::new(
        request
            .into_body()
            .map_err(std::io::Error::other)
            .boxed_unsync(),
    )
}

/// Sends the request's trailers back as the response's trailers.
async fn trailers(request: Request<Incoming>) -> Response<PeerBody> {
    let collected = request.into_body().collect().await.unwrap();
    let mut trailers = HeaderMap::new();
    let value = match collected.trailers().and_then(|sent| sent.get("x-sum")) {
        Some(value) => value.clone(),
        None => HeaderValue::from_static("none"),
    };
    trailers.insert("x-sum", value);
    let frames = [
        Ok(Frame::data(collected.to_bytes())),
        Ok(Frame::trailers(trailers)),
    ];
    let mut response = Response::new(streamed(frames.into_iter()));
    response
        .headers_mut()
        .insert("trailer", HeaderValue::from_static("x-sum"));
    response
}

/// A body of one chunk, and an error when told to.
pub(crate) fn breaking_on(told: oneshot::Receiver<()>) -> PeerBody {
    let first = std::future::ready(Ok(Frame::data(Bytes::from_static(b"first"))));
    let end = async {
        let _ = told.await;
        Err(std::io::Error::other("breaks off"))
    };
    let parts = stream::once(first).chain(stream::once(end));
    StreamBody::new(parts).boxed_unsync()
}

/// A body of one chunk, a pause to flush it, and an error.
pub(crate) fn breaking() -> PeerBody {
    struct Breaking(u8);
    impl http_body::Body for Breaking {
        type Data = Bytes;
        type Error = std::io::Error;
        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
            use std::task::Poll;
            self.0 += 1;
            match self.0 {
                1 => Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"first"))))),
                2 => {
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
                _ => Poll::Ready(Some(Err(std::io::Error::other("breaks off")))),
            }
        }
    }
    Breaking(0).boxed_unsync()
}

/// An endless body; reports when it is dropped.
fn endless(seen: Arc<mpsc::Sender<&'static str>>) -> Response<PeerBody> {
    let notice = DropNotice(seen, "endless dropped");
    let frames = std::iter::repeat_with(move || {
        let _still_wanted = &notice;
        Ok(Frame::data(Bytes::from_static(&[b'x'; 4096])))
    });
    Response::new(streamed(frames))
}

/// A body of one chunk that then never continues; reports when it is dropped.
fn silent(seen: Arc<mpsc::Sender<&'static str>>) -> Response<PeerBody> {
    let notice = DropNotice(seen, "silent dropped");
    let first = stream::iter([Ok(Frame::data(Bytes::from_static(b"first")))]);
    let frames = first.chain(stream::pending()).inspect(move |_| {
        let _still_wanted = &notice;
    });
    Response::new(StreamBody::new(frames).boxed_unsync())
}

async fn swallow(
    request: Request<Incoming>,
    seen: &mpsc::Sender<&'static str>,
) -> Response<PeerBody> {
    let mut body = request.into_body();
    let mut len = 0;
    let mut started = false;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            seen.send("upload broke off").await.unwrap();
            return plain(StatusCode::BAD_REQUEST, "");
        };
        len += frame.data_ref().map_or(0, Bytes::len);
        if !std::mem::replace(&mut started, true) {
            seen.send("upload began").await.unwrap();
        }
    }
    plain(StatusCode::OK, len.to_string())
}

async fn hang(seen: Arc<mpsc::Sender<&'static str>>) -> Response<PeerBody> {
    seen.send("hanging").await.unwrap();
    let _notice = DropNotice(seen, "hang dropped");
    std::future::pending().await
}

/// Accepts an upgrade, sends a greeting, and then echoes all bytes in upper case.
fn upgrade(mut request: Request<Incoming>) -> Response<PeerBody> {
    let protocol = request.headers().get(UPGRADE).cloned();
    let is_requested = request.headers().get(CONNECTION).is_some();
    let Some(protocol) = protocol.filter(|_| is_requested) else {
        return plain(StatusCode::BAD_REQUEST, "no upgrade requested");
    };
    let seen = describe_identity(request.headers());
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let mut stream = TokioIo::new(upgraded.await.unwrap());
        stream.write_all(b"hello ").await.unwrap();
        let mut piece = [0; 1024];
        while let Ok(len @ 1..) = stream.read(&mut piece).await {
            piece[..len].make_ascii_uppercase();
            stream.write_all(&piece[..len]).await.unwrap();
        }
        let _ = stream.shutdown().await;
    });
    let mut response = plain(StatusCode::SWITCHING_PROTOCOLS, "");
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, protocol);
    headers.insert("x-stream-protocol-version", HeaderValue::from_static("v5"));
    headers.insert("x-seen", seen);
    response
}

/// The request's headers that identify its caller, as one header value.
fn describe_identity(headers: &HeaderMap) -> HeaderValue {
    let is_identity = |name: &str| {
        name.starts_with("impersonate-")
            || ["authorization", "sec-websocket-protocol", "x-remote-user"].contains(&name)
    };
    let identity = headers
        .iter()
        .filter(|(name, _)| is_identity(name.as_str()));
    let mut lines: Vec<_> = identity
        .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
        .collect();
    lines.sort_unstable();
    lines.join("; ").parse().unwrap()
}

/// Sends its message when it is dropped.
struct DropNotice(Arc<mpsc::Sender<&'static str>>, &'static str);

impl Drop for DropNotice {
    fn drop(&mut self) {
        let _ = self.0.try_send(self.1);
    }
}

fn plain(status: StatusCode, text: impl Into<Bytes>) -> Response<PeerBody> {
    let mut response = Response::new(Full::new(text.into()).map_err(never).boxed_unsync());
    *response.status_mut() = status;
    response
}

fn never(never: Infallible) -> std::io::Error {
    match never {}
}

/// A body of the iterator's frames.
pub(crate) fn streamed<I>(frames: I) -> PeerBody
where
    I: Iterator<Item = Result<Frame<Bytes>, std::io::Error>> + Send + Unpin + 'static,
{
    struct Frames<I>(I);
    impl<I> http_body::Body for Frames<I>
    where
        I: Iterator<Item = Result<Frame<Bytes>, std::io::Error>> + Unpin,
    {
        type Data = Bytes;
        type Error = std::io::Error;
        fn poll_frame(
            mut self: Pin<&mut Self>,
            _cx: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
            std::task::Poll::Ready(self.0.next())
        }
    }
    Frames(frames).boxed_unsync()
}

/// A body whose chunks come from a channel; it ends when the sender is dropped.
pub(crate) fn fed() -> (mpsc::Sender<Bytes>, PeerBody) {
    struct Fed(mpsc::Receiver<Bytes>);
    impl http_body::Body for Fed {
        type Data = Bytes;
        type Error = std::io::Error;
        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
            let polled = self.0.poll_recv(cx);
            polled.map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
        }
    }
    let (sender, receiver) = mpsc::channel(1);
    (sender, Fed(receiver).boxed_unsync())
}
