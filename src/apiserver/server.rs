//! The way of a request: route, faults, answer. Lists and watches are answered by the gateway's own reading side.

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
    AnswerContext, ApiBody, audit_id, collected, json, no_route, refused, stamped, whole_body,
};
use super::auth::Auth;
use super::connections::ConnectionInfo;
use super::faults::body::{CleanEnd, FaultyBody};
use super::faults::{FaultCounts, FaultEffect, FaultOrder, Faults};
use super::form::{AcceptHeader, ResultShape, misfit};
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

/// The body of any answer; a watch may have a fate.
pub(super) type ServerBody = Either<ReadBody, FaultyBody<ReadBody>>;
type ReadBody = ClientBody<ApiBody>;

/// What all connections share.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) catalogue: Arc<Catalogue>,
    pub(super) store: Arc<Store>,
    pub(super) address: SocketAddr,
    pub(super) auth: Auth,
    service: Service<Reads>,
    faults: Mutex<Faults>,
    /// Told when a kind's watches are to end; by kind.
    ends: Vec<watch::Sender<()>>,
    audit_ids: Mutex<Entropy>,
    pub(super) reviews: ReviewCounts,
}

/// What `/debug/faults` shows.
#[derive(Serialize)]
struct ServerCounters {
    #[serde(flatten)]
    faults: FaultCounts,
    reviews: ReviewTotals,
}

/// A request whose connection breaks off instead of an answer, as ordered.
#[derive(Debug, thiserror::Error)]
#[error("broken off as ordered")]
pub(super) struct ConnectionBreak;

