//! Connections to the API server, for the gateway's own requests and for those that it forwards. Knows no resource and
//! decodes no body.
//!
//! A [`Client`] holds a `ClientStack`: everything that one reading of the configuration yields. Connections are grouped
//! into lanes by purpose (`transport.rs`), so that one kind of traffic cannot use up the permits of another. `renewal.rs`
//! replaces the stack when credentials change. Of several API servers, `endpoint_table.rs` decides which is used, `routing.rs`
//! sends requests there, and `endpoint_probe.rs` checks them.

mod body;
mod client_tls;
mod connection;
mod credentials;
mod endpoint_probe;
mod endpoint_state;
mod endpoint_table;
mod endpoints;
mod exec;
mod hops;
#[cfg(feature = "gateway")]
mod inspection;
mod renewal;
mod routing;
mod secrets;
mod send_error;
mod source;
mod transport;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::header::{HeaderValue, USER_AGENT};
use http::{HeaderMap, Request, Response, Uri, uri};
use kube_client::Config;
use kube_client::config::AuthInfo;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::blocking::spawn_blocking;
use crate::log_limit::FaultLog;
use credentials::Credentials;
use endpoints::Endpoints;
use hops::HopId;
use secrets::{Expiry, PluginUse, TransportKey};
use transport::{ConnectionLane, LanePurpose, TransportSettings};

pub use body::{
    BodyObserver, BodySendGuard, RequestBody, RequestBodyError, ResponseBody, ResponseBodyError,
};
pub use endpoint_table::{ENDPOINTS_MAX, EndpointFailure, EndpointState};
pub use endpoints::EndpointRecorder;
#[cfg(feature = "gateway")]
pub use inspection::ConnectionParts;
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

