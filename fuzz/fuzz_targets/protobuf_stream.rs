//! Protobuf frames of a watch: any split into chunks gives the same frames, and each frame is read as a simple reader reads its messages.
//! The first four bytes are the lengths of the chunks, repeated; the rest is the stream.
#![no_main]

mod message;

use kube_fanout::decode::{
    Frames, WatchLine, is_canonical_frame, scan_frame, scan_protobuf_object, scan_protobuf_status,
};
use kube_fanout::resource::protobuf::{at_version, frame_around, type_meta_of};
use kube_fanout::resource::{Encoding, FieldTable, Gvr, ObjectParts, ResourceVersion};
use libfuzzer_sys::fuzz_target;
use message::{all, text};

const FRAME_LEN_MAX: usize = 2_048;
const LENGTH_LEN: usize = 4;

fuzz_target!(|input: &[u8]| {
    let Some((cuts, bytes)) = input.split_first_chunk::<4>() else {
        return;
    };
    let mut framer = Frames::new(Encoding::Protobuf, FRAME_LEN_MAX);
    let mut frames = Vec::new();
    let mut left = bytes;
    let mut cuts = cuts.iter().cycle();
    let mut is_refused = false;
    while !left.is_empty() && !is_refused {
        let len = cuts.next().map_or(1, |len| usize::from(*len));
        let (chunk, tail) = left.split_at(len.clamp(1, left.len()));
        framer.push(chunk);
        left = tail;
        loop {
            match framer.next_frame() {
                Ok(Some(frame)) => frames.push(frame.to_vec()),
                Ok(None) => break,
                Err(_) => {
                    assert!(framer.next_frame().is_err(), "the error stays");
                    is_refused = true;
                    break;
                }
            }
        }
        assert!(framer.capacity() <= 2 * (FRAME_LEN_MAX + LENGTH_LEN + 255) + 64);
    }
    let (expected, too_long) = plainly(bytes);
    assert_eq!(frames, expected);
    assert_eq!(is_refused, too_long);
    for frame in &frames {
        check(frame);
    }
    // Bytes that are not a frame may still be a message.
    let _ = scan_protobuf_status(bytes);
    check_object(bytes);
});

/// The frames, and whether a frame that is too long ends them, as a simple reader finds them.
fn plainly(mut bytes: &[u8]) -> (Vec<Vec<u8>>, bool) {
    let mut frames = Vec::new();
    while let Some(length) = bytes.first_chunk::<LENGTH_LEN>() {
        let len = u32::from_be_bytes(*length) as usize;
        if len > FRAME_LEN_MAX {
            return (frames, true);
        }
        let Some((frame, rest)) = bytes.split_at_checked(LENGTH_LEN + len) else {
            break;
        };
        frames.push(frame.to_vec());
        bytes = rest;
    }
    (frames, false)
}

fn pods() -> FieldTable {
    FieldTable::of(&Gvr::new("", "v1", "pods"))
}

fn check(frame: &[u8]) {
    let Ok(line) = scan_frame(frame, pods()) else {
        return;
    };
    let WatchLine::Event { kind, object, .. } = line else {
        return;
    };
    let raw = object.of(frame);
    check_object(raw);
    if is_canonical_frame(frame, object) {
        let types = type_meta_of(frame).expect("a canonical frame has a type");
        let (again, start) = frame_around(kind.as_str(), types, raw);
        assert_eq!(again, frame);
        assert_eq!(start, object.start as usize);
    }
}

fn check_object(raw: &[u8]) {
    let Ok(parts) = scan_protobuf_object(raw, pods()) else {
        return;
    };
    let digits = std::str::from_utf8(parts.version_span.of(raw)).expect("digits");
    assert_eq!(digits.parse(), Ok(parts.resource_version));
    let metadata = all(raw, 1).expect("what is scanned is a message");
    let [metadata] = metadata[..] else {
        return;
    };
    let last = |number| {
        text(metadata, number)
            .expect("text")
            .pop()
            .unwrap_or_default()
    };
    assert_eq!(parts.name, last(1));
    assert_eq!(parts.namespace, last(3));
    assert_eq!(parts.uid, last(5));
    assert_eq!(digits, last(6));
    let labels = all(metadata, 11).expect("labels");
    assert_eq!(parts.labels.len(), labels.len());
    for ((key, value), label) in parts.labels.iter().zip(labels) {
        let last = |number| text(label, number).expect("text").pop().unwrap_or_default();
        assert_eq!((&**key, &**value), (last(1), last(2)));
    }
    if all(metadata, 6).expect("versions").len() == 1 {
        check_versions(raw, &parts);
    }
}

/// Writing another version into an object changes only its version.
fn check_versions(raw: &[u8], parts: &ObjectParts<'_>) {
    for version in [1, u64::MAX] {
        let version = ResourceVersion(version);
        let (again, span) = at_version(raw, version).expect("an object with a version");
        let found = scan_protobuf_object(&again, pods()).expect("an object still");
        assert_eq!(found.resource_version, version);
        assert_eq!(found.version_span, span);
        assert_eq!(
            (
                &found.name,
                &found.namespace,
                &found.uid,
                &found.labels,
                &found.fields
            ),
            (
                &parts.name,
                &parts.namespace,
                &parts.uid,
                &parts.labels,
                &parts.fields
            )
        );
        // Writing the original version restores the object, except for lengths that were encoded with more bytes than necessary.
        let (back, _) = at_version(&again, parts.resource_version).expect("an object still");
        let (plain, _) = at_version(raw, parts.resource_version).expect("an object still");
        assert_eq!(back, plain);
    }
}
