//! Invalid and unusual requests: each gets the response that upstream gives, or the one that docs/CONFIGURATION.md documents.

use http::StatusCode;
use tokio::net::TcpStream;

use crate::hostile::stage::{Stage, status};
use crate::hostile::wire::{code, read_to_end, send};

const PODS: &str = "/api/v1/namespaces/default/pods";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_parameters_get_the_answer_of_upstream() {
    let stage = Stage::new().await;
    let witness = stage.witness().await;
    for (query, code) in [
        ("?labelSelector=%3D%3D%3D", 400),
        ("?fieldSelector=spec.nope%3D1", 400),
        ("?limit=2&continue=garbage", 400),
        ("?resourceVersion=abc", 400),
        ("?resourceVersionMatch=Exact", 422),
        ("?watch=true&sendInitialEvents=true", 422),
        (
            "?sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
            422,
        ),
        ("?resourceVersion=0&resourceVersionMatch=Exact", 422),
        ("?limit=many", 400),
    ] {
        let target = format!("{PODS}{query}");
        let response = stage.get(&target).await;
        let direct = stage.send_to_apiserver("GET", &target).await;
        assert_eq!(response.body(), direct.body(), "{query}");
        assert_eq!(status(&response)["code"], code, "{query}");
        assert_eq!(response.headers()["content-type"], "application/json");
    }
    stage
        .metric_reaches(
            "kube_fanout_request_total",
            &["code=\"400\"", "resource=\"pods\""],
            1.0,
        )
        .await;
    stage.check_and_shut_down(witness).await;
}

