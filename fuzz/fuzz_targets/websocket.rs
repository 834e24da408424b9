//! Splitting a WebSocket client's bytes into any chunks gives the same messages, and the pings that a simple reader finds; the memory
//! kept for pings is bounded. The first four bytes are the lengths of the chunks, repeated.
#![no_main]

use kube_fanout::protocol::websocket::{ClientFrames, ControlRequest};
use libfuzzer_sys::fuzz_target;

const PING_LEN_MAX: usize = 125;

fn requests_in<'a>(chunks: impl Iterator<Item = &'a [u8]>) -> Vec<ControlRequest> {
    let mut frames = ClientFrames::default();
    let mut requests = Vec::new();
    for mut chunk in chunks {
        while let Some(request) = frames.next(&mut chunk) {
            assert!(
                !matches!(
                    requests.last(),
                    Some(ControlRequest::Close | ControlRequest::Unmasked)
                ),
                "no request is reported after the end"
            );
            requests.push(request);
        }
        assert!(chunk.is_empty(), "all bytes are consumed");
    }
    requests
}

/// The same by the specification (RFC 6455 §5.2), with all bytes available.
fn expected(mut bytes: &[u8]) -> Vec<ControlRequest> {
    let mut requests = Vec::new();
    while let [kind, len, rest @ ..] = bytes {
        if len & 0x80 == 0 {
            requests.push(ControlRequest::Unmasked);
            break;
        }
        let extended = match len & 0x7f {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let Some((number, rest)) = rest.split_at_checked(extended) else {
            break;
        };
        let Some((mask, rest)) = rest.split_first_chunk::<4>() else {
            break;
        };
        if kind & 0xf == 8 {
            requests.push(ControlRequest::Close);
            break;
        }
        let len = match number {
            [] => u64::from(len & 0x7f),
            _ => number
                .iter()
                .fold(0, |len, byte| len << 8 | u64::from(*byte)),
        };
        let split = usize::try_from(len)
            .ok()
            .and_then(|len| rest.split_at_checked(len));
        let Some((payload, rest)) = split else {
            break;
        };
        if kind & 0xf == 9 {
            let unmasked = payload.iter().zip(mask.iter().cycle());
            let unmasked = unmasked.map(|(byte, mask)| byte ^ mask).take(PING_LEN_MAX);
            requests.push(ControlRequest::Ping(unmasked.collect()));
        }
        bytes = rest;
    }
    requests
}

fuzz_target!(|input: &[u8]| {
    let Some((cuts, bytes)) = input.split_first_chunk::<4>() else {
        return;
    };
    let mut left = bytes;
    let mut cuts = cuts.iter().cycle();
    let chunks = std::iter::from_fn(|| {
        let len = cuts.next().map_or(1, |len| usize::from(*len).max(1));
        let (chunk, rest) = left.split_at_checked(len).unwrap_or((left, &[]));
        left = rest;
        (!chunk.is_empty()).then_some(chunk)
    });
    let expected = expected(bytes);
    assert_eq!(requests_in(chunks), expected);
    assert_eq!(requests_in(std::iter::once(bytes)), expected);
});
