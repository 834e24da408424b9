//! Tests with the examples of RFC 7386 and RFC 6902, strategic merge patches as clients send them, and a real API server's messages.

use serde_json::json;

use super::json::ApplyError;
use super::*;
use crate::apiserver::{kinds::Catalogue, nesting};
use crate::decode::DEPTH_MAX;

#[track_caller]
fn check_merge(target: &str, patch: &str, expected: &str) {
    let [mut target, patch, expected] =
        [target, patch, expected].map(|text| serde_json::from_str::<Value>(text).unwrap());
    json_patch::merge(&mut target, &patch);
    assert_eq!(target, expected);
}

#[test]
fn merge_patches_do_what_rfc_7386_appendix_a_says() {
    for (target, patch, expected) in [
        (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
        (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
        (r#"{"a":"b"}"#, r#"{"a":null}"#, "{}"),
        (r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#),
        (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
        (r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#),
        (
            r#"{"a":{"b":"c"}}"#,
            r#"{"a":{"b":"d","c":null}}"#,
            r#"{"a":{"b":"d"}}"#,
        ),
        (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
        (r#"["a","b"]"#, r#"["c","d"]"#, r#"["c","d"]"#),
        (r#"{"a":"b"}"#, r#"["c"]"#, r#"["c"]"#),
        (r#"{"a":"foo"}"#, "null", "null"),
        (r#"{"a":"foo"}"#, r#""bar""#, r#""bar""#),
        (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"e":null,"a":1}"#),
        ("[1,2]", r#"{"a":"b","c":null}"#, r#"{"a":"b"}"#),
        ("{}", r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#),
    ] {
        check_merge(target, patch, expected);
    }
}

#[track_caller]
fn check_json(document: &str, patch: &str, expected: Result<&str, ApplyError>) {
    let mut document = serde_json::from_str(document).unwrap();
    let operations = json::decode(patch.as_bytes()).unwrap();
    let outcome = json::apply(&mut document, &operations).map(|()| document);
    assert_eq!(
        outcome,
        expected.map(|text| serde_json::from_str(text).unwrap()),
        "{patch}"
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn json_patches_do_what_rfc_6902_appendix_a_says() {
    use ApplyError::{Differs, Index, Missing};
    for (document, patch, expected) in [
        (
            r#"{"foo":"bar"}"#,
            r#"[{"op":"add","path":"/baz","value":"qux"}]"#,
            Ok(r#"{"baz":"qux","foo":"bar"}"#),
        ),
        (
            r#"{"foo":["bar","baz"]}"#,
            r#"[{"op":"add","path":"/foo/1","value":"qux"}]"#,
            Ok(r#"{"foo":["bar","qux","baz"]}"#),
        ),
        (
            r#"{"baz":"qux","foo":"bar"}"#,
            r#"[{"op":"remove","path":"/baz"}]"#,
            Ok(r#"{"foo":"bar"}"#),
        ),
        (
            r#"{"foo":["bar","qux","baz"]}"#,
            r#"[{"op":"remove","path":"/foo/1"}]"#,
            Ok(r#"{"foo":["bar","baz"]}"#),
        ),
        (
            r#"{"baz":"qux"}"#,
            r#"[{"op":"replace","path":"/baz","value":"boo"}]"#,
            Ok(r#"{"baz":"boo"}"#),
        ),
        (
            r#"{"foo":{"bar":"baz","waldo":"fred"},"qux":{"corge":"grault"}}"#,
            r#"[{"op":"move","from":"/foo/waldo","path":"/qux/thud"}]"#,
            Ok(r#"{"foo":{"bar":"baz"},"qux":{"corge":"grault","thud":"fred"}}"#),
        ),
        (
            r#"{"foo":["all","grass","cows","eat"]}"#,
            r#"[{"op":"move","from":"/foo/1","path":"/foo/3"}]"#,
            Ok(r#"{"foo":["all","cows","eat","grass"]}"#),
        ),
        (
            r#"{"baz":"qux","foo":["a",2,"c"]}"#,
            r#"[{"op":"test","path":"/baz","value":"qux"},{"op":"test","path":"/foo/1","value":2}]"#,
            Ok(r#"{"baz":"qux","foo":["a",2,"c"]}"#),
        ),
        (
            r#"{"baz":"qux"}"#,
            r#"[{"op":"test","path":"/baz","value":"bar"}]"#,
            Err(Differs),
        ),
        (
            r#"{"foo":"bar"}"#,
            r#"[{"op":"add","path":"/child","value":{"grandchild":{}}}]"#,
            Ok(r#"{"foo":"bar","child":{"grandchild":{}}}"#),
        ),
        (
            r#"{"foo":"bar"}"#,
            r#"[{"op":"add","path":"/baz","value":"qux","xyz":123}]"#,
            Ok(r#"{"foo":"bar","baz":"qux"}"#),
        ),
        (
            r#"{"foo":"bar"}"#,
            r#"[{"op":"add","path":"/baz/bat","value":"qux"}]"#,
            Err(Missing),
        ),
        (
            r#"{"/":9,"~1":10}"#,
            r#"[{"op":"test","path":"/~01","value":10}]"#,
            Ok(r#"{"/":9,"~1":10}"#),
        ),
        (
            r#"{"/":9,"~1":10}"#,
            r#"[{"op":"test","path":"/~01","value":"10"}]"#,
            Err(Differs),
        ),
        (
            r#"{"foo":["bar"]}"#,
            r#"[{"op":"add","path":"/foo/-","value":["abc","def"]}]"#,
            Ok(r#"{"foo":["bar",["abc","def"]]}"#),
        ),
        (
            r#"{"foo":["bar"]}"#,
            r#"[{"op":"add","path":"/foo/2","value":1}]"#,
            Err(Index),
        ),
        (
            r#"{"foo":["bar"]}"#,
            r#"[{"op":"remove","path":"/foo/0x"}]"#,
            Err(Index),
        ),
    ] {
        check_json(document, patch, expected);
    }
}

#[test]
fn json_patches_fail_where_the_api_server_s_library_fails() {
    check_json(
        "{}",
        r#"[{"op":"add","path":"metadata","value":1}]"#,
        Err(ApplyError::Pointer),
    );
    check_json(
        "{}",
        r#"[{"op":"add","path":"","value":{}}]"#,
        Err(ApplyError::Root),
    );
    check_json(
        "{}",
        r#"[{"op":"copy","from":"/a","path":"/b"}]"#,
        Err(ApplyError::Missing),
    );
    check_json(
        r#"{"a":{}}"#,
        r#"[{"op":"move","from":"/a","path":"/a/b"}]"#,
        Err(ApplyError::IntoItself),
    );
    for (document, patch, expected) in [
        ("{}", r#"{"op":"test","path":"/a","value":null}"#, Ok("{}")),
        (
            "{}",
            r#"{"op":"test","path":"/a/b","value":null}"#,
            Err(ApplyError::Missing),
        ),
        (
            r#"{"a":"x"}"#,
            r#"{"op":"test","path":"/a/b","value":null}"#,
            Err(ApplyError::Missing),
        ),
        (
            "{}",
            r#"{"op":"copy","from":"","path":"/a"}"#,
            Err(ApplyError::Root),
        ),
        ("{}", r#"{"op":"replace","path":"","value":"x"}"#, Ok("{}")),
        (
            r#"{"a":{}}"#,
            r#"{"op":"add","path":"x/a/b","value":1}"#,
            Ok(r#"{"a":{"b":1}}"#),
        ),
    ] {
        check_json(document, &format!("[{patch}]"), expected);
    }
}

#[test]
fn list_indices_are_read_as_the_api_server_s_library_reads_them() {
    let three = r#"{"a":[1,2,3]}"#;
    for (patch, expected) in [
        (
            r#"{"op":"add","path":"/a/-1","value":4}"#,
            Ok(r#"{"a":[1,2,3,4]}"#),
        ),
        (
            r#"{"op":"add","path":"/a/-4","value":4}"#,
            Ok(r#"{"a":[4,1,2,3]}"#),
        ),
        (
            r#"{"op":"add","path":"/a/-5","value":4}"#,
            Err(ApplyError::Index),
        ),
        (r#"{"op":"remove","path":"/a/-1"}"#, Ok(r#"{"a":[1,2]}"#)),
        (r#"{"op":"remove","path":"/a/-4"}"#, Err(ApplyError::Index)),
        (
            r#"{"op":"replace","path":"/a/-2","value":4}"#,
            Ok(r#"{"a":[1,4,3]}"#),
        ),
        (r#"{"op":"test","path":"/a/-3","value":1}"#, Ok(three)),
        (r#"{"op":"remove","path":"/a/00"}"#, Ok(r#"{"a":[2,3]}"#)),
        (r#"{"op":"remove","path":"/a/+1"}"#, Ok(r#"{"a":[1,3]}"#)),
        (r#"{"op":"remove","path":"/a/1.0"}"#, Err(ApplyError::Index)),
        (
            r#"{"op":"remove","path":"/a/99999999999999999999"}"#,
            Err(ApplyError::Index),
        ),
    ] {
        check_json(three, &format!("[{patch}]"), expected);
    }
}

/// Applies the operations of `step` this many times in one patch.
#[track_caller]
fn check_repeated(document: &str, step: &str, times: usize, expected: Result<(), ApplyError>) {
    let mut document = serde_json::from_str(document).unwrap();
    let operations = json::decode(format!("[{step}]").as_bytes()).unwrap();
    let operations = vec![operations; times].concat();
    let outcome = nesting::with_stack(DEPTH_MAX, || Ok(json::apply(&mut document, &operations)));
    assert_eq!(outcome.unwrap(), expected);
    nesting::with_stack(DEPTH_MAX, move || {
        drop(document);
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_patch_nests_no_deeper_than_objects_can_be_read() {
    let copy = r#"{"op":"copy","from":"/a","path":"/a/b"}"#;
    check_repeated(r#"{"a":{}}"#, copy, 8, Ok(()));
    let sideways = r#"{"op":"move","from":"/a","path":"/c"},{"op":"add","path":"/a","value":{}},{"op":"move","from":"/c","path":"/a/b"}"#;
    check_repeated(r#"{"a":{}}"#, sideways, 500, Ok(()));
    check_repeated(r#"{"a":{}}"#, sideways, DEPTH_MAX, Err(ApplyError::Depth));
    let into = "/a".repeat(DEPTH_MAX);
    let add = format!(r#"{{"op":"add","path":"{into}","value":{{}}}}"#);
    check_repeated("{}", &add, 1, Err(ApplyError::Depth));
}

#[test]
fn a_patch_copies_no_more_than_the_api_server_allows() {
    let copy = r#"{"op":"copy","from":"/a","path":"/b"}"#;
    let document = format!(r#"{{"a":"{}"}}"#, "x".repeat(1 << 20));
    check_repeated(&document, copy, 2, Ok(()));
    check_repeated(&document, copy, 3, Err(ApplyError::Copied));
    let doubling = r#"{"op":"copy","from":"/a","path":"/a/-"}"#;
    check_repeated(
        r#"{"a":["xxxxxxxxxxxxxxxx"]}"#,
        doubling,
        30,
        Err(ApplyError::Copied),
    );
}

#[test]
fn a_patch_shifts_a_bounded_number_of_list_items() {
    let items = vec!["0"; 100_000].join(",");
    let insert = r#"{"op":"add","path":"/a/0","value":0}"#;
    let document = format!(r#"{{"a":[{items}]}}"#);
    check_repeated(&document, insert, 10, Ok(()));
    check_repeated(&document, insert, 10_000, Err(ApplyError::Shifted));
    let append = r#"{"op":"add","path":"/a/-","value":0}"#;
    check_repeated(&document, append, 10_000, Ok(()));
}

/// The depth has to be measured where a move might nest the document too deeply.
#[test]
fn a_patch_looks_through_a_bounded_number_of_values() {
    let deep = format!("{}{}", "[".repeat(9_990), "]".repeat(9_990));
    let wide = vec!["0"; 100_000].join(",");
    let nest = format!("{}{{}}{}", r#"{"c":"#.repeat(12), "}".repeat(12));
    let document = format!(r#"{{"deep":{deep},"wide":[{wide}],"a":{{}},"b":{nest}}}"#);
    let inside = format!("/b{}/a", "/c".repeat(12));
    let to_and_fro = format!(
        r#"{{"op":"move","from":"/a","path":"{inside}"}},{{"op":"move","from":"{inside}","path":"/a"}}"#
    );
    nesting::with_stack(DEPTH_MAX, || {
        for (times, expected) in [(10, Ok(())), (1_000, Err(ApplyError::Shifted))] {
            let mut document = nesting::parse(document.as_bytes()).unwrap();
            let operations = json::decode(format!("[{to_and_fro}]").as_bytes()).unwrap();
            let operations = vec![operations; times].concat();
            assert_eq!(json::apply(&mut document, &operations), expected);
        }
        Ok(())
    })
    .unwrap();
}

#[track_caller]
fn check_strategic(target: Value, patch: Value, expected: Value) {
    let mut target = target;
    strategic::apply(&mut target, &patch).unwrap();
    assert_eq!(target, expected);
}

#[test]
fn strategic_patches_merge_lists_by_their_keys() {
    let pod = json!({"spec": {"containers": [{"name": "c", "image": "i", "resources": {}}]}});
    check_strategic(
        pod.clone(),
        json!({"spec": {"$setElementOrder/containers": [{"name": "c"}], "containers": [{"name": "c", "image": "j"}, {"name": "d", "image": "k"}]}}),
        json!({"spec": {"containers": [{"name": "c", "image": "j", "resources": {}}, {"name": "d", "image": "k"}]}}),
    );
    check_strategic(
        pod.clone(),
        json!({"spec": {"containers": [{"$patch": "delete", "name": "c"}]}}),
        json!({"spec": {"containers": []}}),
    );
    check_strategic(
        pod,
        json!({"spec": {"containers": [{"$patch": "replace"}, {"name": "e"}]}}),
        json!({"spec": {"containers": [{"name": "e"}]}}),
    );
}

#[test]
fn strategic_patches_know_sets_and_directives() {
    check_strategic(
        json!({"metadata": {"finalizers": ["a"]}}),
        json!({"metadata": {"finalizers": ["b", "a"]}}),
        json!({"metadata": {"finalizers": ["a", "b"]}}),
    );
    check_strategic(
        json!({"metadata": {"finalizers": ["a", "b"]}}),
        json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}),
        json!({"metadata": {"finalizers": ["b"]}}),
    );
    check_strategic(
        json!({"data": {"a": "1"}}),
        json!({"data": {"$patch": "replace", "q": "1"}}),
        json!({"data": {"q": "1"}}),
    );
    check_strategic(
        json!({"data": {"a": "1"}}),
        json!({"data": {"a": null}}),
        json!({"data": {}}),
    );
    check_strategic(
        json!({"s": {"a": 1, "b": 2}}),
        json!({"s": {"$retainKeys": ["a"], "a": 3}}),
        json!({"s": {"a": 3}}),
    );
    check_strategic(
        json!({"args": ["a"]}),
        json!({"args": ["b"]}),
        json!({"args": ["b"]}),
    );
}

/// Items are searched linearly while the store is locked.
#[test]
fn a_strategic_patch_compares_a_bounded_number_of_items() {
    let named = |count: usize| -> Value {
        let item = |at| json!({"name": format!("{at:06}")});
        (0..count).map(item).collect()
    };
    let texts = |count: usize| -> Value { (0..count).map(|at| at.to_string()).collect() };
    for (count, expected) in [(1_000, Ok(())), (5_000, Err(StrategicError::Compared))] {
        for (target, patch) in [
            (
                json!({"containers": named(count)}),
                json!({"containers": named(count)}),
            ),
            (
                json!({"finalizers": texts(count)}),
                json!({"finalizers": texts(count)}),
            ),
            (
                json!({"finalizers": texts(count)}),
                json!({"$deleteFromPrimitiveList/finalizers": texts(count)}),
            ),
        ] {
            let outcome = strategic::apply(&mut target.clone(), &patch);
            assert_eq!(outcome, expected, "{count}");
        }
        let keys: Value = (0..count).map(|at| (at.to_string(), Value::Null)).collect();
        let outcome = strategic::apply(&mut keys.clone(), &json!({"$retainKeys": texts(count)}));
        assert_eq!(outcome, expected, "{count} keys");
    }
}

#[track_caller]
fn check_refused(plural: &str, content_type: &str, body: &str, code: u16, message: &str) {
    let catalogue = Catalogue::new(&["widgets.v1.example.com=Widget".parse().unwrap()]);
    let kind = catalogue.kind(catalogue.index_of_plural(plural).unwrap());
    let mut object = json!({"metadata": {"labels": {"l": "1"}}});
    let refusal = Patch::decode(kind, content_type, body.as_bytes())
        .and_then(|patch| patch.apply(&mut object))
        .expect_err("refused");
    assert_eq!(
        (refusal.code, refusal.message.as_str()),
        (code, message),
        "{body}"
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn what_is_no_patch_is_refused_in_the_api_server_s_words() {
    let (merge, json, strategic) = (
        "application/merge-patch+json",
        "application/json-patch+json",
        "application/strategic-merge-patch+json",
    );
    for (content_type, body, code, message) in [
        (
            merge,
            "",
            400,
            "error decoding patch: unexpected end of JSON input",
        ),
        (
            merge,
            "[]",
            400,
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
        ),
        (merge, "null", 400, "Invalid JSON Patch"),
        (
            strategic,
            "[]",
            400,
            "json: cannot unmarshal array into Go value of type map[string]interface {}",
        ),
        (
            strategic,
            r#"{"metadata":{"$patch":"frob"}}"#,
            500,
            "unknown patch type: frob",
        ),
        (
            json,
            "{}",
            400,
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
        ),
        (
            json,
            "[5]",
            400,
            "error decoding patch: json: cannot unmarshal number into Go value of type handlers.jsonPatchOp",
        ),
        (
            json,
            "[null]",
            400,
            "invalid operation null: unsupported operation",
        ),
        (
            json,
            r#"[{"op":1,"path":"/a"}]"#,
            400,
            "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string",
        ),
        (
            json,
            r#"[{"op":"remove","path":null}]"#,
            400,
            r#"invalid operation {"op":"remove","path":null}: failed to decode 'path': operation missing path field: missing value"#,
        ),
        (
            json,
            r#"[{"op":"frob","path":"/a"}]"#,
            400,
            r#"invalid operation {"op":"frob","path":"/a"}: unsupported operation"#,
        ),
        (
            json,
            r#"[{"op":"add"}]"#,
            400,
            r#"invalid operation {"op":"add"}: failed to decode 'value': operation, missing value field: missing value"#,
        ),
        (
            json,
            r#"[{"op":"remove"}]"#,
            400,
            r#"invalid operation {"op":"remove"}: failed to decode 'path': operation missing path field: missing value"#,
        ),
        (
            json,
            r#"[{"op":"move","path":"/a"}]"#,
            400,
            r#"invalid operation {"op":"move","path":"/a"}: failed to decode 'from': operation, missing from field: missing value"#,
        ),
        (
            json,
            r#"[{"op":"test","path":"/metadata/labels/l","value":"3"}]"#,
            422,
            "the server rejected our request due to an error in our request",
        ),
        ("text/plain", "{}", 415, "415: Unsupported Media Type"),
    ] {
        check_refused("configmaps", content_type, body, code, message);
    }
    check_refused(
        "widgets",
        strategic,
        "{}",
        415,
        "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json",
    );
}
