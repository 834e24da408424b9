//! A bounded pipe between a task that sends or receives a cache's state and the thread that writes or reads it. A state that was cut is an
//! error at the other end, never a shorter state.

use std::io::{self, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use http_body::{Body, Frame};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::blocking;

/// Chunks in a pipe. A chunk that is written has about 256 KiB, so a slow reader holds a megabyte.
#[cfg(not(feature = "sim"))]
const CHUNKS_MAX: usize = 4;
/// In a simulation neither end can wait for the other.
#[cfg(feature = "sim")]
const CHUNKS_MAX: usize = 1 << 16;

enum PipeItem {
    Chunk(Bytes),
    /// The state is complete.
    End,
}

pub(super) struct PipeSender(mpsc::Sender<PipeItem>);

/// The receiving end, for a thread: a file, as long as the sender has not failed.
pub(super) struct PipeReader {
    items: mpsc::Receiver<PipeItem>,
    chunk: Bytes,
    has_ended: bool,
}

/// The receiving end, as the body of a response.
pub(crate) struct PipeBody {
    items: mpsc::Receiver<PipeItem>,
    len: u64,
    has_ended: bool,
    on_end: Option<OnEnd>,
}

/// Gets the number of bytes that were taken from a body, and whether they are all.
type OnEnd = Box<dyn FnOnce(u64, bool) + Send>;

/// The sending end, for a thread: waits for its reader, but not longer than allowed.
pub(super) struct PipeWriter {
    sender: PipeSender,
    runtime: Handle,
    stall_max: Duration,
    give_up_at: Instant,
    buffer: Vec<u8>,
}

/// The receiver has failed or is gone.
#[derive(Debug)]
pub(super) struct PipeError;

/// A pipe to a thread.
pub(super) fn to_thread() -> (PipeSender, PipeReader) {
    let (sender, items) = mpsc::channel(CHUNKS_MAX);
    let reader = PipeReader {
        items,
        chunk: Bytes::new(),
        has_ended: false,
    };
    (PipeSender(sender), reader)
}

/// A pipe to a response. The response may take nothing for at most `stall_max`, and must be complete at `give_up_at`.
pub(super) fn to_response(stall_max: Duration, give_up_at: Instant) -> (PipeWriter, PipeBody) {
    let (sender, items) = mpsc::channel(CHUNKS_MAX);
    let writer = PipeWriter {
        sender: PipeSender(sender),
        runtime: Handle::current(),
        stall_max,
        give_up_at,
        buffer: Vec::new(),
    };
    let body = PipeBody {
        items,
        len: 0,
        has_ended: false,
        on_end: None,
    };
    (writer, body)
}

impl PipeBody {
    /// Calls `on_end` when the body was read to its end, or was dropped before.
    pub(super) fn on_end(mut self, on_end: impl FnOnce(u64, bool) + Send + 'static) -> Self {
        self.on_end = Some(Box::new(on_end));
        self
    }
}

impl Drop for PipeBody {
    fn drop(&mut self) {
        if let Some(on_end) = self.on_end.take() {
            on_end(self.len, self.has_ended);
        }
    }
}

impl PipeSender {
    pub(super) async fn send(&self, chunk: Bytes) -> Result<(), PipeError> {
        self.0
            .send(PipeItem::Chunk(chunk))
            .await
            .map_err(|_| PipeError)
    }

    /// Tells the receiver that the state is complete. Without this call it was cut.
    pub(super) async fn end(self) -> Result<(), PipeError> {
        self.0.send(PipeItem::End).await.map_err(|_| PipeError)
    }
}

impl PipeReader {
    /// Lets `work` read the pipe on a thread for blocking work.
    #[cfg(not(feature = "sim"))]
    pub(super) fn read_by<T: Send + 'static>(
        self,
        work: impl FnOnce(Self) -> T + Send + 'static,
    ) -> JoinHandle<T> {
        blocking::spawn_blocking(move || work(self))
    }

    /// Lets `work` read the pipe once everything has arrived.
    #[cfg(feature = "sim")]
    pub(super) fn read_by<T: Send + 'static>(
        mut self,
        work: impl FnOnce(Self) -> T + Send + 'static,
    ) -> JoinHandle<T> {
        tokio::spawn(async move {
            let mut arrived = Vec::new();
            while let Some(item) = self.items.recv().await {
                match item {
                    PipeItem::Chunk(chunk) => arrived.extend_from_slice(&chunk),
                    PipeItem::End => self.has_ended = true,
                }
            }
            self.chunk = arrived.into();
            work(self)
        })
    }

    #[cfg(not(feature = "sim"))]
    fn next(&mut self) -> Option<PipeItem> {
        self.items.blocking_recv()
    }

    #[cfg(feature = "sim")]
    fn next(&mut self) -> Option<PipeItem> {
        self.items.try_recv().ok()
    }
}

