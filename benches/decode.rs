//! Time of each stage of decoding per event or list item, and its ratio to a limit measured in the same run.
//!
//! A plain program: `cargo bench --bench decode [-- --quick]`. The limits are: a copy of the same bytes; a memchr search for every quote
//! and backslash, which is the minimum for a JSON reader that is based on memchr; serde_json reading the same fields. Wall times vary
//! with the machine's load: compare lines of one run only.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::expect_used,
    reason = "a bench is a driver: it reads the clock, prints, and ends at the first surprise"
)]

#[path = "rig/record.rs"]
mod record;
#[allow(dead_code, reason = "the benches use different parts of it")]
#[path = "rig/rounds.rs"]
mod rounds;
#[allow(dead_code, reason = "the benches use different parts of it")]
#[path = "rig/typical.rs"]
mod typical;

use std::cell::{Cell, RefCell};
use std::hint::black_box;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kube_fanout::decode::{
    Frames, ItemFraming, ListPage, object_in, scan_envelope, scan_list, scan_object,
    scan_protobuf_list, scan_protobuf_object, scan_watch,
};
use kube_fanout::resource::protobuf::{answer_end, answer_head, frame_around, type_meta};
use kube_fanout::resource::wire::put_bytes;
use kube_fanout::resource::{
    Encoding, EventKind, Gvr, Layout, Object, ResourceKind, ResourceVersion,
};
use kube_fanout::view::{ManagedFields, MetaVersion, ObjectFormat, ObjectPart, Projection};

use record::{Claim, Record};
use rounds::Effort;
use typical::Size;

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Bytes that arrive together from a busy upstream.
const CHUNK_LEN: usize = 16 << 10;

fn main() -> std::io::Result<()> {
    let effort = Effort::of_arguments();
    let table = Table {
        count: effort.pick(500, 20),
        rounds: effort.pick(20, 2),
        record: &RefCell::new(Record::new("decode", ABOUT, effort)),
        encoding: &Cell::new("JSON"),
    };
    table.json();
    table.encoding.set("protobuf");
    table.protobuf();
    let mut record = table.record.borrow_mut();
    let of = "JSON, the same, and keep the object / ours";
    for (what, to) in [
        ("one JSON event read and kept", None),
        (
            "the same against serde_json reading the same fields",
            Some("JSON, serde_json, same fields / ours"),
        ),
    ] {
        record.claim(Claim {
            what,
            figure: EACH,
            of,
            to,
            at_most: None,
        });
    }
    record.write()
}

const ABOUT: &str = "Each stage of decoding, for one event or item of 4 KB, beside what other readers take for the same bytes: three times the shortest of twenty rounds.";
const EACH: &str = "time of each, µs";
/// How many times the minimum over the rounds is determined.
const REPEATS: usize = 3;

/// The number of items and of rounds that are measured.
#[derive(Clone, Copy, Debug)]
struct Table<'a> {
    /// Few enough to stay in the processor's cache, like bytes that have just arrived.
    count: usize,
    rounds: u32,
    record: &'a RefCell<Record>,
    encoding: &'a Cell<&'static str>,
}

/// The reference that a stage is compared with.
#[derive(Clone, Copy, Debug)]
struct Limit {
    name: &'static str,
    micros: f64,
}

