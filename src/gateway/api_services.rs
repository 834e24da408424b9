//! Follows upstream's APIServices, which say who serves each group and version (decision 59).

use std::convert::Infallible;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::cache_rule::{ApiService, ApiServiceKnowledge, ApiServices, api_services};
use crate::decode::Bookmark;
use crate::resource::{EventKind, Object, ResourceVersion};
use crate::upstream::backoff::Backoff;
use crate::upstream::client::Client;
use crate::upstream::driver::{
    Driver, DriverRecorder, FailureReport, FrameRejection, ReadSpec, WatchConnection,
};
use crate::upstream::reflector::{
    InitialVersion, ReflectorMachine, ReflectorOptions, RelistReason, StreamingLists,
};
use crate::upstream::sink::{Sink, UpstreamWentBack};

/// Items per page where upstream does not stream lists. Clusters have less than a hundred.
const PAGE_LEN: u32 = 500;
/// An APIService holds a certificate authority at most.
const FRAME_LEN_MAX: usize = 4 << 20;

/// Keeps what is known of the APIServices up to date.
pub(super) struct ApiServiceFeed {
    client: Arc<Client>,
    known: watch::Sender<Arc<ApiServiceKnowledge>>,
}

impl ApiServiceFeed {
    pub(super) fn new(client: Arc<Client>) -> Self {
        Self {
            client,
            known: watch::Sender::new(Arc::new(ApiServiceKnowledge::Unread)),
        }
    }

    /// Follows what is known.
    pub(super) fn subscribe(&self) -> watch::Receiver<Arc<ApiServiceKnowledge>> {
        self.known.subscribe()
    }

    /// Reads and watches the APIServices. Never returns.
    pub(super) async fn run(&self) -> Infallible {
        let mut backoff = Backoff::patient();
        let recorder = Arc::new(LastFailure::default());
        loop {
            let options = ReflectorOptions {
                streaming: StreamingLists::Preferred,
                page_len: PAGE_LEN,
                start_from: None,
                initial: InitialVersion::Latest,
            };
            let sink = ApiServiceSink {
                services: ApiServices::default(),
                initial: ApiServices::default(),
                known: self.known.clone(),
            };
            let driver = Driver::new(
                Arc::clone(&self.client),
                ReadSpec::all(&api_services(), FRAME_LEN_MAX),
                ReflectorMachine::new(options)
                    .with_backoff(Backoff::brisk())
                    .giving_up(),
                sink,
                Arc::clone(&recorder) as Arc<dyn DriverRecorder>,
            );
            driver.run().await;
            let reason = std::mem::take(&mut *recorder.0.lock());
            self.publish(ApiServiceKnowledge::Unreadable(reason));
            let wait = backoff.next(std::time::Instant::now(), crate::resource::random());
            tokio::time::sleep(wait).await;
        }
    }

    fn publish(&self, next: ApiServiceKnowledge) {
        publish(&self.known, next);
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

/// Collects the APIServices of one attempt.
#[derive(Debug)]
struct ApiServiceSink {
    services: ApiServices,
    initial: ApiServices,
    known: watch::Sender<Arc<ApiServiceKnowledge>>,
}

fn apply(services: &mut ApiServices, kind: EventKind, object: &Object) {
    let service = ApiService::read(object.key().name(), object.bytes());
    match kind {
        EventKind::Added | EventKind::Modified => services.put(service),
        EventKind::Deleted => services.remove(&service),
    }
}

impl Sink for ApiServiceSink {
    fn restart(&mut self) {
        self.initial = ApiServices::default();
    }

    fn initial(&mut self, kind: EventKind, object: Object) {
        apply(&mut self.initial, kind, &object);
    }

    fn replace(&mut self, _: ResourceVersion) -> Result<(), UpstreamWentBack> {
        self.services = std::mem::take(&mut self.initial);
        self.publish();
        Ok(())
    }

    fn live(&mut self, kind: EventKind, object: Object) {
        apply(&mut self.services, kind, &object);
    }

    fn publish(&mut self) {
        publish(
            &self.known,
            ApiServiceKnowledge::Known(self.services.clone()),
        );
    }

    fn progress(&mut self, _: ResourceVersion) {}

    fn bookmark(&mut self, _: &[u8], _: &Bookmark) {}
}

/// Remembers why the last attempt failed.
#[derive(Debug, Default)]
struct LastFailure(Mutex<String>);

impl DriverRecorder for LastFailure {
    fn received(&self, _: usize) {}

    fn rejected(&self, _: FrameRejection) {}

    fn relisted(&self, _: RelistReason) {}

    fn connected(&self, _: WatchConnection) {}

    fn failed(&self, report: FailureReport<'_>) {
        *self.0.lock() = match report.cause {
            "" => report.failure.to_string(),
            cause => cause.to_owned(),
        };
    }
}
