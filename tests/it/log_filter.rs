//! The log filter of a running gateway: what is logged, and who may change it.

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use kube_fanout::config::AuthMode;
use kube_fanout_testkit::apiserver::{self, Options};
use serde_json::json;
use std::net::SocketAddr;
use tokio::net::{TcpListener, TcpSocket};

use crate::support::auth::{AuthStage, bearer, gateways_rights, grant, until};
use crate::support::client::{send, text};
use crate::support::process::GatewayProcess;

const CHANGED: &str = "the log filter has changed";
const ENDED: &str = "watch ended";

fn put(filter: &str) -> http::Request<Full<Bytes>> {
    http::Request::put("/log-filter")
        .header("host", "localhost")
        .body(Full::new(Bytes::copy_from_slice(filter.as_bytes())))
        .unwrap()
}

/// A watch that the gateway ends within a second.
async fn watch(gateway: &GatewayProcess) {
    let target = "/api/v1/configmaps?watch=1&resourceVersion=0&timeoutSeconds=1";
    text(gateway.address, target).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_module_is_logged_in_detail_as_long_as_somebody_wants_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let apiserver = apiserver::start(listener, Options::default()).unwrap();
    let upstream = format!("--upstream=http://{}", apiserver.address());
    let gateway = GatewayProcess::start(&[upstream]).await;
    watch(&gateway).await;
    let filter = "error,kube_fanout::gateway::recorders=debug";
    assert_eq!(send(gateway.admin, put(filter)).await.status(), 200);
    let fields = gateway.logged(CHANGED).await;
    assert_eq!(fields["by"], "a client on this machine");
    assert_eq!(
        (&fields["old"], &fields["new"]),
        (&json!("info"), &json!(filter))
    );
    watch(&gateway).await;
    gateway.logged(ENDED).await;
    assert_eq!(send(gateway.admin, put("off")).await.status(), 200);
    watch(&gateway).await;
    assert_eq!(send(gateway.admin, put("")).await.status(), 200);
    let is_reset = async || gateway.count(CHANGED) == 3;
    until("even a change to off and back is logged", is_reset).await;
    assert_eq!(gateway.count(ENDED), 1);
}

/// The status of a request from an address that is not the local one.
async fn from_elsewhere(admin: SocketAddr, method: &str, token: &str) -> u16 {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 2], 0).into()).unwrap();
    let stream = hyper_util::rt::TokioIo::new(socket.connect(admin).await.unwrap());
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::builder()
        .method(method)
        .uri("/log-filter")
        .header("host", "gateway")
        .header("authorization", bearer(token))
        .body(Full::new(Bytes::from_static(b"warn")))
        .unwrap();
    let response = sender.send_request(request).await.unwrap();
    let status = response.status().as_u16();
    response.into_body().collect().await.unwrap();
    status
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_elsewhere_reading_and_changing_it_are_two_rights() {
    let mut rights = gateways_rights();
    for (user, verbs) in [("reader", json!(["get"])), ("writer", json!(["update"]))] {
        let rule = json!({"verbs": verbs, "nonResourceURLs": ["/kube-fanout/log-filter"]});
        let (role, binding) = grant(user, user, rule);
        rights.push(("/clusterroles", role));
        rights.push(("/clusterrolebindings", binding));
    }
    let stage = AuthStage::with_rights(AuthMode::Review, rights, |_| {}).await;
    for user in ["reader", "writer", "nobody"] {
        stage.user(&format!("{user}s-token"), user, &[]);
    }
    for (token, get, put) in [
        ("readers-token", 200, 403),
        ("writers-token", 403, 200),
        ("nobodys-token", 403, 403),
        ("wrong-token", 401, 401),
    ] {
        assert_eq!(
            from_elsewhere(stage.admin, "GET", token).await,
            get,
            "{token}"
        );
        assert_eq!(
            from_elsewhere(stage.admin, "PUT", token).await,
            put,
            "{token}"
        );
    }
    stage.ended().await;
}
