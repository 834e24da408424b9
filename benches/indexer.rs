//! The informer's store compared with other structures: writing, reading, and how long a list blocks the writer.
//!
//! A plain program: `cargo bench --bench indexer [-- --quick]`. Figures are CPU time of the threads that do the work. The writer's waits
//! are wall time minus the time that the thread was runnable but not scheduled. Compare columns of one run only. Memory is the store's
//! overhead per object, measured in a process of its own per structure.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::expect_used,
    reason = "a bench is a driver: it reads the clock, prints, and ends at the first surprise"
)]

#[allow(dead_code, reason = "the benches use different parts of it")]
#[path = "rig/child.rs"]
mod child;
#[allow(dead_code, reason = "the benches use different parts of it")]
#[path = "rig/rounds.rs"]
mod rounds;
#[path = "rig/stores.rs"]
mod stores;

use std::hint::black_box;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kube_fanout::informer::Cached;
use kube_fanout::resource::{Object, ObjectParts, ResourceVersion};

use child::Child;
use rounds::{Effort, median, nanos_each, resident, timed};
use stores::{OneMap, Ours, Pod, Shards, Store, Stored, Tries};

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const OBJECTS: usize = 100_000;
const ON_EACH_NODE: usize = 100;
/// Pause between two writes while others read: about the rate of a busy cluster, and enough time for readers.
const PAUSE: Duration = Duration::from_micros(50);

const NAMES: [&str; 4] = ["ours", "one map", "shards", "tries"];

fn main() -> io::Result<()> {
    if let Some((part, count)) = child::part() {
        return hold(&part, count);
    }
    let effort = Effort::of_arguments();
    let load = Load::new(effort.pick(OBJECTS, OBJECTS / 100));
    let rounds = effort.pick(5, 1);
    // Alternate between the structures, so that a disturbance affects all of them.
    let mut columns: [Vec<Figures>; 4] = Default::default();
    for _ in 0..rounds {
        columns[0].push(figures::<Ours>(&load, effort));
        columns[1].push(figures::<OneMap>(&load, effort));
        columns[2].push(figures::<Shards>(&load, effort));
        columns[3].push(figures::<Tries>(&load, effort));
    }
    print!("{:<44}", format!("{} objects", load.objects.len()));
    NAMES.iter().for_each(|name| print!("{name:>12}"));
    println!("{:>16}", "one map / ours");
    for (row, name) in ROWS.iter().enumerate() {
        let figures = columns
            .each_ref()
            .map(|column| median(column.iter().map(|figures| figures[row]).collect()));
        print_row(name, figures);
    }
    let mut bytes = [0.0; 4];
    for (figure, name) in bytes.iter_mut().zip(NAMES) {
        let words: Vec<f64> = Child::start(name, load.objects.len())?.words()?;
        *figure = words.first().copied().unwrap_or(f64::NAN);
    }
    print_row("bytes per object besides the object", bytes);
    Ok(())
}

fn print_row(name: &str, figures: [f64; 4]) {
    print!("{name:<44}");
    figures.iter().for_each(|figure| print!("{figure:>12.1}"));
    println!("{:>15.2}x", figures[1] / figures[0]);
}

/// The measurements, in the order of [`figures`]; in nanoseconds unless the name has another unit.
const ROWS: [&str; 14] = [
    "put, a new object",
    "put, same node, nobody reads",
    "put, another node, nobody reads",
    "put, same node, 1 thread lists",
    "get, nobody writes",
    "get, 1 reader beside a writer",
    "get, 2 readers beside a writer",
    "get, 4 readers beside a writer",
    "by_index of 100, nobody writes, us",
    "walk of all, nobody writes, ms",
    "walk of all beside a writer, ms",
    "writer's wait, 1 lists, p99.9, us",
    "writer's longest wait, 1 lists, us",
    "writer's longest wait, 2 list, us",
];

type Figures = [f64; ROWS.len()];

