//! Watches delivered to clients over streams in memory.

mod model;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::*;
use crate::auth::lease::{Lease, LeaseHold};
use crate::cache::samples::{World, kind, told};
use crate::metrics::{Metrics, WatchEnd};
use crate::resource::{CacheKey, Gvr, Layout, ResourceVersion};
use crate::selector::Selector;
use crate::view::{EndSchedule, Hub, ServedResource, ViewSubscription};
use crate::watch::{
    Start, Timing, WatchClient, WatchRecall, WatchRecorder, WatchTable, WatchTotals,
};

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\n\r\n";
const WIDE: usize = 1 << 20;
const HOUR: Duration = Duration::from_secs(3600);

#[derive(Debug, Default)]
struct Tally {
    events: AtomicU64,
    delays: AtomicU64,
    /// The next recorded event panics.
    is_broken: AtomicBool,
    /// How long recording takes.
    slowness: Mutex<Duration>,
    ends: Mutex<Vec<WatchTotals>>,
    ended: tokio::sync::Notify,
}

impl WatchRecorder for Tally {
    fn delivered(&self, events: u64, _: u64) {
        let is_broken = events > 0 && self.is_broken.swap(false, Ordering::Relaxed);
        assert!(!is_broken, "planted by a test");
        self.events.fetch_add(events, Ordering::Relaxed);
        #[expect(clippy::disallowed_methods, reason = "makes a pass long")]
        std::thread::sleep(*self.slowness.lock());
    }

    fn delayed(&self, _: Duration, clients: u64) {
        self.delays.fetch_add(clients, Ordering::Relaxed);
    }

    fn ended(&self, totals: WatchTotals) {
        self.ends.lock().push(totals);
        self.ended.notify_one();
    }
}

impl Tally {
    async fn end(&self) -> WatchTotals {
        loop {
            if let Some(end) = self.ends.lock().pop() {
                return end;
            }
            self.ended.notified().await;
        }
    }
}

struct Scene {
    world: World,
    served: ServedResource,
    delivery: Delivery,
    ends: ByLabel<TaskKind>,
    recorder: Arc<Tally>,
}

/// A client, and the task that waits for its connection to be returned.
struct Client {
    stream: DuplexStream,
    watch: JoinHandle<Option<Transport>>,
    /// Bytes read but not parsed yet.
    bytes: Vec<u8>,
    has_head: bool,
    is_over: bool,
}

impl Scene {
    fn new(events_max: usize, workers: usize) -> Self {
        let hub = Arc::new(Hub::new(&kind(Layout::Typed)));
        let world = World::new(7, events_max, Arc::clone(&hub) as _);
        let cache = Arc::clone(world.writer.cache());
        let ends = Metrics::new().unwrap().task_ends();
        Self {
            world,
            served: ServedResource { cache, hub },
            delivery: Delivery::start(workers, Some(&ends)),
            ends,
            recorder: Arc::default(),
        }
    }

    /// A client of all events from now on; its connection holds `room` bytes.
    fn client(&self, room: usize, timeout: Duration) -> Client {
        let entry = self.served.hub.join(&Selector::default());
        self.enter(entry, room, timeout)
    }

    /// A client that joined its view earlier.
    fn enter(&self, entry: ViewSubscription, room: usize, timeout: Duration) -> Client {
        self.enter_leased(entry, room, timeout, None)
    }

    /// A client of all events from now on, until its permission is revoked.
    fn leased(&self, lease: &Lease, room: usize) -> Client {
        let entry = self.served.hub.join(&Selector::default());
        self.enter_leased(entry, room, HOUR, Some(lease.hold()))
    }

    /// A client of all events from now on, until its connection is recalled.
    fn recalled_by(&self, recall: &WatchRecall) -> Client {
        let entry = self.served.hub.join(&Selector::default());
        let mut watch = self.watch(entry, HOUR, None);
        watch.follow(recall);
        self.deliver(watch, 1 << 16)
    }

    fn enter_leased(
        &self,
        entry: ViewSubscription,
        room: usize,
        timeout: Duration,
        lease: Option<LeaseHold>,
    ) -> Client {
        self.deliver(self.watch(entry, timeout, lease), room)
    }

