//! What happens in a run: drawn from its seed before it begins.

use std::time::Duration;

use super::clients::{Habits, HttpVersion, ListKind};
use super::history::Filter;
use kube_fanout_testkit::apiserver::faults::{Fault as ServerFault, FaultOrder};
use kube_fanout_testkit::apiserver::request::Verb;

/// When the first fault may happen.
const BEGIN_MS: u64 = 2_000;
/// When the last one ends.
pub(crate) const END_MS: u64 = 25_000;

pub(crate) const APISERVER: &str = "apiserver";

/// A run.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) gateways: Vec<String>,
    pub(crate) clients: Vec<(String, Filter, Habits)>,
    /// The gateway of each informer.
    pub(crate) informers: Vec<String>,
    /// Whether gateways keep checkpoints.
    pub(crate) has_state: bool,
    /// Whether clients from before the history get the latest state of what changed.
    pub(crate) has_catch_up: bool,
    /// Whether a gateway that starts takes its caches over from the next one.
    pub(crate) has_handover: bool,
    /// How often gateways compare their caches with the API server; zero for never.
    pub(crate) drift_interval: Duration,
    pub(crate) writes: Writes,
    pub(crate) segment_len: usize,
    /// The segments that a connection holds.
    pub(crate) capacity: usize,
    /// Most events of a gateway's history.
    pub(crate) ring_events: usize,
    /// What happens, in the order of time.
    pub(crate) faults: Vec<(Duration, Fault)>,
}

/// What a run is to find. Each run checks all properties, but they are hidden in different ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Clients watch for a few seconds, so that they resume, and get bookmarks, often.
    Safety,
    /// Clients watch for longer than the run takes, so that no end of a watch brings what its stream has kept back.
    Liveness,
}

/// What is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writes {
    pub(crate) objects: usize,
    /// The longest pause between two writes.
    pub(crate) pause_ms: u64,
    /// Whether some objects are longer than what is written to a client at once.
    pub(crate) has_large: bool,
    /// How many of a hundred writes are of the resource that clients read; the others are of another one.
    pub(crate) percent: u8,
    /// Writes of another resource at the start.
    pub(crate) first: u64,
}

/// A fault. Those that last say for how many milliseconds.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// The connections between two hosts are reset.
    Reset(String, String),
    /// One connection is cut after so many more bytes.
    Cut(String, String, usize),
    /// Nothing passes between two hosts, and nothing is lost.
    Hold(String, String, u64),
    /// What two hosts send to each other is lost, and the connections between them in the end.
    Partition(String, String, u64),
    /// A gateway and the API server are apart until the API server has discarded its history, in which an object may be deleted last.
    LoseHistory(String, u64, bool),
    /// The same, and while it lasts all other gateways are killed: clients come with versions that this one has missed.
    Takeover(String, u64),
    /// A process does not run: nothing reaches it and it sends nothing.
    Pause(String, u64),
    /// A gateway is killed and starts again; the last block of its checkpoints may be torn.
    Kill(String, u64, bool),
    /// A gateway drains and starts again.
    Roll(String),
    /// The API server is killed and starts again.
    KillServer(u64),
    /// The API server is killed and starts again without anything, as if from a backup of its first day.
    Restore(u64),
    /// The API server fails requests or streams.
    Order(FaultOrder),
    /// Messages take longer.
    Latency(u64),
    /// The wall clock jumps.
    WallClock(i64),
}

impl Plan {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let mode = [Mode::Safety, Mode::Liveness][random.usize(..2)];
        let gateways: Vec<String> = (0..random.usize(1..=3))
            .map(|index| format!("gateway{index}"))
            .collect();
        let clients =
            (0..random.usize(3..=6)).map(|index| client(index, mode, &gateways, &mut random));
        let clients: Vec<_> = clients.collect();
        let informers =
            (0..random.usize(0..=2)).map(|index| gateways[index % gateways.len()].clone());
        let informers = informers.collect();
        let objects_end = [8, 40][random.usize(..2)];
        let mut plan = Self {
            clients,
            informers,
            has_state: random.bool(),
            has_catch_up: random.u8(..4) == 0,
            has_handover: random.bool(),
            drift_interval: Duration::from_secs([0, 1, 5][random.usize(..3)]),
            writes: Writes {
                objects: random.usize(3..objects_end),
                pause_ms: [50, 200, 800, 4_000][random.usize(..4)],
                has_large: random.u8(..3) == 0,
                percent: [100, 100, 100, 2][random.usize(..4)],
                first: 0,
            },
            capacity: [64, 256, 1_024][random.usize(..3)],
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
        if plan.writes.percent < 100 {
            plan.lose_deletions(&mut random);
        }
        if random.u8(..8) == 0 {
            plan.restore_backup(&mut random);
        }
        plan.faults.sort_by_key(|(at, _)| *at);
        plan
    }

    /// The gateway that a gateway takes its caches over from.
    pub(crate) fn peer_of(&self, gateway: &str) -> Option<&str> {
        let index = self.gateways.iter().position(|name| name == gateway)?;
        let peer = &self.gateways[(index + 1) % self.gateways.len()];
        (self.has_handover && peer != gateway).then_some(peer)
    }

