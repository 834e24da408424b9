//! Cuts beside what a real server sends for the same (tests/captured).

use proptest::prelude::*;

use super::*;
use crate::decode::{
    Frames, WatchLine, member, scan_frame, scan_line, scan_protobuf_list, scan_protobuf_object,
};
use crate::resource::{Encoding, EventKind, FieldTable};

fn captured(name: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/captured");
    std::fs::read(format!("{folder}/{name}")).unwrap()
}

/// The raw objects of a captured stream in protobuf, without bookmarks.
fn raws(name: &str) -> Vec<(EventKind, Vec<u8>)> {
    let mut framer = Frames::new(Encoding::Protobuf, 1 << 20);
    framer.push(&captured(name));
    let mut found = Vec::new();
    while let Some(frame) = framer.next_frame().unwrap() {
        let read = scan_frame(frame, FieldTable::default()).unwrap();
        if let WatchLine::Event { kind, object, .. } = read {
            found.push((kind, object.of(frame).to_vec()));
        }
    }
    found
}

#[test]
fn a_partial_object_is_the_servers_own() {
    for kind in ["pods", "nodes"] {
        let whole = raws(&format!("{kind}.frames"));
        let cut = whole
            .iter()
            .map(|(kind, raw)| (*kind, partial(raw).unwrap()));
        let expected = raws(&format!("{kind}.partial.frames"));
        assert_eq!(expected.len(), 5);
        assert_eq!(cut.collect::<Vec<_>>(), expected, "{kind}");
    }
}

#[test]
fn only_managed_fields_are_left_out() {
    for (_, raw) in raws("pods.frames").into_iter().chain(raws("nodes.frames")) {
        let before = scan_protobuf_object(&raw, FieldTable::default()).unwrap();
        let cut = without_managed_fields(&raw).unwrap();
        let after = scan_protobuf_object(&cut, FieldTable::default()).unwrap();
        assert_eq!(after.labels, before.labels);
        let fields = |raw: &[u8]| {
            let metadata = WireFields::new(raw).next().unwrap().unwrap();
            let inner = WireFields::within(raw, metadata.bytes().unwrap());
            let outer = WireFields::new(raw).skip(1);
            let all = inner.chain(outer).map(Result::unwrap);
            all.map(|field| (field.number, field.span.of(raw).to_vec()))
                .collect::<Vec<_>>()
        };
        let (mut kept, left) = (fields(&raw), fields(&cut));
        let count = kept.len();
        kept.retain(|(number, _)| *number != MANAGED_FIELDS);
        assert!(kept.len() < count);
        assert_eq!(left, kept);
        assert_eq!(without_managed_fields(&cut).unwrap(), cut);
    }
    assert!(without_managed_fields(&[8, 1]).is_err());
    assert!(without_managed_fields(&[0x0a, 1, 0x0a]).is_err());
}

#[test]
fn a_custom_resources_metadata_is_the_servers_own() {
    let lines = captured("widgets.lines");
    let mut written = Vec::new();
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\n").unwrap();
        let read = scan_line(line, FieldTable::default()).unwrap();
        let WatchLine::Event { kind, object, .. } = read else {
            continue;
        };
        let mut raw = Vec::new();
        let message = metadata_of_json(metadata(object.of(line))).unwrap();
        put_bytes(&mut raw, METADATA, &message);
        written.push((kind, raw));
    }
    let expected = raws("widgets.partial.frames");
    assert_eq!(expected.len(), 5);
    for (written, expected) in written.iter().zip(&expected) {
        assert_eq!(
            written.1.escape_ascii().to_string(),
            expected.1.escape_ascii().to_string()
        );
    }
    assert_eq!(written, expected);
    // The list was taken before anything changed.
    let initial: Vec<_> = written.into_iter().take(2).map(|(_, raw)| raw).collect();
    assert_eq!(initial, items(&captured("widgets.partial.list")));
}

fn items(list: &[u8]) -> Vec<Vec<u8>> {
    let page = scan_protobuf_list(list).unwrap();
    page.items.iter().map(|item| item.of(list).into()).collect()
}

fn metadata(object: &[u8]) -> &[u8] {
    member(object, "metadata").unwrap().unwrap().of(object)
}

#[test]
fn a_lists_items_are_cut_as_events_are() {
    let (whole, cut) = (captured("pods.list"), captured("pods.partial.list"));
    let parts: Vec<_> = items(&whole)
        .iter()
        .map(|item| partial(item).unwrap())
        .collect();
    assert_eq!(parts, items(&cut));
}

#[test]
fn what_is_null_or_absent_is_empty_and_what_is_no_metadata_is_refused() {
    let empty = b"\x0a\0\x12\0\x1a\0\x22\0\x2a\0\x32\0\x38\0\x42\0";
    assert_eq!(metadata_of_json(b"{}").unwrap(), empty);
    let nulls = br#"{"name":null,"labels":null,"creationTimestamp":null,"deletionTimestamp":null,
        "finalizers":null,"managedFields":null,"ownerReferences":null,"generation":null,"more":[]}"#;
    assert_eq!(metadata_of_json(nulls).unwrap(), empty);
    let zero = br#"{"creationTimestamp":"0001-01-01T00:00:00Z","deletionTimestamp":"0001-01-01T00:00:00Z"}"#;
    assert_eq!(metadata_of_json(zero).unwrap(), empty);
    for refused in [
        &b"[]"[..],
        b"{}{}",
        b"{\"name\":1}",
        b"{\"creationTimestamp\":\"today\"}",
        b"{\"labels\":{\"a\":1}}",
    ] {
        assert!(metadata_of_json(refused).is_err(), "{refused:?}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes: Vec<u8>) {
        let _ = partial(&bytes);
        let _ = without_managed_fields(&bytes);
        let _ = metadata_of_json(&bytes);
    }

    /// Times before 1970 are negative and take ten bytes.
    #[test]
    fn a_time_is_its_second(second in -62_135_596_799_i64..253_402_207_200) {
        let text = jiff::Timestamp::from_second(second).unwrap().to_string();
        let message = time(&Some(text.into())).unwrap();
        let mut expected = Vec::new();
        put_integer(&mut expected, 1, second.cast_unsigned());
        put_integer(&mut expected, 2, 0);
        prop_assert_eq!(message, expected);
    }
}