/// A client of one API server, or of several of one cluster. Cheap to clone; all clones share their connections.
///
/// ```no_run
/// use kube_fanout_upstream::client::{Client, ConnectError, ConnectSource};
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
        Self::connect_to(source, Vec::new()).await
    }

    /// Like [`Client::connect`], with the credentials of `source` for these API servers of one cluster, instead of the server
    /// that `source` names. Requests go to one that is ready, so [`Client::follow_endpoints`] must be running; without servers,
    /// or with a single one, it has nothing to do.
    ///
    /// # Errors
    /// As [`Client::connect`], or an address that cannot be used.
    pub async fn connect_to(
        source: ConnectSource,
        servers: Vec<Uri>,
    ) -> Result<Self, ConnectError> {
        source::check_servers(&servers)?;
        let stack =
            ClientStack::load(source.clone(), servers.clone(), None, PluginUse::Run).await?;
        let names = stack.servers.iter().map(|server| name_of(&server.base));
        let endpoints = Endpoints::new(names.collect(), crate::resource::random());
        Ok(Self {
            shared: Arc::new(ClientState {
                source,
                servers,
                endpoints,
                stack: ArcSwap::from_pointee(stack),
                rebuilt_at: Arc::default(),
                refusals: parking_lot::Mutex::default(),
                hop: OnceLock::new(),
                is_in_loop: parking_lot::Mutex::default(),
                loops: parking_lot::Mutex::default(),
            }),
        })
    }

    /// Marks all requests as those of one gateway, which notices when they come back to it.
    #[must_use]
    pub fn of_gateway(self) -> Self {
        self.shared.hop.get_or_init(HopId::random);
        self
    }

    /// Whether the requests are those of a gateway.
    pub(crate) fn is_gateway(&self) -> bool {
        self.shared.hop.get().is_some()
    }

    /// Whether a client's request with this head has been sent by this gateway before, or would come back to it.
    #[must_use]
    pub fn has_passed(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        let hop = self.shared.hop.get();
        hop.is_some_and(|hop| match hops::may_reach_workload(uri.path()) {
            true => *self.shared.is_in_loop.lock(),
            false => hop.has_passed(headers),
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
        self.send_own(LanePurpose::Call, request).await
    }

    /// Sends a request of the gateway's own whose response is short, over connections that carry nothing else: it comes although other
    /// responses are not read yet.
    ///
    /// # Errors
    /// As [`Client::send`].
    pub async fn send_short<B>(
        &self,
        request: Request<B>,
    ) -> Result<Response<ResponseBody>, SendError>
    where
        B: Into<RequestBody>,
    {
        self.send_own(LanePurpose::Check, request).await
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
        self.send_own(LanePurpose::Watch, request).await
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
        self.send_on_lane(LanePurpose::Call, ForwardIdentity::Caller, request)
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
        self.send_on_lane(LanePurpose::Forward, identity, request)
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
        self.send_on_lane(LanePurpose::ForwardApart, ForwardIdentity::Caller, request)
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
        self.send_on_lane(LanePurpose::ForwardWatch, identity, request)
            .await
    }

    /// Forwards a watch or another long-running request as [`Client::forward_apart`] does for short ones.
    ///
    /// # Errors
    /// As [`Client::send`].
    pub async fn forward_watch_apart(
        &self,
        request: Request<RequestBody>,
    ) -> Result<Response<ResponseBody>, SendError> {
        self.send_on_lane(
            LanePurpose::ForwardWatchApart,
            ForwardIdentity::Caller,
            request,
        )
        .await
    }

    /// Sends requests to another API server, if there are several and another one is ready.
    pub(super) fn prefer_another_server(&self) {
        self.shared.endpoints.lagging();
    }

    /// Whether the server is reached without TLS. HTTP/2 is never used then, and each request in flight occupies a
    /// connection.
    #[must_use]
    pub fn is_clear_text(&self) -> bool {
        // All API servers of a client have the same scheme.
        let stack = self.shared.stack.load();
        stack
            .servers
            .first()
            .and_then(|server| server.base.scheme())
            == Some(&uri::Scheme::HTTP)
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
        self.send_on_lane(LanePurpose::Upgrade, identity, request)
            .await
    }

    /// Takes all permits for the gateway's own watches until the result is dropped.
    #[cfg(any(test, feature = "testing"))]
    pub fn saturate_watches(&self) -> impl Sized + use<> {
        let stack = self.shared.stack.load_full();
        std::iter::from_fn(|| stack.servers[0].gateway.watches.acquire()).collect::<Vec<_>>()
    }

    /// Takes all permits for the gateway's own short requests until the result is dropped.
    #[cfg(any(test, feature = "testing"))]
    pub fn saturate_calls(&self) -> impl Sized + use<> {
        let stack = self.shared.stack.load_full();
        std::iter::from_fn(|| stack.servers[0].gateway.calls.acquire()).collect::<Vec<_>>()
    }

    async fn send_own<B>(
        &self,
        purpose: LanePurpose,
        request: Request<B>,
    ) -> Result<Response<ResponseBody>, SendError>
    where
        B: Into<RequestBody>,
    {
        let request = with_user_agent(request.map(Into::into));
        // Boxed, because it is a part of the futures of many callers.
        let sending = Box::pin(self.send_on_lane(purpose, ForwardIdentity::Gateway, request));
        tokio::time::timeout(RESPONSE_HEAD_TIMEOUT, sending)
            .await
            .map_err(|_elapsed| SendError::Timeout)?
    }
}

struct ClientState {
    source: ConnectSource,
    /// The API servers to use instead of the source's.
    servers: Vec<Uri>,
    endpoints: Endpoints,
    stack: ArcSwap<ClientStack>,
    /// When the last rebuild started. The mutex stays locked while a rebuild runs.
    rebuilt_at: Arc<Mutex<Option<Instant>>>,
    /// Limits the log lines about credentials of the gateway that the server refuses.
    refusals: parking_lot::Mutex<FaultLog<()>>,
    /// Marks the requests of a gateway.
    hop: OnceLock<HopId>,
    /// Whether the last request of the gateway's own came back to it: those that are not marked would, too.
    is_in_loop: parking_lot::Mutex<bool>,
    /// Limits the log lines about requests that came back to their gateway.
    loops: parking_lot::Mutex<FaultLog<()>>,
}

/// Everything that one reading of the configuration yields.
struct ClientStack {
    credentials: Credentials,
    servers: Vec<ServerLanes>,
    /// Identifies the settings that the connections depend on.
    transport: TransportKey,
    /// The files that were read.
    files: Vec<PathBuf>,
    expiry: Expiry,
}

/// The address of one API server and the connections to it.
struct ServerLanes {
    base: Uri,
    gateway: Arc<ConnectionLanes>,
    caller: Arc<ConnectionLanes>,
}

impl ServerLanes {
    fn new(base: Uri, config: &Config) -> Result<Self, ConnectError> {
        let mut anonymous = config.clone();
        anonymous.auth_info = AuthInfo::default();
        Ok(Self {
            gateway: Arc::new(ConnectionLanes::new(config, &base)?),
            caller: Arc::new(ConnectionLanes::new(&anonymous, &base)?),
            base,
        })
    }

    fn lane(&self, identity: ForwardIdentity, purpose: LanePurpose) -> &ConnectionLane {
        let lanes = match identity {
            ForwardIdentity::Gateway => &self.gateway,
            ForwardIdentity::Caller => &self.caller,
        };
        match purpose {
            LanePurpose::Call => &lanes.calls,
            LanePurpose::Check => &lanes.checks,
            LanePurpose::Watch => &lanes.watches,
            LanePurpose::Forward => &lanes.forwards,
            LanePurpose::ForwardApart => &lanes.forwards_apart,
            LanePurpose::ForwardWatch => &lanes.forwarded_watches,
            LanePurpose::ForwardWatchApart => &lanes.forwarded_watches_apart,
            LanePurpose::Upgrade => &lanes.upgrades,
        }
    }
}

impl ClientStack {
    /// Reads the configuration. Reuses the connections of `previous` if new ones would be interchangeable with them.
    async fn load(
        source: ConnectSource,
        servers: Vec<Uri>,
        previous: Option<Arc<Self>>,
        plugins: PluginUse,
    ) -> Result<Self, ConnectError> {
        let blocking = spawn_blocking(move || source.read());
        let (mut config, files) = blocking.await.map_err(|_| ConnectError::Interrupted)??;
        let expiry = secrets::resolve(&mut config, plugins).await?;
        // Building blocks, too: it reads files.
        let building =
            spawn_blocking(move || Self::build(&config, servers, files, expiry, previous));
        building.await.map_err(|_| ConnectError::Interrupted)?
    }

    fn build(
        config: &Config,
        mut servers: Vec<Uri>,
        files: Vec<PathBuf>,
        expiry: Expiry,
        previous: Option<Arc<Self>>,
    ) -> Result<Self, ConnectError> {
        transport::install_crypto_provider();
        let identity = secrets::certificate(&config.auth_info)?;
        let expiry = expiry.with_certificate(identity.as_deref());
        let transport = TransportKey::of(config, identity);
        if servers.is_empty() {
            servers.push(config.cluster_url.clone());
        }
        let previous = previous.filter(|previous| previous.transport == transport);
        let lanes = servers.into_iter().enumerate().map(|(index, base)| {
            let known = previous.as_ref().and_then(|all| all.servers.get(index));
            match known {
                Some(known) => Ok(ServerLanes {
                    base,
                    gateway: Arc::clone(&known.gateway),
                    caller: Arc::clone(&known.caller),
                }),
                None => ServerLanes::new(base, config),
            }
        });
        Ok(Self {
            credentials: Credentials::new(&config.auth_info)?,
            servers: lanes.collect::<Result<_, _>>()?,
            transport,
            files,
            expiry,
        })
    }
}

/// Host and port of a server, as its name in metrics and logs.
fn name_of(base: &Uri) -> String {
    let host = base.host().unwrap_or_default();
    let is_http = base.scheme() == Some(&uri::Scheme::HTTP);
    let port = base.port_u16().unwrap_or(if is_http { 80 } else { 443 });
    format!("{host}:{port}")
}

/// The connections of one identity, by purpose. They are opened when first needed.
struct ConnectionLanes {
    calls: ConnectionLane,
    checks: ConnectionLane,
    watches: ConnectionLane,
    forwards: ConnectionLane,
    forwards_apart: ConnectionLane,
    forwarded_watches: ConnectionLane,
    forwarded_watches_apart: ConnectionLane,
    upgrades: ConnectionLane,
}

impl ConnectionLanes {
    fn new(config: &Config, base: &Uri) -> Result<Self, ConnectError> {
        let settings = TransportSettings {
            tls: client_tls::client_config(config, base)?,
            server_name: config.tls_server_name.clone(),
        };
        Ok(Self {
            calls: ConnectionLane::new(&settings, LanePurpose::Call)?,
            checks: ConnectionLane::new(&settings, LanePurpose::Check)?,
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

/// Sets the gateway's user agent if the request has none.
fn with_user_agent(mut request: Request<RequestBody>) -> Request<RequestBody> {
    let own = HeaderValue::from_static(OWN_USER_AGENT);
    request.headers_mut().entry(USER_AGENT).or_insert(own);
    request
}

/// The server limits its own work to 60 s (docs/PROTOCOL.md §3.11); a server that is silent for longer is considered gone.
const RESPONSE_HEAD_TIMEOUT: Duration = Duration::from_secs(75);

const OWN_USER_AGENT: &str = concat!("kube-fanout/", env!("CARGO_PKG_VERSION"));

#[cfg(test)]
mod tests;
