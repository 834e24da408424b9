//! Gateways whose clients speak protobuf: the cache in protobuf is handed over as the one in JSON is. The embedded API server has no
//! protobuf, so a relay before it writes its config maps in protobuf.

use std::net::SocketAddr;

use http_body_util::BodyExt as _;
use hyper::body::{Bytes, Incoming};
use kube_fanout::decode::{WatchLine, scan_frame, scan_protobuf_list};
use kube_fanout::resource::{FieldTable, Gvr};
use serde_json::json;

use super::{LISTS, TAKEN, apiserver_of, create, gateway, next, ready};
use crate::support::PATIENCE;
use crate::support::client::{CONFIGMAPS, HttpVersion, connect_and_get_as, metric};
use crate::support::protobuf_relay::{self, PROTOBUF};

/// Lengths of objects, from a few lines to what etcd just accepts.
const LENGTHS: [usize; 5] = [100, 1_000, 20_000, 300_000, 1 << 20];

/// A watch of config maps in protobuf, and the frames that it has received, as they came.
struct FrameWatch {
    http: HttpVersion,
    body: Incoming,
    rest: Vec<u8>,
    version: u64,
    frames: Vec<Vec<u8>>,
}

impl FrameWatch {
    async fn start(http: HttpVersion, server: SocketAddr, version: u64) -> Self {
        let target = format!("{CONFIGMAPS}?watch=1&resourceVersion={version}");
        let response = connect_and_get_as(http, server, &target, PROTOBUF).await;
        let response = response.unwrap();
        assert_eq!(response.status(), 200);
        let media_type = format!("{PROTOBUF};stream=watch");
        assert_eq!(response.headers()["content-type"], media_type);
        Self {
            http,
            body: response.into_body(),
            rest: Vec::new(),
            version,
            frames: Vec::new(),
        }
    }

    /// Continues at another server.
    async fn resume(self, server: SocketAddr) -> Self {
        let next = Self::start(self.http, server, self.version).await;
        Self {
            frames: self.frames,
            ..next
        }
    }

    /// Reads what comes next; false at the end of the stream.
    async fn read(&mut self) -> bool {
        let chunk = tokio::time::timeout(PATIENCE, self.body.frame()).await;
        let Some(Ok(chunk)) = chunk.unwrap() else {
            return false;
        };
        self.rest.extend(chunk.into_data().unwrap_or_default());
        while let Some(len) = self.rest.first_chunk() {
            let len = 4 + u32::from_be_bytes(*len) as usize;
            if self.rest.len() < len {
                break;
            }
            let frame: Vec<u8> = self.rest.drain(..len).collect();
            let version = version_of(&frame);
            assert!(version > self.version, "{version} after {}", self.version);
            self.version = version;
            self.frames.push(frame);
        }
        true
    }

    async fn read_frames(&mut self, count: usize) {
        let enough = self.frames.len() + count;
        while self.frames.len() < enough {
            assert!(self.read().await, "the watch ended");
        }
    }

    async fn read_to(&mut self, version: u64) {
        while self.version < version {
            assert!(self.read().await, "the watch ended");
        }
    }
}

fn version_of(frame: &[u8]) -> u64 {
    let fields = FieldTable::of(&Gvr::new("", "v1", "configmaps"));
    let Ok(WatchLine::Event { parts, .. }) = scan_frame(frame, fields) else {
        panic!("no event: {} bytes", frame.len());
    };
    parts.resource_version.0
}

/// The version of a list in protobuf, and its objects.
async fn listed(server: SocketAddr) -> (u64, Vec<Bytes>) {
    let response = connect_and_get_as(HttpVersion::One, server, CONFIGMAPS, PROTOBUF).await;
    let response = response.unwrap();
    assert_eq!(response.headers()["content-type"], PROTOBUF);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let page = scan_protobuf_list(&body).unwrap();
    let items = page.items.iter();
    let items = items.map(|item| Bytes::copy_from_slice(item.of(&body)));
    (page.resource_version.0, items.collect())
}

/// Writes an object of each length.
async fn write_all(server: SocketAddr, round: &str) {
    for len in LENGTHS {
        let object = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": format!("{round}-{len}")},
            "data": {"text": "x".repeat(len)},
        });
        let collection = "/api/v1/namespaces/default/configmaps";
        create(server, collection, object.to_string()).await;
    }
}

/// A client in protobuf that watches through a gateway that is replaced by the next one sees what a direct client sees, byte for byte, and
/// misses nothing once nothing is written any more.
async fn check_replaced(http: HttpVersion) {
    let apiserver = apiserver_of(100).await;
    let relay = protobuf_relay::start(apiserver.address()).await;
    let (server, upstream) = (apiserver.address(), relay.address);
    let first = gateway(upstream, &[]).await;
    let (version, _) = listed(first.address).await;
    let mut direct = FrameWatch::start(HttpVersion::One, upstream, version).await;
    let mut client = FrameWatch::start(http, first.address, version).await;
    apiserver.set_churn(100);
    write_all(server, "before").await;
    client.read_frames(50).await;

    let second = next(upstream, first.address, &[]).await;
    ready(second.admin).await;
    // No client has asked the second gateway yet.
    assert_eq!(metric(&second, TAKEN, "\"taken\"").await, 1.0);
    // A client that has been away since the beginning finds its version here, too.
    let mut away = FrameWatch::start(http, second.address, version).await;
    first.kill();
    while client.read().await {}
    write_all(server, "between").await;
    let mut client = client.resume(second.address).await;
    client.read_frames(50).await;
    apiserver.set_churn(0);
    write_all(server, "last").await;
    let (newest, objects) = listed(upstream).await;
    for watch in [&mut client, &mut direct, &mut away] {
        watch.read_to(newest).await;
    }
    assert!(client.frames == direct.frames, "the client's events differ");
    assert!(
        away.frames == direct.frames,
        "the late client's events differ"
    );
    assert_eq!(listed(second.address).await, (newest, objects));
    assert_eq!(metric(&second, LISTS, "").await, 0.0);
}

#[tokio::test]
async fn clients_in_protobuf_continue_at_the_next_gateway() {
    check_replaced(HttpVersion::One).await;
}

#[tokio::test]
async fn clients_in_protobuf_over_http2_continue_at_the_next_gateway() {
    check_replaced(HttpVersion::Two).await;
}
