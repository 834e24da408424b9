//! Many handlers on one informer: how much a stuck handler delays the others, and what a notification costs per handler, compared with a
//! thread and a channel per handler.
//!
//! A plain program: `cargo bench --bench handlers [-- --quick]`. A delay is the wall time from the distribution of a change to the
//! handler's call, so it needs an idle machine; the rows of one table are measured alternately. CPU times are those of the whole process.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a bench is a driver: it reads the clock and prints"
)]

#[allow(dead_code, reason = "the benches use different parts of it")]
#[path = "rig/rounds.rs"]
mod rounds;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use kube_fanout::informer::{
    Cached, HandlerOptions, InitialState, Notification, Overflow, Processor,
};
use kube_fanout::resource::{Object, ObjectParts, ResourceVersion};
use rounds::{Effort, median, nanos_each, process_cpu};

const HANDLERS: usize = 1_000;
/// Changes that are distributed together, as after a relist or in a burst.
const BURST: usize = 64;

fn main() {
    let effort = Effort::of_arguments();
    println!("delay from handing over one change to the call, {HANDLERS} handlers, µs");
    println!("{:<34}{:>10}{:>10}{:>10}", "", "p50", "p99", "max");
    let rounds = effort.pick(7, 1);
    let changes = effort.pick(300, 5);
    let mut delays: Vec<Vec<Quantiles>> = vec![Vec::new(); CASES.len()];
    for _ in 0..rounds {
        for (case, delays) in CASES.iter().zip(&mut delays) {
            delays.push((case.delays)(changes));
        }
    }
    let medians: Vec<Quantiles> = delays
        .iter()
        .map(|rounds| Quantiles::median(rounds))
        .collect();
    for (case, quantiles) in CASES.iter().zip(&medians) {
        let [p50, p99, max] = quantiles.0;
        println!("{:<34}{p50:>10.0}{p99:>10.0}{max:>10.0}", case.name);
    }
    let [alone, stuck, ..] = &medians[..] else {
        return;
    };
    println!(
        "one stuck / none: p50 {:.2}, p99 {:.2} (target: unchanged)",
        stuck.0[0] / alone.0[0],
        stuck.0[1] / alone.0[1]
    );
    println!();
    costs(effort);
}

/// The median, the 99th percentile and the maximum, in µs.
#[derive(Clone, Copy)]
struct Quantiles([f64; 3]);

impl Quantiles {
    fn of(mut delays: Vec<Duration>) -> Self {
        delays.sort_unstable();
        let at = |part: usize| {
            let delay = delays.get((delays.len() * part / 1_000).min(delays.len() - 1));
            delay.map_or(f64::NAN, |delay| delay.as_secs_f64() * 1e6)
        };
        Self([at(500), at(990), at(1_000)])
    }

    fn median(rounds: &[Self]) -> Self {
        Self([0, 1, 2].map(|which| median(rounds.iter().map(|round| round.0[which]).collect())))
    }
}

struct Case {
    name: &'static str,
    delays: fn(usize) -> Quantiles,
}

const CASES: [Case; 4] = [
    Case {
        name: "ours, none stuck",
        delays: |changes| ours_delays(changes, 0),
    },
    Case {
        name: "ours, one stuck",
        delays: |changes| ours_delays(changes, 1),
    },
    Case {
        name: "ours, 100 stuck",
        delays: |changes| ours_delays(changes, 100),
    },
    Case {
        name: "thread per handler, none stuck",
        delays: thread_delays,
    },
];

fn change(version: u64) -> Notification<Instant> {
    let parts = ObjectParts {
        namespace: "team".into(),
        name: format!("app-{}", version % 64).into(),
        resource_version: ResourceVersion(version),
        ..ObjectParts::default()
    };
    let object = Arc::new(Cached::new(&Object::new(parts, b"{}"), Instant::now()));
    Notification::Updated {
        old: Arc::clone(&object),
        new: object,
    }
}

/// Records the delay of each change, and signals when all handlers have received the round's change.
struct Round {
    delays: Mutex<Vec<Duration>>,
    left: AtomicUsize,
    done: Sender<()>,
}

