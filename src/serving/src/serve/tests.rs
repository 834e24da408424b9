//! The service behind a real HTTP/1.1 connection in memory, with a constructed history and a paused clock.

mod load;

use std::convert::Infallible;
use std::future::ready;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, VARY,
};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::time::Instant;

use super::Service;
use super::gzip::PLAIN_LEN_MAX;
use super::resources::{
    Availability, BoxFuture, FillWait, ForwardPermit, ForwardRequest, ForwardedBody, Latest,
    RequestOutcome, Resources, VersionReach,
};
use super::unhandled::is_escaped_well;
use crate::admission::Admission;
use crate::admission::samples::unlimited;
use crate::cache::samples::{World, kind, told};
use crate::config::AdmissionLimits;
use crate::connection::ClientBody;
use crate::fairness::{Peer, Permits};
use crate::metrics::Metrics;
use crate::protocol::{AUDIT_ID, audit_id};
use crate::resource::{CacheKey, Encoding, Layout, ResourceVersion};
use crate::selector::{LabelSelector, Selector};
use crate::view::{Hub, ObjectFormat, ServedResource};
use crate::watch::WatchRecorder;

#[derive(Debug)]
struct StartCounter(Arc<Mutex<usize>>);

impl WatchRecorder for StartCounter {
    fn expired_at_start(&self) {
        *self.0.lock().unwrap() += 1;
    }
}

/// One resource, and prepared results for the rest of the interface.
struct Stage {
    served: ServedResource,
    filling: bool,
    /// There is no cache, and none is being filled.
    is_given_up: bool,
    /// Clients may hold versions up to this one from a lost history.
    lost: ResourceVersion,
    /// Whether upstream has reached the versions of watches.
    reach: VersionReach,
    /// Permits to forward watches that start before the history.
    before_history: Permits,
    latest: Mutex<Option<Latest>>,
    /// Watches that got 410 as their first event.
    expired_starts: Arc<Mutex<usize>>,
}

impl Resources for Stage {
    fn availability<'a>(
        &'a self,
        key: &'a CacheKey,
        _: FillWait,
        _: Peer,
    ) -> BoxFuture<'a, Availability> {
        let availability = if key.gvr != self.served.cache.kind().gvr || self.is_given_up {
            Availability::Forwarded(None)
        } else if self.filling {
            Availability::Filling {
                retry_after_seconds: 7,
            }
        } else {
            Availability::Ready(self.served.clone())
        };
        Box::pin(ready(availability))
    }

    fn before_history(&self, _: &CacheKey, peer: Peer) -> Option<ForwardPermit> {
        self.before_history.try_acquire(peer).map(Into::into)
    }

    fn may_be_lost(&self, _: &CacheKey, version: ResourceVersion) -> bool {
        version <= self.lost
    }

    fn version_reach<'a>(
        &'a self,
        _: &'a CacheKey,
        _: ResourceVersion,
    ) -> BoxFuture<'a, VersionReach> {
        Box::pin(ready(self.reach))
    }

    fn latest<'a>(&'a self, _: &'a ServedResource) -> BoxFuture<'a, Latest> {
        let latest = self.latest.lock().unwrap().take();
        Box::pin(ready(latest.unwrap_or(Latest::Unknown)))
    }

    fn forward(&self, _: ForwardRequest) -> BoxFuture<'_, Response<ForwardedBody>> {
        let body = Full::from("forwarded").map_err(|never| match never {});
        Box::pin(ready(Response::new(body.boxed_unsync())))
    }

    fn tally(&self, _: &CacheKey) -> Arc<dyn WatchRecorder> {
        Arc::new(StartCounter(Arc::clone(&self.expired_starts)))
    }

    fn answered(&self, _: RequestOutcome<'_>) {}
}

struct Scene {
    world: World,
    stage: Arc<Stage>,
    service: Service,
    client: SendRequest<Empty<Bytes>>,
}

async fn serve(far: tokio::io::DuplexStream, service: Service) {
    let service = service_fn(move |request: Request<Incoming>| {
        let service = service.clone();
        async move { Ok::<_, Infallible>(service.answer(request.into()).await.map(ClientBody::from)) }
    });
    // The client's end of the connection is what tests check.
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(far), service)
        .await;
}

