//! The first bytes of a connection: which HTTP they speak, and that they come in time. hyper waits for them for ever.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use crate::transport::Transport;

/// What HTTP/2 begins with (RFC 9113 §3.4).
pub(crate) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// No HTTP/1.1 method starts like this.
const MARK: &[u8] = b"PRI ";
/// Most heads are shorter, and read with this.
const FIRST_LEN: usize = 2 << 10;

/// Whether the client speaks HTTP/2 with prior knowledge. What it takes to know is put back. `None` when the client says nothing,
/// or less, and leaves.
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

/// A stream whose preface has been read; it is given out once more before the rest.
#[derive(Debug)]
pub(crate) struct PrefacedStream<S> {
    stream: S,
    /// What of the preface is still to be given out.
    first: &'static [u8],
}

/// Why a stream has no preface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoPreface {
    /// The client sent something else.
    Wrong,
    /// It went away.
    Gone,
}

impl<S: AsyncRead + Unpin> PrefacedStream<S> {
    /// Reads the preface and no more. Ends with the first wrong byte.
    pub(crate) async fn read(mut stream: S) -> Result<Self, NoPreface> {
        let mut read = 0;
        let mut bytes = [0; PREFACE.len()];
        while read < PREFACE.len() {
            let len = stream.read(&mut bytes[read..]).await;
            let len = len.map_err(|_| NoPreface::Gone)?;
            if len == 0 {
                return Err(NoPreface::Gone);
            }
            read += len;
            if bytes[..read] != PREFACE[..read] {
                return Err(NoPreface::Wrong);
            }
        }
        Ok(Self {
            stream,
            first: PREFACE,
        })
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for PrefacedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.first.is_empty() {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        let len = self.first.len().min(buffer.remaining());
        let (now, later) = self.first.split_at(len);
        buffer.put_slice(now);
        self.first = later;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for PrefacedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Future, poll_fn};
    use std::time::Duration;

    use tokio::io::AsyncWriteExt;

    use super::*;

    /// Sends `bytes` one at a time, then closes.
    async fn read(bytes: &'static [u8]) -> Result<Vec<u8>, NoPreface> {
        let (mut client, server) = tokio::io::duplex(1);
        let sent = async move {
            // A peer that has seen enough closes.
            let _ = client.write_all(bytes).await;
        };
        let received = async {
            let mut begun = PrefacedStream::read(server).await?;
            let mut all = Vec::new();
            begun.read_to_end(&mut all).await.unwrap();
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
    async fn anything_else_is_no_preface() {
        assert_eq!(read(b"").await, Err(NoPreface::Gone));
        assert_eq!(read(b"PRI * HTTP/2.0\r\n").await, Err(NoPreface::Gone));
        assert_eq!(read(b"PRI * HTTP/1.1\r\n\r\n").await, Err(NoPreface::Wrong));
        assert_eq!(read(b"GET / HTTP/1.1\r\n").await, Err(NoPreface::Wrong));
    }

    /// What is found out about a client that sends these bytes one in ten seconds and then leaves, how often that looked, and what
    /// can be read afterwards.
    async fn found(bytes: &'static [u8]) -> (Option<bool>, usize, Vec<u8>) {
        let (mut client, server) = tokio::io::duplex(64);
        let looking = tokio::spawn(async move {
            let (mut transport, mut looks) = (Transport::from(server), 0);
            let found = {
                let mut found = std::pin::pin!(speaks_http2(&mut transport));
                poll_fn(|context| {
                    looks += 1;
                    found.as_mut().poll(context)
                })
                .await
            };
            let mut rest = Vec::new();
            transport.read_to_end(&mut rest).await.unwrap();
            (found, looks, rest)
        });
        for byte in bytes {
            client.write_all(&[*byte]).await.unwrap();
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
        drop(client);
        looking.await.unwrap()
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
            let (speaks, looks, rest) = found(bytes).await;
            assert_eq!(speaks, expected, "{bytes:?}");
            assert!(looks <= MARK.len() + 1, "{bytes:?}: {looks}");
            if speaks.is_some() {
                assert_eq!(rest, bytes);
            }
        }
    }
}
