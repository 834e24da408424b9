//! Which requests wait, and how long forwarded requests may last.

use std::future::Future as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::task::{Context, Waker};

use futures::FutureExt;
use http::{HeaderMap, Request};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::super::drain_flag::DrainFlag;
use super::super::forwarded::{lifetime_of, revocation};
use super::super::live::LiveLimits;
use tokio::time::Instant;

use super::tables::may_share;
use super::*;
use crate::admission::samples::unlimited;
use crate::auth::guard::Forwarding;
use crate::cache::samples::keep;
use crate::cache_rule::ApiService;
use crate::config::{ResourcePattern, ServingRules};
use crate::decode::UpstreamStatus;
use crate::fairness::{Peer, Permits};
use crate::metrics::GiveUpReason;
use crate::protocol::request::RequestInfo;
use crate::serve::resources::{
    Availability, FillWait, ForwardCaller, ForwardLifetime, ForwardPermit, ForwardRequest,
    Permission, Resources as _,
};
use crate::upstream::client::{ConnectSource, ForwardIdentity};
use crate::upstream::discovery::{DiscoveredResource, discover};
use crate::upstream::driver::{DriverRecorder as _, FailureReport, RequestKind};
use crate::upstream::reflector::Failure;
use crate::upstream::samples::captured_log::CapturedLog;
use crate::view::ObjectFormat;
use kube_fanout_testkit::apiserver::faults::{Fault, FaultOrder};
use kube_fanout_testkit::apiserver::{self, Apiserver, Options};
use kube_fanout_wire::selector::Selector;

const TIMEOUT: Duration = Duration::from_secs(10);

/// A registry for the API server at this address.
async fn registry(address: SocketAddr) -> Registry {
    let source = ConnectSource::url(&format!("http://{address}")).unwrap();
    let client = Client::connect(source).await.unwrap();
    let metrics = Arc::new(Metrics::new().unwrap());
    let settings = RegistrySettings {
        pinned: Vec::new(),
        cached: CacheLists {
            allowed: vec![ResourcePattern::ALL],
            denied: Vec::new(),
        },
        retention: keep(1000),
        history_age_min: Duration::ZERO,
        catch_up: Vec::new(),
        limits: ReadLimits {
            frame_len_max: 1 << 20,
            coalesce_delay_max: Duration::ZERO,
            live: LiveLimits::generous(),
        },
        admission: unlimited(),
        is_guarded: false,
        hooks: Hooks::default(),
        checkpoints: None,
        handover: None,
        serving: ServingControl::new(ServingRules::default(), metrics.serving()),
        is_tls: false,
    };
    let discovery = discover(&client).await.unwrap();
    let passthrough = Passthrough::new(
        client.clone(),
        ForwardIdentity::Gateway,
        metrics.passthrough(),
    );
    Registry::new(settings, client, passthrough, metrics, Ok(discovery))
}

async fn apiserver() -> Apiserver {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    apiserver::start(listener, Options::default()).unwrap()
}

fn config_maps() -> CacheKey {
    CacheKey::json(&Gvr::new("", "v1", "configmaps"))
}

fn peer(number: u8) -> Peer {
    Peer::from(IpAddr::from(Ipv4Addr::new(10, 0, 0, number)))
}

