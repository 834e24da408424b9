//! Tests of the responses, changes and errors of writes; messages and objects are a real API server's.

use serde_json::json;

use super::*;
use crate::apiserver::body::decode;

const UID: &str = "08e571ab-4b9a-4110-93a5-c2d72ea803b1";
const STAMP: Stamp<'static> = Stamp {
    now: "2026-11-21T08:16:18Z",
    uid: UID,
    entropy: 7,
};

struct Bench(Storage);

impl Bench {
    fn new() -> Self {
        let extra = [
            "widgets.v1.example.com=Widget",
            "gizmos.v1.example.com=Gizmo:cluster",
        ];
        let extra: Vec<_> = extra.iter().map(|text| text.parse().unwrap()).collect();
        Self(Storage::new(Arc::new(Catalogue::new(&extra))))
    }

    fn target(&self, plural: &str, name: &str) -> WriteTarget {
        let kind_index = self.0.catalogue().index_of_plural(plural).unwrap();
        let namespaced = self.0.catalogue().kind(kind_index).resource.namespaced;
        WriteTarget {
            kind_index,
            key: ObjectKey::new(if namespaced { "default" } else { "" }, name),
            part: WritablePart::Whole,
            mode: WriteMode::Keep,
        }
    }

    fn create(&mut self, plural: &str, body: Value) -> Result<WriteOutcome, Status> {
        let target = self.target(plural, "");
        let mut body = body;
        let kind = self.0.catalogue().kind(target.kind_index);
        body["kind"] = kind.resource.kind.clone().into();
        body["apiVersion"] = kind.resource.gvr.api_version().into();
        let body = decode(kind, body.to_string().as_bytes())?;
        self.0.create(&target, body, STAMP)
    }

    fn patch(&mut self, plural: &str, name: &str, patch: Value) -> Result<WriteOutcome, Status> {
        self.0
            .patch(&self.target(plural, name), &Patch::Merge(patch))
    }

    fn delete(&mut self, plural: &str, name: &str) -> Result<WriteOutcome, Status> {
        self.0
            .delete(&self.target(plural, name), &Preconditions::default(), STAMP)
    }
}

fn text(bytes: &Bytes) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[track_caller]
fn check_refused(outcome: Result<WriteOutcome, Status>, code: u16, body: &str) {
    let refusal = outcome.expect_err("refused");
    assert_eq!(
        (refusal.code, text(&refusal.to_json()).trim_end()),
        (code, body)
    );
}

#[test]
fn a_created_object_gets_name_uid_version_and_time() {
    let mut bench = Bench::new();
    let outcome = bench
        .create(
            "configmaps",
            json!({"metadata": {"name": "a", "managedFields": []}, "data": {"k": "<v>"}}),
        )
        .unwrap();
    let expected = format!(
        r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"a","namespace":"default","uid":"{UID}","resourceVersion":"2","creationTimestamp":"2026-11-21T08:16:18Z"}},"data":{{"k":"\u003cv\u003e"}}}}"#
    );
    assert_eq!(text(&outcome.answer), expected);
    let change = outcome.change.unwrap();
    assert_eq!(
        (
            change.event,
            change.version,
            change.key.as_str(),
            change.previous,
            text(&change.object)
        ),
        (
            EventKind::Added,
            ResourceVersion(2),
            "default/a",
            None,
            expected.as_str()
        )
    );
}

#[test]
fn a_custom_resource_is_created_without_its_status() {
    let mut bench = Bench::new();
    let outcome = bench
        .create(
            "widgets",
            json!({"metadata": {"name": "s"}, "spec": {"v": 1}, "status": {"dropped": true}}),
        )
        .unwrap();
    assert_eq!(
        text(&outcome.answer),
        format!(
            r#"{{"apiVersion":"example.com/v1","kind":"Widget","metadata":{{"creationTimestamp":"2026-11-21T08:16:18Z","generation":1,"name":"s","namespace":"default","resourceVersion":"2","uid":"{UID}"}},"spec":{{"v":1}}}}"#
        )
    );
}

