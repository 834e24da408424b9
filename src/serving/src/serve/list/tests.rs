//! Lists from constructed snapshots, compared with envelopes as kube-apiserver writes them.

mod short;

use bytes::Buf;
use proptest::prelude::*;

use super::*;
use crate::cache::samples::{Sample, keep, kind};
use crate::cache::{CacheWriter, Observer, Snapshot};
use crate::protocol::continue_token::ContinueToken;
use crate::protocol::indent::Indenter;
use crate::resource::{Encoding, Layout, Object, ResourceVersion};
use crate::selector::{LabelSelector, Selector};
use crate::view::{Hub, ManagedFields, MetaVersion, ObjectPart, Partial};

pub(super) const LAYOUTS: [Layout; 2] = [Layout::Typed, Layout::Dynamic];

fn writer(layout: Layout, keys: &[&str], version: u64) -> CacheWriter {
    let hub: Arc<dyn Observer> = Arc::new(Hub::new(&kind(layout)));
    let mut writer = CacheWriter::new(kind(layout), keep(100), hub);
    let numbered = keys.iter().zip(1_u64..);
    let listed = numbered
        .map(|(key, at)| sample(layout, key, at).object())
        .collect();
    let now = std::time::Instant::now();
    writer
        .replace(listed, ResourceVersion(version), now)
        .unwrap();
    writer
}

/// Every second object has the tier `x`. Objects of long lists have managed fields, which some formats drop, so that frames fill;
/// those of short lists stay short.
fn sample(layout: Layout, key: &str, at: u64) -> Sample {
    let mut sample = Sample::new(key, at).layout(layout);
    sample.tier = at.is_multiple_of(2).then_some("x");
    sample.has_managed_fields = at >= 100;
    sample
}

pub(super) fn snapshot(layout: Layout, keys: &[&str]) -> Arc<Snapshot> {
    writer(layout, keys, 26).cache().snapshot().unwrap()
}

pub(super) fn page(
    snapshot: &Arc<Snapshot>,
    selector: &Selector,
    start: Option<&str>,
    limit: u64,
) -> SnapshotPage {
    let limit = (limit > 0).then_some(limit);
    let request = PageRequest {
        kind: &kind(Layout::Typed),
        selector,
        start,
        limit,
    };
    let mut search = PageSearch::new(Arc::clone(snapshot), &request);
    last_step(|| search.step())
}

/// Runs `step` until it is ready.
pub(super) fn last_step<T>(step: impl FnMut() -> Poll<T>) -> T {
    counted(step).1
}

/// Runs `step` until it is ready; returns the number of steps, too.
fn counted<T>(mut step: impl FnMut() -> Poll<T>) -> (usize, T) {
    let mut count = 1;
    loop {
        if let Poll::Ready(done) = step() {
            return (count, done);
        }
        count += 1;
    }
}

/// The body of a measured page.
pub(super) fn list_body(page: SnapshotPage, kind: &ResourceKind, format: ObjectFormat) -> ListBody {
    let mut measure = page.measure(kind, format);
    let items_len = last_step(|| measure.step()).unwrap();
    ListBody::new(page, kind, format, items_len)
}

/// The complete body, and whether it has a Content-Length.
fn body(page: SnapshotPage, layout: Layout) -> (String, bool) {
    body_in_form(page, layout, ObjectPart::Whole)
}

fn body_in_form(page: SnapshotPage, layout: Layout, form: ObjectPart) -> (String, bool) {
    let format = ObjectFormat {
        form,
        ..ObjectFormat::default()
    };
    let (bytes, sized) = match sized(list_body(page, &kind(layout), format)) {
        Ok((mut whole, _)) => (whole.copy_to_bytes(whole.remaining()).to_vec(), true),
        Err(streamed) => (streamed_bytes(*streamed), false),
    };
    (String::from_utf8(bytes).unwrap(), sized)
}

pub(super) fn sized(mut list: ListBody) -> Result<(BufList, usize), Box<ListBody>> {
    let first = last_step(|| list.step()).unwrap();
    list.sized(first)
}

/// The uncompressed body of a list.
pub(super) fn plain(list: ListBody) -> Vec<u8> {
    match sized(list) {
        Ok((mut whole, _)) => whole.copy_to_bytes(whole.remaining()).to_vec(),
        Err(streamed) => streamed_bytes(*streamed),
    }
}

