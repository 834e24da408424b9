//! One swarm thread over HTTP/1.1: an epoll loop without tasks, because a task per client would cost more than the client's work.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Result;
use mio::{Events, Interest, Poll, Token};
use rustls::ClientConfig;

use super::connection::{Buffers, Connection, ReadOutcome};
use super::pace::{ReadPause, Slowness};
use super::{LOOK, Member, Next, ProgressShare, ResponseEnd, SwarmConfig};
use crate::recorder::{Control, Recorder};
use crate::wire::websocket::HANDSHAKE;

/// Connections that are opened at the same time, so that no listen queue overflows and no handshake times out.
const CONNECTING_MAX: usize = 64;
/// How often progress is counted, which visits all members.
const COUNT_EVERY: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SlotState {
    /// Not connected yet, or no longer.
    Outside,
    Connecting,
    /// A request or its response is in progress.
    Busy,
    /// Connected, until the next round.
    Resting,
    /// A slow client that does not read now.
    Stalled,
}

struct Slot<M> {
    member: M,
    connection: Option<Connection>,
    place: SlotState,
    path: Option<String>,
    was_ready: bool,
    /// Whether it is counted in `connecting`, which includes the TLS handshake.
    is_connecting: bool,
    /// The server has closed its side. That is reported once, perhaps together with the last bytes, and a short read does not show it.
    hung_up: bool,
    /// A slow client that does not read before its time in `resting`.
    rests: bool,
    /// When its newest request was sent.
    sent_at: Instant,
    /// Pausing until its time in `paused`, connected or not.
    pauses: bool,
    /// Retry-After of its last response.
    retry_after: Option<Duration>,
}

impl<M> Slot<M> {
    fn of(member: M) -> Self {
        Self {
            member,
            connection: None,
            place: SlotState::Outside,
            path: None,
            was_ready: false,
            is_connecting: false,
            hung_up: false,
            rests: false,
            sent_at: Instant::now(),
            pauses: false,
            retry_after: None,
        }
    }

    /// Whether a response with status 200 is in progress.
    fn is_open(&self) -> bool {
        let started = |connection: &Connection| connection.has_started();
        self.place == SlotState::Busy
            && !self.rests
            && self.connection.as_ref().is_some_and(started)
    }
}

struct Reactor<'a, M> {
    poll: Poll,
    seats: Vec<Slot<M>>,
    swarm_config: &'a SwarmConfig,
    tls: Option<Arc<ClientConfig>>,
    control: &'a Control,
    recorder: Recorder,
    buffers: Buffers,
    first_number: usize,
    /// Slots that want a connection.
    outside: VecDeque<usize>,
    /// Pausing slots by the end of the pause; each at most once.
    paused: BinaryHeap<Reverse<(Instant, usize)>>,
    /// Slow slots by the time of their next read; each at most once.
    resting: BinaryHeap<Reverse<(Instant, usize)>>,
    more_left: Vec<usize>,
    connecting: usize,
}

