//! Times in objects of both encodings, and what does not tell one.

use proptest::prelude::*;

use super::*;
use crate::resource::wire::{put_bytes, put_integer};

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// The times of one object.
#[derive(Clone, Default)]
struct Times {
    created: Option<&'static str>,
    managed: Vec<&'static str>,
    renewed: Option<&'static str>,
}

impl Times {
    fn json(&self) -> Vec<u8> {
        let managed = self.managed.iter();
        let managed: Vec<_> = managed
            .map(|time| serde_json::json!({"manager": "m", "time": time, "fieldsV1": {"f:time": {}}}))
            .collect();
        let object = serde_json::json!({
            "kind": "Lease",
            "metadata": {
                "name": "x",
                "annotations": {"creationTimestamp": "2040-01-01T00:00:00Z"},
                "creationTimestamp": self.created,
                "managedFields": managed,
            },
            "spec": {"holderIdentity": "h", "renewTime": self.renewed},
            "status": {"renewTime": "2040-01-01T00:00:00Z"},
        });
        object.to_string().into_bytes()
    }

    fn protobuf(&self) -> Vec<u8> {
        let put_time = |out: &mut Vec<u8>, number: u32, text: &str| {
            let time = time(text);
            let mut message = Vec::new();
            put_integer(&mut message, 1, time.as_second().cast_unsigned());
            put_integer(
                &mut message,
                2,
                time.subsec_nanosecond().cast_unsigned().into(),
            );
            put_bytes(out, number, &message);
        };
        let (mut metadata, mut spec) = (Vec::new(), Vec::new());
        put_bytes(&mut metadata, 1, b"x");
        if let Some(created) = self.created {
            put_time(&mut metadata, 8, created);
        }
        for managed in &self.managed {
            let mut entry = Vec::new();
            put_bytes(&mut entry, 1, b"m");
            put_time(&mut entry, 4, managed);
            put_bytes(&mut metadata, 17, &entry);
        }
        put_bytes(&mut spec, 1, b"h");
        if let Some(renewed) = self.renewed {
            put_time(&mut spec, 4, renewed);
        }
        let mut object = Vec::new();
        put_bytes(&mut object, 1, &metadata);
        put_bytes(&mut object, 2, &spec);
        object
    }
}

/// Checks both encodings.
#[track_caller]
fn check(
    source: WriteTimeSource,
    object: &Times,
    previous: Option<&Times>,
    expected: Option<&str>,
) {
    let expected = expected.map(time);
    let (before, now) = (previous.map(Times::json), object.json());
    assert_eq!(
        write_time(source, Encoding::Json, &now, before.as_deref()),
        expected
    );
    let (before, now) = (previous.map(Times::protobuf), object.protobuf());
    assert_eq!(
        write_time(source, Encoding::Protobuf, &now, before.as_deref()),
        expected
    );
}

#[test]
fn the_newest_time_of_the_metadata_counts() {
    let object = Times {
        created: Some("2026-01-01T00:00:00Z"),
        managed: vec![
            "2026-01-01T00:00:05Z",
            "2026-01-01T00:00:09Z",
            "2026-01-01T00:00:07Z",
        ],
        renewed: Some("2026-01-01T00:00:30.123456Z"),
    };
    check(
        WriteTimeSource::Metadata,
        &object,
        None,
        Some("2026-01-01T00:00:09Z"),
    );
    check(
        WriteTimeSource::Lease,
        &object,
        None,
        Some("2026-01-01T00:00:30.123456Z"),
    );
    let bare = Times {
        created: object.created,
        ..Times::default()
    };
    for source in [WriteTimeSource::Metadata, WriteTimeSource::Lease] {
        check(source, &bare, None, Some("2026-01-01T00:00:00Z"));
        check(source, &Times::default(), None, None);
    }
}

#[test]
fn a_holder_cannot_make_a_lease_look_older_than_the_api_server_says() {
    let object = Times {
        created: Some("2026-01-01T00:00:00Z"),
        managed: vec!["2026-01-02T00:01:30Z"],
        renewed: Some("2026-01-02T00:00:29Z"),
    };
    let source = WriteTimeSource::Lease;
    check(source, &object, None, Some("2026-01-02T00:01:30Z"));
    let slow_clock = Times {
        renewed: Some("2026-01-02T00:00:30Z"),
        ..object
    };
    check(source, &slow_clock, None, Some("2026-01-02T00:00:30Z"));
}

#[test]
fn an_update_without_a_new_timestamp_has_no_write_time() {
    let before = Times {
        created: Some("2026-01-01T00:00:00Z"),
        managed: vec!["2026-01-01T00:00:05Z"],
        renewed: None,
    };
    let after = Times {
        managed: vec!["2026-01-01T00:00:05Z", "2026-01-01T00:00:06Z"],
        ..before.clone()
    };
    let source = WriteTimeSource::Metadata;
    check(source, &before, Some(&before), None);
    check(source, &after, Some(&before), Some("2026-01-01T00:00:06Z"));
    // Whoever drops managed fields makes the newest time an older one.
    check(source, &before, Some(&after), None);
}

#[test]
fn only_leases_have_a_time_of_renewal() {
    let source = |group, resource| WriteTimeSource::of(group, resource);
    assert_eq!(
        source("coordination.k8s.io", "leases"),
        WriteTimeSource::Lease
    );
    assert_eq!(source("example.com", "leases"), WriteTimeSource::Metadata);
    assert_eq!(source("", "pods"), WriteTimeSource::Metadata);
}

#[test]
fn timestamps_of_other_json_types_are_ignored() {
    for object in [
        r#"{"metadata":{"creationTimestamp":7,"managedFields":{"time":"2026-01-01T00:00:00Z"}}}"#,
        r#"{"metadata":{"creationTimestamp":null,"managedFields":[{"time":["2026-01-01T00:00:00Z"]}]}}"#,
        r#"{"metadata":{"creationTimestamp":"yesterday"},"spec":[]}"#,
        r#"{"metadata":[],"spec":{"renewTime":{}}}"#,
        r#"{"spec":{"renewTime":"9999999-01-01T00:00:00Z"}}"#,
        "",
        "{",
    ] {
        let found = write_time(
            WriteTimeSource::Lease,
            Encoding::Json,
            object.as_bytes(),
            None,
        );
        assert_eq!(found, None, "{object}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes: Vec<u8>, before: Vec<u8>) {
        for encoding in [Encoding::Json, Encoding::Protobuf] {
            let _ = write_time(WriteTimeSource::Lease, encoding, &bytes, Some(&before));
        }
    }
}
