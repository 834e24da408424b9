//! The queue's guarantees, under arbitrary sequences of arrivals, releases and cancellations.

use std::net::{IpAddr, Ipv4Addr};

use proptest::prelude::*;

use super::*;
use crate::fairness::Users;

fn peer(number: u8) -> Peer {
    Peer::from(IpAddr::V4(Ipv4Addr::new(127, 0, 0, number)))
}

/// Lets a peer arrive with this number as its handle; returns its id if it waits.
fn arrive(queue: &mut FairQueue<usize>, by: Peer, number: usize) -> Option<u64> {
    match queue.enter(by) {
        QueueDecision::MayWait(ticket) => Some(ticket.wait(number)),
        QueueDecision::Runs | QueueDecision::Full(_) => None,
    }
}

#[test]
fn waiters_get_permits_first_come_first_served() {
    let mut queue = FairQueue::new(2, 4);
    for number in 0..2 {
        assert!(matches!(queue.enter(peer(number)), QueueDecision::Runs));
    }
    for number in 2..6 {
        assert!(arrive(&mut queue, peer(2), number).is_some());
    }
    assert!(matches!(queue.enter(peer(9)), QueueDecision::Full(_)));
    assert!(queue.admit_next().is_none());
    for (leaving, number) in [0, 1, 2, 2].into_iter().zip(2..) {
        queue.leave(peer(leaving));
        assert_eq!(queue.admit_next(), Some((peer(2), number)));
        assert!(queue.admit_next().is_none());
    }
    assert_eq!((queue.running(), queue.waiting()), (2, 0));
}

#[test]
fn cancelled_waiters_do_not_block_the_queue() {
    let mut queue = FairQueue::new(1, 2);
    assert!(matches!(queue.enter(peer(1)), QueueDecision::Runs));
    let first = arrive(&mut queue, peer(1), 1).unwrap();
    let second = arrive(&mut queue, peer(1), 2).unwrap();
    assert!(queue.give_up(peer(1), first));
    assert!(!queue.give_up(peer(1), first));
    assert!(arrive(&mut queue, peer(1), 3).is_some());
    queue.leave(peer(1));
    assert_eq!(queue.admit_next(), Some((peer(1), 2)));
    assert!(
        !queue.give_up(peer(1), second),
        "the second one is admitted already"
    );
}

#[test]
fn a_peer_at_its_share_is_overtaken_by_others() {
    let mut queue = FairQueue::new(100, 100);
    let running = (0..100).take_while(|_| matches!(queue.enter(peer(1)), QueueDecision::Runs));
    assert_eq!(running.count(), 80);
    let mut waiting = 1;
    while arrive(&mut queue, peer(1), waiting).is_some() {
        waiting += 1;
    }
    assert_eq!((queue.running(), queue.waiting()), (80, 80));
    // Another peer neither waits nor is refused.
    assert!(matches!(queue.enter(peer(2)), QueueDecision::Runs));
    assert_eq!(queue.admit_next(), None);
}

#[test]
fn a_queue_without_permits_admits_nobody() {
    let mut queue = FairQueue::<usize>::new(0, 0);
    assert!(matches!(queue.enter(peer(1)), QueueDecision::Full(_)));
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Come(u8),
    Leave(usize),
    GiveUp(usize),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        4 => (0..12_u8).prop_map(Act::Come),
        3 => any::<usize>().prop_map(Act::Leave),
        1 => any::<usize>().prop_map(Act::GiveUp),
    ];
    proptest::collection::vec(act, 0..200)
}

/// While a permit is free, few waiters are without room, so this test is fast. Searching the whole queue each time would take two billion
/// steps.
#[test]
fn the_next_waiter_is_found_in_a_long_queue() {
    const RUNNING: usize = 256;
    let mut queue = FairQueue::new(RUNNING, 1 << 17);
    let mut number = 0;
    for by in [1, 2] {
        while matches!(queue.enter(peer(by)), QueueDecision::Runs) {}
        while arrive(&mut queue, peer(by), number).is_some() {
            number += 1;
        }
    }
    assert!(queue.waiting() > 1 << 16, "{}", queue.waiting());
    // A third client comes and goes, and each time the next waiter is searched.
    for _ in 0..20_000 {
        assert!(matches!(queue.enter(peer(3)), QueueDecision::Runs));
        queue.leave(peer(3));
        assert_eq!(queue.admit_next(), None);
    }
}

