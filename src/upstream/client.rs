//! Connections to the API server: the requests of the gateway itself and those it passes on. Knows no resource and decodes no body.

mod body;
mod connection;
mod credentials;
mod exec;
mod renewal;
mod secrets;
mod send_error;
mod source;
mod transport;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::header::{AUTHORIZATION, CONNECTION, HOST, HeaderValue, USER_AGENT};
use http::{Method, Request, Response, StatusCode, Uri, Version, uri};
use kube_client::Config;
use kube_client::client::ConfigExt;
use kube_client::config::AuthInfo;
use tokio::sync::Mutex;
use tokio::time::Instant;

use credentials::Credentials;
use secrets::{Expiry, TransportKey};
use transport::{ConnectionLane, LanePurpose, TransportSettings};

pub use body::{BodySendGuard, RequestBody, RequestBodyError, ResponseBody};
pub use renewal::{REBUILD_INTERVAL_MIN, RebuildOutcome};
pub use send_error::SendError;
pub use source::{ConnectError, ConnectSource};

/// Whose name a passed-on request carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardIdentity {
    /// The gateway's own credentials, replacing whatever the caller sent.
    Gateway,
    /// The caller's own `Authorization`, over connections without any credential of the gateway: a client certificate
    /// on them would turn every caller into the gateway.
    Caller,
}

/// The way to one API server. Cheap to clone; all clones share connections.
///
/// ```no_run
/// use kube_fanout::upstream::client::{Client, ConnectError, UpstreamSource};
///
/// # async fn connect() -> Result<(), ConnectError> {
/// // As kubectl does, with the file's current context:
/// let client = Client::connect(UpstreamSource::kubeconfig("/home/me/.kube/config")).await?;
/// // In a pod, as its service account:
/// let client = Client::connect(UpstreamSource::InCluster).await?;
/// // Without credentials: `kubectl proxy`, a gateway, the embedded API server:
/// let client = Client::connect(UpstreamSource::url("http://127.0.0.1:8001")?).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    shared: Arc<ClientState>,
}

impl Client {
    /// Reads configuration and credentials and prepares connections. Nothing is sent, so an unreachable server is not
    /// noticed here.
    ///
    /// # Errors
    /// What is wrong with the configuration, one line each.
    pub async fn connect(source: ConnectSource) -> Result<Self, ConnectError> {
        let stack = ClientStack::load(source.clone(), None).await?;
        Ok(Self {
            shared: Arc::new(ClientState {
                source,
                stack: ArcSwap::from_pointee(stack),
                rebuilt_at: Arc::default(),
            }),
        })
    }

    /// Sends a request of the gateway's own that ends soon: list, review, discovery. The URI needs only path and query.
    ///
    /// # Errors
    /// [`SendError`] when no response came; answers of the server, whatever their status, are `Ok`.
    pub async fn send<B>(&self, request: Request<B>) -> Result<Response<ResponseBody>, SendError>
    where
        B: Into<RequestBody>,
    {
        let stack = self.shared.stack.load_full();
        self.send_own(&stack, &stack.gateway.calls, request).await
    }

    /// Sends a watch of the gateway's own, over connections that carry nothing but a few watches, so that neither flow
    /// control nor a GOAWAY meant for other traffic touches them.
    ///
    /// # Errors
    /// As [`Client::send`].
    pub async fn send_watch<B>(
        &self,
        request: Request<B>,
    ) -> Result<Response<ResponseBody>, SendError>
    where
        B: Into<RequestBody>,
    {
        let stack = self.shared.stack.load_full();
        self.send_own(&stack, &stack.gateway.watches, request).await
    }

    /// Sends a review as a caller: its own headers over connections without any credential of the gateway. They are connections
    /// apart from those of [`Client::forward`], so that however much is forwarded reviews find their places. There is no time-out
    /// here.
    ///
    /// # Errors
    /// As [`Client::send`].
    pub async fn send_as_caller(
        &self,
        request: Request<RequestBody>,
    ) -> Result<Response<ResponseBody>, SendError> {
        let request = named(request);
        let stack = self.shared.stack.load_full();
        self.pass_on(
            &stack,
            &stack.caller.calls,
            ForwardIdentity::Caller,
            request,
        )
        .await
    }

