//! A cache of pods, filled and changed as upstream's driver does.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kube_fanout::cache::{ApplyOutcome, CacheWriter, Change, Retention};
use kube_fanout::decode::{
    WatchLine, object_in, scan_object, scan_protobuf_object, scan_watch, watch_form,
};
use kube_fanout::resource::protobuf::{frame_around, type_meta};
use kube_fanout::resource::{
    Encoding, EventKind, FieldTable, Layout, Object, ResourceKind, ResourceVersion,
};
use kube_fanout::view::Hub;

use super::gateway;
use super::pods::Pod;

/// Almost no history, because the history is not measured.
const RETENTION: Retention = Retention {
    segment_slots: 64,
    events_min: 64,
    events_max: 128,
    bytes_max: 1 << 20,
    age_max: Duration::ZERO,
};
/// Events per batch.
const BATCH: usize = 100;

/// Pods in a cache.
#[derive(Debug)]
pub(crate) struct Held {
    writer: CacheWriter,
    encoding: Encoding,
    fields: FieldTable,
    sizes: Sizes,
    count: usize,
    version: u64,
}

/// The lengths of the pods.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sizes {
    /// All pods have this length.
    Of(usize),
    /// From 1,000 to 8,000 bytes; as many pods between 1,000 and 2,000 as between 4,000 and 8,000.
    Mixed,
}

impl Sizes {
    fn len(self, index: usize) -> usize {
        match self {
            Self::Of(len) => len,
            // Spread evenly, independent of the order.
            Self::Mixed => (1_000 + index * 619 % 1_000) << (index % 3),
        }
    }
}

impl Held {
    /// Fills a cache from a list of `count` pods. Also returns the total length of the items.
    pub(crate) fn list(encoding: Encoding, sizes: Sizes, count: usize) -> (Self, usize) {
        let kind = ResourceKind {
            encoding,
            ..gateway::kind("pods", "Pod")
        };
        let fields = FieldTable::of(&kind.gvr);
        let hub = Arc::new(Hub::new(&kind));
        let mut held = Self {
            writer: CacheWriter::new(kind, RETENTION, hub),
            encoding,
            fields,
            sizes,
            count,
            version: gateway::FIRST_VERSION,
        };
        let mut wire = 0;
        let mut objects = Vec::with_capacity(count);
        for index in 0..count {
            let (object, len) = held.item(held.pod(index));
            objects.push(object);
            wire += len;
        }
        let listed = held
            .writer
            .replace(objects, ResourceVersion(held.version), Instant::now());
        listed.expect("the first list cannot be older than the cache");
        (held, wire)
    }

    fn pod(&self, index: usize) -> Pod {
        Pod {
            index,
            len: self.sizes.len(index),
            version: self.version,
        }
    }

    /// Reads a list item as `upstream::driver` does.
    fn item(&self, pod: Pod) -> (Object, usize) {
        if self.encoding == Encoding::Protobuf {
            let item = pod.protobuf();
            let parts = scan_protobuf_object(&item, self.fields).expect("a pod");
            return (
                Object::in_protobuf(parts, &type_meta("v1", "Pod"), &item),
                item.len(),
            );
        }
        let item = pod.json();
        let bytes = watch_form(item.as_bytes(), "Pod", "v1", Layout::Typed);
        let parts = scan_object(&bytes, self.fields).expect("a pod");
        (Object::new(parts, &bytes), item.len())
    }

    fn frame(&self, pod: Pod) -> Vec<u8> {
        let word = EventKind::Modified;
        if self.encoding == Encoding::Protobuf {
            return frame_around(word.as_str(), &type_meta("v1", "Pod"), &pod.protobuf()).0;
        }
        let object = watch_form(pod.json().as_bytes(), "Pod", "v1", Layout::Typed);
        [word.line_head().as_bytes(), &object, b"}\n"].concat()
    }

    /// Changes every pod once, in an order that is unrelated to the cache's.
    pub(crate) fn update_all(&mut self) -> ApplyOutcome {
        let mut applied = ApplyOutcome::default();
        for start in (0..self.count).step_by(BATCH) {
            let batch: Vec<_> = (start..self.count.min(start + BATCH))
                .map(|at| self.change(at * 7_919 % self.count))
                .collect();
            applied = self.writer.apply(batch, Instant::now());
        }
        applied
    }

    /// Bytes that the cache counts itself: what the gateway's metrics show of it.
    pub(crate) fn counted(&self) -> usize {
        let chunks = self.writer.cache().objects_memory();
        let (_, history) = self.writer.history_size();
        chunks.objects + chunks.indexes + history
    }

    fn change(&mut self, index: usize) -> Change {
        self.version += 1;
        let frame = self.frame(self.pod(index));
        let Ok(WatchLine::Event { object, parts, .. }) =
            scan_watch(self.encoding, &frame, self.fields)
        else {
            panic!("a bench's own frame is an event");
        };
        let object = object_in(self.encoding, &frame, object, parts);
        Change::Put(object.expect("a canonical frame"))
    }
}
