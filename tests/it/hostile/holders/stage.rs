//! A gateway that serves TLS and authenticates its clients by certificates and tokens, with few permits of each kind. Its upstream opens
//! tunnels, and never answers about tokens that it does not know.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::header::{AUTHORIZATION, CONNECTION, UPGRADE};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use kube_fanout::config::{AuthMode, ListenTransport, ServeSettings};
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

use crate::hostile::certificates::{
    Identity, Issuer, client_config, folder, identity, issuer, write,
};
use crate::hostile::fairness::connect;
use crate::hostile::identity::{redirect, upstream_address};
use crate::support::auth::AuthStage;
use crate::support::http_server::{HttpServer, RelayBody, Upstream, whole};

/// Watches, and requests of each kind that are forwarded at a time.
const LIMIT: usize = 12;
const CONNECTIONS: usize = 3 * LIMIT;
const LISTS: usize = 2;
/// Short, so that lists whose client does not read delay others only a little.
const LIST_STALL: Duration = Duration::from_millis(100);
const AUTHORITY: &str = "clients";
pub(super) const NEWCOMER: &str = "newcomer";
/// Beginning of the tokens about which upstream never answers.
pub(super) const UNKNOWN: &str = "unknown";

/// A connection, TLS or not.
pub(super) trait Connection: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Connection for T {}

/// How a client connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    /// The client does not get as far as TLS.
    Tcp,
    Http1,
    Http2,
    /// HTTP/1.1 with a chain of certificates that is no other client's, and that no authority has signed.
    ForgedChain,
    /// HTTP/1.1 with a valid certificate.
    Certificate,
}

pub(super) struct HolderStage {
    stage: AuthStage,
    _upstream: HttpServer,
    server: CertificateDer<'static>,
    valid: Identity,
    /// Have the name of the authority, but not its key.
    forgers: [Issuer; 3],
}

impl HolderStage {
    /// A stage with these tokens of users who may do everything.
    pub(super) async fn new(tokens: &[String], adjust: impl FnOnce(&mut ServeSettings)) -> Self {
        let apiserver = Arc::new(OnceLock::<Upstream>::new());
        let relay = {
            let apiserver = Arc::clone(&apiserver);
            HttpServer::start(move |request| respond(Arc::clone(&apiserver), request)).await
        };
        let clients = issuer(AUTHORITY);
        let server = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let stage = AuthStage::with(AuthMode::SelfCheck, |settings| {
            assert!(
                apiserver
                    .set(Upstream::new(upstream_address(settings)))
                    .is_ok()
            );
            redirect(settings, relay.address);
            let folder = folder();
            settings.transport = ListenTransport::Tls {
                cert: write(&folder, "server.crt", &server.cert.pem()),
                key: write(&folder, "server.key", &server.signing_key.serialize_pem()),
                sni: Vec::new(),
            };
            settings.auth.client_ca = Some(write(&folder, "clients.crt", &clients.pem()));
            limit(settings);
            adjust(settings);
        })
        .await;
        for token in tokens {
            stage.user(token, token, &["system:masters"]);
        }
        Self {
            stage,
            _upstream: relay,
            server: server.cert.der().clone(),
            valid: identity(&clients, NEWCOMER, "system:masters", |_| {}),
            forgers: [(); 3].map(|()| issuer(AUTHORITY)),
        }
    }

    /// A connection from this address; `None` if it was refused.
    pub(super) async fn connect(
        &self,
        from: IpAddr,
        transport: Transport,
    ) -> Option<Box<dyn Connection>> {
        let socket = connect(from, self.stage.address).await;
        let mut config = match transport {
            Transport::Tcp => return Some(Box::new(socket)),
            Transport::Http1 | Transport::Http2 => client_config(&self.server, None),
            Transport::Certificate => client_config(&self.server, Some(self.valid.with(&[]))),
            Transport::ForgedChain => {
                let forged = identity(&self.forgers[0], "forged", "", |_| {});
                let others = self.forgers.each_ref().map(|one| one.der().clone());
                client_config(&self.server, Some(forged.with(&others)))
            }
        };
        if transport == Transport::Http2 {
            config.alpn_protocols = vec![b"h2".to_vec()];
        }
        let name = ServerName::try_from("localhost").unwrap();
        let connector = TlsConnector::from(Arc::new(config));
        let stream = connector.connect(name, socket).await.ok()?;
        Some(Box::new(stream))
    }

    pub(super) async fn shut_down(self) {
        self.stage.ended().await;
    }
}

/// The gateway forwards requests for nodes.
fn limit(settings: &mut ServeSettings) {
    settings.cached.denied = vec!["nodes".parse().unwrap()];
    settings.admission.connections_max = CONNECTIONS;
    settings.admission.watches_max = LIMIT;
    settings.admission.lists_max = LISTS;
    settings.admission.list_stall_max = LIST_STALL;
    settings.forwards.requests_max = LIMIT;
    settings.forwards.watches_max = LIMIT;
    settings.forwards.tunnels_max = LIMIT;
}

async fn respond(
    apiserver: Arc<OnceLock<Upstream>>,
    mut request: Request<Incoming>,
) -> Response<RelayBody> {
    let token = request.headers().get(AUTHORIZATION);
    let unknown = format!("Bearer {UNKNOWN}");
    if token.is_some_and(|token| token.as_bytes().starts_with(unknown.as_bytes())) {
        return std::future::pending().await;
    }
    if let Some(protocol) = request.headers().get(UPGRADE).cloned() {
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            if let Ok(tunnel) = upgrade.await {
                // Ends with the tunnel, however that ends.
                let _ = tokio::io::copy(&mut TokioIo::new(tunnel), &mut tokio::io::sink()).await;
            }
        });
        return Response::builder()
            .status(StatusCode::SWITCHING_PROTOCOLS)
            .header(CONNECTION, "Upgrade")
            .header(UPGRADE, protocol)
            .body(whole(""))
            .unwrap();
    }
    let response = apiserver.get().unwrap().forward(request).await;
    response.map(BodyExt::boxed)
}