fn figures<S: Store>(load: &Load, effort: Effort) -> Figures {
    let store = S::new();
    let count = load.objects.len();
    let ((), filled) = timed(|| {
        for object in &load.objects {
            store.put(Arc::clone(object));
        }
    });
    let same_node = timed(|| load.puts(&store, &load.updated)).1;
    let other_node = timed(|| load.puts(&store, &load.moved)).1;
    // Before the other measurements mix old and new nodes.
    let (nodes, by_node) = timed(|| load.reads_by_node(&store));
    let (_, walked) = timed(|| walk(&store));
    let gets = effort.pick(400_000, 1_000);
    let listed = beside_lists(&store, load, effort, 1);
    let listed_twice = beside_lists(&store, load, effort, 2);
    [
        nanos_each(filled, count as u64),
        nanos_each(same_node, count as u64),
        nanos_each(other_node, count as u64),
        listed.put_nanos,
        nanos_each(timed(|| load.gets(&store, gets, 0)).1, gets as u64),
        beside_gets(&store, load, gets, 1),
        beside_gets(&store, load, gets, 2),
        beside_gets(&store, load, gets, 4),
        nanos_each(by_node, nodes) / 1e3,
        nanos_each(walked, 1) / 1e6,
        listed.walk_millis,
        listed.wait_most_micros,
        listed.wait_longest_micros,
        listed_twice.wait_longest_micros,
    ]
}

/// Objects, created in advance so that their creation is not measured.
struct Load {
    objects: Vec<Stored>,
    /// The same objects at new versions, in an order that a processor's cache cannot predict.
    updated: Vec<Stored>,
    /// The same objects on other nodes.
    moved: Vec<Stored>,
    /// The objects' keys in another order; the strings are copies, not those that the objects hold.
    keys: Vec<String>,
}

/// Stepping by this visits all of any number of objects with which it has no common factor.
const STRIDE: usize = 61_643;

impl Load {
    fn new(count: usize) -> Self {
        let scattered = |start: usize| (0..count).map(move |at| (start + at * STRIDE) % count);
        let moved = |at| pod(at, 2, at / ON_EACH_NODE + 1);
        Self {
            objects: (0..count).map(|at| pod(at, 0, at / ON_EACH_NODE)).collect(),
            updated: scattered(0)
                .map(|at| pod(at, 1, at / ON_EACH_NODE))
                .collect(),
            moved: scattered(7).map(moved).collect(),
            keys: scattered(13)
                .map(|at| pod(at, 0, 0).key().to_string())
                .collect(),
        }
    }

    fn puts(&self, store: &impl Store, objects: &[Stored]) {
        for object in objects {
            store.put(Arc::clone(object));
        }
    }

    fn gets(&self, store: &impl Store, count: usize, from: usize) {
        for key in self.keys.iter().cycle().skip(from).take(count) {
            black_box(store.object(key).expect("it is there"));
        }
    }

    /// Returns the number of reads.
    fn reads_by_node(&self, store: &impl Store) -> u64 {
        let nodes = 1..self.objects.len() / ON_EACH_NODE;
        let count = nodes.len() as u64;
        for node in nodes {
            let found = black_box(store.on_node(&node_name(node)));
            assert_eq!(found.len(), ON_EACH_NODE);
        }
        count
    }
}

fn node_name(node: usize) -> String {
    format!("node-{node:05}")
}

fn pod(at: usize, version: u64, node: usize) -> Stored {
    let parts = ObjectParts {
        namespace: format!("team-{:02}", at % 20).into(),
        name: format!("app-5d4f8c7b9-{at:06}").into(),
        uid: format!("e0107c60-3809-4949-b3b5-{at:012}").into(),
        resource_version: ResourceVersion(version),
        labels: vec![("app".into(), "demo".into()), ("tier".into(), "web".into())],
        ..ObjectParts::default()
    };
    let pod = Pod {
        node: node_name(node),
        _rest: [0; 24],
    };
    Arc::new(Cached::new(&Object::new(parts, b"{}"), pod))
}

/// The work of a list: reads a label of each object.
fn walk(store: &impl Store) -> usize {
    let mut count = 0;
    store.walk(&mut |object| count += usize::from(object.label("tier") == Some("web")));
    black_box(count)
}

/// Nanoseconds of CPU per get, while one thread writes at intervals.
fn beside_gets(store: &impl Store, load: &Load, count: usize, readers: usize) -> f64 {
    let over = AtomicBool::new(false);
    let took: Duration = std::thread::scope(|scope| {
        scope.spawn(|| write_until(store, load, &over));
        let readers: Vec<_> = (0..readers)
            .map(|at| scope.spawn(move || timed(|| load.gets(store, count, at * 1_009)).1))
            .collect();
        let took = readers.into_iter().filter_map(|thread| thread.join().ok());
        let took = took.sum();
        // Relaxed: the flag only ends the loop and publishes nothing.
        over.store(true, Ordering::Relaxed);
        took
    });
    nanos_each(took, (count * readers) as u64)
}

