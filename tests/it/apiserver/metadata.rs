//! Metadata-only reads (PartialObjectMetadata): the metadata equals that of the whole objects byte for byte, in envelopes as kube-apiserver
//! writes them.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use kube_fanout::apiserver::Options;
use kube_fanout::resource::Layout;
use kube_fanout::view::{MetaVersion, Partial};
use serde_json::{Value, json};

use super::stream::{Next, Stream};
use super::{Bench, PODS};

const OBJECT: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
const INITIAL: &str =
    "watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan";

const fn partial(layout: Layout) -> Partial {
    Partial {
        version: MetaVersion::V1,
        layout,
    }
}

impl Bench {
    async fn send_accepting(&self, method: &str, target: &str, accept: &str, body: &str) -> Response<Bytes> {
        let merge_patch = method == "PATCH";
        let request = Request::builder()
            .method(method)
            .uri(format!("http://{}{target}", self.server.address()))
            .header("Accept", accept)
            .header(
                "Content-Type",
                if merge_patch {
                    "application/merge-patch+json"
                } else {
                    "application/json"
                },
            )
            .body(Full::new(Bytes::copy_from_slice(body.as_bytes())))
            .unwrap();
        let (head, body) = self.client.request(request).await.unwrap().into_parts();
        Response::from_parts(head, body.collect().await.unwrap().to_bytes())
    }

    async fn watch_accepting(&self, target: &str, accept: &str) -> Stream {
        let request = Request::builder()
            .uri(format!("http://{}{target}", self.server.address()))
            .header("Accept", accept)
            .body(Full::default())
            .unwrap();
        let answer = self.client.request(request).await.unwrap();
        assert_eq!(
            (answer.status().as_u16(), &answer.headers()["content-type"]),
            (200, &"application/json".parse().unwrap())
        );
        Stream::new(answer.into_body())
    }

    async fn widgets(&self, count: usize) {
        for number in 0..count {
            let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "spec": {"b": 1, "a": [{}]}, "metadata": {
                "name": format!("w{number}"), "labels": {"z": "1", "a": "2"}, "annotations": {"x": "<&>"},
                "ownerReferences": [{"uid": "u", "name": "n", "kind": "Node", "apiVersion": "v1", "controller": true}]}});
            assert_eq!(self.post(WIDGETS, widget).await.status(), 201);
        }
    }
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap()
}

/// Projects the items of a whole list to metadata, one by one.
fn cut_items(list: &[u8], layout: Layout) -> String {
    #[derive(serde::Deserialize)]
    struct Items<'a> {
        #[serde(borrow)]
        items: Vec<&'a serde_json::value::RawValue>,
    }
    let list: Items<'_> = serde_json::from_slice(list).unwrap();
    let items = list.items.iter();
    let items = items.map(|item| partial(layout).object(item.get().as_bytes()).unwrap());
    items
        .map(|item| String::from_utf8(item).unwrap())
        .collect::<Vec<_>>()
        .join(",")
}

