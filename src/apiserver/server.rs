//! Takes a request through its steps: route, authentication and authorization, faults, response. Lists and watches are answered
//! by the gateway's own [`Service`](crate::serve::Service).

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt, Either};
use hyper::body::Incoming;
use serde::Serialize;
use tokio::sync::watch;

use super::answer::{
    AnswerContext, ApiBody, audit_id, collect_body, json, no_route, refused, whole_body,
    with_common_headers,
};
use super::auth::Auth;
use super::connections::ConnectionInfo;
use super::faults::body::{CleanEnd, FaultyBody};
use super::faults::{FaultCounts, FaultEffect, FaultOrder, Faults};
use super::form::{AcceptHeader, ResultShape, shape_mismatch};
use super::kinds::{Catalogue, ServedKind};
use super::reads::{Reads, as_json};
use super::render;
use super::reviews::{self, ReviewCounts, ReviewEndpoint, ReviewTotals};
use super::route::{ResourceVerb, Route, RouteError};
use super::store::{Entropy, Store};
use crate::auth::user::User;
use crate::connection::ClientBody;
use crate::protocol::indent::Indenter;
use crate::protocol::request::decoded_path;
use crate::protocol::status::{Status, StatusForm};
use crate::serve::resources::ForwardLifetime;
use crate::serve::{self, Service};

/// The body of any response. The body of a watch passes through a [`FaultyBody`].
pub(super) type ServerBody = Either<ReadBody, FaultyBody<ReadBody>>;
type ReadBody = ClientBody<ApiBody>;

