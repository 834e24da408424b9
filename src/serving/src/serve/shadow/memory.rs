//! Asks memory what it would have answered: by the way that requests take, with permits and counters of its own.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Response};
use tokio::time::sleep;
use tracing::error;

use super::super::body::AnswerBody;
use super::super::permission::{AuthorizedRead, access};
use super::super::read::ReadFailure;
use super::super::read_request::ReadRequest;
use super::super::read_state::ReadRefusal;
use super::super::resources::{
    Availability, BoxError, BoxFuture, FillWait, ForwardRequest, ForwardedBody, Latest, Peer,
    Permission, Resources, VersionReach, expiry,
};
use super::super::service::{Service, ServiceResponse};
use crate::admission::Admission;
use crate::auth::caller::{CallerRefusal, Continuity, PeerIdentity};
use crate::blocking::spawn_blocking;
use crate::config::Answerer;
use crate::metrics::ShadowOutcome;
use crate::protocol::BufList;
use crate::protocol::request::RequestInfo;
use crate::resource::{CacheKey, Gates, Gvr, ResourceVersion};
use crate::serving_control::{OwnedSubject, ServingControl};
use crate::shadow::{ObjectSet, Shadow, ShadowPermit, ShadowRecorder, differences};
use crate::view::ServedResource;
use crate::watch::WatchRecorder;

/// A request whose answer is compared, and what it takes to ask memory.
pub(super) struct ShadowRead {
    /// Answers from memory, with limits of its own.
    pub(super) service: Service,
    pub(super) shadow: Shadow,
    /// The permits of clients: nothing is compared while they are short of memory.
    pub(super) clients: Admission,
    pub(super) control: ServingControl,
    pub(super) subject: OwnedSubject,
    pub(super) read: Box<ReadRequest>,
    pub(super) info: RequestInfo,
    pub(super) headers: HeaderMap,
    pub(super) identity: PeerIdentity,
    pub(super) recorder: ShadowRecorder,
    pub(super) _permit: ShadowPermit,
}

/// Why a comparison ends before anything, or anything more, is compared.
#[derive(Clone, Copy, Debug)]
pub(super) enum CompareStop {
    /// There is nothing to compare with, for this reason.
    NotComparable(&'static str),
    /// The answers as a whole differ.
    Differs(ShadowOutcome),
}

/// How often it is looked whether the rules still want a comparison.
const RULES_TICK: Duration = Duration::from_secs(2);
/// The bounds of all comparisons are reached.
pub(super) const TOO_MUCH: CompareStop = CompareStop::NotComparable("it costs too much");
/// Why nothing is compared while clients need the memory.
pub(super) const MEMORY_SHORT: &str = "memory is short";
/// Upstream has forgotten what memory still has.
pub(super) const OLD: CompareStop =
    CompareStop::NotComparable("upstream's history does not reach it");
/// Upstream's answer is in no form that memory writes.
pub(super) const UNREADABLE: CompareStop = CompareStop::NotComparable("its form is unknown");
/// An answer broke off.
pub(super) const BROKEN: CompareStop = CompareStop::NotComparable("an answer broke off");

/// Memory has no answer to compare.
#[derive(Clone, Copy, Debug)]
pub(super) enum NoAnswer {
    /// It would have refused the request with this code.
    Refused(u16),
    /// The request would have been forwarded, or waited for, or refused for lack of permits.
    Unknown,
}

impl From<NoAnswer> for CompareStop {
    /// For a request that upstream has answered with 200.
    fn from(none: NoAnswer) -> Self {
        match none {
            NoAnswer::Refused(_) => Self::Differs(ShadowOutcome::Status),
            NoAnswer::Unknown => Self::NotComparable("memory has no answer"),
        }
    }
}

impl Service {
    /// The same service for comparisons, which take nothing from clients and are counted nowhere else.
    pub(super) fn comparing(&self, shadow: &Shadow) -> Self {
        Self {
            resources: Arc::new(ShadowResources(Arc::clone(&self.resources))),
            admission: shadow.admission().clone(),
            rewinding: shadow.rewinding().clone(),
            audit: None,
            connections: None,
            serving: None,
            ..self.clone()
        }
    }
}

impl ShadowRead {
    /// Completes once the rules do not have this client's answers compared any more, as far as it is known who that is.
    pub(super) async fn unwanted(&self) {
        while let Answerer::Shadow(_) = self.control.would_answer(&self.subject.as_read()) {
            sleep(RULES_TICK).await;
        }
    }

    /// The read as memory would have authorized it, at this version.
    pub(super) async fn authorized(
        &self,
        at: Option<ResourceVersion>,
    ) -> Result<AuthorizedRead, NoAnswer> {
        let request = self.read.compared_at(at);
        let peer = self.identity.peer;
        let Some(guard) = &self.service.guard else {
            return Ok(AuthorizedRead {
                request,
                peer,
                permission: None,
                trail: None,
            });
        };
        let caller = guard
            .authenticate(&self.headers, &self.identity, Continuity::New)
            .await
            .map_err(|denial| no_answer(&denial.refusal))?;
        let access = access(&request.path, &self.info);
        let authorization = guard
            .authorize(&caller, &access, Continuity::New)
            .await
            .map_err(|refusal| no_answer(&refusal))?;
        Ok(AuthorizedRead {
            request,
            peer: self.service.identify_peer(peer, &caller),
            permission: Some(Permission {
                expires_at: expiry(&caller),
                caller: caller.into(),
                lease: authorization.lease,
            }),
            trail: None,
        })
    }