/// The snapshot with another version of one object.
pub(super) fn changed(snapshot: &Snapshot, key: &str, version: u64) -> Arc<Snapshot> {
    let mut after = snapshot.clone();
    let object = sample(Layout::Typed, key, version).object();
    assert!(after.objects.insert(object).is_some());
    Arc::new(after)
}

fn streamed_bytes(mut list: ListBody) -> Vec<u8> {
    let mut context = Context::from_waker(std::task::Waker::noop());
    let mut bytes = Vec::new();
    let mut next = || last_step(|| Pin::new(&mut list).poll_frame(&mut context));
    while let Some(Ok(frame)) = next() {
        let mut frame = frame.into_data().unwrap();
        assert!(frame.has_remaining(), "an empty frame");
        assert!(
            frame.count() <= FRAME_SLICES + 2,
            "{} slices",
            frame.count()
        );
        bytes.extend_from_slice(&frame.copy_to_bytes(frame.remaining()));
    }
    assert!(list.is_end_stream());
    bytes
}

/// The list in a straightforward implementation.
fn naive(layout: Layout, samples: &[Sample], metadata: &str) -> String {
    let items = samples
        .iter()
        .map(|sample| {
            let (json, prefix_len) = sample.json();
            format!("{{{}", &json[1 + prefix_len..])
        })
        .collect::<Vec<_>>()
        .join(",");
    match layout {
        Layout::Typed => format!(
            "{{\"kind\":\"ConfigMapList\",\"apiVersion\":\"v1\",\"metadata\":{metadata},\"items\":[{items}]}}\n"
        ),
        Layout::Dynamic => format!(
            "{{\"apiVersion\":\"example.com/v1\",\"items\":[{items}],\"kind\":\"WidgetList\",\"metadata\":{metadata}}}\n"
        ),
    }
}

