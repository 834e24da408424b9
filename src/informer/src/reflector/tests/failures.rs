//! The rows in which upstream fails, for an informer: it gets the truth in as many seconds as the gateway, and nobody warns its program.

use super::*;
use crate::resource::replay_random;
use crate::upstream::driver::samples::failures::{
    Reader, SEED_COUNT, Upstream, fail, rows, upstream,
};

/// A reflector whose queue is popped into a store each time something is asked.
struct Informer {
    queue: Arc<DeltaFifo<Cached<Raw>>>,
    store: Arc<Indexer<Cached<Raw>>>,
    task: JoinHandle<()>,
}

impl Informer {
    fn new(upstream: &Arc<Upstream>) -> Self {
        let store = Arc::new(Indexer::new(cached_key()));
        let known: Arc<Indexer<Cached<Raw>>> = Arc::clone(&store);
        let queue = Arc::new(DeltaFifo::new(cached_key(), known));
        let config_maps = ListWatch::raw(&Gvr::new("", "v1", "configmaps"));
        let reflector = Reflector::new(Arc::new(Arc::clone(upstream)), config_maps);
        let task = tokio::spawn(reflector.run_into(Arc::clone(&queue)));
        Self { queue, store, task }
    }
}

impl Reader for Informer {
    fn objects(&self) -> Option<BTreeMap<String, u64>> {
        while let Some(popped) = self.queue.pop(|_, deltas, _| {
            for delta in deltas {
                let object = delta.subject.object().unwrap();
                if delta.kind == DeltaKind::Deleted {
                    self.store.remove(object.key());
                } else {
                    self.store.put(Arc::clone(object)).unwrap();
                }
            }
            Ok::<_, ()>(())
        }) {
            popped.unwrap();
        }
        let keys = KnownObjects::keys(&*self.store);
        let version = |key| {
            KnownObjects::object(&*self.store, key)
                .unwrap()
                .resource_version()
        };
        Some(
            keys.iter()
                .map(|key| (key.to_string(), version(key).0))
                .collect(),
        )
    }

    fn age(&self) -> Option<Duration> {
        None
    }
}

#[tokio::test(start_paused = true)]
async fn however_upstream_fails_an_informer_has_the_truth_within_two_minutes() {
    for row in rows() {
        for seed in 0..SEED_COUNT {
            replay_random(seed);
            let upstream = upstream();
            let informer = Informer::new(&upstream);
            tokio::time::sleep(Duration::from_secs(5)).await;
            let seconds = fail(&upstream, &informer, &row).await;
            println!("informer | {} | {seconds:?}", row.name);
            informer.task.abort();
        }
    }
}