/// Queries that Go's lenient parser accepts in its own way: each gets a response, and none that reports a failure of the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_in_a_query_is_answered() {
    let stage = Stage::new().await;
    let witness = stage.witness().await;
    let long = format!("?labelSelector={}", "a,".repeat(4_000));
    for query in [
        "?%zz=1",
        "?watch=perhaps&timeoutSeconds=1",
        "?;;;&&&===",
        "?labelSelector=%ff%fe",
        "?fieldSelector=%00",
        "?timeoutSeconds=-99999999999999999999",
        "?limit=-1",
        "?limit=9223372036854775808",
        "?resourceVersion=-1",
        "?resourceVersion=99999999999999999999999",
        "?continue=%F0%9F%92%A9",
        "?watch=1&resourceVersion=18446744073709551615&timeoutSeconds=1",
        "?allowWatchBookmarks=maybe",
        &long,
    ] {
        let response = stage.get(&format!("{PODS}{query}")).await;
        let code = response.status().as_u16();
        assert!(code != 500 && code != 502 && code != 503, "{query}: {code}");
        if code != 200 {
            status(&response);
        }
    }
    stage.check_and_shut_down(witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_methods_and_paths_get_the_answer_of_upstream() {
    let stage = Stage::new().await;
    let witness = stage.witness().await;
    let item = format!("{PODS}/no-such-pod");
    let cases = [
        ("BREW", PODS, 405),
        ("PUT", PODS, 405),
        ("TRACE", PODS, 405),
        ("PATCH", PODS, 405),
        ("GET", item.as_str(), 404),
        ("DELETE", &item, 404),
        ("POST", PODS, 400),
        ("GET", "/api/v1/nopes", 404),
        ("GET", "/nope", 404),
        ("GET", "/apis/nope.example.com/v1/things?watch=1", 404),
        ("GET", "//api//v1/pods", 404),
        ("GET", "/api/v1/watch", 500),
    ];
    for (method, target, code) in cases {
        let response = stage.send(method, target).await;
        let direct = stage.send_to_apiserver(method, target).await;
        assert_eq!(
            (response.status(), response.body()),
            (direct.status(), direct.body()),
            "{method} {target}"
        );
        assert_eq!(response.status().as_u16(), code, "{method} {target}");
    }
    let head = stage.send("HEAD", PODS).await;
    assert!(head.status() != StatusCode::INTERNAL_SERVER_ERROR);
    stage.check_and_shut_down(witness).await;
}

/// With `--auth none` the gateway cannot decide whether a caller may impersonate another user, so these requests are never answered
/// from memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_acts_as_somebody_else_gets_nothing_from_memory() {
    let stage = Stage::new().await;
    let witness = stage.witness().await;
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    // From this list on, pods are cached.
    let list = stage.get(PODS).await;
    assert_eq!(list.status(), StatusCode::OK);
    let list: serde_json::Value = serde_json::from_slice(list.body()).unwrap();
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let watch = format!("{PODS}?watch=1&resourceVersion={version}");
    for header in [
        "Impersonate-User: system:anonymous",
        "IMPERSONATE-USER: system:anonymous",
        "impersonate-group: system:masters",
        "Impersonate-Uid: 1",
        "Impersonate-Extra-Scopes: a",
    ] {
        for (target, accept) in [
            (PODS, "application/json"),
            ("/api/v1/pods?limit=1&resourceVersion=0", "application/json"),
            (watch.as_str(), "application/json"),
            (watch.as_str(), table),
        ] {
            let sent = format!(
                "GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAccept: {accept}\r\n{header}\r\n\r\n"
            );
            let mut stream = TcpStream::connect(stage.address).await.unwrap();
            send(&mut stream, sent.as_bytes()).await;
            let response = read_to_end(&mut stream).await;
            assert_eq!(code(&response), 403, "{target} {header}: {response}");
            assert!(response.contains("\"reason\":\"Forbidden\""), "{response}");
        }
    }
    stage.check_and_shut_down(witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_must_name_its_host_once() {
    let stage = Stage::new().await;
    let witness = stage.witness().await;
    for (request, expected, message) in [
        (
            "GET /version HTTP/1.1\r\n",
            400,
            "400 Bad Request: missing required Host header",
        ),
        (
            "GET /version HTTP/1.1\r\nHost: a\r\nHost: a\r\n",
            400,
            "400 Bad Request: too many Host headers",
        ),
        (
            "GET /version HTTP/1.1\r\nHost: a b\r\n",
            400,
            "400 Bad Request: malformed Host header",
        ),
        ("GET /version HTTP/1.0\r\n", 200, ""),
        ("GET /version HTTP/1.1\r\nHost:\r\n", 200, ""),
    ] {
        let mut stream = TcpStream::connect(stage.address).await.unwrap();
        let sent = format!("{request}Connection: close\r\n\r\n");
        send(&mut stream, sent.as_bytes()).await;
        let response = read_to_end(&mut stream).await;
        assert_eq!(code(&response), expected, "{request}: {response}");
        assert!(response.contains(message), "{request}: {response}");
    }
    stage.check_and_shut_down(witness).await;
}

/// Unusual requests that kube-apiserver accepts, or refuses with another code than HTTP libraries do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_requests_get_the_code_of_a_kube_apiserver() {
    let stage = Stage::new().await;
    let witness = stage.witness().await;
    let groups: String = (0..200).map(|n| format!("X-Group-{n}: {n}\r\n")).collect();
    let many = format!("GET {PODS} HTTP/1.1\r\nHost: a\r\n{groups}");
    let maximum: String = (0..510).map(|n| format!("X-Group-{n}: {n}\r\n")).collect();
    let maximum = format!("GET {PODS} HTTP/1.1\r\nHost: a\r\n{maximum}");
    for (request, expected) in [
        (many.as_str(), 200),
        (&maximum, 200),
        ("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n", 404),
        ("CONNECT a:1 HTTP/1.1\r\n", 404),
    ] {
        let mut stream = TcpStream::connect(stage.address).await.unwrap();
        let sent = format!("{request}Connection: close\r\n\r\n");
        send(&mut stream, sent.as_bytes()).await;
        let response = read_to_end(&mut stream).await;
        let first = &request[..request.len().min(40)];
        assert_eq!(code(&response), expected, "{first}: {response}");
    }
    stage.check_and_shut_down(witness).await;
}

/// Status codes that docs/CONFIGURATION.md documents because kube-apiserver gives others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_requests_that_are_refused_get_the_documented_code() {
    let stage = Stage::new().await;
    let witness = stage.witness().await;
    let target = format!("GET /{} HTTP/1.1\r\nHost: a\r\n", "a".repeat(70_000));
    let value = format!(
        "GET {PODS} HTTP/1.1\r\nHost: a\r\nX-A: {}\r\n",
        "a".repeat(200_000)
    );
    let fields: String = (0..600).map(|n| format!("X-{n}: {n}\r\n")).collect();
    let fields = format!("GET {PODS} HTTP/1.1\r\nHost: a\r\n{fields}");
    for (request, expected) in [
        (
            "GET /version HTTP/1.1\r\nHost: a\r\nX-A: b\r\n c\r\n",
            [400].as_slice(),
        ),
        ("GET /version HTTP/1.2\r\nHost: a\r\n", &[400]),
        ("GET /version HTTP/2.0\r\nHost: a\r\n", &[400]),
        (
            "POST /version HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n",
            &[400],
        ),
        // The code depends on how much of the head the first read returns: all of it, or less than the longest head allowed.
        (target.as_str(), &[414, 431]),
        (&value, &[431]),
        (&fields, &[431]),
    ] {
        let mut stream = TcpStream::connect(stage.address).await.unwrap();
        send(&mut stream, request.as_bytes()).await;
        send(&mut stream, b"\r\n").await;
        let response = read_to_end(&mut stream).await;
        let first = &request[..request.len().min(60)];
        // If the connection is reset, the response may be lost on its way.
        let is_long = request.len() > 64 << 10;
        assert!(
            expected.contains(&code(&response)) || (is_long && response.is_empty()),
            "{first}: {response}"
        );
    }
    stage.check_and_shut_down(witness).await;
}
