//! Which peer gets a permit, and that no permit is lost.

use std::net::IpAddr;

use super::*;

fn peer(number: u8) -> Peer {
    Peer::from(IpAddr::from([10, 0, 0, number]))
}

#[tokio::test]
async fn a_permit_goes_to_the_longest_waiter_that_is_still_there() {
    let permits = QueuedPermits::new(1, 8);
    let permit = permits.request(peer(1)).unwrap().granted().await.unwrap();
    let cancelled = permits.request(peer(2)).unwrap();
    let second = permits.request(peer(3)).unwrap();
    let third = permits.request(peer(4)).unwrap();
    drop(cancelled);
    drop(permit);
    let permit = second.granted().await.unwrap();
    assert_eq!(permit.peer, peer(3));
    // The third request is granted the permit, and is dropped without having taken it.
    let last = permits.request(peer(5)).unwrap();
    drop(permit);
    drop(third);
    drop(last.granted().await.unwrap());
    assert_eq!(permits.0.lock().running(), 0);
    assert_eq!(permits.0.lock().waiting(), 0);
}

#[tokio::test]
async fn a_peer_with_a_full_queue_does_not_block_others() {
    let permits = QueuedPermits::new(10, 10);
    let pending: Vec<_> = (0..100)
        .map_while(|_| permits.request(peer(1)).ok())
        .collect();
    assert_eq!(pending.len(), 8 + 8);
    let other = permits.request(peer(2)).unwrap();
    assert!(other.granted().await.is_some());
    assert!(permits.request(peer(1)).is_err());
}