/// The same with one address that holds the permits and whose users fill the queue.
#[test]
fn the_next_waiter_is_found_among_many_users_of_one_address() {
    const RUNNING: usize = 256;
    let (mut queue, users) = (FairQueue::new(RUNNING, 1 << 14), Users::default());
    let user = |name: usize| users.known(peer(1), &name.to_string(), &[]);
    let mut name = 0;
    while !matches!(queue.enter(user(name)), QueueDecision::Full(_)) {
        arrive(&mut queue, user(name), name);
        name += 1;
    }
    assert!(queue.running() < RUNNING && queue.waiting() > 1 << 13);
    // Searching all of them each time would take three hundred million steps.
    for _ in 0..20_000 {
        assert!(matches!(queue.enter(peer(3)), QueueDecision::Runs));
        queue.leave(peer(3));
        assert_eq!(queue.admit_next(), None);
    }
}

#[test]
fn a_user_at_its_share_does_not_block_others_of_its_address() {
    let (mut queue, users) = (FairQueue::new(16, 16), Users::default());
    let user = |name: &str| users.known(peer(1), name, &[]);
    while matches!(queue.enter(user("a")), QueueDecision::Runs) {}
    while matches!(queue.enter(peer(2)), QueueDecision::Runs) {}
    assert_eq!(queue.running(), 16);
    arrive(&mut queue, user("a"), 0).unwrap();
    arrive(&mut queue, peer(4), 1).unwrap();
    arrive(&mut queue, user("b"), 2).unwrap();
    // The first waiter's user holds most permits: it keeps waiting, and blocks no other user, not even at its own address.
    queue.leave(peer(2));
    assert_eq!(queue.admit_next(), Some((user("b"), 2)));
    queue.leave(peer(2));
    assert_eq!(queue.admit_next(), Some((peer(4), 1)));
    queue.leave(user("a"));
    assert_eq!(
        queue.admit_next(),
        None,
        "its user holds twelve, and one is free"
    );
}

/// A client that waits for one permit does not wait for everything that others, at its address or elsewhere, have queued before it.
#[test]
fn waiting_peers_take_turns() {
    let users = Users::default();
    let greedy: Vec<Peer> = (0..20)
        .map(|name| users.known(peer(1), &name.to_string(), &[]))
        .chain((3..20).map(peer))
        .collect();
    // Eighteen addresses take turns, and so do the users of each address.
    for (late, turns_max) in [(peer(2), 19), (users.known(peer(1), "late", &[]), 19 * 21)] {
        let mut queue = FairQueue::new(32, 1 << 12);
        let mut running = Vec::new();
        for number in 0..50 {
            for by in &greedy {
                match queue.enter(*by) {
                    QueueDecision::Runs => running.push(*by),
                    QueueDecision::MayWait(ticket) => drop(ticket.wait(number)),
                    QueueDecision::Full(_) => panic!("the queue is long enough"),
                }
            }
        }
        arrive(&mut queue, late, 0).unwrap();
        let mut turns = 0;
        let mut is_served = false;
        while !is_served {
            queue.leave(running.remove(0));
            while let Some((by, _)) = queue.admit_next() {
                running.push(by);
                turns += 1;
                is_served |= by == late;
            }
        }
        assert!(turns <= turns_max, "after {turns} others");
    }
}

/// Whether the peer may take another permit, by a direct computation.
fn model_has_room(running: &[Peer], running_max: usize, peer: Peer) -> bool {
    let free = running_max - running.len();
    let at_address = running
        .iter()
        .filter(|other| other.group() == peer.group())
        .count();
    let own = running.iter().filter(|other| **other == peer).count();
    if peer == peer.group() {
        at_address < 4 * free
    } else {
        at_address < 16 * free && own < 4 * free
    }
}

/// The order of turns, by a direct computation.
#[derive(Default)]
struct Turns {
    groups: Vec<Peer>,
    peers: Vec<Peer>,
}