#[test]
fn revisions_are_one_sequence_over_all_kinds() {
    let mut bench = Bench::new();
    let mut versions = Vec::new();
    for (plural, name) in [("pods", "a"), ("widgets", "a"), ("pods", "b")] {
        versions.push(
            bench
                .create(plural, json!({"metadata": {"name": name}}))
                .unwrap()
                .change
                .unwrap()
                .version
                .0,
        );
    }
    versions.push(
        bench
            .patch("pods", "a", json!({"metadata": {"labels": {"l": "1"}}}))
            .unwrap()
            .change
            .unwrap()
            .version
            .0,
    );
    versions.push(
        bench
            .delete("widgets", "a")
            .unwrap()
            .change
            .unwrap()
            .version
            .0,
    );
    assert_eq!(versions, [2, 3, 4, 5, 6]);
    assert_eq!(bench.0.revision(), ResourceVersion(6));
}

#[test]
fn a_name_is_generated_until_it_is_free() {
    let mut bench = Bench::new();
    let mut names: Vec<String> = (0..9)
        .filter_map(|_| {
            bench
                .create("pods", json!({"metadata": {"generateName": "g-"}}))
                .ok()?
                .change
        })
        .map(|change| change.key.name().to_owned())
        .collect();
    names.dedup();
    assert_eq!(
        names.len(),
        8,
        "eight attempts with the same entropy: {names:?}"
    );
    assert!(
        names
            .iter()
            .all(|name| name.len() == 7 && name.starts_with("g-")),
        "{names:?}"
    );
}

#[test]
fn bad_creations_are_refused() {
    let mut bench = Bench::new();
    bench
        .create("widgets", json!({"metadata": {"name": "a"}}))
        .unwrap();
    check_refused(
        bench.create("widgets", json!({"metadata": {"name": "a"}})),
        409,
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"widgets.example.com \"a\" already exists","reason":"AlreadyExists","details":{"name":"a","group":"example.com","kind":"widgets"},"code":409}"#,
    );
    check_refused(
        bench.create("configmaps", json!({"metadata": {}})),
        422,
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required","reason":"Invalid","details":{"kind":"ConfigMap","causes":[{"reason":"FieldValueRequired","message":"Required value: name or generateName is required","field":"metadata.name"}]},"code":422}"#,
    );
    check_refused(
        bench.create(
            "configmaps",
            json!({"metadata": {"name": "b", "namespace": "other"}}),
        ),
        400,
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"the namespace of the provided object does not match the namespace sent on the request","reason":"BadRequest","code":400}"#,
    );
    check_refused(
        bench.create(
            "configmaps",
            json!({"metadata": {"name": "b", "resourceVersion": "5"}}),
        ),
        500,
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"resourceVersion should not be set on objects to be created","code":500}"#,
    );
    let refusal = bench
        .create("widgets", json!({"metadata": {"name": "A_b"}}))
        .unwrap_err();
    let start = r#"Widget.example.com "A_b" is invalid: metadata.name: Invalid value: "A_b": "#;
    assert!(refusal.message.starts_with(start), "{refusal}");
    assert_eq!(
        bench.0.revision(),
        ResourceVersion(2),
        "refusals leave the revision alone"
    );
}

#[track_caller]
fn check_update(plural: &str, body: Value, code: u16, message: &str) {
    let mut bench = Bench::new();
    bench
        .create(plural, json!({"metadata": {"name": "a"}}))
        .unwrap();
    let target = bench.target(plural, "a");
    let refusal = bench.0.update(&target, body).expect_err("refused");
    assert_eq!((refusal.code, refusal.message.as_str()), (code, message));
}

