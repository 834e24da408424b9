//! Envelopes: what the server writes is canonical, and other layouts can still be read.

use super::super::tests::{captured, frames, pods};
use super::*;
use crate::resource::wire::{MAGIC, put_bytes, put_head};

fn framed(event: &[u8]) -> Vec<u8> {
    [&u32::try_from(event.len()).unwrap().to_be_bytes(), event].concat()
}

fn message(fields: &[(u32, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (number, value) in fields {
        put_bytes(&mut out, *number, value);
    }
    out
}

/// The type and the object of a pod's frame, so that a test can change each of them.
fn pieces() -> (Vec<u8>, Vec<u8>) {
    let frame = frames(&captured("pods.frames")).swap_remove(0);
    let object = scan_protobuf_event(&frame).unwrap().object;
    (
        message(&[(1, b"v1"), (2, b"Pod")]),
        object.of(&frame).into(),
    )
}

fn wrapped(kind: &[u8], unknown: &[u8]) -> Vec<u8> {
    let object = message(&[(1, &[MAGIC, unknown].concat())]);
    framed(&message(&[(1, kind), (2, &object)]))
}

#[test]
fn frames_of_the_api_server_are_canonical() {
    let mut count = 0;
    for name in [
        "pods.frames",
        "nodes.frames",
        "jobs.frames",
        "pods.partial.frames",
        "expired.frames",
    ] {
        for frame in frames(&captured(name)) {
            let object = scan_protobuf_event(&frame).unwrap().object;
            assert!(is_canonical_frame(&frame, object), "{name}");
            let shifted = ByteSpan {
                start: object.start + 1,
                ..object
            };
            assert!(!is_canonical_frame(&frame, shifted), "{name}");
            for len in 0..frame.len() {
                assert!(!is_canonical_frame(&frame[..len], object), "{name} {len}");
            }
            count += 1;
        }
    }
    assert!(count > 20);
}

#[test]
fn a_canonical_frame_is_rebuilt_byte_for_byte_from_its_parts() {
    let (types, raw) = pieces();
    let unknown = message(&[(1, &types), (2, &raw), (3, b""), (4, b"")]);
    let frame = wrapped(b"ADDED", &unknown);
    assert_eq!(frame, frames(&captured("pods.frames"))[0]);
}

#[test]
fn other_layouts_are_read_and_are_not_canonical() {
    let (types, raw) = pieces();
    let unknown = message(&[(1, &types), (2, &raw), (3, b""), (4, b"")]);
    let object = message(&[(1, &[MAGIC, &unknown].concat())]);
    let long_length = {
        let mut out = vec![0x0a, 0x85, 0x00];
        out.extend_from_slice(b"ADDED");
        put_head(&mut out, 2, object.len());
        [out, object.clone()].concat()
    };
    for frame in [
        wrapped(b"ADDED", &message(&[(2, &raw), (1, &types)])),
        wrapped(b"ADDED", &message(&[(1, &types), (2, &raw)])),
        wrapped(b"ADDED", &message(&[(2, &raw), (3, b""), (4, b"")])),
        wrapped(b"ADDED", &[&unknown[..], &message(&[(9, b"x")])].concat()),
        framed(&message(&[(2, &object), (1, b"ADDED")])),
        framed(&message(&[(1, b"ADDED"), (2, &object), (3, b"")])),
        framed(&long_length),
    ] {
        let read = scan_frame(&frame, pods()).unwrap();
        let WatchLine::Event { object, parts, .. } = read else {
            panic!("{read:?}");
        };
        assert_eq!(object.of(&frame), raw);
        assert_eq!(parts.name, "full");
        assert!(!is_canonical_frame(&frame, object));
    }
}

#[test]
fn input_that_is_not_an_event_is_refused() {
    let (types, raw) = pieces();
    let unknown = message(&[(1, &types), (2, &raw)]);
    let good = wrapped(b"ADDED", &unknown);
    let cases: [(&str, Vec<u8>); 9] = [
        ("an empty frame", framed(b"")),
        ("a longer length", [&good[..], b"x"].concat()),
        ("a shorter length", good[..good.len() - 1].to_vec()),
        ("an unknown type", wrapped(b"ADDEDX", &unknown)),
        ("no object", framed(&message(&[(1, b"ADDED")]))),
        (
            "no magic",
            framed(&message(&[(1, b"ADDED"), (2, &message(&[(1, &raw)]))])),
        ),
        (
            "JSON",
            wrapped(b"ADDED", &message(&[(2, &raw), (4, b"application/json")])),
        ),
        (
            "gzip",
            wrapped(b"ADDED", &message(&[(2, &raw), (3, b"gzip")])),
        ),
        ("no raw", wrapped(b"ADDED", &message(&[(1, &types)]))),
    ];
    for (name, frame) in cases {
        assert!(scan_frame(&frame, pods()).is_err(), "{name}");
    }
}

#[test]
fn an_error_ends_the_stream_with_its_status() {
    let frames = frames(&captured("expired.frames"));
    let WatchLine::Error(status) = scan_frame(&frames[0], pods()).unwrap() else {
        panic!("no error");
    };
    assert!(status.is_expired());
    assert_eq!(status.message, "too old resource version: 5 (63)");
}
