//! The fixture of these tests: a client, a pass-through behind a listener, and a peer as upstream.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube_fanout::auth::caller::{Caller, Credential};
use kube_fanout::auth::guard::Forwarding;
use kube_fanout::auth::lease::Lease;
use kube_fanout::auth::user::User;
use kube_fanout::config::{ForwardLimits, OpenFiles};
use kube_fanout::metrics::{Metrics, PassthroughMetrics};
use kube_fanout::passthrough::{
    ForwardDeadlines, Passthrough, PassthroughBody, PassthroughRequest,
};
use kube_fanout::upstream::client::{Client, ConnectSource, ForwardIdentity};
use rustls_pki_types::PrivatePkcs8KeyDer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::passthrough::peer::{self, Peer, PeerBody};

/// The HTTP version of a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Http {
    One,
    Two,
}

/// Starts a peer with HTTP/2 over TLS; returns it and the source to connect to it.
pub(crate) async fn peer_of_http2() -> (Peer, ConnectSource) {
    let (acceptor, ca_file) = certificate();
    let peer = peer::start(Some(acceptor)).await;
    let url = format!("https://localhost:{}", peer.address.port());
    let source = ConnectSource::Url {
        url: url.parse().unwrap(),
        ca_file: Some(ca_file),
    };
    (peer, source)
}

/// A client, a pass-through and a peer.
pub(crate) struct Fixture {
    pub(crate) passthrough: Arc<Passthrough>,
    pub(crate) metrics: PassthroughMetrics,
    pub(crate) address: SocketAddr,
    pub(crate) peer: Peer,
    pub(crate) client: legacy::Client<HttpConnector, PeerBody>,
    /// Dropping this sender ends all [`LIMITED`] requests.
    pub(crate) limit: Option<watch::Sender<()>>,
}

impl Fixture {
    /// `up` selects HTTP/2 over TLS or HTTP/1.1 in clear text towards upstream; `down` selects the client's version, in clear text.
    pub(crate) async fn new(down: Http, up: Http, identity: ForwardIdentity) -> Self {
        let (peer, source) = match up {
            Http::One => {
                let peer = peer::start(None).await;
                let source = clear_text(peer.address);
                (peer, source)
            }
            Http::Two => peer_of_http2().await,
        };
        Self::with_source(peer, source, identity, down).await
    }

    /// A fixture whose upstream is any source, also one where no server listens.
    pub(crate) async fn with_source(
        peer: Peer,
        source: ConnectSource,
        identity: ForwardIdentity,
        down: Http,
    ) -> Self {
        Self::with_passthrough(peer, source, down, |client, metrics| {
            Passthrough::new(client, identity, metrics)
        })
        .await
    }