#[test]
fn updates_of_another_object_or_state_are_refused() {
    let modified = "the object has been modified; please apply your changes to the latest version and try again";
    for (plural, metadata, code, message) in [
        ("configmaps", json!({"name": "a", "resourceVersion": "1"}), 409, format!("Operation cannot be fulfilled on configmaps \"a\": {modified}")),
        ("widgets", json!({"name": "a", "resourceVersion": "1"}), 409, format!("Operation cannot be fulfilled on widgets.example.com \"a\": {modified}")),
        ("widgets", json!({"name": "a"}), 422, "widgets.example.com \"a\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update".into()),
        ("configmaps", json!({"name": "zz"}), 400, "the name of the object (zz) does not match the name on the URL (a)".into()),
        ("configmaps", json!({}), 400, "the name of the object (a based on URL) was undeterminable: name must be provided".into()),
        ("configmaps", json!({"name": "a", "namespace": "o"}), 400, "the namespace of the provided object does not match the namespace sent on the request".into()),
        ("configmaps", json!({"name": "a", "resourceVersion": "abc"}), 500, "\"abc\" is not an unsigned 64-bit number".into()),
        ("configmaps", json!({"name": "a", "uid": "nope"}), 409, format!("Operation cannot be fulfilled on configmaps \"a\": StorageError: invalid object, Code: 4, Key: /registry/configmaps/default/a, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: nope, UID in object meta: {UID}")),
    ] {
        check_update(plural, json!({"metadata": metadata}), code, &message);
    }
}

#[test]
fn an_update_that_changes_nothing_makes_no_revision() {
    let mut bench = Bench::new();
    let created = bench
        .create(
            "configmaps",
            json!({"metadata": {"name": "a"}, "data": {"k": "v"}}),
        )
        .unwrap();
    let target = bench.target("configmaps", "a");
    let body = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a", "creationTimestamp": "2020-01-01T00:00:00Z"}, "data": {"k": "v"}});
    let outcome = bench.0.update(&target, body).unwrap();
    assert_eq!((outcome.answer, outcome.change), (created.answer, None));
}

#[test]
fn generation_counts_changes_of_the_spec_only() {
    let mut bench = Bench::new();
    bench
        .create(
            "deployments",
            json!({"metadata": {"name": "d"}, "spec": {"replicas": 1}}),
        )
        .unwrap();
    let mut generation = |part, patch| {
        let target = WriteTarget {
            part,
            ..bench.target("deployments", "d")
        };
        let outcome = bench.0.patch(&target, &Patch::Merge(patch)).unwrap();
        serde_json::from_slice::<Value>(&outcome.answer).unwrap()["metadata"]["generation"]
            .as_u64()
            .unwrap()
    };
    assert_eq!(
        generation(
            WritablePart::Whole,
            json!({"metadata": {"labels": {"a": "b"}}})
        ),
        1
    );
    assert_eq!(
        generation(
            WritablePart::Whole,
            json!({"spec": {"replicas": 2}, "metadata": {"generation": 9}})
        ),
        2
    );
    assert_eq!(
        generation(
            WritablePart::Status,
            json!({"status": {"replicas": 2}, "spec": {"replicas": 5}})
        ),
        2
    );
}

#[test]
fn the_status_is_written_through_its_subresource_only() {
    let mut bench = Bench::new();
    bench
        .create(
            "widgets",
            json!({"metadata": {"name": "s"}, "spec": {"v": 1}}),
        )
        .unwrap();
    let status = WriteTarget {
        part: WritablePart::Status,
        ..bench.target("widgets", "s")
    };
    let patch = json!({"spec": {"v": 7}, "metadata": {"labels": {"z": "1"}}, "status": {"a": 1}});
    let outcome = bench.0.patch(&status, &Patch::Merge(patch)).unwrap();
    let value: Value = serde_json::from_slice(&outcome.answer).unwrap();
    assert_eq!(
        (
            &value["spec"],
            &value["status"],
            &value["metadata"]["labels"]
        ),
        (&json!({"v": 1}), &json!({"a": 1}), &Value::Null)
    );
    let outcome = bench
        .patch("widgets", "s", json!({"status": {"a": 9}}))
        .unwrap();
    assert_eq!(outcome.change, None);
}