#[test]
fn metadata_lists_have_one_form_for_all_kinds() {
    let head = "{\"kind\":\"PartialObjectMetadataList\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":{\"resourceVersion\":\"26\"},\"items\":";
    let form = ObjectPart::Metadata(MetaVersion::V1);
    for layout in LAYOUTS {
        let partial = Partial {
            version: MetaVersion::V1,
            layout,
        };
        for keys in [&["a/1", "a/2", "b/1"][..], &["a/1"], &[]] {
            let snapshot = snapshot(layout, keys);
            let page = page(&snapshot, &everything(), None, 0);
            let items: Vec<_> = keys
                .iter()
                .copied()
                .zip(1_u64..)
                .map(|(key, at)| {
                    let object = sample(layout, key, at).object();
                    String::from_utf8(partial.object(object.bytes()).unwrap()).unwrap()
                })
                .collect();
            let items = match items.as_slice() {
                [] => "null".to_owned(),
                items => format!("[{}]", items.join(",")),
            };
            let (body, _) = body_in_form(page, layout, form);
            assert_eq!(body, format!("{head}{items}}}\n"));
        }
    }
}

/// Covers several chunks, parts of chunks, single items, and metadata positions that were found before an object of the chunk
/// changed.
#[test]
fn metadata_lists_written_by_chunk_equal_those_written_by_object() {
    let keys: Vec<_> = (0..900)
        .map(|at| format!("{}/{at:03}", if at < 300 { "a" } else { "b" }))
        .collect();
    let keys: Vec<_> = keys.iter().map(String::as_str).collect();
    let form = ObjectPart::Metadata(MetaVersion::V1);
    for layout in LAYOUTS {
        let version = MetaVersion::V1;
        let partial = Partial { version, layout };
        let before = snapshot(layout, &keys);
        for is_changed in [false, true, false] {
            // Changed after the first lists, so that chunks already have their results.
            let snapshot = match is_changed {
                true => changed(&before, "b/500", 1_000_000),
                false => Arc::clone(&before),
            };
            for selector in [&everything(), &namespace("b"), &tier_x()] {
                let shown = snapshot.objects.iter();
                let shown = shown.filter(|object| selector.matches(object));
                let items = shown.map(|object| partial.object(object.bytes()).unwrap());
                let items: Vec<_> = items.collect();
                let (body, _) = body_in_form(page(&snapshot, selector, None, 0), layout, form);
                let (_, body) = body.split_once("\"items\":[").unwrap();
                assert_eq!(
                    body.as_bytes(),
                    [&items.join(&b","[..]), &b"]}\n"[..]].concat()
                );
            }
        }
    }
}

const IN_PROTOBUF: ObjectFormat = ObjectFormat {
    encoding: Encoding::Protobuf,
    form: ObjectPart::Metadata(MetaVersion::V1),
    managed_fields: ManagedFields::Kept,
};

/// A protobuf list states its length, so a wrong measurement makes it unreadable.
#[test]
fn protobuf_lists_have_their_announced_length() {
    let keys: Vec<_> = (0..900)
        .map(|at| format!("{}/{at:03}", if at < 300 { "a" } else { "b" }))
        .collect();
    let keys: Vec<_> = keys.iter().map(String::as_str).collect();
    let before = snapshot(Layout::Dynamic, &keys);
    for is_changed in [false, true, false] {
        // Changed after the first lists, so that chunks already have their results.
        let snapshot = match is_changed {
            true => changed(&before, "b/500", 1_000_000),
            false => Arc::clone(&before),
        };
        // A selector first, while no lengths are known.
        for selector in [&tier_x(), &everything(), &namespace("b"), &tier_x()] {
            for (limit, version, managed_fields) in [
                (0, MetaVersion::V1, ManagedFields::Kept),
                (7, MetaVersion::V1, ManagedFields::Kept),
                (0, MetaVersion::V1Beta1, ManagedFields::Kept),
                (0, MetaVersion::V1, ManagedFields::Dropped),
            ] {
                let format = ObjectFormat {
                    form: ObjectPart::Metadata(version),
                    managed_fields,
                    ..IN_PROTOBUF
                };
                let page = page(&snapshot, selector, None, limit);
                let list = plain(list_body(page, &kind(Layout::Dynamic), format));
                let shown = snapshot.objects.iter();
                let shown = shown.filter(|object| selector.matches(object)).count();
                let expected = match limit {
                    0 => shown,
                    _ => shown.min(7),
                };
                let (_, number) = format.form.list_fields();
                assert_eq!(messages(&list, number), expected, "{format:?}");
            }
        }
    }
}

/// The number of fields with this number in the message of a response, which is parsed to its end.
fn messages(answer: &[u8], number: u32) -> usize {
    use crate::resource::wire::{MAGIC, WireFields};
    let envelope = answer.strip_prefix(MAGIC).unwrap();
    let fields: Vec<_> = WireFields::new(envelope).map(Result::unwrap).collect();
    let raw = fields.iter().find(|field| field.number == 2).unwrap();
    let inside = WireFields::within(envelope, raw.bytes().unwrap()).map(Result::unwrap);
    inside.filter(|field| field.number == number).count()
}

/// A step processes a bounded part of the list, and measured chunks are not measured again.
#[test]
fn a_long_list_is_measured_in_steps_and_its_chunks_once() {
    let keys: Vec<_> = (0..20_000).map(|at| format!("a/{at:05}")).collect();
    let keys: Vec<_> = keys.iter().map(String::as_str).collect();
    let snapshot = snapshot(Layout::Dynamic, &keys);
    let steps = |selector: &Selector, start| {
        let page = page(&snapshot, selector, start, 0);
        let mut measure = page.measure(&kind(Layout::Dynamic), IN_PROTOBUF);
        counted(|| measure.step().map(Result::unwrap)).0
    };
    let frames_len = snapshot.objects.frames_len();
    let first = steps(&everything(), None);
    assert!(first > frames_len / (1 << 20) && first > 2, "{first} steps");
    assert_eq!(
        steps(&everything(), None),
        1,
        "105 chunks are measured already"
    );
    let nothing = Selector {
        labels: LabelSelector::parse("tier=none").unwrap(),
        ..Selector::default()
    };
    for start in [None, Some("a/00003")] {
        for selector in [&tier_x(), &nothing] {
            let count = steps(selector, start);
            assert!(count > 5, "the selector is evaluated in {count} steps");
        }
    }
}

/// Every operation on a list yields while a selector searches for rare objects.
#[test]
fn a_list_that_filters_many_objects_is_made_in_steps() {
    let keys: Vec<_> = (0..20_000).map(|at| format!("a/{at:05}")).collect();
    let keys: Vec<_> = keys.iter().map(String::as_str).collect();
    let kind = kind(Layout::Typed);
    let snapshot = snapshot(Layout::Typed, &keys);
    let last = Selector {
        labels: LabelSelector::parse("tier=last").unwrap(),
        ..Selector::default()
    };
    let mut objects = snapshot.objects.clone();
    let mut rare = sample(Layout::Typed, "a/19999", 20_000);
    rare.tier = Some("last");
    objects.insert(rare.object());
    let snapshot = Arc::new(Snapshot {
        objects,
        ..Snapshot::clone(&snapshot)
    });
    let is_stepwise = |what, steps| assert!(steps > 5, "{what} takes {steps} steps");
    let request = PageRequest {
        kind: &kind,
        selector: &last,
        start: None,
        limit: Some(1),
    };
    let mut search = PageSearch::new(Arc::clone(&snapshot), &request);
    let (steps, limited) = counted(|| search.step());
    is_stepwise("a limited page", steps);
    assert_eq!(outline(limited), (vec!["a/19999".into()], None, None));
    let whole = page(&snapshot, &last, None, 0);
    for form in [ObjectPart::Whole, ObjectPart::Metadata(MetaVersion::V1)] {
        let format = ObjectFormat {
            form,
            ..ObjectFormat::default()
        };
        let mut list = list_body(whole.clone(), &kind, format);
        let mut check = list.length_check(1 << 20);
        let (steps, is_longer) = counted(|| check.step());
        is_stepwise("the length check", steps);
        assert!(!is_longer);
        let (steps, first) = counted(|| list.step());
        is_stepwise("the first frame", steps);
        let (_, items) = list.sized(first.unwrap()).unwrap();
        assert_eq!(items, 1);
    }
    // The body makes the other frames itself and asks to be polled again.
    let mut streamed = list_body(whole, &kind, ObjectFormat::default());
    let woken = Arc::new(Woken::default());
    let waker = std::task::Waker::from(Arc::clone(&woken));
    let mut context = Context::from_waker(&waker);
    let (steps, _) = counted(|| Pin::new(&mut streamed).poll_frame(&mut context));
    is_stepwise("a streamed frame", steps);
    assert_eq!(
        woken.0.load(std::sync::atomic::Ordering::Relaxed),
        steps - 1
    );
}

/// Counts wake-ups.
#[derive(Default)]
struct Woken(std::sync::atomic::AtomicUsize);

impl std::task::Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

/// Objects that cannot be written are found before the response's head is sent.
#[test]
fn a_page_with_an_object_that_cannot_be_written_is_not_measured() {
    let mut snapshot = Snapshot::clone(&snapshot(Layout::Dynamic, &["a/1", "a/2", "a/3"]));
    let object = crate::cache::samples::uncuttable("a/2", 30);
    snapshot.objects.insert(object);
    for limit in [0, 3] {
        let page = page(&Arc::new(snapshot.clone()), &everything(), None, limit);
        let kind = kind(Layout::Dynamic);
        for _ in 0..2 {
            let measured = page.measure(&kind, IN_PROTOBUF).step();
            assert!(matches!(measured, Poll::Ready(Err(_))));
        }
        assert_eq!(
            page.measure(&kind, ObjectFormat::default()).step(),
            Poll::Ready(Ok(0))
        );
    }
}

#[test]
fn indented_lists_are_the_whole_list_indented() {
    for layout in LAYOUTS {
        for keys in [&["a/1", "a/2", "b/1"][..], &["a/1"], &[]] {
            for limit in [0, 1] {
                for form in [ObjectPart::Whole, ObjectPart::Metadata(MetaVersion::V1)] {
                    let format = ObjectFormat {
                        form,
                        ..ObjectFormat::default()
                    };
                    let page = page(&snapshot(layout, keys), &everything(), None, limit);
                    let list = list_body(page, &kind(layout), format);
                    let compact = String::from_utf8(plain(list.clone())).unwrap();
                    let indented = String::from_utf8(plain(list.indented())).unwrap();
                    let whole = Indenter::default().piece(compact.as_bytes());
                    assert_eq!(indented.as_bytes(), &whole[..]);
                    assert!(!indented.ends_with('\n') && compact.ends_with('\n'));
                }
            }
        }
    }
}

#[test]
fn an_indented_list_reads_as_upstream_writes_it() {
    let snapshot = snapshot(Layout::Typed, &["a/p1", "a/p2"]);
    let page = page(&snapshot, &everything(), None, 0);
    let list = list_body(page, &kind(Layout::Typed), ObjectFormat::default()).indented();
    let expected = r#"{
  "kind": "ConfigMapList",
  "apiVersion": "v1",
  "metadata": {
    "resourceVersion": "26"
  },
  "items": [
    {
      "metadata": {
        "name": "p1",
        "namespace": "a",
        "uid": "u1",
        "resourceVersion": "1"
      }
    },
    {
      "metadata": {
        "name": "p2",
        "namespace": "a",
        "uid": "u2",
        "resourceVersion": "2",
        "labels": {
          "tier": "x"
        }
      }
    }
  ]
}"#;
    assert_eq!(String::from_utf8(plain(list)).unwrap(), expected);
}

