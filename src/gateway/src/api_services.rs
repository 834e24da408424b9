//! Follows upstream's APIServices, which say who serves each group and version (decision 59).

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::cache_rule::{ApiService, ApiServiceKnowledge, ApiServices, api_services};
use crate::decode::Bookmark;
use crate::resource::{EventKind, Object, ObjectKey, ResourceVersion};
use crate::upstream::backoff::Backoff;
use crate::upstream::client::Client;
use crate::upstream::driver::{Driver, DriverEnd, DriverRecorder, FailureReport, Fetch, ReadSpec};
use crate::upstream::reflector::{
    GiveUp, InitialVersion, ReflectorMachine, ReflectorOptions, StreamingLists,
};
use crate::upstream::sink::{LateChange, Sink, UpstreamWentBack};

/// Items per page where upstream does not stream lists. Clusters have less than a hundred.
const PAGE_LEN: u32 = 500;
/// How long nothing may show that what is known is upstream's, while upstream answers otherwise: then a group may have moved unnoticed.
const LOST_MAX: Duration = Duration::from_secs(120);
/// How long a group and version that has left its service still counts as served by it: in each API server kube-aggregator's handlers follow
/// the APIServices by a watch, which may lag.
const HANDLER_SWITCH_MAX: Duration = Duration::from_secs(120);
/// An APIService holds a certificate authority at most.
const FRAME_LEN_MAX: usize = 4 << 20;

/// Keeps what is known of the APIServices up to date.
pub(super) struct ApiServiceFeed<F = Client> {
    fetch: Arc<F>,
    known: watch::Sender<Arc<ApiServiceKnowledge>>,
    recorder: Arc<FeedRecorder>,
}

impl<F: Fetch> ApiServiceFeed<F> {
    pub(super) fn new(fetch: Arc<F>) -> Self {
        Self {
            fetch,
            known: watch::Sender::new(Arc::new(ApiServiceKnowledge::Unread)),
            recorder: Arc::default(),
        }
    }

    /// Notes that upstream has answered discovery. If it has not confirmed what is known all the same, that is not relied on any more.
    pub(super) fn upstream_answers(&self) {
        let mut proof = self.recorder.proof.lock();
        let answering_since = *proof.answering_since.get_or_insert_with(Instant::now);
        let since = proof.proven_at.max(Some(answering_since));
        let is_overdue = since.is_some_and(|since| since.elapsed() > LOST_MAX);
        if is_overdue && matches!(**self.known.borrow(), ApiServiceKnowledge::Known(_)) {
            proof.is_lost = true;
            let reason = match &**self.recorder.failure.lock() {
                "" => "nothing confirms what was read of them".to_owned(),
                failure => format!("not watched: {failure}"),
            };
            self.give_up(reason);
        }
    }

    /// Notes that upstream has not answered discovery: what is known stays valid, as caches do.
    pub(super) fn upstream_fails(&self) {
        self.recorder.proof.lock().answering_since = None;
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Arc<ApiServiceKnowledge>> {
        self.known.subscribe()
    }

    /// Reads and watches the APIServices. Never returns.
    pub(super) async fn run(&self) -> Infallible {
        let (mut short, mut long) = (Backoff::brisk(), Backoff::patient());
        loop {
            let options = ReflectorOptions {
                streaming: StreamingLists::Preferred,
                page_len: PAGE_LEN,
                start_from: None,
                initial: InitialVersion::Latest,
            };
            let sink = ApiServiceSink {
                state: ApiServiceState::default(),
                initial: ApiServiceState::default(),
                is_filled: false,
                departing: Vec::new(),
                known: self.known.clone(),
                recorder: Arc::clone(&self.recorder),
            };
            let driver = Driver::new(
                Arc::clone(&self.fetch),
                ReadSpec::all(&api_services(), FRAME_LEN_MAX),
                ReflectorMachine::new(options)
                    .with_backoff(Backoff::brisk())
                    .giving_up(),
                sink,
                Arc::clone(&self.recorder) as Arc<dyn DriverRecorder>,
            );
            let end = driver.run().await;
            let reason = self.recorder.failure.lock().clone();
            self.give_up(reason);
            let backoff = match end {
                DriverEnd::GivenUp(GiveUp::Unavailable) => &mut short,
                DriverEnd::GivenUp(_) | DriverEnd::Gone | DriverEnd::WentBack => &mut long,
            };
            let wait = backoff.next(std::time::Instant::now(), crate::resource::random());
            tokio::time::sleep(wait).await;
        }
    }

    fn give_up(&self, reason: String) {
        let last = self.known.borrow().last().cloned();
        publish(
            &self.known,
            ApiServiceKnowledge::Unreadable { reason, last },
        );
    }
}

/// Most events change only the status of an APIService.
fn publish(known: &watch::Sender<Arc<ApiServiceKnowledge>>, next: ApiServiceKnowledge) {
    known.send_if_modified(|known| {
        let is_new = **known != next;
        if is_new {
            *known = Arc::new(next);
        }
        is_new
    });
}

/// The APIServices, and the versions of their objects.
#[derive(Debug, Default)]
struct ApiServiceState {
    services: ApiServices,
    versions: HashMap<ObjectKey, ResourceVersion>,
}

impl ApiServiceState {
    /// The object's APIService as it is held, if it names a service.
    fn service_of(&self, object: &Object) -> Option<ApiService> {
        let new = ApiService::read(object.key().name(), object.bytes());
        self.services.service_like(&new).cloned()
    }

