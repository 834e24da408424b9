//! Connections to the API server, for the gateway's own requests and for those that it forwards. Knows no resource and
//! decodes no body.
//!
//! A [`Client`] holds a `ClientStack`: everything that one reading of the configuration yields. Connections are grouped
//! into lanes by purpose (`transport.rs`), so that one kind of traffic cannot use up the permits of another. `renewal.rs`
//! replaces the stack when credentials change.

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

pub use body::{BodySendGuard, ByteCounter, RequestBody, RequestBodyError, ResponseBody};
pub use renewal::{REBUILD_INTERVAL_MIN, RebuildOutcome};
pub use send_error::SendError;
pub use source::{ConnectError, ConnectSource};

/// Under which identity a request is forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardIdentity {
    /// The gateway's own credentials, replacing whatever the caller sent.
    Gateway,
    /// The caller's own `Authorization`, over connections without any credential of the gateway: with a client certificate
    /// of the gateway, every caller would act as the gateway.
    Caller,
}

/// A client of one API server. Cheap to clone; all clones share their connections.
///
/// ```no_run
/// use kube_fanout::upstream::client::{Client, ConnectError, ConnectSource};
///
/// # async fn connect() -> Result<(), ConnectError> {
/// // As kubectl does, with the file's current context:
/// let client = Client::connect(ConnectSource::kubeconfig("/home/me/.kube/config")).await?;
/// // In a pod, as its service account:
/// let client = Client::connect(ConnectSource::InCluster).await?;
/// // Without credentials: `kubectl proxy`, a gateway, the embedded API server:
/// let client = Client::connect(ConnectSource::url("http://127.0.0.1:8001")?).await?;
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
    /// The configuration or the credentials cannot be used.
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

    /// Sends a short request of the gateway's own: a list, a review, discovery. The URI needs only path and query.
    ///
    /// # Errors
    /// [`SendError`] if no response came. A response is `Ok` whatever its status.
    pub async fn send<B>(&self, request: Request<B>) -> Result<Response<ResponseBody>, SendError>
    where
        B: Into<RequestBody>,
    {
        let stack = self.shared.stack.load_full();
        self.send_own(&stack, &stack.gateway.calls, request).await
    }

    /// Sends a watch of the gateway's own, over connections that carry only a few watches: flow control and GOAWAY frames
    /// caused by other traffic do not affect them.
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

    /// Sends a review with the caller's own headers, over connections without any credential of the gateway. They are
    /// separate from those of [`Client::forward`], so that forwarded requests cannot use up the permits of reviews. Has no
    /// timeout.
    ///
    /// # Errors
    /// As [`Client::send`].
    pub async fn send_as_caller(
        &self,
        request: Request<RequestBody>,
    ) -> Result<Response<ResponseBody>, SendError> {
        let request = with_user_agent(request);
        let stack = self.shared.stack.load_full();
        self.send_on_lane(
            &stack,
            &stack.caller.calls,
            ForwardIdentity::Caller,
            request,
        )
        .await
    }

    /// Like [`Client::send_as_caller`], for credentials that the server may not accept: uses a connection that no other
    /// request shares, as [`Client::forward_apart`] does.
    ///
    /// # Errors
    /// As [`Client::send`].
    pub async fn send_as_caller_apart(
        &self,
        request: Request<RequestBody>,
    ) -> Result<Response<ResponseBody>, SendError> {
        self.forward_apart(with_user_agent(request)).await
    }

    /// Forwards a request of a caller. The calling code has already removed the headers that must not be forwarded
    /// (passthrough.rs). This method adds only the target and, for [`ForwardIdentity::Gateway`], the gateway's credentials.
    ///
    /// Has no timeout, because only the pass-through knows which requests may take long. Dropping the future cancels the
    /// request upstream.
    ///
    /// # Errors
    /// As [`Client::send`].
    pub async fn forward(
        &self,
        identity: ForwardIdentity,
        request: Request<RequestBody>,
    ) -> Result<Response<ResponseBody>, SendError> {
        let stack = self.shared.stack.load_full();
        self.send_on_lane(&stack, &stack.lanes(identity).forwards, identity, request)
            .await
    }

    /// Forwards a short request of a caller whose credentials the server may not accept. No other request shares the
    /// connection, because the server closes it after a request with credentials that it does not accept.
    ///
    /// # Errors
    /// As [`Client::send`].
    pub async fn forward_apart(
        &self,
        request: Request<RequestBody>,
    ) -> Result<Response<ResponseBody>, SendError> {
        let stack = self.shared.stack.load_full();
        let lane = &stack.caller.forwards_apart;
        self.send_on_lane(&stack, lane, ForwardIdentity::Caller, request)
            .await
    }

    /// Forwards a watch or another long-running request. These requests have connections and permits of their own, so that
    /// they cannot use up those of short requests.
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
        self.send_on_lane(&stack, lane, identity, request).await
    }

    /// Forwards a watch or another long-running request as [`Client::forward_apart`] does for short ones. It sends
    /// `Connection: close`, because a Go server would otherwise read the rest of the request body before it responds that
    /// it refuses the request.
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
        self.send_on_lane(&stack, lane, ForwardIdentity::Caller, request)
            .await
    }

    /// Whether the server is reached without TLS. HTTP/2 is never used then, and each request in flight occupies a
    /// connection.
    #[must_use]
    pub fn is_clear_text(&self) -> bool {
        self.shared.stack.load().base.scheme() == Some(&uri::Scheme::HTTP)
    }

    /// Forwards a request to upgrade its connection. Always uses HTTP/1.1.
    ///
    /// # Errors
    /// As [`Client::send`].
    pub async fn send_upgrade(
        &self,
        identity: ForwardIdentity,
        request: Request<RequestBody>,
    ) -> Result<Response<ResponseBody>, SendError> {
        let stack = self.shared.stack.load_full();
        self.send_on_lane(&stack, &stack.lanes(identity).upgrades, identity, request)
            .await
    }

    /// Takes all permits for the gateway's own watches until the result is dropped.
    #[cfg(test)]
    pub(crate) fn saturate_watches(&self) -> impl Sized + use<> {
        let stack = self.shared.stack.load_full();
        std::iter::from_fn(|| stack.gateway.watches.acquire()).collect::<Vec<_>>()
    }

    /// Takes all permits for the gateway's own short requests until the result is dropped.
    #[cfg(test)]
    pub(crate) fn saturate_calls(&self) -> impl Sized + use<> {
        let stack = self.shared.stack.load_full();
        std::iter::from_fn(|| stack.gateway.calls.acquire()).collect::<Vec<_>>()
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
        let request = with_user_agent(request.map(Into::into));
        tokio::time::timeout(
            RESPONSE_HEAD_TIMEOUT,
            self.send_on_lane(stack, lane, ForwardIdentity::Gateway, request),
        )
        .await
        .map_err(|_elapsed| SendError::Timeout)?
    }

    async fn send_on_lane(
        &self,
        stack: &ClientStack,
        lane: &ConnectionLane,
        identity: ForwardIdentity,
        mut request: Request<RequestBody>,
    ) -> Result<Response<ResponseBody>, SendError> {
        *request.uri_mut() = join(&stack.base, request.uri())?;
        // ALPN decides the version of HTTP. A request with the version of the caller's connection would be refused.
        *request.version_mut() = Version::HTTP_11;
        // hyper derives Host and :authority from the URI.
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
    /// When the last rebuild started. The mutex stays locked while a rebuild runs.
    rebuilt_at: Arc<Mutex<Option<Instant>>>,
}

