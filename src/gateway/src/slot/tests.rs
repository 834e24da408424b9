//! Slots that fill caches from an embedded API server.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Request, Response};
use http_body_util::{Either, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use strum::VariantArray;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::history_loss::LOSS_AGE_MAX;
use super::sink::SlotSink;
use super::*;
use crate::cache::samples::keep;
use crate::cache::{CacheWriter, DispatchOutcome, Event, Observer, Sequence};
use crate::checkpoint::directory::StateDirectory;
use crate::checkpoints::Checkpoints;
use crate::drain_flag::DrainFlag;
use crate::metrics::{Contradiction, Metrics};
use crate::older_states::OlderStates;
use crate::pressure::{CutFollower, HistoryCuts, MemoryRoom};
use crate::resource::{CacheKey, Encoding, Gvr, ResourceVersion};
use crate::restored::WantedState;
use crate::upstream::cache_sink::CacheSink;
use crate::upstream::client::{Client, ConnectSource, RequestBody};
use crate::upstream::discovery::DiscoveredResource;
use crate::upstream::samples::captured_log::CapturedLog;
use crate::upstream::sink::Sink;
use crate::view::{Hub, ServedResource};
use crate::watch::WatchTable;
use kube_fanout_testkit::apiserver::faults::{Fault, FaultOrder};
use kube_fanout_testkit::apiserver::{self, Apiserver, Options};

const TIMEOUT: Duration = Duration::from_secs(30);

fn memory_max(parts: &SlotParts, max: usize) {
    parts.limits.live.update(|values| values.memory_max = max);
}

/// Panics when it dispatches an object of this name.
#[derive(Debug)]
pub(crate) struct Fragile(pub(crate) Arc<Hub>);

pub(crate) const FATAL: &str = "fatal";

impl Observer for Fragile {
    fn dispatch(
        &self,
        events: &[Arc<Event>],
        through: Sequence,
        version: ResourceVersion,
        now: std::time::Instant,
    ) -> DispatchOutcome {
        let is_fatal = |event: &Arc<Event>| event.object().key().to_string().ends_with(FATAL);
        assert!(!events.iter().any(is_fatal), "planted");
        self.0.dispatch(events, through, version, now)
    }
}

struct Stage {
    apiserver: Apiserver,
    client: Arc<Client>,
    slot: Slot,
    metrics: Metrics,
    _tasks: JoinSet<()>,
}

async fn apiserver() -> Apiserver {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = Options {
        objects: vec!["configmaps=3".parse().unwrap()],
        seed: Some(1),
        ..Options::default()
    };
    apiserver::start(listener, options).unwrap()
}

async fn connect(address: SocketAddr) -> Arc<Client> {
    let source = ConnectSource::url(&format!("http://{address}")).unwrap();
    Arc::new(Client::connect(source).await.unwrap())
}

async fn create(client: &Client, name: &str) {
    let object = serde_json::json!({"metadata": {"name": name}});
    let request = Request::post("/api/v1/namespaces/default/configmaps")
        .header(CONTENT_TYPE, "application/json")
        .body(RequestBody::Full(Bytes::from(object.to_string())))
        .unwrap();
    assert_eq!(client.send(request).await.unwrap().status(), 201);
}

/// An address whose server can be replaced; replacing it closes all connections.
async fn behind_one_address(server: SocketAddr) -> (SocketAddr, watch::Sender<SocketAddr>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, server) = watch::channel(server);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut server = server.clone();
            tokio::spawn(async move {
                let target = *server.borrow_and_update();
                let mut upstream = TcpStream::connect(target).await.unwrap();
                tokio::select! {
                    _ = copy_bidirectional(&mut client, &mut upstream) => {}
                    _ = server.changed() => {}
                }
            });
        }
    });
    (address, sender)
}

