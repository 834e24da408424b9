//! Watches of a cache that a driver fills from an API server that breaks streams, refuses requests, compacts its history, and deletes and
//! recreates objects.
//!
//! A failure names its seed, and the seed replays it, because only seeded random numbers and a paused clock decide.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Buf;
use http_body::Body;
use tokio::time::Instant as Moment;

use crate::cache::CacheWriter;
use crate::cache::samples::{keep, kind, told};
use crate::resource::Layout;
use crate::selector::Selector;
use crate::upstream::backoff::Backoff;
use crate::upstream::cache_sink::CacheSink;
use crate::upstream::driver::samples::simulation::{Model, Server};
use crate::upstream::driver::{Driver, DriverRecorder, ReadSpec};
use crate::upstream::reflector::{
    InitialVersion, ReflectorMachine, ReflectorOptions, RelistReason, StreamingLists,
};
use crate::view::{Hub, Marker, ServedResource};
use crate::watch::{Start, Timing, Watch};

/// Number of writes. During the last fifth of them there are no faults.
const WRITES: usize = 250;

/// A client of the cache. It keeps the state that its watch has delivered, and never lists again.
struct Client {
    body: Watch,
    state: BTreeMap<String, u64>,
    version: u64,
}

impl Client {
    fn new(served: &ServedResource) -> Self {
        let entry = served.hub.join(&Selector::default());
        let snapshot = served.cache.snapshot().unwrap();
        let version = snapshot.resource_version;
        let start = Start::Initial {
            snapshot,
            version,
            marker: Marker::InitialEventsEnd,
        };
        let timing = Timing {
            started: Moment::now(),
            timeout: Duration::from_secs(1 << 30),
            bookmarks: true,
        };
        Self {
            body: Watch::new(served.clone(), entry, start, timing, Arc::new(())),
            state: BTreeMap::new(),
            version: 0,
        }
    }

    fn read(&mut self, seed: u64) {
        let mut context = Context::from_waker(Waker::noop());
        while let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(&mut context) {
            let mut pieces = frame
                .expect("the stream stays open")
                .unwrap()
                .into_data()
                .unwrap();
            for line in told(&pieces.copy_to_bytes(pieces.remaining())) {
                self.apply(&line, seed);
            }
        }
    }

    fn apply(&mut self, line: &str, seed: u64) {
        let words: Vec<_> = line.split(' ').collect();
        if let ["BOOKMARK" | "MARKER", version] = words[..] {
            let version = version.parse().unwrap();
            assert!(
                version >= self.version,
                "seed {seed}: {line} after {}",
                self.version
            );
            self.version = version;
            return;
        }
        let version: u64 = words[2].parse().unwrap();
        let held = match words[0] {
            "DELETED" => self.state.remove(words[1]).is_some(),
            _ => self.state.insert(words[1].into(), version).is_some(),
        };
        assert_eq!(held, words[0] != "ADDED", "seed {seed}: {line}");
        // Initial events come in key order.
        assert!(
            self.version == 0 || version > self.version,
            "seed {seed}: {line} after {}",
            self.version
        );
        if self.version > 0 {
            self.version = version;
        }
    }
}

/// Lets time pass: the paused clock moves on while all tasks wait, so that the driver's back-off ends.
async fn pass(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

/// Counts the relists after a lost history.
#[derive(Debug, Default)]
struct Expiries(AtomicUsize);

impl DriverRecorder for Expiries {
    fn relisted(&self, reason: RelistReason) {
        let is_expired = usize::from(reason == RelistReason::Expired);
        self.0.fetch_add(is_expired, Ordering::Relaxed);
    }
}

async fn run(seed: u64, streaming: StreamingLists) -> usize {
    let model = Arc::new(Mutex::new(Model::new(seed)));
    let hub = Arc::new(Hub::new(&kind(Layout::Typed)));
    let writer = CacheWriter::new(kind(Layout::Typed), keep(1 << 16), Arc::clone(&hub) as _);
    let cache = Arc::clone(writer.cache());
    let served = ServedResource { cache, hub };
    let expiries = Arc::new(Expiries::default());
    let reflector = ReflectorMachine::new(ReflectorOptions {
        streaming,
        page_len: 2,
        start_from: None,
        initial: InitialVersion::Latest,
    });
    let driver = Driver::new(
        Arc::new(Server(Arc::clone(&model))),
        ReadSpec::all(&served.cache.kind().gvr, 1_000),
        reflector.with_backoff(Backoff::brisk()),
        CacheSink::new(writer, Duration::from_millis(5), Arc::new(())),
        Arc::clone(&expiries) as _,
    );
    let driver = tokio::spawn(driver.run());
    while served.cache.snapshot().is_none() {
        pass(500).await;
    }
    let mut clients = vec![Client::new(&served)];
    for at in 0..WRITES {
        let wait = {
            let mut model = model.lock().unwrap();
            model.write();
            model.calm = at >= WRITES * 4 / 5;
            if model.dice.once_in(10) { 20_000 } else { 300 }
        };
        pass(wait).await;
        if at % 50 == 20 {
            clients.push(Client::new(&served));
        }
        let reads = |client: &usize| (at + client).is_multiple_of(1 + client * 7);
        for client in (0..clients.len()).filter(reads) {
            clients[client].read(seed);
        }
    }
    // Longer than the longest back-off.
    pass(100_000).await;
    driver.abort();
    let expected = model.lock().unwrap().state_at(u64::MAX);
    let expected: BTreeMap<_, _> = expected
        .into_iter()
        .map(|(key, sample)| (key, sample.version))
        .collect();
    let snapshot = served.cache.snapshot().unwrap();
    let held: BTreeMap<_, _> = snapshot
        .objects
        .iter()
        .map(|object| (object.key().to_string(), object.resource_version().0))
        .collect();
    assert_eq!(held, expected, "seed {seed}: the cache");
    for (at, client) in clients.iter_mut().enumerate() {
        client.read(seed);
        assert_eq!(client.state, expected, "seed {seed}: client {at}");
    }
    expiries.0.load(Ordering::Relaxed)
}

#[tokio::test(start_paused = true)]
async fn after_quiet_the_cache_and_its_followers_equal_upstream() {
    let mut relists = 0;
    for seed in 0..60 {
        relists += run(seed, StreamingLists::Preferred).await;
        relists += run(seed + 1000, StreamingLists::Never).await;
    }
    assert!(relists > 100, "only {relists} relists");
}
