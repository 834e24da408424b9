//! The shares of one client and of many.

use super::*;

fn peer(number: u32) -> Peer {
    Peer::from(IpAddr::V4(number.into()))
}

/// As many permits as the peer gets.
fn all(permits: &Permits, peer: Peer) -> Vec<Permit> {
    std::iter::from_fn(|| permits.try_acquire(peer)).collect()
}

#[test]
fn one_peer_gets_four_fifths_and_others_are_still_admitted() {
    let permits = Permits::new(1_000);
    let greedy = all(&permits, peer(0));
    assert_eq!(greedy.len(), 800);
    let others: Vec<_> = (1..100)
        .map(|number| permits.try_acquire(peer(number)).unwrap())
        .collect();
    drop(others);
    drop(greedy);
    assert_eq!(
        all(&permits, peer(1)).len(),
        800,
        "all permits were released"
    );
}

#[test]
fn one_peer_may_take_all_of_a_few_permits() {
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
fn permits_taken_together_count_like_single_ones() {
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

/// A user with this number in its name, at the address with that number.
fn user(users: &Users, name: usize, address: u32) -> Peer {
    users.known(peer(address), &format!("u{name}"), &[])
}

#[test]
fn one_user_leaves_permits_for_others_of_its_address() {
    let (permits, users) = (Permits::new(1_000), Users::default());
    let greedy = all(&permits, user(&users, 0, 0));
    assert_eq!(greedy.len(), 800);
    let others: Vec<_> = (1..100)
        .map(|name| permits.acquire(user(&users, name, 0)).unwrap())
        .collect();
    // A client without a known user has only the address's share, which is used up.
    assert_eq!(permits.acquire(peer(0)).unwrap_err(), Shortage::Address);
    drop((greedy, others));
    assert_eq!(all(&permits, user(&users, 1, 0)).len(), 800);
}

#[test]
fn a_user_has_one_share_across_addresses() {
    let (permits, users) = (Permits::new(1_000), Users::default());
    let held: Vec<_> = (0..1_000)
        .map_while(|address| permits.try_acquire(user(&users, 0, address)))
        .collect();
    assert_eq!(held.len(), 800);
    let refused = permits.acquire(user(&users, 0, 5_000));
    assert_eq!(refused.unwrap_err(), Shortage::User);
    permits.acquire(user(&users, 1, 5_000)).unwrap();
    permits.acquire(peer(5_000)).unwrap();
}

#[test]
fn many_users_of_one_address_leave_permits_for_other_addresses() {
    let (permits, users) = (Permits::new(1_700), Users::default());
    let mut held = Vec::new();
    for name in 0..2_000 {
        held.extend(all(&permits, user(&users, name, 0)));
    }
    assert_eq!(held.len(), 1_600);
    let refused = permits.acquire(user(&users, 5_000, 0));
    assert_eq!(refused.unwrap_err(), Shortage::Address);
    // A hundred permits are free: other addresses get some, with a known user or without.
    permits.acquire(user(&users, 5_000, 1)).unwrap();
    permits.acquire(peer(2)).unwrap();
}

#[test]
fn unreviewed_tokens_count_as_users_of_their_own() {
    let (permits, users) = (Permits::new(1_000), Users::default());
    let greedy = all(&permits, users.bearing(peer(0), b"one"));
    assert_eq!(greedy.len(), 800);
    permits.acquire(users.bearing(peer(0), b"two")).unwrap();
    // A token that equals a user's name takes nothing from that user.
    assert_ne!(
        users.bearing(peer(0), b"u1"),
        users.known(peer(0), "u1", &[])
    );
    // Another process has another key, so the same token has another hash there.
    assert_ne!(
        users.bearing(peer(0), b"one"),
        Users::default().bearing(peer(0), b"one")
    );
}

#[test]
fn exempt_users_take_all_but_the_last_permit_and_no_share_of_others() {
    let users = Users::new(["admin".to_owned()], ["operators".to_owned()]);
    let admin = users.known(peer(0), "admin", &[]);
    let operator = users.known(peer(0), "a", &["b".to_owned(), "operators".to_owned()]);
    let permits = Permits::new(1_000);
    let held: Vec<_> = (0..500)
        .flat_map(|_| [admin, operator].map(|peer| permits.acquire(peer).unwrap()))
        .collect();
    for refused in [admin, operator, user(&users, 1, 1)] {
        assert_eq!(permits.acquire(refused).unwrap_err(), Shortage::Total);
    }
    drop(held);
    let held: Vec<_> = (0..500).map(|_| permits.acquire(admin).unwrap()).collect();
    // Of the remaining half, other users at this address get as much as at any other address.
    assert_eq!(all(&permits, user(&users, 1, 0)).len(), 400);
    drop(held);
    // A user of the same name without the group is limited.
    assert_eq!(all(&permits, users.known(peer(3), "a", &[])).len(), 800);
}
