//! Gateways in front of an API server that has config maps in JSON and in protobuf.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::Request;
use http_body_util::Full;
use hyper::body::Bytes;
use kube_fanout::config::{CompressWatches, ServeSettings};
use kube_fanout::shutdown::Drain;
use kube_fanout_testkit::apiserver::{self, Apiserver, Options};
use serde_json::json;
use tokio::net::TcpListener;

use crate::hostile::tls::{Bridge, Serving};
use crate::support::client::{HttpVersion, send};
use crate::support::gateway::Running;
use crate::support::http_server::HttpServer;
use crate::support::protobuf_relay;
use crate::support::random::Random;

pub(super) const NAMESPACE: &str = "/api/v1/namespaces/default";

pub(super) struct Stage {
    apiserver: Apiserver,
    pub(super) gateway: Running,
    written: AtomicUsize,
    relay: HttpServer,
}

/// A gateway that serves TLS, and a way for clients that do not speak it.
pub(super) struct TlsGateway {
    gateway: Running,
    pub(super) bridge: Bridge,
}

impl Stage {
    pub(super) async fn new() -> Self {
        Self::with(CompressWatches::Auto).await
    }

    pub(super) async fn with(which: CompressWatches) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let apiserver = apiserver::start(listener, Options::default()).unwrap();
        let relay = protobuf_relay::start(apiserver.address()).await;
        let gateway = start(relay.address, |settings| settings.compress_watches = which).await;
        Self {
            apiserver,
            gateway,
            written: AtomicUsize::new(0),
            relay,
        }
    }

    /// Another gateway for the same API server. `test` must be unique among the tests.
    pub(super) async fn tls(&self, test: &str) -> TlsGateway {
        let serving = Serving::new(test);
        let transport = serving.transport();
        let gateway = start(self.relay.address, |settings| {
            settings.transport = transport
        })
        .await;
        let bridge = Bridge::to(gateway.address, serving.connector()).await;
        TlsGateway { gateway, bridge }
    }

    /// A gateway that reads from the first one.
    pub(super) async fn behind(&self) -> Running {
        start(self.gateway.address, |_| ()).await
    }

    /// Creates a config map or a secret with about this much text; returns its name.
    pub(super) async fn create(&self, resource: &str, len: usize) -> String {
        let number = self.written.fetch_add(1, Ordering::Relaxed);
        self.create_with(resource, number, text(number, len)).await
    }

    /// Creates a config map of 2 KB whose text is that of all others; returns its name.
    pub(super) async fn create_alike(&self) -> String {
        let number = self.written.fetch_add(1, Ordering::Relaxed);
        self.create_with("configmaps", number, text(0, 2_000)).await
    }

    async fn create_with(&self, resource: &str, number: usize, text: String) -> String {
        let name = format!("object-{number:05}");
        let object = json!({
            "metadata": {"name": name, "labels": {"app": "compressed", "tier": "tests"}},
            "data": {"text": text},
        });
        let request = Request::post(format!("{NAMESPACE}/{resource}"))
            .header("host", "apiserver")
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(object.to_string())))
            .unwrap();
        let created = send(self.apiserver.address(), request).await;
        assert_eq!(created.status(), 201);
        name
    }

    pub(super) async fn end(self) {
        self.gateway.ended().await;
    }
}

impl TlsGateway {
    pub(super) async fn end(self) {
        self.gateway.ended().await;
    }
}

async fn start(upstream: SocketAddr, adjust: impl FnOnce(&mut ServeSettings)) -> Running {
    let upstream = format!("http://{upstream}/").parse().unwrap();
    let mut settings = ServeSettings::embedded(upstream);
    // Also secrets, which are not cached by default.
    settings.cached.denied.clear();
    adjust(&mut settings);
    Running::start(settings, Drain::new()).await
}

/// Text that compresses to about a half, and more where it repeats what came 4 KiB before.
fn text(number: usize, len: usize) -> String {
    let mut random = Random(number as u64);
    let mut text = String::with_capacity(len + 8);
    while text.len() < len {
        match random.one_in(16) && text.len() > 4_096 {
            true => text.push_str(&text.clone()[text.len() - 4_096..]),
            false => text.push_str(&format!("{:04x} ", random.below(1 << 16))),
        }
    }
    text.truncate(len);
    text
}

/// The ways to a gateway that clients are tested on.
pub(super) const fn ways(
    plain: SocketAddr,
    tls: SocketAddr,
) -> [(&'static str, HttpVersion, SocketAddr); 3] {
    [
        ("HTTP/1.1", HttpVersion::One, plain),
        ("HTTP/2", HttpVersion::Two, plain),
        ("HTTP/1.1 with TLS", HttpVersion::One, tls),
    ]
}