pub(super) fn everything() -> Selector {
    Selector::default()
}

pub(super) fn namespace(name: &str) -> Selector {
    Selector {
        namespace: Some(name.into()),
        ..Selector::default()
    }
}

pub(super) fn tier_x() -> Selector {
    Selector {
        labels: LabelSelector::parse("tier=x").unwrap(),
        ..Selector::default()
    }
}

#[test]
fn empty_lists_read_as_upstream_writes_them() {
    for (layout, expected) in [
        (
            Layout::Typed,
            "{\"kind\":\"ConfigMapList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"26\"},\"items\":[]}\n",
        ),
        (
            Layout::Dynamic,
            "{\"apiVersion\":\"example.com/v1\",\"items\":[],\"kind\":\"WidgetList\",\"metadata\":{\"continue\":\"\",\"resourceVersion\":\"26\"}}\n",
        ),
    ] {
        let snapshot = snapshot(layout, &[]);
        for limit in [0, 1] {
            let page = page(&snapshot, &everything(), None, limit);
            assert_eq!(body(page, layout), (expected.to_owned(), true));
        }
    }
}

#[test]
fn whole_lists_read_as_upstream_writes_them() {
    for (layout, metadata) in [
        (Layout::Typed, "{\"resourceVersion\":\"26\"}"),
        (
            Layout::Dynamic,
            "{\"continue\":\"\",\"resourceVersion\":\"26\"}",
        ),
    ] {
        let samples = [sample(layout, "a/p1", 1), sample(layout, "a/p2", 2)];
        let snapshot = snapshot(layout, &["a/p1", "a/p2"]);
        let page = page(&snapshot, &everything(), None, 0);
        assert_eq!(body(page, layout).0, naive(layout, &samples, metadata));
    }
}

