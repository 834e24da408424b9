//! A TCP stream that joins small vectored writes: one event in a chunk is four slices, and copying a kilobyte costs
//! less than the kernel's handling of the list.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Up to this length slices are joined. Lives on the stack of each write.
const JOINED_LEN_MAX: usize = 4096;

/// See the module.
#[derive(Debug)]
pub(super) struct Socket(pub(super) TcpStream);

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let len: usize = slices.iter().map(|slice| slice.len()).sum();
        if slices.len() < 2 || len > JOINED_LEN_MAX {
            return Pin::new(&mut self.0).poll_write_vectored(context, slices);
        }
        let mut joined = [0; JOINED_LEN_MAX];
        let mut at = 0;
        for slice in slices {
            joined[at..at + slice.len()].copy_from_slice(slice);
            at += slice.len();
        }
        Pin::new(&mut self.0).poll_write(context, &joined[..len])
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
