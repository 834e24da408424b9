//! Lists and watches one collection, and fills a queue of deltas or any other sink.

use std::fmt;
use std::sync::Arc;

use super::counts::InformerCounters;
use super::failure::OnFailure;
use super::failure_recorder::{FailureRecorder, log_failures};
use super::queue_sink::{ObjectPipeline, QueueSink, Transform};
use super::{Cached, DeltaFifo, ListWatch};
use crate::resource::FieldTable;
use crate::upstream::backoff::Backoff;
use crate::upstream::driver::{Driver, DriverEnd, Fetch, ReadSpec, SILENCE_MAX};
use crate::upstream::reflector as protocol;
use crate::upstream::sink::Sink;

/// The longest accepted watch frame. By default etcd accepts objects of up to 1.5 MiB, and can be configured for more; the JSON of an
/// object is about three times as long as its protobuf.
const FRAME_LEN_MAX: usize = 64 << 20;

/// Lists, watches, relists and backs off as client-go's `Reflector` does. Use it to fill a store of your own, or none.
///
/// While the queue is full, the reflector reads nothing, and the server's bytes stay in the socket, until a consumer pops deltas.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use k8s_openapi::api::core::v1::Pod;
/// use kube_fanout_informer::{Cached, DeltaFifo, Indexer, ListWatch, Reflector, cached_key};
/// use kube_fanout_informer::client::{Client, ConnectError, ConnectSource};
///
/// # async fn follow() -> Result<(), ConnectError> {
/// let client = Client::connect(ConnectSource::url("http://127.0.0.1:8001")?).await?;
/// let store: Arc<Indexer<Cached<Pod>>> = Arc::new(Indexer::new(cached_key()));
/// let queue = Arc::new(DeltaFifo::new(cached_key(), store));
/// let pods = ListWatch::<Pod>::of_kind().in_namespace("default");
/// let reflector = Reflector::new(Arc::new(client), pods);
/// tokio::spawn(reflector.run_into(Arc::clone(&queue)));
/// loop {
///     queue.filled().await;
///     queue.pop(|key, deltas, _| {
///         println!("{key}: {} changes", deltas.len());
///         Ok::<(), ()>(())
///     });
/// }
/// # }
/// ```
pub struct Reflector<T, F> {
    fetch: Arc<F>,
    list_watch: ListWatch<T>,
    transform: Option<Transform<T>>,
    on_failure: Option<OnFailure>,
    counts: InformerCounters,
}

impl<T: Send + Sync + 'static, F: Fetch> Reflector<T, F> {
    /// A reflector that sends the requests for `list_watch` through `fetch`, once it runs.
    #[must_use]
    pub fn new(fetch: Arc<F>, list_watch: ListWatch<T>) -> Self {
        Self {
            fetch,
            list_watch,
            transform: None,
            on_failure: None,
            counts: InformerCounters::default(),
        }
    }

    /// Sets a hook that changes each object before it is queued.
    #[must_use]
    pub fn transformed(self, transform: Transform<T>) -> Self {
        Self {
            transform: Some(transform),
            ..self
        }
    }

    /// Reports failures to this hook, instead of logging them.
    #[must_use]
    pub fn on_failure(self, hook: OnFailure) -> Self {
        Self {
            on_failure: Some(hook),
            ..self
        }
    }

    /// The counters of this reflector.
    #[must_use]
    pub const fn counts(&self) -> &InformerCounters {
        &self.counts
    }

    /// Fills a queue until the queue is closed. Dropping the future stops the reflector.
    pub async fn run_into(self, queue: Arc<DeltaFifo<Cached<T>>>) {
        let recorder = self.recorder();
        let pipeline = ObjectPipeline {
            list_watch: self.list_watch.clone(),
            transform: self.transform.clone(),
        };
        let sink = QueueSink::new(Arc::clone(&queue), pipeline, Arc::clone(&recorder));
        // Both branches are safe to cancel. Events that were read and not queued are lost only for this reflector, which ends here.
        tokio::select! {
            () = queue.closed() => {}
            _ = self.follow(sink, recorder) => {}
        }
    }

    /// Fills any sink with undecoded objects. Returns only if the sink cannot follow the server to an older state; otherwise drop the
    /// future to stop the reflector.
    pub async fn run<S: Sink>(self, sink: S) {
        let recorder = self.recorder();
        self.follow(sink, recorder).await;
    }

    fn recorder(&self) -> Arc<FailureRecorder> {
        let hook = self
            .on_failure
            .clone()
            .unwrap_or_else(|| log_failures(&self.list_watch.read.collection));
        Arc::new(FailureRecorder::new(self.counts.clone(), hook))
    }

    async fn follow<S: Sink>(self, sink: S, recorder: Arc<FailureRecorder>) -> DriverEnd {
        let list_watch = &self.list_watch;
        let options = protocol::ReflectorOptions {
            streaming: list_watch.read.streaming,
            page_len: list_watch.read.page_len,
            start_from: None,
            initial: list_watch.read.initial,
        };
        let spec = ReadSpec {
            collection: list_watch.read.collection.clone(),
            fields: FieldTable::default(),
            encoding: crate::resource::Encoding::Json,
            metadata_only: list_watch.read.metadata_only,
            accepts_catch_up: true,
            frame_len_max: FRAME_LEN_MAX,
            silence_max: SILENCE_MAX,
        };
        let reflector = protocol::ReflectorMachine::new(options)
            .with_backoff(Backoff::new())
            .never_giving_up();
        Driver::new(self.fetch, spec, reflector, sink, recorder)
            .run()
            .await
    }
}

impl<T, F> fmt::Debug for Reflector<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reflector")
            .field("list_watch", &self.list_watch)
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