/// Everything that one reading of the configuration yields.
struct ClientStack {
    base: Uri,
    credentials: Credentials,
    gateway: Arc<ConnectionLanes>,
    caller: Arc<ConnectionLanes>,
    /// Identifies the settings that the connections depend on.
    transport: TransportKey,
    /// The files that were read.
    files: Vec<PathBuf>,
    expiry: Expiry,
}

impl ClientStack {
    /// Reads the configuration. Reuses the connections of `previous` if new ones would be interchangeable with them.
    async fn load(
        source: ConnectSource,
        previous: Option<Arc<Self>>,
    ) -> Result<Self, ConnectError> {
        let blocking = tokio::task::spawn_blocking(move || source.read());
        let (mut config, files) = blocking.await.map_err(|_| ConnectError::Interrupted)??;
        let expiry = secrets::resolve(&mut config).await?;
        // Building blocks, too: it reads files.
        let building =
            tokio::task::spawn_blocking(move || Self::build(&config, files, expiry, previous));
        building.await.map_err(|_| ConnectError::Interrupted)?
    }

    fn build(
        config: &Config,
        files: Vec<PathBuf>,
        expiry: Expiry,
        previous: Option<Arc<Self>>,
    ) -> Result<Self, ConnectError> {
        transport::install_crypto_provider();
        let identity = secrets::certificate(&config.auth_info)?;
        let expiry = expiry.with_certificate(identity.as_deref());
        let transport = TransportKey::of(config, identity);
        let (gateway, caller) = match previous.filter(|previous| previous.transport == transport) {
            Some(previous) => (Arc::clone(&previous.gateway), Arc::clone(&previous.caller)),
            None => {
                let mut anonymous = config.clone();
                anonymous.auth_info = AuthInfo::default();
                (
                    Arc::new(ConnectionLanes::new(config)?),
                    Arc::new(ConnectionLanes::new(&anonymous)?),
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

/// The connections of one identity, by purpose. They are opened when first needed.
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

/// Sends a request, and sends it again if the connection fails, because a GOAWAY or an idle timeout may race with the
/// request. A request that the server did not process is sent up to [`SENDS_MAX`] times. A request that the server may have
/// processed is repeated once if it changes nothing. In all other cases the caller gets the error and decides.
async fn send_with_retry(
    lane: &ConnectionLane,
    mut request: Request<RequestBody>,
) -> Result<Response<ResponseBody>, SendError> {
    // Only the gateway's own reviews have their body in memory, and a review changes nothing.
    let is_review = matches!(request.body(), RequestBody::Full(_));
    let is_repeatable = is_review || matches!(*request.method(), Method::GET | Method::HEAD);
    let mut repeat_count = 0;
    for _ in 1..SENDS_MAX {
        let copy = try_clone(&request);
        let error = match lane.send(request).await {
            Err(error @ SendError::Unprocessed(_)) => error,
            Err(error @ (SendError::Broken(_) | SendError::Lost))
                if is_repeatable && repeat_count == 0 =>
            {
                repeat_count += 1;
                error
            }
            outcome => return outcome,
        };
        let Some(copy) = copy else { return Err(error) };
        tracing::debug!(%error, "the connection to the API server failed, sending the request again");
        request = copy;
    }
    lane.send(request).await
}

/// Copies a request, without its extensions. `None` if its body is a stream, which cannot be sent twice.
fn try_clone(request: &Request<RequestBody>) -> Option<Request<RequestBody>> {
    let mut copy = Request::new(request.body().try_clone()?);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    Some(copy)
}

/// Prepends scheme, authority and path prefix of `base` to the path and query of `target`, whose bytes stay unchanged.
fn join(base: &Uri, target: &Uri) -> Result<Uri, SendError> {
    let prefix = base.path().trim_end_matches('/');
    let target_path = target
        .path_and_query()
        .map_or("/", uri::PathAndQuery::as_str);
    let path = if prefix.is_empty() {
        target
            .path_and_query()
            .cloned()
            .unwrap_or(uri::PathAndQuery::from_static("/"))
    } else {
        format!("{prefix}{target_path}")
            .parse()
            .map_err(|error: uri::InvalidUri| SendError::Target(error.into()))?
    };
    let mut parts = base.clone().into_parts();
    parts.path_and_query = Some(path);
    Uri::from_parts(parts).map_err(|error| SendError::Target(error.into()))
}

/// Sets the gateway's user agent if the request has none.
fn with_user_agent(mut request: Request<RequestBody>) -> Request<RequestBody> {
    let own = HeaderValue::from_static(OWN_USER_AGENT);
    request.headers_mut().entry(USER_AGENT).or_insert(own);
    request
}

/// Maximum number of times that a request is sent if the server does not process it.
const SENDS_MAX: usize = 4;

/// The server limits its own work to 60 s (docs/PROTOCOL.md §3.11); a server that is silent for longer is considered gone.
const RESPONSE_HEAD_TIMEOUT: Duration = Duration::from_secs(75);

const OWN_USER_AGENT: &str = concat!("kube-fanout/", env!("CARGO_PKG_VERSION"));

#[cfg(test)]
mod tests;
