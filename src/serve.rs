//! One request, one answer: from memory if it is a list or a watch of a cached resource in a form that a cache gives, else from
//! upstream.

mod body;
mod cooperation;
mod fresh;
pub mod gzip;
pub mod list;
mod lost_history;
mod negotiation;
mod permission;
mod read_request;
mod read_state;
mod record;
mod request_timeout;
pub mod resources;
mod response;
mod unhandled;

use std::sync::Arc;

use http::header::WARNING;
use http::{HeaderValue, Request, Response, Uri};
use hyper::body::Incoming;
use jiff::Timestamp;
use tokio::sync::Semaphore;

use crate::admission::{Admission, ListPermit};
use crate::audit::Audit;
use crate::audit::event::ResponseStatus;
use crate::auth::guard::Guard;
use crate::fairness::Users;
use crate::metrics::BadRequest;
use crate::protocol::request::{
    Bookmarks, CacheRead, ListOptions, ListPlan, ListRead, ReadPlan, ReadRefusal, RequestFault,
    SELECTORS_LEN_MAX, WatchPlan, WatchStart, WatchTimeout,
};
use crate::protocol::status::Status;
use crate::protocol::{audit_id, with_audit_id};
use crate::resource::Encoding;
use crate::serve::gzip::{BlockCompressor, PLAIN_LEN_MAX};
use crate::serve::list::{CompressedList, ListBody, PageRequest, PageSearch, StreamedList};
use crate::serve::resources::{Availability, RequestOutcome, Resources};
use crate::view::ServedResource;
use crate::view::selector::Selector;
use crate::watch::{Timing, Watch};
use body::ListStream;
pub use body::{AnswerBody, MeasuredList};
use cooperation::run_in_steps;
pub use fresh::wait_until_fresh;
use lost_history::{lost_start, stream_of};
use negotiation::Negotiation;
use read_request::{ReadRequest, accept, decide, fill_wait, is_short, read_request};
use read_state::is_at_hand;
pub use record::response_status;
use request_timeout::overdue;
use response::{gzipped, switched, with_content_type};
use unhandled::unhandled;

/// Answers requests with what `R` has in memory.
#[derive(Debug)]
pub struct Service<R> {
    resources: Arc<R>,
    maker: BlockCompressor,
    /// `None` lets everybody in.
    admission: Option<Admission>,
    /// `None` does not tell callers apart.
    guard: Option<Guard>,
    /// `None` records nothing.
    audit: Option<Audit>,
    users: Users,
    /// The right to undo events, which one request at a time has.
    rewinding: Arc<Semaphore>,
}

impl<R> Clone for Service<R> {
    fn clone(&self) -> Self {
        Self {
            resources: Arc::clone(&self.resources),
            maker: self.maker.clone(),
            admission: self.admission.clone(),
            guard: self.guard.clone(),
            audit: self.audit.clone(),
            users: self.users.clone(),
            rewinding: Arc::clone(&self.rewinding),
        }
    }
}

type ServiceResponse<R> = Response<AnswerBody<<R as Resources>::Forwarded>>;

impl<R: Resources> Service<R> {
    /// A service over these resources.
    #[must_use]
    pub fn new(resources: Arc<R>) -> Self {
        // Half of the cores: the other half serves meanwhile.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let maker = BlockCompressor::new(cores / 2);
        Self {
            resources,
            maker,
            admission: None,
            guard: None,
            audit: None,
            users: Users::default(),
            rewinding: Arc::new(Semaphore::new(1)),
        }
    }

    /// The same, within bounds.
    #[must_use]
    pub fn bounded(self, admission: Admission) -> Self {
        Self {
            admission: Some(admission),
            ..self
        }
    }

    /// The same for callers that are told apart: what memory may answer is authenticated and authorized before anything else.
    #[must_use]
    pub fn guarded(self, guard: Guard) -> Self {
        Self {
            guard: Some(guard),
            ..self
        }
    }

