//! Takes a request through its steps: route, authentication and authorization, faults, response. Lists and watches are answered
//! by the gateway's own [`Service`](crate::serve::Service).

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Method, Request, Response, StatusCode, Version};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use parking_lot::Mutex;
use serde::Serialize;

use super::answer::AnswerContext;
use super::auth::Auth;
use super::faults::body::FaultyBody;
use super::faults::{FaultCounts, FaultEffect, FaultError, FaultOrder, Faults, StreamFate};
use super::form::{AcceptHeader, ResultShape, shape_mismatch};
use super::kinds::{Catalogue, ServedKind};
use super::reads::{ApiBody, Reads, as_json};
use super::request_body::collect_body;
use super::review_kinds::ReviewEndpoint;
use super::reviews::{self, ReviewCounts, ReviewTotals};
use super::route::{Route, RouteError};
use super::store::Store;
use super::{render, response};
use crate::auth::lease::Lease;
use crate::auth::user::User;
use crate::connection::{ClientBody, GoAway, HttpService};
use crate::protocol::audit_id;
use crate::protocol::indent::Indenter;
use crate::protocol::request::{Verb, decoded_path};
use crate::protocol::status::{Status, StatusForm};
use crate::serve::resources::ForwardLifetime;
use crate::serve::{AnswerBody, ClientRequest, ConnectInfo, Service};

/// Any response. The connection delivers lists and watches as the gateway's are; only a watch with ordered faults is a [`FaultyBody`].
type ServerResponse = Response<AnswerBody<ApiBody>>;

/// The state that all connections share.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) catalogue: Arc<Catalogue>,
    pub(super) store: Arc<Store>,
    pub(super) address: SocketAddr,
    pub(super) auth: Auth,
    service: Service<Reads>,
    faults: Mutex<Faults>,
    /// The lease that each kind's open watches hold, by the kind's index: revoking it ends them.
    watch_leases: Vec<Mutex<Lease>>,
    pub(super) reviews: ReviewCounts,
}

/// The counters that `/debug/faults` returns.
#[derive(Serialize)]
struct ServerCounters {
    #[serde(flatten)]
    faults: FaultCounts,
    reviews: ReviewTotals,
}

/// An ordered fault: the connection is aborted instead of answering the request.
#[derive(Debug, thiserror::Error)]
#[error("connection aborted by an ordered fault")]
pub(super) struct ConnectionBreak;

impl Server {
    pub(super) fn new(reads: Reads, address: SocketAddr, auth: Auth) -> Self {
        let (catalogue, store) = (Arc::clone(&reads.catalogue), Arc::clone(&reads.store));
        Self {
            service: Service::new(Arc::new(reads)),
            watch_leases: catalogue.kinds().iter().map(|_| Mutex::default()).collect(),
            catalogue,
            store,
            address,
            auth,
            faults: Mutex::default(),
            reviews: ReviewCounts::default(),
        }
    }