impl Scene {
    async fn with(events_max: usize, filling: bool) -> Self {
        Self::staged((events_max, 0), unlimited(), |stage| {
            stage.filling = filling
        })
        .await
    }

    /// A scene after a history was lost, of which clients may hold versions up to `lost`.
    async fn after_loss(lost: u64, adjust: impl FnOnce(&mut Stage)) -> Self {
        Self::staged((1 << 20, lost), unlimited(), adjust).await
    }

    /// At most this many lists run at once, and none waits.
    async fn bounded(lists_max: usize) -> Self {
        let limits = AdmissionLimits {
            connections_max: 0,
            watches_max: 100,
            lists_max,
            lists_waiting_max: 0,
            list_wait_max: Duration::ZERO,
            list_stall_max: Duration::from_secs(2),
            memory_max: 0,
        };
        let admission = Admission::new(limits, None);
        Self::staged((1 << 20, 0), admission, |_| {}).await
    }

    async fn staged(
        (events_max, lost): (usize, u64),
        admission: Admission,
        adjust: impl FnOnce(&mut Stage),
    ) -> Self {
        let hub = Arc::new(Hub::new(&kind(Layout::Typed)));
        let world = World::after_loss(5, events_max, Arc::clone(&hub) as _, lost);
        let cache = Arc::clone(world.writer.cache());
        let mut stage = Stage {
            served: ServedResource { cache, hub },
            filling: false,
            is_given_up: false,
            lost: ResourceVersion(lost),
            reach: VersionReach::Reached,
            before_history: Permits::new(0),
            latest: Mutex::default(),
            expired_starts: Arc::default(),
        };
        adjust(&mut stage);
        let stage = Arc::new(stage);
        let metrics = Metrics::new().unwrap().listener();
        let service = Service::new(Arc::clone(&stage) as _, admission, metrics);
        let (near, far) = tokio::io::duplex(1 << 16);
        tokio::spawn(serve(far, service.clone()));
        let (client, connection) = hyper::client::conn::http1::handshake(TokioIo::new(near))
            .await
            .unwrap();
        tokio::spawn(connection);
        Self {
            world,
            stage,
            service,
            client,
        }
    }

    async fn new() -> Self {
        Self::with(1 << 20, false).await
    }

    fn put(&mut self, key: &str) -> u64 {
        let change = self.world.write(key, None);
        self.world.apply(vec![change]);
        self.world.version
    }

    fn latest(&self, latest: Latest) {
        *self.stage.latest.lock().unwrap() = Some(latest);
    }

    async fn send(&mut self, path: &str) -> Response<Incoming> {
        self.send_with(path, ("x-none", "")).await
    }

    async fn send_with(
        &mut self,
        path: &str,
        header: (&'static str, &'static str),
    ) -> Response<Incoming> {
        self.client.ready().await.unwrap();
        let request = Request::get(path)
            .header("audit-id", "mine")
            .header("host", "gateway")
            .header(header.0, header.1)
            .body(Empty::new());
        self.client.send_request(request.unwrap()).await.unwrap()
    }

    /// The headers about compression, and the body.
    async fn zipped(&mut self, path: &str, accepts: &'static str) -> (String, Bytes) {
        let response = self.send_with(path, ("accept-encoding", accepts)).await;
        let header = |name| {
            let value = response.headers().get(name);
            value.map_or("-", |value| value.to_str().unwrap())
        };
        let headers = format!("{} {}", header(CONTENT_ENCODING), header(VARY));
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (headers, body)
    }

    /// Status and body.
    async fn get(&mut self, path: &str) -> (u16, String) {
        let response = self.send(path).await;
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (code, String::from_utf8(body.to_vec()).unwrap())
    }