    /// The same, with users whom shares do not limit. Callers must be told apart.
    #[must_use]
    pub fn shared_among(self, users: Users) -> Self {
        Self { users, ..self }
    }

    /// The bounds, if there are any.
    #[must_use]
    pub fn admission(&self) -> Option<&Admission> {
        self.admission.as_ref()
    }

    /// The resources.
    #[must_use]
    pub fn resources(&self) -> &Arc<R> {
        &self.resources
    }

    /// Answers one request. Never fails: what goes wrong is an answer too.
    pub async fn answer(&self, mut request: Request<Incoming>) -> ServiceResponse<R> {
        if self.audit.is_some() {
            request.extensions_mut().insert(Timestamp::now());
        }
        if let Some(text) = unhandled(&request) {
            self.refused(BadRequest::Http);
            return text.to_response().map(AnswerBody::whole);
        }
        let is_guarded = self.guard.is_some();
        if !is_guarded && self.resources.must_forward(request.headers()) {
            return self.forwarded(request).await;
        }
        let audit_id = audit_id(request.headers());
        let mut asked = match read_request(&request) {
            Ok(Some(asked)) if !is_guarded || self.may_answer(&asked, request.uri()) => asked,
            Ok(_) => return self.forwarded(request).await,
            Err(text) => {
                self.refused(BadRequest::Http);
                return with_audit_id(text.to_response().map(AnswerBody::whole), &audit_id);
            }
        };
        let overdue_at = asked.overdue_at;
        let answering = self.answer_asked(&mut asked, request, &audit_id);
        let Some(overdue_at) = overdue_at else {
            return answering.await;
        };
        match tokio::time::timeout_at(overdue_at, answering).await {
            Ok(answer) => answer,
            // What was begun for this client alone ends with it; what is shared goes on for the others.
            Err(_) => self.finished(&asked, overdue().map(AnswerBody::whole), &audit_id),
        }
    }

    /// Whether memory may answer this at all, as far as that can be told for nothing. What it cannot is forwarded without asking who
    /// sent it: upstream is not asked about questions that are not bounded.
    fn may_answer(&self, asked: &ReadRequest, uri: &Uri) -> bool {
        let selectors_len = asked.options.as_ref().map_or_else(
            |_| uri.query().map_or(0, str::len),
            ListOptions::selectors_len,
        );
        self.resources.may_serve(&asked.path.gvr)
            && selectors_len <= SELECTORS_LEN_MAX
            && asked
                .path
                .namespace
                .as_ref()
                .is_none_or(|name| name.len() <= NAME_LEN_MAX)
            && asked
                .path
                .name
                .as_ref()
                .is_none_or(|name| name.len() <= NAME_LEN_MAX)
    }

    async fn answer_asked(
        &self,
        asked: &mut ReadRequest,
        request: Request<Incoming>,
        audit_id: &HeaderValue,
    ) -> ServiceResponse<R> {
        // Before a cache is started, a view joined or anything waited for.
        match self.permission(asked, &request, audit_id).await {
            Ok(permission) => {
                if let Some(permission) = &permission {
                    asked.peer = self.known(asked.peer, &permission.caller);
                }
                asked.permission = permission;
            }
            Err(refusal) => {
                return match self.denied(asked, &request, (&refusal, audit_id)) {
                    Some(answer) => self.finished(asked, answer, audit_id),
                    None => self.forwarded_asked(asked, request, audit_id).await,
                };
            }
        }
        match self.read(asked, &request).await {
            Ok(mut answer) => {
                if let Some(trail) = &asked.trail {
                    answer.body_mut().hold(trail);
                }
                match asked.socket.take() {
                    None => self.finished(asked, answer, audit_id),
                    // As the server's, these answers have no headers but their own.
                    Some(upgrade) => {
                        let answer = switched(answer, upgrade);
                        self.count(asked, &answer);
                        asked.respond(|| ResponseStatus::of_code(answer.status().as_u16()));
                        answer
                    }
                }
            }
            Err(refusal) => match self.refusal(asked, refusal) {
                Some(answer) => self.finished(asked, answer, audit_id),
                None => self.forwarded_asked(asked, request, audit_id).await,
            },
        }
    }