impl Stage {
    async fn new(adjust: impl FnOnce(&mut SlotParts)) -> Self {
        let apiserver = apiserver().await;
        let client = connect(apiserver.address()).await;
        let metrics = Metrics::new().unwrap();
        let key = CacheKey::json(&Gvr::new("", "v1", "configmaps"));
        let recorder = ResourceRecorder::new(&metrics, &key, DrainFlag::default());
        let mut parts = SlotParts {
            must_prove_origin: false,
            rediscovered: watch::channel(()).1,
            resource: DiscoveredResource {
                gvr: key.gvr.clone(),
                kind: "ConfigMap".to_owned(),
                namespaced: true,
                list: true,
                watch: true,
            },
            encoding: key.encoding,
            client: Arc::clone(&client),
            retention: keep(1000),
            tombstones_len_max: None,
            cuts: HistoryCuts::default(),
            room: MemoryRoom::default(),
            older_states: OlderStates::default(),
            checkpoint: None,
            handover: None,
            limits: ReadLimits {
                frame_len_max: 1 << 20,
                coalesce_delay_max: Duration::ZERO,
                live: LiveLimits::generous(),
            },
            recorder: Arc::new(recorder),
            filled: Arc::default(),
            observer: |hub| hub,
        };
        adjust(&mut parts);
        let mut tasks = JoinSet::new();
        let streams = Arc::new(StreamRecorder::new(
            &metrics,
            &key,
            DrainFlag::default(),
            WatchTable::new(key.clone(), Arc::default(), Arc::default()),
        ));
        let slot = Slot::start(parts, &mut tasks, streams);
        Self {
            apiserver,
            client,
            slot,
            metrics,
            _tasks: tasks,
        }
    }

    async fn create(&self, name: &str) {
        create(&self.client, name).await;
    }

    /// Waits for a state.
    async fn wait_for_state(&self, holds: impl Fn(&SlotState) -> bool) -> SlotState {
        let mut slot_state = self.slot.cells.slot_state.subscribe();
        let state = tokio::time::timeout(TIMEOUT, slot_state.wait_for(holds)).await;
        state.unwrap().unwrap().clone()
    }

    async fn ready(&self) -> ServedResource {
        let SlotState::Ready(served) = self
            .wait_for_state(|state| matches!(state, SlotState::Ready(_)))
            .await
        else {
            unreachable!("waited for this state")
        };
        served
    }

    fn given_up(&self, reason: GiveUpReason) -> u64 {
        let key = CacheKey::json(&Gvr::new("", "v1", "configmaps"));
        let labels = crate::metrics::ResourceLabels::from(&key);
        self.metrics.cache(labels).given_up.count(reason)
    }
}

#[tokio::test]
async fn a_panic_while_a_cache_is_written_ends_it_and_fills_a_new_one() {
    let stage = Stage::new(|parts| parts.observer = |hub| Arc::new(Fragile(hub))).await;
    let first = stage.ready().await;
    stage.create("harmless").await;
    stage.create(FATAL).await;
    let given_up = |state: &SlotState| matches!(state, SlotState::GivenUp(GiveUpReason::Panicked));
    stage.wait_for_state(given_up).await;
    let closed = async {
        while !first.hub.is_closed() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, closed).await.unwrap();

    let second = stage.ready().await;
    assert!(!Arc::ptr_eq(&first.hub, &second.hub));
    assert_eq!(stage.given_up(GiveUpReason::Panicked), 1);
    let names = |served: &ServedResource| {
        let snapshot = served.cache.snapshot().unwrap();
        let keys = snapshot.objects.iter();
        keys.map(|object| object.key().to_string())
            .collect::<Vec<_>>()
    };
    assert!(names(&second).contains(&format!("default/{FATAL}")));
    assert!(
        stage.apiserver.watch_count() <= 1,
        "the first watch has ended"
    );
}

/// Panics when it dispatches a state that has a history and no event, as a restored one.
#[derive(Debug)]
struct Unrestorable(Arc<Hub>);

impl Observer for Unrestorable {
    fn dispatch(
        &self,
        events: &[Arc<Event>],
        through: Sequence,
        version: ResourceVersion,
        now: std::time::Instant,
    ) -> DispatchOutcome {
        assert!(!events.is_empty() || through == 0, "planted");
        self.0.dispatch(events, through, version, now)
    }
}

