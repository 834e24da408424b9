//! Objects nested as deep as the server accepts, and requests that are nested deeper or copy too much.

use bytes::Bytes;
use http::StatusCode;
use kube_fanout::decode::DEPTH_MAX;
use serde_json::Value;

use super::Bench;

const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
const MERGE: &str = "application/merge-patch+json";
const JSON: &str = "application/json";
const JSON_PATCH: &str = "application/json-patch+json";

/// A widget with the given nesting depth and version.
fn widget(name: &str, depth: usize, version: &str) -> String {
    // The object is the first level.
    let (open, close) = (r#"{"a":"#.repeat(depth - 1), "}".repeat(depth - 1));
    format!(
        r#"{{"apiVersion":"example.com/v1","kind":"Widget","metadata":{{"name":"{name}","resourceVersion":"{version}"}},"spec":{open}0{close}}}"#
    )
}

/// The `resourceVersion` of an object, found without parsing, because test code must not recurse either.
fn version(object: &[u8]) -> String {
    let text = std::str::from_utf8(object).unwrap();
    let (_, rest) = text.split_once(r#""resourceVersion":""#).unwrap();
    rest.split_once('"').unwrap().0.to_owned()
}

fn code(body: &[u8]) -> u64 {
    let status: Value = serde_json::from_slice(body).unwrap();
    status["code"].as_u64().unwrap()
}

impl Bench {
    async fn send_ok(&self, method: &str, target: &str, content_type: &str, body: String) -> Bytes {
        let answer = self.send(method, target, content_type, body).await;
        assert!(
            answer.status().is_success(),
            "{method} {target}: {}",
            String::from_utf8_lossy(&answer.body()[..answer.body().len().min(300)])
        );
        answer.into_body()
    }

    async fn widget_count(&self) -> usize {
        let list = self.send("GET", WIDGETS, JSON, "").await.into_body();
        String::from_utf8_lossy(&list)
            .matches(r#""resourceVersion""#)
            .count()
            - 1
    }
}

#[tokio::test]
async fn objects_of_any_legal_depth_can_be_made_changed_and_deleted_in_every_way() {
    let bench = Bench::plain().await;
    for depth in [100, 130, 1_000, DEPTH_MAX] {
        let one = format!("{WIDGETS}/deep");
        bench
            .send_ok("POST", WIDGETS, JSON, widget("deep", depth, ""))
            .await;
        let stored = bench.send_ok("GET", &one, JSON, String::new()).await;
        let replaced = widget("deep", depth, &version(&stored)).replace(":0}", ":1}");
        bench.send_ok("PUT", &one, JSON, replaced).await;
        let label = r#"{"metadata":{"labels":{"a":"b"}}}"#.to_owned();
        bench.send_ok("PATCH", &one, MERGE, label).await;
        let send_ok = "/a".repeat(depth - 1);
        let add = format!(r#"[{{"op":"add","path":"/spec{send_ok}","value":2}}]"#);
        bench.send_ok("PATCH", &one, JSON_PATCH, add).await;
        let stored = bench.send_ok("GET", &one, JSON, String::new()).await;
        assert!(stored.ends_with(format!(":2{}\n", "}".repeat(depth)).as_bytes()));
        assert_eq!(bench.widget_count().await, 1);
        bench.send_ok("DELETE", &one, JSON, String::new()).await;
        bench
            .send_ok("POST", WIDGETS, JSON, widget("deep", depth, ""))
            .await;
        bench.send_ok("DELETE", WIDGETS, JSON, String::new()).await;
        assert_eq!(bench.widget_count().await, 0);
    }
}

#[tokio::test]
async fn what_is_nested_too_deep_is_refused_in_every_way_and_harms_nobody() {
    let bench = Bench::plain().await;
    let one = format!("{WIDGETS}/flat");
    let flat =
        r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"flat"},"spec":{}}"#;
    let stored = bench.send_ok("POST", WIDGETS, JSON, flat.to_owned()).await;
    let deeper = DEPTH_MAX + 1;
    let inside = format!("{}0{}", r#"{"a":"#.repeat(deeper), "}".repeat(deeper));
    let steps = r#"{"op":"copy","from":"/spec","path":"/spec/a"}"#;
    let copies = format!("[{}]", vec![steps; 9_000].join(","));
    let half = DEPTH_MAX / 2;
    let nested = format!("{}{{}}{}", r#"{"b":"#.repeat(half), "}".repeat(half));
    let (path, below) = (
        "/b".repeat(half),
        format!("{}{}", "[".repeat(half), "]".repeat(half)),
    );
    let add = format!(
        r#"[{{"op":"add","path":"/spec/a","value":{nested}}},{{"op":"add","path":"/spec/a{path}","value":{below}}}]"#
    );
    for (method, target, content_type, body, expected) in [
        ("POST", WIDGETS, JSON, widget("deep", deeper, ""), 400),
        (
            "PUT",
            &*one,
            JSON,
            widget("flat", deeper, &version(&stored)),
            400,
        ),
        (
            "PATCH",
            &*one,
            MERGE,
            format!(r#"{{"spec":{inside}}}"#),
            400,
        ),
        ("PATCH", &*one, JSON_PATCH, add, 422),
        ("PATCH", &*one, JSON_PATCH, copies, 422),
        ("POST", WIDGETS, JSON, "[".repeat(2 << 20), 400),
    ] {
        let answer = bench.send(method, target, content_type, body).await;
        assert_eq!(code(answer.body()), expected, "{method} {content_type}");
    }
    let unchanged = bench.send_ok("GET", &one, JSON, String::new()).await;
    assert_eq!(version(&unchanged), version(&stored));
    assert_eq!(bench.widget_count().await, 1);
}

#[tokio::test]
async fn metadata_of_other_types_is_refused_and_lists_of_metadata_go_on() {
    let bench = Bench::plain().await;
    for metadata in [
        r#"{"name":"a","ownerReferences":{"a":1}}"#,
        r#"{"name":"a","ownerReferences":[{"uid":7}]}"#,
        r#"{"name":"a","creationTimestamp":[]}"#,
        r#"{"name":"a","managedFields":"x"}"#,
    ] {
        let body =
            format!(r#"{{"apiVersion":"example.com/v1","kind":"Widget","metadata":{metadata}}}"#);
        let answer = bench.send("POST", WIDGETS, JSON, body).await;
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "{metadata}");
    }
    let incomplete = r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","ownerReferences":[{"kind":"Pod"}]}}"#;
    let answer = bench.send("POST", WIDGETS, JSON, incomplete).await;
    assert_eq!(answer.status(), StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(bench.widget_count().await, 0);
}
