//! Connections and the way of a request through them: route, faults, answer. Lists and watches leave by one door.

use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONNECTION;
use http::{HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body::Body;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::answer::{AnswerBody, Answers, audit_id, collected, json, no_route, refused, stamped};
use super::faults::body::{End, FaultyBody};
use super::faults::{Effect, Faults, Order, StreamFate};
use super::kinds::Catalogue;
use super::refusal::Refusal;
use super::render;
use super::route::{NoRoute, Route, Verb};
use super::store::{Entropy, Store};

/// More connections than this wait in the kernel's queue: a demo's whole swarm fits, a runaway test does not take all
/// file descriptors.
const CONNECTION_COUNT_MAX: usize = 20_000;
/// Pause after a failed accept, which is most often a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// A client that does not finish its TLS handshake by then is dropped.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// What all connections share.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) catalogue: Arc<Catalogue>,
    pub(super) store: Arc<Store>,
    pub(super) address: SocketAddr,
    faults: Mutex<Faults>,
    /// Told when a kind's watches are to end; by kind.
    ends: Vec<watch::Sender<()>>,
    audit_ids: Mutex<Entropy>,
}

/// Who a request came from, and how to let its connection take no more.
#[derive(Debug)]
pub(super) struct Connection {
    peer: SocketAddr,
    goaway: Notify,
    /// Relaxed suffices: a late reader only announces the end one answer later.
    closing: AtomicBool,
}

impl Connection {
    fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
        self.goaway.notify_one();
    }
}

/// Which part of the server answers.
enum Routed {
    List,
    Watch,
    Other,
}

impl Server {
    pub(super) fn new(
        catalogue: Arc<Catalogue>,
        store: Arc<Store>,
        address: SocketAddr,
        seed: u64,
    ) -> Self {
        Self {
            ends: catalogue
                .kinds()
                .iter()
                .map(|_| watch::Sender::new(()))
                .collect(),
            catalogue,
            store,
            address,
            faults: Mutex::default(),
            audit_ids: Mutex::new(Entropy(seed)),
        }
    }

    /// The faults, to order some or to read the counters.
    pub(super) fn faults(&self) -> std::sync::MutexGuard<'_, Faults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an order and does what it asks for at once.
    pub(super) fn order(&self, order: Order) -> Result<(), super::faults::FaultError> {
        let effect = self.faults().order(order)?;
        match effect {
            Effect::Armed => {}
            Effect::EndWatches(resource) => self.meant(resource.as_deref(), |index| {
                // No receiver means that no watch is open.
                self.ends[index].send(()).unwrap_or_default();
            }),
            Effect::Compact(resource) => {
                self.meant(resource.as_deref(), |index| self.store.compact(index))
            }
        }
        Ok(())
    }

    fn meant(&self, resource: Option<&str>, act: impl Fn(usize)) {
        for (index, kind) in self.catalogue.kinds().iter().enumerate() {
            if resource.is_none_or(|plural| plural == &*kind.resource.gvr.resource) {
                act(index);
            }
        }
    }