    /// The same with credentials that the server may not take: over a connection that no other request shares, as
    /// [`Client::forward_apart`].
    ///
    /// # Errors
    /// As [`Client::send`].
    pub async fn send_as_caller_apart(
        &self,
        request: Request<RequestBody>,
    ) -> Result<Response<ResponseBody>, SendError> {
        self.forward_apart(named(request)).await
    }

    /// Passes on a request of a caller. The caller of this method has cleared the headers (passthrough.rs); added here
    /// are only the target and, for [`ForwardIdentity::Gateway`], the gateway's credentials.
    ///
    /// There is no time-out here: the pass-through knows which requests may take long. Dropping this future cancels the request
    /// upstream.
    ///
    /// # Errors
    /// As [`Client::send`].
    pub async fn forward(
        &self,
        identity: ForwardIdentity,
        request: Request<RequestBody>,
    ) -> Result<Response<ResponseBody>, SendError> {
        let stack = self.shared.stack.load_full();
        self.pass_on(&stack, &stack.lanes(identity).forwards, identity, request)
            .await
    }

    /// Passes on a short request of a caller whose credentials the server may not take: over a connection that no other request
    /// shares, because the server closes it after one that it does not take.
    ///
    /// # Errors
    /// As [`Client::send`].
    pub async fn forward_apart(
        &self,
        request: Request<RequestBody>,
    ) -> Result<Response<ResponseBody>, SendError> {
        let stack = self.shared.stack.load_full();
        let lane = &stack.caller.forwards_apart;
        self.pass_on(&stack, lane, ForwardIdentity::Caller, request)
            .await
    }

    /// Passes on a watch, or another request that lasts. Has connections and places of its own, so that however many there are
    /// short requests find theirs.
    ///
    /// # Errors
    /// As [`Client::send`].
    pub async fn forward_watch(
        &self,
        identity: ForwardIdentity,
        request: Request<RequestBody>,
    ) -> Result<Response<ResponseBody>, SendError> {
        let stack = self.shared.stack.load_full();
        let lane = &stack.lanes(identity).forwarded_watches;
        self.pass_on(&stack, lane, identity, request).await
    }

    /// Passes on a watch, or another request that lasts, as [`Client::forward_apart`] does short ones. The server hears that
    /// nothing follows: Go's would otherwise take in the rest of a request before it says that it refuses it.
    ///
    /// # Errors
    /// As [`Client::send`].
    pub async fn forward_watch_apart(
        &self,
        mut request: Request<RequestBody>,
    ) -> Result<Response<ResponseBody>, SendError> {
        let close = HeaderValue::from_static("close");
        request.headers_mut().insert(CONNECTION, close);
        let stack = self.shared.stack.load_full();
        let lane = &stack.caller.forwarded_watches_apart;
        self.pass_on(&stack, lane, ForwardIdentity::Caller, request)
            .await
    }

    /// Whether the server is reached without TLS, so that HTTP/2 is never spoken and each request in flight holds a connection.
    #[must_use]
    pub fn is_clear_text(&self) -> bool {
        self.shared.stack.load().base.scheme() == Some(&uri::Scheme::HTTP)
    }

    /// Passes on a request that asks to upgrade its connection, over HTTP/1.1 whatever the server offers.
    ///
    /// # Errors
    /// As [`Client::send`].
    pub async fn send_upgrade(
        &self,
        identity: ForwardIdentity,
        request: Request<RequestBody>,
    ) -> Result<Response<ResponseBody>, SendError> {
        let stack = self.shared.stack.load_full();
        self.pass_on(&stack, &stack.lanes(identity).upgrades, identity, request)
            .await
    }

    /// Takes all places for watches of the gateway's own, until the result is dropped.
    #[cfg(test)]
    pub(crate) fn saturate_watches(&self) -> impl Sized + use<> {
        let stack = self.shared.stack.load_full();
        std::iter::from_fn(|| stack.gateway.watches.place()).collect::<Vec<_>>()
    }

