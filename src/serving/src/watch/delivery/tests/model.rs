//! A randomized model of everything between a view and its clients, driven by a seed: scripted connections and bodies, and
//! publications at any moment. When no task is runnable, every client must have every event, without another event to wake it.
//!
//! Sensitivity: 628 of the 1,500 seeds fail if a group does not continue after a chunk that was cut short.

mod blocks;
mod client;
mod stage;
mod wire;

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::time::Instant;

use self::client::{Client, ERROR, End, Excuses, Frames, HEAD, Way, initial};
use self::stage::{Flag, Sees, Stage};
use self::wire::Wire;
use super::super::client_stream::ClientStream;
use super::super::inbox::Inbox;
use super::super::limits::{LIMITS, TurnLimits};
use super::super::new_stream::NewStream;
use super::super::pace::PAUSE_MAX;
use super::super::worker::DeliveryWorker;
use crate::auth::lease::Lease;
use crate::cache::samples::{Dice, World, kind};
use crate::connection::websocket::SocketIo;
use crate::protocol::websocket::Framing;
use crate::resource::{Layout, ResourceVersion};
use crate::selector::{EVALUATED, LabelSelector, Selector};
use crate::view::{GzipWeight, Hub, Marker, ServedResource, ViewSubscription};
use crate::watch::{FRAMES, FrameLimits, Start, Timing, Watch, WatchRecorder};
use blocks::LateBlocks;

const SEEDS: u64 = 1_500;
/// One in so many seeds runs with the limits of production and objects of up to 200 kB.
const LARGE: u64 = 500;
const CLIENTS_MAX: usize = 8;
/// More polls than any script needs, so that a task that wakes itself forever is found.
const POLLS_MAX: usize = 1_000_000;

const TINY_FRAMES: [&FrameLimits; 3] = [
    &FrameLimits {
        len: 1,
        slices: 1,
        block_min: 1,
        initial_len: 1,
        cost: 1,
    },
    &FrameLimits {
        len: 200,
        slices: 3,
        block_min: 400,
        initial_len: 500,
        cost: 7,
    },
    &FRAMES,
];

struct Model<'a> {
    runtime: &'a Runtime,
    dice: Dice,
    stage: Arc<Stage>,
    served: ServedResource,
    inbox: Arc<Inbox>,
    worker: DeliveryWorker,
    woken: Arc<Flag>,
    frames: &'static FrameLimits,
    write_max: u64,
    may_lag: bool,
    clients: Vec<Client>,
    past: Vec<Frames>,
}

impl<'a> Model<'a> {
    fn new(seed: u64, runtime: &'a Runtime) -> Self {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        // Consecutive seeds start with similar numbers; skip these.
        (0..4).for_each(|_| _ = dice.below(2));
        let is_large = seed.is_multiple_of(LARGE);
        let may_lag = !is_large && dice.once_in(4);
        let hub = Arc::new(Hub::new(&kind(Layout::Typed)));
        let events_max = if may_lag { 16 } else { 1 << 20 };
        let world = World::new(seed, events_max, Arc::clone(&hub) as _);
        let cache = Arc::clone(world.writer.cache());
        let data_len_max = if is_large { 200_000 } else { 400 };
        let pick = |dice: &mut Dice, choices: &[usize]| choices[dice.index(choices.len() as u64)];
        let limits = TurnLimits {
            chunk_len: pick(&mut dice, &[1, 64, 300, 1_000]),
            chunks: pick(&mut dice, &[1, 2, 4]),
            stream_turn: pick(&mut dice, &[1, 2, 8]),
            worker_turn: pick(&mut dice, &[2, 3, 5, 64]),
            // Either each pass is followed by a pause, or none is.
            pass_min: [Duration::ZERO, Duration::MAX][dice.index(2)],
            flush_wait: Duration::ZERO,
        };
        let (limits, frames) = if is_large {
            (LIMITS, &FRAMES)
        } else {
            (limits, TINY_FRAMES[dice.index(3)])
        };
        let inbox = Arc::<Inbox>::default();
        Self {
            runtime,
            stage: Arc::new(Stage::new(world, seed, data_len_max)),
            served: ServedResource { cache, hub },
            worker: DeliveryWorker::new(Arc::clone(&inbox), limits),
            inbox,
            woken: Flag::raised(),
            frames,
            write_max: if is_large {
                300_000
            } else {
                100 + dice.below(600)
            },
            may_lag,
            clients: Vec::new(),
            past: Vec::new(),
            dice,
        }
    }