    fn apply(&mut self, kind: EventKind, object: &Object) {
        let service = ApiService::read(object.key().name(), object.bytes());
        let key = ObjectKey::from(object.key());
        match kind {
            EventKind::Added | EventKind::Modified => {
                self.services.put(service);
                self.versions.insert(key, object.resource_version());
            }
            EventKind::Deleted => {
                self.services.remove(&service);
                self.versions.remove(&key);
            }
        }
    }
}

/// Collects the APIServices of one attempt.
#[derive(Debug)]
struct ApiServiceSink {
    state: ApiServiceState,
    initial: ApiServiceState,
    /// Whether all APIServices were read.
    is_filled: bool,
    /// The APIServices that have named a service, and since when they do not.
    departing: Vec<(ApiService, Instant)>,
    known: watch::Sender<Arc<ApiServiceKnowledge>>,
    recorder: Arc<FeedRecorder>,
}

impl ApiServiceSink {
    /// The APIServices, with those that have just stopped to name a service as they were before.
    fn effective(&mut self) -> ApiServices {
        let mut services = self.state.services.clone();
        let last = Arc::clone(&self.known.borrow());
        let departed: Vec<ApiService> = last
            .last()
            .map(|last| last.departed(&services))
            .into_iter()
            .flatten()
            .cloned()
            .collect();
        let now = Instant::now();
        // Those whose time is over stay until they were published without their service: they would depart again otherwise.
        self.departing.retain(|(one, since)| {
            let is_held = now.duration_since(*since) < HANDLER_SWITCH_MAX;
            !services.has_service(one) && (is_held || departed.contains(one))
        });
        for service in departed {
            if !self.departing.iter().any(|(one, _)| *one == service) {
                self.departing.push((service, now));
            }
        }
        for (service, since) in &self.departing {
            if now.duration_since(*since) < HANDLER_SWITCH_MAX {
                services.put(service.clone());
            }
        }
        services
    }
}

impl Sink for ApiServiceSink {
    fn restart(&mut self) {
        self.initial = ApiServiceState::default();
    }

    fn initial(&mut self, kind: EventKind, object: Object) {
        self.initial.apply(kind, &object);
    }

    fn replace(&mut self, _: ResourceVersion) -> Result<(), UpstreamWentBack> {
        self.state = std::mem::take(&mut self.initial);
        self.is_filled = true;
        self.publish();
        Ok(())
    }

    fn live(&mut self, kind: EventKind, object: Object) {
        let before = self.state.service_of(&object);
        self.state.apply(kind, &object);
        // A service may come and go between two publications.
        if let Some(before) = before.filter(|before| !self.state.services.has_service(before)) {
            self.departing.retain(|(one, _)| *one != before);
            self.departing.push((before, Instant::now()));
        }
    }

    /// What the state lacks is read by a list, which is short.
    fn late(&mut self, kind: EventKind, object: &Object) -> LateChange {
        let held = self.state.versions.get(&ObjectKey::from(object.key()));
        match (kind, held) {
            (EventKind::Deleted, None) => LateChange::Known,
            (EventKind::Added | EventKind::Modified, Some(held))
                if *held >= object.resource_version() =>
            {
                LateChange::Known
            }
            (_, Some(_) | None) => LateChange::Missing,
        }
    }

    fn object_count(&self) -> Option<usize> {
        Some(self.state.versions.len())
    }

    fn holds(&self, versions: &[(ObjectKey, ResourceVersion)]) -> bool {
        let held = &self.state.versions;
        versions
            .iter()
            .all(|(key, version)| held.get(key) == Some(version))
    }

    /// Batches come before all APIServices were read, and what is not relied on stays so until upstream has confirmed it: a watch that was
    /// merely opened again may have to bring what the last one lacked.
    fn publish(&mut self) {
        let recorder = Arc::clone(&self.recorder);
        let proof = recorder.proof.lock();
        if self.is_filled && !proof.is_lost {
            let services = self.effective();
            publish(&self.known, ApiServiceKnowledge::Known(services));
        }
    }

    fn progress(&mut self, _: ResourceVersion) {
        self.publish();
    }

    /// A comparison may have confirmed the state, or the time of a departure may have passed.
    fn tick(&mut self) {
        self.publish();
    }

    fn bookmark(&mut self, _: &[u8], _: &Bookmark) {}
}

/// Remembers why the last attempt failed, and when upstream last showed that the state is its own.
#[derive(Debug, Default)]
struct FeedRecorder {
    failure: Mutex<String>,
    proof: Mutex<KnowledgeProof>,
}

/// What speaks for the state that is known.
#[derive(Debug, Default)]
struct KnowledgeProof {
    /// When upstream last showed that the state is its own.
    proven_at: Option<Instant>,
    /// Since when upstream has answered discovery; `None` while it does not.
    answering_since: Option<Instant>,
    /// Whether the state is not relied on, until upstream shows again that it is its own.
    is_lost: bool,
}

impl DriverRecorder for FeedRecorder {
    fn proven(&self) {
        let mut proof = self.proof.lock();
        proof.proven_at = Some(Instant::now());
        proof.is_lost = false;
    }

    fn failed(&self, report: FailureReport<'_>) {
        *self.failure.lock() = match report.cause {
            "" => report.failure.to_string(),
            cause => cause.to_owned(),
        };
    }
}

#[cfg(test)]
mod tests;
