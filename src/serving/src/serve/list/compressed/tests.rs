//! Compressed lists decode to the plain list, and each block is compressed once.

use std::io::Read;
use std::sync::Arc;

use http_body_util::BodyExt;

use super::*;
use crate::cache::Snapshot;
use crate::cache::samples::kind;
use crate::resource::{Encoding, FieldTable, Layout};
use crate::selector::{LabelSelector, Selector};
use crate::serve::list::SnapshotPage;
use crate::serve::list::tests::{
    LAYOUTS, changed, everything, last_step, list_body, namespace, page, plain, sized, snapshot,
    tier_x,
};
use crate::view::{ManagedFields, MetaVersion, ObjectFormat, ObjectPart};

/// Five chunks of 192 objects, the last one shorter. Namespace `b` has whole chunks and shares one at either end.
fn many(layout: Layout) -> Arc<Snapshot> {
    let spaces = [("a", 100), ("b", 600), ("c", 200)];
    let keys = spaces
        .iter()
        .flat_map(|(space, count)| (0..*count).map(move |at| format!("{space}/{at:04}")));
    let keys: Vec<String> = keys.collect();
    let keys: Vec<&str> = keys.iter().map(|key| &**key).collect();
    snapshot(layout, &keys)
}

fn list(page: SnapshotPage, layout: Layout, format: ObjectFormat) -> ListBody {
    list_body(page, &kind(layout), format)
}

fn metadata(version: MetaVersion) -> ObjectFormat {
    ObjectFormat {
        form: ObjectPart::Metadata(version),
        ..ObjectFormat::default()
    }
}

async fn decoded(list: ListBody, compressor: &BlockCompressor) -> (Vec<u8>, BlockCounts) {
    let mut body = CompressedList::new(list, compressor.clone());
    let mut member = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.unwrap().into_data().unwrap();
        assert!(!frame.is_empty() && frame.count() <= FRAME_SLICES + 2);
        member.extend_from_slice(&frame_bytes(frame));
    }
    assert!(body.is_end_stream());
    let mut out = Vec::new();
    let mut decoder = flate2::bufread::GzDecoder::new(&*member);
    decoder.read_to_end(&mut out).unwrap();
    assert!(decoder.into_inner().is_empty());
    (out, body.counts())
}

fn frame_bytes(mut frame: BufList) -> Bytes {
    use bytes::Buf;
    frame.copy_to_bytes(frame.remaining())
}

#[track_caller]
fn counts(made: usize, shared: usize) -> BlockCounts {
    BlockCounts { made, shared }
}

#[tokio::test]
async fn every_kind_of_list_decodes_to_the_plain_one() {
    let formats = [
        ObjectFormat::default(),
        metadata(MetaVersion::V1),
        metadata(MetaVersion::V1Beta1),
        ObjectFormat {
            managed_fields: ManagedFields::Dropped,
            ..metadata(MetaVersion::V1)
        },
    ];
    let compressor = BlockCompressor::new(2);
    for layout in LAYOUTS {
        let snapshot = many(layout);
        let selectors = [everything(), namespace("b"), namespace("d"), tier_x()];
        for format in formats {
            for selector in &selectors {
                for (start, limit) in [(None, 0), (None, 250), (Some("b/0300"), 0)] {
                    // A key to start from is relative to the namespace.
                    let start = start.filter(|_| selector.namespace.is_none());
                    let page = page(&snapshot, selector, start, limit);
                    let list = list(page, layout, format);
                    for list in [list.clone().indented(), list] {
                        let plain = plain(list.clone());
                        let (text, _) = decoded(list, &compressor).await;
                        let differs = text.iter().zip(&plain).position(|(a, b)| a != b);
                        assert!(
                            text == plain,
                            "{format:?} {selector:?} {start:?} {limit}: {} and {} bytes, different at {differs:?}",
                            text.len(),
                            plain.len()
                        );
                    }
                }
            }
        }
    }
}

#[tokio::test]
async fn an_update_makes_one_block_anew() {
    let (compressor, layout) = (BlockCompressor::new(1), Layout::Typed);
    let snapshot = many(layout);
    let whole = |snapshot: &Arc<Snapshot>| {
        list(
            page(snapshot, &everything(), None, 0),
            layout,
            ObjectFormat::default(),
        )
    };
    assert_eq!(decoded(whole(&snapshot), &compressor).await.1, counts(5, 0));
    assert_eq!(decoded(whole(&snapshot), &compressor).await.1, counts(0, 5));
    let after = changed(&snapshot, "b/0333", 900);
    assert_eq!(decoded(whole(&after), &compressor).await.1, counts(1, 4));
    assert_eq!(decoded(whole(&after), &compressor).await.1, counts(0, 5));
    // Lists of the old snapshot still find all of their blocks.
    assert_eq!(decoded(whole(&snapshot), &compressor).await.1, counts(0, 5));
    // A namespace shares the chunks that it fills; the chunks at its ends are compressed for it alone.
    let space = page(&after, &namespace("b"), None, 0);
    let space = list(space, layout, ObjectFormat::default());
    assert_eq!(decoded(space, &compressor).await.1, counts(2, 2));
    // Blocks of v1 metadata are kept separately. Those of v1beta1 and of selections are not kept.
    let cut = |version| {
        list(
            page(&after, &everything(), None, 0),
            layout,
            metadata(version),
        )
    };
    for (version, expected) in [
        (MetaVersion::V1, counts(5, 0)),
        (MetaVersion::V1, counts(0, 5)),
        (MetaVersion::V1Beta1, counts(1, 0)),
        (MetaVersion::V1Beta1, counts(1, 0)),
    ] {
        assert_eq!(decoded(cut(version), &compressor).await.1, expected);
    }
    let selected = page(&after, &tier_x(), None, 0);
    let selected = list(selected, layout, ObjectFormat::default());
    assert_eq!(decoded(selected, &compressor).await.1, counts(1, 0));
}