    /// All hosts that a gateway talks to.
    pub(crate) fn peers_of(&self, gateway: &str) -> Vec<String> {
        let clients = self.clients.iter().map(|(name, _, _)| name.clone());
        let informers = (0..self.informers.len()).map(informer_name);
        let others = self.gateways.iter().filter(|name| *name != gateway);
        let others = others.cloned().chain([APISERVER.to_owned()]);
        clients.chain(informers).chain(others).collect()
    }

    /// Whether the API server loses its state, which gateways then contradict.
    pub(crate) fn restores_backup(&self) -> bool {
        let mut faults = self.faults.iter();
        faults.any(|(_, fault)| matches!(fault, Fault::Restore(_)))
    }

    /// The API server loses its state in this run. A gateway notices that when it watches again, as long as the lost versions have not been
    /// reached again; so these are high, and the gateways run and reach the API server.
    fn restore_backup(&mut self, random: &mut fastrand::Rng) {
        self.writes.first = 3_000;
        self.writes.percent = [100, 2, 0][random.usize(..3)];
        for (_, fault) in &mut self.faults {
            match fault {
                Fault::Reset(..)
                | Fault::Cut(..)
                | Fault::Latency(_)
                | Fault::WallClock(_)
                | Fault::Restore(_) => {}
                Fault::Order(_) | Fault::KillServer(_) => *fault = Fault::Latency(50),
                Fault::Hold(gateway, ..)
                | Fault::Partition(gateway, ..)
                | Fault::LoseHistory(gateway, ..)
                | Fault::Takeover(gateway, _)
                | Fault::Pause(gateway, _)
                | Fault::Kill(gateway, ..)
                | Fault::Roll(gateway) => {
                    *fault = Fault::Reset(gateway.clone(), APISERVER.to_owned());
                }
            }
        }
        let at = Duration::from_millis(random.u64(6_000..15_000));
        let fault = Fault::Restore(random.u64(50..1_000));
        self.faults.push((at, fault));
    }

    /// Objects are deleted while a gateway cannot know of it, and nothing else happens to the resource. Clients that arrived after the last
    /// event have a version that the gateway had to ask for.
    fn lose_deletions(&mut self, random: &mut fastrand::Rng) {
        for gateway in self.gateways.clone() {
            let at = Duration::from_millis(random.u64(BEGIN_MS..END_MS - 5_000));
            let fault = Fault::LoseHistory(gateway, random.u64(50..4_000), true);
            self.faults.push((at, fault));
        }
    }

    fn fault(&self, random: &mut fastrand::Rng) -> Fault {
        let gateway = self.gateways[random.usize(..self.gateways.len())].clone();
        let peer = match random.usize(..self.clients.len() + 3) {
            index if index < self.clients.len() => self.clients[index].0.clone(),
            _ => APISERVER.to_owned(),
        };
        let ms = random.u64(100..12_000);
        match random.u8(..16) {
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
            11 => Fault::LoseHistory(gateway, ms, random.bool()),
            12 => Fault::Takeover(gateway, ms.max(1_000)),
            _ => Fault::Order(order(random)),
        }
    }
}

pub(crate) fn informer_name(index: usize) -> String {
    format!("informer{index}")
}

fn client(
    index: usize,
    mode: Mode,
    gateways: &[String],
    random: &mut fastrand::Rng,
) -> (String, Filter, Habits) {
    let filter = [None, None, Some("left"), Some("right")][random.usize(..4)];
    let list = [
        ListKind::Newest,
        ListKind::Paged,
        ListKind::Any,
        ListKind::Streamed,
    ][random.usize(..4)];
    // A client moves between gateways, or stays with one.
    let mut gateways = gateways.to_vec();
    if random.bool() {
        gateways = vec![gateways[random.usize(..gateways.len())].clone()];
    }
    let habits = Habits {
        gateways,
        http: if random.bool() {
            HttpVersion::Http1
        } else {
            let window = [2 << 20, 65_535, 16_384, 2_048][random.usize(..4)];
            HttpVersion::Http2 { window }
        },
        starts_ms: if random.bool() {
            0
        } else {
            random.u64(..20_000)
        },
        list,
        delay_ms: [0, 0, 0, 30][random.usize(..4)],
        seconds: match mode {
            Mode::Safety => [3..9, 5..40][random.usize(..2)].clone(),
            Mode::Liveness => 600..601,
        },
        away_ms: [0, 0, 0, 8_000][random.usize(..4)],
        lists_again: mode == Mode::Safety && random.u8(..3) == 0,
        only_lists: list != ListKind::Streamed && random.u8(..8) == 0,
        random: random.fork(),
    };
    (format!("client{index}"), filter, habits)
}

fn order(random: &mut fastrand::Rng) -> FaultOrder {
    let code = [
        400, 401, 403, 404, 405, 406, 410, 422, 429, 500, 502, 503, 504,
    ][random.usize(..13)];
    let fault = match random.u8(..12) {
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
        7 => ServerFault::EmptyWatch,
        8 => ServerFault::ErrorEvent {
            code,
            is_coded: random.bool(),
        },
        _ => ServerFault::Refuse {
            code,
            retry_after_seconds: random.u32(1..3),
        },
    };
    let verb = [None, Some(Verb::List), Some(Verb::Watch)][random.usize(..3)];
    FaultOrder {
        fault,
        verb,
        resource: None,
        count: random.u32(1..5),
    }
}