impl Turns {
    fn join(&mut self, peer: Peer) {
        if !self.groups.contains(&peer.group()) {
            self.groups.push(peer.group());
        }
        if !self.peers.contains(&peer) {
            self.peers.push(peer);
        }
    }

    fn next(&self, has_room: impl Fn(Peer) -> bool) -> Option<Peer> {
        self.groups.iter().find_map(|group| {
            let mut peers = self.peers.iter().copied();
            peers.find(|peer| peer.group() == *group && has_room(*peer))
        })
    }

    fn move_to_end(&mut self, peer: Peer) {
        self.groups.retain(|group| *group != peer.group());
        self.peers.retain(|other| *other != peer);
        self.join(peer);
    }

    fn retain(&mut self, waiting: &[(u64, Peer, usize)]) {
        let waits = |is: &dyn Fn(Peer) -> bool| waiting.iter().any(|(_, by, _)| is(*by));
        self.groups
            .retain(|group| waits(&|by| by.group() == *group));
        self.peers.retain(|peer| waits(&|by| by == *peer));
    }
}

/// Peers at three addresses; at each, an unknown client and three users.
fn client(users: &Users, number: u8) -> Peer {
    let address = peer(number % 3);
    match number / 3 {
        0 => address,
        name => users.known(address, &format!("{}/{name}", number % 3), &[]),
    }
}

proptest! {
    #[test]
    fn bounds_hold_and_nobody_is_forgotten(
        acts in acts(),
        running_max in 1..12_usize,
        waiting_max in 0..12_usize,
    ) {
        let mut queue = FairQueue::new(running_max, waiting_max);
        let users = Users::default();
        let peer = |number| client(&users, number);
        // A model of the queue in plain lists: peers with a permit; id, peer and number of each waiter.
        let mut running: Vec<Peer> = Vec::new();
        let mut waiting: Vec<(u64, Peer, usize)> = Vec::new();
        let mut turns = Turns::default();
        for (number, act) in acts.into_iter().enumerate() {
            match act {
                Act::Come(by) => match queue.enter(peer(by)) {
                    QueueDecision::Runs => {
                        prop_assert!(waiting.iter().all(|(_, other, _)| *other != peer(by)), "jumped the queue");
                        running.push(peer(by));
                    }
                    QueueDecision::MayWait(ticket) => {
                        waiting.push((ticket.wait(number), peer(by), number));
                        turns.join(peer(by));
                    }
                    QueueDecision::Full(_) => prop_assert!(!running.is_empty()),
                },
                Act::Leave(at) if !running.is_empty() => {
                    queue.leave(running.remove(at % running.len()));
                    while let Some((_, turn)) = queue.admit_next() {
                        let by = turns.next(|by| model_has_room(&running, running_max, by)).unwrap();
                        let next = waiting.iter().position(|(_, other, _)| *other == by);
                        let (_, _, next) = waiting.remove(next.unwrap());
                        prop_assert_eq!(turn, next, "not the peer whose turn it is");
                        turns.move_to_end(by);
                        turns.retain(&waiting);
                        running.push(by);
                    }
                }
                Act::GiveUp(at) if !waiting.is_empty() => {
                    let (id, by, _) = waiting.remove(at % waiting.len());
                    prop_assert!(queue.give_up(by, id));
                    turns.retain(&waiting);
                }
                Act::Leave(_) | Act::GiveUp(_) => {}
            }
            prop_assert!(running.len() <= running_max && waiting.len() <= waiting_max);
            prop_assert_eq!((queue.running(), queue.waiting()), (running.len(), waiting.len()));
            prop_assert!(queue.admit_next().is_none(), "there was room for a waiter");
        }
        // Every remaining waiter is admitted when all others have left.
        let mut served = 0;
        let due = waiting.len();
        while let Some(by) = running.pop() {
            queue.leave(by);
            while let Some((by, _)) = queue.admit_next() {
                running.push(by);
                served += 1;
            }
        }
        prop_assert_eq!(served, due);
        prop_assert_eq!((queue.running(), queue.waiting()), (0, 0));
    }
}