/// Runs until ordered to stop. Errors of single connections go to the members.
pub fn run<M: Member>(
    members: Vec<M>,
    swarm_config: &SwarmConfig,
    control: &Control,
    first_number: usize,
) -> Result<(Vec<M>, Recorder)> {
    let seats: Vec<Slot<M>> = members.into_iter().map(Slot::of).collect();
    let mut reactor = Reactor {
        poll: Poll::new()?,
        outside: (0..seats.len()).collect(),
        seats,
        swarm_config,
        tls: swarm_config
            .target
            .tls
            .as_ref()
            .map(|tls| tls.config("http/1.1")),
        control,
        recorder: Recorder::default(),
        buffers: Buffers::default(),
        first_number,
        paused: BinaryHeap::new(),
        resting: BinaryHeap::new(),
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
            let before = self.recorder.so_far();
            if events.is_empty() && self.more_left.is_empty() {
                self.control.empty_looks.fetch_add(1, Ordering::Relaxed);
            }
            for event in &events {
                let number = event.token().0;
                self.seats[number].hung_up |= event.is_read_closed();
                self.ready(number, event.is_writable());
            }
            for number in std::mem::take(&mut self.more_left) {
                self.read(number);
            }
            self.end_rests();
            self.control.add(&self.recorder.since(&before));
            let stalled = self.control.stalled.load(Ordering::Relaxed);
            if was_stalled && !stalled {
                self.wake_stalled();
            }
            was_stalled = stalled;
            let now_round = self.control.round.load(Ordering::Relaxed);
            if round != now_round {
                round = now_round;
                self.wake(SlotState::Resting);
            }
            self.end_pauses();
            self.connect_some();
            if counted_at.elapsed() >= COUNT_EVERY {
                counted_at = Instant::now();
                self.renew_some();
                let members = self.seats.iter().map(|seat| (&seat.member, seat.is_open()));
                share.report(members, self.control);
            }
        }
        Ok(())
    }

    fn connect_some(&mut self) {
        while self.connecting < CONNECTING_MAX
            && let Some(number) = self.outside.pop_front()
        {
            // The end of a pause and a lost connection may both have queued the slot.
            if self.seats[number].place != SlotState::Outside || self.seats[number].pauses {
                continue;
            }
            if self.seats[number].path.is_none() {
                match self.seats[number].member.next(self.control) {
                    Next::Pause => {
                        self.pause(number, None);
                        continue;
                    }
                    Next::Wait(wait) => {
                        self.pause(number, Some(wait));
                        continue;
                    }
                    Next::Send(path) => self.seats[number].path = Some(path),
                    Next::Rest => {}
                    Next::Done => continue,
                }
            }
            if let Err(error) = self.connect(number) {
                self.connecting_failed(number, &error);
            }
        }
    }

    fn connect(&mut self, number: usize) -> Result<()> {
        let seat = &mut self.seats[number];
        let source = self.swarm_config.source_of(self.first_number + number);
        let mut connection = Connection::begin(
            &self.swarm_config.target,
            self.tls.as_ref(),
            source,
            seat.member.slowness().map(|slow| slow.receive_buffer),
        )?;
        self.poll.registry().register(
            &mut connection.socket,
            Token(number),
            Interest::READABLE | Interest::WRITABLE,
        )?;
        seat.connection = Some(connection);
        seat.place = SlotState::Connecting;
        seat.is_connecting = true;
        seat.hung_up = false;
        self.connecting += 1;
        Ok(())
    }

    fn connecting_failed(&mut self, number: usize, error: &anyhow::Error) {
        let text = format!("connecting: {error:#}");
        self.recorder.end("connecting failed");
        self.recorder.message(&text);
        self.seats[number]
            .member
            .response_ended(ResponseEnd::Broken(&text), &mut self.recorder);
        self.leave(number);
    }

    /// The socket can be read or written.
    fn ready(&mut self, number: usize, writable: bool) {
        let seat = &mut self.seats[number];
        let Some(connection) = &mut seat.connection else {
            return;
        };
        if seat.place == SlotState::Connecting {
            match connection.is_connected() {
                Ok(false) => return,
                Ok(true) => {
                    seat.place = SlotState::Resting;
                    match seat.path.take() {
                        Some(path) => self.send(number, &path),
                        None => self.ask(number),
                    }
                }
                Err(error) => return self.connecting_failed(number, &error),
            }
        } else if writable && let Err(error) = connection.flush() {
            return self.broken(number, &error);
        }
        self.read(number);
        let seat = &mut self.seats[number];
        let settled = |connection: &Connection| !connection.is_handshaking();
        if seat.is_connecting && seat.connection.as_ref().is_some_and(settled) {
            seat.is_connecting = false;
            self.connecting -= 1;
        }
    }

    fn read(&mut self, number: usize) {
        let seat = &mut self.seats[number];
        if seat.place == SlotState::Stalled || seat.rests {
            return;
        }
        if seat.place == SlotState::Resting {
            return self.look_for_end(number);
        }
        let Some(connection) = &mut seat.connection else {
            return;
        };
        // A renewed stream must have started before it is slow.
        let is_slow = connection.has_started() && self.control.stalled.load(Ordering::Relaxed);
        let pace = seat
            .member
            .slowness()
            .filter(|_| is_slow)
            .map(|slow| slow.pace);
        let len_max = pace.map(|pace| pace.read_len_max());
        let bytes_before = self.recorder.bytes;
        // The clock is read here, because the bytes of this connection may have arrived after those of others.
        self.recorder.tick(self.control);
        let turn = connection.read(
            &mut seat.member,
            &mut self.buffers,
            &mut self.recorder,
            len_max,
        );
        if !seat.was_ready && connection.has_started() {
            seat.was_ready = true;
            self.control.ready.fetch_add(1, Ordering::Relaxed);
        }
        if matches!(turn, ReadOutcome::Gone | ReadOutcome::Free) {
            seat.retry_after = connection.retry_after();
        } else if connection.has_started() {
            seat.member.response_started();
        }
        match turn {
            ReadOutcome::Gone => return self.leave(number),
            ReadOutcome::Free => {
                seat.place = SlotState::Resting;
                if seat.hung_up {
                    self.look_for_end(number);
                }
                // Not if the connection has ended.
                if self.seats[number].place == SlotState::Resting {
                    self.ask(number);
                }
                return;
            }
            ReadOutcome::MoreLeft | ReadOutcome::Drained
                if seat.member.wants_to_leave(self.control) =>
            {
                seat.member
                    .response_ended(ResponseEnd::Left, &mut self.recorder);
                return self.leave(number);
            }
            ReadOutcome::MoreLeft | ReadOutcome::Drained => {}
        }
        let read_len = usize::try_from(self.recorder.bytes - bytes_before).unwrap_or(usize::MAX);
        let now = Duration::from_nanos(self.recorder.now_ns());
        match pace.map_or(ReadPause::None, |pace| pace.rest(read_len, now)) {
            ReadPause::None if turn == ReadOutcome::MoreLeft || seat.hung_up => {
                self.more_left.push(number)
            }
            ReadPause::None => {}
            ReadPause::For(time) => {
                seat.rests = true;
                self.resting.push(Reverse((Instant::now() + time, number)));
            }
            ReadPause::UntilWoken => seat.place = SlotState::Stalled,
        }
    }

    /// Asks the member of a free connection for its next action.
    fn ask(&mut self, number: usize) {
        match self.seats[number].member.next(self.control) {
            Next::Send(path) => self.send(number, &path),
            Next::Pause => self.pause(number, None),
            Next::Wait(wait) => self.pause(number, Some(wait)),
            Next::Rest | Next::Done => {}
        }
    }

    fn send(&mut self, number: usize, path: &str) {
        let SwarmConfig { target, accept, .. } = self.swarm_config;
        let accept = accept.header();
        let upgrade = if self.swarm_config.websocket {
            HANDSHAKE
        } else {
            ""
        };
        let target = target.of_client(self.first_number + number);
        let request = target.fetch_text(path, accept, upgrade);
        let seat = &mut self.seats[number];
        seat.place = SlotState::Busy;
        seat.sent_at = Instant::now();
        self.control.requests.fetch_add(1, Ordering::Relaxed);
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
        self.recorder.message(&text);
        self.seats[number]
            .member
            .response_ended(ResponseEnd::Broken(&text), &mut self.recorder);
        self.leave(number);
    }

    /// Between two requests the server may close the connection: the member loses nothing. What was read decides, not what the event said:
    /// the event may be an earlier one's.
    fn look_for_end(&mut self, number: usize) {
        let seat = &mut self.seats[number];
        let connection = seat.connection.as_mut();
        let end = connection.and_then(|one| one.ends_in_order(&mut self.buffers));
        if let Some(in_order) = end {
            seat.member.closed(in_order);
            self.leave(number);
        }
    }

    /// Drops the connection and queues the slot for another.
    fn leave(&mut self, number: usize) {
        let seat = &mut self.seats[number];
        if let Some(mut connection) = seat.connection.take() {
            // Dropping the connection closes the socket, and deregisters it too.
            let _ = self.poll.registry().deregister(&mut connection.socket);
        }
        if std::mem::take(&mut seat.is_connecting) {
            self.connecting -= 1;
        }
        seat.place = SlotState::Outside;
        self.outside.push_back(number);
    }

    /// Pauses a slot, by default for the time in its last response.
    fn pause(&mut self, number: usize, wait: Option<Duration>) {
        let seat = &mut self.seats[number];
        let retry_after = seat.retry_after.take();
        let wait = wait.unwrap_or_else(|| self.swarm_config.pause(retry_after));
        seat.pauses = true;
        self.paused.push(Reverse((Instant::now() + wait, number)));
    }

    fn end_pauses(&mut self) {
        let now = Instant::now();
        while let Some(Reverse((due, number))) = self.paused.peek().copied()
            && due <= now
        {
            self.paused.pop();
            self.seats[number].pauses = false;
            match self.seats[number].place {
                SlotState::Outside => self.outside.push_back(number),
                SlotState::Resting => self.ask(number),
                SlotState::Connecting | SlotState::Busy | SlotState::Stalled => {}
            }
        }
    }

    /// Reads slow clients whose pause is over. Their readiness was reported once, so they are read without a new event.
    fn end_rests(&mut self) {
        let now = Instant::now();
        while let Some(Reverse((due, number))) = self.resting.peek().copied()
            && due <= now
        {
            self.resting.pop();
            self.seats[number].rests = false;
            self.read(number);
        }
    }

    /// While slow clients are slow, those that renew leave streams that are old enough.
    fn renew_some(&mut self) {
        if !self.control.stalled.load(Ordering::Relaxed) {
            return;
        }
        for number in 0..self.seats.len() {
            let seat = &mut self.seats[number];
            let is_old = |slow: Slowness| slow.renews(seat.sent_at.elapsed());
            if matches!(seat.place, SlotState::Busy | SlotState::Stalled)
                && seat.member.slowness().is_some_and(is_old)
            {
                self.control.renewals.fetch_add(1, Ordering::Relaxed);
                seat.member
                    .response_ended(ResponseEnd::Left, &mut self.recorder);
                self.leave(number);
            }
        }
    }

    fn wake(&mut self, place: SlotState) {
        for number in 0..self.seats.len() {
            if self.seats[number].place == place && !self.seats[number].pauses {
                self.ask(number);
            }
        }
    }

    /// Lets stalled clients read again, as [`Self::end_rests`] does.
    fn wake_stalled(&mut self) {
        for number in 0..self.seats.len() {
            if self.seats[number].place == SlotState::Stalled {
                self.seats[number].place = SlotState::Busy;
                self.more_left.push(number);
            }
        }
        // Those that rest for a while would be taken for left behind.
        while let Some(Reverse((_, number))) = self.resting.pop() {
            self.seats[number].rests = false;
            self.more_left.push(number);
        }
    }
}

#[cfg(test)]
mod tests;
