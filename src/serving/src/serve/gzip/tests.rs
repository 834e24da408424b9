//! Members are decoded with an independent decoder, for any division into parts; when lists are compressed; and how work is shared.

use std::io::Read;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::task::{Context, Waker};

use http::HeaderValue;
use proptest::prelude::*;
use tokio::sync::Notify;

use super::*;
use crate::cache::{BlockFormat, Chunk, DeflateBlock, MapPosition, ObjectMap};
use crate::fairness::Peer;
use crate::protocol::gzip::GzipMember;
use crate::resource::{Object, ObjectParts};

#[track_caller]
fn check_reader(values: &[&'static str], expected: Option<GzipReader>) {
    let mut headers = HeaderMap::new();
    for value in values {
        headers.append(ACCEPT_ENCODING, HeaderValue::from_static(value));
    }
    assert_eq!(gzip_reader(&headers), expected, "{values:?}");
}

#[test]
fn only_the_bare_word_asks_for_gzip() {
    check_reader(&[], None);
    for value in [
        "gzip",
        "deflate, gzip",
        " gzip ,br",
        "br,\tgzip",
        "x-gzip, gzip",
    ] {
        check_reader(&[value], Some(GzipReader::Client));
    }
    check_reader(&["x-gzip"], Some(GzipReader::Gateway));
    for value in [
        "",
        "*",
        "GZIP",
        "gzip;q=1.0",
        "x-gzip;q=1.0",
        "gzip deflate",
        "identity",
    ] {
        check_reader(&[value], None);
    }
    // The API server reads only the first header.
    check_reader(&["br", "gzip"], None);
    check_reader(&["gzip", "br"], Some(GzipReader::Client));
}

fn decoded(member: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut decoder = flate2::bufread::GzDecoder::new(member);
    decoder
        .read_to_end(&mut out)
        .expect("a complete gzip member");
    assert!(decoder.into_inner().is_empty(), "bytes after the member");
    out
}

fn block(pieces: &[&[u8]]) -> DeflateBlock {
    let len = pieces.iter().map(|piece| piece.len()).sum();
    let mut encoder = Encoder::new(len);
    pieces.iter().for_each(|piece| encoder.write(piece));
    encoder.finish()
}

/// How a part of the input is written to the member.
#[derive(Clone, Copy, Debug)]
enum Way {
    Stored,
    Compressed,
}

fn member(parts: &[(&[u8], Way)]) -> Vec<u8> {
    let mut member = GzipMember::default();
    let mut out = GzipMember::header().to_vec();
    for (part, way) in parts {
        let bytes = match way {
            Way::Stored => member.stored(part),
            Way::Compressed => member.block(&block(&[part])),
        };
        out.extend_from_slice(&bytes);
    }
    out.extend_from_slice(&member.trailer());
    out
}

/// Alternately compressible and incompressible data.
fn sample(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut out = Vec::with_capacity(len);
    while out.len() < len {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        if state >> 63 == 0 {
            out.extend_from_slice(b"{\"metadata\":{\"name\":\"");
        } else {
            out.extend_from_slice(&state.to_le_bytes());
        }
    }
    out.truncate(len);
    out
}

#[test]
fn an_empty_body_is_a_gzip_member() {
    assert_eq!(decoded(&member(&[])), b"");
    for way in [Way::Stored, Way::Compressed] {
        assert_eq!(
            decoded(&member(&[(b"", way), (b"a", way), (b"", way)])),
            b"a"
        );
    }
}

#[test]
fn blocks_are_decoded_alike_in_any_order() {
    let parts = [sample(100_000, 1), sample(70_000, 2), sample(200_000, 3)];
    let blocks = parts.each_ref().map(|part| block(&[part]));
    for order in [[0, 1, 2], [2, 1, 0], [1, 1, 1]] {
        let mut member = GzipMember::default();
        let mut out = GzipMember::header().to_vec();
        let mut whole = Vec::new();
        for at in order {
            out.extend_from_slice(&member.block(&blocks[at]));
            whole.extend_from_slice(&parts[at]);
        }
        out.extend_from_slice(&member.trailer());
        assert!(decoded(&out) == whole, "{order:?}");
    }
}

#[test]
fn incompressible_data_grows_little() {
    let mut state = 7_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    })
    .take(3 << 20)
    .collect();
    let block = block(&[&noise]);
    assert!(block.deflate.len() < noise.len() + noise.len() / 1000 + 64);
    assert!(decoded(&member(&[(&noise, Way::Compressed)])) == noise);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_cut_decodes_to_the_original(
        len in 0_usize..300_000,
        seed: u64,
        cuts in prop::collection::vec((0_usize..300_000, any::<bool>()), 0..12),
    ) {
        let whole = sample(len, seed);
        let mut cuts: Vec<_> = cuts.into_iter().map(|(at, way)| (at.min(len), way)).collect();
        cuts.sort_unstable();
        cuts.push((len, true));
        let mut parts = Vec::new();
        let mut start = 0;
        for (end, way) in cuts {
            let way = if way { Way::Compressed } else { Way::Stored };
            parts.push((&whole[start..end], way));
            start = end;
        }
        prop_assert!(decoded(&member(&parts)) == whole);
    }

    #[test]
    fn a_block_does_not_depend_on_how_it_was_fed(len in 1_usize..200_000, seed: u64, step in 1_usize..5000) {
        let whole = sample(len, seed);
        let pieces: Vec<&[u8]> = whole.chunks(step).collect();
        let fed = block(&pieces);
        prop_assert_eq!((fed.len, fed.crc), (len as u64, crc32fast::hash(&whole)));
        let mut member = GzipMember::default();
        let out = [GzipMember::header(), member.block(&fed), member.trailer()].concat();
        prop_assert!(decoded(&out) == whole);
    }
}