#[test]
fn an_object_without_finalizers_is_gone_at_once() {
    let mut bench = Bench::new();
    bench
        .create("widgets", json!({"metadata": {"name": "a"}}))
        .unwrap();
    let outcome = bench.delete("widgets", "a").unwrap();
    assert_eq!(
        text(&outcome.answer),
        format!(
            r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Success","details":{{"name":"a","group":"example.com","kind":"widgets","uid":"{UID}"}}}}"#
        )
    );
    let change = outcome.change.unwrap();
    assert_eq!(
        (change.event, change.version),
        (EventKind::Deleted, ResourceVersion(3))
    );
    assert!(
        text(&change.object).contains(r#""resourceVersion":"3""#),
        "{change:?}"
    );
    assert!(text(&change.previous.unwrap()).contains(r#""resourceVersion":"2""#));
    check_refused(
        bench.delete("widgets", "a"),
        404,
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"widgets.example.com \"a\" not found","reason":"NotFound","details":{"name":"a","group":"example.com","kind":"widgets"},"code":404}"#,
    );
}

#[test]
fn finalizers_hold_an_object_until_the_last_is_gone() {
    let mut bench = Bench::new();
    bench
        .create(
            "configmaps",
            json!({"metadata": {"name": "a", "finalizers": ["example.com/f"]}}),
        )
        .unwrap();
    let pending = bench.delete("configmaps", "a").unwrap();
    assert_eq!(
        text(&pending.answer),
        format!(
            r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"a","namespace":"default","uid":"{UID}","resourceVersion":"3","creationTimestamp":"2026-11-21T08:16:18Z","deletionTimestamp":"2026-11-21T08:16:18Z","deletionGracePeriodSeconds":0,"finalizers":["example.com/f"]}}}}"#
        )
    );
    assert_eq!(pending.change.unwrap().event, EventKind::Modified);
    assert_eq!(
        bench.delete("configmaps", "a").unwrap().change,
        None,
        "already pending"
    );

    let refusal = bench
        .patch(
            "configmaps",
            "a",
            json!({"metadata": {"finalizers": ["example.com/f", "example.com/g"]}}),
        )
        .unwrap_err();
    assert_eq!(
        refusal.message,
        r#"ConfigMap "a" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{"example.com/g"}"#
    );

    let last = bench
        .patch("configmaps", "a", json!({"metadata": {"finalizers": null}}))
        .unwrap();
    assert!(
        !text(&last.answer).contains("finalizers")
            && text(&last.answer).contains(r#""resourceVersion":"3""#)
    );
    let change = last.change.unwrap();
    assert_eq!(
        (change.event, change.version),
        (EventKind::Deleted, ResourceVersion(4))
    );
    assert!(
        text(&change.object).contains("example.com/f"),
        "the last stored state: {change:?}"
    );
}

#[test]
fn a_deletion_s_preconditions_are_checked() {
    let mut bench = Bench::new();
    bench
        .create("widgets", json!({"metadata": {"name": "a"}}))
        .unwrap();
    let target = bench.target("widgets", "a");
    let mut refused = |expected: Preconditions| {
        bench
            .0
            .delete(&target, &expected, STAMP)
            .unwrap_err()
            .message
    };
    assert_eq!(
        refused(Preconditions {
            uid: Some("bad".into()),
            ..Preconditions::default()
        }),
        format!(
            "Operation cannot be fulfilled on Widget.example.com \"a\": the UID in the precondition (bad) does not match the UID in record ({UID}). The object might have been deleted and then recreated"
        )
    );
    assert_eq!(
        refused(Preconditions {
            resource_version: Some("1".into()),
            ..Preconditions::default()
        }),
        "Operation cannot be fulfilled on Widget.example.com \"a\": the ResourceVersion in the precondition (1) does not match the ResourceVersion in record (2). The object might have been modified"
    );
}

