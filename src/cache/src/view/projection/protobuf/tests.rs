//! Projections compared with what an API server sends in the same form (tests/captured).

use proptest::prelude::*;

use super::*;
use crate::decode::{
    Frames, WatchLine, member, scan_frame, scan_line, scan_protobuf_list, scan_protobuf_object,
};
use crate::resource::{Encoding, EventKind, FieldTable};

fn captured(name: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/captured");
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
fn a_partial_object_equals_the_api_servers() {
    for kind in ["pods", "nodes"] {
        let whole = raws(&format!("{kind}.frames"));
        let reduced = whole
            .iter()
            .map(|(kind, raw)| (*kind, partial(raw).unwrap()));
        let expected = raws(&format!("{kind}.partial.frames"));
        assert_eq!(expected.len(), 5);
        assert_eq!(reduced.collect::<Vec<_>>(), expected, "{kind}");
    }
}

#[test]
fn only_managed_fields_are_left_out() {
    for (_, raw) in raws("pods.frames").into_iter().chain(raws("nodes.frames")) {
        let before = scan_protobuf_object(&raw, FieldTable::default()).unwrap();
        let reduced = without_managed_fields(&raw).unwrap();
        let after = scan_protobuf_object(&reduced, FieldTable::default()).unwrap();
        assert_eq!(after.labels, before.labels);
        let fields = |raw: &[u8]| {
            let metadata = WireFields::new(raw).next().unwrap().unwrap();
            let inner = WireFields::within(raw, metadata.bytes().unwrap());
            let outer = WireFields::new(raw).skip(1);
            let all = inner.chain(outer).map(Result::unwrap);
            all.map(|field| (field.number, field.span.of(raw).to_vec()))
                .collect::<Vec<_>>()
        };
        let (mut kept, left) = (fields(&raw), fields(&reduced));
        let count = kept.len();
        kept.retain(|(number, _)| *number != MANAGED_FIELDS);
        assert!(kept.len() < count);
        assert_eq!(left, kept);
        assert_eq!(without_managed_fields(&reduced).unwrap(), reduced);
    }
    assert!(without_managed_fields(&[8, 1]).is_err());
    assert!(without_managed_fields(&[0x0a, 1, 0x0a]).is_err());
}

#[test]
fn metadata_of_a_custom_resource_equals_the_api_servers() {
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
    // The list was captured before anything changed.
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
fn list_items_are_projected_like_events() {
    let (whole, reduced) = (captured("pods.list"), captured("pods.partial.list"));
    let parts: Vec<_> = items(&whole)
        .iter()
        .map(|item| partial(item).unwrap())
        .collect();
    assert_eq!(parts, items(&reduced));
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
    for refused in [&b"[]"[..], b"{}{}", b"{\"name\":1}}", b"{\"a\" 1}"] {
        assert!(metadata_of_json(refused).is_err(), "{refused:?}");
    }
}

#[test]
fn a_member_of_another_type_counts_as_absent_and_the_others_stay() {
    let of = |metadata: &str| metadata_of_json(metadata.as_bytes()).unwrap();
    let plain = of(r#"{"name":"n","uid":"u"}"#);
    for odd in [
        r#""generateName":1"#,
        r#""generation":"x""#,
        r#""generation":1.5"#,
        r#""deletionGracePeriodSeconds":[]"#,
        r#""creationTimestamp":"today""#,
        r#""creationTimestamp":1"#,
        r#""deletionTimestamp":{}"#,
        r#""labels":{"a":1}"#,
        r#""annotations":{"a":"b","c":{}}"#,
        r#""finalizers":["a",1]"#,
        r#""finalizers":"a""#,
        r#""ownerReferences":{"a":1}"#,
        r#""ownerReferences":[{"uid":"u"},1]"#,
        r#""managedFields":{}"#,
        r#""managedFields":[{"manager":"m"},{"manager":1}]"#,
        r#""managedFields":[{"manager":"m","time":"9999-12-31"}]"#,
        r#""more":[1,{"a":2}]"#,
    ] {
        let text = format!(r#"{{"name":"n",{odd},"uid":"u"}}"#);
        assert_eq!(of(&text), plain, "{text}");
    }
    // Of a member that occurs twice, the last one counts.
    assert_eq!(of(r#"{"name":"a","uid":"u","n\u0061me":"n"}"#), plain);
}

fn text_of(text: impl Into<Cow<'static, str>>) -> OptionalText<'static> {
    Some(Str(text.into()))
}

#[test]
fn times_reach_from_the_first_year_to_the_last_second_that_go_can_write() {
    for (text, second) in [
        ("0000-01-01T00:00:00Z", -62_167_219_200),
        ("0001-01-01T00:00:01Z", -62_135_596_799),
        ("1969-12-31T23:59:59.999999999Z", -1),
        ("1970-01-01T00:00:00Z", 0),
        ("2000-02-29T23:59:59+23:59", 951_782_459),
        ("2026-11-21T11:42:13.5-07:30", 1_795_288_333),
        ("9999-12-30T22:00:01Z", 253_402_207_201),
        ("0001-01-01T00:00:00.5Z", -62_135_596_800),
        ("2026-01-01T00:00:00+24:00", 1_767_139_200),
        ("9999-12-31T23:59:59.999999999Z", 253_402_300_799),
        ("9999-12-31T23:59:59-23:59", 253_402_387_139),
        ("0000-01-01T00:00:00+23:59", -62_167_305_540),
    ] {
        let mut expected = Vec::new();
        put_integer(&mut expected, 1, i64::cast_unsigned(second));
        put_integer(&mut expected, 2, 0);
        assert_eq!(time(&text_of(text)), Some(expected), "{text}");
    }
    for refused in [
        "",
        "today",
        "2026-11-21",
        "2026-11-21 11:42:13Z",
        "2026-11-21t11:42:13Z",
        "2026-11-21T11:42:13z",
        "2026-11-21T11:42:13",
        "2026-11-21T11:42:13.Z",
        "2026-11-21T11:42:60Z",
        "2026-11-21T11:60:13Z",
        "2026-11-21T24:00:00Z",
        "2026-02-29T00:00:00Z",
        "1900-02-29T00:00:00Z",
        "2026-04-31T00:00:00Z",
        "2026-06-31T00:00:00Z",
        "2026-09-31T00:00:00Z",
        "2026-11-31T00:00:00Z",
        "2026-01-32T00:00:00Z",
        "2026-13-01T00:00:00Z",
        "2026-00-01T00:00:00Z",
        "2026-01-00T00:00:00Z",
        "2026-01-01T00:00:00+25:00",
        "2026-01-01T00:00:00+0100",
        "2026-01-01T00:00:00+01:61",
        "2026-01-01T00:00:00+01:00:00",
        "10000-01-01T00:00:00Z",
        "-001-01-01T00:00:00Z",
        "2026-11-21T11:42:13Zx",
        "2026-11-21T11:42:13é",
    ] {
        assert_eq!(time(&text_of(refused)), None, "{refused}");
    }
}

#[test]
fn a_managed_fields_entry_at_the_end_of_time_costs_nothing_else() {
    let of = |time: &str| {
        let text = format!(
            r#"{{"managedFields":[{{"manager":"m","operation":"Apply","time":"{time}"}}],"name":"n"}}"#
        );
        metadata_of_json(text.as_bytes()).unwrap()
    };
    let (usual, last) = (of("9999-01-01T00:00:00Z"), of("9999-12-31T23:59:59Z"));
    assert_eq!(usual.len(), last.len());
    assert!(memchr::memmem::find(&last, b"Apply").is_some());
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
        let message = time(&text_of(text));
        let mut expected = Vec::new();
        put_integer(&mut expected, 1, second.cast_unsigned());
        put_integer(&mut expected, 2, 0);
        prop_assert_eq!(message, Some(expected));
    }

    #[test]
    fn no_text_makes_a_time_panic(text in "[0-9TZ:.+é-]{0,40}") {
        let _ = time(&text_of(text));
    }
}