    fn watch(&self, entry: ViewSubscription, timeout: Duration, lease: Option<LeaseHold>) -> Watch {
        let version = ResourceVersion(entry.reached.version.0.max(10));
        let sequence = self.served.cache.resume_after(version).unwrap();
        let timing = Timing {
            started: Instant::now(),
            timeout,
            bookmarks: true,
        };
        let start = Start::After { sequence, version };
        let recorder = Arc::clone(&self.recorder) as _;
        Watch::new(self.served.clone(), entry, start, timing, recorder).leased(lease)
    }

    fn deliver(&self, watch: Watch, room: usize) -> Client {
        let (stream, server) = tokio::io::duplex(room);
        let delivery = self.delivery.clone();
        Client {
            stream,
            watch: tokio::spawn(async move {
                let head = Bytes::from_static(HEAD);
                delivery.deliver(server.into(), head, Box::new(watch)).await
            }),
            bytes: Vec::new(),
            has_head: false,
            is_over: false,
        }
    }

    fn put(&mut self, key: &str) {
        let change = self.world.write(key, None);
        self.world.apply(vec![change]);
    }

    fn told_since(&self, version: u64) -> Vec<String> {
        self.world.told(version, |_| true)
    }
}

impl Client {
    /// Reads once; false if the server has closed the connection.
    async fn read(&mut self) -> bool {
        self.stream.read_buf(&mut self.bytes).await.unwrap() > 0
    }

    /// The lines of all complete chunks so far.
    fn lines(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        if !self.has_head && self.bytes.starts_with(HEAD) {
            self.bytes.drain(..HEAD.len());
            self.has_head = true;
        }
        while self.has_head && !self.is_over {
            let Some(end) = self.bytes.windows(2).position(|two| two == b"\r\n") else {
                break;
            };
            let len = std::str::from_utf8(&self.bytes[..end]).unwrap();
            let len = usize::from_str_radix(len, 16).unwrap();
            let (from, to) = (end + 2, end + 2 + len);
            if self.bytes.len() < to + 2 {
                break;
            }
            assert_eq!(&self.bytes[to..to + 2], b"\r\n", "a chunk ends with CRLF");
            lines.extend(told(&self.bytes[from..to]));
            self.is_over = len == 0;
            self.bytes.drain(..to + 2);
        }
        lines
    }

    /// Reads until there are `count` lines.
    async fn read_lines(&mut self, count: usize) -> Vec<String> {
        let mut lines = self.lines();
        while lines.len() < count {
            assert!(self.read().await, "closed after {lines:?}");
            lines.extend(self.lines());
        }
        lines
    }

    /// Reads until the last chunk.
    async fn read_to_end(&mut self) -> Vec<String> {
        let mut lines = self.lines();
        while !self.is_over {
            assert!(self.read().await, "cut after {lines:?}");
            lines.extend(self.lines());
        }
        lines
    }
}

#[tokio::test(start_paused = true)]
async fn scheduled_ends_come_one_after_the_other_each_after_a_bookmark() {
    const CLIENTS: usize = 9;
    /// Turns of the workers and the readers, in which they do all that they can.
    const YIELDS: usize = 50;
    let mut scene = Scene::new(WIDE, 2);
    let start_version = scene.world.version;
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| scene.client(1 << 16, HOUR)).collect();
    for client in &mut clients {
        client.read().await;
    }
    let begin = Instant::now();
    let schedule = EndSchedule::new(begin.into_std(), Duration::from_secs(10), 0.05);
    scene.served.hub.schedule_end(&Arc::new(schedule));
    let ends = Arc::<Mutex<Vec<u64>>>::default();
    let readers: Vec<_> = clients
        .into_iter()
        .map(|mut client| {
            let ends = Arc::clone(&ends);
            tokio::spawn(async move {
                let lines = client.read_to_end().await;
                ends.lock().push(begin.elapsed().as_secs());
                lines
            })
        })
        .collect();
    while ends.lock().len() < CLIENTS {
        scene.put("a/x");
        tokio::time::advance(Duration::from_millis(100)).await;
        // Each event reaches its clients before the next one is written.
        for _ in 0..YIELDS {
            tokio::task::yield_now().await;
        }
    }
    let told = scene.told_since(start_version);
    for reader in readers {
        let mut lines = reader.await.unwrap();
        let bookmark = lines.pop().unwrap();
        assert!(!lines.is_empty() && told.starts_with(&lines));
        let version = lines.last().unwrap().split(' ').nth(2).unwrap();
        assert_eq!(bookmark, format!("BOOKMARK {version}"));
    }
    let mut ends = Arc::into_inner(ends).unwrap().into_inner();
    ends.dedup();
    assert!(ends.len() >= 7, "{ends:?}");
    for _ in 0..CLIENTS {
        assert_eq!(scene.recorder.end().await.end, WatchEnd::CacheGone);
    }
}

