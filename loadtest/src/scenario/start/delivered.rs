//! A client that sends a gateway's request for initial events and drops them: no cache can be ready earlier. It only looks for their end.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::Method;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube_fanout::resource::Encoding;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::target::Target;
use crate::wire::response::{Progress, Response};
use crate::wire::search::StreamSearch;

/// The query of a gateway's first watch.
const QUERY: &str = "allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&timeoutSeconds=600&watch=true";
/// The annotation of the bookmark behind the initial events (KEP-3157), in either encoding.
const MARKER: &[u8] = b"k8s.io/initial-events-end";
/// Length of a read: more than a socket buffers.
const READ_LEN: usize = 256 << 10;
const STREAM_WINDOW_LEN: u32 = 16 << 20;
const CONNECTION_WINDOW_LEN: u32 = 64 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Read by a plain loop.
    Http1,
    Http2,
}

impl Protocol {
    /// The protocol that a gateway uses with this server.
    pub const fn of(target: &Target) -> Self {
        if target.tls.is_some() {
            Self::Http2
        } else {
            Self::Http1
        }
    }
}

/// A complete delivery of initial events.
#[derive(Clone, Copy, Debug)]
pub struct Delivery {
    /// From before the connection until the marker.
    pub duration: Duration,
    /// Bytes of the body, up to the piece with the marker.
    pub len: u64,
}

/// Receives the initial events of a collection.
pub async fn deliver(
    target: &Target,
    path: &str,
    protocol: Protocol,
    encoding: Encoding,
    wait: Duration,
) -> Result<Delivery> {
    let path = format!("{path}?{QUERY}");
    let started = Instant::now();
    let receiving = async {
        match protocol {
            Protocol::Http1 => over_http1(target, &path, encoding).await,
            Protocol::Http2 => over_http2(target, &path, encoding).await,
        }
    };
    let len = tokio::time::timeout(wait, receiving)
        .await
        .with_context(|| format!("{path}: no end of the initial events within {wait:?}"))??;
    Ok(Delivery {
        duration: started.elapsed(),
        len,
    })
}

async fn over_http1(target: &Target, path: &str, encoding: Encoding) -> Result<u64> {
    let mut stream = target.connect("http/1.1").await?;
    let request = target.fetch_text_as(path, encoding.media_type());
    stream.write_all(&request).await?;
    stream.flush().await?;
    let mut response = Response::default();
    let mut search = StreamSearch::new(MARKER);
    let mut buffer = vec![0; READ_LEN];
    while search.count() == 0 {
        let len = stream.read(&mut buffer).await?;
        ensure!(len > 0, "{path}: closed before the initial events' end");
        let progress = response.feed(&buffer[..len], |_, data| search.feed(data))?;
        if let Some(head) = response.head() {
            ensure!(head.status == 200, "{path}: {}", head.status);
        }
        if matches!(progress, Progress::Complete(_)) && search.count() == 0 {
            bail!("{path}: over before the initial events' end");
        }
    }
    Ok(search.len())
}

async fn over_http2(target: &Target, path: &str, encoding: Encoding) -> Result<u64> {
    let stream = target.connect("h2").await?;
    let (mut sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(STREAM_WINDOW_LEN)
        .initial_connection_window_size(CONNECTION_WINDOW_LEN)
        .handshake(TokioIo::new(stream))
        .await
        .context("HTTP/2")?;
    // Ends when the sender is dropped.
    tokio::spawn(connection);
    let request = target.request(Method::GET, &target.url(path));
    let request = request
        .header("accept", encoding.media_type())
        .body(Empty::<Bytes>::new())?;
    sender.ready().await?;
    let response = sender.send_request(request).await?;
    ensure!(response.status() == 200, "{path}: {}", response.status());
    let mut body = response.into_body();
    let mut search = StreamSearch::new(MARKER);
    while search.count() == 0 {
        let frame = body.frame().await;
        let frame =
            frame.with_context(|| format!("{path}: over before the initial events' end"))??;
        if let Some(data) = frame.data_ref() {
            search.feed(data);
        }
    }
    Ok(search.len())
}

#[cfg(test)]
mod tests {
    //! The end is found after all events.

    use kube_fanout_testkit::apiserver::{Options, start};
    use tokio::net::TcpListener;

    use super::*;
    use crate::pods::{Fleet, seed};

    #[tokio::test]
    async fn all_initial_events_come_before_the_end() {
        const WAIT: Duration = Duration::from_secs(60);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = start(listener, Options::default()).unwrap();
        let target = Target::new(&format!("http://{}", server.address()), None, None).unwrap();
        let len = async || {
            let path = "/api/v1/pods";
            let delivery = deliver(&target, path, Protocol::Http1, Encoding::Json, WAIT).await;
            delivery.unwrap().len
        };
        let without = len().await;
        let fleet = Fleet {
            pods: 40,
            namespaces: 3,
            nodes: 2,
        };
        let seeded = seed(&target, fleet).await.unwrap();
        assert_eq!(seeded.count, fleet.pods);
        let each = (len().await - without) / fleet.pods as u64;
        // Versions and names differ by a byte or two.
        assert!(each.abs_diff(seeded.len as u64) < 100, "{each} {seeded:?}");
    }
}