    /// Answers one request. Never fails: what goes wrong is an answer too.
    pub(super) async fn answer<B>(
        &self,
        request: Request<B>,
        connection: &Connection,
    ) -> Response<AnswerBody>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let audit_id = audit_id(request.headers()).unwrap_or_else(|| self.new_audit_id());
        let path = super::answer::unescaped(request.uri().path());
        let query = request.uri().query().unwrap_or_default();
        let version = request.version();
        let mut response = match Route::of(&self.catalogue, request.method(), &path, query) {
            Ok(Route::Faults) => self.fault_order(request, connection.peer).await,
            Ok(route) => self.routed(route, request, connection).await,
            Err(why) => no_route(&why),
        };
        if connection.closing.load(Ordering::Relaxed) && version < Version::HTTP_2 {
            response
                .headers_mut()
                .insert(CONNECTION, HeaderValue::from_static("close"));
        }
        stamped(response, audit_id)
    }

    async fn routed<B>(
        &self,
        route: Route,
        request: Request<B>,
        connection: &Connection,
    ) -> Response<AnswerBody>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let Route::Resource {
            verb, kind_index, ..
        } = route
        else {
            return self.answers().answer(route, request).await;
        };
        let plural = &self.catalogue.kind(kind_index).resource.gvr.resource;
        let fate = self.faults().on_request(verb, plural);
        if let Some(delay) = fate.delay {
            tokio::time::sleep(delay).await;
        }
        if fate.close_connection {
            connection.close();
        }
        if let Some(refusal) = &fate.refusal {
            return refused(refusal);
        }
        let routed = match verb {
            Verb::List => Routed::List,
            Verb::Watch => Routed::Watch,
            Verb::Get
            | Verb::Create
            | Verb::Update
            | Verb::Patch
            | Verb::Delete
            | Verb::DeleteCollection => Routed::Other,
        };
        match routed {
            Routed::Other => self.answers().answer(route, request).await,
            Routed::List => self.read(kind_index).await,
            Routed::Watch => {
                let end = self.end_of_watches(kind_index);
                self.read(kind_index)
                    .await
                    .map(|body| fated(body, &fate.stream, end))
            }
        }
    }

    /// The door for lists and watches of one kind, which the gateway's own reading side is to answer.
    async fn read(&self, kind_index: usize) -> Response<AnswerBody> {
        self.store.reached(kind_index);
        refused(&Refusal::bare(
            503,
            "ServiceUnavailable",
            "lists and watches are not connected",
        ))
    }

    fn end_of_watches(&self, kind_index: usize) -> End {
        let mut told = self.ends[kind_index].subscribe();
        Box::pin(async move {
            // A closed channel means that the server is going: the stream ends too.
            told.changed().await.unwrap_or_default();
        })
    }

    async fn fault_order<B>(&self, request: Request<B>, peer: SocketAddr) -> Response<AnswerBody>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        if !peer.ip().to_canonical().is_loopback() {
            return no_route(&NoRoute::Page);
        }
        let ordered = match *request.method() {
            Method::GET => Ok(()),
            Method::POST => self.ordered(request).await,
            _ => Err(Refusal::method_not_allowed()),
        };
        match ordered {
            Ok(()) => json(StatusCode::OK, &render::json(&self.faults().counts())),
            Err(refusal) => refused(&refusal),
        }
    }

    async fn ordered<B>(&self, request: Request<B>) -> Result<(), Refusal>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let body = collected(request.into_body()).await?;
        let order = serde_json::from_slice(&body)
            .map_err(|fault| Refusal::bad_request(fault.to_string()))?;
        self.order(order)
            .map_err(|fault| Refusal::bad_request(fault.to_string()))
    }

    fn answers(&self) -> Answers<'_> {
        Answers {
            store: &self.store,
            catalogue: &self.catalogue,
            address: self.address,
        }
    }

    fn new_audit_id(&self) -> HeaderValue {
        let uuid = self
            .audit_ids
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .uuid();
        HeaderValue::try_from(uuid).unwrap_or(HeaderValue::from_static("-"))
    }
}

fn fated(body: AnswerBody, fate: &StreamFate, end: End) -> AnswerBody {
    AnswerBody::new(FaultyBody::new(body, fate, end))
}

/// Accepts connections until it is dropped; dropping it ends them all.
pub(super) async fn run(listener: TcpListener, tls: Option<TlsAcceptor>, server: Arc<Server>) {
    let seats = Arc::new(Semaphore::new(CONNECTION_COUNT_MAX));
    let mut connections = JoinSet::new();
    loop {
        let Ok(seat) = Arc::clone(&seats).acquire_owned().await else {
            return;
        };
        let Ok((stream, peer)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        // Small frames are the rule; one that waits for an acknowledgement is late.
        if stream.set_nodelay(true).is_err() {
            continue;
        }
        while connections.try_join_next().is_some() {}
        let (server, tls) = (Arc::clone(&server), tls.clone());
        connections.spawn(async move {
            let _seat = seat;
            match tls {
                None => serve(stream, peer, server).await,
                Some(tls) => {
                    if let Ok(Ok(stream)) =
                        tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await
                    {
                        serve(stream, peer, server).await;
                    }
                }
            }
        });
    }
}

/// Serves HTTP/1.1 or HTTP/2 on one connection until either side has enough.
async fn serve<S>(stream: S, peer: SocketAddr, server: Arc<Server>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let shared = Arc::new(Connection {
        peer,
        goaway: Notify::new(),
        closing: AtomicBool::new(false),
    });
    let told = Arc::clone(&shared);
    let service = service_fn(move |request| {
        let (server, connection) = (Arc::clone(&server), Arc::clone(&shared));
        async move { Ok::<_, Infallible>(server.answer(request, &connection).await) }
    });
    let builder = auto::Builder::new(TokioExecutor::new());
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    let mut closing = false;
    loop {
        tokio::select! {
            // Both are safe to cancel: the connection is polled again, the notice is taken once.
            outcome = connection.as_mut() => {
                // A peer that breaks off is no event here.
                outcome.unwrap_or_default();
                return;
            }
            () = told.goaway.notified(), if !closing => {
                closing = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}