#[tokio::test(start_paused = true)]
async fn a_recalled_client_gets_the_last_events_and_a_bookmark_and_others_stay() {
    let mut scene = Scene::new(WIDE, 1);
    let recall = WatchRecall::default();
    let mut recalled = scene.recalled_by(&recall);
    let mut other = scene.client(1 << 16, HOUR);
    for client in [&mut recalled, &mut other] {
        client.read().await;
    }
    scene.put("a/x");
    assert_eq!(recalled.read_lines(1).await, other.read_lines(1).await);
    recall.begin();
    scene.put("a/y");
    let line = other.read_lines(1).await.remove(0);
    let version = line.split(' ').nth(2).unwrap();
    let bookmark = format!("BOOKMARK {version}");
    assert_eq!(recalled.read_to_end().await, [line.clone(), bookmark]);
    assert_eq!(scene.recorder.end().await.end, WatchEnd::Rebalance);
    assert!(
        recalled.watch.await.unwrap().is_some(),
        "the connection is whole"
    );
    scene.put("a/z");
    assert_eq!(other.read_lines(1).await.len(), 1);
}

#[tokio::test]
async fn clients_of_one_view_all_get_everything_once() {
    let mut scene = Scene::new(WIDE, 2);
    let start_version = scene.world.version;
    let mut clients: Vec<_> = (0..9).map(|_| scene.client(1 << 16, HOUR)).collect();
    for client in &mut clients {
        client.read().await;
        assert_eq!((client.lines().len(), client.has_head), (0, true));
    }
    for round in 0..5 {
        (0..=round).for_each(|n| scene.put(&format!("a/{n}")));
        for client in &mut clients {
            client.read_lines(round + 1).await;
        }
    }
    scene.put("a/last");
    let expected = scene.told_since(start_version);
    for client in &mut clients {
        assert_eq!(client.read_lines(1).await, expected[expected.len() - 1..]);
    }
    scene.served.hub.close();
    for client in &mut clients {
        assert!(client.read_to_end().await.is_empty());
    }
    let sum = clients.len() as u64 * expected.len() as u64;
    assert_eq!(scene.recorder.events.load(Ordering::Relaxed), sum);
    assert!(scene.recorder.delays.load(Ordering::Relaxed) >= clients.len() as u64);
}

#[tokio::test]
async fn a_client_that_does_not_read_delays_no_other_and_continues_later() {
    let mut scene = Scene::new(WIDE, 1);
    let start_version = scene.world.version;
    let (mut slow, mut quick) = (scene.client(64, HOUR), scene.client(1 << 16, HOUR));
    quick.read().await;
    for _ in 0..200 {
        scene.put("a/1");
        quick.read_lines(1).await;
    }
    assert_eq!(slow.read_lines(200).await, scene.told_since(start_version));
    // It has caught up and is served with its group again.
    let before = scene.world.version;
    scene.put("a/2");
    assert_eq!(slow.read_lines(1).await, scene.told_since(before));
    assert_eq!(quick.read_lines(1).await, scene.told_since(before));
}

