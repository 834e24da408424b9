//! From an authorized read to the response of memory: negotiates the format, chooses a cache, and reads it as planned.

use std::pin::pin;
use std::time::Duration;

use http::HeaderValue;

use super::body::{AnswerBody, ListStream, MeasuredList};
use super::cooperation::run_in_steps;
use super::gzip::PLAIN_LEN_MAX;
use super::list::{CompressedList, ListBody, PageRequest, PageSearch};
use super::lost_history::{lost_start, lost_version};
use super::negotiated_read::NegotiatedRead;
use super::negotiation::Negotiation;
use super::permission::AuthorizedRead;
use super::read_state::{ReadRefusal, is_retained, reads_snapshot};
use super::request_timeout::before_deadline;
use super::resources::{Availability, ForwardPermit, VersionReach};
use super::response::{gzipped, stale_warning, with_content_type};
use super::service::{Service, ServiceResponse};
use crate::admission::ListPermit;
use crate::protocol::request::{
    Bookmarks, CacheRead, ListPlan, ListRead, ReadPlan, RequestInfo, WatchPlan, WatchStart,
    WatchTimeout,
};
use crate::protocol::status::Status;
use crate::resource::{CATCH_UP_HEADER, CacheKey, Encoding};
use crate::selector::Selector;
use crate::view::ServedResource;
use crate::view::walk::only_name;
use crate::watch::{Start, Timing, Watch};

/// The response to a read, or why memory has none, and what is counted and sent in both cases.
pub(super) struct ReadOutcome {
    /// The cache that was read, or the last one that was looked for.
    pub(super) key: CacheKey,
    /// `Warning` headers, which every response to this request has.
    pub(super) warnings: Vec<HeaderValue>,
    pub(super) result: Result<ServiceResponse, ReadFailure>,
}

/// Why memory has no response to a read.
pub(super) enum ReadFailure {
    /// The request is refused, or forwarded as any other.
    Refused(ReadRefusal),
    /// The request is forwarded on this permit.
    Permitted(ForwardPermit),
    /// The request's time is over.
    TimedOut,
}

impl From<ReadRefusal> for ReadFailure {
    fn from(refusal: ReadRefusal) -> Self {
        Self::Refused(refusal)
    }
}

impl ReadFailure {
    fn is_forwarded(&self) -> bool {
        match self {
            Self::Refused(ReadRefusal::Forward) | Self::Permitted(_) => true,
            Self::Refused(ReadRefusal::Answer(_)) | Self::TimedOut => false,
        }
    }
}

/// How long a watch lasts whose version upstream has not reached.
const PENDING_WATCH: Duration = Duration::from_secs(10);
/// How long a watch lasts at most if upstream does not say whether it has reached the version. Otherwise a client with a version of a lost
/// history would notice only at the end of its watch. A shorter time would let all clients return often in an outage.
const UNKNOWN_WATCH: Duration = Duration::from_secs(60);
/// Such watches end up to this part (a third) earlier, because they began together.
const UNKNOWN_SPREAD: f64 = 1.0 / 3.0;
impl Service {
    /// Chooses a cache and reads from it.
    pub(super) async fn read(&self, read: &AuthorizedRead, info: &RequestInfo) -> ReadOutcome {
        let negotiation = Negotiation::of(info, self.resources.gates());
        let Some(first) = negotiation.first_choice() else {
            return ReadOutcome {
                key: CacheKey::json(&read.request.path.gvr),
                warnings: Vec::new(),
                result: Err(ReadRefusal::Forward.into()),
            };
        };
        let (key, served) = self.cache(read, first).await;
        let served = match served {
            Ok(served) => served,
            Err(failure) => {
                let lost = match failure.is_forwarded() {
                    true => self.lost_watch(&read.request, &key).await,
                    false => None,
                };
                return ReadOutcome {
                    key,
                    warnings: Vec::new(),
                    result: lost.ok_or(failure),
                };
            }
        };
        let mut warnings: Vec<_> = served
            .cache
            .kind()
            .warnings
            .iter()
            .filter_map(|text| text.parse().ok())
            .collect();
        let planned = NegotiatedRead::of(&negotiation, read, &key, &served)
            .zip(read.request.plan(served.cache.kind()));
        if let Some((_, cache_read)) = &planned
            && cache_read.plan.may_be_stale()
            && let Some(age) = self.resources.staleness(&key)
        {
            warnings.extend(stale_warning(age));
        }
        let result = self.read_cache(planned);
        let result = before_deadline(read.request.deadline, pin!(result)).await;
        ReadOutcome {
            key,
            warnings,
            result: result.unwrap_or(Err(ReadFailure::TimedOut)),
        }
    }

