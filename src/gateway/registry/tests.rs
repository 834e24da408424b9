//! What requests wait for, and how long what is forwarded may last.

use tokio::net::TcpListener;

use super::*;
use crate::apiserver::{self, Options};
use crate::cache::tests::samples::keep;
use crate::upstream::client::{Identity, UpstreamSource};

const PATIENCE: Duration = Duration::from_secs(10);

/// A registry before an embedded API server at this address.
async fn registry(address: std::net::SocketAddr) -> Registry {
    let source = UpstreamSource::url(&format!("http://{address}")).unwrap();
    let client = Client::connect(source).await.unwrap();
    let metrics = Arc::new(Metrics::new().unwrap());
    let settings = RegistrySettings {
        pinned: Vec::new(),
        passthrough: Vec::new(),
        idle_timeout: Duration::ZERO,
        retention: keep(1000),
        limits: ReadLimits {
            frame_len_max: 1 << 20,
            coalesce_delay_max: Duration::ZERO,
            memory_max: 0,
        },
    };
    let discovery = discover(&client).await.unwrap();
    let passthrough = Passthrough::new(client.clone(), Identity::Gateway, metrics.passthrough());
    Registry::new(settings, client, passthrough, metrics, Some(discovery))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_do_not_wait_for_a_busy_cache_of_another_resource() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let apiserver = apiserver::start(listener, Options::default()).unwrap();
    let registry = Arc::new(registry(apiserver.address()).await);
    let key = CacheKey::json(&Gvr::new("", "v1", "configmaps"));
    let available = registry.availability(&key, FillWait::Long).await;
    let Availability::Ready(served) = available else {
        panic!("{available:?}");
    };
    let slot = registry.slot(&key).unwrap();
    let waiting = {
        let _busy = served.hub.hold();
        let sweeping = Arc::clone(&registry);
        let held = Arc::strong_count(&slot);
        let sweep = std::thread::spawn(move || sweeping.unwanted());
        // The sweep has come to the slot, and waits for its hub.
        let give_up_at = std::time::Instant::now() + PATIENCE;
        let is_early = || std::time::Instant::now() < give_up_at;
        while Arc::strong_count(&slot) == held && is_early() {
            std::thread::yield_now();
        }
        while registry.state.try_lock().is_err() {
            assert!(is_early(), "the registry waits for the sweep");
            std::thread::yield_now();
        }
        sweep
    };
    assert_eq!(waiting.join().unwrap(), [key]);
}

#[test]
fn requests_last_as_long_as_on_the_api_server() {
    let check = |method: &str, target: &str, expected| {
        let request = Request::builder().method(method).uri(target);
        let request = request.body(()).unwrap();
        assert_eq!(lasting(&request), expected, "{method} {target}");
    };
    let pod = "/api/v1/namespaces/a/pods/b";
    for (method, target) in [
        ("GET", "/version".to_owned()),
        ("GET", pod.to_owned()),
        ("PUT", format!("{pod}/status")),
        ("POST", format!("{pod}/eviction")),
        ("GET", "/api/v1/pods".to_owned()),
    ] {
        check(method, &target, Lasting::Short);
    }
    for (method, target) in [
        ("GET", format!("{pod}/log?follow=true")),
        ("GET", format!("{pod}/log")),
        ("POST", format!("{pod}/exec?command=ls")),
        ("GET", format!("{pod}/portforward")),
        ("GET", "/api/v1/nodes/n/proxy/metrics".to_owned()),
        ("GET", "/debug/pprof/profile?seconds=90".to_owned()),
    ] {
        check(method, &target, Lasting::Long);
    }
    check("GET", "/api/v1/pods?watch=1", Lasting::Watch);
    check("GET", "/api/v1/watch/pods", Lasting::Watch);
}