/// Otherwise it would be taken again for ever.
#[tokio::test]
async fn a_state_that_ends_the_attempt_is_not_used_for_the_next() {
    let folder =
        std::env::temp_dir().join(format!("kube-fanout-{}", crate::protocol::random_uuid()));
    let directory = StateDirectory::open(&folder, None, 1 << 30).unwrap();
    let checkpoints = Checkpoints::new(directory, Duration::from_millis(1), Vec::new());
    let key = CacheKey::json(&Gvr::new("", "v1", "configmaps"));
    let checkpoint = checkpoints.of(&key, &Metrics::new().unwrap()).unwrap();
    let first = Stage::new(|parts| parts.checkpoint = Some(checkpoint.clone())).await;
    let served = first.ready().await;
    first.create("later").await;
    while !holds(&served, "default/later") {
        tokio::task::yield_now().await;
    }
    first.slot.end();
    checkpoints.finish(TIMEOUT).await;
    let wanted = WantedState {
        kind: served.cache.kind().clone(),
        cluster: None,
        limits: LiveLimits::generous(),
    };
    let written = checkpoint.restore(&wanted).await.unwrap();
    assert!(!written.state.events.is_empty());

    let stage = Stage::new(|parts| {
        parts.checkpoint = Some(checkpoint);
        parts.observer = |hub| Arc::new(Unrestorable(hub));
    })
    .await;
    let given_up = |state: &SlotState| matches!(state, SlotState::GivenUp(GiveUpReason::Panicked));
    stage.wait_for_state(given_up).await;
    stage.ready().await;
    assert_eq!(stage.given_up(GiveUpReason::Panicked), 1);
    stage.slot.end();
    checkpoints.finish(TIMEOUT).await;
    std::fs::remove_dir_all(folder).unwrap();
}

fn silence() -> futures::stream::Pending<Result<Frame<Bytes>, std::convert::Infallible>> {
    futures::stream::pending()
}

/// A server with one object, whose short pages fail this often before they are answered; returns how many were asked for.
async fn unreadable_server(failures: usize) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let compared = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&compared);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let count = Arc::clone(&count);
            let answer = service_fn(move |request: Request<Incoming>| {
                let query = request.uri().query().unwrap_or_default();
                let is_watch = query.contains("watch=");
                let code = if request.uri().path().contains("kube-system") {
                    404
                } else if query.contains("sendInitialEvents=") {
                    400
                } else if query.contains("limit=20")
                    && count.fetch_add(1, Ordering::Relaxed) < failures
                {
                    [503, 429][failures % 2]
                } else {
                    200
                };
                let body = match code {
                    200 => {
                        r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"900000"},"items":[{"metadata":{"name":"other","namespace":"default","uid":"o","resourceVersion":"2"}}]}"#
                    }
                    _ => "{}",
                };
                let answer = Response::builder()
                    .status(code)
                    .header(CONTENT_TYPE, "application/json");
                // A cache is served once its watch is open.
                let body = match is_watch && code == 200 {
                    true => Either::Left(StreamBody::new(silence())),
                    false => Either::Right(Full::<Bytes>::from(body)),
                };
                std::future::ready(answer.body(body))
            });
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
            tokio::spawn(connection);
        }
    });
    (address, compared)
}

