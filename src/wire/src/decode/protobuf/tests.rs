//! Objects that a real server wrote in JSON and in protobuf (tests/captured) must read the same from both.

use proptest::prelude::*;

use super::*;
use crate::decode::ScanError;
use crate::decode::{Frames, WatchLine, scan_line};
use crate::resource::wire::put_bytes;
use crate::resource::{ByteSpan, Encoding, EventKind, FieldTable, Gvr, ObjectParts};

/// A file of tests/captured.
pub(super) fn captured(name: &str) -> Vec<u8> {
    std::fs::read(format!(
        "{}/../../tests/captured/{name}",
        env!("CARGO_MANIFEST_DIR")
    ))
    .unwrap()
}

/// The frames of a captured stream.
pub(super) fn frames(stream: &[u8]) -> Vec<Vec<u8>> {
    let mut framer = Frames::new(Encoding::Protobuf, 1 << 20);
    framer.push(stream);
    let mut frames = Vec::new();
    while let Some(frame) = framer.next_frame().unwrap() {
        frames.push(frame.to_vec());
    }
    assert!(!framer.is_mid_frame());
    frames
}

pub(super) fn pods() -> FieldTable {
    FieldTable::of(&Gvr::new("", "v1", "pods"))
}

type Seen<'a> = (Vec<(EventKind, ObjectParts<'a>)>, Vec<(u64, bool)>);