#[tokio::test]
async fn discovery_that_cannot_be_read_is_logged_once_and_so_is_its_return() {
    let (log, _guard) = CapturedLog::start();
    let apiserver = apiserver().await;
    let registry = registry(apiserver.address()).await;
    let source = ConnectSource::url("http://127.0.0.1:1").unwrap();
    let nowhere = Client::connect(source).await.unwrap();
    for _ in 0..5 {
        registry.not_discovered(&discover(&nowhere).await.unwrap_err());
    }
    assert_eq!(log.lines_with("cannot read discovery").len(), 1);
    for _ in 0..2 {
        registry.discovered(discover(&registry.client).await.unwrap());
    }
    assert_eq!(log.lines_with("discovery can be read again").len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_do_not_wait_for_a_busy_cache_of_another_resource() {
    let apiserver = apiserver().await;
    let registry = Arc::new(registry(apiserver.address()).await);
    let key = config_maps();
    let available = registry
        .availability(&key, FillWait::Long, Peer::UNKNOWN)
        .await;
    let Availability::Ready(served) = available else {
        panic!("{available:?}");
    };
    let slot = registry.slot(&key).unwrap();
    let waiting = {
        let _busy = served.hub.hold();
        let sweeping = Arc::clone(&registry);
        let held = Arc::strong_count(&slot);
        let sweep = std::thread::spawn(move || sweeping.retire_unwanted());
        // The sweep has reached the slot and waits for its hub.
        let deadline = std::time::Instant::now() + TIMEOUT;
        let is_early = || std::time::Instant::now() < deadline;
        while Arc::strong_count(&slot) == held && is_early() {
            std::thread::yield_now();
        }
        while registry.state.try_lock().is_none() {
            assert!(is_early(), "the registry waits for the sweep");
            std::thread::yield_now();
        }
        sweep
    };
    assert_eq!(waiting.join().unwrap(), [key]);
}

#[tokio::test]
async fn a_watch_either_keeps_an_idle_cache_or_is_forwarded() {
    let apiserver = apiserver().await;
    let registry = registry(apiserver.address()).await;
    let key = config_maps();
    let available = registry
        .availability(&key, FillWait::Long, Peer::UNKNOWN)
        .await;
    let Availability::Ready(served) = available else {
        panic!("{available:?}");
    };
    let join = || {
        let format = ObjectFormat::whole(key.encoding);
        served.hub.join_as(&Selector::default(), format, peer(1))
    };
    // The client has asked for the cache long before, and joins at the last moment.
    let joined = join().unwrap();
    assert_eq!(registry.retire_unwanted(), []);
    drop(joined);
    assert_eq!(registry.retire_unwanted(), std::slice::from_ref(&key));
    assert!(join().is_err(), "it would be ended at once");
}

/// Paused time advances only when all tasks wait. Upstream's delay is longer than every other wait in this test.
#[tokio::test]
async fn while_a_cache_fills_few_requests_are_forwarded_and_others_told_to_come_again() {
    let apiserver = apiserver().await;
    let registry = registry(apiserver.address()).await;
    let slow = FaultOrder {
        fault: Fault::Delay { delay_ms: 60_000 },
        verb: None,
        resource: Some("configmaps".to_owned()),
        count: u32::MAX,
    };
    apiserver.order(slow).unwrap();
    tokio::time::pause();
    let key = config_maps();
    let started = Instant::now();
    let availability = |wait, peer| registry.availability(&key, wait, peer);
    let all = (0..40).map(|_| availability(FillWait::Short, peer(1)));
    let answers = futures::future::join_all(all).await;
    assert_eq!(started.elapsed().as_secs(), 10);
    let (mut forwarded, refused): (Vec<_>, Vec<_>) = answers
        .into_iter()
        .partition(|answer| matches!(answer, Availability::Forwarded(Some(_))));
    // Of 32 permits one client may have four fifths.
    assert_eq!((forwarded.len(), refused.len()), (26, 14));
    for answer in refused {
        let Availability::Filling {
            retry_after_seconds,
        } = answer
        else {
            panic!("{answer:?}");
        };
        assert!((1..=30).contains(&retry_after_seconds));
    }
    // There are permits for another client, and for the same client once a response has ended. Neither waits for what others have waited for.
    let other = availability(FillWait::Short, peer(2)).await;
    assert!(matches!(other, Availability::Forwarded(Some(_))));
    assert_eq!(started.elapsed().as_secs(), 10);
    forwarded.truncate(20);
    let next = availability(FillWait::Long, peer(1)).await;
    assert!(matches!(next, Availability::Forwarded(Some(_))));
    assert_eq!(started.elapsed().as_secs(), 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resource_without_a_place_for_its_watch_is_forwarded_until_there_is_one() {
    let apiserver = apiserver().await;
    let registry = registry(apiserver.address()).await;
    let permits = registry.client.saturate_watches();
    let key = config_maps();
    let availability = || registry.availability(&key, FillWait::Long, Peer::UNKNOWN);
    let available = availability().await;
    let is_forwarded = matches!(available, Availability::Forwarded(None));
    assert!(is_forwarded, "{available:?}");
    let slot = registry.slot(&key).unwrap();
    assert_eq!(slot.describe(), "forwarded: saturated");
    let given_up = registry.metrics.cache((&key).into()).given_up;
    assert_eq!(given_up.count(GiveUpReason::Saturated), 1);

    drop(permits);
    let mut slot_state = slot.cells.slot_state.subscribe();
    let ready = slot_state.wait_for(|state| matches!(state, SlotState::Ready(_)));
    tokio::time::timeout(TIMEOUT, ready).await.unwrap().unwrap();
    assert!(matches!(availability().await, Availability::Ready(_)));
}

#[test]
fn requests_last_as_long_as_on_the_api_server() {
    let check = |method: &str, target: &str, expected| {
        let request = Request::builder().method(method).uri(target);
        let request = request.body(()).unwrap();
        let info = RequestInfo::of(&request);
        assert_eq!(lifetime_of(&request, &info), expected, "{method} {target}");
    };
    let pod = "/api/v1/namespaces/a/pods/b";
    for (method, target) in [
        ("GET", "/version".to_owned()),
        ("GET", pod.to_owned()),
        ("PUT", format!("{pod}/status")),
        ("POST", format!("{pod}/eviction")),
        ("GET", "/api/v1/pods".to_owned()),
    ] {
        check(method, &target, ForwardLifetime::Short);
    }
    for (method, target) in [
        ("GET", format!("{pod}/log?follow=true")),
        ("GET", format!("{pod}/log")),
        ("POST", format!("{pod}/exec?command=ls")),
        ("GET", format!("{pod}/portforward")),
        ("GET", "/api/v1/nodes/n/proxy/metrics".to_owned()),
        ("GET", "/debug/pprof/profile?seconds=90".to_owned()),
    ] {
        check(method, &target, ForwardLifetime::Long);
    }
    check("GET", "/api/v1/pods?watch=1", ForwardLifetime::Watch);
    check("GET", "/api/v1/watch/pods", ForwardLifetime::Watch);
}

#[test]
fn table_watches_are_shared_without_authentication_or_once_authorized() {
    let plain = HeaderMap::new();
    let mut impersonating = HeaderMap::new();
    let root = http::HeaderValue::from_static("root");
    impersonating.insert("impersonate-user", root);
    let permission = permission();
    for (is_guarded, headers, permission, expected) in [
        (false, &plain, None, true),
        (false, &impersonating, None, false),
        (true, &plain, None, false),
        (true, &impersonating, None, false),
        (true, &impersonating, Some(&permission), true),
    ] {
        let shares = may_share(is_guarded, permission, headers);
        assert_eq!(shares, expected, "{headers:?} {permission:?}");
    }
}

#[tokio::test]
async fn a_forwarded_watch_ends_with_the_permission_or_the_credential() {
    let start = |permission: Permission| {
        let caller = caller(None, Some(permission));
        revocation(&caller, ForwardLifetime::Watch).unwrap()
    };
    let open = permission();
    let mut ended = std::pin::pin!(start(open.clone()));
    let mut context = Context::from_waker(Waker::noop());
    assert!(ended.as_mut().poll(&mut context).is_pending());
    open.lease.revoke();
    assert!(ended.as_mut().poll(&mut context).is_ready());
    let expired = Permission {
        expires_at: Some(Instant::now()),
        ..permission()
    };
    tokio::time::timeout(TIMEOUT, start(expired)).await.unwrap();
    assert!(revocation(&caller(None, None), ForwardLifetime::Watch).is_none());
}

/// Upstream checks tokens itself, but does not see certificates.
#[tokio::test]
async fn all_that_is_forwarded_ends_with_a_certificate_and_only_authorized_watches_with_a_token() {
    let shown = permission();
    let impersonating = Forwarding::Impersonating {
        caller: (*shown.caller).clone(),
        lease: shown.lease.clone(),
    };
    shown.lease.revoke();
    for (forwarding, is_authorized, expected) in [
        (impersonating.clone(), false, [true, true, true]),
        (impersonating, true, [true, true, true]),
        (Forwarding::AsCaller, false, [false, false, false]),
        (Forwarding::AsCaller, true, [true, false, false]),
    ] {
        let permission = is_authorized.then(permission);
        if let Some(permission) = &permission {
            permission.lease.revoke();
        }
        let caller = caller(Some(forwarding), permission);
        let ended = [
            ForwardLifetime::Watch,
            ForwardLifetime::Long,
            ForwardLifetime::Short,
        ]
        .map(|lifetime| revocation(&caller, lifetime).and_then(FutureExt::now_or_never));
        assert_eq!(ended.map(|ended| ended.is_some()), expected, "{caller:?}");
    }
}

fn caller(forwarding: Option<Forwarding>, permission: Option<Permission>) -> ForwardCaller {
    ForwardCaller {
        peer: Peer::UNKNOWN,
        forwarding,
        permission,
        token_user: None,
    }
}

fn permission() -> Permission {
    use crate::auth::caller::{Caller, Credential};
    let caller = Caller {
        authenticated_at: std::time::Instant::now(),
        user: Arc::default(),
        impersonator: None,
        impersonation: Arc::default(),
        credential: Credential::Certificate(Arc::default()),
        peer: Peer::default(),
        expires_at: None,
    };
    Permission {
        caller: Arc::new(caller),
        lease: crate::auth::lease::Lease::new(),
        expires_at: None,
    }
}

/// An API server that accepts each watch and then sends nothing. The embedded API server does not support WebSocket.
async fn silent_upstream() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            let head = String::from_utf8(head).unwrap();
            let answer = match head.contains("websocket") {
                true => "101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket",
                false => "200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked",
            };
            let answer = format!("HTTP/1.1 {answer}\r\n\r\n");
            stream.write_all(answer.as_bytes()).await.unwrap();
            tokio::spawn(async move { while stream.read_u8().await.is_ok() {} });
        }
    });
    address
}