fn chunk() -> Arc<Chunk> {
    let parts = ObjectParts {
        name: "one".into(),
        ..ObjectParts::default()
    };
    let map = ObjectMap::from_objects(vec![Object::new(parts, b"{}")]);
    Arc::clone(map.next_chunk(&mut MapPosition::default(), "").unwrap())
}

fn write_all(objects: &[Object], encoder: &mut Encoder) -> Result<(), CompressError> {
    objects
        .iter()
        .for_each(|object| encoder.write(object.bytes()));
    Ok(())
}

/// Polls once, so that the future registers where it waits.
fn is_pending<F: Future>(future: Pin<&mut F>) -> bool {
    let mut context = Context::from_waker(Waker::noop());
    future.poll(&mut context).is_pending()
}

#[tokio::test]
async fn concurrent_lists_compress_a_block_once() {
    let (compressor, chunk) = (BlockCompressor::new(4), chunk());
    let made = Arc::new(AtomicUsize::new(0));
    let herd = (0..100).map(|_| {
        let made = Arc::clone(&made);
        tokio::spawn(compressor.clone().shared(
            Arc::clone(&chunk),
            BlockFormat::Whole,
            move |objects, encoder| {
                made.fetch_add(1, Ordering::Relaxed);
                write_all(objects, encoder)
            },
        ))
    });
    let herd: Vec<_> = herd.collect();
    for one in herd {
        assert_eq!(one.await.unwrap().unwrap().0.len, 2);
    }
    assert_eq!(made.load(Ordering::Relaxed), 1);
    // Another format is a separate block.
    let other = compressor.shared(Arc::clone(&chunk), BlockFormat::Metadata, |_, _| Ok(()));
    assert_eq!(other.await.unwrap().0.len, 0);
    assert!(chunk.block(BlockFormat::Metadata).is_some());
}

