//! An API server whose lists never end, or have objects of a hundred megabytes: their resource gets no cache and is forwarded, memory stays
//! bounded, and other resources notice nothing.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::hostile::stage::{apiserver, until};
use crate::hostile::witness::Witness;
use crate::support::client::{get, metric_of};
use crate::support::process::GatewayProcess;

const PODS: &str = "/api/v1/pods";
/// What the gateway may have: several times what it needs for the other resources.
const MEMORY_MAX: u64 = 160 << 20;
const PAGE_LEN: usize = 500;
/// So that the gateway is not flooded faster than it looks at its memory: 1 MB each time.
const PAGE_PAUSE: Duration = Duration::from_millis(10);

/// What a list of pods is.
#[derive(Clone, Copy)]
enum PodList {
    /// Pages without end, each with a token of its own.
    Endless,
    /// A page with one object of this length.
    Large(usize),
}

/// A relay before the API server that answers lists of pods itself. It ends when it is dropped.
struct ListRelay {
    address: SocketAddr,
    _serving: JoinSet<()>,
}

#[derive(Clone)]
struct ListService {
    pods: PodList,
    upstream: SocketAddr,
    client: Client<HttpConnector, Incoming>,
    pages: Arc<AtomicU64>,
}

impl ListRelay {
    async fn start(upstream: SocketAddr, pods: PodList) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let service = ListService {
            pods,
            upstream,
            client: Client::builder(TokioExecutor::new()).build_http(),
            pages: Arc::default(),
        };
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let service = service.clone();
                let respond = service_fn(move |request| {
                    let service = service.clone();
                    async move { Ok::<_, Infallible>(service.respond(request).await) }
                });
                let connection = http1::Builder::new();
                let connection = connection.serve_connection(TokioIo::new(stream), respond);
                connections.spawn(async move { drop(connection.await) });
            }
        });
        Self {
            address,
            _serving: serving,
        }
    }
}

impl ListService {
    async fn respond(
        &self,
        mut request: Request<Incoming>,
    ) -> Response<BoxBody<Bytes, hyper::Error>> {
        let uri = request.uri();
        if uri.path() == PODS {
            let query = uri.query().unwrap_or_default();
            let (code, body) = match query.contains("watch=") {
                // The gateway then lists in pages.
                true => (400, r#"{"kind":"Status","code":400}"#.to_owned()),
                false => (200, self.list().await),
            };
            let response = Response::builder().status(code);
            let response = response.header("content-type", "application/json");
            let body = Full::from(body).map_err(|never| match never {});
            return response.body(body.boxed()).unwrap();
        }
        let target = uri.path_and_query().unwrap();
        let uri = format!("http://{}{target}", self.upstream);
        *request.uri_mut() = uri.parse::<Uri>().unwrap();
        let response = self.client.request(request).await.unwrap();
        response.map(BodyExt::boxed)
    }

    async fn list(&self) -> String {
        let page = self.pages.fetch_add(1, Ordering::Relaxed);
        let (objects, len, token) = match self.pods {
            PodList::Endless => (PAGE_LEN, 2_000, format!("after-{page}")),
            PodList::Large(len) => (1, len, String::new()),
        };
        tokio::time::sleep(PAGE_PAUSE).await;
        let text = "x".repeat(len);
        let item = |number: usize| {
            format!(
                r#"{{"metadata":{{"name":"pod-{page:09}-{number:03}","namespace":"default","uid":"u","resourceVersion":"5","annotations":{{"text":"{text}"}}}}}}"#
            )
        };
        let items: Vec<_> = (0..objects).map(item).collect();
        format!(
            r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"9","continue":"{token}"}},"items":[{}]}}"#,
            items.join(",")
        )
    }
}

/// Pods are given up for memory, and what is resident stays within the bound; meanwhile no event of another resource is lost.
async fn check_contained(pods: PodList) {
    let apiserver = apiserver().await;
    let relay = ListRelay::start(apiserver.address(), pods).await;
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
    check_contained(PodList::Large(100 << 20)).await;
}