#[test]
fn a_first_page_carries_token_and_remaining_count_as_upstream_writes_them() {
    // From an API server's responses to limit=2 for five pods and for five widgets in one namespace.
    let token = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MjYsInN0YXJ0IjoiL3AyXHUwMDAwIn0";
    for layout in LAYOUTS {
        let metadata = match layout {
            Layout::Typed => format!(
                "{{\"resourceVersion\":\"26\",\"continue\":\"{token}\",\"remainingItemCount\":3}}"
            ),
            Layout::Dynamic => format!(
                "{{\"continue\":\"{token}\",\"remainingItemCount\":3,\"resourceVersion\":\"26\"}}"
            ),
        };
        let snapshot = snapshot(layout, &["a/p1", "a/p2", "a/p3", "a/p4", "a/p5", "b/p1"]);
        let page = page(&snapshot, &namespace("a"), None, 2);
        let samples = [sample(layout, "a/p1", 1), sample(layout, "a/p2", 2)];
        assert_eq!(body(page, layout).0, naive(layout, &samples, &metadata));
    }
}

/// Names on the page, remaining count, and where the next page starts.
fn outline(mut page: SnapshotPage) -> (Vec<String>, Option<usize>, Option<String>) {
    let start = page
        .meta
        .continue_token
        .take()
        .map(|token| ContinueToken::decode(&token).unwrap().start);
    let remaining = page.meta.remaining;
    let keys = std::iter::from_fn(|| page.look()).flatten();
    let keys = keys.map(|object| object.key().to_string()).collect();
    (keys, remaining, start)
}

