//! Seeded runs against a model of an API server that cuts connections, refuses requests, compacts its history, and deletes and
//! recreates objects.

use super::*;
use crate::upstream::driver::samples::simulation::{Model, Server, Shared};
use crate::{DecodeError, Delta};

const WRITES: usize = 250;

/// An object without content: [`Cached`] holds all that the test needs.
struct Plain;

/// One version in seven cannot be decoded.
const fn is_odd(version: u64) -> bool {
    version.is_multiple_of(7)
}

fn plain(pages: bool) -> ListWatch<Plain> {
    let raw = ListWatch::raw(&Gvr::new("", "v1", "configmaps"));
    let raw = if pages { raw.in_pages(2) } else { raw };
    ListWatch {
        read: raw.read,
        decode: Arc::new(|object| {
            let object: Metadata = object.read()?;
            let version = object.metadata.resource_version.unwrap_or_default();
            if is_odd(version.parse().unwrap()) {
                let error = serde_json::from_str::<u8>("{}").unwrap_err();
                return Err(DecodeError::new(error));
            }
            Ok(Plain)
        }),
    }
}

/// Pops the queue into a store at its own pace.
struct Consumer {
    queue: Arc<DeltaFifo<Cached<Plain>>>,
    store: Arc<Indexer<Cached<Plain>>>,
    seed: u64,
}

impl Consumer {
    fn new(seed: u64) -> Self {
        let store = Arc::new(Indexer::new(cached_key()));
        let known = Arc::clone(&store) as Arc<dyn KnownObjects<Cached<Plain>>>;
        let queue = Arc::new(DeltaFifo::bounded(cached_key(), known, 8));
        Self { queue, store, seed }
    }

    fn take(&self, count: usize) {
        for _ in 0..count {
            let popped = self.queue.pop(|_, deltas, _| {
                deltas.iter().for_each(|delta| self.apply(delta));
                Ok::<_, ()>(())
            });
            if popped.is_none() {
                return;
            }
        }
    }

    /// Applies a delta. It must not go back to an older version, and must not delete an object that is not stored.
    fn apply(&self, delta: &Delta<Cached<Plain>>) {
        let object = delta.subject.object().unwrap();
        let (key, version) = (object.key(), object.resource_version());
        let held = KnownObjects::object(&*self.store, key);
        let held = held.map(|held| held.resource_version());
        let seed = self.seed;
        if delta.kind == DeltaKind::Deleted {
            assert!(
                held <= Some(version),
                "seed {seed}: {key} {version}, held {held:?}"
            );
            self.store.remove(key);
        } else {
            let is_repeated = delta.kind == DeltaKind::Replaced && held == Some(version);
            assert!(
                is_repeated || held < Some(version),
                "seed {seed}: {:?} {key} {version}, held {held:?}",
                delta.kind
            );
            self.store.put(Arc::clone(object)).unwrap();
        }
    }

    /// Decodable objects are stored in upstream's state; the others in an older state, or not at all.
    fn check(&self, model: &Shared) {
        let seed = self.seed;
        let expected = model.lock().unwrap().state_at(u64::MAX);
        for key in KnownObjects::keys(&*self.store) {
            assert!(
                expected.contains_key(key.as_str()),
                "seed {seed}: {key} is gone"
            );
        }
        for (key, sample) in &expected {
            let held = self.store.object(key).map(|held| held.resource_version().0);
            if is_odd(sample.version) {
                assert!(held < Some(sample.version), "seed {seed}: {key}");
            } else {
                assert_eq!(held, Some(sample.version), "seed {seed}: {key}");
            }
        }
    }
}

/// Returns the number of relists because of expired history, and the number of objects that could not be decoded.
async fn run(seed: u64, pages: bool) -> (u64, u64) {
    let model: Shared = Arc::new(Mutex::new(Model::new(seed)));
    let consumer = Consumer::new(seed);
    let server = Server(Arc::clone(&model));
    let reflector = Reflector::new(Arc::new(server), plain(pages)).on_failure(Arc::new(|_| {}));
    let counts = reflector.counts().clone();
    let task = tokio::spawn(reflector.run_into(Arc::clone(&consumer.queue)));
    for at in 0..WRITES {
        let (wait, take) = {
            let mut model = model.lock().unwrap();
            model.write();
            model.calm = at >= WRITES * 4 / 5;
            let wait = if model.dice.once_in(10) { 20_000 } else { 300 };
            (wait, model.dice.below(5))
        };
        tokio::time::sleep(Duration::from_millis(wait)).await;
        consumer.take(usize::try_from(take).unwrap());
    }
    // Each pause is longer than the longest back-off; twenty rounds are enough to read everything through the full queue.
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_secs(70)).await;
        consumer.take(usize::MAX);
    }
    consumer.check(&model);
    consumer.queue.close();
    task.await.unwrap();
    let counts = counts.snapshot();
    (
        counts.relists(RelistReason::Expired),
        counts.failures(FailureKind::Undecodable),
    )
}

#[tokio::test(start_paused = true)]
async fn after_quiet_the_store_holds_what_the_server_holds_and_its_history_makes_sense() {
    let mut seen = (0, 0);
    for seed in 0..30 {
        for pages in [false, true] {
            let (relists, odd) = run(seed, pages).await;
            seen = (seen.0 + relists, seen.1 + odd);
        }
    }
    assert!(seen.0 > 50 && seen.1 > 500, "{seen:?}");
}