#[tokio::test]
async fn a_waiter_that_leaves_passes_the_work_on() {
    let (compressor, chunk) = (BlockCompressor::new(1), chunk());
    // Holds the only permit until `go` is sent.
    let (busy, go) = (Arc::new(Notify::new()), sync_channel::<()>(0));
    let started = Arc::clone(&busy);
    let first = tokio::spawn(compressor.clone().once(0, move |_| {
        started.notify_one();
        go.1.recv().unwrap();
        Ok(())
    }));
    busy.notified().await;
    let leaver = compressor
        .clone()
        .shared(Arc::clone(&chunk), BlockFormat::Whole, |_, _| {
            panic!("the client of this block has left")
        });
    let mut leaver = Box::pin(leaver);
    assert!(is_pending(leaver.as_mut()));
    let mut stayer = Box::pin(compressor.shared(Arc::clone(&chunk), BlockFormat::Whole, write_all));
    assert!(is_pending(stayer.as_mut()));
    drop(leaver);
    go.0.send(()).unwrap();
    assert_eq!(stayer.await.unwrap().0.len, 2);
    first.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_block_is_finished_after_its_client_left() {
    let (compressor, chunk) = (BlockCompressor::new(1), chunk());
    let (busy, go) = (Arc::new(Notify::new()), sync_channel::<()>(0));
    let started = Arc::clone(&busy);
    let leaver = tokio::spawn(compressor.clone().shared(
        Arc::clone(&chunk),
        BlockFormat::Whole,
        move |objects, encoder| {
            started.notify_one();
            go.1.recv().unwrap();
            write_all(objects, encoder)
        },
    ));
    busy.notified().await;
    leaver.abort();
    let stayer = compressor.shared(Arc::clone(&chunk), BlockFormat::Whole, |_, _| {
        panic!("another client compresses this block")
    });
    let mut stayer = Box::pin(stayer);
    assert!(is_pending(stayer.as_mut()));
    go.0.send(()).unwrap();
    assert_eq!(stayer.await.unwrap().0.len, 2);
}

#[tokio::test]
async fn a_panic_fails_its_own_client_only() {
    let (compressor, chunk) = (BlockCompressor::new(1), chunk());
    let bad = compressor
        .clone()
        .shared(Arc::clone(&chunk), BlockFormat::Whole, |_, _| {
            panic!("planted")
        });
    assert_eq!(bad.await, Err(CompressError));
    let good = compressor.shared(Arc::clone(&chunk), BlockFormat::Whole, write_all);
    assert_eq!(good.await.unwrap().0.len, 2);
}

/// The work of one client, however much there is, delays another client by one block.
#[tokio::test]
async fn clients_take_turns() {
    let peer = |number| Peer::from(std::net::IpAddr::from([10, 0, 0, number]));
    let compressor = BlockCompressor::new(1);
    let (go, begun) = (sync_channel::<()>(0), Arc::new(Notify::new()));
    let started = Arc::clone(&begun);
    let first = tokio::spawn(compressor.for_peer(peer(1)).once(1, move |_| {
        started.notify_one();
        go.1.recv().unwrap();
        Ok(())
    }));
    begun.notified().await;
    let order = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let mut jobs = Vec::new();
    for number in [1, 1, 1, 2] {
        let order = Arc::clone(&order);
        let compressor = compressor.for_peer(peer(number));
        let mut job = Box::pin(compressor.once(1, move |_| {
            order.lock().push(number);
            Ok(())
        }));
        assert!(is_pending(job.as_mut()), "it waits");
        jobs.push(job);
    }
    // Their tasks begin to wait.
    tokio::task::yield_now().await;
    go.0.send(()).unwrap();
    first.await.unwrap().unwrap();
    futures::future::join_all(jobs).await;
    assert!(order.lock()[..2].contains(&2), "{:?}", order.lock());
}

/// A response whose client takes nothing is not polled.
#[tokio::test]
async fn who_is_not_polled_keeps_no_permit() {
    let compressor = BlockCompressor::new(1);
    let (go, begun) = (sync_channel::<()>(0), Arc::new(Notify::new()));
    let started = Arc::clone(&begun);
    let first = tokio::spawn(compressor.clone().once(1, move |_| {
        started.notify_one();
        go.1.recv().unwrap();
        Ok(())
    }));
    begun.notified().await;
    let idle = || Box::pin(compressor.clone().once(1, |_| Ok(())));
    let mut idle = [idle(), idle()];
    for idle in &mut idle {
        assert!(is_pending(idle.as_mut()));
    }
    // So that they wait for the permit before the next one does.
    tokio::task::yield_now().await;
    go.0.send(()).unwrap();
    first.await.unwrap().unwrap();
    compressor.once(1, |_| Ok(())).await.unwrap();
    drop(idle);
}
