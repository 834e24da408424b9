//! Objects as kube-apiserver 1.36 writes them, whole and as `PartialObjectMetadata`.

use super::*;

const TYPED: Partial = Partial {
    version: MetaVersion::V1,
    layout: Layout::Typed,
};
const DYNAMIC: Partial = Partial {
    version: MetaVersion::V1,
    layout: Layout::Dynamic,
};

#[track_caller]
fn check(partial: Partial, object: &str, wanted: &str) {
    let reduced = partial.object(object.as_bytes()).unwrap();
    assert_eq!(String::from_utf8(reduced).unwrap(), wanted);
    let line = |object: &str| format!("{{\"type\":\"MODIFIED\",\"object\":{object}}}\n");
    let reduced = partial.event_line(line(object).as_bytes()).unwrap();
    assert_eq!(String::from_utf8(reduced).unwrap(), line(wanted));
}

#[test]
fn compiled_in_kinds_keep_the_bytes_of_their_metadata() {
    check(
        TYPED,
        r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"default","uid":"a75d6020-3e50-45b1-946d-403e1f28cbdc","resourceVersion":"6","generation":1,"creationTimestamp":"2026-11-21T11:42:13Z","labels":{"a":"2","z":"1"},"annotations":{"x":"\u003c\u0026\u003e"},"managedFields":[{"manager":"test","operation":"Update","apiVersion":"v1","time":"2026-11-21T11:42:13Z","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:finalizers":{".":{},"v:\"a/b\"":{}}}}}]},"spec":{"containers":[{"name":"c","image":"i","resources":{}}]},"status":{}}"#,
        r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a","namespace":"default","uid":"a75d6020-3e50-45b1-946d-403e1f28cbdc","resourceVersion":"6","generation":1,"creationTimestamp":"2026-11-21T11:42:13Z","labels":{"a":"2","z":"1"},"annotations":{"x":"\u003c\u0026\u003e"},"managedFields":[{"manager":"test","operation":"Update","apiVersion":"v1","time":"2026-11-21T11:42:13Z","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:finalizers":{".":{},"v:\"a/b\"":{}}}}}]}}"#,
    );
}

#[test]
fn metadata_of_custom_resources_gets_the_order_of_the_go_struct() {
    check(
        DYNAMIC,
        r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"annotations":{"x":"\u003c\u0026\u003e"},"creationTimestamp":"2026-11-21T11:42:13Z","finalizers":["a/b"],"generation":1,"labels":{"a":"2","z":"1"},"managedFields":[{"apiVersion":"example.com/v1","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:finalizers":{".":{},"v:\"a/b\"":{}}},"f:spec":{".":{},"f:a":{},"f:b":{}}},"manager":"test","operation":"Update","time":"2026-11-21T11:42:13Z"}],"name":"a","namespace":"default","ownerReferences":[{"apiVersion":"v1","controller":true,"kind":"Node","name":"n","uid":"u"}],"resourceVersion":"8","uid":"c32dbe82-b22b-40d0-aaa3-aa5de85ccd64"},"spec":{"a":2,"b":1}}"#,
        r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a","namespace":"default","uid":"c32dbe82-b22b-40d0-aaa3-aa5de85ccd64","resourceVersion":"8","generation":1,"creationTimestamp":"2026-11-21T11:42:13Z","labels":{"a":"2","z":"1"},"annotations":{"x":"\u003c\u0026\u003e"},"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n","uid":"u","controller":true}],"finalizers":["a/b"],"managedFields":[{"manager":"test","operation":"Update","apiVersion":"example.com/v1","time":"2026-11-21T11:42:13Z","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:finalizers":{".":{},"v:\"a/b\"":{}}},"f:spec":{".":{},"f:a":{},"f:b":{}}}}]}}"#,
    );
}

#[test]
fn bookmarks_keep_version_and_marker() {
    let reduced = r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}}"#;
    check(
        TYPED,
        r#"{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}},"spec":{"containers":null},"status":{}}"#,
        reduced,
    );
    check(
        DYNAMIC,
        r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"annotations":{"k8s.io/initial-events-end":"true"},"resourceVersion":"9"}}"#,
        reduced,
    );
}

#[test]
fn error_events_are_passed_unchanged() {
    let line = b"{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\",\"message\":\"too old resource version: 1 (5)\",\"reason\":\"Expired\",\"code\":410}}\n";
    for partial in [TYPED, DYNAMIC] {
        assert_eq!(partial.event_line(line).unwrap(), line);
    }
}

#[test]
fn the_requested_metadata_version_is_written() {
    let partial = Partial {
        version: MetaVersion::V1Beta1,
        ..DYNAMIC
    };
    check(
        partial,
        r#"{"apiVersion":"a/v1","kind":"B","metadata":{"labels":null,"odd":1}}"#,
        r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1beta1","metadata":{}}"#,
    );
}

#[test]
fn truncated_input_is_refused_without_a_panic() {
    let whole = br#"{"apiVersion":"a/v1","kind":"B","metadata":{"managedFields":[{"time":"x"}],"name":"a"}}"#;
    for len in 0..whole.len() {
        // Only the object's closing brace follows the metadata.
        let is_error = DYNAMIC.object(&whole[..len]).is_err();
        assert_eq!(is_error, len < whole.len() - 1, "{len}");
        assert!(TYPED.event_line(&whole[..len]).is_err(), "{len}");
    }
    assert!(DYNAMIC.object(br#"{"metadata":[]}"#).is_err());
}

#[test]
fn input_that_is_not_a_list_of_objects_is_left_out() {
    let plain =
        r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a"}}"#;
    for odd in ["{}", "1", r#"[{"manager":"m","uid":"u"},1]"#, r#"[{} {}]"#] {
        for list in ["ownerReferences", "managedFields"] {
            let text = format!(
                r#"{{"apiVersion":"a/v1","kind":"B","metadata":{{"name":"a","{list}":{odd}}}}}"#
            );
            check(DYNAMIC, &text, plain);
        }
    }
}