#[tokio::test]
async fn a_state_that_cannot_be_compared_yet_is_neither_served_nor_forgotten() {
    let folder =
        std::env::temp_dir().join(format!("kube-fanout-{}", crate::protocol::random_uuid()));
    let directory = StateDirectory::open(&folder, None, 1 << 30).unwrap();
    let checkpoints = Checkpoints::new(directory, Duration::from_millis(1), Vec::new());
    let key = CacheKey::json(&Gvr::new("", "v1", "configmaps"));
    let checkpoint = checkpoints.of(&key, &Metrics::new().unwrap()).unwrap();
    let first = Stage::new(|parts| parts.checkpoint = Some(checkpoint.clone())).await;
    first.create("earlier").await;
    let served = first.ready().await;
    first.slot.end();
    checkpoints.finish(TIMEOUT).await;
    let wanted = WantedState {
        kind: served.cache.kind().clone(),
        cluster: None,
        limits: LiveLimits::generous(),
    };
    assert!(checkpoint.restore(&wanted).await.is_some());

    // Five failures in a row end the attempt, and the next one compares again.
    for failures in [1, 2, 6] {
        let (address, compared) = unreadable_server(failures).await;
        let client = connect(address).await;
        let stage = Stage::new(|parts| {
            parts.client = client;
            parts.checkpoint = Some(checkpoint.clone());
        })
        .await;
        let served = stage.ready().await;
        assert!(holds(&served, "default/other") && !holds(&served, "default/earlier"));
        assert!(
            compared.load(Ordering::Relaxed) > failures,
            "it was compared"
        );
        drop(stage);
        // The checkpoint of the other history was removed; write the first one's again.
        let first = Stage::new(|parts| parts.checkpoint = Some(checkpoint.clone())).await;
        first.create("earlier").await;
        first.ready().await;
        first.slot.end();
        checkpoints.finish(TIMEOUT).await;
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[tokio::test]
async fn no_cache_is_begun_while_memory_is_short() {
    let stage = Stage::new(|parts| memory_max(parts, 1)).await;
    let given_up = |state: &SlotState| matches!(state, SlotState::GivenUp(GiveUpReason::Memory));
    stage.wait_for_state(given_up).await;
    assert_eq!(stage.given_up(GiveUpReason::Memory), 1);
    assert_eq!(stage.slot.describe(), "forwarded: memory");
    let stage = Stage::new(|parts| {
        memory_max(parts, usize::MAX);
        parts.room.set(0);
    })
    .await;
    stage.wait_for_state(given_up).await;
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_stays_without_a_cache_is_logged_rarely() {
    let (log, _guard) = CapturedLog::start();
    let stage = Stage::new(|parts| memory_max(parts, 1)).await;
    tokio::time::sleep(Duration::from_secs(3 * 3_600)).await;
    assert!(stage.given_up(GiveUpReason::Memory) > 30);
    let lines = log.lines_with("the resource has no cache");
    assert!((3..=4).contains(&lines.len()), "{lines:#?}");
}

#[tokio::test]
async fn a_cache_that_replaces_another_needs_no_room() {
    let histories = TwoHistories::new(&["lost"], &["restored"]).await;
    let old = histories.stage.ready().await;
    histories.room.set(0);
    histories.server.send(histories.second.address()).unwrap();
    histories.after(&old).await;
    assert_eq!(histories.stage.given_up(GiveUpReason::Memory), 0);
}

fn holds(served: &ServedResource, key: &str) -> bool {
    let snapshot = served.cache.snapshot();
    snapshot.is_some_and(|snapshot| snapshot.objects.object(key).is_some())
}

/// Two API servers that differ in some objects, used one after the other behind one address, and a cache of the first one.
struct TwoHistories {
    stage: Stage,
    first: Apiserver,
    second: Apiserver,
    server: watch::Sender<SocketAddr>,
    /// What new caches may take.
    room: MemoryRoom,
}

impl TwoHistories {
    async fn new(in_first: &[&str], in_second: &[&str]) -> Self {
        let (first, second) = (apiserver().await, apiserver().await);
        for (server, names) in [(&first, in_first), (&second, in_second)] {
            let client = connect(server.address()).await;
            for name in names {
                create(&client, name).await;
            }
        }
        let (address, server) = behind_one_address(first.address()).await;
        let client = connect(address).await;
        let room = MemoryRoom::default();
        let stage = Stage::new(|parts| {
            parts.client = client;
            memory_max(parts, usize::MAX);
            parts.room = room.clone();
        });
        Self {
            stage: stage.await,
            first,
            second,
            server,
            room,
        }
    }

    /// The cache that replaces this one.
    async fn after(&self, old: &ServedResource) -> ServedResource {
        let is_new = |state: &SlotState| matches!(state, SlotState::Ready(served) if !Arc::ptr_eq(&served.hub, &old.hub));
        let SlotState::Ready(served) = self.stage.wait_for_state(is_new).await else {
            unreachable!("waited for this state")
        };
        assert!(
            old.hub.is_expired(),
            "its watches end with an error that makes clients list again"
        );
        served
    }
}

#[tokio::test]
async fn another_history_at_versions_as_high_is_noticed() {
    // Both servers are at the same version then.
    let histories = TwoHistories::new(&["lost"], &["restored"]).await;
    let old = histories.stage.ready().await;
    assert!(holds(&old, "default/lost"));
    histories.server.send(histories.second.address()).unwrap();
    let new = histories.after(&old).await;
    assert!(holds(&new, "default/restored") && !holds(&new, "default/lost"));
    let key = CacheKey::json(&Gvr::new("", "v1", "configmaps"));
    let contradictions = histories.stage.metrics.upstream((&key).into());
    let contradictions = contradictions.contradictions;
    let counts = Contradiction::VARIANTS.iter();
    let counts = counts.map(|reason| contradictions.count(*reason));
    assert_eq!(counts.sum::<u64>(), 1);
}

#[tokio::test]
async fn another_history_at_lower_versions_is_noticed_and_the_lost_versions_are_too_old() {
    let histories = TwoHistories::new(&["kept", "lost", "lost-too"], &["kept"]).await;
    let old = histories.stage.ready().await;
    let lost = old.cache.newest_given();
    histories.server.send(histories.second.address()).unwrap();
    let new = histories.after(&old).await;
    assert!(holds(&new, "default/kept") && !holds(&new, "default/lost"));
    let reached = new.cache.newest_given();
    assert!(reached < lost);
    assert!(
        new.cache.resume_after(lost).is_err(),
        "the new history has no such version"
    );
    assert!(new.cache.resume_after(reached).is_ok());
    // The lost versions are known even without a cache.
    let loss = &histories.stage.slot.cells.loss;
    assert!(loss.covers(lost) && !loss.covers(ResourceVersion(lost.0 + 1)));
    tokio::time::pause();
    tokio::time::advance(LOSS_AGE_MAX).await;
    assert!(!loss.covers(lost));
}

#[tokio::test]
async fn a_resource_whose_history_is_replaced_again_and_again_is_given_up_for_a_while() {
    let histories = TwoHistories::new(&["one"], &["other"]).await;
    let stage = &histories.stage;
    let first = stage.ready().await;
    histories.server.send(histories.second.address()).unwrap();
    let second = histories.after(&first).await;
    assert_eq!(stage.given_up(GiveUpReason::WentBack), 0);
    histories.server.send(histories.first.address()).unwrap();
    let third = histories.after(&second).await;
    assert_eq!(stage.given_up(GiveUpReason::WentBack), 1);
    assert!(holds(&third, "default/one") && !holds(&third, "default/other"));
}

#[tokio::test]
async fn a_slot_that_is_closed_does_not_become_ready_any_more() {
    let stage = Stage::new(|_| {}).await;
    let served = stage.ready().await;
    let kind = served.cache.kind().clone();
    let writer = CacheWriter::new(kind, keep(1000), Arc::clone(&served.hub) as _);
    let recorder = &stage.slot.recorder;
    let mut late = SlotSink {
        cache_sink: CacheSink::new(writer, Duration::ZERO, Arc::clone(recorder).for_cache()),
        served: served.clone(),
        slot_state: stage.slot.cells.slot_state.clone(),
        recorder: Arc::clone(recorder),
        cache_len: CacheLen::default(),
        connections: watch::Sender::new(0),
        contradicted: Arc::default(),
        lag: Arc::default(),
        unproven: None,
        is_listed: false,
        is_watched: true,
        cuts: CutFollower::default(),
    };
    stage.slot.close(Hub::close);
    assert!(served.hub.is_closed());
    late.replace(ResourceVersion(1)).unwrap();
    let settled = stage.slot.settled(Duration::ZERO).await;
    assert!(matches!(settled, SlotState::Closed), "{settled:?}");
}

/// A server that answers every request with an empty list in JSON, whatever was requested.
async fn json_only_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let list = r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}"#;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answer = service_fn(move |_: Request<Incoming>| async move {
                let answer = Response::builder().header(CONTENT_TYPE, "application/json");
                answer.body(Full::<Bytes>::from(list))
            });
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
            tokio::spawn(connection);
        }
    });
    address
}