#[tokio::test]
async fn lists_and_pages_are_cut() {
    let objects = vec!["pods=500".parse().unwrap()];
    let extra_kinds = vec!["widgets.v1.example.com=Widget".parse().unwrap()];
    let bench = Bench::new(Options {
        objects,
        extra_kinds,
        ..Options::default()
    })
    .await;
    bench.widgets(3).await;
    for (path, layout) in [("/api/v1/pods", Layout::Typed), (WIDGETS, Layout::Dynamic)] {
        let whole = bench.get(path).await;
        let cut = bench.send_accepting("GET", path, LIST, "").await;
        assert_eq!(
            (cut.status().as_u16(), &cut.headers()["content-type"]),
            (200, &"application/json".parse().unwrap())
        );
        let items = cut_items(whole.body(), layout);
        let wanted = format!(
            "{{\"kind\":\"PartialObjectMetadataList\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":{{\"resourceVersion\":\"504\"}},\"items\":[{items}]}}\n"
        );
        assert_eq!(text(cut.body()), wanted);

        let whole = bench.get(&format!("{path}?limit=2")).await;
        let list: Value = serde_json::from_slice(whole.body()).unwrap();
        let (token, remaining) = (
            &list["metadata"]["continue"],
            &list["metadata"]["remainingItemCount"],
        );
        let items = cut_items(whole.body(), layout);
        let cut = bench
            .send_accepting("GET", &format!("{path}?limit=2"), LIST, "")
            .await;
        let wanted = format!(
            "{{\"kind\":\"PartialObjectMetadataList\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":{{\"resourceVersion\":\"504\",\"continue\":{token},\"remainingItemCount\":{remaining}}},\"items\":[{items}]}}\n"
        );
        assert_eq!(text(cut.body()), wanted);
        let rest = format!("{path}?limit=600&continue={}", token.as_str().unwrap());
        let cut: Value =
            serde_json::from_slice(bench.send_accepting("GET", &rest, LIST, "").await.body()).unwrap();
        let left = remaining.as_u64().unwrap();
        assert_eq!(cut["items"].as_array().unwrap().len() as u64, left);
    }
    // The fields keep the order of Go's struct; sorted keys would differ.
    let cut = bench
        .send_accepting("GET", &format!("{WIDGETS}/w0"), OBJECT, "")
        .await;
    let start = "{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":{\"name\":\"w0\",\"namespace\":\"default\",\"uid\":";
    assert!(text(cut.body()).starts_with(start), "{:?}", cut.body());
    let end = "\"labels\":{\"a\":\"2\",\"z\":\"1\"},\"annotations\":{\"x\":\"\\u003c\\u0026\\u003e\"},\"ownerReferences\":[{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"name\":\"n\",\"uid\":\"u\",\"controller\":true}]}}\n";
    assert!(text(cut.body()).ends_with(end), "{:?}", cut.body());
}

#[tokio::test]
async fn a_cut_list_without_items_has_null() {
    let bench = Bench::plain().await;
    for (version, number) in [("v1", 1), ("v1beta1", 1)] {
        let accept =
            format!("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v={version}");
        for path in ["/api/v1/pods?limit=5", WIDGETS] {
            let cut = bench.send_accepting("GET", path, &accept, "").await;
            let wanted = format!(
                "{{\"kind\":\"PartialObjectMetadataList\",\"apiVersion\":\"meta.k8s.io/{version}\",\"metadata\":{{\"resourceVersion\":\"{number}\"}},\"items\":null}}\n"
            );
            assert_eq!(text(cut.body()), wanted);
        }
    }
}

#[tokio::test]
async fn one_object_is_cut_whether_it_is_read_or_written() {
    let bench = Bench::plain().await;
    let pod = r#"{"metadata":{"name":"p","finalizers":["a/b"]},"spec":{"nodeName":"n"}}"#;
    let created = bench.send_accepting("POST", PODS, OBJECT, pod).await;
    assert_eq!(created.status(), 201);
    let path = format!("{PODS}/p");
    let whole = bench.get(&path).await;
    let cut = |whole: &[u8]| {
        [
            partial(Layout::Typed).object(whole).unwrap(),
            b"\n".to_vec(),
        ]
        .concat()
    };
    assert_eq!(created.body(), &cut(whole.body()));
    let read = bench.send_accepting("GET", &path, OBJECT, "").await;
    assert_eq!(read.body(), created.body());
    // The Accept header of client-go's metadata client.
    let fallback = format!(
        "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,{OBJECT},application/json"
    );
    let read = bench.send_accepting("GET", &path, &fallback, "").await;
    assert_eq!(read.body(), created.body());
    let patched = bench
        .send_accepting(
            "PATCH",
            &path,
            OBJECT,
            r#"{"metadata":{"labels":{"a":"b"}}}"#,
        )
        .await;
    assert_eq!(patched.body(), &cut(bench.get(&path).await.body()));
    let marked = bench.send_accepting("DELETE", &path, OBJECT, "").await;
    assert_eq!(marked.body(), &cut(bench.get(&path).await.body()));
    bench
        .send_accepting(
            "PATCH",
            &path,
            OBJECT,
            r#"{"metadata":{"finalizers":null}}"#,
        )
        .await;
    bench.put_pod("q", "1").await;
    let gone = bench
        .send_accepting("DELETE", &format!("{PODS}/q"), OBJECT, "")
        .await;
    assert!(
        text(gone.body())
            .starts_with(r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success""#)
    );
}

#[tokio::test]
async fn events_and_bookmarks_are_cut_and_errors_pass() {
    let bench = Bench::plain().await;
    bench.put_pod("a", "1").await;
    bench.widgets(2).await;
    for (path, layout) in [(PODS, Layout::Typed), (WIDGETS, Layout::Dynamic)] {
        let mut whole = bench.watch(&format!("{path}?{INITIAL}")).await;
        let mut cut = bench.watch_accepting(&format!("{path}?{INITIAL}"), OBJECT).await;
        let mut bookmark = Vec::new();
        while !text(&bookmark).starts_with("{\"type\":\"BOOKMARK\"") {
            let (Next::Line(line), Next::Line(received)) = (whole.next().await, cut.next().await)
            else {
                panic!("a stream ended before its initial-events-end bookmark");
            };
            let mut wanted = partial(layout).event_line(&line).unwrap();
            wanted.pop();
            assert_eq!(text(&received), text(&wanted));
            bookmark = received;
        }
        assert_eq!(
            text(&bookmark),
            r#"{"type":"BOOKMARK","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"4","annotations":{"k8s.io/initial-events-end":"true"}}}}"#
        );
    }
    let mut cut = bench
        .watch_accepting(&format!("{PODS}?watch=1&resourceVersion=4"), OBJECT)
        .await;
    bench.put_pod("a", "2").await;
    bench.put_pod("b", "2").await;
    bench.send("DELETE", &format!("{PODS}/b"), "", "").await;
    for wanted in ["MODIFIED a 5", "ADDED b 6", "DELETED b 7"] {
        assert_eq!(cut.event_text().await, wanted);
    }
    bench
        .fault(json!({"fault": "compact", "resource": "pods"}))
        .await;
    let mut late = bench
        .watch_accepting(&format!("{PODS}?watch=1&resourceVersion=4"), OBJECT)
        .await;
    let (kind, object) = late.event().await;
    assert_eq!(
        (kind.as_str(), &object["code"], &object["kind"]),
        ("ERROR", &410.into(), &"Status".into())
    );
}

#[tokio::test]
async fn conversions_that_do_not_fit_are_refused_in_the_real_servers_words() {
    let bench = Bench::plain().await;
    bench.put_pod("a", "1").await;
    bench.widgets(1).await;
    let refusal = |message: &str, reason: &str, code: u16| {
        let reason = match reason {
            "" => String::new(),
            reason => format!("\n  \"reason\": \"{reason}\","),
        };
        format!(
            "{{\n  \"kind\": \"Status\",\n  \"apiVersion\": \"v1\",\n  \"metadata\": {{}},\n  \"status\": \"Failure\",\n  \"message\": \"{message}\",{reason}\n  \"code\": {code}\n}}"
        )
    };
    let acceptable = "only the following media types are accepted: application/json";
    let (pod, widget) = (format!("{PODS}/a"), format!("{WIDGETS}/w0"));
    let watch = format!("{PODS}?watch=1");
    let unknown = "application/json;as=Nope;g=meta.k8s.io;v=v1";
    let v2 = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v2";
    for (target, accept, message, code) in [
        (
            PODS,
            OBJECT,
            "you requested PartialObjectMetadata, but the requested object is a list (*v1.PodList)",
            406,
        ),
        (
            WIDGETS,
            OBJECT,
            "you requested PartialObjectMetadata, but the requested object is a list (*unstructured.UnstructuredList)",
            406,
        ),
        (
            &pod,
            LIST,
            "you requested PartialObjectMetadataList, but the requested object is not a list (*v1.Pod)",
            406,
        ),
        (&widget, LIST, "content is not a list", 500),
        (PODS, unknown, acceptable, 406),
        (&watch, unknown, acceptable, 406),
        (&pod, v2, acceptable, 406),
    ] {
        let refused = bench.send_accepting("GET", target, accept, "").await;
        let reason = if code == 406 { "NotAcceptable" } else { "" };
        assert_eq!(
            (refused.status().as_u16(), text(refused.body())),
            (code, &*refusal(message, reason, code)),
            "{target} {accept}"
        );
        assert_eq!(refused.headers()["content-type"], "application/json");
        // With a fallback in Accept the metadata form is still chosen, but refusals are compact JSON.
        if accept == OBJECT {
            let compact = bench
                .send_accepting("GET", target, &format!("{accept},application/json"), "")
                .await;
            assert_eq!(compact.status().as_u16(), code);
            assert!(
                text(compact.body()).starts_with("{\"kind\":\"Status\",")
                    && compact.body().ends_with(b"\n")
            );
        }
    }
    let mut events = bench.watch_accepting(&format!("{PODS}?{INITIAL}"), LIST).await;
    assert_eq!(events.next().await, Next::End(0));
    let missing = bench
        .send_accepting("GET", &format!("{PODS}/nope"), OBJECT, "")
        .await;
    assert!(text(missing.body()).ends_with(
        "\"details\": {\n    \"name\": \"nope\",\n    \"kind\": \"pods\"\n  },\n  \"code\": 404\n}"
    ));
}