    async fn send_own<B>(
        &self,
        stack: &ClientStack,
        lane: &ConnectionLane,
        request: Request<B>,
    ) -> Result<Response<ResponseBody>, SendError>
    where
        B: Into<RequestBody>,
    {
        let request = named(request.map(Into::into));
        tokio::time::timeout(
            RESPONSE_HEAD_TIMEOUT,
            self.pass_on(stack, lane, ForwardIdentity::Gateway, request),
        )
        .await
        .map_err(|_elapsed| SendError::Timeout)?
    }

    async fn pass_on(
        &self,
        stack: &ClientStack,
        lane: &ConnectionLane,
        identity: ForwardIdentity,
        mut request: Request<RequestBody>,
    ) -> Result<Response<ResponseBody>, SendError> {
        *request.uri_mut() = join(&stack.base, request.uri())?;
        // The transport speaks what ALPN chose; a version left over from the caller's connection would be refused.
        *request.version_mut() = Version::HTTP_11;
        // Host and :authority follow from the URI.
        request.headers_mut().remove(HOST);
        if identity == ForwardIdentity::Gateway {
            request.headers_mut().remove(AUTHORIZATION);
            stack.credentials.attach(request.headers_mut()).await?;
        }
        let response = send_with_retry(lane, request).await?;
        if identity == ForwardIdentity::Gateway && response.status() == StatusCode::UNAUTHORIZED {
            self.renew().await;
        }
        Ok(response)
    }
}

struct ClientState {
    source: ConnectSource,
    stack: ArcSwap<ClientStack>,
    /// When the last rebuild began; locked while one runs.
    rebuilt_at: Arc<Mutex<Option<Instant>>>,
}

/// Everything that follows from one reading of the configuration.
struct ClientStack {
    base: Uri,
    credentials: Credentials,
    gateway: Arc<ConnectionLanes>,
    caller: Arc<ConnectionLanes>,
    /// What the connections follow from.
    transport: TransportKey,
    /// What was read.
    files: Vec<PathBuf>,
    expiry: Expiry,
}

impl ClientStack {
    /// Takes over the connections of `before` if they would be the same.
    async fn load(source: ConnectSource, before: Option<Arc<Self>>) -> Result<Self, ConnectError> {
        let blocking = tokio::task::spawn_blocking(move || source.read());
        let (mut config, files) = blocking.await.map_err(|_| ConnectError::Interrupted)??;
        let expiry = secrets::resolve(&mut config).await?;
        // Files are read there, too.
        let building =
            tokio::task::spawn_blocking(move || Self::build(&config, files, expiry, before));
        building.await.map_err(|_| ConnectError::Interrupted)?
    }

    fn build(
        config: &Config,
        files: Vec<PathBuf>,
        expiry: Expiry,
        before: Option<Arc<Self>>,
    ) -> Result<Self, ConnectError> {
        transport::install_crypto_provider();
        let identity = secrets::certificate(&config.auth_info)?;
        let expiry = expiry.with_certificate(identity.as_deref());
        let transport = TransportKey::of(config, identity);
        let (gateway, caller) = match before.filter(|before| before.transport == transport) {
            Some(before) => (Arc::clone(&before.gateway), Arc::clone(&before.caller)),
            None => {
                let mut bare = config.clone();
                bare.auth_info = AuthInfo::default();
                (
                    Arc::new(ConnectionLanes::new(config)?),
                    Arc::new(ConnectionLanes::new(&bare)?),
                )
            }
        };
        Ok(Self {
            base: config.cluster_url.clone(),
            credentials: Credentials::new(config)?,
            gateway,
            caller,
            transport,
            files,
            expiry,
        })
    }

    fn lanes(&self, identity: ForwardIdentity) -> &ConnectionLanes {
        match identity {
            ForwardIdentity::Gateway => &self.gateway,
            ForwardIdentity::Caller => &self.caller,
        }
    }
}

/// Connections by purpose; they are opened when first needed.
struct ConnectionLanes {
    calls: ConnectionLane,
    watches: ConnectionLane,
    forwards: ConnectionLane,
    forwards_apart: ConnectionLane,
    forwarded_watches: ConnectionLane,
    forwarded_watches_apart: ConnectionLane,
    upgrades: ConnectionLane,
}

