//! The status document over real connections.

use std::net::SocketAddr;

use http_body_util::{BodyExt as _, Full};
use kube_fanout::config::ServeSettings;
use kube_fanout::shutdown::Drain;
use kube_fanout_testkit::apiserver::{self, Apiserver, Options};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::support::PATIENCE;
use crate::support::auth::until;
use crate::support::client::{
    CONFIGMAPS, HttpVersion, connect_and_get, connect_and_get_as, put_rules, send, text,
};
use crate::support::gateway::Running;

/// More than the buffers of a connection hold.
const OBJECTS: usize = 32;
const OBJECT_LEN: usize = 1 << 20;

async fn start(drain: Drain) -> (Apiserver, Running) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = Options {
        objects: vec![format!("configmaps={OBJECTS}").parse().unwrap()],
        object_len: OBJECT_LEN,
        ..Options::default()
    };
    let apiserver = apiserver::start(listener, options).unwrap();
    let upstream = format!("http://{}", apiserver.address());
    let settings = ServeSettings::embedded(upstream.parse().unwrap());
    (apiserver, Running::start(settings, drain).await)
}

/// The port shows its status only to requests that name this machine.
async fn document(admin: SocketAddr) -> Value {
    let request = http::Request::get("/status.json").header("host", "localhost");
    let response = send(admin, request.body(Full::default()).unwrap()).await;
    assert_eq!(response.status(), 200);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    serde_json::from_slice(&body).unwrap()
}

/// All watches, those that have everything, and those in their initial events.
async fn cursors(admin: SocketAddr) -> [u64; 3] {
    let document = document(admin).await;
    let resources = document["resources"].as_array().unwrap();
    let sum = |member: &str| {
        let counts = resources.iter().map(|one| &one["cursors"][member]);
        counts.map(|count| count.as_u64().unwrap()).sum()
    };
    ["watches", "current", "initial"].map(sum)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_stops_in_its_initial_events_is_not_up_to_date_until_it_reads_on() {
    let (_apiserver, gateway) = start(Drain::new()).await;
    let target = format!(
        "{CONFIGMAPS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    );
    for http in [HttpVersion::One, HttpVersion::Two] {
        let response = connect_and_get(http, gateway.address, &target).await;
        let mut body = response.unwrap().into_body();
        until("it takes its initial events", async || {
            cursors(gateway.admin).await == [1, 0, 1]
        })
        .await;
        let (mut events, mut lines) = (Vec::new(), 0);
        while lines <= OBJECTS {
            let frame = body.frame().await.unwrap().unwrap();
            let data = frame.into_data().unwrap();
            lines += data.iter().filter(|byte| **byte == b'\n').count();
            events.extend(data);
        }
        let events = String::from_utf8(events).unwrap();
        assert_eq!(events.matches(r#"{"type":"ADDED""#).count(), OBJECTS);
        assert_eq!(events.matches(r#"{"type":"BOOKMARK""#).count(), 1);
        until("it has everything", async || {
            cursors(gateway.admin).await == [1, 1, 0]
        })
        .await;
        drop(body);
        until("it has left", async || cursors(gateway.admin).await[0] == 0).await;
    }
    gateway.ended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_drains_from_the_beginning_of_the_delay() {
    let drain = Drain::with_timeout(PATIENCE * 20).with_delay(PATIENCE * 10);
    let (_apiserver, gateway) = start(drain).await;
    assert_eq!(document(gateway.admin).await["gateway"]["draining"], false);
    gateway.begin_drain();
    until("the document says so", async || {
        document(gateway.admin).await["gateway"]["draining"] == true
    })
    .await;
    // Clients are still served: the delay has just begun.
    let list = text(gateway.address, CONFIGMAPS).await;
    assert!(list.contains("ConfigMapList"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_shadow_has_found_is_told_while_there_is_one() {
    let (_apiserver, gateway) = start(Drain::new()).await;
    assert!(document(gateway.admin).await["totals"]["shadow"].is_null());
    put_rules(gateway.admin, "shadow").await;
    for resource in ["services", "nodes"] {
        text(gateway.address, &format!("/api/v1/{resource}")).await;
    }
    // Memory renders no Tables.
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let response = connect_and_get_as(HttpVersion::One, gateway.address, CONFIGMAPS, table);
    drop(response.await.unwrap());
    let expected = json!({
        "watches": 0, "equal": 2, "missing": 0, "extra": 0, "content": 0, "status": 0, "notComparable": 1,
    });
    until("the comparisons are told", async || {
        document(gateway.admin).await["totals"]["shadow"] == expected
    })
    .await;
    put_rules(gateway.admin, "rules").await;
    until("nothing is told", async || {
        document(gateway.admin).await["totals"]["shadow"].is_null()
    })
    .await;
}

/// What the document says of a user agent: open watches, requests, lists.
async fn talker(admin: SocketAddr, agent: &str) -> [u64; 3] {
    let document = document(admin).await;
    let agents = document["talkers"]["agents"].as_array().unwrap();
    let found = agents.iter().find(|one| one["name"] == agent);
    let count = |member: &str| found.map_or(0, |one| one[member].as_u64().unwrap());
    ["watches", "requests", "lists"].map(count)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_memory_and_upstream_answer_is_counted_for_the_client_that_asked() {
    let (_apiserver, gateway) = start(Drain::new()).await;
    let ask = async |target: &str| {
        let request = http::Request::get(target).header("user-agent", "tester/1.0");
        let request = request.header("host", "localhost").body(Full::default());
        let response = send(gateway.address, request.unwrap()).await;
        assert_eq!(response.status(), 200);
        response.into_body()
    };
    let list = ask(CONFIGMAPS).await.collect().await.unwrap().to_bytes();
    let from_memory = ask(&format!("{CONFIGMAPS}?watch=1&resourceVersion=0")).await;
    let forwarded = ask("/api/v1/events?watch=1").await;
    let version = ask("/version").await.collect().await.unwrap();
    until("all of it is counted", async || {
        talker(gateway.admin, "tester/1.0").await == [2, 4, 1]
    })
    .await;
    let document = document(gateway.admin).await;
    let totals = &document["totals"];
    assert!(totals["forwarded"]["requests"].as_u64() >= Some(2));
    assert!(totals["memory"]["limit"].is_null());
    assert_eq!(totals["refused"], 0);
    let bytes = &document["talkers"]["agents"][0]["bytes"];
    let whole = list.len() + version.to_bytes().len();
    assert!(bytes.as_u64() >= Some(whole as u64), "{bytes}");
    drop((from_memory, forwarded));
    until("its watches have ended", async || {
        talker(gateway.admin, "tester/1.0").await == [0, 4, 1]
    })
    .await;
    gateway.ended().await;
}
