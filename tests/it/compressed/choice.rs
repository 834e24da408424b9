//! Which watches are compressed.

use kube_fanout::config::CompressWatches;
use tokio::net::TcpStream;

use super::client::{Asked, Client};
use super::stage::Stage;
use super::{CONFIGMAPS, WATCH};
use crate::hostile::wire::{read_until, send};
use crate::support::client::HttpVersion;

const SECRETS: &str = "/api/v1/secrets?watch=1";
const JAVA: &str = "Java/17.0.2";
const JAVA_HTTP: &str = "Java-http-client/17.0.2";
/// A text frame of less than 64 KiB, and how its event begins.
const TEXT: u8 = 0x81;
const ADDED: &[u8] = br#"{"type":"ADDED""#;

/// A client that has read its first event. It must stay: clients that leave compressed watches are answered otherwise.
async fn opened(stage: &Stage, http: HttpVersion, asked: &Asked<'_>) -> Client {
    let mut client = Client::open(http, stage.gateway.address, asked).await;
    let resource = if asked.target == SECRETS {
        "secrets"
    } else {
        CONFIGMAPS
    };
    let name = stage.create(resource, 1_000).await;
    client.until(&name).await;
    client
}

/// What clients ask for, and whether `auto` and `always` compress it.
fn cases() -> [(Asked<'static>, bool, bool); 9] {
    let asked = Asked::default();
    [
        (asked.clone(), true, true),
        (
            Asked {
                encoding: "deflate, gzip",
                ..asked.clone()
            },
            true,
            true,
        ),
        (
            Asked {
                encoding: "identity",
                ..asked.clone()
            },
            false,
            false,
        ),
        (
            Asked {
                encoding: "gzip;q=1.0",
                ..asked.clone()
            },
            false,
            false,
        ),
        // A gateway's own, whatever it is called.
        (
            Asked {
                encoding: "x-gzip",
                agent: JAVA,
                ..asked.clone()
            },
            true,
            true,
        ),
        (
            Asked {
                agent: JAVA,
                ..asked.clone()
            },
            false,
            true,
        ),
        (
            Asked {
                agent: JAVA_HTTP,
                ..asked.clone()
            },
            false,
            true,
        ),
        // The official client of Java reads as it comes, by OkHttp.
        (
            Asked {
                agent: "Kubernetes Java Client/22.0.0",
                ..asked.clone()
            },
            true,
            true,
        ),
        (
            Asked {
                target: SECRETS,
                ..asked.clone()
            },
            false,
            true,
        ),
    ]
}

/// Compares what is compressed with what must be: by `auto` if so, and by `always` if at all.
async fn check(which: CompressWatches) {
    let stage = Stage::with(which).await;
    let mut clients = Vec::new();
    for (asked, auto, always) in cases() {
        let expected = match which {
            CompressWatches::Auto => auto,
            CompressWatches::Always => always,
            CompressWatches::Never => false,
        };
        for http in [HttpVersion::One, HttpVersion::Two] {
            let client = opened(&stage, http, &asked).await;
            assert_eq!(client.is_gzip(), expected, "{which:?} {asked:?}");
            clients.push(client);
        }
    }
    check_websocket(&stage).await;
    drop(clients);
    stage.end().await;
}

/// A watch over WebSocket says what it says in its frames.
async fn check_websocket(stage: &Stage) {
    let mut stream = TcpStream::connect(stage.gateway.address).await.unwrap();
    let request = format!(
        "GET {WATCH} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nOrigin: http://a\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nAccept-Encoding: gzip\r\n\r\n"
    );
    send(&mut stream, request.as_bytes()).await;
    let end = |read: &[u8]| memchr::memmem::find(read, b"\r\n\r\n").map(|at| at + 4);
    let mut read = read_until(&mut stream, |read| end(read).is_some()).await;
    let frames = read.split_off(end(&read).unwrap());
    let head = String::from_utf8(read).unwrap().to_lowercase();
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    assert!(
        !head.contains("content-encoding") && !head.contains("vary"),
        "{head}"
    );
    // There is at least one event.
    stage.create(CONFIGMAPS, 1_000).await;
    let begin_len = 4 + ADDED.len();
    let mut first = frames;
    if first.len() < begin_len {
        let missing = begin_len - first.len();
        first.extend(read_until(&mut stream, |read| read.len() >= missing).await);
    }
    assert!(
        first[0] == TEXT && first[4..].starts_with(ADDED),
        "{}",
        first.escape_ascii()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn auto_leaves_out_secrets_and_clients_that_would_read_late() {
    check(CompressWatches::Auto).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn always_compresses_for_all_who_accept_it() {
    check(CompressWatches::Always).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn never_compresses_nothing() {
    check(CompressWatches::Never).await;
}
