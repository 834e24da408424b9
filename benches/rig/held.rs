//! A cache full of pods, filled and changed the way upstream's driver does it.

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

/// Next to no history, which is not what is looked at.
const RETENTION: Retention = Retention {
    segment_slots: 64,
    events_min: 64,
    events_max: 128,
    bytes_max: 1 << 20,
    age_min: Duration::ZERO,
};
/// Events that come together.
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

/// How long pods are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sizes {
    /// All as long as each other.
    Of(usize),
    /// From 1,000 bytes to 8,000, as many between 1,000 and 2,000 as between 4,000 and 8,000.
    Mixed,
}

impl Sizes {
    fn len(self, index: usize) -> usize {
        match self {
            Self::Of(len) => len,
            // Spread evenly, whatever stands beside each other.
            Self::Mixed => (1_000 + index * 619 % 1_000) << (index % 3),
        }
    }
}

impl Held {
    /// A list of `count` pods. Also tells the items' bytes.
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
        listed.expect("the first list is never older than nothing");
        (held, wire)
    }

    fn pod(&self, index: usize) -> Pod {
        Pod {
            index,
            len: self.sizes.len(index),
            version: self.version,
        }
    }

    /// As `upstream::driver` reads an item of a list.
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

    /// Every pod changes once, in an order that has nothing to do with the cache's.
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
