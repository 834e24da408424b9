//! Metadata-only reads (PartialObjectMetadata), as kube-apiserver writes them.

use super::*;

const OBJECT: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

impl Client {
    async fn accepting(&self, method: &str, target: &str, accept: &str) -> (u16, String) {
        let response = self.request(method, target, accept, Value::Null).await;
        let response = collected(response).await;
        let body = String::from_utf8(response.body().to_vec()).unwrap();
        (response.status().as_u16(), body)
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_and_its_pages_hold_the_metadata_in_the_order_of_go_s_struct() {
    let bench = Bench::new();
    for name in ["a", "b"] {
        let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "spec": {"b": 1}, "metadata": {
            "name": name, "labels": {"z": "1", "a": "2"}, "annotations": {"x": "<&>"},
            "ownerReferences": [{"uid": "u", "name": "n", "kind": "Node", "apiVersion": "v1", "controller": true}]}});
        assert_eq!(bench.client.send("POST", WIDGETS, widget).await.0, 201);
    }
    let (_, list) = bench.client.accepting("GET", WIDGETS, LIST).await;
    let start = r#"{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"3"},"items":[{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a","namespace":"default","uid":""#;
    assert!(list.starts_with(start), "{list}");
    let end = "\"labels\":{\"a\":\"2\",\"z\":\"1\"},\"annotations\":{\"x\":\"\\u003c\\u0026\\u003e\"},\"ownerReferences\":[{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"name\":\"n\",\"uid\":\"u\",\"controller\":true}]}}]}\n";
    assert!(list.ends_with(end), "{list}");
    let page = format!("{WIDGETS}?limit=1");
    let (_, page) = bench.client.accepting("GET", &page, LIST).await;
    let page: Value = serde_json::from_str(&page).unwrap();
    assert_eq!(page["metadata"]["remainingItemCount"], 1);
    let rest = format!("{WIDGETS}?continue={}", text(&page["metadata"]["continue"]));
    let (_, rest) = bench.client.accepting("GET", &rest, LIST).await;
    let rest: Value = serde_json::from_str(&rest).unwrap();
    assert_eq!(rest["items"][0]["metadata"]["name"], "b");
}

#[tokio::test(start_paused = true)]
async fn a_list_of_metadata_without_items_has_null() {
    let bench = Bench::new();
    for version in ["v1", "v1beta1"] {
        let accept =
            format!("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v={version}");
        let expected = format!(
            "{{\"kind\":\"PartialObjectMetadataList\",\"apiVersion\":\"meta.k8s.io/{version}\",\"metadata\":{{\"resourceVersion\":\"1\"}},\"items\":null}}\n"
        );
        let found = bench.client.accepting("GET", WIDGETS, &accept).await;
        assert_eq!(found, (200, expected));
    }
}

#[tokio::test(start_paused = true)]
async fn objects_events_and_bookmarks_are_cut_and_errors_are_not() {
    let bench = Bench::with_pods(&["a"]).await;
    let client = &bench.client;
    let one = format!("{PODS}/a");
    // The header of client-go's metadata client.
    let accept = format!(
        "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,{OBJECT},application/json"
    );
    let (_, object) = client.accepting("GET", &one, &accept).await;
    assert!(object.starts_with(
        r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a","#
    ));
    let streamed = format!("{PODS}?watch=1&{STREAMED}");
    let mut watch = client.watch_accepting(&streamed, OBJECT).await;
    let added = watch.line().await.unwrap().unwrap();
    let expected = format!("{{\"type\":\"ADDED\",\"object\":{}}}\n", object.trim_end());
    assert_eq!(String::from_utf8(added).unwrap(), expected);
    let marker = watch.line().await.unwrap().unwrap();
    let expected = "{\"type\":\"BOOKMARK\",\"object\":{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":{\"resourceVersion\":\"2\",\"annotations\":{\"k8s.io/initial-events-end\":\"true\"}}}}\n";
    assert_eq!(String::from_utf8(marker).unwrap(), expected);
    let (_, deleted) = client.accepting("DELETE", &one, OBJECT).await;
    let expected = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success""#;
    assert!(deleted.starts_with(expected), "{deleted}");
    assert_eq!(watch.next().await, "DELETED a 3");
    bench.order(Fault::Compact);
    let late = format!("{PODS}?watch=1&resourceVersion=2");
    let error = client.watch_accepting(&late, OBJECT).await.event().await;
    assert_eq!(error.unwrap()["object"]["kind"], "Status");
}

#[tokio::test(start_paused = true)]
async fn conversions_that_do_not_fit_are_refused_in_a_real_server_s_words() {
    let bench = Bench::with_pods(&["a"]).await;
    let widget =
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}});
    bench.client.send("POST", WIDGETS, widget).await;
    let acceptable = "only the following media types are accepted: application/json";
    let (pod, widget) = (format!("{PODS}/a"), format!("{WIDGETS}/w"));
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
        (PODS, "application/vnd.kubernetes.protobuf", acceptable, 406),
    ] {
        let reason = match code {
            406 => "\n  \"reason\": \"NotAcceptable\",",
            _ => "",
        };
        let expected = format!(
            "{{\n  \"kind\": \"Status\",\n  \"apiVersion\": \"v1\",\n  \"metadata\": {{}},\n  \"status\": \"Failure\",\n  \"message\": \"{message}\",{reason}\n  \"code\": {code}\n}}"
        );
        let found = bench.client.accepting("GET", target, accept).await;
        assert_eq!(found, (code, expected), "{target} {accept}");
    }
    // With plain JSON among what the client accepts, refusals are compact.
    let accept = format!("{OBJECT},application/json");
    let (code, compact) = bench.client.accepting("GET", PODS, &accept).await;
    assert_eq!(code, 406);
    assert!(compact.starts_with(r#"{"kind":"Status","#) && compact.ends_with('\n'));
}
