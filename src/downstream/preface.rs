//! The first bytes of a connection: which HTTP they speak, and that they come in time. hyper waits for them for ever.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

/// What HTTP/2 begins with (RFC 9113 §3.4).
pub(super) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// No HTTP/1.1 method starts like this.
const MARK: &[u8] = b"PRI ";
const PEEK_PAUSE: Duration = Duration::from_millis(5);

/// Whether the client speaks HTTP/2 with prior knowledge. `None` when it says nothing and leaves.
pub(super) async fn speaks_http2(stream: &TcpStream) -> Option<bool> {
    let mut first = [0; MARK.len()];
    let mut seen_before = 0;
    loop {
        let seen = stream.peek(&mut first).await.ok()?;
        if seen == 0 {
            return None;
        }
        if first[..seen] != MARK[..seen] {
            return Some(false);
        }
        if seen == MARK.len() {
            return Some(true);
        }
        // Peeking is ready again at once while bytes wait: a client that sends them singly is given time, unless it
        // has said that no more is coming, which peeking cannot tell.
        if seen == seen_before {
            if stream
                .ready(Interest::READABLE)
                .await
                .ok()?
                .is_read_closed()
            {
                return None;
            }
            tokio::time::sleep(PEEK_PAUSE).await;
        }
        seen_before = seen;
    }
}

/// A stream whose preface has been read; it is given out once more before the rest.
#[derive(Debug)]
pub(super) struct Begun<S> {
    stream: S,
    /// What of the preface is still to be given out.
    first: &'static [u8],
}

/// Why a stream has no preface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoPreface {
    /// The client sent something else.
    Wrong,
    /// It went away.
    Gone,
}

impl<S: AsyncRead + Unpin> Begun<S> {
    /// Reads the preface and no more. Ends with the first wrong byte.
    pub(super) async fn read(mut stream: S) -> Result<Self, NoPreface> {
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

impl<S: AsyncRead + Unpin> AsyncRead for Begun<S> {
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

impl<S: AsyncWrite + Unpin> AsyncWrite for Begun<S> {
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
            let mut begun = Begun::read(server).await?;
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
}
