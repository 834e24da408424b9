//! Who gets a place, and that none is lost.

use std::net::IpAddr;

use super::*;

fn peer(number: u8) -> Peer {
    Peer::from(IpAddr::from([10, 0, 0, number]))
}

#[tokio::test]
async fn a_place_goes_to_who_waits_longest_and_is_still_there() {
    let places = ReviewPermits::new(1, 8);
    let place = places.turn(peer(1)).unwrap().come().await.unwrap();
    let left = places.turn(peer(2)).unwrap();
    let waits = places.turn(peer(3)).unwrap();
    let later = places.turn(peer(4)).unwrap();
    drop(left);
    drop(place);
    let place = waits.come().await.unwrap();
    assert_eq!(place.peer, peer(3));
    // Given to somebody who leaves without having looked.
    let last = places.turn(peer(5)).unwrap();
    drop(place);
    drop(later);
    drop(last.come().await.unwrap());
    assert_eq!(places.line(peer(1)).running(), 0);
    assert_eq!(places.line(peer(1)).waiting(), 0);
}

#[tokio::test]
async fn who_has_a_full_line_leaves_places_and_a_line_to_others() {
    let places = ReviewPermits::new(10, 10);
    let turns: Vec<_> = (0..100).map_while(|_| places.turn(peer(1))).collect();
    assert_eq!(turns.len(), 8 + 8);
    let other = places.turn(peer(2)).unwrap();
    assert!(other.come().await.is_some());
    assert!(places.turn(peer(1)).is_none());
}