/// The events, without their spans, and the bookmarks. Repeated bookmarks count once, because their number depends on
/// timing.
fn seen(frames: &[Vec<u8>], read: impl Fn(&[u8]) -> WatchLine<'_>) -> Seen<'_> {
    let (mut events, mut bookmarks) = Seen::default();
    for frame in frames {
        match read(frame) {
            WatchLine::Event {
                kind,
                object,
                mut parts,
            } => {
                let digits = str::from_utf8(parts.version_span.of(object.of(frame))).unwrap();
                assert_eq!(digits, parts.resource_version.to_string());
                parts.version_span = ByteSpan::default();
                parts.type_prefix_len = 0;
                events.push((kind, parts));
            }
            WatchLine::Bookmark(bookmark) => {
                bookmarks.push((bookmark.resource_version.0, bookmark.initial_events_end))
            }
            WatchLine::Error(status) => panic!("{status:?}"),
        }
    }
    bookmarks.dedup();
    (events, bookmarks)
}

/// Checks one resource. Returns the values of the selectable fields of its two objects, `full` and `plain`.
fn agreement(group: &str, resource: &str) -> [Vec<String>; 2] {
    let fields = FieldTable::of(&Gvr::new(group, "v1", resource));
    let lines: Vec<_> = captured(&format!("{resource}.lines"))
        .split_inclusive(|byte| *byte == b'\n')
        .map(|line| line[..line.len() - 1].to_vec())
        .collect();
    let from_json = seen(&lines, |line| scan_line(line, fields).unwrap());
    let frames = frames(&captured(&format!("{resource}.frames")));
    let (events, bookmarks) = seen(&frames, |frame| scan_frame(frame, fields).unwrap());
    assert_eq!(format!("{events:#?}"), format!("{:#?}", from_json.0));
    assert_eq!(bookmarks, from_json.1);
    assert!(events.len() >= 5 && bookmarks.len() == 2, "{resource}");
    ["full", "plain"].map(|name| {
        let (_, parts) = events.iter().find(|(_, parts)| parts.name == name).unwrap();
        assert_eq!(parts.labels.len(), if name == "full" { 3 } else { 0 });
        parts.fields.iter().map(ToString::to_string).collect()
    })
}

#[test]
fn objects_are_equal_from_json_and_protobuf() {
    for (group, resource, full, plain) in [
        (
            "",
            "pods",
            &[
                "node-1",
                "OnFailure",
                "other-scheduler",
                "robot",
                "true",
                "Running",
                "10.0.0.7",
                "",
                "node-2",
            ][..],
            &["", "", "", "", "false", "", "", "", ""][..],
        ),
        ("", "nodes", &["true"], &["false"]),
        ("", "namespaces", &["Terminating"], &[""]),
        ("", "secrets", &["example.com/kind"], &[""]),
        ("", "services", &["10.96.0.10", "NodePort"], &["", ""]),
        ("batch", "jobs", &["3"], &["0"]),
        ("", "configmaps", &[], &[]),
    ] {
        assert_eq!(agreement(group, resource), [full, plain], "{resource}");
    }
}

/// Resource slices were not captured from a server. The numbers are those of the API's own definition.
#[test]
fn resource_slices_have_a_driver_and_a_node() {
    let mut spec = Vec::new();
    put_bytes(&mut spec, 1, b"gpu.example.com");
    put_bytes(&mut spec, 2, b"pool");
    put_bytes(&mut spec, 3, b"node-1");
    let mut raw = object(b"slice", b"7");
    put_bytes(&mut raw, 2, &spec);
    let fields = FieldTable::of(&Gvr::new("resource.k8s.io", "v1", "resourceslices"));
    let parts = scan_protobuf_object(&raw, fields).unwrap();
    assert_eq!(parts.fields, ["node-1", "gpu.example.com"]);
}

fn object(name: &[u8], version: &[u8]) -> Vec<u8> {
    let mut metadata = Vec::new();
    put_bytes(&mut metadata, 1, name);
    put_bytes(&mut metadata, 6, version);
    let mut raw = Vec::new();
    put_bytes(&mut raw, 1, &metadata);
    raw
}

#[test]
fn the_last_of_repeated_scalars_counts() {
    let raw = [object(b"a", b"1"), object(b"b", b"22")].concat();
    let parts = scan_protobuf_object(&raw, FieldTable::default()).unwrap();
    assert_eq!((&*parts.name, parts.resource_version.0), ("b", 22));
    assert_eq!(parts.version_span.of(&raw), b"22");
}

#[test]
fn objects_without_name_or_usable_version_are_refused() {
    let scan = |raw: &[u8]| scan_protobuf_object(raw, FieldTable::default()).unwrap_err();
    assert!(matches!(
        scan(b""),
        ScanError::Missing {
            what: "metadata.name",
            ..
        }
    ));
    assert!(matches!(
        scan(&object(b"a", b"")),
        ScanError::Version { .. }
    ));
    assert_eq!(scan(&object(b"a\xff", b"1")), ScanError::Utf8 { offset: 5 });
    // A name that is a number, and metadata that ends early.
    assert!(matches!(
        scan(&[0x0a, 2, 8, 7]),
        ScanError::Expected { offset: 2, .. }
    ));
    assert!(matches!(scan(&[0x0a, 3, 8]), ScanError::Wire(_)));
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes: Vec<u8>) {
        let _ = scan_protobuf_object(&bytes, pods());
        let _ = scan_frame(&bytes, pods());
        let _ = scan_protobuf_list(&bytes);
        let _ = scan_protobuf_status(&bytes);
    }

    /// Real frames with a changed byte get further into the decoder than random bytes.
    #[test]
    fn spans_are_in_range(at: proptest::sample::Index, value: u8, len: proptest::sample::Index) {
        for frame in frames(&captured("pods.frames")) {
            let mut changed = frame.clone();
            *at.get_mut(&mut changed[..]) = value;
            let _ = is_canonical_frame(&changed, ByteSpan::default());
            if let Ok(WatchLine::Event { object, parts, .. }) = scan_frame(&changed, pods()) {
                let digits = str::from_utf8(parts.version_span.of(object.of(&changed))).unwrap();
                prop_assert_eq!(digits.parse(), Ok(parts.resource_version));
            }
            prop_assert!(scan_frame(&frame[..len.index(frame.len())], pods()).is_err());
        }
    }
}