    /// Locks the faults, to order some or to read the counters.
    pub(super) fn faults(&self) -> parking_lot::MutexGuard<'_, Faults> {
        self.faults.lock()
    }

    /// The caches that lists and watches are answered from.
    pub(super) fn reads(&self) -> &Reads {
        self.service.resources()
    }

    /// The number of open watches, without those that an order has ended.
    pub(super) fn watch_count(&self) -> usize {
        let counts = self.watch_leases.iter();
        counts.map(|lease| lease.lock().stream_count()).sum()
    }

    /// Takes an order, and performs it at once if it is not one that waits for requests.
    pub(super) fn order(&self, order: FaultOrder) -> Result<(), FaultError> {
        let effect = self.faults().order(order)?;
        match effect {
            FaultEffect::Armed => {}
            FaultEffect::EndWatches(resource) => self.for_each_kind(resource.as_deref(), |index| {
                let open = std::mem::take(&mut *self.watch_leases[index].lock());
                open.revoke();
            }),
            FaultEffect::Compact(resource) => {
                self.for_each_kind(resource.as_deref(), |index| self.store.compact(index))
            }
        }
        Ok(())
    }

    /// Calls `act` with the index of each kind of this plural name; of all kinds if there is no name.
    fn for_each_kind(&self, resource: Option<&str>, act: impl Fn(usize)) {
        for (index, kind) in self.catalogue.kinds().iter().enumerate() {
            if resource.is_none_or(|plural| plural == &*kind.resource.gvr.resource) {
                act(index);
            }
        }
    }

    /// Answers one request. Errors are answered, too; only an ordered fault makes this fail.
    ///
    /// # Errors
    /// [`ConnectionBreak`] if a fault aborts the connection.
    async fn answer(
        &self,
        request: Request<Incoming>,
        go_away: &GoAway,
    ) -> Result<ServerResponse, ConnectionBreak> {
        let audit_id = audit_id(request.headers());
        // A path with invalid escapes gets the response of an empty path: 404.
        let path = decoded_path(request.uri()).unwrap_or_default();
        let query = request.uri().query().unwrap_or_default();
        let response = match Route::of(&self.catalogue, request.method(), &path, query) {
            // Neither authenticated nor authorized: only loopback peers are answered.
            Ok(Route::Faults) => self.answer_faults(request).await.map(AnswerBody::whole),
            route => {
                let form = AcceptHeader::of(request.headers());
                let answer = self.admit(route, request, go_away, form).await?;
                in_accepted_form(form, answer).await
            }
        };
        Ok(response::with_common_headers(response, &audit_id))
    }

    /// Authenticates and authorizes the request before its route is used, so that a caller without permission does not learn
    /// which resources exist.
    async fn admit(
        &self,
        route: Result<Route, RouteError>,
        request: Request<Incoming>,
        go_away: &GoAway,
        form: AcceptHeader,
    ) -> Result<ServerResponse, ConnectionBreak> {
        let connection = request.extensions().get::<ConnectInfo>();
        let chain = connection.map_or(&[][..], |connection| &*connection.identity.certificates);
        let admitted = self.auth.admit(&request, chain);
        let is_unknown = match &admitted {
            Ok(admitted) => admitted.is_anonymous,
            Err(rejection) => rejection.is_unauthenticated(),
        };
        // Like kube-apiserver: an HTTP/2 connection with an unauthenticated request is closed.
        if is_unknown && request.version() == Version::HTTP_2 {
            go_away.begin();
        }
        let user = match admitted {
            Ok(admitted) => admitted.user,
            Err(rejection) => return Ok(rejection.to_response().map(AnswerBody::whole)),
        };
        match route {
            Ok(Route::Review(endpoint)) => {
                let answer = self.answer_review(endpoint, &user, request, go_away);
                Ok(answer.await?.map(AnswerBody::whole))
            }
            Ok(route) => Ok(self.answer_route(route, request, go_away, form).await),
            Err(error) => Ok(error.to_response().map(AnswerBody::whole)),
        }
    }

    async fn answer_review(
        &self,
        endpoint: ReviewEndpoint,
        user: &User,
        request: Request<Incoming>,
        go_away: &GoAway,
    ) -> Result<Response<Bytes>, ConnectionBreak> {
        let fate = self
            .faults()
            .on_request(Verb::Create, endpoint.review.plural());
        if let Some(delay) = fate.delay {
            tokio::time::sleep(delay).await;
        }
        if fate.close_connection {
            go_away.begin();
        }
        if fate.break_off {
            return Err(ConnectionBreak);
        }
        if let Some(refusal) = &fate.refusal {
            return Ok(refusal.to_response());
        }
        let review = endpoint.review;
        let answer = reviews::answer(&self.auth, &self.reviews, user, endpoint, request).await;
        Ok(match fate.nonsense {
            Some(nonsense) => nonsense.instead_of(answer, review),
            None => answer,
        })
    }

    async fn answer_route(
        &self,
        route: Route,
        request: Request<Incoming>,
        go_away: &GoAway,
        form: AcceptHeader,
    ) -> ServerResponse {
        let Route::Resource {
            verb, kind_index, ..
        } = route
        else {
            let answer = self.answer_context().answer(route, request).await;
            return answer.map(AnswerBody::whole);
        };
        let kind = self.catalogue.kind(kind_index);
        let plural = &kind.resource.gvr.resource;
        let fate = self.faults().on_request(verb, plural);
        if let Some(delay) = fate.delay {
            tokio::time::sleep(delay).await;
        }
        if fate.close_connection {
            go_away.begin();
        }
        if let Some(refusal) = &fate.refusal {
            return refusal.to_response().map(AnswerBody::whole);
        }
        match verb {
            Verb::List => self.read(request, form, ResultShape::List, kind).await,
            Verb::Watch => {
                let lease = self.watch_leases[kind_index].lock().clone();
                let answer = self.read(request, form, ResultShape::Object, kind).await;
                // An error is not a stream: it has no stream faults and keeps its content length.
                if !answer.status().is_success() {
                    return answer;
                }
                if let Some(only) = &fate.only {
                    let content_type = answer.headers().get(CONTENT_TYPE);
                    let only = only.bytes(content_type);
                    return answer.map(|_| AnswerBody::whole(only));
                }
                answer.map(|body| {
                    let body = if let AnswerBody::Watch(watch) = body {
                        AnswerBody::Watch(Box::new(watch.leased(Some(lease.hold()))))
                    } else {
                        body
                    };
                    with_faults(body, &fate.stream)
                })
            }
            Verb::Get
            | Verb::Create
            | Verb::Update
            | Verb::Patch
            | Verb::Delete
            | Verb::DeleteCollection
            | Verb::Other => {
                let answer = self.answer_context().answer(route, request).await;
                answer.map(AnswerBody::whole)
            }
        }
    }

    /// Answers a list or a watch from the caches.
    async fn read(
        &self,
        mut request: Request<Incoming>,
        form: AcceptHeader,
        shape: ResultShape,
        kind: &ServedKind,
    ) -> ServerResponse {
        let refuse = |refusal: Status| refusal.to_response().map(AnswerBody::whole);
        let choice = match form.choice() {
            Ok(choice) => choice,
            Err(refusal) => return refuse(refusal),
        };
        as_json(&mut request, choice, shape);
        let answer = self.service.answer(request.into()).await;
        // Like kube-apiserver: an error of the read itself takes precedence over a conversion that does not fit.
        match shape_mismatch(choice, shape, kind).filter(|_| answer.status().is_success()) {
            None => answer,
            Some(refusal) if shape == ResultShape::List => refuse(refusal),
            // Like kube-apiserver: the watch is answered with 200, and its stream ends without an event.
            Some(_) => answer.map(|_| AnswerBody::Stream(None)),
        }
    }

    /// Answers `/debug/faults`: GET returns the counters, POST takes an order first.
    async fn answer_faults(&self, request: Request<Incoming>) -> Response<Bytes> {
        let connection = request.extensions().get::<ConnectInfo>();
        if !connection.is_some_and(|connection| connection.address.to_canonical().is_loopback()) {
            return RouteError::Page.to_response();
        }
        let outcome = match *request.method() {
            Method::GET => Ok(()),
            Method::POST => self.take_order(request).await,
            _ => Err(Status::method_not_allowed()),
        };
        match outcome {
            Ok(()) => response::json(
                StatusCode::OK,
                &render::json(&ServerCounters {
                    faults: self.faults().counts(),
                    reviews: self.reviews.totals(),
                }),
            ),
            Err(refusal) => refusal.to_response(),
        }
    }

    async fn take_order(&self, request: Request<Incoming>) -> Result<(), Status> {
        let body = collect_body(request.into_body()).await?;
        let order = serde_json::from_slice(&body)
            .map_err(|fault| Status::bad_request(fault.to_string()))?;
        self.order(order)
            .map_err(|fault| Status::bad_request(fault.to_string()))
    }

    fn answer_context(&self) -> AnswerContext<'_> {
        AnswerContext {
            store: &self.store,
            catalogue: &self.catalogue,
            address: self.address,
        }
    }
}

