//! The broadcast ring compared with `tokio::sync::broadcast`, a locked queue and an array of plain atomics: appending, reading, many
//! cursors.
//!
//! A plain program: `cargo bench --bench ring [-- --quick]`. Figures are CPU time of the threads that do the work; compare columns of one
//! run only. There are no sockets here: `fanout` measures the whole downstream path.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a bench is a driver: it reads the clock and prints"
)]

#[path = "rig/contenders.rs"]
mod contenders;
#[path = "rig/record.rs"]
mod record;
#[allow(dead_code, reason = "the benches use different parts of it")]
#[path = "rig/rounds.rs"]
mod rounds;

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use contenders::{Borrowed, Channel, Cloned, Cursor, Locked, Payload, TokioBroadcast, Words};
use record::{Claim, Record};
use rounds::{Effort, median, nanos_each, timed};

/// Distinct values: more than fit into the first-level cache, as with events.
const VALUES: usize = 4_096;
/// Events between two rounds of reading: about the size of a coalesced batch.
const BATCH: usize = 64;
const CURSORS: usize = 1_000;

fn main() -> std::io::Result<()> {
    let effort = Effort::of_arguments();
    let columns = [
        Column::of::<Borrowed>("ours", effort),
        Column::of::<Cloned>("ours + clone", effort),
        Column::of::<TokioBroadcast>("broadcast", effort),
        Column::of::<Locked>("mutex+deque", effort),
        Column::of::<Words>("words", effort),
    ];
    print!("{:<40}", "");
    columns
        .iter()
        .for_each(|column| print!("{:>14}", column.name));
    println!("{:>18}{:>14}  target", "broadcast / ours", "ours / words");
    for (index, row) in ROWS.iter().enumerate() {
        print!("{:<40}", row.0);
        columns
            .iter()
            .for_each(|column| print!("{:>14.1}", column.figure(index)));
        let [ours, broadcast, words] = [0, 2, 4].map(|column: usize| columns[column].figure(index));
        let (faster, slower) = (broadcast / ours, ours / words);
        println!("{faster:>17.1}x{slower:>13.1}x  <= {}", row.1);
    }
    for (threads, row) in [(1.0, ROWS.len() - 2), (2.0, ROWS.len() - 1)] {
        let rates = columns
            .each_ref()
            .map(|column| threads * 1e3 / column.figure(row));
        print!("{:<40}", format!("M deliveries per second, {threads} busy"));
        rates.iter().for_each(|rate| print!("{rate:>14.0}"));
        let (faster, slower) = (rates[0] / rates[2], rates[4] / rates[0]);
        println!("{faster:>17.1}x{slower:>13.1}x  >= 100");
    }
    record(&columns, effort).write()
}

/// All figures; each of ours is listed as a result, together with its ratio to broadcast's.
fn record(columns: &[Column], effort: Effort) -> Record {
    const EACH: &str = "CPU of each, ns";
    let about = "The ring beside tokio's broadcast, a locked queue and plain words: CPU time of the threads that do the work.";
    let mut record = Record::new("ring", about, effort);
    for (index, (name, most)) in ROWS.into_iter().enumerate() {
        for column in columns {
            let place = format!("{name} / {}", column.name);
            record.rounds(&place, EACH, &column.figures[index]);
        }
        for (what, column, at_most) in [
            (name.to_owned(), "ours", Some(most)),
            (format!("{name}, tokio's broadcast"), "broadcast", None),
        ] {
            record.claim(Claim {
                what: &what,
                figure: EACH,
                of: &format!("{name} / {column}"),
                to: None,
                at_most,
            });
        }
    }
    record
}

/// The measurements in the order of [`Column::figures`], with the target in nanoseconds.
const ROWS: [(&str, f64); 8] = [
    ("append, nobody reads", 200.0),
    ("append, 1 reader follows", 200.0),
    ("append, 2 readers follow", 200.0),
    ("read, one by one, far behind", 20.0),
    ("read, 64 at once, far behind", 20.0),
    ("read, one by one, at the head", 20.0),
    ("delivery, 1000 cursors in 1 thread", 10.0),
    ("delivery, 1000 cursors in 2 threads", 20.0),
];

struct Column {
    name: &'static str,
    /// The values of all rounds, per row.
    figures: [Vec<f64>; ROWS.len()],
}

