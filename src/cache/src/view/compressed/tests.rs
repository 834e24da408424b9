//! Whatever a client had before, the blocks that it gets give the view's events.

use std::io::Read;

use flate2::read::DeflateDecoder;
use proptest::prelude::*;

use super::*;

/// An event of a pod, of which two are alike but for some numbers.
fn event(number: usize, len: usize) -> Vec<u8> {
    let mut event =
        format!("{{\"type\":\"MODIFIED\",\"object\":{{\"name\":\"pod-{number}\"").into_bytes();
    let mut state = number as u64 | 1;
    while event.len() < len {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        event.extend_from_slice(
            format!(",\"field{}\":\"{:x}\"", event.len() % 97, state >> 48).as_bytes(),
        );
    }
    event.push(b'\n');
    event
}

/// What one client was sent, as deflate and as it was before.
#[derive(Default)]
struct Client {
    sent: Vec<u8>,
    plain: Vec<u8>,
    following: usize,
}

impl Client {
    fn take(&mut self, block: &BatchBlock, frames: &[u8]) {
        let is_following = self.following >= block.reach();
        self.sent.extend_from_slice(match is_following {
            true => block.following(),
            false => block.independent(frames),
        });
        self.plain.extend_from_slice(frames);
        self.following += frames.len();
    }

    fn take_alone(&mut self, bytes: &[u8]) {
        self.sent.extend_from_slice(&stored(bytes));
        self.plain.extend_from_slice(bytes);
        self.following = 0;
    }

    #[track_caller]
    fn assert_complete(&mut self) {
        self.sent.extend_from_slice(&[1, 0, 0, 0xff, 0xff]);
        let mut decoded = Vec::new();
        let mut decoder = DeflateDecoder::new(&self.sent[..]);
        decoder.read_to_end(&mut decoded).unwrap();
        assert!(decoded == self.plain, "{} bytes", decoded.len());
    }
}

fn batches() -> CompressedBatches {
    let batches = CompressedBatches::default();
    batches.enter(1);
    batches
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn clients_with_anything_in_between_decode_the_view(
        lens in prop::collection::vec(prop_oneof![0_usize..200, 200_usize..6000, 60_000_usize..70_000], 1..24),
        // For each client and batch: whether something else comes before it, and whether the client gets it from elsewhere.
        steps in prop::collection::vec(prop::collection::vec(0_u8..8, 24), 1..6),
        watches_min in 1_usize..3,
        starts_at in 0_u64..3,
    ) {
        let batches = batches();
        let mut clients: Vec<_> = steps.iter().map(|_| Client::default()).collect();
        for (number, len) in lens.into_iter().enumerate() {
            let frames = event(number, len);
            for (client, steps) in clients.iter_mut().zip(&steps) {
                match steps[number] {
                    0 => client.take_alone(b"{\"type\":\"BOOKMARK\"}\n"),
                    1 => {
                        client.take_alone(&frames);
                        continue;
                    }
                    _ => {}
                }
                let block = batches.block(starts_at + number as u64, &frames, watches_min);
                prop_assert_eq!(block.sum(), Checksum::of(&frames));
                client.take(&block, &frames);
            }
        }
        clients.iter_mut().for_each(Client::assert_complete);
    }
}

#[test]
fn a_batch_is_compressed_once_and_like_the_one_before_it() {
    let batches = batches();
    let frames: Vec<_> = (0..20).map(|number| event(number, 4000)).collect();
    let mut before = 0;
    for (at, frames) in frames.iter().enumerate() {
        let block = batches.block(at as u64, frames, 1);
        assert!(Arc::ptr_eq(&block, &batches.block(at as u64, frames, 1)));
        assert_eq!(block.reach(), REACH.min(before));
        before += frames.len();
    }
    let last = batches.block(19, &frames[19], 1);
    assert!(last.following().len() * 2 < last.independent(&frames[19]).len());
    // One that is no longer kept stands for itself, and the next one follows those that came before.
    assert_eq!(batches.block(0, &frames[0], 1).reach(), 0);
    let next = event(20, 4000);
    assert_eq!(batches.block(20, &next, 1).reach(), REACH);
}

#[test]
fn for_few_watches_and_short_batches_nothing_is_compressed() {
    let batches = batches();
    let frames = event(0, 4000);
    let is_stored = |block: &BatchBlock, frames: &[u8]| {
        block.following().len() == frames.len() + 2 * SYNC.len() && block.reach() == 0
    };
    assert!(is_stored(&batches.block(0, &frames, 2), &frames));
    batches.enter(1);
    let short = event(1, 1);
    assert!(is_stored(&batches.block(1, &short, 2), &short));
    let block = batches.block(2, &frames, 2);
    assert!(block.following().len() < frames.len() / 2);
}

#[test]
fn nothing_is_kept_for_nobody() {
    let batches = batches();
    let frames = event(0, 4000);
    let _ = batches.block(0, &frames, 1);
    batches.leave(1);
    assert_eq!(batches.kept.lock().tail.capacity(), 0);
    // Nor for fewer watches than would be compressed for.
    batches.enter(1);
    let _ = batches.block(1, &frames, 1);
    let _ = batches.block(2, &frames, 2);
    assert_eq!(batches.kept.lock().tail.capacity(), 0);
    assert_eq!(batches.block(3, &frames, 1).reach(), 0);
}

#[test]
fn a_batch_that_would_keep_a_thread_is_not_compressed() {
    let batches = batches();
    let before = event(0, 4000);
    let _ = batches.block(0, &before, 1);
    let long = event(1, LEN_MAX + 1);
    let block = batches.block(1, &long, 1);
    assert!(block.reach() == 0 && block.following().len() > long.len());
    assert_eq!(batches.block(2, &before, 1).reach(), 0);
    assert_eq!(batches.block(3, &before, 1).reach(), before.len());
}

#[test]
fn what_is_kept_is_bounded() {
    let batches = batches();
    let mut noise = vec![0; 100 << 10];
    let mut state = 1_u64;
    for at in 0..20 {
        for byte in &mut noise {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            *byte = (state >> 56) as u8;
        }
        let block = batches.block(at, &noise, 1);
        assert!(block.following().len() < noise.len() + 64);
        let kept = batches.kept.lock();
        assert!(kept.len <= KEPT_LEN && kept.blocks.len() <= KEPT_BLOCKS);
        assert!(kept.tail.len() <= REACH);
    }
}
