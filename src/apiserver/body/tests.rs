//! Tests of accepted and refused bodies; the messages are a real API server's.

use super::*;
use crate::apiserver::kinds::Catalogue;

fn kind(plural: &str) -> ServedKind {
    let widgets = "widgets.v1.example.com=Widget".parse().unwrap();
    let catalogue = Catalogue::new(&[widgets]);
    catalogue
        .kind(catalogue.index_of_plural(plural).unwrap())
        .clone()
}

#[track_caller]
fn check(plural: &str, body: &str, code: u16, expected: &str) {
    let refusal = decode(&kind(plural), body.as_bytes()).expect_err("refused");
    assert_eq!(
        (refusal.code, refusal.message.as_str()),
        (code, expected),
        "{body}"
    );
}

#[test]
fn a_compiled_in_kind_may_leave_out_kind_and_version() {
    let value = decode(&kind("configmaps"), br#"{"metadata":{"name":"b"}}"#).unwrap();
    assert_eq!(
        (&value["kind"], &value["apiVersion"]),
        (&"ConfigMap".into(), &"v1".into())
    );
}

#[test]
fn a_custom_resource_must_name_kind_and_version() {
    check(
        "widgets",
        r#"{"kind":"Widget","metadata":{"name":"b"}}"#,
        400,
        "the API version in the data () does not match the expected API version (example.com/v1)",
    );
    check(
        "widgets",
        r#"{"apiVersion":"example.com/v1","metadata":{"name":"b2"}}"#,
        400,
        r#"the object provided is unrecognized (must be of type Widget): Object 'Kind' is missing in '{"apiVersion":"example.com/v1","metadata":{"name":"b2"}}' ({"apiVersion":"example.com/v1" ...)"#,
    );
    check(
        "widgets",
        r#"{"apiVersion":"example.com/v1","kind":"Secret","metadata":{"name":"b"}}"#,
        422,
        r#"Secret.example.com "b" is invalid: kind: Invalid value: "Secret": must be Widget"#,
    );
}

#[test]
fn another_version_of_a_compiled_in_kind_is_refused() {
    check(
        "configmaps",
        r#"{"apiVersion":"apps/v1","kind":"ConfigMap","metadata":{"name":"b"}}"#,
        400,
        r#"ConfigMap in version "v1" cannot be handled as a ConfigMap: no kind "ConfigMap" is registered for version "apps/v1" in scheme "pkg/api/legacyscheme/scheme.go:30""#,
    );
}

#[test]
fn text_that_is_no_object_is_refused_with_an_excerpt() {
    check(
        "configmaps",
        "",
        400,
        "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: unexpected end of JSON input (<empty>)",
    );
    check(
        "configmaps",
        "[]",
        400,
        r#"the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" } (5b5d)"#,
    );
}

#[test]
fn metadata_of_wrong_types_is_refused_in_go_s_words() {
    check(
        "configmaps",
        r#"{"metadata":{"name":"b","labels":{"ok":5}}}"#,
        400,
        r#"ConfigMap in version "v1" cannot be handled as a ConfigMap: json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string"#,
    );
    check(
        "widgets",
        r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"b","labels":{"ok":5}}}"#,
        400,
        r#"Widget in version "v1" cannot be handled as a Widget: json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string"#,
    );
}

#[track_caller]
fn check_patch_refused(plural: &str, patched: &str, message: &str) {
    let mut patched = serde_json::from_str(patched).unwrap();
    let refusal = check_patched(&kind(plural), &mut patched).unwrap_err();
    assert_eq!((refusal.code, refusal.message.as_str()), (422, message));
}

/// The messages are a real API server's.
#[test]
fn what_a_patch_made_unreadable_is_refused_with_what_it_made() {
    check_patch_refused(
        "configmaps",
        r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":1,"data":{"a":"1"}}"#,
        r#" "" is invalid: patch: Invalid value: "{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":1,\"data\":{\"a\":\"1\"}}": json: cannot unmarshal number into Go struct field ConfigMap.metadata of type v1.ObjectMeta"#,
    );
    check_patch_refused(
        "widgets",
        r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"labels":{"x":1}}}"#,
        r#" "" is invalid: patch: Invalid value: "{\"apiVersion\":\"example.com/v1\",\"kind\":\"Widget\",\"metadata\":{\"labels\":{\"x\":1}}}": json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string"#,
    );
    check_patch_refused(
        "widgets",
        "{}",
        r#" "" is invalid: patch: Invalid value: "{}": Object 'Kind' is missing in '{}'"#,
    );
    check_patch_refused(
        "configmaps",
        "[]",
        r#" "" is invalid: patch: Invalid value: "[]": couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#,
    );
}