    /// A moment at which an event may be published.
    fn moment(&mut self) {
        if self.dice.once_in(4) {
            self.stage.publish(1);
        }
    }

    fn join(&mut self) {
        if self.clients.len() == CLIENTS_MAX {
            return;
        }
        let sees = [Sees::All, Sees::All, Sees::Tier, Sees::Namespace][self.dice.index(4)];
        let entry = self.served.hub.join(&sees.selector());
        self.moment();
        let (start, since, initial) = self.start(sees);
        let has_marker = matches!(
            start,
            Start::Initial {
                marker: Marker::InitialEventsEnd,
                ..
            }
        );
        self.moment();
        let is_short = self.dice.once_in(8);
        let timeout = if is_short {
            5 + self.dice.below(100)
        } else {
            36_000
        };
        let lease = Lease::new();
        let watch = self.watch(entry, start, timeout).leased(Some(lease.hold()));
        let (way, is_gzip) = self.way(watch);
        self.clients.push(Client {
            way,
            is_gzip,
            lease,
            sees,
            since,
            initial,
            has_marker,
            must_end: false,
            excuses: Excuses {
                may_lag: self.may_lag,
                may_end: is_short,
                ..Excuses::default()
            },
        });
    }

    fn watch(&mut self, entry: ViewSubscription, start: Start, timeout: u64) -> Watch {
        let timing = Timing {
            started: Instant::now(),
            timeout: Duration::from_secs(timeout),
            bookmarks: self.dice.once_in(2),
        };
        let recorder = Arc::clone(&self.stage) as Arc<dyn WatchRecorder>;
        Watch::new(self.served.clone(), entry, start, timing, recorder).limited(self.frames)
    }

    /// A client of all events from `version` on, whose connection takes everything.
    fn enter(&mut self, version: u64, is_pulled: bool) {
        let entry = self.served.hub.join(&Sees::All.selector());
        let sequence = entry.reached.through;
        let start = Start::After {
            sequence,
            version: ResourceVersion(version),
        };
        let watch = self.watch(entry, start, 36_000);
        let way = if is_pulled {
            pulled(watch)
        } else {
            self.delivered(watch)
        };
        let client = Client {
            way,
            is_gzip: false,
            lease: Lease::new(),
            sees: Sees::All,
            since: version,
            initial: Vec::new(),
            has_marker: false,
            must_end: false,
            excuses: Excuses::default(),
        };
        if let Some(wire) = client.wire() {
            wire.open(usize::MAX);
        }
        self.clients.push(client);
    }

    /// Where the watch starts, the version of that, and the initial events.
    fn start(&mut self, sees: Sees) -> (Start, u64, Vec<Vec<u8>>) {
        let world = self.stage.world.lock().unwrap();
        let after = |version| {
            let sequence = self
                .served
                .cache
                .resume_after(ResourceVersion(version))
                .ok()?;
            let version = ResourceVersion(version);
            Some((Start::After { sequence, version }, version.0, Vec::new()))
        };
        let version = match self.dice.below(4) {
            0 => {
                let snapshot = self.served.cache.snapshot().unwrap();
                let marker = if self.dice.once_in(2) {
                    Marker::InitialEventsEnd
                } else {
                    Marker::None
                };
                let version = snapshot.resource_version;
                let start = Start::Initial {
                    snapshot,
                    version,
                    marker,
                };
                return (start, version.0, initial(&world, sees));
            }
            // A version in the future.
            1 if self.dice.once_in(3) => world.version + 1 + self.dice.below(6),
            // A version in the past.
            2 => 10 + self.dice.below(world.version - 9),
            _ => world.version,
        };
        after(version).or_else(|| after(world.version)).unwrap()
    }

    /// The way of a watch, and whether it is compressed.
    fn way(&mut self, watch: Watch) -> (Way, bool) {
        let way = self.dice.below(5);
        let is_gzip = way != 1 && self.dice.once_in(2);
        let watches_min = 1 + self.dice.index(2);
        let weight = GzipWeight {
            watches: [1, watches_min][self.dice.index(2)],
            watches_min,
        };
        let watch = if is_gzip {
            watch
                .compressed(weight, None, Arc::new(LateBlocks))
                .limited(self.frames)
        } else {
            watch
        };
        let way = match way {
            0 => pulled(watch),
            1 => {
                let wire = self.wire();
                let body = watch.map_err(|never| match never {}).boxed_unsync();
                Way::Socket {
                    talk: Box::pin(SocketIo::new(wire.clone(), body, Framing::Lines)),
                    wire,
                    flag: Flag::raised(),
                    is_over: false,
                }
            }
            _ => self.delivered(watch),
        };
        (way, is_gzip)
    }