impl Round {
    fn new() -> (Arc<Self>, Receiver<()>) {
        let (done, is_done) = bounded(1);
        let round = Self {
            delays: Mutex::default(),
            left: AtomicUsize::new(0),
            done,
        };
        (Arc::new(round), is_done)
    }

    fn record(&self, change: &Notification<Instant>) {
        if let Notification::Updated { new, .. } = change {
            let delay = new.elapsed();
            if let Ok(mut delays) = self.delays.lock() {
                delays.push(delay);
            }
        }
        // AcqRel: the last handler signals after all others have recorded their delays.
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            // A capacity of one is enough: there is one round at a time.
            let _ = self.done.try_send(());
        }
    }

    /// Sends changes one at a time; the next one when all handlers have received the last one.
    fn run(
        &self,
        changes: usize,
        handlers: usize,
        is_done: &Receiver<()>,
        distribute: &dyn Fn(u64),
    ) {
        for version in 0..changes as u64 {
            self.left.store(handlers, Ordering::Release);
            distribute(version);
            let _ = is_done.recv();
        }
    }

    fn quantiles(&self) -> Quantiles {
        let mut delays = self
            .delays
            .lock()
            .map_or_else(|_| Vec::new(), |delays| delays.clone());
        // The first change is left out: it starts threads.
        let rest = delays.split_off(HANDLERS.min(delays.len() / 2));
        Quantiles::of(rest)
    }
}

fn runtime() -> tokio::runtime::Runtime {
    match tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => panic!("no runtime: {error}"),
    }
}

fn ours_delays(changes: usize, stuck: usize) -> Quantiles {
    let runtime = runtime();
    let processor = Processor::new(runtime.handle().clone(), Arc::new(|_| {}));
    let (release, gate) = bounded::<()>(0);
    for _ in 0..stuck {
        let gate = gate.clone();
        let handler = move |_: &Notification<Instant>| gate.recv().unwrap_or_default();
        let options = HandlerOptions::named("stuck").with_queue(64, Overflow::Merge);
        processor.add(
            Arc::new(handler),
            options,
            InitialState::nothing(),
            Instant::now(),
        );
    }
    let (round, is_done) = Round::new();
    for _ in stuck..HANDLERS {
        let round = Arc::clone(&round);
        let handler = move |change: &Notification<Instant>| round.record(change);
        let options = HandlerOptions::named("other");
        processor.add(
            Arc::new(handler),
            options,
            InitialState::nothing(),
            Instant::now(),
        );
    }
    round.run(changes, HANDLERS - stuck, &is_done, &|version| {
        processor.distribute(change(version));
    });
    drop(release);
    runtime.block_on(processor.shutdown(Duration::from_secs(60)));
    round.quantiles()
}

type OnChange = Arc<dyn Fn(&Notification<Instant>) + Send + Sync>;

