//! A socket that remembers each write, under what h2 writes to.

use std::future::poll_fn;
use std::task::Waker;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

/// Takes `room` bytes in all.
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
    WriteCoalescer::new(Socket {
        room,
        ..Socket::default()
    })
}

fn context() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

/// What `slices` are taken of, as h2 would write them and flush; `None` if the socket is full.
fn write(gathered: &mut WriteCoalescer<Socket>, slices: &[&[u8]]) -> Option<usize> {
    let slices: Vec<_> = slices.iter().map(|slice| IoSlice::new(slice)).collect();
    let written = Pin::new(&mut *gathered).poll_write_vectored(&mut context(), &slices);
    let flushed = Pin::new(gathered).poll_flush(&mut context());
    assert!(matches!(flushed, Poll::Ready(Ok(()))));
    match written {
        Poll::Ready(written) => Some(written.unwrap()),
        Poll::Pending => None,
    }
}

fn end_turn(gathered: &WriteCoalescer<Socket>) -> bool {
    gathered.turn().poll_leave(&mut context()).is_ready()
}

#[test]
fn what_is_said_in_one_turn_leaves_in_one_write_when_it_ends() {
    let mut gathered = over(usize::MAX);
    for word in [&b"one "[..], b"two ", b"three"] {
        assert_eq!(write(&mut gathered, &[word]), Some(word.len()));
    }
    assert!(gathered.turn().transport.wrote.is_empty());
    assert!(end_turn(&gathered));
    let turn = gathered.turn();
    assert_eq!(turn.transport.wrote, [b"one two three"]);
    assert_eq!(turn.transport.flushed, 1);
    assert_eq!(turn.kept.capacity(), 0, "an idle connection keeps nothing");
}

#[test]
fn what_is_beyond_the_limit_is_not_copied_and_takes_with_it_what_came_before() {
    let mut gathered = over(usize::MAX);
    let long = vec![b'l'; KEPT_LEN_MAX - 8];
    write(&mut gathered, &[b"head "]);
    assert_eq!(
        write(&mut gathered, &[b"body ", &long]),
        Some(5 + long.len())
    );
    let turn = gathered.turn();
    assert_eq!(turn.transport.wrote, [[b"head body ", &long[..]].concat()]);
    assert_eq!(turn.kept.len(), 0);
}

#[test]
fn no_more_is_kept_than_the_limit() {
    let mut gathered = over(0);
    let word = [b'w'; 1_000];
    let taken: usize = (0..1_000)
        .map_while(|_| write(&mut gathered, &[&word]))
        .sum();
    assert_eq!(gathered.turn().kept.len(), taken);
    assert!(taken <= KEPT_LEN_MAX && taken + word.len() > KEPT_LEN_MAX);
}

/// Whatever the socket takes at once, the bytes arrive in order and none twice.
#[test]
fn a_socket_that_takes_little_gets_all_in_order() {
    let long: Vec<u8> = (0..=250).cycle().take(KEPT_LEN_MAX + 100).collect();
    let expected = [b"before", &long[..], b"after"].concat();
    for step in [1_usize, 3, 6, 7, 100, KEPT_LEN_MAX, 1 << 20] {
        let mut gathered = over(0);
        let mut said = 0;
        while said < expected.len() || !gathered.turn().kept.is_empty() {
            gathered.turn().transport.room = step;
            let rest = match said {
                0..6 => &expected[said..6],
                _ if said < 6 + long.len() => &expected[said..6 + long.len()],
                _ => &expected[said..],
            };
            if !rest.is_empty() {
                said += write(&mut gathered, &[rest]).unwrap_or(0);
            }
            end_turn(&gathered);
        }
        let arrived = gathered.turn().transport.wrote.concat();
        assert!(arrived == expected, "{step} at once");
    }
}

#[test]
fn shutting_down_first_writes_what_is_kept() {
    let mut gathered = over(2);
    write(&mut gathered, &[b"last"]);
    let shut = |gathered: &mut WriteCoalescer<_>| Pin::new(gathered).poll_shutdown(&mut context());
    assert!(shut(&mut gathered).is_pending());
    gathered.turn().transport.room = usize::MAX;
    assert!(shut(&mut gathered).is_ready());
    let turn = gathered.turn();
    assert_eq!(turn.transport.wrote.concat(), b"last");
    assert!(turn.transport.is_shut);
}

/// Writes a word whenever it is polled, and ends when that fails.
async fn speaker(
    mut gathered: WriteCoalescer<Socket>,
    polled: &std::cell::Cell<usize>,
) -> io::Error {
    poll_fn(|context| {
        polled.set(polled.get() + 1);
        let written = Pin::new(&mut gathered).poll_write(context, b"word");
        match (written, Pin::new(&mut gathered).poll_flush(context)) {
            (Poll::Ready(Err(error)), _) | (_, Poll::Ready(Err(error))) => Poll::Ready(error),
            _ => Poll::Pending,
        }
    })
    .await
}

#[test]
fn a_connection_that_is_woken_lets_others_go_first_and_then_writes_once() {
    let polled = std::cell::Cell::new(0);
    let gathered = over(usize::MAX);
    let connection = std::pin::pin!(speaker(gathered.clone(), &polled));
    let mut turns = CoalescedConnection::new(connection, gathered.clone());
    let mut poll = || Pin::new(&mut turns).poll(&mut context());
    assert!(poll().is_pending());
    assert_eq!(polled.get(), 0);
    assert!(poll().is_pending());
    assert_eq!(
        (polled.get(), gathered.turn().transport.wrote.len()),
        (1, 1)
    );
    assert!(poll().is_pending());
    assert_eq!(polled.get(), 1, "woken anew");
}

#[tokio::test]
async fn a_failure_between_two_turns_is_told_to_the_connection() {
    let polled = std::cell::Cell::new(0);
    let gathered = over(usize::MAX);
    gathered.turn().transport.is_broken = true;
    let connection = std::pin::pin!(speaker(gathered.clone(), &polled));
    let error = CoalescedConnection::new(connection, gathered).await;
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
}

#[tokio::test]
async fn reading_goes_to_the_socket() {
    let mut word = [0; 5];
    let mut gathered = over(0);
    gathered.read_exact(&mut word).await.unwrap();
    assert_eq!(&word, b"heard");
    gathered.write_all(b"kept").await.unwrap();
}