impl Column {
    fn of<C: Channel>(name: &'static str, effort: Effort) -> Self {
        let rounds = effort.pick(5, 1);
        let values: Vec<_> = (0..VALUES as u64).map(Payload::new).collect();
        let many = |measure: &dyn Fn() -> f64| (0..rounds).map(|_| measure()).collect();
        let (appends, batches) = (effort.pick(500_000, 10_000), effort.pick(15, 1));
        let figures = [
            many(&|| append::<C>(&values, appends, 0)),
            many(&|| append::<C>(&values, appends, 1)),
            many(&|| append::<C>(&values, appends, 2)),
            many(&|| read::<C>(&values, appends, 1)),
            many(&|| read::<C>(&values, appends, BATCH)),
            many(&|| deliver::<C>(&values, batches, ReadPattern::new(1, 1))),
            many(&|| deliver::<C>(&values, batches, ReadPattern::new(1, BATCH))),
            many(&|| deliver::<C>(&values, batches, ReadPattern::new(2, BATCH))),
        ];
        Self { name, figures }
    }

    fn figure(&self, row: usize) -> f64 {
        median(self.figures[row].clone())
    }
}

/// Nanoseconds per append while `readers` threads read as fast as they can.
fn append<C: Channel>(values: &[Arc<Payload>], count: usize, readers: usize) -> f64 {
    let mut channel = C::new();
    // A cursor that never reads: some channels skip work when there is no reader.
    let idle = channel.cursor();
    let over = AtomicBool::new(false);
    let took = std::thread::scope(|scope| {
        for _ in 0..readers {
            let mut cursor = channel.cursor();
            let over = &over;
            scope.spawn(move || {
                // Relaxed: the flag only ends the loop and publishes nothing.
                while !over.load(Ordering::Relaxed) {
                    if cursor.take(BATCH).count == 0 {
                        std::thread::yield_now();
                    }
                }
            });
        }
        let now = Instant::now();
        let ((), took) = timed(|| {
            for value in values.iter().cycle().take(count) {
                channel.append(Arc::clone(value), now);
            }
        });
        // Relaxed: see above.
        over.store(true, Ordering::Relaxed);
        took
    });
    drop(black_box(idle));
    nanos_each(took, count as u64)
}

/// Nanoseconds per value read by one cursor, at most `most` at a time, with an idle writer.
fn read<C: Channel>(values: &[Arc<Payload>], count: usize, most: usize) -> f64 {
    let mut channel = C::new();
    let mut cursor = channel.cursor();
    let (now, mut total, mut took) = (Instant::now(), 0, Duration::ZERO);
    while total < count as u64 {
        for value in values.iter().cycle().take(contenders::CAPACITY / 2) {
            channel.append(Arc::clone(value), now);
        }
        let (count, each) = timed(|| read_all(&mut cursor, most));
        assert_eq!(count, contenders::CAPACITY as u64 / 2, "none lost");
        total += count;
        took += each;
    }
    nanos_each(took, total)
}

fn read_all(cursor: &mut impl Cursor, most: usize) -> u64 {
    let mut total = 0;
    loop {
        let taken = black_box(cursor.take(most));
        if taken.count == 0 {
            return total;
        }
        total += taken.count;
    }
}

/// How a thousand cursors read.
#[derive(Clone, Copy, Debug)]
struct ReadPattern {
    threads: usize,
    /// Values per read.
    most: usize,
}

impl ReadPattern {
    fn new(threads: usize, most: usize) -> Self {
        Self { threads, most }
    }
}

/// Nanoseconds of one thread per delivery, when each thread reads every batch with its share of a thousand cursors.
fn deliver<C: Channel>(values: &[Arc<Payload>], batches: usize, pattern: ReadPattern) -> f64 {
    let ReadPattern { threads, most } = pattern;
    let mut channel = C::new();
    let mut shares: Vec<Vec<C::Cursor>> = (0..threads)
        .map(|_| (0..CURSORS / threads).map(|_| channel.cursor()).collect())
        .collect();
    let now = Instant::now();
    let (mut count, mut took) = (0, Duration::ZERO);
    // All cursors read all batches of a burst before the next one, so that none lags.
    for _ in 0..batches {
        for value in values.iter().cycle().take(BATCH * BURST) {
            channel.append(Arc::clone(value), now);
        }
        let done: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = shares
                .iter_mut()
                .map(|share| scope.spawn(move || timed(|| read_bursts(share, most))))
                .collect();
            threads
                .into_iter()
                .filter_map(|thread| thread.join().ok())
                .collect()
        });
        for (read, each) in done {
            count += read;
            took += each;
        }
    }
    assert_eq!(
        count,
        (batches * BATCH * BURST * (CURSORS / threads) * threads) as u64,
        "each cursor got everything"
    );
    nanos_each(took, count)
}

/// Batches appended before a round of reading, so that the cost of starting threads is negligible.
const BURST: usize = 8;

fn read_bursts(share: &mut [impl Cursor], most: usize) -> u64 {
    let mut count = 0;
    for _ in 0..BURST {
        for cursor in &mut *share {
            for _ in 0..BATCH / most {
                count += black_box(cursor.take(most)).count;
            }
        }
    }
    count
}