    async fn forwarded_asked(
        &self,
        asked: &mut ReadRequest,
        mut request: Request<Incoming>,
        audit_id: &HeaderValue,
    ) -> ServiceResponse<R> {
        if let Some(permit) = asked.permit.take() {
            request.extensions_mut().insert(permit);
        }
        if let Some(permission) = asked.permission.take() {
            request.extensions_mut().insert(permission);
            request.extensions_mut().insert(asked.peer);
        }
        if let Some(trail) = &asked.trail {
            request.extensions_mut().insert(trail.clone());
        }
        let answer = self.forwarded(request).await;
        self.count(asked, &answer);
        match &asked.trail {
            // A watch that others share.
            Some(trail) if trail.is_answered() => with_audit_id(answer, audit_id),
            Some(trail) => {
                trail.forget();
                answer
            }
            None => answer,
        }
    }

    /// Chooses a cache, and reads from it.
    async fn read(
        &self,
        asked: &mut ReadRequest,
        request: &Request<Incoming>,
    ) -> Result<ServiceResponse<R>, ReadRefusal> {
        let gates = self.resources.gates();
        // Bodies in CBOR are upstream's alone.
        if gates.cbor
            && accept(request)
                .iter()
                .any(|header| header.contains("application/cbor"))
        {
            return Err(ReadRefusal::Forward);
        }
        if let (Ok(options), false) = (&mut asked.options, gates.shards) {
            options.shard_selector.clear();
        }
        let wishes = Negotiation::of(request, asked.verb);
        let Some(first) = wishes.first_choice() else {
            return Err(ReadRefusal::Forward);
        };
        let served = match self.cache(asked, first).await {
            Err(ReadRefusal::Forward) => return self.lost_watch(asked).ok_or(ReadRefusal::Forward),
            served => served?,
        };
        let kind = served.cache.kind();
        let warnings = kind.warnings.iter();
        asked.warnings = warnings.filter_map(|text| text.parse().ok()).collect();
        asked.rendition = wishes.format_for(kind).ok_or(ReadRefusal::Forward)?;
        asked.is_indented = wishes.are_indented(kind);
        let read = decide(asked, kind)?;
        self.answer_read(asked, read, &served).await
    }

    /// The cache that is read from.
    async fn cache(
        &self,
        asked: &mut ReadRequest,
        first: Encoding,
    ) -> Result<ServedResource, ReadRefusal> {
        asked.key.encoding = first;
        match self.served(asked).await? {
            Some(served) => Ok(served),
            // Custom resources have no protobuf, but their metadata can be written in it.
            None if first == Encoding::Protobuf => {
                asked.key.encoding = Encoding::Json;
                self.served(asked).await?.ok_or(ReadRefusal::Forward)
            }
            None => Err(ReadRefusal::Forward),
        }
    }

    /// The cache of this key; `None` if upstream has the resource in another encoding only.
    async fn served(&self, asked: &mut ReadRequest) -> Result<Option<ServedResource>, ReadRefusal> {
        let wait = fill_wait(asked);
        let availability = self.resources.availability(&asked.key, wait, asked.peer);
        match availability.await {
            Availability::Ready(served) => Ok(Some(served)),
            Availability::OtherEncoding => Ok(None),
            Availability::Forwarded(permit) => {
                asked.permit = permit;
                Err(ReadRefusal::Forward)
            }
            Availability::Filling {
                retry_after_seconds,
            } => Err(ReadRefusal::Answer(Status::initializing(
                retry_after_seconds,
            ))),
        }
    }

