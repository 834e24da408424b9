//! An API server whose lists never end, or have objects of a hundred megabytes: their resource gets no cache and is forwarded, memory stays
//! bounded, and other resources notice nothing.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use crate::hostile::stage::{apiserver, until};
use crate::hostile::witness::Witness;
use crate::support::client::{get, metric_of};
use crate::support::http_server::{HttpServer, RelayBody, Upstream, whole};
use crate::support::process::GatewayProcess;

const PODS: &str = "/api/v1/pods";
/// What the gateway may have: several times what it needs for the other resources.
const MEMORY_MAX: u64 = 160 << 20;
const PAGE_LEN: usize = 500;
/// So that the gateway is not flooded faster than it looks at its memory: 1 MB each time.
const PAGE_PAUSE: Duration = Duration::from_millis(10);

/// What a list of pods is.
#[derive(Clone)]
enum PodList {
    /// Pages without end, each with a token of its own.
    Endless,
    /// This one page.
    Page(Bytes),
}

/// Starts a relay before the API server that answers lists of pods itself.
async fn relay(upstream: SocketAddr, pods: PodList) -> HttpServer {
    let upstream = Upstream::new(upstream);
    let number = Arc::<AtomicU64>::default();
    HttpServer::start(move |request| {
        let (upstream, pods, number) = (upstream.clone(), pods.clone(), Arc::clone(&number));
        async move { respond(request, &upstream, pods, &number).await }
    })
    .await
}

async fn respond(
    request: Request<Incoming>,
    upstream: &Upstream,
    pods: PodList,
    number: &AtomicU64,
) -> Response<RelayBody> {
    let uri = request.uri();
    if uri.path() != PODS {
        return upstream.forward(request).await.map(BodyExt::boxed);
    }
    let watch = uri.query().is_some_and(|query| query.contains("watch="));
    let (code, body) = if watch {
        // The gateway then lists in pages.
        (400, Bytes::from(r#"{"kind":"Status","code":400}"#))
    } else {
        tokio::time::sleep(PAGE_PAUSE).await;
        let page = match pods {
            PodList::Endless => {
                let number = number.fetch_add(1, Ordering::Relaxed);
                page(number, PAGE_LEN, 2_000, &format!("after-{number}"))
            }
            PodList::Page(page) => page,
        };
        (200, page)
    };
    let response = Response::builder().status(code);
    let response = response.header("content-type", "application/json");
    response.body(whole(body)).unwrap()
}

/// A page of this many pods with this much text each.
fn page(number: u64, objects: usize, text_len: usize, token: &str) -> Bytes {
    let text = "x".repeat(text_len);
    let item = |index: usize| {
        format!(
            r#"{{"metadata":{{"name":"pod-{number:09}-{index:03}","namespace":"default","uid":"u","resourceVersion":"5","annotations":{{"text":"{text}"}}}}}}"#
        )
    };
    let items: Vec<_> = (0..objects).map(item).collect();
    let page = format!(
        r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"9","continue":"{token}"}},"items":[{}]}}"#,
        items.join(",")
    );
    page.into()
}

/// Pods are given up for memory, and what is resident stays within the bound; meanwhile no event of another resource is lost.
async fn check_contained(pods: PodList) {
    let apiserver = apiserver().await;
    let relay = relay(apiserver.address(), pods).await;
    let flags = [
        "--upstream".to_owned(),
        format!("http://{}", relay.address),
        "--memory-max".to_owned(),
        MEMORY_MAX.to_string(),
    ];
    let gateway = GatewayProcess::start(&flags).await;
    let witness = Witness::start(gateway.address, apiserver.address()).await;
    let page = format!("{PODS}?limit=1");
    // This starts the cache of pods; the page itself is forwarded.
    assert_eq!(get(gateway.address, &page).await.status(), 200);
    until("pods are given up", async || {
        let given_up = "kube_fanout_cache_given_up_total";
        metric_of(&gateway, "pods", given_up, "\"memory\"").await > 0.0
    })
    .await;
    assert_eq!(get(gateway.address, &page).await.status(), 200);
    until("what pods took is free", async || {
        let page = crate::support::client::text(gateway.admin, "/metrics").await;
        let name = "kube_fanout_memory_pressure ";
        page.lines().any(|line| line == format!("{name}0"))
    })
    .await;
    let state = "kube_fanout_cache_state";
    assert_eq!(
        metric_of(&gateway, "configmaps", state, "\"ready\"").await,
        1.0
    );
    witness.check().await;
    gateway.terminate();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_that_never_ends_costs_its_resource_alone() {
    check_contained(PodList::Endless).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_of_a_hundred_megabytes_costs_its_resource_alone() {
    check_contained(PodList::Page(page(0, 1, 100 << 20, ""))).await;
}
