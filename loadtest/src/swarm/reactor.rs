//! One swarm thread over HTTP/1.1: an epoll loop without tasks, because a task per client would cost more than the client's work.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Result;
use mio::{Events, Interest, Poll, Token};
use rustls::ClientConfig;

use super::connection::{Buffers, Connection, Turn};
use super::{Ended, LOOK, Member, Next, PAUSE, ProgressShare, Wiring};
use crate::recorder::{Control, Recorder};

/// Connections being made at one time, so that no listen queue overflows.
const CONNECTING_MAX: usize = 64;
/// How often members are asked whether they are done: that walks over all of them.
const COUNT_EVERY: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Not connected yet, or no longer.
    Outside,
    Connecting,
    /// A request is on its way, or its response.
    Busy,
    /// Connected, until the next round.
    Resting,
    /// Told not to read.
    Stalled,
}

struct Seat<M> {
    member: M,
    connection: Option<Connection>,
    place: Place,
    path: Option<String>,
    was_ready: bool,
}

struct Reactor<'a, M> {
    poll: Poll,
    seats: Vec<Seat<M>>,
    wiring: &'a Wiring,
    tls: Option<Arc<ClientConfig>>,
    control: &'a Control,
    recorder: Recorder,
    buffers: Buffers,
    first_number: usize,
    /// Seats that want a connection.
    outside: VecDeque<usize>,
    paused: VecDeque<(Instant, usize)>,
    more_left: Vec<usize>,
    connecting: usize,
}

/// Runs until ordered to stop.
///
/// # Errors
/// If the poller fails; what happens to single connections is the members' business.
pub fn run<M: Member>(
    members: Vec<M>,
    wiring: &Wiring,
    control: &Control,
    first_number: usize,
) -> Result<(Vec<M>, Recorder)> {
    let seat = |member| Seat {
        member,
        connection: None,
        place: Place::Outside,
        path: None,
        was_ready: false,
    };
    let seats: Vec<Seat<M>> = members.into_iter().map(seat).collect();
    let mut reactor = Reactor {
        poll: Poll::new()?,
        outside: (0..seats.len()).collect(),
        seats,
        wiring,
        tls: wiring.target.tls.as_ref().map(|tls| tls.config("http/1.1")),
        control,
        recorder: Recorder::default(),
        buffers: Buffers::default(),
        first_number,
        paused: VecDeque::new(),
        more_left: Vec::new(),
        connecting: 0,
    };
    reactor.run()?;
    let members = reactor.seats.into_iter().map(|seat| seat.member).collect();
    Ok((members, reactor.recorder))
}

