//! A socket that records each write, below a [`WriteCoalescer`].

use std::future::poll_fn;
use std::task::Waker;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

/// Accepts `room` bytes in all.
#[derive(Debug, Default)]
struct Socket {
    room: usize,
    wrote: Vec<Vec<u8>>,
    flushed: usize,
    is_shut: bool,
    is_broken: bool,
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        buffer.put_slice(b"heard");
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.is_broken {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if self.room == 0 {
            return Poll::Pending;
        }
        let all = slices.iter().flat_map(|slice| slice.iter().copied());
        let bytes: Vec<u8> = all.take(self.room).collect();
        self.room -= bytes.len();
        let written = bytes.len();
        self.wrote.push(bytes);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.flushed += 1;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.is_shut = true;
        Poll::Ready(Ok(()))
    }
}

fn over(room: usize) -> WriteCoalescer<Socket> {
    let socket = Socket {
        room,
        ..Socket::default()
    };
    WriteCoalescer::new(socket, 0)
}

fn context() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

/// Writes `slices` and flushes, as h2 does; returns how many bytes were accepted, or `None` if the socket is full.
fn write(coalescer: &mut WriteCoalescer<Socket>, slices: &[&[u8]]) -> Option<usize> {
    let slices: Vec<_> = slices.iter().map(|slice| IoSlice::new(slice)).collect();
    let written = Pin::new(&mut *coalescer).poll_write_vectored(&mut context(), &slices);
    let flushed = Pin::new(coalescer).poll_flush(&mut context());
    assert!(matches!(flushed, Poll::Ready(Ok(()))));
    match written {
        Poll::Ready(written) => Some(written.unwrap()),
        Poll::Pending => None,
    }
}

fn end_turn(coalescer: &WriteCoalescer<Socket>) -> bool {
    coalescer
        .state()
        .poll_flush_buffered(&mut context())
        .is_ready()
}

#[test]
fn what_is_said_in_one_turn_leaves_in_one_write_when_it_ends() {
    let mut coalescer = over(usize::MAX);
    for word in [&b"one "[..], b"two ", b"three"] {
        assert_eq!(write(&mut coalescer, &[word]), Some(word.len()));
    }
    assert!(coalescer.state().transport.wrote.is_empty());
    assert!(end_turn(&coalescer));
    let state = coalescer.state();
    assert_eq!(state.transport.wrote, [b"one two three"]);
    assert_eq!(state.transport.flushed, 1);
    assert_eq!(
        state.buffered.capacity(),
        0,
        "an idle connection holds no memory"
    );
}

#[test]
fn what_is_beyond_the_limit_is_not_copied_and_takes_with_it_what_came_before() {
    let mut coalescer = over(usize::MAX);
    let long = vec![b'l'; BUFFERED_LEN_MAX - 8];
    write(&mut coalescer, &[b"head "]);
    assert_eq!(
        write(&mut coalescer, &[b"body ", &long]),
        Some(5 + long.len())
    );
    let state = coalescer.state();
    assert_eq!(state.transport.wrote, [[b"head body ", &long[..]].concat()]);
    assert_eq!(state.buffered.len(), 0);
}

#[test]
fn no_more_is_kept_than_the_limit() {
    let mut coalescer = over(0);
    let word = [b'w'; 1_000];
    let taken: usize = (0..1_000)
        .map_while(|_| write(&mut coalescer, &[&word]))
        .sum();
    assert_eq!(coalescer.state().buffered.len(), taken);
    assert!(taken <= BUFFERED_LEN_MAX && taken + word.len() > BUFFERED_LEN_MAX);
}

/// However little the socket accepts at a time, all bytes arrive, in order and once.
#[test]
fn a_socket_that_takes_little_gets_all_in_order() {
    let long: Vec<u8> = (0..=250).cycle().take(BUFFERED_LEN_MAX + 100).collect();
    let expected = [b"before", &long[..], b"after"].concat();
    for step in [1_usize, 3, 6, 7, 100, BUFFERED_LEN_MAX, 1 << 20] {
        let mut coalescer = over(0);
        let mut accepted = 0;
        while accepted < expected.len() || !coalescer.state().buffered.is_empty() {
            coalescer.state().transport.room = step;
            let rest = match accepted {
                0..6 => &expected[accepted..6],
                _ if accepted < 6 + long.len() => &expected[accepted..6 + long.len()],
                _ => &expected[accepted..],
            };
            if !rest.is_empty() {
                accepted += write(&mut coalescer, &[rest]).unwrap_or(0);
            }
            end_turn(&coalescer);
        }
        let arrived = coalescer.state().transport.wrote.concat();
        assert!(arrived == expected, "{step} at once");
    }
}

#[test]
fn shutting_down_first_writes_what_is_kept() {
    let mut coalescer = over(2);
    write(&mut coalescer, &[b"last"]);
    let shut =
        |coalescer: &mut WriteCoalescer<_>| Pin::new(coalescer).poll_shutdown(&mut context());
    assert!(shut(&mut coalescer).is_pending());
    coalescer.state().transport.room = usize::MAX;
    assert!(shut(&mut coalescer).is_ready());
    let state = coalescer.state();
    assert_eq!(state.transport.wrote.concat(), b"last");
    assert!(state.transport.is_shut);
}

/// Writes a word each time it is polled, and ends when that fails.
async fn write_forever(
    mut coalescer: WriteCoalescer<Socket>,
    polled: &std::cell::Cell<usize>,
) -> io::Error {
    poll_fn(|context| {
        polled.set(polled.get() + 1);
        let written = Pin::new(&mut coalescer).poll_write(context, b"word");
        match (written, Pin::new(&mut coalescer).poll_flush(context)) {
            (Poll::Ready(Err(error)), _) | (_, Poll::Ready(Err(error))) => Poll::Ready(error),
            _ => Poll::Pending,
        }
    })
    .await
}

#[test]
fn a_connection_that_is_woken_lets_others_go_first_and_then_writes_once() {
    let polled = std::cell::Cell::new(0);
    let coalescer = over(usize::MAX);
    let connection = std::pin::pin!(write_forever(coalescer.clone(), &polled));
    let mut coalesced = CoalescedConnection::new(connection, coalescer.clone());
    let mut poll = || Pin::new(&mut coalesced).poll(&mut context());
    assert!(poll().is_pending());
    assert_eq!(polled.get(), 0);
    assert!(poll().is_pending());
    assert_eq!(
        (polled.get(), coalescer.state().transport.wrote.len()),
        (1, 1)
    );
    assert!(poll().is_pending());
    assert_eq!(polled.get(), 1, "it yields again after the next wake-up");
}

#[tokio::test]
async fn a_failure_between_two_turns_is_told_to_the_connection() {
    let polled = std::cell::Cell::new(0);
    let coalescer = over(usize::MAX);
    coalescer.state().transport.is_broken = true;
    let connection = std::pin::pin!(write_forever(coalescer.clone(), &polled));
    let error = CoalescedConnection::new(connection, coalescer).await;
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
}

#[tokio::test]
async fn reading_goes_to_the_socket() {
    let mut word = [0; 5];
    let mut coalescer = over(0);
    coalescer.read_exact(&mut word).await.unwrap();
    assert_eq!(&word, b"heard");
    coalescer.write_all(b"buffered").await.unwrap();
}