    /// The cache to read from, with its key, or else the key that was tried last.
    pub(super) async fn cache(
        &self,
        read: &AuthorizedRead,
        first: Encoding,
    ) -> (CacheKey, Result<ServedResource, ReadFailure>) {
        let mut key = CacheKey {
            encoding: first,
            ..CacheKey::json(&read.request.path.gvr)
        };
        let mut served = self.served(read, &key).await;
        // Custom resources have no protobuf encoding, but the gateway can write their metadata in protobuf.
        if matches!(served, Ok(None)) && first == Encoding::Protobuf {
            key.encoding = Encoding::Json;
            served = self.served(read, &key).await;
        }
        let served = served.and_then(|served| served.ok_or_else(|| ReadRefusal::Forward.into()));
        (key, served)
    }

    /// The cache of this key; `None` if upstream has the resource only in another encoding.
    async fn served(
        &self,
        read: &AuthorizedRead,
        key: &CacheKey,
    ) -> Result<Option<ServedResource>, ReadFailure> {
        let availability = self
            .resources
            .availability(key, read.request.fill_wait(), read.peer);
        let availability = before_deadline(read.request.deadline, pin!(availability)).await;
        match availability.ok_or(ReadFailure::TimedOut)? {
            Availability::Ready(served) => Ok(Some(served)),
            Availability::OtherEncoding => Ok(None),
            Availability::Forwarded(Some(permit)) => Err(ReadFailure::Permitted(permit)),
            Availability::Forwarded(None) => Err(ReadRefusal::Forward.into()),
            Availability::Filling {
                retry_after_seconds,
            } => Err(ReadRefusal::Answer(Status::initializing(retry_after_seconds)).into()),
        }
    }