/// A client whose requests the registry forwards with this permit.
async fn client_of(registry: &Arc<Registry>, permit: ForwardPermit) -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await;
    let (stream, _) = listener.accept().await.unwrap();
    let registry = Arc::clone(registry);
    let service = service_fn(move |request: Request<Incoming>| {
        let forward = ForwardRequest {
            request: request.into(),
            caller: caller(None, None),
            permit: Some(permit.clone()),
            trail: None,
            rule: None,
        };
        let registry = Arc::clone(&registry);
        async move { Ok::<_, std::convert::Infallible>(registry.forward(forward).await) }
    });
    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    tokio::spawn(connection.with_upgrades());
    client.unwrap()
}

/// Over HTTP and over WebSocket: a resource without a cache has only 32 permits for both.
#[tokio::test]
async fn a_watch_without_a_cache_holds_its_place_until_its_client_is_to_come_back() {
    let apiserver = apiserver().await;
    let mut registry = registry(apiserver.address()).await;
    let source = ConnectSource::url(&format!("http://{}", silent_upstream().await));
    let client = Client::connect(source.unwrap()).await.unwrap();
    let metrics = registry.metrics.passthrough();
    registry.passthrough = Passthrough::new(client, ForwardIdentity::Gateway, metrics);
    let registry = Arc::new(registry);
    let socket = "Connection: Upgrade\r\nUpgrade: websocket\r\nOrigin: http://a\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    for (headers, code) in [("Connection: close\r\n", "200"), (socket, "101")] {
        let permits = Permits::new(1);
        let permit = permits.try_acquire(Peer::UNKNOWN).unwrap();
        let mut client = client_of(&registry, permit.into()).await;
        let head = format!("GET /api/v1/configmaps?watch=1 HTTP/1.1\r\nHost: a\r\n{headers}\r\n");
        client.write_all(head.as_bytes()).await.unwrap();
        let mut received = Vec::new();
        while !received.windows(4).any(|end| end == b"\r\n\r\n") {
            assert!(client.read_buf(&mut received).await.unwrap() > 0);
        }
        let head = String::from_utf8_lossy(&received);
        assert!(head.starts_with(&format!("HTTP/1.1 {code} ")), "{head}");
        assert!(permits.try_acquire(Peer::UNKNOWN).is_none(), "{code}");

        tokio::time::pause();
        let start = Instant::now();
        client.read_to_end(&mut received).await.unwrap();
        let elapsed = start.elapsed().as_secs();
        tokio::time::resume();
        assert!((80..=100).contains(&elapsed), "{code}: {elapsed} s");
        assert!(permits.try_acquire(Peer::UNKNOWN).is_some(), "{code}");
    }
}

