//! Answers requests: from memory if the request is a list or a watch of a cached resource in a format that the cache can produce,
//! else from upstream.
//!
//! [`Service::answer`] is the start of every request. `read_request` parses it, `permission` authenticates and authorizes the
//! caller, `negotiation` chooses the format, and `read_state` the state of the cache that is fresh enough. Then a list is searched,
//! measured and streamed by [`list`], compressed by [`gzip`], and a watch becomes a [`Watch`]. At each of these steps the request
//! can turn out to be upstream's and is forwarded. [`resources`] is the interface through which the room reaches caches and
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
    Accept, Bookmarks, CacheRead, ListOptions, ListPlan, ListRead, ReadPlan, ReadRefusal,
    RequestFault, SELECTORS_LEN_MAX, WatchPlan, WatchStart, WatchTimeout,
};
use crate::protocol::status::Status;
use crate::protocol::{audit_id, with_audit_id};
use crate::resource::Encoding;
use crate::selector::Selector;
use crate::serve::gzip::{BlockCompressor, PLAIN_LEN_MAX};
use crate::serve::list::{CompressedList, ListBody, PageRequest, PageSearch, StreamedList};
use crate::serve::resources::{Availability, RequestOutcome, Resources};
use crate::view::ServedResource;
use crate::watch::{Timing, Watch};
use body::ListStream;
pub use body::{AnswerBody, MeasuredList};
use cooperation::run_in_steps;
pub use fresh::wait_until_fresh;
use lost_history::{lost_start, stream_of};
use negotiation::Negotiation;
use read_request::{ReadRequest, decide, fill_wait, is_short, read_request};
use read_state::is_retained;
pub use record::response_status;
use request_timeout::timeout_response;
use response::{gzipped, switched, with_content_type};
use unhandled::unhandled;

/// Answers requests from the caches of `R`, or forwards them. Cloning is cheap; clones share everything.
#[derive(Debug)]
pub struct Service<R> {
    resources: Arc<R>,
    compressor: BlockCompressor,
    /// `None` means no limits.
    admission: Option<Admission>,
    /// `None` means that callers are neither authenticated nor authorized.
    guard: Option<Guard>,
    /// `None` means no audit log.
    audit: Option<Audit>,
    users: Users,
    /// One permit: only one request at a time rewinds a snapshot to an older version, because that costs CPU.
    rewinding: Arc<Semaphore>,
}

