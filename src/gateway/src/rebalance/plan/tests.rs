//! Tests of the numbers, by tables and by small models of replicas behind a load balancer.

use proptest::prelude::*;

use super::RebalanceDecision::{Alone, Balanced, Paused, Round};
use super::*;

const ANY: u64 = u64::MAX;

impl RebalancePlan {
    /// Compares at this time. A round sends away what it may.
    fn compare_at(&mut self, at: Instant, own: u64, peers: &PeerWatches) -> RebalanceDecision {
        let reading = LoadReading { at, own, peers };
        let decision = self.decide(reading, ANY);
        if let Round { watches, .. } = decision {
            self.record_round(reading, watches);
        }
        decision
    }
}

fn peers(watches: &[u64]) -> PeerWatches {
    (0..)
        .zip(watches)
        .map(|(index, watches)| (SocketAddr::from(([10, 0, 0, 1], index)), *watches))
        .collect()
}

#[track_caller]
fn check(own: u64, others: &[u64], expected: RebalanceDecision) {
    let mut plan = RebalancePlan::default();
    let decision = plan.compare_at(Instant::now(), own, &peers(others));
    assert_eq!(decision, expected);
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
    let reading = LoadReading {
        at: Instant::now(),
        own: 1_000,
        peers: &peers(&[0, 0, 0]),
    };
    let decision = plan.decide(reading, watches);
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
            plan.compare_at(Instant::now(), u64::MAX, &peers(others));
        }
    }
}

/// Gateways behind a load balancer that sends each client that comes to the next one in turn.
struct Replicas {
    watches: Vec<u64>,
    plans: Vec<RebalancePlan>,
    turn: usize,
    at: Instant,
}

impl Replicas {
    fn new(watches: &[u64]) -> Self {
        Self {
            watches: watches.to_vec(),
            plans: watches.iter().map(|_| RebalancePlan::default()).collect(),
            turn: 0,
            at: Instant::now(),
        }
    }