    /// A fixture whose gateway has its own token.
    pub(crate) async fn with_own_token(down: Http, up: Http) -> Self {
        let (acceptor, ca_file) = certificate();
        let (peer, scheme) = match up {
            Http::One => (peer::start(None).await, "http"),
            Http::Two => (peer::start(Some(acceptor)).await, "https"),
        };
        let port = peer.address.port();
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
             users: [{{name: u, user: {{token: gateway}}}}]\n\
             clusters: [{{name: c, cluster: {{server: \"{scheme}://localhost:{port}\", \
             certificate-authority: {ca_file:?}}}}}]\n"
        );
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("own-{port}.yaml"));
        std::fs::write(&path, text).unwrap();
        Self::with_source(
            peer,
            ConnectSource::kubeconfig(path),
            ForwardIdentity::Caller,
            down,
        )
        .await
    }

    /// A fixture with an HTTP/2 upstream, whose forwarded watches may use this many open files.
    pub(crate) async fn with_files(forwarded_watches: usize) -> Self {
        let (peer, source) = peer_of_http2().await;
        let files = OpenFiles {
            forwarded_watches,
            ..OpenFiles::of_process(0)
        };
        Self::with_passthrough(peer, source, Http::One, |client, metrics| {
            let passthrough = Passthrough::new(client, ForwardIdentity::Caller, metrics);
            passthrough.bounded(ForwardLimits::default(), files)
        })
        .await
    }

    /// A fixture that forwards this many requests of each kind at a time.
    pub(crate) async fn with_limit(up: Http, max: usize) -> Self {
        let (peer, source) = match up {
            Http::One => {
                let peer = peer::start(None).await;
                let source = clear_text(peer.address);
                (peer, source)
            }
            Http::Two => peer_of_http2().await,
        };
        Self::with_passthrough(peer, source, Http::One, |client, metrics| {
            let passthrough = Passthrough::new(client, ForwardIdentity::Caller, metrics);
            let limits = ForwardLimits {
                requests_max: max,
                watches_max: max,
                tunnels_max: max,
            };
            passthrough.bounded(limits, OpenFiles::of_process(0))
        })
        .await
    }

    /// A fixture whose pass-through has this response timeout.
    pub(crate) async fn answered_within(limit: Duration, identity: ForwardIdentity) -> Self {
        let peer = peer::start(None).await;
        let source = clear_text(peer.address);
        Self::with_passthrough(peer, source, Http::One, |client, metrics| {
            Passthrough::new(client, identity, metrics).answered_within(limit)
        })
        .await
    }

    async fn with_passthrough(
        peer: Peer,
        source: ConnectSource,
        down: Http,
        make: impl FnOnce(Client, PassthroughMetrics) -> Passthrough,
    ) -> Self {
        let client = Client::connect(source).await.unwrap();
        let metrics = Metrics::new().unwrap().passthrough();
        let passthrough = Arc::new(make(client, metrics.clone()));
        let (limit, limited) = watch::channel(());
        let address = listen(passthrough.clone(), limited).await;
        let client = legacy::Client::builder(TokioExecutor::new())
            .http2_only(down == Http::Two)
            .build_http();
        Self {
            passthrough,
            metrics,
            address,
            peer,
            client,
            limit: Some(limit),
        }
    }

    pub(crate) fn uri(&self, target: &str) -> Uri {
        format!("http://{}{target}", self.address).parse().unwrap()
    }

    pub(crate) async fn send(&self, request: Request<PeerBody>) -> Response<Incoming> {
        self.client.request(request).await.unwrap()
    }

    pub(crate) async fn try_send(
        &self,
        request: Request<PeerBody>,
    ) -> Result<Response<Incoming>, legacy::Error> {
        self.client.request(request).await
    }

    /// Sends a GET with headers; returns the response's head, and its body as text.
    pub(crate) async fn get(
        &self,
        target: &str,
        headers: &[(&str, &str)],
    ) -> (Response<()>, String) {
        let mut request = Request::get(self.uri(target));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self.send(request.body(empty()).unwrap()).await;
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        (Response::from_parts(parts, ()), text)
    }
}

pub(crate) fn clear_text(address: SocketAddr) -> ConnectSource {
    ConnectSource::Url {
        url: format!("http://{address}").parse().unwrap(),
        ca_file: None,
    }
}

pub(crate) fn empty() -> PeerBody {
    Empty::<Bytes>::new()
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// A self-signed certificate for `localhost`: an acceptor with ALPN, and the path of the CA bundle that trusts it.
pub(crate) fn certificate() -> (TlsAcceptor, PathBuf) {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let with_passthrough = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(with_passthrough.signing_key.serialize_der());
    let mut config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![with_passthrough.cert.der().clone()], key.into())
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let key_of_file = with_passthrough
        .cert
        .der()
        .iter()
        .rev()
        .take(8)
        .map(|byte| format!("{byte:02x}"));
    let name = format!("ca-{}.pem", key_of_file.collect::<String>());
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, with_passthrough.cert.pem()).unwrap();
    (TlsAcceptor::from(Arc::new(config)), path)
}

async fn listen(passthrough: Arc<Passthrough>, limited: watch::Receiver<()>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (passthrough, limited) = (passthrough.clone(), limited.clone());
            let service = service_fn(move |request| {
                let (passthrough, limited) = (passthrough.clone(), limited.clone());
                async move {
                    let response = forward(&passthrough, request, limited).await;
                    Ok::<_, std::convert::Infallible>(response)
                }
            });
            tokio::spawn(async move {
                let is_http2 = begins_http2(&stream).await;
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
            });
        }
    });
    address
}

/// Whether the client begins with the preface of HTTP/2.
async fn begins_http2(stream: &TcpStream) -> bool {
    let mut start = [0; 3];
    loop {
        match stream.peek(&mut start).await {
            Ok(1..=2) => tokio::task::yield_now().await,
            Ok(_) => return start == *b"PRI",
            Err(_) => return false,
        }
    }
}

/// The query of requests whose caller's own credentials cannot be forwarded.
pub(crate) const AS_JANE: &str = "as-jane";

/// The query of requests from another address than that of all others.
pub(crate) const NEWCOMER: &str = "newcomer";

/// The query of requests that end when the test drops the fixture's `limit`.
pub(crate) const LIMITED: &str = "limited";

fn jane() -> Caller {
    let user = User {
        name: "jane".to_owned(),
        uid: "7".to_owned(),
        groups: vec!["a".to_owned(), "b".to_owned()],
        ..User::default()
    };
    Caller {
        authenticated_at: std::time::Instant::now(),
        user: Arc::new(user),
        impersonator: None,
        impersonation: Arc::default(),
        credential: Credential::Certificate(Arc::default()),
        peer: kube_fanout::fairness::Peer::default(),
        expires_at: None,
    }
}

/// Forwards a request as the gateway does: the kind of request depends on the target.
async fn forward(
    passthrough: &Passthrough,
    http: Request<Incoming>,
    mut limited: watch::Receiver<()>,
) -> Response<PassthroughBody> {
    let query = http.uri().query().unwrap_or_default().to_owned();
    let has_parameter = |name| query.split('&').any(|part| part == name);
    let request = PassthroughRequest {
        http,
        peer: match has_parameter(NEWCOMER) {
            true => IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)).into(),
            false => kube_fanout::fairness::Peer::UNKNOWN,
        },
        address: [192, 0, 2, 7].into(),
        forwarding: has_parameter(AS_JANE).then(|| Forwarding::Impersonating {
            caller: jane(),
            lease: Lease::new(),
        }),
    };
    let mut ends = ForwardDeadlines::default();
    if has_parameter(LIMITED) {
        // Completes when the sender is dropped.
        ends = ends.limited_by(async move { while limited.changed().await.is_ok() {} });
    }
    if has_parameter("long") {
        passthrough.forward_long(request, ends).await
    } else if has_parameter("watch") {
        passthrough.forward_watch(request, ends).await
    } else {
        passthrough.forward(request, ends).await
    }
}
