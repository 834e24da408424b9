//! The scanner against excerpts of a real API server's responses, and against serde_json.

use std::borrow::Cow;
use std::fmt::Write as _;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::resource::Gvr;

const POD: &str = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p1","namespace":"default","uid":"e0107c60-3809","resourceVersion":"30","generation":1,"labels":{"app":"demo","x":"2"},"managedFields":[{"manager":"m","fieldsV1":{"f:metadata":{"f:labels":{".":{},"f:app":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{}}}}}}]},"spec":{"containers":[{"name":"c","image":"i","resources":{}}],"nodeName":"node-1"},"status":{"phase":"Running"}}"#;
const WIDGET: &str = r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"creationTimestamp":"2026-11-21T02:54:13Z","generation":1,"labels":{"app":"demo"},"name":"w2","namespace":"default","resourceVersion":"6","uid":"90ab1b4c-24dc"},"spec":{"size":2}}"#;

fn pods() -> FieldTable {
    FieldTable::of(&Gvr::new("", "v1", "pods"))
}

fn no_fields() -> FieldTable {
    FieldTable::of(&Gvr::new("example.com", "v1", "widgets"))
}

fn scan(text: &str) -> Result<ObjectParts<'_>, ScanError> {
    scan_object(text.as_bytes(), no_fields())
}