#[tokio::test]
async fn an_encoding_that_upstream_does_not_offer_is_asked_for_again() {
    let apiserver = apiserver().await;
    let refused = FaultOrder {
        fault: Fault::Refuse {
            code: 403,
            retry_after_seconds: 1,
        },
        verb: None,
        resource: None,
        count: u32::MAX,
    };
    apiserver.order(refused).unwrap();
    let (address, server) = behind_one_address(json_only_server().await).await;
    let client = connect(address).await;
    let stage = Stage::new(|parts| {
        parts.client = client;
        parts.encoding = Encoding::Protobuf;
    })
    .await;
    stage
        .wait_for_state(|state| matches!(state, SlotState::OtherEncoding))
        .await;
    server.send(apiserver.address()).unwrap();
    stage
        .wait_for_state(|state| matches!(state, SlotState::GivenUp(GiveUpReason::Forbidden)))
        .await;
}

#[tokio::test]
async fn a_resource_whose_probe_gets_no_permit_is_given_up_as_saturated() {
    let mut permits = None;
    let stage = Stage::new(|parts| permits = Some(parts.client.saturate_calls())).await;
    stage
        .wait_for_state(|state| matches!(state, SlotState::GivenUp(GiveUpReason::Saturated)))
        .await;
    drop(permits);
    stage.ready().await;
}

