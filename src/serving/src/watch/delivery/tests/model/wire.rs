//! A scripted connection: it takes as many bytes as the script allows, may hold data until it is flushed, and closes when the
//! script says so.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::stage::Stage;
use crate::cache::samples::Dice;
use crate::transport::MemoryIo;

/// The server's end of the connection, and the script's control of it.
#[derive(Clone)]
pub(super) struct Wire {
    state: Arc<Mutex<State>>,
    stage: Arc<Stage>,
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Wire")
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Client {
    Here,
    /// It has closed its sending half.
    Silent,
    Gone,
}

struct State {
    dice: Dice,
    /// What the client has received.
    received: Vec<u8>,
    /// Number of bytes that it still takes.
    room: usize,
    /// Maximum number of bytes of one write.
    write_max: u64,
    /// Data that is written but held until it is flushed, as TLS does; at most `held_max` bytes.
    held: Vec<u8>,
    held_max: usize,
    said: VecDeque<u8>,
    client: Client,
    writer: Option<Waker>,
    reader: Option<Waker>,
}

impl State {
    fn take(&mut self, bytes: &[u8]) -> usize {
        let most = 1 + self.dice.index(self.write_max);
        let len = bytes.len().min(self.room).min(most);
        self.received.extend_from_slice(&bytes[..len]);
        self.room -= len;
        len
    }

    fn write(&mut self, bytes: &[u8]) -> usize {
        if self.held_max == 0 {
            return self.take(bytes);
        }
        if self.held.len() >= self.held_max {
            self.flush();
        }
        let len = bytes.len().min(self.held_max - self.held.len());
        self.held.extend_from_slice(&bytes[..len]);
        len
    }

    /// Passes held data on; true if nothing is held any more.
    fn flush(&mut self) -> bool {
        let held = std::mem::take(&mut self.held);
        let mut at = 0;
        while at < held.len() {
            match self.take(&held[at..]) {
                0 => break,
                len => at += len,
            }
        }
        self.held = held[at..].to_vec();
        self.held.is_empty()
    }
}

impl Wire {
    /// A connection that takes nothing yet.
    pub(super) fn new(dice: &mut Dice, stage: &Arc<Stage>, write_max: u64) -> Self {
        let held_max = if dice.once_in(3) {
            1 + dice.index(write_max)
        } else {
            0
        };
        let state = State {
            dice: Dice(dice.0),
            received: Vec::new(),
            room: 0,
            write_max,
            held: Vec::new(),
            held_max,
            said: VecDeque::new(),
            client: Client::Here,
            writer: None,
            reader: None,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            stage: Arc::clone(stage),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Sets how many bytes the client takes, and wakes the writer.
    pub(super) fn open(&self, room: usize) {
        let writer = {
            let mut state = self.state();
            state.room = room;
            if room > 0 { state.writer.take() } else { None }
        };
        writer.into_iter().for_each(Waker::wake);
    }

    /// The client sends data.
    pub(super) fn say(&self, bytes: &[u8]) {
        let reader = {
            let mut state = self.state();
            state.said.extend(bytes);
            state.reader.take()
        };
        reader.into_iter().for_each(Waker::wake);
    }

    /// The client closes its sending half, or the connection.
    pub(super) fn close(&self, half: bool) {
        let wakers = {
            let mut state = self.state();
            state.client = if half { Client::Silent } else { Client::Gone };
            [state.reader.take(), state.writer.take()]
        };
        wakers.into_iter().flatten().for_each(Waker::wake);
    }

    /// What the client has received so far.
    pub(super) fn received(&self) -> Vec<u8> {
        self.state().received.clone()
    }
}

impl MemoryIo for Wire {}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stage.interrupt();
        let mut state = self.state();
        if state.client == Client::Gone {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        match state.write(bytes) {
            0 => {
                state.writer = Some(context.waker().clone());
                Poll::Pending
            }
            len => Poll::Ready(Ok(len)),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let len_max = self.state().write_max;
        let mut joined = Vec::new();
        for slice in slices {
            // Takes no more than a single write does.
            if joined.len() as u64 >= len_max {
                break;
            }
            joined.extend_from_slice(slice);
        }
        self.poll_write(context, &joined)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.state();
        if state.client == Client::Gone {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if state.flush() {
            return Poll::Ready(Ok(()));
        }
        state.writer = Some(context.waker().clone());
        Poll::Pending
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(context)
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.state();
        if !state.said.is_empty() {
            let len = state.said.len().min(buffer.remaining());
            let said: Vec<u8> = state.said.drain(..len).collect();
            buffer.put_slice(&said);
            return Poll::Ready(Ok(()));
        }
        match state.client {
            Client::Here => {
                state.reader = Some(context.waker().clone());
                Poll::Pending
            }
            Client::Silent => Poll::Ready(Ok(())),
            Client::Gone => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
        }
    }
}