#[track_caller]
fn check(
    selector: &Selector,
    start: Option<&str>,
    limit: u64,
    expected: (&[&str], Option<usize>, Option<&str>),
) {
    let keys = [
        "a-b/1", "a-b/2", "a.c/1", "a/1", "a/2", "a/3", "a0/1", "b/1",
    ];
    let snapshot = snapshot(Layout::Typed, &keys);
    let (keys, remaining, start) = outline(page(&snapshot, selector, start, limit));
    assert_eq!(
        (
            keys,
            remaining,
            start.as_deref().map(|start| start.trim_start_matches('/'))
        ),
        (
            expected.0.iter().map(|key| (*key).to_owned()).collect(),
            expected.1,
            expected.2
        )
    );
}

#[test]
fn a_namespace_holds_what_is_in_it_and_no_neighbour_with_a_like_name() {
    check(
        &namespace("a"),
        None,
        0,
        (&["a/1", "a/2", "a/3"], None, None),
    );
    check(
        &namespace("a-b"),
        None,
        0,
        (&["a-b/1", "a-b/2"], None, None),
    );
    check(&namespace("a."), None, 0, (&[], None, None));
    check(&namespace("none"), None, 5, (&[], None, None));
    check(&namespace("zzz"), None, 5, (&[], None, None));
}

/// The objects of a chunk that is completely in the namespace are not compared one by one.
#[test]
fn chunks_of_a_neighbour_with_a_like_name_are_not_in_a_namespace() {
    let names = |space: &'static str| (0..400).map(move |at| format!("{space}/{at:03}"));
    let keys: Vec<_> = names("a").chain(names("a0")).collect();
    let keys: Vec<_> = keys.iter().map(String::as_str).collect();
    for layout in LAYOUTS {
        let snapshot = snapshot(layout, &keys);
        let (text, _) = body(page(&snapshot, &namespace("a"), None, 0), layout);
        let count = |space| text.matches(&format!("\"namespace\":\"{space}\"")).count();
        assert_eq!((count("a"), count("a0")), (400, 0));
    }
}

#[test]
fn pages_follow_the_limit_and_say_what_remains() {
    let everything = everything();
    check(
        &everything,
        None,
        3,
        (&["a-b/1", "a-b/2", "a.c/1"], Some(5), Some("a.c/1\0")),
    );
    check(
        &everything,
        Some("a.c/1\0"),
        4,
        (&["a/1", "a/2", "a/3", "a0/1"], Some(1), Some("a0/1\0")),
    );
    check(&everything, Some("a0/1\0"), 4, (&["b/1"], None, None));
    check(&everything, Some("b/1\0"), 4, (&[], None, None));
    check(
        &everything,
        None,
        8,
        (
            &[
                "a-b/1", "a-b/2", "a.c/1", "a/1", "a/2", "a/3", "a0/1", "b/1",
            ],
            None,
            None,
        ),
    );
    check(
        &namespace("a"),
        None,
        2,
        (&["a/1", "a/2"], Some(1), Some("2\0")),
    );
    check(&namespace("a"), Some("2\0"), 2, (&["a/3"], None, None));
    check(
        &namespace("a"),
        None,
        3,
        (&["a/1", "a/2", "a/3"], None, None),
    );
    // A key that has been deleted in the meantime is skipped.
    check(
        &namespace("a"),
        Some("1x\0"),
        1,
        (&["a/2"], Some(1), Some("2\0")),
    );
    // A limit beyond the number of objects still ends the list.
    check(
        &namespace("a"),
        None,
        u64::MAX,
        (&["a/1", "a/2", "a/3"], None, None),
    );
}