#[test]
fn a_pod_gives_its_parts() {
    let parts = scan_object(POD.as_bytes(), pods()).unwrap();
    assert_eq!(
        (&*parts.namespace, &*parts.name, &*parts.uid),
        ("default", "p1", "e0107c60-3809")
    );
    assert_eq!(parts.resource_version, ResourceVersion(30));
    assert_eq!(parts.version_span.of(POD.as_bytes()), b"30");
    let labels: Vec<_> = parts.labels.iter().map(|(k, v)| (&**k, &**v)).collect();
    assert_eq!(labels, [("app", "demo"), ("x", "2")]);
    let expected = ["node-1", "", "", "", "false", "Running", "", "", ""];
    assert_eq!(parts.fields, expected);
    let prefix = &POD[1..=parts.type_prefix_len as usize];
    assert_eq!(prefix, r#""kind":"Pod","apiVersion":"v1","#);
}

#[test]
fn a_custom_resource_has_no_type_prefix() {
    let parts = scan(WIDGET).unwrap();
    assert_eq!((&*parts.name, parts.type_prefix_len), ("w2", 0));
    assert_eq!(parts.version_span.of(WIDGET.as_bytes()), b"6");
}

#[test]
fn numbers_and_booleans_count_as_their_text_and_null_as_absent() {
    let text = r#"{"metadata":{"name":"p","resourceVersion":"1"},"spec":{"hostNetwork":true,"nodeName":null,"schedulerName":{"a":[]},"restartPolicy":3e2},"status":null}"#;
    let parts = scan_object(text.as_bytes(), pods()).unwrap();
    assert_eq!(parts.fields, ["", "3e2", "", "", "true", "", "", "", ""]);
}

#[track_caller]
fn check_prefix(head: &str, expected: &str) {
    let text = format!(r#"{{{head}"metadata":{{"name":"n","resourceVersion":"1"}}}}"#);
    let len = scan(&text).unwrap().type_prefix_len as usize;
    assert_eq!(&text[1..=len], expected);
}

#[test]
fn the_type_prefix_is_kind_then_version_if_another_key_follows() {
    check_prefix("", "");
    check_prefix(
        r#""kind":"A","apiVersion":"v1","#,
        r#""kind":"A","apiVersion":"v1","#,
    );
    check_prefix(r#""apiVersion":"v1","kind":"A","#, "");
    check_prefix(r#""kind":"A","x":1,"apiVersion":"v1","#, "");
    check_prefix(r#""kind":1,"apiVersion":"v1","#, "");
    check_prefix(r#""kind":"A","#, "");
    let last = r#"{"metadata":{"name":"n","resourceVersion":"1"},"kind":"A","apiVersion":"v1"}"#;
    assert_eq!(scan(last).unwrap().type_prefix_len, 0);
}

#[test]
fn every_cut_of_an_object_is_an_error() {
    for text in [POD, WIDGET] {
        for len in 0..text.len() {
            assert!(
                scan_object(&text.as_bytes()[..len], pods()).is_err(),
                "{len}"
            );
        }
    }
}

#[test]
fn no_changed_byte_makes_the_scanner_panic() {
    for at in 0..POD.len() {
        for byte in *b"\"\\{}[],:n0 \n\x00\xff" {
            let mut bytes = POD.as_bytes().to_vec();
            bytes[at] = byte;
            if let Ok(parts) = scan_object(&bytes, pods()) {
                let digits = std::str::from_utf8(parts.version_span.of(&bytes)).unwrap();
                assert_eq!(digits.parse(), Ok(parts.resource_version));
            }
        }
    }
}

#[track_caller]
fn check_error(text: &str, expected: &str) {
    assert_eq!(scan(text).unwrap_err().to_string(), expected, "{text}");
}

#[test]
fn errors_name_the_expected_token_and_its_offset() {
    check_error("", "expected an object at offset 0");
    check_error("[]", "expected an object at offset 0");
    // Found by fuzzing: spans would have pointed to bytes beside the digits.
    check_error(" {}", "expected an object at offset 0");
    check_error(
        "{}",
        "expected metadata.name before the end of its object at offset 2",
    );
    check_error(
        r#"{"metadata":{"name":"n"}}"#,
        "expected metadata.resourceVersion before the end of its object at offset 25",
    );
    check_error(r#"{"metadata":null}"#, "expected metadata at offset 12");
    check_error(
        r#"{"metadata":{},"m\u0065tadata":{}}"#,
        "expected one metadata at offset 31",
    );
    check_error(
        r#"{"metadata":{"name":1}}"#,
        "expected a string in metadata at offset 20",
    );
    check_error(
        r#"{"metadata":{"name":"n","resourceVersion":"x"}}"#,
        "unusable resource version at offset 43",
    );
    check_error(
        r#"{"a":[}]}"#,
        "expected the other kind of closing bracket at offset 6",
    );
    check_error(
        r#"{"a":["b",\"]"]}"#,
        "expected no backslash outside of strings at offset 10",
    );
    check_error(r#"{"a":["b]}"#, "expected a closing bracket at offset 10");
    check_error(r#"{"a":nul}"#, "expected a value at offset 5");
    check_error("{\"a\":\n1}", "expected an object on one line at offset 5");
    check_error(
        r#"{"metadata":{"name":"n","resourceVersion":"1"}} {}"#,
        "expected nothing more at offset 48",
    );
    let deep = format!(r#"{{"a":{}"#, "[".repeat(20_000));
    check_error(&deep, "nested deeper than 10000 at offset 10004");
    assert_eq!(
        scan_object(b"{\"a\":\"\xff\"}", no_fields()).unwrap_err(),
        ScanError::Utf8 { offset: 6 }
    );
}

/// An object with brackets nested to this depth, its own included.
fn nested(depth: usize) -> String {
    let inner = depth - 1;
    let (open, close): (String, String) = (0..inner)
        .map(|at| {
            if at % 2 == 0 {
                (r#"{"k":"#, '}')
            } else {
                ("[", ']')
            }
        })
        .unzip();
    let close: String = close.chars().rev().collect();
    format!(
        r#"{{"apiVersion":"example.com/v1","kind":"Widget","metadata":{{"name":"n","resourceVersion":"1"}},"spec":{open}0{close}}}"#
    )
}

/// The result of each function that reads an object: alone, in an event and in a list.
fn read_everywhere(object: &str) -> Vec<(&'static str, Result<(), ScanError>)> {
    let line = format!(r#"{{"type":"ADDED","object":{object}}}"#);
    let type_last = format!(r#"{{"object":{object},"type":"ADDED"}}"#);
    let list = format!(r#"{{"items":[{object}],"metadata":{{"resourceVersion":"1"}}}}"#);
    let (object, line, type_last) = (object.as_bytes(), line.as_bytes(), type_last.as_bytes());
    vec![
        ("object", scan_object(object, no_fields()).map(drop)),
        ("bookmark", scan_bookmark(object).map(drop)),
        ("members", super::super::members(object).map(drop)),
        ("member", super::super::member(object, "none").map(drop)),
        ("line", super::super::scan_line(line, no_fields()).map(drop)),
        (
            "line, type last",
            super::super::scan_line(type_last, no_fields()).map(drop),
        ),
        ("event", super::super::scan_event(line).map(drop)),
        ("list", super::super::scan_list(list.as_bytes()).map(drop)),
    ]
}

/// The API server decodes with Go's library, which accepts a depth of 10,000 and reports "exceeded max depth" beyond it.
#[test]
fn objects_are_read_as_deep_as_the_api_server_accepts_them_and_no_deeper() {
    for depth in [3, 64, 65, 128, 129, 1024, 1025, 9_000, 10_000] {
        for (way, read) in read_everywhere(&nested(depth)) {
            assert_eq!(read, Ok(()), "{way}, {depth} deep");
        }
    }
    for depth in [10_001, 10_002, 20_000, 1_000_000] {
        for (way, read) in read_everywhere(&nested(depth)) {
            if depth == 10_001 && way.starts_with("member") {
                // These read one level, and the depth of a value counts from the value itself.
                assert_eq!(read, Ok(()), "{way}");
                continue;
            }
            let refused = matches!(read, Err(ScanError::TooDeep { .. }));
            assert!(refused, "{way}, {depth} deep: {read:?}");
        }
    }
}

#[track_caller]
fn check_bookmark(text: &str, version: u64, initial_events_end: bool) {
    let bookmark = scan_bookmark(text.as_bytes()).unwrap();
    assert_eq!(bookmark.resource_version, ResourceVersion(version));
    assert_eq!(bookmark.initial_events_end, initial_events_end);
    let digits = bookmark.version_span.of(text.as_bytes());
    assert_eq!(digits, version.to_string().as_bytes());
}

#[test]
fn a_bookmark_has_its_version_and_whether_it_ends_the_initial_events() {
    check_bookmark(
        r#"{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"30","annotations":{"k8s.io/initial-events-end":"true"}},"spec":{"containers":null},"status":{}}"#,
        30,
        true,
    );
    check_bookmark(
        r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"annotations":{"k8s.io/initial-events-end":"true"},"resourceVersion":"23"}}"#,
        23,
        true,
    );
    let plain = r#"{"kind":"Pod","metadata":{"resourceVersion":"31"},"spec":{}}"#;
    check_bookmark(plain, 31, false);
    for value in [r#""True""#, "1", "null", "{}"] {
        let text = format!(
            r#"{{"metadata":{{"annotations":{{"k8s.io/initial-events-end":{value}}},"resourceVersion":"1"}}}}"#
        );
        check_bookmark(&text, 1, false);
    }
    assert!(scan_bookmark(br#"{"metadata":{}}"#).is_err());
}

/// The parts that the scanner should find, taken from a parsed tree.
fn oracle(tree: &Value, fields: FieldTable) -> Option<ObjectParts<'static>> {
    let text = |value: &Value| -> Cow<'static, str> {
        value.as_str().unwrap_or_default().to_owned().into()
    };
    let metadata = &tree["metadata"];
    let name = text(&metadata["name"]);
    let labels = metadata["labels"].as_object().cloned().unwrap_or_default();
    let field = |field: &SelectableField| {
        let value = field
            .path
            .iter()
            .try_fold(tree, |value, key| value.get(key));
        match value.filter(|_| !field.path.is_empty()) {
            Some(Value::String(text)) => text.clone().into(),
            Some(value @ (Value::Bool(_) | Value::Number(_))) => value.to_string().into(),
            _ => field.default.into(),
        }
    };
    Some(ObjectParts {
        namespace: text(&metadata["namespace"]),
        uid: text(&metadata["uid"]),
        resource_version: metadata["resourceVersion"].as_str()?.parse().ok()?,
        labels: labels
            .iter()
            .map(|(k, v)| (k.clone().into(), text(v)))
            .collect(),
        fields: fields.fields().iter().map(field).collect(),
        name: Some(name).filter(|name| !name.is_empty())?,
        ..ObjectParts::default()
    })
}

#[track_caller]
fn check_like_oracle(text: &str, tree: &Value) {
    let scanned = scan_object(text.as_bytes(), pods());
    let Some(expected) = oracle(tree, pods()) else {
        assert!(scanned.is_err(), "{text}");
        return;
    };
    let scanned = scanned.unwrap_or_else(|error| panic!("{error}: {text}"));
    let digits = std::str::from_utf8(scanned.version_span.of(text.as_bytes())).unwrap();
    assert_eq!(digits.parse(), Ok(expected.resource_version));
    let blank = ObjectParts {
        version_span: ByteSpan::default(),
        type_prefix_len: 0,
        ..scanned
    };
    assert_eq!(format!("{blank:?}"), format!("{expected:?}"), "{text}");
}

/// The same JSON with every character outside ASCII written as escapes.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for character in text.chars() {
        if character.is_ascii() {
            out.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            write!(out, "\\u{unit:04x}").unwrap();
        }
    }
    out
}

fn odd_string() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z./-]{0,12}",
        "[\\\\\"{}\\[\\],:\n\t é😀\u{0}\u{7f}\u{2028}\u{fffd}]{0,8}",
        any::<String>(),
        Just("metadata".to_owned()),
        Just("name".to_owned()),
    ]
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1e9..1e9).prop_map(|number: f64| Value::from(number)),
        odd_string().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 48, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Value::from),
            btree_map(odd_string(), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

prop_compose! {
    fn any_object()(
        name in odd_string(),
        version in prop_oneof![9 => any::<u64>().prop_map(|n| n.to_string()), 1 => odd_string()],
        optional in vec(proptest::option::of(odd_string()), 7),
        labels in proptest::option::of(btree_map(odd_string(), odd_string(), 0..5)),
        host_network in proptest::option::of(any_json()),
        rest in btree_map(odd_string(), any_json(), 0..4),
        noise in btree_map("[A-Z]{1,3}", any_json(), 0..4),
    ) -> Value {
        let mut metadata = Map::new();
        let mut put = |key: &str, value: &Option<String>| {
            if let Some(value) = value {
                metadata.insert(key.to_owned(), json!(value));
            }
        };
        put("name", &Some(name));
        put("resourceVersion", &Some(version));
        put("namespace", &optional[0]);
        put("uid", &optional[1]);
        if let Some(labels) = labels {
            metadata.insert("labels".to_owned(), json!(labels));
        }
        metadata.extend(noise.clone());
        let mut spec: Map<String, Value> = noise.into_iter().collect();
        for (key, value) in [("nodeName", &optional[2]), ("restartPolicy", &optional[3]), ("schedulerName", &optional[4])] {
            spec.extend(value.iter().map(|value| (key.to_owned(), json!(value))));
        }
        spec.extend(host_network.map(|value| ("hostNetwork".to_owned(), value)));
        let mut root: Map<String, Value> = rest.into_iter().collect();
        root.insert("metadata".to_owned(), Value::Object(metadata));
        root.insert("spec".to_owned(), Value::Object(spec));
        if let Some(phase) = &optional[5] {
            root.insert("status".to_owned(), json!({ "phase": phase, "podIP": optional[6] }));
        }
        Value::Object(root)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_scanner_finds_the_same_parts_as_serde_json(tree in any_object()) {
        let compact = tree.to_string();
        check_like_oracle(&compact, &tree);
        check_like_oracle(&escaped(&compact), &tree);
        let spaced = serde_json::to_string_pretty(&tree).unwrap().replace('\n', "\t ");
        check_like_oracle(&spaced, &tree);
    }

    #[test]
    fn a_cut_object_is_refused(tree in any_object(), part in 0.0..1.0) {
        let text = tree.to_string();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a fraction of a short length")]
        let len = (text.len() as f64 * part) as usize;
        prop_assert!(scan_object(&text.as_bytes()[..len], pods()).is_err());
    }

    #[test]
    fn noise_never_panics(bytes in vec(prop::sample::select(b"{}[]\",:\\n0tu \xc3\xa9".to_vec()), 0..64)) {
        let _ = scan_object(&bytes, pods());
        let _ = scan_bookmark(&bytes);
        let _ = super::super::scan_event(&bytes);
        let _ = super::super::scan_line(&bytes, pods());
        let _ = super::super::scan_list(&bytes);
        let _ = super::super::scan_status(&bytes);
    }
}