    /// The version and the names of a list, or else the status code and the start of the body.
    async fn list(&mut self, query: &str) -> String {
        let (code, body) = self.get(&format!("/api/v1/configmaps{query}")).await;
        if code != 200 || body == "forwarded" {
            return format!("{code} {}", &body[..body.len().min(9)]);
        }
        let list: serde_json::Value = serde_json::from_str(&body).unwrap();
        let items = list["items"].as_array().unwrap();
        let names = items
            .iter()
            .map(|item| item["metadata"]["name"].as_str().unwrap());
        let names = names.collect::<Vec<_>>().join(",");
        format!(
            "{} {names}",
            list["metadata"]["resourceVersion"].as_str().unwrap()
        )
    }

    /// The events of a watch, read to its end.
    async fn watch(&mut self, query: &str) -> Vec<String> {
        let (code, body) = self
            .get(&format!("/api/v1/configmaps?watch=1{query}"))
            .await;
        assert_eq!(code, 200, "{body}");
        told(body.as_bytes())
    }
}

#[tokio::test(start_paused = true)]
async fn lists_come_from_memory_with_the_headers_that_upstream_sets() {
    let mut scene = Scene::new().await;
    let version = scene.put("a/x");
    let response = scene
        .send("/api/v1/namespaces/a/configmaps?resourceVersion=0")
        .await;
    assert_eq!(response.status(), StatusCode::OK);
    let header = |name| response.headers().get(name).unwrap().to_str().unwrap();
    assert_eq!(header(CONTENT_TYPE), "application/json");
    assert_eq!(header(CACHE_CONTROL), "no-cache, private");
    assert_eq!(header(AUDIT_ID), "mine");
    assert!(response.headers().contains_key(CONTENT_LENGTH));
    drop(response.into_body().collect().await.unwrap());
    assert_eq!(
        scene.list("?resourceVersion=0").await,
        format!("{version} x")
    );
    assert_eq!(scene.get("/api/v1/pods").await.1, "forwarded");
}

#[tokio::test(start_paused = true)]
async fn a_consistent_list_waits_for_what_it_must_have_seen_or_is_forwarded() {
    let mut scene = Scene::new().await;
    let version = scene.put("a/x");
    assert_eq!(scene.list("").await, "200 forwarded");
    scene.latest(Latest::At(ResourceVersion(version)));
    assert_eq!(scene.list("").await, format!("{version} x"));
    scene.latest(Latest::At(ResourceVersion(version + 1)));
    assert_eq!(scene.list("").await, "200 forwarded");
    let snapshot = scene.stage.served.cache.snapshot().unwrap();
    scene.latest(Latest::Proven(snapshot, ResourceVersion(version + 9)));
    assert_eq!(scene.list("").await, format!("{} x", version + 9));
}

#[tokio::test(start_paused = true)]
async fn the_second_page_of_a_proven_list_is_not_a_version_too_large() {
    let mut scene = Scene::new().await;
    scene.put("a/x");
    let version = scene.put("a/y");
    let snapshot = scene.stage.served.cache.snapshot().unwrap();
    scene.latest(Latest::Proven(snapshot, ResourceVersion(version + 9)));
    let (_, body) = scene.get("/api/v1/configmaps?limit=1").await;
    let list: serde_json::Value = serde_json::from_str(&body).unwrap();
    let token = list["metadata"]["continue"].as_str().unwrap();
    let next = scene.list(&format!("?limit=1&continue={token}")).await;
    assert_eq!(next, "200 forwarded");
}

#[tokio::test(start_paused = true)]
async fn a_list_not_older_than_the_future_waits_three_seconds_for_it() {
    let mut scene = Scene::new().await;
    let version = scene.put("a/x") + 100;
    let started = Instant::now();
    let response = scene
        .send(&format!("/api/v1/configmaps?resourceVersion={version}"))
        .await;
    assert_eq!(started.elapsed().as_secs(), 3);
    assert_eq!(response.status(), StatusCode::GATEWAY_TIMEOUT);
    assert_eq!(response.headers()[RETRY_AFTER], "1");
    drop(response.into_body().collect().await.unwrap());
    // The version is reached while the request waits.
    let path = format!("/api/v1/configmaps?resourceVersion={version}");
    let ((code, body), ()) = {
        let Scene { world, client, .. } = &mut scene;
        let response = async {
            client.ready().await.unwrap();
            let request = Request::get(path)
                .header("host", "gateway")
                .body(Empty::new());
            let response = client.send_request(request.unwrap()).await.unwrap();
            let code = response.status();
            (
                code,
                response.into_body().collect().await.unwrap().to_bytes(),
            )
        };
        let publish = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            world.writer.progress(ResourceVersion(version), world.now);
        };
        tokio::join!(response, publish)
    };
    assert_eq!(code, StatusCode::OK);
    assert!(body.starts_with(b"{\"kind\":\"ConfigMapList\""));
}