    /// What memory would have answered, at this version.
    pub(super) async fn answer(
        &self,
        at: Option<ResourceVersion>,
    ) -> Result<ServiceResponse, NoAnswer> {
        let read = self.authorized(at).await?;
        match self.service.read(&read, &self.info).await.result {
            Ok(response) if response.status() == 200 => Ok(response),
            Ok(response) => Err(NoAnswer::of_code(response.status().as_u16())),
            Err(ReadFailure::Refused(ReadRefusal::Answer(status))) => {
                Err(NoAnswer::of_code(status.code))
            }
            Err(
                ReadFailure::Refused(ReadRefusal::Forward)
                | ReadFailure::Permitted(_)
                | ReadFailure::TimedOut,
            ) => Err(NoAnswer::Unknown),
        }
    }

    /// Whether the request names a state that upstream may have forgotten.
    fn is_of_past(&self) -> bool {
        let options = &self.read.options;
        let is_exact = options.resource_version_match == "Exact" || options.limit > 0;
        let is_read_at = options.watch || is_exact;
        !options.continue_token.is_empty() || is_read_at && !options.resource_version.is_empty()
    }

    /// Compares two states.
    pub(super) async fn compare_states(
        &self,
        upstream: ObjectSet,
        memory: ObjectSet,
    ) -> Result<(), CompareStop> {
        let found = self.aside(move || differences(&upstream, &memory)).await?;
        self.recorder.record(&found);
        Ok(())
    }

    /// Does work that takes long where there are many objects: on a thread for blocking work, one at a time.
    pub(super) async fn aside<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, CompareStop> {
        let turn = self.shadow.turn().await;
        // The work goes on if the comparison is given up, and keeps its turn.
        let work = move || {
            let _turn = turn;
            work()
        };
        spawn_blocking(work).await.map_err(|_| {
            error!("a step of a shadow comparison panicked");
            BROKEN
        })
    }

    /// Compares the status of an answer that is no success.
    pub(super) async fn compare_status(&self, code: u16) -> Result<(), CompareStop> {
        if let NoAnswer::Unknown = NoAnswer::of_code(code) {
            return Err(CompareStop::NotComparable("upstream failed"));
        }
        match self.answer(None).await {
            Err(NoAnswer::Refused(other)) if other == code => {
                self.recorder.count(ShadowOutcome::Equal, 1);
                Ok(())
            }
            Err(none @ NoAnswer::Unknown) => Err(none.into()),
            // Memory reaches farther back than upstream.
            Ok(_) if code == 410 && self.is_of_past() => Err(OLD),
            Ok(_) | Err(NoAnswer::Refused(_)) => Err(CompareStop::Differs(ShadowOutcome::Status)),
        }
    }
}

impl NoAnswer {
    /// Errors of the server, timeouts and shortages say nothing about the request.
    pub(super) const fn of_code(code: u16) -> Self {
        match code {
            408 | 429 => Self::Unknown,
            400..500 => Self::Refused(code),
            _ => Self::Unknown,
        }
    }
}

const fn no_answer(refusal: &CallerRefusal) -> NoAnswer {
    match refusal {
        CallerRefusal::Unauthorized => NoAnswer::Refused(401),
        CallerRefusal::Forbidden { .. } => NoAnswer::Refused(403),
        CallerRefusal::BadRequest { .. } => NoAnswer::Refused(400),
        CallerRefusal::Forward
        | CallerRefusal::Unverified
        | CallerRefusal::Busy
        | CallerRefusal::Undecided { .. }
        | CallerRefusal::Failed { .. } => NoAnswer::Unknown,
    }
}

/// The next bytes of memory's answer; `None` at its end.
pub(super) async fn next_bytes(body: &mut AnswerBody) -> Option<Result<BufList, BoxError>> {
    loop {
        let frame = poll_fn(|context| body.poll_frame(context)).await?;
        match frame.map(http_body::Frame::into_data) {
            Ok(Ok(bytes)) => return Some(Ok(bytes)),
            Ok(Err(_)) => {}
            Err(error) => return Some(Err(error)),
        }
    }
}

/// The caches, without what counts and limits clients.
struct ShadowResources(Arc<dyn Resources>);

impl Resources for ShadowResources {
    fn gates(&self) -> Gates {
        self.0.gates()
    }

    fn may_serve(&self, resource: &Gvr) -> bool {
        self.0.may_serve(resource)
    }

    fn availability<'a>(
        &'a self,
        key: &'a CacheKey,
        wait: FillWait,
        peer: Peer,
    ) -> BoxFuture<'a, Availability> {
        self.0.compared_availability(key, wait, peer)
    }

    fn may_be_lost(&self, key: &CacheKey, version: ResourceVersion) -> bool {
        self.0.may_be_lost(key, version)
    }

    fn version_reach<'a>(
        &'a self,
        key: &'a CacheKey,
        version: ResourceVersion,
    ) -> BoxFuture<'a, VersionReach> {
        self.0.version_reach(key, version)
    }

    fn latest<'a>(&'a self, served: &'a ServedResource) -> BoxFuture<'a, Latest> {
        self.0.latest(served)
    }

    fn forward(&self, request: ForwardRequest) -> BoxFuture<'_, Response<ForwardedBody>> {
        self.0.forward(request)
    }

    fn tally(&self, _: &CacheKey) -> Arc<dyn WatchRecorder> {
        Arc::new(())
    }

    fn answered(&self, _: super::super::resources::RequestOutcome<'_>) {}
}