impl Server {
    pub(super) fn new(reads: Reads, address: SocketAddr, auth: Auth, seed: u64) -> Self {
        let (catalogue, store) = (Arc::clone(&reads.catalogue), Arc::clone(&reads.store));
        Self {
            service: Service::new(Arc::new(reads)),
            ends: catalogue
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

    /// The faults, to order some or to read the counters.
    pub(super) fn faults(&self) -> std::sync::MutexGuard<'_, Faults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What lists and watches are read from.
    pub(super) fn reads(&self) -> &Reads {
        self.service.resources()
    }

    /// Takes an order and does what it asks for at once.
    pub(super) fn order(&self, order: FaultOrder) -> Result<(), super::faults::FaultError> {
        let effect = self.faults().order(order)?;
        match effect {
            FaultEffect::Armed => {}
            FaultEffect::EndWatches(resource) => self.meant(resource.as_deref(), |index| {
                // No receiver means that no watch is open.
                self.ends[index].send(()).unwrap_or_default();
            }),
            FaultEffect::Compact(resource) => {
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

    /// Answers one request. Fails only as ordered: what goes wrong is an answer too.
    ///
    /// # Errors
    /// [`ConnectionBreak`] if the connection is to break off.
    pub(super) async fn answer(
        &self,
        request: Request<Incoming>,
        connection: &ConnectionInfo,
    ) -> Result<Response<ServerBody>, ConnectionBreak> {
        let audit_id = audit_id(request.headers()).unwrap_or_else(|| self.new_audit_id());
        // A path with broken escapes leads nowhere, as no path does.
        let path = decoded_path(request.uri()).unwrap_or_default();
        let query = request.uri().query().unwrap_or_default();
        let version = request.version();
        let mut response = match Route::of(&self.catalogue, request.method(), &path, query) {
            // For whoever runs the server; nobody else reaches it.
            Ok(Route::Faults) => own_response(self.fault_order(request, connection.peer).await),
            route => {
                let form = AcceptHeader::of(request.headers());
                let answer = self.admitted(route, request, connection, form).await?;
                in_accepted_form(form, answer).await
            }
        };
        if connection.is_closing() && version < Version::HTTP_2 {
            response
                .headers_mut()
                .insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Ok(stamped(response, audit_id))
    }

    /// Authenticates and authorizes, then routes: who may not ask does not learn what there is.
    async fn admitted(
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
        // As kube-apiserver: who is not known keeps no HTTP/2 connection.
        if is_unknown && request.version() == Version::HTTP_2 {
            connection.close();
        }
        let user = match admitted {
            Ok(admitted) => admitted.user,
            Err(rejection) => return Ok(own_response(whole_body(rejection.to_response()))),
        };
        match route {
            Ok(Route::Review(place)) => self.reviewed(place, &user, request, connection).await,
            Ok(route) => Ok(self.routed(route, request, connection, form).await),
            Err(why) => Ok(own_response(no_route(&why))),
        }
    }

    async fn reviewed(
        &self,
        place: ReviewEndpoint,
        user: &User,
        request: Request<Incoming>,
        connection: &ConnectionInfo,
    ) -> Result<Response<ServerBody>, ConnectionBreak> {
        let fate = self
            .faults()
            .on_request(ResourceVerb::Create, place.review.plural());
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
        let review = place.review;
        let answer = reviews::answer(&self.auth, &self.reviews, user, place, request).await;
        Ok(own_response(match fate.nonsense {
            Some(nonsense) => nonsense.instead_of(answer, review).await,
            None => answer,
        }))
    }

    async fn routed(
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
            return own_response(self.answers().answer(route, request).await);
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
                let end = self.end_of_watches(kind_index);
                let answer = self.read(request, form, ResultShape::Object, kind).await;
                // A refusal is no stream, and carries its length.
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
                own_response(self.answers().answer(route, request).await)
            }
        }
    }

    async fn read(
        &self,
        mut request: Request<Incoming>,
        form: AcceptHeader,
        shape: ResultShape,
        kind: &ServedKind,
    ) -> Response<ReadBody> {
        let own = |refusal| refused(&refusal).map(forwarded);
        let wish = match form.wish() {
            Ok(wish) => wish,
            Err(refusal) => return own(refusal),
        };
        as_json(&mut request, wish, shape);
        let answer = self.service.answer(request).await.map(ClientBody::from);
        // As upstream, nothing is converted before it has been read without fault.
        match misfit(wish, shape, kind).filter(|_| answer.status().is_success()) {
            None => answer,
            Some(refusal) if shape == ResultShape::List => own(refusal),
            // A stream that has begun can only end.
            Some(_) => answer.map(|_| ClientBody::Whole(None)),
        }
    }

    fn end_of_watches(&self, kind_index: usize) -> CleanEnd {
        let mut told = self.ends[kind_index].subscribe();
        Box::pin(async move {
            // A closed channel means that the server is going: the stream ends too.
            told.changed().await.unwrap_or_default();
        })
    }

    async fn fault_order(&self, request: Request<Incoming>, peer: SocketAddr) -> Response<ApiBody> {
        if !peer.ip().to_canonical().is_loopback() {
            return no_route(&RouteError::Page);
        }
        let ordered = match *request.method() {
            Method::GET => Ok(()),
            Method::POST => self.ordered(request).await,
            _ => Err(Status::method_not_allowed()),
        };
        match ordered {
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

    async fn ordered(&self, request: Request<Incoming>) -> Result<(), Status> {
        let body = collected(request.into_body()).await?;
        let order = serde_json::from_slice(&body)
            .map_err(|fault| Status::bad_request(fault.to_string()))?;
        self.order(order)
            .map_err(|fault| Status::bad_request(fault.to_string()))
    }

    fn answers(&self) -> AnswerContext<'_> {
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

/// Indents a refusal for a client who asks for that, or takes nothing but conversions (docs/PROTOCOL.md §5.2).
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
        // It is in memory: nothing can be lost on the way.
        Err(_) => Bytes::new(),
    };
    let body = Either::Left(serve::AnswerBody::whole(body).into());
    Response::from_parts(head, body)
}

fn own_response(response: Response<ApiBody>) -> Response<ServerBody> {
    response.map(|body| Either::Left(forwarded(body)))
}

const fn forwarded(body: ApiBody) -> ReadBody {
    ClientBody::Forwarded(body, ForwardLifetime::Short)
}