#[tokio::test(start_paused = true)]
async fn exact_versions_come_from_memory_as_far_as_it_reaches() {
    let mut scene = Scene::with(8, false).await;
    let first = scene.put("a/x");
    let second = scene.put("a/y");
    let exact = |version: u64| format!("?resourceVersionMatch=Exact&resourceVersion={version}");
    assert_eq!(scene.list(&exact(first)).await, format!("{first} x"));
    assert_eq!(scene.list(&exact(second)).await, format!("{second} x,y"));
    assert_eq!(scene.list(&exact(10)).await, "10 ");
    for _ in 0..20 {
        scene.put("a/z");
    }
    assert_eq!(scene.list(&exact(first)).await, "200 forwarded");
    assert_eq!(scene.list(&exact(9999)).await, "200 forwarded");
}

#[tokio::test(start_paused = true)]
async fn a_state_of_the_past_is_undone_once_and_kept() {
    let mut scene = Scene::new().await;
    let first = scene.put("a/x");
    let second = scene.put("a/y");
    scene.put("a/z");
    let cache = Arc::clone(&scene.stage.served.cache);
    let list = format!("?limit=1&resourceVersionMatch=Exact&resourceVersion={second}");
    assert_eq!(scene.list(&list).await, format!("{second} x"));
    let kept = cache
        .state_at(ResourceVersion(second))
        .expect("the state must be kept");
    assert_eq!(scene.list(&list).await, format!("{second} x"));
    let again = cache.state_at(ResourceVersion(second)).unwrap();
    assert!(Arc::ptr_eq(&kept, &again));
    // From the kept state, an older one is one event away.
    let list = format!("?resourceVersionMatch=Exact&resourceVersion={first}");
    assert_eq!(scene.list(&list).await, format!("{first} x"));
}

#[tokio::test(start_paused = true)]
async fn exact_versions_too_many_events_back_are_forwarded() {
    let mut scene = Scene::new().await;
    let first = scene.put("a/x");
    let changes: Vec<_> = (0..20_001)
        .map(|_| scene.world.write("a/y", None))
        .collect();
    scene.world.apply(changes);
    let version = scene.world.version;
    let list = |version| format!("?resourceVersionMatch=Exact&resourceVersion={version}");
    assert_eq!(scene.list(&list(first)).await, "200 forwarded");
    assert_eq!(scene.list(&list(version)).await, format!("{version} x,y"));
}

#[tokio::test(start_paused = true)]
async fn lists_that_undo_events_take_a_permit_however_short_they_are() {
    let mut scene = Scene::bounded(0).await;
    let first = scene.put("a/x");
    let second = scene.put("a/y");
    let list = |version| format!("?limit=1&resourceVersionMatch=Exact&resourceVersion={version}");
    let code = async |scene: &mut Scene, version| {
        let path = format!("/api/v1/configmaps{}", list(version));
        scene.get(&path).await.0
    };
    assert_eq!(
        code(&mut scene, second).await,
        200,
        "the newest version is in memory"
    );
    assert_eq!(code(&mut scene, first).await, 429);
    let first = ResourceVersion(first);
    let cache = &scene.stage.served.cache;
    let state = cache.rewind(first).unwrap().finish();
    cache.keep(&Arc::new(state));
    assert_eq!(
        code(&mut scene, first.0).await,
        200,
        "another reader's state is kept"
    );
}