/// Such clients get what upstream gives them: an API server whose lists are at lower versions than its events must not send them away.
#[tokio::test]
async fn a_resource_without_a_cache_has_lost_versions_only_after_a_loss() {
    let (gvr, ahead) = (Gvr::new("", "v1", "configmaps"), ResourceVersion(1_000_000));
    let cached = Stage::new(|_| {}).await;
    cached.ready().await;
    let reach = cached.slot.version_reach(&cached.client, &gvr, ahead).await;
    assert_eq!(reach, VersionReach::Pending);

    let other = apiserver().await;
    let client = connect(other.address()).await;
    let _permits = client.saturate_calls();
    let stage = Stage::new(|parts| parts.client = client).await;
    stage
        .wait_for_state(|state| matches!(state, SlotState::GivenUp(_)))
        .await;
    let reach = stage.slot.version_reach(&stage.client, &gvr, ahead).await;
    assert_eq!(reach, VersionReach::Reached);
    stage.slot.cells.loss.record(ResourceVersion(7));
    let reach = stage.slot.version_reach(&stage.client, &gvr, ahead).await;
    assert_eq!(reach, VersionReach::Lost);
}

/// A server that sends two pages of a list and nothing more. The second one is requested while the first one is read.
async fn server_of_two_pages(items: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answer = service_fn(move |request: Request<Incoming>| async move {
                let query = request.uri().query().unwrap_or_default();
                if query.contains("continue=third") {
                    std::future::pending::<()>().await;
                }
                let answer = Response::builder().header(CONTENT_TYPE, "application/json");
                if query.contains("watch=") {
                    return answer.status(400).body(Full::from("{}"));
                }
                let (from, next) = match query.contains("continue=second") {
                    true => (items, "third"),
                    false => (0, "second"),
                };
                let items: Vec<_> = (from..from + items)
                    .map(|n| {
                        let name = format!("cm-{n:05}");
                        let version = (n + 1).to_string();
                        serde_json::json!({"metadata": {"name": name, "namespace": "a", "resourceVersion": version}})
                    })
                    .collect();
                let list = serde_json::json!({
                    "kind": "ConfigMapList", "apiVersion": "v1", "items": items,
                    "metadata": {"resourceVersion": "9000", "continue": next},
                });
                answer.body(Full::<Bytes>::from(list.to_string()))
            });
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
            tokio::spawn(connection);
        }
    });
    address
}

#[tokio::test]
async fn clients_that_wait_for_a_long_list_see_its_progress() {
    let client = connect(server_of_two_pages(600).await).await;
    let stage = Stage::new(|parts| parts.client = client).await;
    let words = "starting, 512 objects listed so far";
    let seen = async {
        while !stage.slot.describe().ends_with(words) {
            tokio::task::yield_now().await;
        }
    };
    let seen = tokio::time::timeout(TIMEOUT, seen).await;
    assert!(seen.is_ok(), "{}", stage.slot.describe());
    let CheckOutcome::Failed(reason) = stage.slot.must_be_filled() else {
        unreachable!("not filled")
    };
    assert_eq!(reason, words);
    for (objects, words) in [
        (1, "starting, 1 object listed"),
        (12_500, "starting, 12,500 objects listed"),
    ] {
        stage.slot.recorder.listing.received(objects);
        let seen = stage.slot.describe();
        assert!(seen.contains(words), "{words} in {seen}");
    }
}