    async fn read_cache(
        &self,
        planned: Option<(NegotiatedRead<'_>, CacheRead)>,
    ) -> Result<ServiceResponse, ReadFailure> {
        let (negotiated, CacheRead { selector, plan }) = planned.ok_or(ReadRefusal::Forward)?;
        match plan {
            ReadPlan::List(plan) => self.list(&negotiated, &selector, &plan).await,
            ReadPlan::Watch(plan) => self.watch(&negotiated, &selector, plan).await,
        }
    }

    /// Waits for a permit to send a list; `None` if the list needs none.
    async fn list_permit(
        &self,
        read: &AuthorizedRead,
        is_short: bool,
    ) -> Result<Option<ListPermit>, ReadRefusal> {
        if is_short {
            return Ok(None);
        }
        self.admission
            .list(read.peer)
            .await
            .map(Some)
            .map_err(ReadRefusal::Answer)
    }

    async fn list(
        &self,
        read: &NegotiatedRead<'_>,
        selector: &Selector,
        plan: &ListPlan,
    ) -> Result<ServiceResponse, ReadFailure> {
        let (served, request) = (read.served, &read.authorized.request);
        let page = PageRequest {
            kind: served.cache.kind(),
            selector,
            start: plan.start.as_deref(),
            limit: plan.limit,
        };
        let is_short = page.is_short();
        // Waiting for upstream needs no permit. Undoing events costs CPU, so the permit comes first, even for a short list.
        let (snapshot, permit) = if let Some(version) = request.at {
            let permit = self.list_permit(read.authorized, is_short).await?;
            let state = self.compared_state(version, served, read.authorized.peer);
            (state.await?, permit)
        } else if let ListRead::Exact(version) = plan.read {
            let is_retained = is_retained(version, served).await?;
            let permit = self.list_permit(read.authorized, is_short && is_retained);
            let permit = permit.await?;
            let state = self.list_state(plan.read, served, read.authorized.peer);
            (state.await?, permit)
        } else {
            let state = self.list_state(plan.read, served, read.authorized.peer);
            let snapshot = state.await?;
            (snapshot, self.list_permit(read.authorized, is_short).await?)
        };
        let kind = page.kind;
        let mut search = PageSearch::new(snapshot, &page);
        let page = run_in_steps(|| search.step()).await;
        let metrics = self.resources.list_metrics(read.key);
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
        let streamed = |list, metrics| {
            let list = MeasuredList::new(list, request.started, metrics, permit);
            AnswerBody::List(Box::new(list))
        };
        if request.takes_gzip {
            let mut check = list.length_check(PLAIN_LEN_MAX);
            if run_in_steps(|| check.step()).await {
                let compressor = self.compressors.blocks.for_peer(read.authorized.peer);
                let list = CompressedList::new(list, compressor);
                let body = streamed(ListStream::Compressed(list), metrics);
                return Ok(gzipped(with_content_type(media_type, body)));
            }
        }
        let first = run_in_steps(|| list.step()).await.unwrap_or_default();
        let body = match list.sized(first) {
            Ok((whole, items)) => {
                // A body this small counts as delivered.
                if let Some(metrics) = metrics {
                    metrics.record(items, request.started.elapsed());
                }
                AnswerBody::Whole(Some(whole))
            }
            Err(list) => streamed(ListStream::Plain(*list), metrics),
        };
        Ok(with_content_type(media_type, body))
    }

    async fn watch(
        &self,
        read: &NegotiatedRead<'_>,
        selector: &Selector,
        plan: WatchPlan,
    ) -> Result<ServiceResponse, ReadFailure> {
        let (format, served, authorized) = (read.format, read.served, read.authorized);
        let streamed = |body| Ok(with_content_type(format.encoding.stream_type(), body));
        if plan.timeout == WatchTimeout::Ended {
            return streamed(AnswerBody::Stream(None));
        }
        let reach = self.start_reach(read.key, plan.start, served).await;
        if reach == VersionReach::Lost
            && let Some(status) = lost_version(plan.start, served)
        {
            return streamed(self.refused_stream(read.key, &status, format.encoding));
        }
        let has_state = reads_snapshot(plan.start, selector, served);
        let admitted = match has_state {
            true => self.admission.watch(authorized.peer),
            false => self.admission.resuming_watch(authorized.peer),
        };
        let watch_permit = admitted.map_err(ReadRefusal::Answer)?;
        let is_short = match plan.start {
            WatchStart::Initial { .. } => only_name(selector, served.cache.kind(), None).is_some(),
            // A catch-up reads all deletions.
            WatchStart::FromNow { .. } | WatchStart::After(_) => !has_state,
        };
        // As for lists, wait for upstream before taking a permit. A request that has joined a view must not wait for a permit any
        // more.
        let state = match authorized.request.at.filter(|_| plan.has_end_marker()) {
            Some(version) => {
                let state = self.compared_state(version, served, authorized.peer);
                Ok(Some(state.await?.into()))
            }
            None => self.watch_state(plan.start, served).await,
        };
        let started = match state {
            Ok(state) => {
                let list_permit = self.list_permit(authorized, is_short).await?;
                let start = self.watch_start(read, selector, plan.start, state);
                start.await.map(|started| (started, list_permit))
            }
            Err(status) => Err(ReadRefusal::Answer(status)),
        };
        match started {
            Ok(((entry, start), list_permit)) => {
                let recorder = self.resources.tally(read.key);
                let timing = timing(authorized, plan, reach);
                let is_catch_up = matches!(start, Start::CatchUp(_));
                let watch = Watch::new(served.clone(), entry, start, timing, recorder);
                let permission = authorized.permission.as_ref();
                let lease = permission.map(|permission| permission.lease.hold());
                let watch = watch.holding(Some(watch_permit), list_permit).leased(lease);
                let mut response = self.watch_response(read, watch);
                if is_catch_up {
                    let value = HeaderValue::from_static("latest-state");
                    response.headers_mut().insert(CATCH_UP_HEADER, value);
                }
                Ok(response)
            }
            Err(ReadRefusal::Answer(status)) => {
                match self.permit_before_history(read, plan.start, &status) {
                    Some(permit) => Err(ReadFailure::Permitted(permit)),
                    // A watch that the gateway answers reports failures as events of a started stream (docs/PROTOCOL.md §4.3).
                    None => streamed(self.refused_stream(read.key, &status, format.encoding)),
                }
            }
            // The resource's views have no room for this watch.
            Err(ReadRefusal::Forward) => match lost_start(plan.start, served) {
                Some(status) => streamed(self.refused_stream(read.key, &status, format.encoding)),
                None => Err(ReadRefusal::Forward.into()),
            },
        }
    }

    /// The response with this watch, which is compressed if its client can read that.
    fn watch_response(&self, read: &NegotiatedRead<'_>, watch: Watch) -> ServiceResponse {
        let request = &read.authorized.request;
        let permission = read.authorized.permission.as_ref();
        let user = permission.map_or("", |permission| &permission.caller.user.name);
        let (watch, is_gzip) = match &request.watch_reader {
            Some(reader) => {
                let blocks = self.compressors.blocks.for_peer(read.authorized.peer);
                let (watches, resource) = (&self.compressors.watches, &request.path.gvr.resource);
                watches.compressed(watch, resource, (user, reader), (blocks, &self.metrics))
            }
            None => (watch, false),
        };
        let media_type = read.format.encoding.stream_type();
        let response = with_content_type(media_type, AnswerBody::Watch(Box::new(watch)));
        if is_gzip { gzipped(response) } else { response }
    }
}

/// When the watch ends: at its timeout, or when the caller's credential expires, or so early that a client whose version upstream may never
/// reach asks again.
fn timing(read: &AuthorizedRead, plan: WatchPlan, reach: VersionReach) -> Timing {
    let started = read.request.started;
    let timeout = plan.timeout.lasts(crate::resource::fraction());
    let timeout = match reach {
        VersionReach::Pending => timeout.min(PENDING_WATCH),
        VersionReach::Unknown => {
            let spread = 1.0 - UNKNOWN_SPREAD * crate::resource::fraction();
            timeout.min(UNKNOWN_WATCH.mul_f64(spread))
        }
        VersionReach::Reached | VersionReach::Lost => timeout,
    };
    let permission = read.permission.as_ref();
    Timing {
        started,
        timeout: permission.map_or(timeout, |permission| permission.limit(started, timeout)),
        bookmarks: plan.bookmarks == Bookmarks::On,
    }
}
