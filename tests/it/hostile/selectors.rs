//! Selectors of thousands of terms or values: the gateway answers as the API server does, or refuses, and other clients are not
//! delayed.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use bytes::Bytes;
use futures::future::join_all;
use http::Response;
use serde_json::Value;
use tokio::net::TcpStream;

use crate::hostile::stage::Stage;
use crate::hostile::wire::{self, read_until};

const PODS: &str = "/api/v1/namespaces/default/pods";
/// The resource that the witness watches, in one namespace.
const CONFIGMAPS: &str = "/api/v1/configmaps";
const TERM_COUNT: usize = 8_000;
const CLIENT_COUNT: usize = 5;
const SET_COUNT: usize = 100;
/// Few enough that the gateway evaluates the selector itself, instead of forwarding the request.
const VALUE_COUNT: usize = 2_500;
/// The status codes for heads that are too long.
const TOO_LONG: [u16; 2] = [414, 431];

fn joined(count: usize, term: impl Fn(usize) -> String) -> String {
    let terms: Vec<_> = (0..count).map(term).collect();
    terms.join(",")
}

/// A selector with terms of each kind, and whether a request head with it is too long.
fn selectors() -> [(String, bool); 7] {
    let labels = |term: fn(usize) -> String| format!("labelSelector={}", joined(TERM_COUNT, term));
    let values = joined(TERM_COUNT, |n| format!("{n:x}"));
    let names = joined(TERM_COUNT, |n| format!("metadata.name!=a{n}"));
    [
        (labels(|n| format!("k{n:x}")), false),
        (labels(|n| format!("!k{n:x}")), false),
        (labels(|n| format!("k={n:x}")), false),
        (format!("labelSelector=k+in+({values})"), false),
        (format!("labelSelector=k+notin+({values})"), false),
        (labels(|n| format!("key-number-{n}!=value")), true),
        (format!("fieldSelector={names}"), true),
    ]
}

/// Sends a request on a connection of its own; returns the connection and the status code.
async fn send_get(server: SocketAddr, target: &str) -> (TcpStream, u16) {
    let mut stream = TcpStream::connect(server).await.unwrap();
    let code = wire::send_get(&mut stream, target, "").await;
    (stream, code)
}

/// The objects of a list. Its version rises with what the witness writes.
fn items(response: &Response<Bytes>) -> Value {
    let mut list: Value = serde_json::from_slice(response.body()).unwrap();
    list["items"].take()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn selectors_of_thousands_of_terms_are_answered_or_refused_beside_a_witness() {
    let stage = Stage::new().await;
    let witness = stage.witness().await;
    stage.create(PODS, "without-labels").await;
    for (selector, is_too_long) in selectors() {
        for target in [
            format!("{PODS}?{selector}"),
            format!("{PODS}?watch=1&{selector}"),
        ] {
            let name = &target[..100];
            let requests = (0..CLIENT_COUNT).map(|_| send_get(stage.address, &target));
            let responses = join_all(requests).await;
            let codes = responses
                .iter()
                .map(|(_, code)| *code)
                .collect::<BTreeSet<_>>();
            if is_too_long {
                assert!(
                    codes.iter().all(|code| TOO_LONG.contains(code)),
                    "{name}: {codes:?}"
                );
                continue;
            }
            let (_, direct) = send_get(stage.apiserver.address(), &target).await;
            assert!(codes.iter().eq([&direct]), "{name}: {codes:?}");
        }
        if !is_too_long {
            let target = format!("{PODS}?{selector}");
            let direct = stage.send_to_apiserver("GET", &target).await;
            assert_eq!(
                items(&stage.get(&target).await),
                items(&direct),
                "{}",
                &target[..100]
            );
        }
        assert_eq!(stage.get(PODS).await.status(), 200);
    }
    stage.check_and_shut_down(witness).await;
}

/// Each watch has its own set of values and selects everything that the witness writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sets_of_thousands_of_values_hold_up_no_events_of_their_resource() {
    let stage = Stage::new().await;
    let witness = stage.witness().await;
    let watches = join_all((0..SET_COUNT).map(async |number| {
        let values = joined(VALUE_COUNT, |value| {
            format!("{:x}", value * SET_COUNT + number)
        });
        let target =
            format!("{CONFIGMAPS}?watch=1&resourceVersion=0&labelSelector=k+notin+({values})");
        let (stream, code) = send_get(stage.address, &target).await;
        assert_eq!(code, 200);
        stream
    }))
    .await;
    let open_watches = stage
        .metric("kube_fanout_longrunning_requests", &["configmaps"])
        .await;
    assert!(
        open_watches > SET_COUNT as f64,
        "only {open_watches} watches are served from memory"
    );
    // In a namespace that the witness does not watch.
    let elsewhere = "/api/v1/namespaces/other/configmaps";
    stage.create(elsewhere, "the-last-one").await;
    join_all(watches.into_iter().map(async |mut stream| {
        let has_it = |read: &[u8]| memchr::memmem::find(read, b"the-last-one").is_some();
        assert!(has_it(&read_until(&mut stream, has_it).await));
    }))
    .await;
    stage.check_and_shut_down(witness).await;
}