    /// The answer to what is not read; `None` if upstream has it. Counts mistakes of clients.
    fn refusal(&self, asked: &ReadRequest, refusal: ReadRefusal) -> Option<ServiceResponse<R>> {
        let status = match refusal {
            ReadRefusal::Forward => return None,
            ReadRefusal::Answer(status) => status,
            ReadRefusal::Bad(fault, status) => {
                self.refused(match fault {
                    RequestFault::Selector => BadRequest::Selector,
                    RequestFault::Options => BadRequest::Parameter,
                    RequestFault::ResourceVersion => BadRequest::ResourceVersion,
                    RequestFault::ContinueToken => BadRequest::ContinueToken,
                });
                status
            }
        };
        let answer = status.to_response_in(asked.status_form?);
        asked.respond(|| response_status(&status));
        Some(answer.map(AnswerBody::whole))
    }

    fn refused(&self, fault: BadRequest) {
        if let Some(metrics) = self.resources.listener_metrics() {
            metrics.bad_requests.inc(fault);
        }
    }

    async fn forwarded(&self, mut request: Request<Incoming>) -> ServiceResponse<R> {
        if let Err(refused) = self.set_forwarding(&mut request).await {
            return *refused;
        }
        let answer = self.resources.forward(request).await;
        let lasting = answer.extensions().get().copied().unwrap_or_default();
        answer.map(|body| AnswerBody::Forwarded(body, lasting))
    }

    fn finished(
        &self,
        asked: &ReadRequest,
        mut answer: ServiceResponse<R>,
        audit_id: &HeaderValue,
    ) -> ServiceResponse<R> {
        self.count(asked, &answer);
        asked.respond(|| ResponseStatus::of_code(answer.status().as_u16()));
        for warning in &asked.warnings {
            answer.headers_mut().append(WARNING, warning.clone());
        }
        with_audit_id(answer, audit_id)
    }

    fn count(&self, asked: &ReadRequest, answer: &ServiceResponse<R>) {
        self.resources.answered(RequestOutcome {
            key: &asked.key,
            verb: asked.verb,
            code: answer.status().as_u16(),
        });
    }

    async fn answer_read(
        &self,
        asked: &mut ReadRequest,
        read: CacheRead,
        served: &ServedResource,
    ) -> Result<ServiceResponse<R>, ReadRefusal> {
        match read.plan {
            ReadPlan::List(plan) => self.list(asked, &read.selector, &plan, served).await,
            ReadPlan::Watch(plan) => self.watch(asked, &read.selector, plan, served).await,
        }
    }

    /// The right to send a list; `None` if it needs none.
    async fn list_place(
        &self,
        asked: &ReadRequest,
        is_short: bool,
    ) -> Result<Option<ListPermit>, ReadRefusal> {
        let Some(admission) = self.admission.as_ref().filter(|_| !is_short) else {
            return Ok(None);
        };
        let place = admission.list(asked.peer).await;
        place.map(Some).map_err(ReadRefusal::Answer)
    }

    async fn list(
        &self,
        asked: &ReadRequest,
        selector: &Selector,
        plan: &ListPlan,
        served: &ServedResource,
    ) -> Result<ServiceResponse<R>, ReadRefusal> {
        let is_short = is_short(selector, plan.limit);
        // Waiting for upstream needs no permit. Undoing events costs CPU, so the permit comes first, also for a short list.
        let (snapshot, place) = if let ListRead::Exact(version) = plan.read {
            let is_at_hand = is_at_hand(version, served).await?;
            let place = self.list_place(asked, is_short && is_at_hand).await?;
            (self.list_state(plan.read, served).await?, place)
        } else {
            let snapshot = self.list_state(plan.read, served).await?;
            (snapshot, self.list_place(asked, is_short).await?)
        };
        let start = plan.start.as_deref();
        let kind = served.cache.kind();
        let mut search = PageSearch::new(
            snapshot,
            &PageRequest {
                kind,
                selector,
                start,
                limit: plan.limit,
            },
        );
        let page = run_in_steps(|| search.step()).await;
        let tally = self.resources.list_tally(&asked.key);
        let media_type = asked.rendition.encoding.media_type();
        let mut measure = page.measure(kind, asked.rendition);
        let measured = run_in_steps(|| measure.step()).await;
        // Upstream is to answer if an object cannot be written: later the list could only be broken off.
        let items_len = measured.map_err(|_| ReadRefusal::Forward)?;
        let mut list = ListBody::new(page, kind, asked.rendition, items_len);
        if asked.is_indented {
            list = list.indented();
        }
        let streamed = |list, tally| {
            let list = MeasuredList::new(list, asked.started, tally, place);
            AnswerBody::List(Box::new(list))
        };
        if asked.takes_gzip {
            let mut check = list.length_check(PLAIN_LEN_MAX);
            if run_in_steps(|| check.step()).await {
                let list = CompressedList::new(list, self.maker.clone());
                let body = streamed(ListStream::Compressed(list), tally);
                return Ok(gzipped(with_content_type(media_type, body)));
            }
        }
        let first = run_in_steps(|| list.step()).await.unwrap_or_default();
        let body = match list.sized(first) {
            Ok((whole, items)) => {
                // So little is as good as sent.
                if let Some(tally) = tally {
                    tally.listed(items, asked.started.elapsed());
                }
                AnswerBody::Whole(Some(whole))
            }
            Err(rest) => streamed(ListStream::Plain(StreamedList::from(rest)), tally),
        };
        Ok(with_content_type(media_type, body))
    }

