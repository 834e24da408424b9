//! What happens in a run: drawn from its seed before it begins.

use std::time::Duration;

use super::clients::{Habits, ListKind};
use super::history::Filter;
use crate::apiserver::faults::{Fault as ServerFault, FaultOrder};
use crate::apiserver::route::ResourceVerb;

/// When the first fault may happen.
const BEGIN_MS: u64 = 2_000;
/// When the last one ends.
pub(super) const END_MS: u64 = 25_000;

pub(super) const APISERVER: &str = "apiserver";

/// A run.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) gateways: Vec<String>,
    pub(super) clients: Vec<(String, Filter, Habits)>,
    /// The gateway of each informer.
    pub(super) informers: Vec<String>,
    /// Whether gateways keep checkpoints.
    pub(super) has_state: bool,
    pub(super) objects: usize,
    /// The longest pause between two writes.
    pub(super) write_pause_ms: u64,
    pub(super) segment_len: usize,
    /// Most events of a gateway's history.
    pub(super) ring_events: usize,
    /// What happens, in the order of time.
    pub(super) faults: Vec<(Duration, Fault)>,
}

/// A fault. Those that last say for how many milliseconds.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// The connections between two hosts are reset.
    Reset(String, String),
    /// One connection is cut after so many more bytes.
    Cut(String, String, usize),
    /// Nothing passes between two hosts, and nothing is lost.
    Hold(String, String, u64),
    /// What two hosts send to each other is lost, and the connections between them in the end.
    Partition(String, String, u64),
    /// A process does not run: nothing reaches it and it sends nothing.
    Pause(String, u64),
    /// A gateway is killed and starts again; the last block of its checkpoints may be torn.
    Kill(String, u64, bool),
    /// A gateway drains and starts again.
    Roll(String),
    /// The API server is killed and starts again.
    KillServer(u64),
    /// The API server fails requests or streams.
    Order(FaultOrder),
    /// Messages take longer.
    Latency(u64),
    /// The wall clock jumps.
    WallClock(i64),
}

impl Plan {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let gateways: Vec<String> = (0..random.usize(1..=3))
            .map(|index| format!("gateway{index}"))
            .collect();
        let clients = (0..random.usize(3..=6)).map(|index| client(index, &gateways, &mut random));
        let clients: Vec<_> = clients.collect();
        let informers =
            (0..random.usize(0..=2)).map(|index| gateways[index % gateways.len()].clone());
        let informers = informers.collect();
        let mut plan = Self {
            clients,
            informers,
            has_state: random.bool(),
            objects: random.usize(3..40),
            write_pause_ms: [20, 100, 400, 3_000][random.usize(..4)],
            segment_len: [97, 700, 1_448, 16_384][random.usize(..4)],
            ring_events: [128, 512, 4_096][random.usize(..3)],
            faults: Vec::new(),
            gateways,
        };
        for _ in 0..random.usize(0..12) {
            let at = Duration::from_millis(random.u64(BEGIN_MS..END_MS - 3_000));
            let fault = plan.fault(&mut random);
            plan.faults.push((at, fault));
        }
        plan.faults.sort_by_key(|(at, _)| *at);
        plan
    }

    fn fault(&self, random: &mut fastrand::Rng) -> Fault {
        let gateway = self.gateways[random.usize(..self.gateways.len())].clone();
        let peer = match random.usize(..self.clients.len() + 3) {
            index if index < self.clients.len() => self.clients[index].0.clone(),
            _ => APISERVER.to_owned(),
        };
        let ms = random.u64(100..12_000);
        match random.u8(..14) {
            0 => Fault::Reset(gateway, peer),
            1 | 2 => Fault::Cut(gateway, peer, random.usize(1..6_000)),
            3 => Fault::Hold(gateway, peer, ms),
            4 => Fault::Partition(gateway, peer, ms),
            5 => Fault::Pause(gateway, ms),
            6 => Fault::Kill(gateway, random.u64(50..5_000), random.bool()),
            7 => Fault::Roll(gateway),
            8 => Fault::KillServer(random.u64(50..5_000)),
            9 => Fault::Latency(random.u64(5..400)),
            10 => Fault::WallClock(random.i64(-100_000..100_000)),
            _ => Fault::Order(order(random)),
        }
    }
}

fn client(
    index: usize,
    gateways: &[String],
    random: &mut fastrand::Rng,
) -> (String, Filter, Habits) {
    let filter = [None, None, Some("left"), Some("right")][random.usize(..4)];
    let list = [ListKind::Newest, ListKind::Any, ListKind::Streamed][random.usize(..3)];
    // A client moves between gateways, or stays with one.
    let mut gateways = gateways.to_vec();
    if random.bool() {
        gateways = vec![gateways[random.usize(..gateways.len())].clone()];
    }
    let habits = Habits {
        gateways,
        is_http2: random.bool(),
        list,
        delay_ms: [0, 0, 0, 30][random.usize(..4)],
        random: random.fork(),
    };
    (format!("client{index}"), filter, habits)
}

fn order(random: &mut fastrand::Rng) -> FaultOrder {
    let code = [401, 403, 410, 429, 500, 503][random.usize(..6)];
    let fault = match random.u8(..10) {
        0 => ServerFault::EndWatches,
        1 | 2 => ServerFault::Compact,
        3 => ServerFault::GarbageFrame,
        4 => ServerFault::CloseConnection,
        5 => ServerFault::Delay {
            delay_ms: random.u64(10..5_000),
        },
        6 => ServerFault::CutWatch {
            after_bytes: random.u64(1..5_000),
        },
        _ => ServerFault::Refuse {
            code,
            retry_after_seconds: random.u32(1..3),
        },
    };
    let verb = [None, Some(ResourceVerb::List), Some(ResourceVerb::Watch)][random.usize(..3)];
    FaultOrder {
        fault,
        verb,
        resource: None,
        count: random.u32(1..5),
    }
}
