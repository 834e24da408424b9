//! Protobuf from upstream never causes a panic: the spans of a frame that is read are in range, a canonical frame can be written again
//! from its parts, and writing another version into the object changes only the version.
#![no_main]

use kube_fanout::decode::{
    Frames, WatchLine, is_canonical_frame, scan_frame, scan_protobuf_list, scan_protobuf_object,
    scan_protobuf_status,
};
use kube_fanout::resource::protobuf::{at_version, frame_around, type_meta_of};
use kube_fanout::resource::wire::WireFields;
use kube_fanout::resource::{Encoding, FieldTable, Gvr, ObjectParts, ResourceVersion};
use libfuzzer_sys::fuzz_target;

const FRAME_LEN_MAX: usize = 1 << 16;

// The input is a frame without its length prefix, which random bytes would hardly match, or any of the other messages.
fuzz_target!(|input: &[u8]| {
    let pods = FieldTable::of(&Gvr::new("", "v1", "pods"));
    let _ = scan_protobuf_status(input);
    if let Ok(parts) = scan_protobuf_object(input, pods) {
        check_object(input, &parts, pods);
    }
    if let Ok(page) = scan_protobuf_list(input) {
        for item in &page.items {
            let _ = scan_protobuf_object(item.of(input), pods);
        }
    }
    let frame = framed(input);
    if let Ok(WatchLine::Event { object, parts, .. }) = scan_frame(&frame, pods) {
        let raw = object.of(&frame);
        check_object(raw, &parts, pods);
        if is_canonical_frame(&frame, object) {
            let types = type_meta_of(&frame).expect("a canonical frame has a type");
            let kind_len = usize::from(frame[5]);
            let kind = std::str::from_utf8(&frame[6..6 + kind_len]).expect("a known type");
            let (again, start) = frame_around(kind, types, raw);
            assert_eq!(again, frame);
            assert_eq!(start, object.start as usize);
        }
    }
});

/// Adds the length prefix, cuts the frame into single bytes, and returns the frame that the framer finds.
fn framed(input: &[u8]) -> Vec<u8> {
    let len = u32::try_from(input.len()).expect("inputs are small");
    let frame = [&len.to_be_bytes(), input].concat();
    let mut framer = Frames::new(Encoding::Protobuf, FRAME_LEN_MAX);
    let mut found = None;
    for piece in frame.chunks(1 + input.len() / 8) {
        assert!(found.is_none());
        framer.push(piece);
        let next = framer.next_frame().expect("a frame within the limit");
        found = next.map(<[u8]>::to_vec);
    }
    assert_eq!(found.as_deref(), Some(&frame[..]));
    assert!(!framer.is_mid_frame());
    frame
}

fn check_object(raw: &[u8], parts: &ObjectParts<'_>, pods: FieldTable) {
    let digits = std::str::from_utf8(parts.version_span.of(raw)).expect("digits");
    assert_eq!(digits.parse(), Ok(parts.resource_version));
    // Metadata in two parts is read, but the API server never writes it, and a new version is not spliced into both.
    let is_metadata = |field: &kube_fanout::resource::wire::WireField| field.number == 1;
    if WireFields::new(raw).flatten().filter(is_metadata).count() != 1 {
        return;
    }
    let version = ResourceVersion(u64::MAX);
    let (moved, span) = at_version(raw, version).expect("an object that was scanned");
    let found = scan_protobuf_object(&moved, pods).expect("an object");
    assert_eq!(found.resource_version, version);
    assert_eq!(found.version_span, span);
    assert_eq!(
        (found.name, found.uid),
        (parts.name.clone(), parts.uid.clone())
    );
    assert_eq!(found.labels, parts.labels);
    assert_eq!(found.fields, parts.fields);
}
