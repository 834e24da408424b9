//! What a member learns of the end of its connection.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use super::*;
use crate::target::Target;

/// A member that sends one request and then rests.
#[derive(Default)]
struct OneRequest {
    is_sent: bool,
    responses: usize,
    broken: usize,
    closed: Vec<bool>,
}

impl Member for OneRequest {
    fn next(&mut self, _: &Control) -> Next {
        match std::mem::replace(&mut self.is_sent, true) {
            true => Next::Done,
            false => Next::Send("/".to_owned()),
        }
    }

    fn body(&mut self, _: u16, _: &[u8], _: &mut Recorder) {}

    fn response_ended(&mut self, how: ResponseEnd<'_>, _: &mut Recorder) {
        match how {
            ResponseEnd::Complete(_) => self.responses += 1,
            ResponseEnd::Broken(_) | ResponseEnd::Left => self.broken += 1,
        }
    }

    fn closed(&mut self, in_order: bool) {
        self.closed.push(in_order);
    }

    fn progress(&self, _: &Control) -> usize {
        0
    }
}

/// Waits for events of the only slot, and hides from it whether they tell of the end.
fn turn(reactor: &mut Reactor<'_, OneRequest>, events: &mut Events) {
    reactor.poll.poll(events, None).unwrap();
    reactor.ready(0, true);
}

#[test]
fn a_member_that_rests_learns_that_its_connection_was_closed_by_reading_alone() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let swarm_config = SwarmConfig::new(Target::new(&url, None, None).unwrap());
    let control = Control::default();
    let mut reactor = Reactor {
        poll: Poll::new().unwrap(),
        outside: VecDeque::from([0]),
        seats: vec![Slot::of(OneRequest::default())],
        swarm_config: &swarm_config,
        tls: None,
        control: &control,
        recorder: Recorder::default(),
        buffers: Buffers::default(),
        first_number: 0,
        paused: BinaryHeap::new(),
        resting: BinaryHeap::new(),
        more_left: Vec::new(),
        connecting: 0,
    };
    let mut events = Events::with_capacity(8);
    reactor.connect_some();
    turn(&mut reactor, &mut events);
    let (mut server, _) = listener.accept().unwrap();
    assert!(server.read(&mut [0; 4096]).unwrap() > 0);
    server
        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        .unwrap();
    while reactor.seats[0].member.responses == 0 {
        turn(&mut reactor, &mut events);
    }
    assert_eq!(reactor.seats[0].place, SlotState::Resting);
    // An event that tells of nothing new.
    reactor.ready(0, true);
    assert_eq!(reactor.seats[0].place, SlotState::Resting);
    drop(server);
    while reactor.seats[0].connection.is_some() {
        turn(&mut reactor, &mut events);
    }
    let OneRequest {
        responses,
        broken,
        closed,
        ..
    } = &reactor.seats[0].member;
    assert_eq!((*responses, *broken, &closed[..]), (1, 0, &[true][..]));
}