impl<R> Clone for Service<R> {
    fn clone(&self) -> Self {
        Self {
            resources: Arc::clone(&self.resources),
            compressor: self.compressor.clone(),
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
    /// A service for these resources, without limits, authentication and audit log.
    #[must_use]
    pub fn new(resources: Arc<R>) -> Self {
        // Compress on half of the cores, so that the other half can serve.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let compressor = BlockCompressor::new(cores / 2);
        Self {
            resources,
            compressor,
            admission: None,
            guard: None,
            audit: None,
            users: Users::default(),
            rewinding: Arc::new(Semaphore::new(1)),
        }
    }

    /// Sets the limits on lists, watches and memory.
    #[must_use]
    pub fn bounded(self, admission: Admission) -> Self {
        Self {
            admission: Some(admission),
            ..self
        }
    }

    /// Authenticates and authorizes callers: for what memory may answer, before anything else is done.
    #[must_use]
    pub fn guarded(self, guard: Guard) -> Self {
        Self {
            guard: Some(guard),
            ..self
        }
    }

    /// Sets the users that are exempt from per-client limits. Needs a guard, which identifies callers.
    #[must_use]
    pub fn shared_among(self, users: Users) -> Self {
        Self { users, ..self }
    }

    /// The limits, if there are any.
    #[must_use]
    pub fn admission(&self) -> Option<&Admission> {
        self.admission.as_ref()
    }

    /// The resources that this service answers from.
    #[must_use]
    pub fn resources(&self) -> &Arc<R> {
        &self.resources
    }

    /// Answers one request. Never fails: an error is a response, too.
    pub async fn answer(&self, mut request: Request<Incoming>) -> ServiceResponse<R> {
        if self.audit.is_some() {
            request.extensions_mut().insert(Timestamp::now());
        }
        if let Some(response) = unhandled(&request) {
            self.count_bad_request(BadRequest::Http);
            return response.map(AnswerBody::whole);
        }
        let is_guarded = self.guard.is_some();
        if !is_guarded && self.resources.must_forward(request.headers()) {
            return self.forwarded(request).await;
        }
        let audit_id = audit_id(request.headers());
        let mut read = match read_request(&request) {
            Ok(Some(read)) if !is_guarded || self.may_answer(&read, request.uri()) => read,
            Ok(_) => return self.forwarded(request).await,
            Err(text) => {
                self.count_bad_request(BadRequest::Http);
                return with_audit_id(text.to_response().map(AnswerBody::whole), &audit_id);
            }
        };
        let deadline = read.deadline;
        let response_future = self.answer_or_forward(&mut read, request, &audit_id);
        let Some(deadline) = deadline else {
            return response_future.await;
        };
        match tokio::time::timeout_at(deadline, response_future).await {
            Ok(response) => response,
            // Work for this client alone is cancelled; shared work continues for the other clients.
            Err(_) => self.finished(&read, timeout_response().map(AnswerBody::whole), &audit_id),
        }
    }

    /// Whether memory may answer this request at all, as far as a cheap check can say. Other requests are forwarded without a
    /// review of the caller: reviews of requests of unbounded length are not sent upstream.
    fn may_answer(&self, read: &ReadRequest, uri: &Uri) -> bool {
        let selectors_len = read.options.as_ref().map_or_else(
            |_| uri.query().map_or(0, str::len),
            ListOptions::selectors_len,
        );
        self.resources.may_serve(&read.path.gvr)
            && selectors_len <= SELECTORS_LEN_MAX
            && read
                .path
                .namespace
                .as_ref()
                .is_none_or(|name| name.len() <= NAME_LEN_MAX)
            && read
                .path
                .name
                .as_ref()
                .is_none_or(|name| name.len() <= NAME_LEN_MAX)
    }

    async fn answer_or_forward(
        &self,
        read: &mut ReadRequest,
        request: Request<Incoming>,
        audit_id: &HeaderValue,
    ) -> ServiceResponse<R> {
        // Authorize before a cache is started, a view is joined or anything is waited for.
        match self.permission(read, &request, audit_id).await {
            Ok(permission) => {
                if let Some(permission) = &permission {
                    read.peer = self.identify_peer(read.peer, &permission.caller);
                }
                read.permission = permission;
            }
            Err(refusal) => {
                return match self.denied(read, &request, (&refusal, audit_id)) {
                    Some(response) => self.finished(read, response, audit_id),
                    None => self.forward_read(read, request, audit_id).await,
                };
            }
        }
        match self.read(read, &request).await {
            Ok(mut response) => {
                if let Some(trail) = &read.trail {
                    response.body_mut().hold(trail);
                }
                match read.socket.take() {
                    None => self.finished(read, response, audit_id),
                    // Like the API server's, WebSocket responses have only their own headers.
                    Some(upgrade) => {
                        let response = switched(response, upgrade);
                        self.count(read, &response);
                        read.respond(|| ResponseStatus::of_code(response.status().as_u16()));
                        response
                    }
                }
            }
            Err(refusal) => match self.refusal(read, refusal) {
                Some(response) => self.finished(read, response, audit_id),
                None => self.forward_read(read, request, audit_id).await,
            },
        }
    }

    async fn forward_read(
        &self,
        read: &mut ReadRequest,
        mut request: Request<Incoming>,
        audit_id: &HeaderValue,
    ) -> ServiceResponse<R> {
        if let Some(permit) = read.permit.take() {
            request.extensions_mut().insert(permit);
        }
        if let Some(permission) = read.permission.take() {
            request.extensions_mut().insert(permission);
            request.extensions_mut().insert(read.peer);
        }
        if let Some(trail) = &read.trail {
            request.extensions_mut().insert(trail.clone());
        }
        let response = self.forwarded(request).await;
        self.count(read, &response);
        match &read.trail {
            // A watch of Tables that clients share: the gateway answers it itself.
            Some(trail) if trail.is_answered() => with_audit_id(response, audit_id),
            Some(trail) => {
                trail.forget();
                response
            }
            None => response,
        }
    }

    /// Chooses a cache and reads from it.
    async fn read(
        &self,
        read: &mut ReadRequest,
        request: &Request<Incoming>,
    ) -> Result<ServiceResponse<R>, ReadRefusal> {
        let gates = self.resources.gates();
        // Only upstream writes CBOR.
        if gates.cbor && Accept::of(request.headers()).names_cbor() {
            return Err(ReadRefusal::Forward);
        }
        if let (Ok(options), false) = (&mut read.options, gates.shards) {
            options.shard_selector.clear();
        }
        let negotiation = Negotiation::of(request, read.verb);
        let Some(first) = negotiation.first_choice() else {
            return Err(ReadRefusal::Forward);
        };
        let served = match self.cache(read, first).await {
            Err(ReadRefusal::Forward) => {
                return self.lost_watch(read).ok_or(ReadRefusal::Forward);
            }
            served => served?,
        };
        let kind = served.cache.kind();
        let warnings = kind.warnings.iter();
        read.warnings = warnings.filter_map(|text| text.parse().ok()).collect();
        read.format = negotiation.format_for(kind).ok_or(ReadRefusal::Forward)?;
        read.is_indented = negotiation.are_indented(kind);
        let cache_read = decide(read, kind)?;
        self.answer_read(read, cache_read, &served).await
    }

    /// The cache to read from.
    async fn cache(
        &self,
        read: &mut ReadRequest,
        first: Encoding,
    ) -> Result<ServedResource, ReadRefusal> {
        read.key.encoding = first;
        match self.served(read).await? {
            Some(served) => Ok(served),
            // Custom resources have no protobuf encoding, but the gateway can write their metadata in protobuf.
            None if first == Encoding::Protobuf => {
                read.key.encoding = Encoding::Json;
                self.served(read).await?.ok_or(ReadRefusal::Forward)
            }
            None => Err(ReadRefusal::Forward),
        }
    }

    /// The cache of this key; `None` if upstream has the resource only in another encoding.
    async fn served(&self, read: &mut ReadRequest) -> Result<Option<ServedResource>, ReadRefusal> {
        let wait = fill_wait(read);
        let availability = self.resources.availability(&read.key, wait, read.peer);
        match availability.await {
            Availability::Ready(served) => Ok(Some(served)),
            Availability::OtherEncoding => Ok(None),
            Availability::Forwarded(permit) => {
                read.permit = permit;
                Err(ReadRefusal::Forward)
            }
            Availability::Filling {
                retry_after_seconds,
            } => Err(ReadRefusal::Answer(Status::initializing(
                retry_after_seconds,
            ))),
        }
    }

    /// The response to a request that is not answered from a cache; `None` if it has to be forwarded. Counts invalid requests.
    fn refusal(&self, read: &ReadRequest, refusal: ReadRefusal) -> Option<ServiceResponse<R>> {
        let status = match refusal {
            ReadRefusal::Forward => return None,
            ReadRefusal::Answer(status) => status,
            ReadRefusal::Bad(fault, status) => {
                self.count_bad_request(match fault {
                    RequestFault::Selector => BadRequest::Selector,
                    RequestFault::Options => BadRequest::Parameter,
                    RequestFault::ResourceVersion => BadRequest::ResourceVersion,
                    RequestFault::ContinueToken => BadRequest::ContinueToken,
                });
                status
            }
        };
        let response = status.to_response_in(read.status_form?);
        read.respond(|| response_status(&status));
        Some(response.map(AnswerBody::whole))
    }

    fn count_bad_request(&self, fault: BadRequest) {
        if let Some(metrics) = self.resources.listener_metrics() {
            metrics.bad_requests.inc(fault);
        }
    }

    async fn forwarded(&self, mut request: Request<Incoming>) -> ServiceResponse<R> {
        if let Err(refused) = self.set_forwarding(&mut request).await {
            return *refused;
        }
        let response = self.resources.forward(request).await;
        let lifetime = response.extensions().get().copied().unwrap_or_default();
        response.map(|body| AnswerBody::Forwarded(body, lifetime))
    }

    fn finished(
        &self,
        read: &ReadRequest,
        mut response: ServiceResponse<R>,
        audit_id: &HeaderValue,
    ) -> ServiceResponse<R> {
        self.count(read, &response);
        read.respond(|| ResponseStatus::of_code(response.status().as_u16()));
        for warning in &read.warnings {
            response.headers_mut().append(WARNING, warning.clone());
        }
        with_audit_id(response, audit_id)
    }

    fn count(&self, read: &ReadRequest, response: &ServiceResponse<R>) {
        self.resources.answered(RequestOutcome {
            key: &read.key,
            verb: read.verb,
            code: response.status().as_u16(),
        });
    }

    async fn answer_read(
        &self,
        read: &mut ReadRequest,
        cache_read: CacheRead,
        served: &ServedResource,
    ) -> Result<ServiceResponse<R>, ReadRefusal> {
        match cache_read.plan {
            ReadPlan::List(plan) => self.list(read, &cache_read.selector, &plan, served).await,
            ReadPlan::Watch(plan) => self.watch(read, &cache_read.selector, plan, served).await,
        }
    }

    /// Waits for a permit to send a list; `None` if the list needs none.
    async fn list_permit(
        &self,
        read: &ReadRequest,
        is_short: bool,
    ) -> Result<Option<ListPermit>, ReadRefusal> {
        let Some(admission) = self.admission.as_ref().filter(|_| !is_short) else {
            return Ok(None);
        };
        let permit = admission.list(read.peer).await;
        permit.map(Some).map_err(ReadRefusal::Answer)
    }

    async fn list(
        &self,
        read: &ReadRequest,
        selector: &Selector,
        plan: &ListPlan,
        served: &ServedResource,
    ) -> Result<ServiceResponse<R>, ReadRefusal> {
        let is_short = is_short(selector, plan.limit);
        // Waiting for upstream needs no permit. Undoing events costs CPU, so the permit comes first, even for a short list.
        let (snapshot, permit) = if let ListRead::Exact(version) = plan.read {
            let is_retained = is_retained(version, served).await?;
            let permit = self.list_permit(read, is_short && is_retained).await?;
            (self.list_state(plan.read, served).await?, permit)
        } else {
            let snapshot = self.list_state(plan.read, served).await?;
            (snapshot, self.list_permit(read, is_short).await?)
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
        let recorder = self.resources.list_tally(&read.key);
        let media_type = read.format.encoding.media_type();
        let mut measure = page.measure(kind, read.format);
        let measured = run_in_steps(|| measure.step()).await;
        // Forward the request if an object cannot be written in this format: once the list has started, it could only be broken
        // off.
        let items_len = measured.map_err(|_| ReadRefusal::Forward)?;
        let mut list = ListBody::new(page, kind, read.format, items_len);
        if read.is_indented {
            list = list.indented();
        }
        let streamed = |list, recorder| {
            let list = MeasuredList::new(list, read.started, recorder, permit);
            AnswerBody::List(Box::new(list))
        };
        if read.takes_gzip {
            let mut check = list.length_check(PLAIN_LEN_MAX);
            if run_in_steps(|| check.step()).await {
                let list = CompressedList::new(list, self.compressor.clone());
                let body = streamed(ListStream::Compressed(list), recorder);
                return Ok(gzipped(with_content_type(media_type, body)));
            }
        }
        let first = run_in_steps(|| list.step()).await.unwrap_or_default();
        let body = match list.sized(first) {
            Ok((whole, items)) => {
                // A body this small counts as delivered.
                if let Some(recorder) = recorder {
                    recorder.listed(items, read.started.elapsed());
                }
                AnswerBody::Whole(Some(whole))
            }
            Err(rest) => streamed(ListStream::Plain(StreamedList::from(rest)), recorder),
        };
        Ok(with_content_type(media_type, body))
    }

    async fn watch(
        &self,
        read: &mut ReadRequest,
        selector: &Selector,
        plan: WatchPlan,
        served: &ServedResource,
    ) -> Result<ServiceResponse<R>, ReadRefusal> {
        let format = read.format;
        let streamed = |body| Ok(with_content_type(format.encoding.stream_type(), body));
        if plan.timeout == WatchTimeout::Ended {
            return streamed(AnswerBody::Stream(None));
        }
        let admitted = self.admission.as_ref().map(|all| all.watch(read.peer));
        let watch_permit = admitted.transpose().map_err(ReadRefusal::Answer)?;
        let is_short =
            !matches!(plan.start, WatchStart::Initial { .. }) || is_short(selector, None);
        // As for lists, wait for upstream before taking a permit. A request that has joined a view must not wait for a permit any
        // more.
        let started = match self.watch_state(plan.start, served).await {
            Ok(state) => {
                let list_permit = self.list_permit(read, is_short).await?;
                let view_params = (selector, format, read.peer);
                let start = self.watch_start(view_params, plan.start, state, served);
                start.await.map(|started| (started, list_permit))
            }
            Err(status) => Err(ReadRefusal::Answer(status)),
        };
        let timeout = plan.timeout.lasts(crate::resource::fraction());
        let permission = read.permission.as_ref();
        let timing = Timing {
            started: read.started,
            timeout: permission.map_or(timeout, |permission| {
                permission.limit(read.started, timeout)
            }),
            bookmarks: plan.bookmarks == Bookmarks::On,
        };
        match started {
            Ok(((entry, start), list_permit)) => {
                let recorder = self.resources.tally(&read.key);
                let watch = Watch::new(served.clone(), entry, start, timing, recorder);
                let lease = permission.map(|permission| permission.lease.hold());
                let watch = watch.holding(watch_permit, list_permit).leased(lease);
                streamed(AnswerBody::Watch(Box::new(watch)))
            }
            Err(ReadRefusal::Answer(status) | ReadRefusal::Bad(_, status)) => {
                read.permit = self.permit_before_history(read, (plan.start, served), &status);
                if read.permit.is_some() {
                    return Err(ReadRefusal::Forward);
                }
                // A watch that the gateway answers reports failures as events of a started stream (docs/PROTOCOL.md §4.3).
                streamed(stream_of(&status, format.encoding))
            }
            // The resource's views have no room for this watch.
            Err(ReadRefusal::Forward) => match lost_start(plan.start, served) {
                Some(status) => streamed(stream_of(&status, format.encoding)),
                None => Err(ReadRefusal::Forward),
            },
        }
    }
}

/// Maximum length of the names of objects and namespaces, in bytes.
const NAME_LEN_MAX: usize = 253;

#[cfg(test)]
mod tests;