#[tokio::test]
async fn a_chunk_is_unread_until_the_connection_has_taken_all_of_it() {
    let mut scene = Scene::new(WIDE, 1);
    let key = CacheKey::json(&Gvr::new("", "v1", "pods"));
    let table = Arc::new(WatchTable::new(key, Arc::default(), Arc::default()));
    let unread = || {
        let mut found = None;
        table.visit(|watch| found = watch.unread.map(|event| event.sequence));
        found
    };
    let entry = scene.served.hub.join(&Selector::default());
    let mut watch = scene.watch(entry, HOUR, None);
    watch.enter(
        &table,
        WatchClient::new("jane", "curl", [10, 0, 0, 1].into()),
    );
    let mut slow = scene.deliver(watch, 64);
    slow.read().await;
    // Behind the slow one in the group, so what it has, the slow one was offered.
    let mut quick = scene.client(1 << 16, HOUR);
    quick.read().await;
    let first = scene.served.cache.history().head();
    for _ in 0..2 {
        scene.put("a/1");
        quick.read_lines(1).await;
        assert_eq!(unread(), Some(first));
    }
    assert_eq!(slow.read_lines(2).await.len(), 2);
    assert_eq!(unread(), None);
}

/// Nothing happens after the last write, so a client that lacks an event then would never get it.
#[tokio::test(start_paused = true)]
async fn objects_larger_than_one_write_all_arrive_without_a_later_event() {
    for (count, data_len) in [(2, 70_000), (20, 20_000), (2, 1 << 20)] {
        let mut scene = Scene::new(WIDE, 1);
        let start_version = scene.world.version;
        let mut clients: Vec<_> = (0..100).map(|_| scene.client(4 << 20, HOUR)).collect();
        for client in &mut clients {
            client.read().await;
        }
        scene.world.data_len = data_len;
        (0..count).for_each(|_| scene.put("a/1"));
        let expected = scene.told_since(start_version);
        for client in &mut clients {
            // Time is paused, so a second passes only when nothing else can happen.
            let lines = tokio::time::timeout(Duration::from_secs(1), client.read_lines(count));
            let lines = lines
                .await
                .expect("all events must arrive without a later one");
            assert_eq!(lines, expected, "{count} objects of {data_len} bytes");
        }
    }
}

/// Nothing happens after the last write: what waits for the end of a pause comes without another event.
#[tokio::test]
async fn an_event_after_a_long_pass_comes_after_a_pause() {
    let mut scene = Scene::new(WIDE, 1);
    let mut clients: Vec<_> = (0..9).map(|_| scene.client(1 << 16, HOUR)).collect();
    for client in &mut clients {
        client.read().await;
    }
    let pass = Duration::from_millis(5);
    let begin = Instant::now();
    // Each is written in a pass, and only the first pass takes this long.
    for (key, slowness) in [("a/1", pass), ("a/2", Duration::ZERO)] {
        *scene.recorder.slowness.lock() = slowness;
        scene.put(key);
        for client in &mut clients {
            client.read_lines(1).await;
        }
    }
    // A timer is never early.
    assert!(begin.elapsed() >= 2 * pass);
}

#[tokio::test]
async fn a_client_too_far_behind_gets_410_and_keeps_its_connection() {
    let mut scene = Scene::new(64, 1);
    let mut slow = scene.client(64, HOUR);
    slow.read().await;
    (0..3000).for_each(|_| scene.put("a/1"));
    let lines = slow.read_to_end().await;
    assert!(lines.last().unwrap().starts_with("ERROR"), "{lines:?}");
    assert!(slow.watch.await.unwrap().is_some());
    assert_eq!(scene.recorder.end().await.end, WatchEnd::Lagged);
}

#[tokio::test]
async fn a_client_of_a_replaced_history_gets_410_and_keeps_its_connection() {
    let mut scene = Scene::new(WIDE, 1);
    let start_version = scene.world.version;
    let mut client = scene.client(1 << 16, HOUR);
    client.read().await;
    scene.put("a/1");
    scene.served.hub.expire();
    let mut expected = scene.told_since(start_version);
    expected.push("ERROR 410".to_owned());
    assert_eq!(client.read_to_end().await, expected);
    assert!(client.watch.await.unwrap().is_some());
    assert_eq!(scene.recorder.end().await.end, WatchEnd::CacheGone);
}