/// The state that all connections share.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) catalogue: Arc<Catalogue>,
    pub(super) store: Arc<Store>,
    pub(super) address: SocketAddr,
    pub(super) auth: Auth,
    service: Service<Reads>,
    faults: Mutex<Faults>,
    /// One sender for each kind, by its index: a send ends the kind's open watches.
    watch_ends: Vec<watch::Sender<()>>,
    audit_ids: Mutex<Entropy>,
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
    pub(super) fn new(reads: Reads, address: SocketAddr, auth: Auth, seed: u64) -> Self {
        let (catalogue, store) = (Arc::clone(&reads.catalogue), Arc::clone(&reads.store));
        Self {
            service: Service::new(Arc::new(reads)),
            watch_ends: catalogue
                .kinds()
                .iter()
                .map(|_| watch::Sender::new(()))
                .collect(),
            catalogue,
            store,
            address,
            auth,
            faults: Mutex::default(),
            audit_ids: Mutex::new(Entropy(seed)),
            reviews: ReviewCounts::default(),
        }
    }

    /// Locks the faults, to order some or to read the counters.
    pub(super) fn faults(&self) -> std::sync::MutexGuard<'_, Faults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The caches that lists and watches are answered from.
    pub(super) fn reads(&self) -> &Reads {
        self.service.resources()
    }

    /// Takes an order, and performs it at once if it is not one that waits for requests.
    pub(super) fn order(&self, order: FaultOrder) -> Result<(), super::faults::FaultError> {
        let effect = self.faults().order(order)?;
        match effect {
            FaultEffect::Armed => {}
            FaultEffect::EndWatches(resource) => self.for_each_kind(resource.as_deref(), |index| {
                // The send fails if there is no receiver: no watch is open.
                self.watch_ends[index].send(()).unwrap_or_default();
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
    pub(super) async fn answer(
        &self,
        request: Request<Incoming>,
        connection: &ConnectionInfo,
    ) -> Result<Response<ServerBody>, ConnectionBreak> {
        let audit_id = audit_id(request.headers()).unwrap_or_else(|| self.new_audit_id());
        // A path with invalid escapes gets the response of an empty path: 404.
        let path = decoded_path(request.uri()).unwrap_or_default();
        let query = request.uri().query().unwrap_or_default();
        let version = request.version();
        let mut response = match Route::of(&self.catalogue, request.method(), &path, query) {
            // Neither authenticated nor authorized: only loopback peers are answered.
            Ok(Route::Faults) => own_response(self.answer_faults(request, connection.peer).await),
            route => {
                let form = AcceptHeader::of(request.headers());
                let answer = self.admit(route, request, connection, form).await?;
                in_accepted_form(form, answer).await
            }
        };
        if connection.is_closing() && version < Version::HTTP_2 {
            response
                .headers_mut()
                .insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Ok(with_common_headers(response, audit_id))
    }

    /// Authenticates and authorizes the request before its route is used, so that a caller without permission does not learn
    /// which resources exist.
    async fn admit(
        &self,
        route: Result<Route, RouteError>,
        request: Request<Incoming>,
        connection: &ConnectionInfo,
        form: AcceptHeader,
    ) -> Result<Response<ServerBody>, ConnectionBreak> {
        let admitted = self.auth.admit(&request, &connection.certificates);
        let is_unknown = match &admitted {
            Ok(admitted) => admitted.is_anonymous,
            Err(rejection) => rejection.is_unauthenticated(),
        };
        // Like kube-apiserver: an HTTP/2 connection with an unauthenticated request is closed.
        if is_unknown && request.version() == Version::HTTP_2 {
            connection.close();
        }
        let user = match admitted {
            Ok(admitted) => admitted.user,
            Err(rejection) => return Ok(own_response(whole_body(rejection.to_response()))),
        };
        match route {
            Ok(Route::Review(endpoint)) => {
                self.answer_review(endpoint, &user, request, connection)
                    .await
            }
            Ok(route) => Ok(self.answer_route(route, request, connection, form).await),
            Err(error) => Ok(own_response(no_route(&error))),
        }
    }

    async fn answer_review(
        &self,
        endpoint: ReviewEndpoint,
        user: &User,
        request: Request<Incoming>,
        connection: &ConnectionInfo,
    ) -> Result<Response<ServerBody>, ConnectionBreak> {
        let fate = self
            .faults()
            .on_request(ResourceVerb::Create, endpoint.review.plural());
        if let Some(delay) = fate.delay {
            tokio::time::sleep(delay).await;
        }
        if fate.close_connection {
            connection.close();
        }
        if fate.break_off {
            return Err(ConnectionBreak);
        }
        if let Some(refusal) = &fate.refusal {
            return Ok(own_response(refused(refusal)));
        }
        let review = endpoint.review;
        let answer = reviews::answer(&self.auth, &self.reviews, user, endpoint, request).await;
        Ok(own_response(match fate.nonsense {
            Some(nonsense) => nonsense.instead_of(answer, review).await,
            None => answer,
        }))
    }

    async fn answer_route(
        &self,
        route: Route,
        request: Request<Incoming>,
        connection: &ConnectionInfo,
        form: AcceptHeader,
    ) -> Response<ServerBody> {
        let Route::Resource {
            verb, kind_index, ..
        } = route
        else {
            return own_response(self.answer_context().answer(route, request).await);
        };
        let kind = self.catalogue.kind(kind_index);
        let plural = &kind.resource.gvr.resource;
        let fate = self.faults().on_request(verb, plural);
        if let Some(delay) = fate.delay {
            tokio::time::sleep(delay).await;
        }
        if fate.close_connection {
            connection.close();
        }
        if let Some(refusal) = &fate.refusal {
            return own_response(refused(refusal));
        }
        match verb {
            ResourceVerb::List => {
                let answer = self.read(request, form, ResultShape::List, kind).await;
                answer.map(Either::Left)
            }
            ResourceVerb::Watch => {
                let end = self.watch_end(kind_index);
                let answer = self.read(request, form, ResultShape::Object, kind).await;
                // An error is not a stream: it has no stream faults and keeps its content length.
                if !answer.status().is_success() {
                    return answer.map(Either::Left);
                }
                answer.map(|body| Either::Right(FaultyBody::new(body, &fate.stream, end)))
            }
            ResourceVerb::Get
            | ResourceVerb::Create
            | ResourceVerb::Update
            | ResourceVerb::Patch
            | ResourceVerb::Delete
            | ResourceVerb::DeleteCollection => {
                own_response(self.answer_context().answer(route, request).await)
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
    ) -> Response<ReadBody> {
        let refuse = |refusal| refused(&refusal).map(forwarded_body);
        let choice = match form.choice() {
            Ok(choice) => choice,
            Err(refusal) => return refuse(refusal),
        };
        as_json(&mut request, choice, shape);
        let answer = self.service.answer(request).await.map(ClientBody::from);
        // Like kube-apiserver: an error of the read itself takes precedence over a conversion that does not fit.
        match shape_mismatch(choice, shape, kind).filter(|_| answer.status().is_success()) {
            None => answer,
            Some(refusal) if shape == ResultShape::List => refuse(refusal),
            // Like kube-apiserver: the watch is answered with 200, and its stream ends without an event.
            Some(_) => answer.map(|_| ClientBody::Whole(None)),
        }
    }

    /// Resolves when an order ends the kind's watches.
    fn watch_end(&self, kind_index: usize) -> CleanEnd {
        let mut receiver = self.watch_ends[kind_index].subscribe();
        Box::pin(async move {
            // A closed channel means that the server has been dropped: the stream ends, too.
            receiver.changed().await.unwrap_or_default();
        })
    }

    /// Answers `/debug/faults`: GET returns the counters, POST takes an order first.
    async fn answer_faults(
        &self,
        request: Request<Incoming>,
        peer: SocketAddr,
    ) -> Response<ApiBody> {
        if !peer.ip().to_canonical().is_loopback() {
            return no_route(&RouteError::Page);
        }
        let outcome = match *request.method() {
            Method::GET => Ok(()),
            Method::POST => self.take_order(request).await,
            _ => Err(Status::method_not_allowed()),
        };
        match outcome {
            Ok(()) => json(
                StatusCode::OK,
                &render::json(&ServerCounters {
                    faults: self.faults().counts(),
                    reviews: self.reviews.totals(),
                }),
            ),
            Err(refusal) => refused(&refusal),
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

    fn new_audit_id(&self) -> HeaderValue {
        let uuid = self
            .audit_ids
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .uuid();
        HeaderValue::try_from(uuid).unwrap_or(HeaderValue::from_static("-"))
    }
}

/// Indents an error for a client that requests indented errors, or that accepts nothing but conversions
/// (docs/PROTOCOL.md §5.2).
async fn in_accepted_form(
    form: AcceptHeader,
    answer: Response<ServerBody>,
) -> Response<ServerBody> {
    let is_json = answer
        .headers()
        .get(CONTENT_TYPE)
        .is_some_and(|value| value == "application/json");
    if form.refusals == StatusForm::Json || answer.status().is_success() || !is_json {
        return answer;
    }
    let (head, body) = answer.into_parts();
    let body = match body.collect().await {
        Ok(whole) => Indenter::default().piece(&whole.to_bytes()),
        // Unreachable: an error's body is in memory, so reading it does not fail.
        Err(_) => Bytes::new(),
    };
    let body = Either::Left(serve::AnswerBody::whole(body).into());
    Response::from_parts(head, body)
}

fn own_response(response: Response<ApiBody>) -> Response<ServerBody> {
    response.map(|body| Either::Left(forwarded_body(body)))
}

const fn forwarded_body(body: ApiBody) -> ReadBody {
    ClientBody::Forwarded(body, ForwardLifetime::Short)
}