impl Table<'_> {
    fn limit(self, name: &'static str, each: &mut dyn FnMut() -> usize) -> Limit {
        let micros = self.micros(name, each);
        println!("  {name:38} {micros:>8.3} µs");
        Limit { name, micros }
    }

    fn stage(self, name: &str, limit: Limit, each: &mut dyn FnMut() -> usize) {
        let micros = self.micros(name, each);
        let ratio = micros / limit.micros;
        println!("  {name:38} {micros:>8.3} µs {ratio:>8.2} × {}", limit.name);
    }

    /// The minimum of several rounds: disturbances only add time.
    #[expect(clippy::cast_precision_loss, reason = "some hundred")]
    fn micros(self, name: &str, each: &mut dyn FnMut() -> usize) -> f64 {
        let mut round = |_| {
            let start = Instant::now();
            black_box(each());
            start.elapsed()
        };
        let best = [(); REPEATS].map(|()| {
            let best = (0..self.rounds).map(&mut round).min();
            best.unwrap_or(Duration::ZERO).as_secs_f64() * 1e6 / self.count as f64
        });
        let place = format!("{}, {name} / ours", self.encoding.get());
        self.record.borrow_mut().rounds(&place, EACH, &best);
        best.into_iter().fold(f64::INFINITY, f64::min)
    }

    fn json(self) {
        let objects: Vec<String> = (0..self.count)
            .map(|index| typical::object(index, Size::LARGE))
            .collect();
        let line = |object: &String| format!("{{\"type\":\"MODIFIED\",\"object\":{object}}}\n");
        let frames: Vec<Bytes> = objects.iter().map(|object| line(object).into()).collect();
        println!("JSON, {} bytes per event", frames[0].len());
        let copy = self.copy(&frames);
        let quotes = self.limit("memchr2 of quotes and backslashes", &mut || {
            let count = |frame: &Bytes| memchr::memchr2_iter(b'"', b'\\', frame).count();
            frames.iter().map(count).sum()
        });
        let serde = self.limit("serde_json, same fields", &mut || {
            let is_read = |frame: &&Bytes| serde_json::from_slice::<Event<'_>>(frame).is_ok();
            frames.iter().filter(is_read).count()
        });
        self.stage("serde_json, whole typed pod", serde, &mut || {
            let is_read = |object: &&String| {
                serde_json::from_str::<k8s_openapi::api::core::v1::Pod>(object).is_ok()
            };
            objects.iter().filter(is_read).count()
        });
        self.watch(Encoding::Json, &frames, copy, serde);
        self.stage("scan the object alone", serde, &mut || {
            let is_read =
                |object: &&String| scan_object(object.as_bytes(), typical::fields()).is_ok();
            objects.iter().filter(is_read).count()
        });
        let items = (0..self.count).map(|index| typical::item(index, Size::LARGE));
        let body = format!(
            r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"1"}},"items":[{}]}}"#,
            items.collect::<Vec<_>>().join(",")
        );
        self.stage("list page: where the items stand", quotes, &mut || {
            scan_list(body.as_bytes()).map_or(0, |page| page.items.len())
        });
        let page = scan_list(body.as_bytes()).expect("a list");
        self.items(Encoding::Json, body.as_bytes(), &page, serde);
        self.encode(Encoding::Json, &frames, copy);
    }

    fn protobuf(self) {
        let messages: Vec<Vec<u8>> = (0..self.count).map(typical::message).collect();
        let frame = |raw: &Vec<u8>| frame_around("MODIFIED", &typical::pod_type(), raw).0;
        let frames: Vec<Bytes> = messages.iter().map(|raw| frame(raw).into()).collect();
        let len: usize = frames.iter().map(Bytes::len).sum();
        println!("protobuf, {} bytes per event", len / self.count);
        let copy = self.copy(&frames);
        self.watch(Encoding::Protobuf, &frames, copy, copy);
        self.stage("scan the object alone", copy, &mut || {
            let is_read = |raw: &&Vec<u8>| scan_protobuf_object(raw, typical::fields()).is_ok();
            messages.iter().filter(is_read).count()
        });
        let (mut list, mut metadata) = (Vec::new(), Vec::new());
        put_bytes(&mut metadata, 2, b"1");
        put_bytes(&mut list, 1, &metadata);
        messages.iter().for_each(|raw| put_bytes(&mut list, 2, raw));
        let head = answer_head(&type_meta("v1", "PodList"), list.len());
        let body = [&*head, &list, answer_end()].concat();
        self.stage("list page: where the items stand", copy, &mut || {
            scan_protobuf_list(&body).map_or(0, |page| page.items.len())
        });
        let page = scan_protobuf_list(&body).expect("a list");
        self.items(Encoding::Protobuf, &body, &page, copy);
        self.encode(Encoding::Protobuf, &frames, copy);
    }

    fn copy(self, frames: &[Bytes]) -> Limit {
        self.limit("copy", &mut || {
            let copied = |frame: &Bytes| black_box(frame.to_vec()).len();
            frames.iter().map(copied).sum()
        })
    }

    /// From a stream's bytes to decoded events.
    fn watch(self, encoding: Encoding, frames: &[Bytes], copy: Limit, scan: Limit) {
        let stream = frames.concat();
        self.stage("frame: cut a stream", copy, &mut || {
            let mut cut = Frames::new(encoding, 4 << 20);
            let mut len = 0;
            for chunk in stream.chunks(CHUNK_LEN) {
                cut.push(chunk);
                while let Ok(Some(frame)) = cut.next_frame() {
                    len += black_box(frame).len();
                }
            }
            len
        });
        self.stage("scan the envelope", scan, &mut || {
            let is_read = |frame: &&Bytes| scan_envelope(encoding, frame).is_ok();
            frames.iter().filter(is_read).count()
        });
        self.stage("scan the event and its object", scan, &mut || {
            let is_read = |frame: &&Bytes| scan_watch(encoding, frame, typical::fields()).is_ok();
            frames.iter().filter(is_read).count()
        });
        self.stage("the same, and keep the object", scan, &mut || {
            frames
                .iter()
                .map(|frame| black_box(object(encoding, frame)).frame_len())
                .sum()
        });
    }

    fn items(self, encoding: Encoding, body: &[u8], page: &ListPage, limit: Limit) {
        let form = ItemFraming::new(page, encoding);
        self.stage("list page: an item to an object", limit, &mut || {
            let object = |item: &[u8]| form.object(item, typical::fields());
            page.items
                .iter()
                .filter(|span| black_box(object(span.of(body))).is_ok())
                .count()
        });
    }

    /// From objects to frames with other contents: another type, another version, metadata only.
    fn encode(self, encoding: Encoding, frames: &[Bytes], copy: Limit) {
        let objects: Vec<Object> = frames.iter().map(|frame| object(encoding, frame)).collect();
        self.stage("encode: another type of event", copy, &mut || {
            objects
                .iter()
                .map(|object| black_box(object.frame(EventKind::Added)).len())
                .sum()
        });
        self.stage("encode: deleted, another version", copy, &mut || {
            let deleted = |object: &Object| object.deleted_frame(ResourceVersion(u64::MAX));
            objects
                .iter()
                .map(|object| black_box(deleted(object)).len())
                .sum()
        });
        let metadata = ObjectPart::Metadata(MetaVersion::V1);
        let without = ManagedFields::Dropped;
        for (name, form, managed_fields) in [
            ("encode: cut to metadata", metadata, ManagedFields::Kept),
            ("encode: without managed fields", ObjectPart::Whole, without),
        ] {
            let rendition = ObjectFormat {
                form,
                managed_fields,
                ..ObjectFormat::whole(encoding)
            };
            let Some(cut) = Projection::new(rendition, &kind(encoding)) else {
                continue;
            };
            self.stage(name, copy, &mut || {
                let is_cut = |frame: &&Bytes| cut.frame(frame).is_ok();
                frames.iter().filter(is_cut).count()
            });
        }
    }
}