#[tokio::test]
async fn the_connection_is_returned_with_bytes_received_meanwhile() {
    let scene = Scene::new(WIDE, 1);
    let mut client = scene.client(1 << 16, HOUR);
    client.read().await;
    client.stream.write_all(b"GET /next").await.unwrap();
    tokio::task::yield_now().await;
    scene.served.hub.close();
    client.read_to_end().await;
    let mut back = client.watch.await.unwrap().unwrap();
    client.stream.write_all(b" HTTP/1.1").await.unwrap();
    let mut said = [0; 18];
    back.read_exact(&mut said).await.unwrap();
    assert_eq!(&said, b"GET /next HTTP/1.1");
}

#[tokio::test]
async fn a_client_that_leaves_ends_its_watch_and_no_other() {
    let mut scene = Scene::new(WIDE, 1);
    let [leaves, mut stays] = [0; 2].map(|_| scene.client(1 << 16, HOUR));
    stays.read().await;
    let Client { stream, watch, .. } = leaves;
    drop(stream);
    assert!(watch.await.unwrap().is_none());
    assert_eq!(scene.recorder.end().await.end, WatchEnd::ClientGone);
    scene.put("a/1");
    assert_eq!(stays.read_lines(1).await.len(), 1);
}

#[tokio::test]
async fn a_delivery_that_is_given_up_closes_the_connection() {
    let scene = Scene::new(WIDE, 1);
    let mut client = scene.client(1 << 16, HOUR);
    client.read().await;
    client.watch.abort();
    while client.read().await {}
    assert_eq!(scene.recorder.end().await.end, WatchEnd::ClientGone);
}

#[tokio::test]
async fn a_panic_ends_one_connection_and_no_other() {
    let mut scene = Scene::new(WIDE, 1);
    let mut stays = scene.client(1 << 16, HOUR);
    stays.read().await;
    // The client joined before this event, so it reads by itself.
    let broken = {
        let entry = scene.served.hub.join(&Selector::default());
        scene.put("a/1");
        stays.read_lines(1).await;
        scene.recorder.is_broken.store(true, Ordering::Relaxed);
        scene.enter(entry, 1 << 16, HOUR)
    };
    assert!(broken.watch.await.unwrap().is_none());
    scene.put("a/2");
    assert_eq!(stays.read_lines(1).await.len(), 1);
}

#[tokio::test]
async fn a_worker_that_panics_is_replaced_and_its_streams_are_cut() {
    let mut scene = Scene::new(WIDE, 1);
    let mut clients = [0; 2].map(|_| scene.client(1 << 16, HOUR));
    for client in &mut clients {
        client.read().await;
    }
    // Shared chunks are recorded by the worker itself, outside of any stream.
    scene.recorder.is_broken.store(true, Ordering::Relaxed);
    scene.put("a/1");
    for mut client in clients {
        while client.read().await {}
        assert!(client.watch.await.unwrap().is_none());
    }
    assert_eq!(scene.ends.count(TaskKind::DeliveryWorker), 1);
    let mut next = scene.client(1 << 16, HOUR);
    next.read().await;
    scene.put("a/2");
    assert_eq!(next.read_lines(1).await.len(), 1);
    assert_eq!(scene.ends.count(TaskKind::DeliveryWorker), 1);
}