impl<M: Member> Reactor<'_, M> {
    fn run(&mut self) -> Result<()> {
        let mut events = Events::with_capacity(1024);
        let mut share = ProgressShare::default();
        let (mut round, mut was_stalled, mut counted_at) = (0, false, Instant::now());
        while !self.control.stop.load(Ordering::Relaxed) {
            let wait = if self.more_left.is_empty() {
                LOOK
            } else {
                Duration::ZERO
            };
            if let Err(error) = self.poll.poll(&mut events, Some(wait))
                && error.kind() != std::io::ErrorKind::Interrupted
            {
                return Err(error.into());
            }
            self.recorder.tick(self.control);
            let (events_before, bytes_before) = (self.recorder.events, self.recorder.bytes);
            for event in &events {
                self.ready(event.token().0, event.is_writable());
            }
            for number in std::mem::take(&mut self.more_left) {
                self.read(number);
            }
            self.control
                .delivered
                .fetch_add(self.recorder.events - events_before, Ordering::Relaxed);
            self.control
                .bytes
                .fetch_add(self.recorder.bytes - bytes_before, Ordering::Relaxed);
            let stalled = self.control.stalled.load(Ordering::Relaxed);
            if was_stalled && !stalled {
                self.wake_stalled()?;
            }
            was_stalled = stalled;
            let now_round = self.control.round.load(Ordering::Relaxed);
            if round != now_round {
                round = now_round;
                self.wake(Place::Resting);
            }
            self.end_pauses();
            self.connect_some();
            if counted_at.elapsed() >= COUNT_EVERY {
                counted_at = Instant::now();
                share.report(
                    self.seats
                        .iter()
                        .map(|seat| seat.member.progress(self.control))
                        .sum(),
                    self.control,
                );
            }
        }
        Ok(())
    }

    fn connect_some(&mut self) {
        while self.connecting < CONNECTING_MAX
            && let Some(number) = self.outside.pop_front()
        {
            if self.seats[number].path.is_none() {
                match self.seats[number].member.next(self.control) {
                    Next::Pause => {
                        self.paused.push_back((Instant::now() + PAUSE, number));
                        continue;
                    }
                    Next::Send(path) => self.seats[number].path = Some(path),
                    Next::Rest => {}
                }
            }
            if let Err(error) = self.connect(number) {
                self.connecting_failed(number, &error);
            }
        }
    }

    fn connect(&mut self, number: usize) -> Result<()> {
        let seat = &mut self.seats[number];
        let source = self.wiring.source_of(self.first_number + number);
        let mut connection = Connection::begin(
            &self.wiring.target,
            self.tls.as_ref(),
            source,
            seat.member.stalls_with(),
        )?;
        self.poll.registry().register(
            &mut connection.socket,
            Token(number),
            Interest::READABLE | Interest::WRITABLE,
        )?;
        seat.connection = Some(connection);
        seat.place = Place::Connecting;
        self.connecting += 1;
        Ok(())
    }

    fn connecting_failed(&mut self, number: usize, error: &anyhow::Error) {
        let text = format!("connecting: {error:#}");
        self.recorder.end("connecting failed");
        self.recorder.message(|| text.clone());
        self.seats[number]
            .member
            .ended(Ended::Broken(&text), &mut self.recorder);
        self.leave(number);
    }

    /// The socket can be read or written.
    fn ready(&mut self, number: usize, writable: bool) {
        let seat = &mut self.seats[number];
        let Some(connection) = &mut seat.connection else {
            return;
        };
        if seat.place == Place::Connecting {
            match connection.connected() {
                Ok(false) => return,
                Ok(true) => {
                    self.connecting -= 1;
                    seat.place = Place::Resting;
                    match seat.path.take() {
                        Some(path) => self.send(number, &path),
                        None => self.ask(number),
                    }
                }
                Err(error) => {
                    self.connecting -= 1;
                    return self.connecting_failed(number, &error);
                }
            }
        } else if writable && let Err(error) = connection.flush() {
            return self.broken(number, &error);
        }
        self.read(number);
    }

    fn read(&mut self, number: usize) {
        let seat = &mut self.seats[number];
        if seat.place == Place::Stalled {
            return;
        }
        let Some(connection) = &mut seat.connection else {
            return;
        };
        let turn = connection.read(&mut seat.member, &mut self.buffers, &mut self.recorder);
        if !seat.was_ready && connection.has_begun() {
            seat.was_ready = true;
            self.control.ready.fetch_add(1, Ordering::Relaxed);
        }
        match turn {
            Turn::Gone => return self.leave(number),
            Turn::Free => {
                seat.place = Place::Resting;
                return self.ask(number);
            }
            Turn::MoreLeft => self.more_left.push(number),
            Turn::Drained => {}
        }
        let seat = &mut self.seats[number];
        if self.control.stalled.load(Ordering::Relaxed)
            && seat.was_ready
            && seat.member.stalls_with().is_some()
        {
            seat.place = Place::Stalled;
        }
    }

    /// Asks the member of a free connection what comes next.
    fn ask(&mut self, number: usize) {
        match self.seats[number].member.next(self.control) {
            Next::Send(path) => self.send(number, &path),
            Next::Pause => self.paused.push_back((Instant::now() + PAUSE, number)),
            Next::Rest => {}
        }
    }

    fn send(&mut self, number: usize, path: &str) {
        let request = self.wiring.target.fetch_text(path);
        let seat = &mut self.seats[number];
        seat.place = Place::Busy;
        let Some(connection) = &mut seat.connection else {
            return;
        };
        if let Err(error) = connection.send(&request) {
            self.broken(number, &error);
        }
    }

    fn broken(&mut self, number: usize, error: &anyhow::Error) {
        let text = format!("{error:#}");
        self.recorder.end("connection broken");
        self.recorder.message(|| text.clone());
        self.seats[number]
            .member
            .ended(Ended::Broken(&text), &mut self.recorder);
        self.leave(number);
    }

    /// Drops the connection and queues the seat for another.
    fn leave(&mut self, number: usize) {
        let seat = &mut self.seats[number];
        if let Some(mut connection) = seat.connection.take() {
            // The socket is closed with its drop, which deregisters it too.
            let _ = self.poll.registry().deregister(&mut connection.socket);
        }
        seat.place = Place::Outside;
        self.outside.push_back(number);
    }

    fn end_pauses(&mut self) {
        let now = Instant::now();
        while self.paused.front().is_some_and(|(due, _)| *due <= now) {
            let Some((_, number)) = self.paused.pop_front() else {
                break;
            };
            match self.seats[number].place {
                Place::Outside => self.outside.push_back(number),
                Place::Resting => self.ask(number),
                Place::Connecting | Place::Busy | Place::Stalled => {}
            }
        }
    }

    fn wake(&mut self, place: Place) {
        for number in 0..self.seats.len() {
            if self.seats[number].place == place {
                self.ask(number);
            }
        }
    }

    /// Lets the stalled read again. Their readiness was reported once and is gone, so they are read without being asked.
    fn wake_stalled(&mut self) -> Result<()> {
        for number in 0..self.seats.len() {
            if self.seats[number].place == Place::Stalled {
                self.seats[number].place = Place::Busy;
                self.more_left.push(number);
            }
        }
        Ok(())
    }
}