impl Read for PipeReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.chunk.is_empty() && !self.has_ended {
            match self.next() {
                Some(PipeItem::Chunk(chunk)) => self.chunk = chunk,
                Some(PipeItem::End) => self.has_ended = true,
                None => return Err(io::Error::other("it was cut")),
            }
        }
        let len = self.chunk.len().min(out.len());
        self.chunk.copy_to_slice(&mut out[..len]);
        Ok(len)
    }
}

impl PipeWriter {
    /// Tells the response that the state is complete.
    pub(super) fn end(mut self) -> io::Result<()> {
        self.flush()?;
        self.send(PipeItem::End)
    }

    fn send(&self, item: PipeItem) -> io::Result<()> {
        let stalled_at = Instant::now() + self.stall_max;
        let sent = timeout_at(stalled_at.min(self.give_up_at), self.sender.0.send(item));
        match blocking::block_on(&self.runtime, sent)? {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(io::ErrorKind::BrokenPipe.into()),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

impl Write for PipeWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    /// Sends what was written since the last time. Called after each block.
    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let chunk = Bytes::from(std::mem::take(&mut self.buffer));
        self.send(PipeItem::Chunk(chunk))
    }
}

impl Body for PipeBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = self.get_mut();
        if this.has_ended {
            return Poll::Ready(None);
        }
        Poll::Ready(match ready!(this.items.poll_recv(context)) {
            Some(PipeItem::Chunk(chunk)) => {
                this.len += chunk.len() as u64;
                Some(Ok(Frame::data(chunk)))
            }
            Some(PipeItem::End) => {
                this.has_ended = true;
                None
            }
            None => Some(Err(io::Error::other("the state was cut"))),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt as _;
    use tokio::task::spawn_blocking;

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn sent_bytes_are_read_and_a_truncation_is_an_error() {
        for is_whole in [true, false] {
            let (sender, mut reader) = to_thread();
            let read = spawn_blocking(move || {
                let mut all = Vec::new();
                reader.read_to_end(&mut all).map(|_| all)
            });
            for chunk in ["", "ab", "c"] {
                sender.send(Bytes::from(chunk)).await.unwrap();
            }
            match is_whole {
                true => sender.end().await.unwrap(),
                false => drop(sender),
            }
            let read = read.await.unwrap();
            assert_eq!(read.ok(), is_whole.then(|| b"abc".to_vec()));
        }
    }

    #[tokio::test]
    async fn a_response_is_whole_or_ends_with_an_error() {
        for is_whole in [true, false] {
            let (mut writer, body) = to_response(MINUTE, Instant::now() + MINUTE);
            let (sender, ended) = tokio::sync::oneshot::channel();
            let body = body.on_end(move |len, is_whole| sender.send((len, is_whole)).unwrap());
            let written = spawn_blocking(move || {
                writer.write_all(b"abc")?;
                match is_whole {
                    true => writer.end(),
                    false => writer.flush(),
                }
            });
            let body = body.collect().await;
            written.await.unwrap().unwrap();
            let body = body.ok().map(http_body_util::Collected::to_bytes);
            assert_eq!(body, is_whole.then(|| Bytes::from("abc")));
            assert_eq!(ended.await, Ok((3, is_whole)));
        }
    }

    /// The whole state was in the pipe, but its reader left.
    #[tokio::test]
    async fn a_response_that_is_not_read_to_its_end_was_cut() {
        let (mut writer, body) = to_response(MINUTE, Instant::now() + MINUTE);
        let (sender, ended) = tokio::sync::oneshot::channel();
        let mut body = body.on_end(move |len, is_whole| sender.send((len, is_whole)).unwrap());
        let written = spawn_blocking(move || {
            writer.write_all(b"abc")?;
            writer.end()
        });
        written.await.unwrap().unwrap();
        assert!(body.frame().await.unwrap().is_ok());
        drop(body);
        assert_eq!(ended.await, Ok((3, false)));
    }

    #[tokio::test]
    async fn a_reader_that_takes_nothing_is_not_waited_for() {
        let (mut writer, body) = to_response(Duration::ZERO, Instant::now() + MINUTE);
        let written = spawn_blocking(move || {
            for _ in 0..=CHUNKS_MAX {
                writer.write_all(b"a")?;
                writer.flush()?;
            }
            Ok::<_, io::Error>(())
        });
        let error = written.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(body);
    }
}