/// Streamed lists that wait for an unresponsive upstream leave the permits to other requests.
#[tokio::test(start_paused = true)]
async fn streams_that_wait_for_upstream_hold_no_list_permit() {
    let mut scene = Scene::bounded(1).await;
    let version = scene.put("a/x");
    scene.latest(Latest::At(ResourceVersion(version + 100)));
    let service = scene.service.clone();
    let (near, far) = tokio::io::duplex(1 << 16);
    tokio::spawn(serve(far, service));
    let (mut other, connection) =
        hyper::client::conn::http1::handshake::<_, Empty<Bytes>>(TokioIo::new(near))
            .await
            .unwrap();
    tokio::spawn(connection);
    let stream = Request::get(
        "/api/v1/configmaps?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
    );
    let stream = stream.header("host", "gateway").body(Empty::new()).unwrap();
    let started = Instant::now();
    let waiting = tokio::spawn(async move { other.send_request(stream).await.unwrap() });
    tokio::time::sleep(Duration::from_millis(100)).await;
    let listed = scene.list("?resourceVersion=0").await;
    assert_eq!(listed, format!("{version} x"));
    let body = waiting.await.unwrap().into_body().collect().await.unwrap();
    assert_eq!(told(&body.to_bytes()), ["ERROR 500"]);
    assert_eq!(started.elapsed().as_secs(), 3);
}

#[tokio::test(start_paused = true)]
async fn watches_start_at_the_requested_version() {
    let mut scene = Scene::new().await;
    let first = scene.put("a/x");
    let second = scene.put("a/y");
    let added = [
        format!("ADDED a/x {first} -"),
        format!("ADDED a/y {second} -"),
    ];
    let watch_list =
        "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    for (query, expected) in [
        // The bookmark two seconds before the end would contain no new version, so it is not sent.
        (
            format!("&timeoutSeconds=5&resourceVersion=0{watch_list}"),
            [&added[..], &[format!("MARKER {second}")]].concat(),
        ),
        ("&timeoutSeconds=5&resourceVersion=0".into(), added.to_vec()),
        (
            format!("&timeoutSeconds=5&resourceVersion={first}"),
            vec![added[1].clone()],
        ),
        (
            format!("&timeoutSeconds=5&resourceVersion={second}"),
            vec![],
        ),
        (
            "&timeoutSeconds=5&resourceVersion=9".into(),
            vec!["ERROR 410".into()],
        ),
        (
            format!("&timeoutSeconds=5&resourceVersion=999{watch_list}"),
            vec!["ERROR 504".into()],
        ),
        ("&timeoutSeconds=5&resourceVersion=999".into(), vec![]),
        ("&timeoutSeconds=-5&resourceVersion=0".into(), vec![]),
    ] {
        assert_eq!(scene.watch(&query).await, expected, "{query}");
    }
}

fn watch_from(version: u64) -> String {
    format!("/api/v1/configmaps?watch=1&timeoutSeconds=1&resourceVersion={version}")
}