fn write_until(store: &impl Store, load: &Load, over: &AtomicBool) {
    for object in load.updated.iter().chain(&load.moved).cycle() {
        // Relaxed: see above.
        if over.load(Ordering::Relaxed) {
            return;
        }
        store.put(Arc::clone(object));
        std::thread::sleep(PAUSE);
    }
}

/// Costs of a writer and of threads that list at the same time.
struct BesideLists {
    put_nanos: f64,
    walk_millis: f64,
    wait_most_micros: f64,
    wait_longest_micros: f64,
}

fn beside_lists(store: &impl Store, load: &Load, effort: Effort, readers: usize) -> BesideLists {
    let over = AtomicBool::new(false);
    let puts = effort.pick(8_000, 50);
    let (mut waits, put, walks) = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..readers)
            .map(|_| scope.spawn(|| timed(|| walk_until(store, &over))))
            .collect();
        let (waits, put) = writes(store, load, puts);
        // Relaxed: the flag only ends the loop and publishes nothing.
        over.store(true, Ordering::Relaxed);
        let walks: Vec<_> = readers
            .into_iter()
            .filter_map(|thread| thread.join().ok())
            .collect();
        (waits, put, walks)
    });
    waits.sort_unstable();
    let count: u64 = walks.iter().map(|(count, _)| count).sum();
    let took: Duration = walks.iter().map(|(_, took)| *took).sum();
    let micros = |place: usize| waits[place].as_secs_f64() * 1e6;
    BesideLists {
        put_nanos: nanos_each(put, puts as u64),
        walk_millis: nanos_each(took, count) / 1e6,
        wait_most_micros: micros(waits.len() * 999 / 1_000),
        wait_longest_micros: micros(waits.len() - 1),
    }
}

/// The wall time of each of `count` writes, and the CPU time of all of them.
fn writes(store: &impl Store, load: &Load, count: usize) -> (Vec<Duration>, Duration) {
    let mut waits = Vec::with_capacity(count);
    let ((), all) = timed(|| {
        for object in load.updated.iter().cycle().take(count) {
            let object = Arc::clone(object);
            let not_run = run_delay();
            let start = Instant::now();
            store.put(object);
            let took = start.elapsed();
            // Time in which the scheduler ran other threads is not a wait for the store.
            waits.push(took.saturating_sub(run_delay().saturating_sub(not_run)));
            std::thread::sleep(PAUSE);
        }
    });
    let ((), pauses) = timed(|| {
        for _ in 0..count {
            black_box((run_delay(), Instant::now().elapsed(), run_delay()));
            std::thread::sleep(PAUSE);
        }
    });
    (waits, all.saturating_sub(pauses))
}

/// Time that this thread was runnable but not scheduled.
fn run_delay() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split(' ').nth(1).and_then(|word| word.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

/// Walks repeatedly, at least once; returns the number of walks.
fn walk_until(store: &impl Store, over: &AtomicBool) -> u64 {
    let mut count = 0;
    loop {
        walk(store);
        count += 1;
        // Relaxed: see above.
        if over.load(Ordering::Relaxed) {
            return count;
        }
    }
}

/// The child process of a structure: stores objects, replaces each once, and reports the memory per object besides the objects themselves.
fn hold(part: &str, count: usize) -> io::Result<()> {
    child::end_with_parent();
    let bytes = match part {
        "ours" => cost::<Ours>(count),
        "one map" => cost::<OneMap>(count),
        "shards" => cost::<Shards>(count),
        _ => cost::<Tries>(count),
    }?;
    child::report(&[bytes]);
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^52")]
fn cost<S: Store>(count: usize) -> io::Result<f64> {
    let load = Load::new(count);
    let before = resident(std::process::id())?;
    let store = S::new();
    load.puts(&store, &load.objects);
    load.puts(&store, &load.updated);
    let after = resident(std::process::id())?;
    black_box(store);
    Ok(after.saturating_sub(before) as f64 / count as f64)
}