    async fn watch(
        &self,
        asked: &mut ReadRequest,
        selector: &Selector,
        plan: WatchPlan,
        served: &ServedResource,
    ) -> Result<ServiceResponse<R>, ReadRefusal> {
        let rendition = asked.rendition;
        let streamed = |body| Ok(with_content_type(rendition.encoding.stream_type(), body));
        if plan.timeout == WatchTimeout::Ended {
            return streamed(AnswerBody::Stream(None));
        }
        let admitted = self.admission.as_ref().map(|all| all.watch(asked.peer));
        let place = admitted.transpose().map_err(ReadRefusal::Answer)?;
        let is_short =
            !matches!(plan.start, WatchStart::Initial { .. }) || is_short(selector, None);
        // As for lists: no permit while upstream is waited for, and nobody waits who has joined a view.
        let started = match self.watch_state(plan.start, served).await {
            Ok(state) => {
                let list_place = self.list_place(asked, is_short).await?;
                let entering = (selector, rendition, asked.peer);
                let start = self.watch_start(entering, plan.start, state, served);
                start.await.map(|started| (started, list_place))
            }
            Err(status) => Err(ReadRefusal::Answer(status)),
        };
        let timeout = plan.timeout.lasts(crate::resource::fraction());
        let permission = asked.permission.as_ref();
        let timing = Timing {
            started: asked.started,
            timeout: permission.map_or(timeout, |given| given.limit(asked.started, timeout)),
            bookmarks: plan.bookmarks == Bookmarks::On,
        };
        match started {
            Ok(((entry, start), list_place)) => {
                let tally = self.resources.tally(&asked.key);
                let watch = Watch::new(served.clone(), entry, start, timing, tally);
                let lease = permission.map(|given| given.lease.hold());
                let watch = watch.holding(place, list_place).leased(lease);
                streamed(AnswerBody::Watch(Box::new(watch)))
            }
            Err(ReadRefusal::Answer(status) | ReadRefusal::Bad(_, status)) => {
                asked.permit = self.permit_before_history(asked, (plan.start, served), &status);
                if asked.permit.is_some() {
                    return Err(ReadRefusal::Forward);
                }
                // Of what is answered here, failures are events of a stream that has begun (docs/PROTOCOL.md §4.3).
                streamed(stream_of(&status, rendition.encoding))
            }
            // It found no room.
            Err(ReadRefusal::Forward) => match lost_start(plan.start, served) {
                Some(status) => streamed(stream_of(&status, rendition.encoding)),
                None => Err(ReadRefusal::Forward),
            },
        }
    }
}

/// No object has a longer name, and no namespace.
const NAME_LEN_MAX: usize = 253;

#[cfg(test)]
mod tests;