#[tokio::test]
async fn views_and_groups_are_dropped_with_the_last_client() {
    let mut scene = Scene::new(WIDE, 1);
    for _ in 0..3 {
        let client = scene.client(1 << 16, HOUR);
        drop(client.stream);
        client.watch.await.unwrap();
    }
    assert!(!scene.served.hub.is_watched());
    let mut client = scene.client(1 << 16, HOUR);
    client.read().await;
    scene.put("a/1");
    assert_eq!(client.read_lines(1).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn bookmarks_come_in_quiet_times_and_the_deadline_ends_the_watch() {
    let mut scene = Scene::new(WIDE, 1);
    let mut client = scene.client(1 << 16, Duration::from_secs(150));
    client.read().await;
    let version = scene.world.version + 10;
    scene.world.version = version;
    let now = scene.world.now;
    scene.world.writer.progress(ResourceVersion(version), now);
    let started = Instant::now();
    let lines = client.read_to_end().await;
    assert!(started.elapsed() >= Duration::from_secs(149), "{lines:?}");
    let is_bookmark = |line: &String| line.starts_with("BOOKMARK");
    assert!(
        !lines.is_empty() && lines.iter().all(is_bookmark),
        "{lines:?}"
    );
    assert_eq!(scene.recorder.end().await.end, WatchEnd::Timeout);
    assert!(client.watch.await.unwrap().is_some());
}

#[tokio::test]
async fn a_revoked_watch_ends_with_its_last_chunk_and_the_others_go_on() {
    let mut scene = Scene::new(WIDE, 1);
    let lease = Lease::new();
    let mut stays = scene.client(1 << 16, HOUR);
    let mut leaves = scene.leased(&lease, 1 << 16);
    // This client does not read. Data being written is completed when it does, and nothing follows.
    let mut blocked = scene.leased(&lease, 64);
    let start_version = scene.world.version;
    for client in [&mut stays, &mut leaves, &mut blocked] {
        client.read().await;
    }
    for _ in 0..100 {
        scene.put("a/1");
        stays.read_lines(1).await;
        leaves.read_lines(1).await;
    }
    lease.revoke();
    scene.put("a/2");
    assert!(leaves.read_to_end().await.is_empty());
    assert!(leaves.watch.await.unwrap().is_some());
    let expected = scene.told_since(start_version);
    let lines = blocked.read_to_end().await;
    assert!(
        lines.len() < expected.len() && expected.starts_with(&lines),
        "{lines:?}"
    );
    assert!(blocked.watch.await.unwrap().is_some());
    for _ in 0..2 {
        assert_eq!(scene.recorder.end().await.end, WatchEnd::Revoked);
    }
    assert_eq!(lease.stream_count(), 0);
    assert_eq!(stays.read_lines(1).await, expected[expected.len() - 1..]);
}

#[tokio::test]
async fn a_watch_that_is_revoked_before_it_begins_has_an_empty_body() {
    let mut scene = Scene::new(WIDE, 1);
    let lease = Lease::new();
    lease.revoke();
    let mut client = scene.leased(&lease, 1 << 16);
    scene.put("a/1");
    assert!(client.read_to_end().await.is_empty());
    assert_eq!(scene.recorder.end().await.end, WatchEnd::Revoked);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Clients with small buffers that read now and then, or not for a while, while the history advances.
    #[test]
    fn whoever_reads_whenever_sees_the_history_exactly(
        steps in proptest::collection::vec((0_usize..5, 1_usize..400), 1..60),
        rooms in proptest::collection::vec(1_usize..5_000, 1..6),
        workers in 1_usize..3,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut scene = Scene::new(WIDE, workers);
            let mut clients = Vec::new();
            let read = AtomicUsize::new(0);
            for (index, len) in steps {
                if let Some(room) = rooms.get(clients.len()) {
                    clients.push((scene.world.version, scene.client(*room, HOUR), Vec::new()));
                }
                (0..len % 7).for_each(|_| scene.world.step());
                if let Some((_, client, lines)) = clients.get_mut(index) {
                    let mut some = vec![0; len];
                    // Wait until the worker has nothing to do: time is paused.
                    let read_result = tokio::time::timeout(Duration::from_millis(1), client.stream.read(&mut some)).await;
                    if let Ok(Ok(len)) = read_result {
                        client.bytes.extend_from_slice(&some[..len]);
                        lines.extend(client.lines());
                        read.fetch_add(len, Ordering::Relaxed);
                    }
                }
            }
            scene.served.hub.close();
            for (version, client, lines) in &mut clients {
                lines.extend(client.read_to_end().await);
                lines.retain(|line| !line.starts_with("BOOKMARK"));
                assert_eq!(*lines, scene.told_since(*version));
            }
        });
    }
}