#[test]
fn patches_may_not_change_names_and_uids() {
    let mut bench = Bench::new();
    bench
        .create("configmaps", json!({"metadata": {"name": "a"}}))
        .unwrap();
    for (metadata, code, message) in [
        (
            json!({"name": "z"}),
            400,
            "the name of the object (z) does not match the name on the URL (a)",
        ),
        (
            json!({"namespace": "z"}),
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            json!({"uid": "z"}),
            422,
            "ConfigMap \"a\" is invalid: metadata.uid: Invalid value: \"z\": field is immutable",
        ),
        (
            json!({"resourceVersion": "1", "labels": {"q": "1"}}),
            409,
            "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to the latest version and try again",
        ),
    ] {
        let refusal = bench
            .patch("configmaps", "a", json!({"metadata": metadata}))
            .unwrap_err();
        assert_eq!((refusal.code, refusal.message.as_str()), (code, message));
    }
}

#[test]
fn a_collection_is_deleted_by_choice_and_listed_as_it_was() {
    for (plural, expected) in [
        (
            "configmaps",
            r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"4"},"items":[{"metadata":{"name":"b","#,
        ),
        (
            "widgets",
            r#"{"apiVersion":"example.com/v1","items":[{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"#,
        ),
    ] {
        let mut bench = Bench::new();
        for name in ["a", "b", "c"] {
            bench.create(plural, json!({"metadata": {"name": name, "labels": {"not-a": if name == "a" { "0" } else { "1" }}}})).unwrap();
        }
        let target = bench.target(plural, "");
        let (answer, changes) = bench.0.delete_collection(
            &target,
            &|bytes| text(bytes).contains(r#""not-a":"1""#),
            STAMP,
        );
        let answer = answer.unwrap();
        assert!(text(&answer).starts_with(expected), "{answer:?}");
        assert!(
            serde_json::from_slice::<Value>(&answer).unwrap()["items"]
                .as_array()
                .unwrap()
                .len()
                == 2
        );
        let versions: Vec<_> = changes
            .iter()
            .map(|change| (change.key.name(), change.version.0))
            .collect();
        assert_eq!(versions, [("b", 5), ("c", 6)]);
        assert_eq!(bench.0.object_count(target.kind_index), 1);
    }
}

#[test]
fn a_dry_run_is_answered_and_forgotten() {
    let mut bench = Bench::new();
    let target = WriteTarget {
        mode: WriteMode::DryRun,
        ..bench.target("configmaps", "")
    };
    let outcome = bench
        .0
        .create(
            &target,
            json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "dry"}}),
            STAMP,
        )
        .unwrap();
    assert!(!text(&outcome.answer).contains("resourceVersion"));
    assert_eq!(
        (outcome.change, bench.0.object_count(target.kind_index)),
        (None, 0)
    );
}

#[test]
fn namespaces_are_listed_apart_and_in_key_order() {
    let mut storage = Bench::new().0;
    let kind_index = storage.catalogue().index_of_plural("pods").unwrap();
    for namespace in ["a", "a-b", "b"] {
        for name in ["y", "x"] {
            let target = WriteTarget {
                kind_index,
                key: ObjectKey::new(namespace, ""),
                part: WritablePart::Whole,
                mode: WriteMode::Keep,
            };
            storage
                .create(&target, json!({"metadata": {"name": name}}), STAMP)
                .unwrap();
        }
    }
    let keys = |namespace| {
        storage
            .objects(kind_index, namespace)
            .map(|(key, _)| key.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(keys("a"), ["a/x", "a/y"]);
    assert_eq!(keys(""), ["a-b/x", "a-b/y", "a/x", "a/y", "b/x", "b/y"]);
}