impl HttpService for Arc<Server> {
    type Forwarded = ApiBody;
    type Error = ConnectionBreak;

    async fn call(
        &self,
        request: Box<ClientRequest>,
        go_away: &GoAway,
    ) -> Result<ServerResponse, ConnectionBreak> {
        let ClientRequest {
            mut http,
            connection,
            ..
        } = *request;
        http.extensions_mut().insert(connection);
        self.answer(http, go_away).await
    }
}

/// Indents an error for a client that requests indented errors, or that accepts nothing but conversions
/// (docs/PROTOCOL.md §5.2).
async fn in_accepted_form(form: AcceptHeader, answer: ServerResponse) -> ServerResponse {
    let is_json = answer
        .headers()
        .get(CONTENT_TYPE)
        .is_some_and(|value| value == "application/json");
    if form.refusals == StatusForm::Json || answer.status().is_success() || !is_json {
        return answer;
    }
    let (head, body) = answer.into_parts();
    let body = match ClientBody::from(body).collect().await {
        Ok(whole) => Indenter::default().piece(&whole.to_bytes()),
        // Unreachable: an error's body is in memory, so reading it does not fail.
        Err(_) => Bytes::new(),
    };
    Response::from_parts(head, AnswerBody::whole(body))
}

/// Applies the ordered faults of a stream to its body.
fn with_faults(body: AnswerBody<ApiBody>, fate: &StreamFate) -> AnswerBody<ApiBody> {
    if *fate == StreamFate::default() {
        return body;
    }
    let faulty = FaultyBody::new(ClientBody::from(body), fate).boxed_unsync();
    AnswerBody::Forwarded(faulty, ForwardLifetime::Watch)
}
