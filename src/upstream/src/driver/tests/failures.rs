//! A cache of the gateway while upstream fails in every way.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::*;
use crate::driver::samples::failures::{
    Reader, SEED_COUNT, STALE_AFTER, Upstream, fail, rows, upstream,
};
use crate::resource::replay_random;

/// When upstream last proved the state of a cache.
#[derive(Debug)]
struct Proofs(Mutex<Instant>);

impl DriverRecorder for Proofs {
    fn proven(&self) {
        *self.0.lock().unwrap() = Instant::now();
    }
}

/// A cache of the gateway. If its driver stops, requests are forwarded.
struct Gateway {
    cache: Arc<crate::cache::WatchCache>,
    proofs: Arc<Proofs>,
    driver: JoinHandle<DriverEnd>,
}

impl Gateway {
    fn new(upstream: &Arc<Upstream>) -> Self {
        let hub = Arc::new(Hub::new(&kind(Layout::Typed)));
        let writer = CacheWriter::new(kind(Layout::Typed), keep(1000), hub);
        let cache = Arc::clone(writer.cache());
        let proofs = Arc::new(Proofs(Mutex::new(Instant::now())));
        let sink = CacheSink::new(writer, Duration::from_millis(5), Arc::new(()));
        let reflector = ReflectorMachine::new(options(StreamingLists::Preferred))
            .with_backoff(Backoff::brisk())
            .giving_up();
        let spec = ReadSpec::all(&cache.kind().gvr, 1 << 20);
        let fetch = Arc::new(Arc::clone(upstream));
        let driver = Driver::new(fetch, spec, reflector, sink, Arc::clone(&proofs) as _);
        Self {
            cache,
            proofs,
            driver: tokio::spawn(driver.run()),
        }
    }
}

impl Reader for Gateway {
    fn objects(&self) -> Option<BTreeMap<String, u64>> {
        if self.driver.is_finished() {
            return None;
        }
        let snapshot = self.cache.snapshot()?;
        Some(
            snapshot
                .objects
                .iter()
                .map(|object| (object.key().to_string(), object.resource_version().0))
                .collect(),
        )
    }

    fn age(&self) -> Option<Duration> {
        Some(self.proofs.0.lock().unwrap().elapsed())
    }
}

#[tokio::test(start_paused = true)]
async fn however_upstream_fails_clients_of_the_gateway_have_the_truth_or_a_warning() {
    for row in rows() {
        for seed in 0..SEED_COUNT {
            replay_random(seed);
            let upstream = upstream();
            let gateway = Gateway::new(&upstream);
            tokio::time::sleep(Duration::from_secs(5)).await;
            let seconds = fail(&upstream, &gateway, &row).await;
            let end = match gateway.driver.is_finished() {
                true => "forwarded",
                false => "served",
            };
            println!("gateway | {} | {seconds:?} | {end}", row.name);
            gateway.driver.abort();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_quiet_upstream_without_bookmarks_gives_no_warning_and_is_not_listed() {
    let upstream = upstream();
    let gateway = Gateway::new(&upstream);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let before = upstream.requests();
    for _ in 0..600 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(gateway.age().unwrap() < Duration::from_secs(STALE_AFTER));
    }
    // One small list each time, and a watch or two that ended at their time.
    assert!(upstream.requests() - before < 20);
}