/// Upstream would mistake a version of the lost history for one of its own, and leave out events.
#[tokio::test(start_paused = true)]
async fn a_watch_from_before_the_history_is_forwarded_unless_a_lost_one_has_its_version() {
    // The cache's history starts at version 10.
    let mut scene = Scene::after_loss(8, |stage| stage.before_history = Permits::new(10)).await;
    assert_eq!(scene.get(&watch_from(9)).await.1, "forwarded");
    let (code, body) = scene.get(&watch_from(8)).await;
    assert_eq!(
        (code, &*told(body.as_bytes())),
        (200, &["ERROR 410".to_owned()][..])
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_without_a_cache_is_forwarded_unless_a_lost_history_has_its_version() {
    let mut scene = Scene::after_loss(9, |stage| stage.is_given_up = true).await;
    let (code, body) = scene.get(&watch_from(9)).await;
    assert_eq!(
        (code, &*told(body.as_bytes())),
        (200, &["ERROR 410".to_owned()][..])
    );
    for path in [
        watch_from(10),
        "/api/v1/configmaps?resourceVersion=9".to_owned(),
        format!(
            "{}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
            watch_from(9)
        ),
    ] {
        assert_eq!(scene.get(&path).await.1, "forwarded", "{path}");
    }
}

/// Another replica may have sent a version of a history that upstream has lost since.
#[tokio::test(start_paused = true)]
async fn a_watch_from_a_version_that_upstream_has_lost_gets_410() {
    for is_given_up in [false, true] {
        let mut scene = Scene::after_loss(8, |stage| {
            (stage.is_given_up, stage.reach) = (is_given_up, VersionReach::Lost);
        })
        .await;
        let (code, body) = scene.get(&watch_from(21)).await;
        assert_eq!(
            (code, &*told(body.as_bytes())),
            (200, &["ERROR 410".to_owned()][..])
        );
        assert_eq!(*scene.stage.expired_starts.lock().unwrap(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_a_version_that_upstream_has_not_reached_ends_early() {
    for (reach, seconds) in [
        (VersionReach::Reached, 300..=300),
        (VersionReach::Pending, 10..=10),
        (VersionReach::Unknown, 40..=60),
    ] {
        let mut scene = Scene::after_loss(0, |stage| stage.reach = reach).await;
        let started = Instant::now();
        // The client has a newer version than a bookmark at the end would have.
        let path = "/api/v1/configmaps?watch=1&timeoutSeconds=300&resourceVersion=21&allowWatchBookmarks=1";
        assert_eq!(scene.get(path).await.1, "");
        assert!(seconds.contains(&started.elapsed().as_secs()), "{reach:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_at_its_timeout_and_its_connection_stays_open() {
    let mut scene = Scene::new().await;
    for seconds in [1, 20] {
        let started = Instant::now();
        let response = scene
            .send(&format!(
                "/api/v1/configmaps?watch=1&resourceVersion=0&timeoutSeconds={seconds}"
            ))
            .await;
        assert!(
            started.elapsed() < Duration::from_secs(1),
            "headers are sent immediately"
        );
        assert!(!response.headers().contains_key(CONTENT_LENGTH));
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "");
        assert_eq!(started.elapsed().as_secs(), seconds);
    }
}

#[tokio::test(start_paused = true)]
async fn while_the_cache_is_being_filled_clients_are_asked_to_come_again() {
    let mut scene = Scene::with(100, true).await;
    for query in ["?resourceVersion=0", "?watch=1&resourceVersion=0"] {
        let response = scene.send(&format!("/api/v1/configmaps{query}")).await;
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(response.headers()[RETRY_AFTER], "7");
        drop(response.into_body().collect().await.unwrap());
    }
}

#[test]
fn an_empty_audit_id_is_none() {
    let mut headers = http::HeaderMap::new();
    headers.insert(AUDIT_ID, HeaderValue::from_static("mine"));
    assert_eq!(audit_id(&headers), "mine");
    headers.insert(AUDIT_ID, HeaderValue::from_static(""));
    assert_eq!(audit_id(&headers).len(), 36);
}

#[tokio::test(start_paused = true)]
async fn long_lists_are_compressed_on_request() {
    let mut scene = Scene::new().await;
    let path = "/api/v1/configmaps?resourceVersion=0";
    let (mut number, mut len) = (0, 0);
    // Up to the limit on the uncompressed length, and finally one object above it.
    loop {
        let count = 1 + (PLAIN_LEN_MAX - len) / 120;
        let changes = (0..count).map(|_| {
            number += 1;
            scene.world.write(&format!("a/{number:05}"), None)
        });
        let changes = changes.collect();
        scene.world.apply(changes);
        let (none, plain) = scene.zipped(path, "identity").await;
        assert_eq!(none, "- -");
        let (headers, body) = scene.zipped(path, "br, gzip").await;
        if plain.len() <= PLAIN_LEN_MAX {
            len = plain.len();
            assert_eq!((&*headers, body), ("- -", plain));
            continue;
        }
        assert_eq!(headers, "gzip Accept-Encoding");
        assert!(gunzipped(&body) == plain);
        break;
    }
    let watch = format!(
        "{path}&watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    );
    let (none, plain) = scene.zipped(&watch, "identity").await;
    let (headers, body) = scene.zipped(&watch, "gzip").await;
    assert_eq!((&*none, &*headers), ("- -", "gzip Accept-Encoding"));
    assert!(gunzipped(&body) == plain);
    let one_page =
        "/api/v1/configmaps?limit=1&resourceVersion=0&fieldSelector=metadata.name%3D00001";
    assert_eq!(scene.zipped(one_page, "gzip").await.0, "- -");
}

fn gunzipped(body: &[u8]) -> Vec<u8> {
    use std::io::Read;
    let mut decoded = Vec::new();
    let mut decoder = flate2::bufread::GzDecoder::new(body);
    decoder.read_to_end(&mut decoded).unwrap();
    decoded
}

#[tokio::test(start_paused = true)]
async fn requests_of_browsers_and_curl_are_indented() {
    let mut scene = Scene::new().await;
    scene.put("a/x");
    let agent = ("user-agent", "curl/8.5.0");
    for (query, header, indented) in [
        ("resourceVersion=0", ("accept", "*/*"), false),
        ("resourceVersion=0", agent, true),
        ("resourceVersion=0&pretty=false", agent, false),
        ("resourceVersion=0&pretty=1", ("accept", "*/*"), true),
        (
            "resourceVersion=0",
            ("accept", "application/json;pretty=1"),
            true,
        ),
        ("resourceVersion=9999", ("accept", "*/*"), false),
        ("resourceVersion=9999", agent, true),
        (
            "resourceVersion=9999",
            ("accept", "application/json;pretty=1"),
            true,
        ),
        ("resourceVersion=0&watch=1&timeoutSeconds=1", agent, false),
    ] {
        let path = format!("/api/v1/configmaps?{query}");
        let answer = scene.send_with(&path, header).await;
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let seen = (body.starts_with(b"{\n  \""), body.ends_with(b"\n"));
        assert_eq!(seen, (indented, !indented), "{query} {header:?} {body:?}");
    }
}

#[test]
fn every_percent_sign_begins_an_escape() {
    for path in ["/", "/api/v1/pods", "/api/v1/p%6fds", "/%41%5A"] {
        assert!(is_escaped_well(path), "{path}");
    }
    for path in ["/%", "/a%z1", "/a%4", "/a%4%41", "%%"] {
        assert!(!is_escaped_well(path), "{path}");
    }
}

/// The API server would serve these clients.
#[tokio::test(start_paused = true)]
async fn a_watch_that_the_open_ones_leave_no_room_for_is_forwarded() {
    let mut scene = Scene::after_loss(9, |_| {}).await;
    let version = scene.put("a/x");
    let hub = Arc::clone(&scene.stage.served.hub);
    let absent = |index: usize| Selector {
        labels: LabelSelector::parse(&format!("!k{index}")).unwrap(),
        ..Selector::default()
    };
    let json = ObjectFormat::whole(Encoding::Json);
    let fill = |peer: Peer| -> Vec<_> {
        let entries = (0..10_000).map(|index| hub.join_as(&absent(index), json, peer));
        entries.map_while(Result::ok).collect()
    };
    let mut open = fill(Peer::UNKNOWN);
    assert!((100..5_000).contains(&open.len()), "{}", open.len());
    let path = |selector: &str| {
        format!(
            "/api/v1/configmaps?watch=1&timeoutSeconds=1&resourceVersion={version}&labelSelector={selector}"
        )
    };
    assert_eq!(scene.get(&path("!new")).await.1, "forwarded");
    let lost = path("!new").replace(&format!("={version}"), "=9");
    let (_, body) = scene.get(&lost).await;
    assert_eq!(told(body.as_bytes()), ["ERROR 410"]);
    for selector in ["!k0", "app=x", ""] {
        assert_eq!(scene.get(&path(selector)).await, (200, String::new()));
    }
    open.pop();
    assert_eq!(scene.get(&path("!new")).await, (200, String::new()));
    drop(open);
    // Another client exhausts its own share.
    let _open = fill(Peer::from(std::net::IpAddr::from([10, 0, 0, 1])));
    assert_eq!(scene.get(&path("!new")).await, (200, String::new()));
}