    /// Each gateway compares, and its clients arrive; returns whether any was sent away.
    fn compare(&mut self) -> bool {
        let before = self.watches.clone();
        let mut any = false;
        for (index, plan) in self.plans.iter_mut().enumerate() {
            let mut others = before.clone();
            let own = others.remove(index);
            if let Round { watches, .. } = plan.compare_at(self.at, own, &peers(&others)) {
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
    let (mut own, mut rounds, mut at) = (10_000, 0, Instant::now());
    for _ in 0..10_000 {
        if let Round { watches, .. } = plan.compare_at(at, own, &peers(&[0, 0])) {
            own -= watches;
            rounds += 1;
        }
        at += Duration::from_secs(60);
    }
    assert_eq!((own, rounds), (2_500, 2));
}

/// All clients come back to the same gateway, as behind a load balancer that knows them.
#[test]
fn where_clients_come_back_they_are_sent_away_ever_less_often() {
    let mut plan = RebalancePlan::default();
    let (mut rounds, began) = (Vec::new(), Instant::now());
    for comparison in 0..300 {
        // So long that no hour has two rounds.
        let at = began + 2 * HOUR * comparison;
        match plan.compare_at(at, 1_000, &peers(&[0])) {
            Round { .. } => rounds.push(comparison),
            Alone | Balanced { .. } | Paused { .. } => {}
        }
    }
    assert_eq!(rounds, [0, 2, 6, 14, 30, 62, 126, 190, 254]);
}

#[test]
fn clients_that_arrive_late_end_a_pause() {
    let (mut plan, at) = (RebalancePlan::default(), Instant::now());
    let mut compare = |own, others: &[u64]| plan.compare_at(at, own, &peers(others));
    let first = compare(1_000, &[100]);
    assert!(matches!(first, Round { watches: 450, .. }));
    assert_eq!(compare(900, &[101]), Paused { mean: 501 });
    // A quarter of the 450 has arrived.
    assert!(matches!(
        compare(900, &[212]),
        Round {
            mean: 556,
            watches: 344,
            ..
        }
    ));
}

/// Neither a gateway that comes and goes nor new ones say anything about the last round.
#[test]
fn other_gateways_do_not_end_a_pause() {
    let (mut plan, at) = (RebalancePlan::default(), Instant::now());
    let one = |last: u8, watches| {
        let address = SocketAddr::from(([10, 0, 0, last], 1));
        BTreeMap::from([(address, watches)])
    };
    let is_round = |decision| matches!(decision, Round { .. });
    assert!(is_round(plan.compare_at(at, 1_000, &one(1, 0))));
    assert!(!is_round(plan.compare_at(at, 1_000, &one(2, 300))));
    // The second round of the series: the next one is three comparisons away.
    assert!(is_round(plan.compare_at(at, 1_000, &one(1, 0))));
    for peers in [BTreeMap::new(), one(3, 500), one(2, 400), one(4, 0)] {
        assert!(!is_round(plan.compare_at(at, 1_000, &peers)), "{peers:?}");
    }
}

#[test]
fn a_gateway_that_was_seen_after_the_round_may_gain_clients() {
    let (mut plan, at) = (RebalancePlan::default(), Instant::now());
    let old = peers(&[0]);
    let new = |watches| BTreeMap::from([(SocketAddr::from(([10, 0, 0, 9], 1)), watches)]);
    for own in [1_000, 500] {
        while !matches!(plan.compare_at(at, own, &old), Round { .. }) {}
    }
    // A quarter is left, and the other gateways have been replaced.
    assert!(matches!(plan.compare_at(at, 250, &new(0)), Paused { .. }));
    assert!(matches!(plan.compare_at(at, 250, &new(62)), Paused { .. }));
    let later = at + HOUR;
    assert!(matches!(
        plan.compare_at(later, 250, &new(63)),
        Round { .. }
    ));
}

#[test]
fn a_round_that_sends_nothing_away_is_none() {
    let mut plan = RebalancePlan::default();
    let reading = LoadReading {
        at: Instant::now(),
        own: 1_000,
        peers: &peers(&[0]),
    };
    for _ in 0..3 {
        assert!(matches!(plan.decide(reading, ANY), Round { .. }));
        plan.record_round(reading, 0);
    }
    plan.record_round(reading, 1);
    assert!(matches!(plan.decide(reading, ANY), Paused { .. }));
}

/// One comparison as somebody might arrange it: what the others report, and what becomes of the clients.
#[derive(Clone, Debug)]
struct Move {
    peers: Vec<(u16, u64)>,
    minutes: u64,
    /// Whether clients that are sent away come back at once.
    come_back: bool,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let watches = prop_oneof![Just(0), 0..20_000_u64, Just(1 << 24)];
    let peers = proptest::collection::vec((0..6_u16, watches), 0..5);
    let one = (peers, 0..20_u64, any::<bool>()).prop_map(|(peers, minutes, come_back)| Move {
        peers,
        minutes,
        come_back,
    });
    proptest::collection::vec(one, 0..300)
}

fn reported(peers: &[(u16, u64)]) -> PeerWatches {
    peers
        .iter()
        .map(|(index, watches)| (SocketAddr::from(([10, 0, 0, 1], *index)), *watches))
        .collect()
}

proptest! {
    /// Whatever the others report, an hour leaves a quarter, and nobody is sent away more than once in it on average.
    #[test]
    fn no_reports_drain_a_gateway(first in 0..20_000_u64, moves in moves()) {
        let (mut plan, mut at) = (RebalancePlan::default(), Instant::now());
        let (mut own, mut sent_ever) = (first, 0);
        // The hour that began with a round: when, with how many, and how many were sent.
        let mut hour = (at, first, 0);
        let mut hours = 1;
        for one in &moves {
            at += Duration::from_secs(60 * one.minutes);
            let Round { watches, floor, .. } = plan.compare_at(at, own, &reported(&one.peers)) else {
                continue;
            };
            prop_assert!(watches > 0 && own - watches >= floor);
            if at.duration_since(hour.0) >= HOUR || sent_ever == 0 {
                hours += u64::from(sent_ever > 0);
                hour = (at, own, 0);
            }
            hour.2 += watches;
            sent_ever += watches;
            if !one.come_back {
                own -= watches;
            }
            prop_assert!(hour.2 <= hour.1, "{} of {} sent in an hour", hour.2, hour.1);
            prop_assert!(own >= hour.1 / 4, "{own} of {} left after an hour", hour.1);
            prop_assert!(sent_ever <= first * hours);
        }
    }

    /// As long as nobody reports that clients arrive, a quarter stays for ever, and rounds are ever further apart, whoever is compared with.
    #[test]
    fn without_arrivals_the_series_goes_on(first in 0..20_000_u64, moves in moves()) {
        let (mut plan, mut at) = (RebalancePlan::default(), Instant::now());
        let (mut own, mut rounds, mut compared) = (first, 0, 0_u64);
        let mut lowest = BTreeMap::new();
        for one in &moves {
            at += Duration::from_secs(60 * one.minutes);
            let mut peers = reported(&one.peers);
            for (peer, watches) in &mut peers {
                let lowest = lowest.entry(*peer).or_insert(*watches);
                *lowest = (*lowest).min(*watches);
                *watches = *lowest;
            }
            compared += 1;
            if let Round { watches, .. } = plan.compare_at(at, own, &peers) {
                let pauses: u64 = (0..rounds).map(|round| u64::from(wait_after(round)) + 1).sum();
                prop_assert!(compared > pauses, "round {rounds} at comparison {compared}");
                rounds += 1;
                if !one.come_back {
                    own -= watches;
                }
                prop_assert!(own >= first / 4);
            }
        }
    }
}

#[test]
fn clients_that_move_between_other_gateways_have_not_arrived_from_here() {
    let began = Instant::now();
    let mut plan = RebalancePlan::default();
    let first = plan.compare_at(began, 3_000, &peers(&[500, 400]));
    assert!(matches!(first, Round { .. }), "{first:?}");
    let moved = plan.compare_at(began, 3_000, &peers(&[100, 800]));
    assert!(matches!(moved, Paused { .. }), "{moved:?}");
    // The same comparison after some have arrived.
    let arrived = plan.compare_at(began, 2_000, &peers(&[900, 900]));
    assert!(matches!(arrived, Round { .. }), "{arrived:?}");
}