/// The reference: each handler has a channel and a thread.
struct Threads {
    senders: Vec<Sender<Notification<Instant>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Threads {
    fn new(handlers: usize, on_change: &OnChange) -> Self {
        let (mut senders, mut threads) = (Vec::new(), Vec::new());
        for _ in 0..handlers {
            let (sender, receiver) = bounded::<Notification<Instant>>(1_024);
            let on_change = Arc::clone(on_change);
            senders.push(sender);
            threads.push(std::thread::spawn(move || {
                receiver.iter().for_each(|change| on_change(&change));
            }));
        }
        Self { senders, threads }
    }

    fn distribute(&self, change: &Notification<Instant>) {
        for sender in &self.senders {
            let _ = sender.send(change.clone());
        }
    }

    fn join(self) {
        drop(self.senders);
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}

fn thread_delays(changes: usize) -> Quantiles {
    let (round, is_done) = Round::new();
    let recording = Arc::clone(&round);
    let on_change: OnChange =
        Arc::new(move |change: &Notification<Instant>| recording.record(change));
    let threads = Threads::new(HANDLERS, &on_change);
    round.run(changes, HANDLERS, &is_done, &|version| {
        threads.distribute(&change(version));
    });
    threads.join();
    round.quantiles()
}

/// Counts calls, and signals when the awaited number is reached.
struct Count {
    calls: AtomicU64,
    awaited: AtomicU64,
    done: Sender<()>,
}

impl Count {
    fn new() -> (Arc<Self>, Receiver<()>) {
        let (done, is_done) = bounded(1);
        let count = Self {
            calls: AtomicU64::new(0),
            awaited: AtomicU64::new(u64::MAX),
            done,
        };
        (Arc::new(count), is_done)
    }

    fn call(&self) {
        // Relaxed: the channel orders the reads that follow.
        let calls = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        if calls == self.awaited.load(Ordering::Relaxed) {
            let _ = self.done.try_send(());
        }
    }
}

/// Rows: the number of handlers, and of changes distributed together.
const LOADS: [(usize, usize); 6] = [
    (1, 1),
    (1, BURST),
    (10, 1),
    (10, BURST),
    (HANDLERS, 1),
    (HANDLERS, BURST),
];

fn costs(effort: Effort) {
    println!("CPU time of the process per notification and handler, ns");
    println!(
        "{:<34}{:>10}{:>20}{:>10}",
        "", "ours", "thread per handler", "ratio"
    );
    let rounds = effort.pick(5, 1);
    for (handlers, burst) in LOADS {
        let calls = effort.pick(400_000, 2_000).max(handlers * burst);
        let bursts = calls / handlers / burst;
        let (mut ours, mut threads) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            ours.push(ours_cost(handlers, burst, bursts));
            threads.push(threads_cost(handlers, burst, bursts));
        }
        let (ours, threads) = (median(ours), median(threads));
        println!(
            "{:<34}{ours:>10.0}{threads:>20.0}{:>10.2}",
            format!("{handlers} handlers, {burst} at once"),
            ours / threads
        );
    }
}

/// Distributes bursts, the next one when the last has reached every handler; the first burst is not counted.
fn cost(
    count: &Count,
    is_done: &Receiver<()>,
    each: u64,
    bursts: usize,
    distribute: &dyn Fn(),
) -> f64 {
    let mut before = Duration::ZERO;
    for burst in 0..=bursts as u64 {
        count.awaited.store((burst + 1) * each, Ordering::Relaxed);
        distribute();
        let _ = is_done.recv();
        if burst == 0 {
            before = process_cpu(std::process::id());
        }
    }
    let after = process_cpu(std::process::id());
    nanos_each(after.saturating_sub(before), bursts as u64 * each)
}

fn ours_cost(handlers: usize, burst: usize, bursts: usize) -> f64 {
    let runtime = runtime();
    let processor = Processor::new(runtime.handle().clone(), Arc::new(|_| {}));
    let (count, is_done) = Count::new();
    for _ in 0..handlers {
        let count = Arc::clone(&count);
        let handler = move |_: &Notification<Instant>| count.call();
        let options = HandlerOptions::named("counts");
        processor.add(
            Arc::new(handler),
            options,
            InitialState::nothing(),
            Instant::now(),
        );
    }
    let changes: Vec<_> = (0..burst as u64).map(change).collect();
    let each = (handlers * burst) as u64;
    let figure = cost(&count, &is_done, each, bursts, &|| {
        processor.distribute_all(&changes);
    });
    runtime.block_on(processor.shutdown(Duration::from_secs(60)));
    figure
}

fn threads_cost(handlers: usize, burst: usize, bursts: usize) -> f64 {
    let (count, is_done) = Count::new();
    let counting = Arc::clone(&count);
    let on_change: OnChange = Arc::new(move |_: &Notification<Instant>| counting.call());
    let threads = Threads::new(handlers, &on_change);
    let changes: Vec<_> = (0..burst as u64).map(change).collect();
    let each = (handlers * burst) as u64;
    let figure = cost(&count, &is_done, each, bursts, &|| {
        changes.iter().for_each(|change| threads.distribute(change));
    });
    threads.join();
    figure
}
