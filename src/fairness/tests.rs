//! Shares of one client and of many.

use super::*;

fn peer(number: u32) -> Peer {
    Peer::from(IpAddr::V4(number.into()))
}

/// As many permits as the peer gets.
fn all(permits: &Permits, peer: Peer) -> Vec<Permit> {
    std::iter::from_fn(|| permits.try_acquire(peer)).collect()
}

#[test]
fn one_peer_gets_four_fifths_and_everybody_else_still_finds_a_place() {
    let permits = Permits::new(1_000);
    let greedy = all(&permits, peer(0));
    assert_eq!(greedy.len(), 800);
    let others: Vec<_> = (1..100)
        .map(|number| permits.try_acquire(peer(number)).unwrap())
        .collect();
    drop(others);
    drop(greedy);
    assert_eq!(all(&permits, peer(1)).len(), 800, "all were given back");
}

#[test]
fn a_few_permits_may_all_be_one_peers_and_no_permits_are_nobodys() {
    assert_eq!(all(&Permits::new(2), peer(0)).len(), 2);
    assert_eq!(all(&Permits::new(0), peer(0)).len(), 0);
}

#[test]
fn a_lower_bound_takes_nothing_away_and_gives_nothing_new() {
    let permits = Permits::new(100);
    let held = all(&permits, peer(0));
    permits.lower(10);
    assert!(permits.try_acquire(peer(1)).is_none());
    drop(held);
    assert_eq!(all(&permits, peer(1)).len(), 8);
    permits.lower(50);
    assert_eq!(all(&permits, peer(1)).len(), 8);
}

#[test]
fn places_taken_together_are_shared_as_those_taken_one_by_one() {
    for count in [1, 7, 80] {
        let mut share = Share::new(1_000);
        while share.has_room_for_many(peer(0), count) {
            share.take_many(peer(0), count);
        }
        let held = share.taken();
        assert!((800 - count..=800).contains(&held), "{held} by {count}");
        assert!(share.has_room_for_many(peer(1), count));
        assert!(!share.has_room_for_many(peer(1), 1_001 - held));
        share.give_back_many(peer(0), held);
        assert_eq!(share.taken(), 0);
    }
    assert!(Share::new(0).has_room_for_many(peer(0), 0));
}

#[test]
fn hosts_of_one_network_are_one_peer() {
    let peer = |text: &str| Peer::from(text.parse::<IpAddr>().unwrap());
    assert_eq!(peer("2001:db8::1"), peer("2001:db8::ffff:2"));
    assert_ne!(peer("2001:db8::1"), peer("2001:db8:0:1::1"));
    assert_ne!(peer("10.0.0.1"), peer("10.0.0.2"));
    assert_eq!(peer("::ffff:10.0.0.1"), peer("10.0.0.1"));
}