#[test]
fn a_selected_page_has_no_remaining_count() {
    // Objects 2, 4, 6 and 8 match.
    check(&tier_x(), None, 2, (&["a-b/2", "a/1"], None, Some("a/1\0")));
    check(&tier_x(), Some("a/1\0"), 2, (&["a/3", "b/1"], None, None));
    check(&tier_x(), Some("a/1\0"), 1, (&["a/3"], None, Some("a/3\0")));
    let in_a = Selector {
        namespace: Some("a".into()),
        ..tier_x()
    };
    // The third key of the namespace is the last one that matches: no token.
    check(&in_a, None, 2, (&["a/1", "a/3"], None, None));
    // Keys are left that do not match: a token, and then an empty page (docs/PROTOCOL.md §3.3).
    let in_ab = Selector {
        namespace: Some("a".into()),
        labels: LabelSelector::parse("tier!=x").unwrap(),
        ..Selector::default()
    };
    check(&in_ab, None, 1, (&["a/2"], None, Some("2\0")));
    check(&in_ab, Some("2\0"), 1, (&[], None, None));
}

#[test]
fn exact_versions_are_shown_by_undoing_what_came_after() {
    let mut writer = writer(Layout::Typed, &["a/1", "a/2"], 26);
    let now = std::time::Instant::now();
    let put = |key, version| crate::cache::Change::Put(Sample::new(key, version).object());
    writer.apply([put("a/3", 30), put("a/1", 31)], now);
    let gone = crate::cache::Change::Delete(Sample::new("a/2", 33).object());
    writer.apply([gone], now);
    for (version, expected) in [
        (26, vec!["a/1 1", "a/2 2"]),
        (29, vec!["a/1 1", "a/2 2"]),
        (30, vec!["a/1 1", "a/2 2", "a/3 30"]),
        (31, vec!["a/1 31", "a/2 2", "a/3 30"]),
        (33, vec!["a/1 31", "a/3 30"]),
    ] {
        let version = ResourceVersion(version);
        let rewound = Arc::new(writer.cache().rewind(version).unwrap().finish());
        let mut page = page(&rewound, &everything(), None, 0);
        let objects = std::iter::from_fn(|| page.look()).flatten();
        let entry = |object: Object| format!("{} {}", object.key(), object.resource_version());
        assert_eq!(objects.map(entry).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn a_list_of_up_to_two_kibibytes_carries_its_length() {
    for count in 0..60 {
        let keys: Vec<String> = (0..count).map(|at| format!("a/{at:03}")).collect();
        let keys: Vec<&str> = keys.iter().map(|key| &**key).collect();
        for layout in LAYOUTS {
            let snapshot = snapshot(layout, &keys);
            let (text, sized) = body(page(&snapshot, &everything(), None, 0), layout);
            assert_eq!(
                sized,
                text.len() <= 2048,
                "{count} items, {} bytes",
                text.len()
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn pages_put_together_are_the_list(
        count in 0_usize..400,
        limit in 0_u64..90,
        dynamic: bool,
        selected: bool,
    ) {
        let layout = LAYOUTS[usize::from(dynamic)];
        let keys: Vec<String> = (0..count).map(|at| format!("n{}/{at:03}", at % 3)).collect();
        let keys: Vec<&str> = keys.iter().map(|key| &**key).collect();
        let selector = if selected { tier_x() } else { everything() };
        let mut samples: Vec<_> = keys.iter().zip(1..).map(|(key, at)| sample(layout, key, at)).collect();
        samples.retain(|sample| !selected || sample.tier.is_some());
        samples.sort_by(|a, b| a.key.cmp(&b.key));
        let snapshot = snapshot(layout, &keys);
        let mut start: Option<String> = None;
        let mut shown = 0;
        loop {
            let this = page(&snapshot, &selector, start.as_deref(), limit);
            let metadata = this.meta.json(layout);
            let (_, _, next) = outline(page(&snapshot, &selector, start.as_deref(), limit));
            let len = if limit == 0 { samples.len() } else { (samples.len() - shown).min(usize::try_from(limit).unwrap()) };
            let (text, _) = body(this, layout);
            prop_assert_eq!(text, naive(layout, &samples[shown..shown + len], &metadata));
            shown += len;
            match next {
                Some(next) => start = Some(next.trim_start_matches('/').to_owned()),
                None => break,
            }
        }
        prop_assert_eq!(shown, samples.len());
    }
}