/// The lists that client-go's metadata informers request for custom resources.
#[tokio::test]
async fn metadata_that_is_translated_is_compressed_once() {
    let (compressor, layout) = (BlockCompressor::new(1), Layout::Dynamic);
    let snapshot = many(layout);
    let format = ObjectFormat {
        encoding: Encoding::Protobuf,
        ..metadata(MetaVersion::V1)
    };
    for expected in [counts(5, 0), counts(0, 5)] {
        let list = list(page(&snapshot, &everything(), None, 0), layout, format);
        let plain = plain(list.clone());
        let (decoded, counts) = decoded(list, &compressor).await;
        assert!(decoded == plain && counts == expected, "{counts:?}");
    }
}

#[tokio::test]
async fn the_length_is_compared_before_anything_is_compressed() {
    let compressor = BlockCompressor::new(1);
    for layout in LAYOUTS {
        let snapshot = many(layout);
        let selectors: [Selector; 4] = [everything(), namespace("b"), namespace("d"), tier_x()];
        // First without kept blocks, then with them.
        for _ in 0..2 {
            for selector in &selectors {
                for format in [ObjectFormat::default(), metadata(MetaVersion::V1)] {
                    let list = list(page(&snapshot, selector, None, 0), layout, format);
                    let len = plain(list.clone()).len();
                    let is_longer = |than| {
                        let mut check = list.length_check(than);
                        last_step(|| check.step())
                    };
                    assert!(is_longer(len - 1) && !is_longer(len), "{selector:?}");
                    decoded(list, &compressor).await;
                }
            }
        }
    }
}

#[tokio::test]
async fn an_item_that_cannot_be_read_breaks_the_list_off() {
    let layout = Layout::Typed;
    let parts = crate::resource::ObjectParts {
        namespace: "a".into(),
        name: "broken".into(),
        ..crate::resource::ObjectParts::default()
    };
    let broken = Object::new(parts, b"[");
    let mut snapshot = Snapshot::clone(&many(layout));
    snapshot.objects.insert(broken);
    let page = page(&Arc::new(snapshot), &everything(), None, 0);
    let list = list(page, layout, metadata(MetaVersion::V1));
    let mut plain = sized(list.clone()).unwrap_err();
    let mut plain_failed = false;
    while let Some(frame) = plain.frame().await {
        plain_failed |= frame.is_err();
    }
    assert!(plain_failed, "the plain list must fail, too");
    let mut body = CompressedList::new(list, BlockCompressor::new(1));
    let mut failed = false;
    while let Some(frame) = body.frame().await {
        failed |= frame.is_err();
    }
    assert!(failed && body.is_end_stream());
}

/// The compressed body searches for rare objects in steps as the plain one does, and compresses them into one block.
#[tokio::test]
async fn a_compressed_list_that_filters_many_objects_is_made_in_steps() {
    let keys: Vec<_> = (0..20_000).map(|at| format!("a/{at:05}")).collect();
    let keys: Vec<_> = keys.iter().map(String::as_str).collect();
    let layout = Layout::Typed;
    let snapshot = snapshot(layout, &keys);
    let rare = Selector {
        labels: LabelSelector::parse("tier=none").unwrap(),
        ..Selector::default()
    };
    let whole = |selector| {
        list(
            page(&snapshot, selector, None, 0),
            layout,
            ObjectFormat::default(),
        )
    };
    let mut body = CompressedList::new(whole(&rare), BlockCompressor::new(1));
    let mut context = Context::from_waker(std::task::Waker::noop());
    let mut pending_count = 0;
    while !body.is_end_stream() {
        let polled = Pin::new(&mut body).poll_frame(&mut context);
        pending_count += usize::from(polled.is_pending());
    }
    assert!(pending_count > 5, "{pending_count} steps");
    let selected = whole(&tier_x());
    let plain = plain(selected.clone());
    let (text, made) = decoded(selected, &BlockCompressor::new(1)).await;
    assert!(
        text == plain && made.made <= plain.len() / (256 << 10) + 1,
        "{made:?}"
    );
}

/// An object that indentation makes a hundred times longer is compressed in many blocks, between which the compressor is free for
/// others.
#[tokio::test]
async fn an_object_that_is_long_when_indented_is_compressed_in_many_blocks() {
    let (open, close) = ("[".repeat(1_000), "]".repeat(1_000));
    let numbers = vec!["0"; 5_000].join(",");
    let metadata = r#""metadata":{"name":"x","namespace":"a","resourceVersion":"7"}"#;
    let json = format!(
        r#"{{"apiVersion":"example.com/v1","kind":"Widget",{metadata},"spec":{open}{numbers}{close}}}"#
    );
    let parts = crate::decode::scan_object(json.as_bytes(), FieldTable::default()).unwrap();
    let mut with_it = Snapshot::clone(&snapshot(Layout::Dynamic, &["a/1", "a/2", "b/1"]));
    with_it.objects.insert(Object::new(parts, json.as_bytes()));
    let page = page(&Arc::new(with_it), &everything(), None, 0);
    let list = list(page, Layout::Dynamic, ObjectFormat::default()).indented();
    let plain = plain(list.clone());
    let (text, counts) = decoded(list, &BlockCompressor::new(1)).await;
    assert!(text == plain && plain.len() > 10 << 20, "{}", plain.len());
    assert!(counts.made > plain.len() >> 21, "{counts:?}");
}