    fn wire(&mut self) -> Wire {
        let wire = Wire::new(&mut self.dice, &self.stage, self.write_max);
        wire.open(self.dice.index(3 * self.write_max));
        wire
    }

    fn delivered(&mut self, watch: Watch) -> Way {
        let wire = self.wire();
        let (done, back) = oneshot::channel();
        self.inbox.push_arrival(Box::new(NewStream {
            client: ClientStream::Http1 {
                transport: wire.clone().into(),
                done,
            },
            head: Bytes::from_static(HEAD),
            watch: Box::new(watch),
        }));
        Way::Delivered {
            wire,
            back,
            is_back: false,
        }
    }

    /// Polls the worker if it was woken; returns whether it was.
    fn turn(&mut self) -> bool {
        let is_woken = self.woken.lower();
        if is_woken {
            let waker = self.woken.waker();
            let polled = Pin::new(&mut self.worker).poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
        }
        is_woken
    }

    fn step(&mut self) {
        let index = self.dice.index(CLIENTS_MAX as u64);
        match self.dice.below(24) {
            0..=2 => self.join(),
            3..=8 => self.stage.publish(1 + self.dice.below(3)),
            9..=14 => drop(self.turn()),
            15..=20 => self.nudge(index),
            21 => self.stage.progress(),
            22 if self.dice.once_in(3) => self.leave(index),
            23 if self.dice.once_in(2) => self.wait(),
            23 if self.dice.once_in(2) => self.revoke(index),
            _ => {}
        }
    }

    /// Runs one client; it may also change how much it takes, or send data.
    fn nudge(&mut self, index: usize) {
        let (dice, write_max) = (&mut self.dice, self.write_max);
        let Some(client) = self.clients.get_mut(index) else {
            return;
        };
        client.turn();
        let Some(wire) = client.wire() else {
            return;
        };
        match dice.below(6) {
            0 => wire.open(0),
            1 => wire.open(1),
            2 if matches!(client.way, Way::Delivered { .. }) => wire.say(b"GET /next"),
            _ => wire.open(dice.index(3 * write_max)),
        }
    }

    fn leave(&mut self, index: usize) {
        let Some(client) = self.clients.get_mut(index) else {
            return;
        };
        client.excuses.left = true;
        match &mut client.way {
            Way::Pulled { is_over, .. } => *is_over = true,
            Way::Delivered { wire, .. } | Way::Socket { wire, .. } => {
                wire.close(self.dice.once_in(2))
            }
        }
    }

    /// Revokes the client's permission: its stream ends wherever it is, after the events that were published before.
    fn revoke(&mut self, index: usize) {
        if let Some(client) = self.clients.get_mut(index) {
            client.lease.revoke();
            client.must_end = true;
            client.excuses.may_end = true;
        }
    }

    fn wait(&mut self) {
        let time = Duration::from_millis(self.dice.below(40_000));
        self.advance(time);
    }

    fn advance(&self, time: Duration) {
        self.stage.world.lock().unwrap().now += time;
        self.runtime.block_on(tokio::time::advance(time));
    }

    /// Stops publications and lets all connections take everything, except some if `may_block`. Runs to the end and checks all
    /// clients.
    fn quiet(&mut self, may_block: bool) -> Result<(), String> {
        self.stage.set_odds(1, 0);
        for client in &mut self.clients {
            client.excuses.blocked = may_block && self.dice.once_in(4);
            if let Some(wire) = client.wire()
                && !client.excuses.blocked
            {
                wire.open(usize::MAX);
            }
        }
        self.settle()?;
        self.check()
    }

    /// Closes the resource: every client gets the events published before, and ends.
    fn close(&mut self) -> Result<(), String> {
        self.stage.publish(1 + self.dice.below(3));
        self.served.hub.close();
        for client in &mut self.clients {
            client.must_end = true;
        }
        self.settle()?;
        self.check()
    }

    /// Runs the worker and all clients until none is woken any more, also after the longest pause between two passes.
    fn settle(&mut self) -> Result<(), String> {
        self.run()?;
        self.advance(PAUSE_MAX);
        self.run()
    }

    fn run(&mut self) -> Result<(), String> {
        let mut polls = 0;
        loop {
            let mut is_quiet = !self.turn();
            for client in &mut self.clients {
                is_quiet &= !client.turn();
            }
            if is_quiet {
                return Ok(());
            }
            polls += 1;
            if polls == POLLS_MAX {
                return Err("the tasks never stop waking each other".into());
            }
        }
    }

