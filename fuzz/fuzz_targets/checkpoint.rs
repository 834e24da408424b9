//! Whatever records a checkpoint holds, with checksums that are right: the reader refuses it, or gives a state that a cache takes, whose
//! versions do not go backwards. The first byte chooses the encoding and whether the input is the whole file; each block of the input
//! begins with its length in two bytes.
#![no_main]

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use kube_fanout::cache::{CacheWriter, DispatchOutcome, Event, Observer, Retention};
use kube_fanout::checkpoint::{CheckpointReader, WriteClock};
use kube_fanout::resource::{Encoding, Gvr, Layout, ResourceKind, ResourceVersion};
use libfuzzer_sys::fuzz_target;

#[derive(Debug)]
struct NoObserver;

impl Observer for NoObserver {
    fn dispatch(
        &self,
        events: &[Arc<Event>],
        _: u64,
        _: ResourceVersion,
        _: Instant,
    ) -> DispatchOutcome {
        DispatchOutcome {
            events: events.len(),
            ..DispatchOutcome::default()
        }
    }
}

fn block(index: u64, records: &[u8], out: &mut Vec<u8>) {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&index.to_le_bytes());
    hasher.update(records);
    out.extend((records.len() as u32).to_le_bytes());
    out.extend(hasher.finalize().to_le_bytes());
    out.extend(records);
}

/// A file with a valid preamble and header, and these blocks.
fn file(mut blocks: &[u8], is_protobuf: bool) -> Vec<u8> {
    let mut out = b"kfstate\n\x01\0\0\0".to_vec();
    out.extend([0; 16]);
    out.extend(crc32fast::hash(&out).to_le_bytes());
    let header = format!(
        r#"{{"writtenBy":"","cluster":null,"group":"","version":"v1","resource":"pods","kind":"Pod","namespaced":true,"typed":true,"protobuf":{is_protobuf},"baseVersion":5,"forgotten":0,"gaps":[],"writtenAtMs":0,"bookmark":""}}"#
    );
    let mut record = vec![1];
    record.extend((header.len() as u32).to_le_bytes());
    record.extend(header.as_bytes());
    block(0, &record, &mut out);
    let mut index = 1;
    while let Some((len, rest)) = blocks.split_first_chunk::<2>() {
        let len = usize::from(u16::from_le_bytes(*len)).min(rest.len());
        let (records, rest) = rest.split_at(len);
        block(index, records, &mut out);
        (blocks, index) = (rest, index + 1);
    }
    out
}

fuzz_target!(|input: &[u8]| {
    let Some((choice, bytes)) = input.split_first() else {
        return;
    };
    let is_protobuf = choice & 1 != 0;
    let file = match choice & 2 {
        0 => file(bytes, is_protobuf),
        _ => bytes.to_vec(),
    };
    let clock = WriteClock::new(Instant::now(), SystemTime::now());
    let Ok(reader) = CheckpointReader::open(&*file, file.len() as u64, None) else {
        return;
    };
    let Ok(restored) = reader.restore(clock, &|| 0) else {
        return;
    };
    let state = restored.state;
    let mut newest = state.base_version;
    for event in &state.events {
        let version = event.change.object().resource_version();
        assert!(version >= newest);
        newest = version;
    }
    assert!(state.version >= newest);
    let (version, count) = (state.version, state.events.len() as u64);
    let kind = ResourceKind {
        gvr: Gvr::new("", "v1", "pods"),
        kind: "Pod".to_owned(),
        list_kind: "PodList".to_owned(),
        namespaced: true,
        layout: Layout::Typed,
        encoding: match is_protobuf {
            true => Encoding::Protobuf,
            false => Encoding::Json,
        },
        warnings: Vec::new(),
    };
    let retention = Retention {
        segment_slots: 4,
        events_min: 0,
        events_max: 16,
        bytes_max: 1 << 20,
        age_max: std::time::Duration::ZERO,
    };
    let mut writer = CacheWriter::new(kind, retention, Arc::new(NoObserver));
    writer.publish_restored(state);
    writer.dispatch(Instant::now());
    let snapshot = writer.cache().snapshot().unwrap();
    assert_eq!(snapshot.resource_version, version);
    assert!(snapshot.sequence <= count);
    let resumed = writer.cache().resume_after(version);
    assert!(resumed.is_ok() || !snapshot.gaps.is_empty());
});
