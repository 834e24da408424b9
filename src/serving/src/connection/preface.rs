//! Reads the first bytes of a connection to tell which HTTP version it speaks. The caller can bound the wait; hyper has no timeout here.

use bytes::BytesMut;
use tokio::io::AsyncReadExt;

use crate::transport::Transport;

/// The HTTP/2 connection preface (RFC 9113 §3.4).
pub(crate) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Enough of the preface to tell it from HTTP/1.1: no HTTP/1.1 method starts like this.
const MARK: &[u8] = b"PRI ";
/// Initial capacity in bytes. Most heads are shorter and are read completely with this read.
const FIRST_LEN: usize = 2 << 10;

/// Whether the client speaks HTTP/2 with prior knowledge. The bytes that were read are put back. `None` if the client disconnects before
/// it has sent enough to tell.
pub(crate) async fn speaks_http2(transport: &mut Transport) -> Option<bool> {
    let mut first = BytesMut::with_capacity(FIRST_LEN);
    let speaks = loop {
        let seen = first.len().min(MARK.len());
        if first[..seen] != MARK[..seen] {
            break false;
        }
        if seen == MARK.len() {
            break true;
        }
        if transport.read_buf(&mut first).await.ok()? == 0 {
            return None;
        }
    };
    transport.put_back(&first);
    Some(speaks)
}

/// Why no preface could be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoPreface {
    /// The client sent something else.
    Wrong,
    /// The client disconnected.
    Gone,
}

/// Reads the preface and not a byte more, and puts it back. Fails at the first wrong byte.
pub(crate) async fn check_preface(transport: &mut Transport) -> Result<(), NoPreface> {
    let mut read = 0;
    let mut bytes = [0; PREFACE.len()];
    while read < PREFACE.len() {
        let len = transport
            .read(&mut bytes[read..])
            .await
            .map_err(|_| NoPreface::Gone)?;
        if len == 0 {
            return Err(NoPreface::Gone);
        }
        read += len;
        if bytes[..read] != PREFACE[..read] {
            return Err(NoPreface::Wrong);
        }
    }
    transport.put_back(PREFACE);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::future::{Future, poll_fn};
    use std::time::Duration;

    use tokio::io::AsyncWriteExt;

    use super::*;

    /// Sends `bytes` one at a time and closes; returns what the server reads after [`check_preface`].
    async fn read(bytes: &'static [u8]) -> Result<Vec<u8>, NoPreface> {
        let (mut client, server) = tokio::io::duplex(1);
        let sent = async move {
            // Fails if the server has rejected the preface and closed.
            let _ = client.write_all(bytes).await;
        };
        let received = async {
            let mut transport = Transport::from(server);
            check_preface(&mut transport).await?;
            let mut all = Vec::new();
            transport.read_to_end(&mut all).await.unwrap();
            Ok(all)
        };
        tokio::join!(sent, received).1
    }

    #[tokio::test]
    async fn a_preface_is_read_byte_by_byte_and_given_out_again() {
        let whole = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nand the rest";
        assert_eq!(read(whole).await.unwrap(), whole);
        assert_eq!(read(&whole[..24]).await.unwrap(), &whole[..24]);
    }

    #[tokio::test]
    async fn other_bytes_are_not_a_preface() {
        assert_eq!(read(b"").await, Err(NoPreface::Gone));
        assert_eq!(read(b"PRI * HTTP/2.0\r\n").await, Err(NoPreface::Gone));
        assert_eq!(read(b"PRI * HTTP/1.1\r\n\r\n").await, Err(NoPreface::Wrong));
        assert_eq!(read(b"GET / HTTP/1.1\r\n").await, Err(NoPreface::Wrong));
    }

    /// For a client that sends one of these bytes every ten seconds and then disconnects: the result of [`speaks_http2`], how often its
    /// future was polled, and what can be read afterwards.
    async fn found(bytes: &'static [u8]) -> (Option<bool>, usize, Vec<u8>) {
        let (mut client, server) = tokio::io::duplex(64);
        let server_task = tokio::spawn(async move {
            let (mut transport, mut polls) = (Transport::from(server), 0);
            let found = {
                let mut found = std::pin::pin!(speaks_http2(&mut transport));
                poll_fn(|context| {
                    polls += 1;
                    found.as_mut().poll(context)
                })
                .await
            };
            let mut rest = Vec::new();
            transport.read_to_end(&mut rest).await.unwrap();
            (found, polls, rest)
        });
        for byte in bytes {
            client.write_all(&[*byte]).await.unwrap();
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
        drop(client);
        server_task.await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_sends_little_is_looked_at_only_when_it_sends_more() {
        for (bytes, expected) in [
            (&b"PRI * HTTP/2.0"[..], Some(true)),
            (b"PUT /", Some(false)),
            (b"GET / HTTP/1.1", Some(false)),
            (b"PRI", None),
            (b"", None),
        ] {
            let (speaks, polls, rest) = found(bytes).await;
            assert_eq!(speaks, expected, "{bytes:?}");
            assert!(polls <= MARK.len() + 1, "{bytes:?}: {polls}");
            if speaks.is_some() {
                assert_eq!(rest, bytes);
            }
        }
    }
}
