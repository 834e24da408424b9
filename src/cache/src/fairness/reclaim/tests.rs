//! Permits that are taken back, and those that are not.

use std::net::{IpAddr, Ipv4Addr};

use futures::FutureExt as _;

use crate::fairness::{Activity, Peer, Permit, Permits, Reclaim, Shortage, Users};

fn peer(number: u8) -> Peer {
    IpAddr::from(Ipv4Addr::new(10, 0, 0, number)).into()
}

struct Held {
    permit: Permit,
    reclaim: Reclaim,
}

impl Held {
    fn is_kept(&mut self) -> bool {
        (&mut self.reclaim).now_or_never().is_none()
    }
}

fn hold(permits: &Permits, peer: Peer) -> Result<Held, Shortage> {
    let mut permit = permits.acquire(peer)?;
    let reclaim = permit.reclaimable();
    Ok(Held { permit, reclaim })
}

/// All permits that the peers get, one peer after the other.
fn fill(permits: &Permits, peers: impl IntoIterator<Item = Peer>) -> Vec<Held> {
    peers
        .into_iter()
        .flat_map(|peer| std::iter::from_fn(move || hold(permits, peer).ok()))
        .collect()
}

fn kept(held: &mut [Held]) -> usize {
    held.iter_mut()
        .filter_map(|held| held.is_kept().then_some(()))
        .count()
}

#[test]
fn a_newcomer_displaces_the_largest_holder() {
    let permits = Permits::new(500);
    let mut greedy = fill(&permits, (0..4).map(peer));
    greedy.retain_mut(Held::is_kept);
    assert!(greedy.len() >= 499, "{}", greedy.len());
    let mut newcomers: Vec<_> = (100..200)
        .map(|number| hold(&permits, peer(number)).unwrap())
        .collect();
    assert_eq!(kept(&mut newcomers), 100);
    assert_eq!(kept(&mut greedy), 400);
    drop((greedy, newcomers));
    assert_eq!(fill(&permits, [peer(1)]).len(), 400, "all are given back");
}

#[test]
fn equal_holders_are_not_displaced() {
    let permits = Permits::new(10);
    let mut held: Vec<_> = (0..10)
        .map(|number| hold(&permits, peer(number)).unwrap())
        .collect();
    assert_eq!(hold(&permits, peer(10)).err(), Some(Shortage::Total));
    assert_eq!(hold(&permits, peer(0)).err(), Some(Shortage::Total));
    assert_eq!(kept(&mut held), 10);
}

#[test]
fn an_unused_permit_goes_to_a_newcomer_and_an_idle_one_only_to_its_own_peer() {
    let permits = Permits::new(4);
    let mut held: Vec<_> = (0..4)
        .map(|number| hold(&permits, peer(number)).unwrap())
        .collect();
    let standing: Vec<_> = held.iter().map(|held| held.permit.standing()).collect();
    for number in [2, 1] {
        standing[number].set(Activity::Unused);
    }
    standing[2].set(Activity::Busy);
    standing[0].set(Activity::Idle);
    let mut newcomer = hold(&permits, peer(4)).unwrap();
    assert!(!held[1].is_kept(), "the only unused one");
    assert_eq!(hold(&permits, peer(4)).err(), Some(Shortage::Total));
    let mut again = hold(&permits, peer(0)).unwrap();
    assert!(!held[0].is_kept(), "its own");
    assert!(held[2].is_kept() && held[3].is_kept() && newcomer.is_kept() && again.is_kept());
}

#[test]
fn users_of_one_address_do_not_lock_each_other_out() {
    let permits = Permits::new(100);
    let users = Users::default();
    let user = |name: &str| users.known(peer(1), name, &[]);
    let mut greedy = fill(&permits, ["a", "b", "c"].map(user));
    for name in ["d", "e", "f", "g"] {
        let mut newcomer = hold(&permits, user(name)).unwrap();
        assert!(newcomer.is_kept());
        greedy.push(newcomer);
    }
    // One user with many addresses is one, too.
    let everywhere = (0..200).map(|number| users.known(peer(number), "everywhere", &[]));
    let permits = Permits::new(100);
    let mut crowd = fill(&permits, everywhere.clone());
    crowd.extend(fill(
        &permits,
        (0..200).map(|number| users.known(peer(number), "too", &[])),
    ));
    crowd.extend(fill(
        &permits,
        (0..200).map(|number| users.known(peer(number), "three", &[])),
    ));
    assert!(hold(&permits, users.known(peer(201), "newcomer", &[])).is_ok());
}

#[test]
fn a_permit_is_kept_if_its_holder_does_not_listen_or_is_exempt() {
    let permits = Permits::new(10);
    let users = Users::new(["root".to_owned()], []);
    let root = users.known(peer(9), "root", &[]);
    let mut exempt: Vec<_> = (0..4).map(|_| hold(&permits, root).unwrap()).collect();
    let deaf: Vec<_> = (0..6).map(|_| permits.acquire(peer(0))).collect();
    assert_eq!(deaf.iter().filter(|deaf| deaf.is_ok()).count(), 5);
    let mut dropped = permits
        .acquire(peer(0))
        .err()
        .map(|_| permits.acquire(peer(1)).unwrap())
        .unwrap();
    drop(dropped.reclaimable());
    assert_eq!(hold(&permits, peer(2)).err(), Some(Shortage::Total));
    assert_eq!(kept(&mut exempt), 4);
    drop((exempt, deaf, dropped));
    assert_eq!(
        fill(&permits, [peer(1)]).len(),
        8,
        "each is given back once"
    );
}

/// Peers at fewer addresses than there are permits take, drop and idle as they like. A newcomer always gets a permit, nobody loses one to a
/// peer that has as many, and none is lost or given twice.
#[test]
fn a_newcomer_is_served_whatever_others_hold() {
    for seed in 0..200 {
        let mut random = Random(seed);
        let max = 2 + random.below(40);
        let permits = Permits::new(max);
        let addresses = 1 + random.below(max - 1);
        let mut held: Vec<(u8, Held)> = Vec::new();
        for _ in 0..300 {
            let number = u8::try_from(random.below(addresses)).unwrap();
            match random.below(8) {
                0 if !held.is_empty() => drop(held.swap_remove(random.below(held.len()))),
                1 if !held.is_empty() => {
                    let (_, one) = &held[random.below(held.len())];
                    let activity =
                        [Activity::Unused, Activity::Idle, Activity::Busy][random.below(3)];
                    one.permit.standing().set(activity);
                }
                2 => {
                    let mut newcomer = hold(&permits, peer(200)).expect("a newcomer is served");
                    assert!(newcomer.is_kept());
                }
                _ => held.extend(hold(&permits, peer(number)).ok().map(|one| (number, one))),
            }
            let before = held.len();
            held.retain_mut(|(_, held)| held.is_kept());
            assert!(before - held.len() <= 1, "one for one");
            assert!(held.len() <= max);
        }
        drop(held);
        assert!(fill(&permits, [peer(0)]).len() >= max * 4 / 5, "{seed}");
    }
}

/// A SplitMix64 generator.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % (bound as u64)).unwrap()
    }
}
