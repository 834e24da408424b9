//! Tests of the numbers, by tables and by small models of replicas behind a load balancer.

use super::RebalanceDecision::{Alone, Balanced, Paused, Round};
use super::*;

const ANY: u64 = u64::MAX;

fn peers(watches: &[u64]) -> PeerWatches {
    let at = |(index, watches): (u16, &u64)| (SocketAddr::from(([10, 0, 0, 1], index)), *watches);
    (0..).zip(watches).map(at).collect()
}

#[track_caller]
fn check(own: u64, others: &[u64], expected: RebalanceDecision) {
    let mut plan = RebalancePlan::default();
    assert_eq!(plan.decide(own, &peers(others), ANY), expected);
}

#[test]
fn only_a_gateway_with_many_more_watches_than_the_mean_sends_clients_away() {
    check(1_000, &[], Alone);
    check(0, &[], Alone);
    check(0, &[0], Balanced { mean: 0 });
    check(1_000, &[1_000, 1_000], Balanced { mean: 1_000 });
    // Those that have fewer wait for clients.
    check(0, &[900, 900], Balanced { mean: 600 });
    // At most 50, or a fifth, above the mean.
    check(100, &[0], Balanced { mean: 50 });
    check(150, &[50], Balanced { mean: 100 });
    check(1_200, &[800], Balanced { mean: 1_000 });
    for (own, other, mean) in [(102, 0, 51), (1_202, 800, 1_001)] {
        let watches = own - mean;
        let floor = mean;
        check(
            own,
            &[other],
            Round {
                mean,
                watches,
                floor,
            },
        );
    }
    // After a rolling update of three: the two that have all clients send the rest to the third.
    let (mean, floor) = (1_000, 1_000);
    let watches = 500;
    check(
        1_500,
        &[1_500, 0],
        Round {
            mean,
            watches,
            floor,
        },
    );
}

#[test]
fn a_round_ends_at_most_a_half_and_at_most_what_its_time_allows() {
    let (mean, watches, floor) = (250, 500, 500);
    check(
        1_000,
        &[0, 0, 0],
        Round {
            mean,
            watches,
            floor,
        },
    );
    let mut plan = RebalancePlan::default();
    let watches = 120;
    let decision = plan.decide(1_000, &peers(&[0, 0, 0]), watches);
    assert_eq!(
        decision,
        Round {
            mean,
            watches,
            floor
        }
    );
}

#[test]
fn no_number_overflows() {
    for others in [&[0][..], &[u64::MAX], &[u64::MAX, u64::MAX]] {
        let mut plan = RebalancePlan::default();
        for _ in 0..10_000 {
            let _ = plan.decide(u64::MAX, &peers(others), ANY);
        }
    }
}

/// Gateways behind a load balancer that sends each client that comes to the next one in turn.
struct Replicas {
    watches: Vec<u64>,
    plans: Vec<RebalancePlan>,
    turn: usize,
}

impl Replicas {
    fn new(watches: &[u64]) -> Self {
        Self {
            watches: watches.to_vec(),
            plans: watches.iter().map(|_| RebalancePlan::default()).collect(),
            turn: 0,
        }
    }

    /// Each gateway compares, and its clients arrive; returns whether any was sent away.
    fn compare(&mut self) -> bool {
        let before = self.watches.clone();
        let mut any = false;
        for (index, plan) in self.plans.iter_mut().enumerate() {
            let mut others = before.clone();
            let own = others.remove(index);
            if let Round { watches, .. } = plan.decide(own, &peers(&others), ANY) {
                any = true;
                self.watches[index] -= watches;
                for _ in 0..watches {
                    self.turn = (self.turn + 1) % before.len();
                    self.watches[self.turn] += 1;
                }
            }
        }
        any
    }
}

#[test]
fn replicas_become_equal_and_then_rest() {
    for watches in [
        &[3_000, 0][..],
        &[1_500, 1_500, 0],
        &[1_000, 1_000, 1_000, 1_000, 0],
        &[10_000, 0, 0, 0],
        &[90, 4_000, 700],
    ] {
        let mut replicas = Replicas::new(watches);
        let rounds = (0..100).take_while(|_| replicas.compare()).count();
        assert!(rounds < 12, "{watches:?}: {rounds} rounds");
        let total: u64 = watches.iter().sum();
        assert_eq!(replicas.watches.iter().sum::<u64>(), total);
        let mean = total / watches.len() as u64;
        let most = mean + (mean / 5).max(50) + 1;
        assert!(
            replicas.watches.iter().all(|own| *own <= most),
            "{:?}",
            replicas.watches
        );
        assert!(!replicas.compare());
    }
}

/// Clients leave for a gateway that always says that it has none.
#[test]
fn a_gateway_that_reports_nothing_does_not_empty_another() {
    let mut plan = RebalancePlan::default();
    let (mut own, mut rounds) = (10_000, 0);
    for _ in 0..10_000 {
        if let Round { watches, .. } = plan.decide(own, &peers(&[0, 0]), ANY) {
            own -= watches;
            rounds += 1;
        }
    }
    assert_eq!((own, rounds), (2_500, 2));
}

/// All clients come back to the same gateway, as behind a load balancer that knows them.
#[test]
fn where_clients_come_back_they_are_sent_away_ever_less_often() {
    let mut plan = RebalancePlan::default();
    let mut rounds = Vec::new();
    for comparison in 0..300 {
        match plan.decide(1_000, &peers(&[0]), ANY) {
            Round { .. } => rounds.push(comparison),
            Alone | Balanced { .. } | Paused { .. } => {}
        }
    }
    assert_eq!(rounds, [0, 2, 6, 14, 30, 62, 126, 190, 254]);
}

#[test]
fn clients_that_arrive_late_or_other_gateways_end_a_pause() {
    let round = |own: u64, mean: u64| Round {
        mean,
        watches: own - mean,
        floor: mean,
    };
    let mut plan = RebalancePlan::default();
    let all = |plan: &mut RebalancePlan, own, others: &[u64]| plan.decide(own, &peers(others), ANY);
    assert_eq!(all(&mut plan, 1_000, &[100]), round(1_000, 550));
    assert_eq!(all(&mut plan, 900, &[101]), Paused { mean: 501 });
    // A quarter of the 450 has arrived.
    assert_eq!(all(&mut plan, 900, &[212]), round(900, 556));
    assert_eq!(all(&mut plan, 900, &[212]), Paused { mean: 556 });
    let other = BTreeMap::from([(SocketAddr::from(([10, 0, 0, 2], 1)), 212)]);
    assert_eq!(plan.decide(900, &other, ANY), round(900, 556));
    // Fewer were sent away than were to be.
    plan.record_sent(8);
    let other = BTreeMap::from([(SocketAddr::from(([10, 0, 0, 2], 1)), 214)]);
    assert_eq!(plan.decide(892, &other, ANY), round(892, 553));
    assert_eq!(plan.decide(892, &BTreeMap::new(), ANY), Alone);
}