impl ConnectionLanes {
    fn new(config: &Config) -> Result<Self, ConnectError> {
        let tls = config
            .rustls_client_config()
            .map_err(|error| ConnectError::from_tls(&error))?;
        let settings = TransportSettings {
            tls,
            server_name: config.tls_server_name.clone(),
        };
        Ok(Self {
            calls: ConnectionLane::new(&settings, LanePurpose::Call)?,
            watches: ConnectionLane::new(&settings, LanePurpose::Watch)?,
            forwards: ConnectionLane::new(&settings, LanePurpose::Forward)?,
            forwards_apart: ConnectionLane::new(&settings, LanePurpose::ForwardApart)?,
            forwarded_watches: ConnectionLane::new(&settings, LanePurpose::ForwardWatch)?,
            forwarded_watches_apart: ConnectionLane::new(
                &settings,
                LanePurpose::ForwardWatchApart,
            )?,
            upgrades: ConnectionLane::new(&settings, LanePurpose::Upgrade)?,
        })
    }
}

/// A GOAWAY or an idle time-out may race with a request. What the server has not looked at is sent again a few times; what it may have
/// done is repeated once if it is a read, which is harmless. The rest is the caller's decision.
async fn send_with_retry(
    lane: &ConnectionLane,
    mut request: Request<RequestBody>,
) -> Result<Response<ResponseBody>, SendError> {
    // What is whole at hand is a review of the gateway's own, which changes nothing.
    let is_review = matches!(request.body(), RequestBody::Full(_));
    let is_repeatable = is_review || matches!(*request.method(), Method::GET | Method::HEAD);
    let mut breaks = 0;
    for _ in 1..SENDS_MAX {
        let again = copy_of(&request);
        let error = match lane.send(request).await {
            Err(error @ SendError::Unprocessed(_)) => error,
            Err(error @ (SendError::Broken(_) | SendError::Lost))
                if is_repeatable && breaks == 0 =>
            {
                breaks += 1;
                error
            }
            outcome => return outcome,
        };
        let Some(copy) = again else { return Err(error) };
        tracing::debug!(%error, "upstream connection broke, sending again");
        request = copy;
    }
    lane.send(request).await
}

/// The same request once more, if its body is at hand. Extensions are left out.
fn copy_of(request: &Request<RequestBody>) -> Option<Request<RequestBody>> {
    let mut copy = Request::new(request.body().again()?);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    Some(copy)
}

/// Puts scheme, authority and path prefix of `base` before the path and query of `target`, whose bytes stay as they are.
fn join(base: &Uri, target: &Uri) -> Result<Uri, SendError> {
    let prefix = base.path().trim_end_matches('/');
    let wanted = target
        .path_and_query()
        .map_or("/", uri::PathAndQuery::as_str);
    let path = if prefix.is_empty() {
        target
            .path_and_query()
            .cloned()
            .unwrap_or(uri::PathAndQuery::from_static("/"))
    } else {
        format!("{prefix}{wanted}")
            .parse()
            .map_err(|error: uri::InvalidUri| SendError::Target(error.into()))?
    };
    let mut parts = base.clone().into_parts();
    parts.path_and_query = Some(path);
    Uri::from_parts(parts).map_err(|error| SendError::Target(error.into()))
}

/// A request of the gateway's own says so.
fn named(mut request: Request<RequestBody>) -> Request<RequestBody> {
    let own = HeaderValue::from_static(OWN_USER_AGENT);
    request.headers_mut().entry(USER_AGENT).or_insert(own);
    request
}

/// Times that a request is sent which the server does not look at.
const SENDS_MAX: usize = 4;

/// The server bounds its own work at 60 s (docs/PROTOCOL.md §3.11); what is silent for longer is gone.
const RESPONSE_HEAD_TIMEOUT: Duration = Duration::from_secs(75);

const OWN_USER_AGENT: &str = concat!("kube-fanout/", env!("CARGO_PKG_VERSION"));

#[cfg(test)]
mod tests;