fn object(encoding: Encoding, frame: &Bytes) -> Object {
    use kube_fanout::decode::WatchLine;
    let Ok(WatchLine::Event { object, parts, .. }) = scan_watch(encoding, frame, typical::fields())
    else {
        unreachable!("all frames are events");
    };
    object_in(encoding, frame, object, parts).expect("all frames are events")
}

fn kind(encoding: Encoding) -> ResourceKind {
    ResourceKind {
        gvr: Gvr::new("", "v1", "pods"),
        kind: "Pod".to_owned(),
        list_kind: "PodList".to_owned(),
        namespaced: true,
        layout: Layout::Typed,
        encoding,
        warnings: Vec::new(),
    }
}

/// The same fields, read by serde_json into borrowed types.
#[derive(serde::Deserialize)]
struct Event<'a> {
    #[serde(rename = "type")]
    _kind: &'a str,
    #[serde(borrow, rename = "object")]
    _object: Pod<'a>,
}

#[derive(serde::Deserialize)]
struct Pod<'a> {
    #[serde(borrow, rename = "metadata")]
    _metadata: Metadata<'a>,
    #[serde(borrow, rename = "spec")]
    _spec: Spec<'a>,
    #[serde(borrow, rename = "status")]
    _status: Status<'a>,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(rename = "name")]
    _name: &'a str,
    #[serde(rename = "namespace")]
    _namespace: &'a str,
    #[serde(rename = "uid")]
    _uid: &'a str,
    #[serde(rename = "resourceVersion")]
    _resource_version: &'a str,
    #[serde(borrow, rename = "labels")]
    _labels: std::collections::BTreeMap<&'a str, std::borrow::Cow<'a, str>>,
}

#[derive(serde::Deserialize)]
struct Spec<'a> {
    #[serde(rename = "nodeName")]
    _node_name: &'a str,
}

#[derive(serde::Deserialize)]
struct Status<'a> {
    #[serde(rename = "phase")]
    _phase: &'a str,
}
