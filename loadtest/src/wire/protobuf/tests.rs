//! A real API server's data reads the same in both encodings, and truncated data is an error.

use kube_fanout::resource::Encoding;
use kube_fanout::resource::wire::{put_bytes, put_integer};

use super::*;
use crate::wire::frames::Frames;
use crate::wire::lines::Lines;

const FRAMES: &[u8] = include_bytes!("../../../../tests/captured/configmaps.frames");
const LINES: &[u8] = include_bytes!("../../../../tests/captured/configmaps.lines");
const EXPIRED: &[u8] = include_bytes!("../../../../tests/captured/expired.frames");
const LIST: &[u8] = include_bytes!("../../../../tests/captured/pods.list");

/// All events of a stream in pieces of this length.
fn events(stream: &[u8], piece_len: usize) -> Vec<Event> {
    let mut frames = Frames::new(Encoding::Protobuf, None);
    let mut events = Vec::new();
    for piece in stream.chunks(piece_len) {
        frames
            .feed(piece, |frame| events.push(event(frame).unwrap()))
            .unwrap();
    }
    assert!(frames.is_between());
    events
}

#[test]
fn a_real_stream_reads_the_same_in_both_encodings() {
    let mut in_json = Vec::new();
    Lines::default()
        .feed(LINES, |line| {
            in_json.push(Event::parse_fully(line).unwrap())
        })
        .unwrap();
    assert!(in_json.len() > 5, "{in_json:?}");
    for piece_len in [1, 3, 100, FRAMES.len()] {
        assert_eq!(events(FRAMES, piece_len), in_json, "{piece_len}");
    }
    let [expired] = events(EXPIRED, 7)[..] else {
        panic!("one event")
    };
    assert_eq!((expired.kind, expired.version), (EventKind::Error, 410));
}

#[test]
fn a_real_list_reads_as_its_objects() {
    let (version, items) = list(LIST).unwrap();
    assert!(version > 0 && !items.is_empty(), "{items:?}");
    assert!(
        items
            .iter()
            .all(|(name, of)| name.contains('/') && *of <= version)
    );
    // After the objects follow an empty encoding and an empty media type.
    for len in 0..LIST.len() - 4 {
        assert!(list(&LIST[..len]).is_err(), "cut at {len}");
    }
}

#[test]
fn a_cut_event_is_an_error() {
    let frame = frame("MODIFIED", 7, Some("5+2"));
    let whole = event(&frame).unwrap();
    let write = WriteTime {
        sent_ns: 5,
        late_ns: 2,
    };
    assert_eq!((whole.kind, whole.version), (EventKind::Modified, 7));
    assert_eq!(whole.write, Some(write));
    for len in 0..frame.len() {
        assert!(event(&frame[..len]).is_err(), "cut at {len}");
    }
}

/// An invented event of a ConfigMap.
pub(crate) fn frame(kind: &str, version: u64, written: Option<&str>) -> Vec<u8> {
    let mut metadata = Vec::new();
    put_bytes(&mut metadata, 1, b"cm-0");
    put_bytes(&mut metadata, 3, b"default");
    put_bytes(&mut metadata, 6, version.to_string().as_bytes());
    // A generation, whose tag is the digit 8.
    put_integer(&mut metadata, 7, 1);
    if let Some(written) = written {
        let mut entry = Vec::new();
        put_bytes(&mut entry, 1, WRITTEN_AT.as_bytes());
        put_bytes(&mut entry, 2, written.as_bytes());
        put_bytes(&mut metadata, 12, &entry);
    }
    let mut object = Vec::new();
    put_bytes(&mut object, 1, &metadata);
    let mut unknown = MAGIC.to_vec();
    put_bytes(&mut unknown, 1, b"");
    put_bytes(&mut unknown, 2, &object);
    let (mut extension, mut event) = (Vec::new(), Vec::new());
    put_bytes(&mut extension, 1, &unknown);
    put_bytes(&mut event, 1, kind.as_bytes());
    put_bytes(&mut event, 2, &extension);
    event
}