#[tokio::test]
async fn series_of_a_resource_go_some_time_after_its_cache() {
    let apiserver = apiserver().await;
    let registry = registry(apiserver.address()).await;
    let key = config_maps();
    let available = registry
        .availability(&key, FillWait::Long, Peer::UNKNOWN)
        .await;
    assert!(matches!(available, Availability::Ready(_)), "{available:?}");
    drop(available);
    let tally = registry.tally(&key);
    tally.started();
    let is_shown = || {
        registry.forget_unused();
        let page = registry.metrics.page().unwrap();
        page.contains("resource=\"configmaps\"")
    };
    tokio::time::pause();
    let long = Duration::from_secs(3600);
    tokio::time::advance(long).await;
    assert!(is_shown(), "the resource has a cache");
    registry.close_slot(&key, Hub::close);
    tokio::time::advance(long).await;
    assert!(is_shown(), "the resource has a watch");
    tally.ended(crate::watch::WatchTotals {
        end: crate::metrics::WatchEnd::CacheGone,
        client: None,
        events: 0,
        bytes: 0,
    });
    assert!(is_shown(), "the resource had a watch a moment ago");
    tokio::time::advance(long).await;
    assert!(!is_shown());
}

async fn served(registry: &Registry, key: &CacheKey) -> ServedResource {
    let available = registry
        .availability(key, FillWait::Long, Peer::UNKNOWN)
        .await;
    let Availability::Ready(served) = available else {
        panic!("{available:?}");
    };
    served
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resource_with_another_kind_scope_or_other_verbs_gives_its_cache_up() {
    let apiserver = apiserver().await;
    let registry = registry(apiserver.address()).await;
    let key = config_maps();
    let original = discover(&registry.client).await.unwrap();
    let changes: [fn(&mut DiscoveredResource); 3] = [
        |one| one.kind = "Gadget".to_owned(),
        |one| one.namespaced = false,
        |one| one.watch = false,
    ];
    for change in changes {
        registry.discovered(original.clone());
        let before = served(&registry, &key).await;
        registry.discovered(original.clone());
        assert!(!before.hub.is_closed());
        let changed = original.resources().cloned().map(|mut one| {
            if one.gvr == key.gvr {
                change(&mut one);
            }
            one
        });
        let changed: Discovery = changed.collect();
        let definition = changed.resource(&key.gvr).unwrap().clone();
        registry.discovered(changed);
        assert!(before.hub.is_expired());
        if !definition.watch {
            assert!(!registry.may_serve(&key.gvr));
            assert!(registry.slot(&key).is_none());
            continue;
        }
        let after = served(&registry, &key).await;
        let kind = after.cache.kind();
        assert_eq!(
            (&kind.kind, kind.namespaced),
            (&definition.kind, definition.namespaced)
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ready_cache_serves_what_discovery_lacks_until_it_is_missing_twice() {
    let apiserver = apiserver().await;
    let registry = registry(apiserver.address()).await;
    let key = config_maps();
    let cache = served(&registry, &key).await;
    registry.discovered(Discovery::default());
    assert!(registry.may_serve(&key.gvr));
    let kept = registry.kept_cache(&key.gvr).unwrap();
    assert!(Arc::ptr_eq(&kept.cache, &cache.cache));
    assert!(
        !registry.may_serve(&Gvr::new("", "v1", "pods")),
        "it has no cache"
    );
    registry.discovered(Discovery::default());
    assert!(cache.hub.is_closed() && !registry.may_serve(&key.gvr));
    assert!(registry.kept_cache(&key.gvr).is_none());
}

#[tokio::test]
async fn signs_of_a_changed_definition_trigger_discovery() {
    let metrics = Metrics::new().unwrap();
    let wanted = Arc::new(Notify::new());
    let recorder = ResourceRecorder::new(&metrics, &config_maps(), DrainFlag::default())
        .asking_for_discovery(Arc::clone(&wanted));
    let recorder = Arc::new(recorder).for_cache();
    for (code, is_wanted) in [(404, true), (410, true), (503, false), (403, false)] {
        let failure = Failure::Status(UpstreamStatus::of_code(code));
        recorder.failed(FailureReport {
            asked: RequestKind::Watch,
            failure: &failure,
            rejection: None,
            cause: "",
        });
        assert_eq!(
            wanted.notified().now_or_never().is_some(),
            is_wanted,
            "{code}"
        );
    }
}

/// What is known if one APIService has this specification besides its group `example.com` and version.
fn known_with(version: &str, spec: &str) -> Arc<ApiServiceKnowledge> {
    let json = format!(r#"{{"spec":{{"group":"example.com","version":"{version}"{spec}}}}}"#);
    let service = ApiService::read(&format!("{version}.example.com"), json.as_bytes());
    Arc::new(ApiServiceKnowledge::Known([service].into_iter().collect()))
}

const BY_SERVICE: &str = r#","service":{"namespace":"ns","name":"s"}"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cache_is_given_up_only_if_other_bytes_may_come() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = Options {
        extra_kinds: vec!["widgets.v1.example.com=Widget".parse().unwrap()],
        ..Options::default()
    };
    let apiserver = apiserver::start(listener, options).unwrap();
    let mut registry = registry(apiserver.address()).await;
    registry.settings.cached.allowed = vec!["*.example.com".parse().unwrap()];
    registry.apply(&known_with("v2", ""));
    let key = CacheKey::json(&Gvr::new("example.com", "v1", "widgets"));
    let cache = served(&registry, &key).await;
    registry.apply(&known_with("v1", ""));
    assert!(
        !cache.hub.is_closed(),
        "its APIService has appeared after the custom resource"
    );
    registry.apply(&known_with("v1", BY_SERVICE));
    assert!(cache.hub.is_expired());
}