    fn check(&mut self) -> Result<(), String> {
        let world = self.stage.world.lock().unwrap();
        let new = &world.past[self.past.len()..];
        self.past.extend(new.iter().map(Frames::of));
        for (at, client) in self.clients.iter_mut().enumerate() {
            client
                .check(&self.past)
                .map_err(|error| format!("client {at}: {error}"))?;
        }
        Ok(())
    }
}

fn pulled(watch: Watch) -> Way {
    Way::Pulled {
        body: Box::new(watch),
        flag: Flag::raised(),
        lines: Vec::new(),
        is_over: false,
    }
}

fn play(seed: u64, runtime: &Runtime) -> Result<(), String> {
    let mut model = Model::new(seed, runtime);
    for round in 0..2 {
        let odds = [1, 2, 10][model.dice.index(3)];
        let count = model.dice.below(30);
        model.stage.set_odds(odds, count);
        for _ in 0..10 + model.dice.below(30) {
            model.step();
        }
        model.quiet(round == 0)?;
    }
    model.close()
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap()
}

#[test]
fn after_quiet_every_client_has_every_event() {
    let runtime = runtime();
    let _entered = runtime.enter();
    let failed: Vec<_> = (0..SEEDS)
        .filter_map(|seed| Some((seed, play(seed, &runtime).err()?)))
        .collect();
    let some = &failed[..failed.len().min(5)];
    assert!(
        failed.is_empty(),
        "{} of {SEEDS} seeds: {some:#?}",
        failed.len()
    );
}

#[test]
fn arrivals_without_end_do_not_keep_events_from_open_streams() {
    let runtime = runtime();
    let _entered = runtime.enter();
    let mut model = Model::new(0, &runtime);
    model.enter(10, false);
    model.quiet(false).unwrap();
    model.stage.publish(1);
    for _ in 0..3 {
        (0..2 * LIMITS.worker_turn).for_each(|_| model.enter(10, false));
        model.turn();
    }
    model.clients.truncate(1);
    model.check().unwrap();
}

/// The cost of a search is the number of selector terms, which can be large, times the number of events in the history.
#[test]
fn searches_through_the_history_do_not_keep_events_from_open_streams() {
    let runtime = runtime();
    let _entered = runtime.enter();
    let mut model = Model::new(0, &runtime);
    let version = {
        let mut world = model.stage.world.lock().unwrap();
        for _ in 0..1_000 {
            let change = world.write("a/1", None);
            world.apply(vec![change]);
        }
        world.version
    };
    model.enter(version, false);
    model.quiet(false).unwrap();
    let absent: Vec<_> = (0..50).map(|index| format!("!absent{index}")).collect();
    let selector = Selector {
        labels: LabelSelector::parse(&format!("{},tier=none", absent.join(","))).unwrap(),
        ..Selector::default()
    };
    let mut searching = Vec::new();
    for _ in 0..200 {
        let entry = model.served.hub.join(&selector);
        let version = ResourceVersion(10);
        let sequence = model.served.cache.resume_after(version).unwrap();
        let watch = model.watch(entry, Start::After { sequence, version }, 36_000);
        searching.push(model.delivered(watch));
    }
    for _ in 0..100 {
        EVALUATED.set(0);
        assert!(model.turn(), "searches must continue");
        assert!(EVALUATED.get() < 300_000, "{}", EVALUATED.get());
    }
    model.stage.publish(1);
    model.turn();
    model.check().unwrap();
    assert!(model.turn(), "searches must continue");
    model.settle().unwrap();
}

/// A relist without a difference wakes no watch of the view.
#[test]
fn a_future_version_that_is_skipped_gets_410() {
    let runtime = runtime();
    let _entered = runtime.enter();
    let mut model = Model::new(0, &runtime);
    for is_pulled in [false, true] {
        model.enter(15, is_pulled);
    }
    model.quiet(false).unwrap();
    {
        let mut world = model.stage.world.lock().unwrap();
        let now = world.now;
        let listed = world
            .writer
            .replace(Vec::new(), ResourceVersion(20), now)
            .unwrap();
        assert_eq!(listed.events, 0);
    }
    model.settle().unwrap();
    for client in &mut model.clients {
        let (received, end) = client.received().unwrap();
        assert!(
            received.starts_with(ERROR),
            "{}",
            String::from_utf8_lossy(&received)
        );
        assert_eq!(end, End::Clean);
    }
}
