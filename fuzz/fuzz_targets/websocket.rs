//! However a client's bytes are cut into chunks, the same is heard; what is kept of them is bounded.
#![no_main]

use kube_fanout::downstream::websocket::{ClientFrames, Received};
use libfuzzer_sys::fuzz_target;

const PING_LEN_MAX: usize = 125;

fn heard<'a>(chunks: impl Iterator<Item = &'a [u8]>) -> Vec<Received> {
    let mut frames = ClientFrames::default();
    let mut heard = Vec::new();
    for mut chunk in chunks {
        while let Some(received) = frames.next(&mut chunk) {
            assert!(
                !matches!(heard.last(), Some(Received::Close | Received::Unmasked)),
                "nothing is heard after the end"
            );
            if let Received::Ping(payload) = &received {
                assert!(payload.len() <= PING_LEN_MAX);
            }
            heard.push(received);
        }
        assert!(chunk.is_empty(), "all bytes are taken");
    }
    heard
}

fuzz_target!(|input: (Vec<u8>, Vec<u8>)| {
    let (bytes, cuts) = input;
    let mut left = &bytes[..];
    let mut cuts = cuts.into_iter();
    let chunks = std::iter::from_fn(|| {
        let len = cuts.next().map_or(left.len(), usize::from);
        let (chunk, rest) = left.split_at_checked(len.max(1)).unwrap_or((left, &[]));
        left = rest;
        (!chunk.is_empty()).then_some(chunk)
    });
    assert_eq!(heard(chunks), heard(std::iter::once(&bytes[..])));
});
