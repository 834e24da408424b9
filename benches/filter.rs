//! CPU time from an event's dispatch until it is in the views that show it, for different numbers of views; and the memory of a view.
//!
//! A plain program: `cargo bench --bench filter [-- --quick]`. Each event is one dispatch and matches one view. Figures are CPU time of the
//! dispatching thread; the limit is a map from a value to a queue of frames. Compare columns of one run. No watch waits in the views, so
//! wake-ups are not measured.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    reason = "a bench is a driver: it reads the clock and prints"
)]

#[allow(dead_code, reason = "the benches use different parts of it")]
#[path = "rig/child.rs"]
mod child;
#[path = "rig/interests.rs"]
mod interests;
#[allow(dead_code, reason = "the benches use different parts of it")]
#[path = "rig/rounds.rs"]
mod rounds;

use std::collections::VecDeque;
use std::hint::black_box;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hashbrown::HashMap;
use kube_fanout::cache::{Event, Observer as _};
use kube_fanout::resource::EventKind;
use kube_fanout::view::{Hub, ViewSubscription};

use child::Child;
use interests::By;
use rounds::{Effort, median, nanos_each, resident, timed};

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The kind of the views' selectors, the number of views, and the permitted cost relative to five views.
const ROWS: [(By, usize, &str); 9] = [
    (By::Node, 5, ""),
    (By::Node, 5_000, "<= 2"),
    (By::Node, 50_000, "<= 2"),
    (By::Name, 5_000, "<= 2"),
    (By::Name, 50_000, "<= 2"),
    (By::Namespace, 5_000, "<= 2"),
    (By::Label, 5_000, "<= 2"),
    (By::Presence, 5_000, "<= 2"),
    (By::Set, 5_000, "<= 2"),
];

fn main() -> io::Result<()> {
    if let Some((part, views)) = child::part() {
        return hold(&part, views);
    }
    let effort = Effort::of_arguments();
    filter(effort);
    for events in [0, 1, 40, 2_000] {
        let views = effort.pick(if events > 40 { 500 } else { 10_000 }, 10);
        let each = bytes_each(views, events)?;
        println!("{each:>8.0} bytes a view with one watcher that has shown {events} events");
    }
    Ok(())
}

fn filter(effort: Effort) {
    println!(
        "{:<24}{:>16}{:>16}{:>14}{:>10}  target",
        "distinct selectors", "ours ns/event", "limit ns/event", "of the limit", "of five"
    );
    let mut five = f64::NAN;
    for (by, views, target) in ROWS {
        let views = effort.pick(views, views.min(50));
        let timed = effort.pick(20_000, 20);
        let mut figures = [Vec::new(), Vec::new()];
        for _ in 0..effort.pick(5, 1) {
            let events = interests::history(views, views + timed);
            figures[0].push(dispatched(by, views, &events));
            figures[1].push(looked_up(by, &events));
        }
        let [ours, limit] = figures.map(median);
        if five.is_nan() {
            five = ours;
        }
        println!(
            "{:<24}{ours:>16.0}{limit:>16.0}{:>14.1}{:>10.2}  {target}",
            format!("{views} by {by:?}"),
            ours / limit,
            ours / five,
        );
    }
}

fn joined(hub: &Hub, by: By, views: usize) -> Vec<ViewSubscription> {
    (0..views)
        .map(|index| hub.join(&by.selector(index)))
        .collect()
}

/// Nanoseconds per dispatch, after every view has shown at least one event.
fn dispatched(by: By, views: usize, events: &[Arc<Event>]) -> f64 {
    let hub = Hub::new(&interests::kind());
    let entries = joined(&hub, by, views);
    let now = Instant::now();
    let dispatch = |event: &Arc<Event>| {
        let through = event.sequence() + 1;
        hub.dispatch(
            std::slice::from_ref(event),
            through,
            event.resource_version(),
            now,
        )
    };
    let (warm, events) = events.split_at(views);
    assert!(warm.iter().all(|event| interests::makes(event)));
    warm.iter().for_each(|event| {
        dispatch(event);
    });
    let ((), took) = timed(|| {
        events.iter().for_each(|event| {
            dispatch(event);
        });
    });
    let shown: u64 = entries.iter().map(|entry| entry.view.head()).sum();
    assert_eq!(
        shown,
        (views + events.len()) as u64,
        "each event was shown once"
    );
    nanos_each(took, events.len() as u64)
}

/// Frames kept per queue, about as many as a view keeps.
const QUEUED: usize = 16;

/// Nanoseconds to find the queue for an event's value and append its frame.
fn looked_up(by: By, events: &[Arc<Event>]) -> f64 {
    fn value(by: By, event: &Event) -> &str {
        let object = event.object();
        match by {
            By::Node => object.field(0),
            By::Name => object.key().name(),
            By::Namespace => object.key().namespace(),
            By::Label | By::Presence | By::Set => object.label("app").unwrap_or_default(),
        }
    }
    let mut queues: HashMap<String, VecDeque<Bytes>, foldhash::fast::RandomState> =
        HashMap::default();
    let views = events
        .iter()
        .filter(|event| interests::makes(event))
        .count();
    let (warm, events) = events.split_at(views);
    for event in warm {
        queues.insert(value(by, event).to_owned(), VecDeque::with_capacity(QUEUED));
    }
    let ((), took) = timed(|| {
        for event in events {
            let frame = event.frame(EventKind::Modified);
            if let Some(queue) = queues.get_mut(value(by, event)) {
                if queue.len() == QUEUED {
                    queue.pop_front();
                }
                queue.push_back(frame);
            }
        }
    });
    black_box(&queues);
    nanos_each(took, events.len() as u64)
}

/// Memory per view with one watcher after the view has shown `events` events, in bytes. Two processes replay the same history, one of them
/// without views; the difference is the views' memory.
fn bytes_each(views: usize, events: usize) -> io::Result<f64> {
    let mut resident = [0.0; 2];
    for (resident, part) in resident.iter_mut().zip(["views", "none"]) {
        let words = Child::start(&format!("{part} {events}"), views)?.words()?;
        *resident = words.first().copied().unwrap_or(f64::NAN);
    }
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    Ok((resident[0] - resident[1]) / views as f64)
}

/// A child process: its role is `part` and the number of events per view; reports its memory. The history's clock advances one second
/// between two events of a view, so that views age.
fn hold(part: &str, views: usize) -> io::Result<()> {
    child::end_with_parent();
    let (part, events) = part.split_once(' ').ok_or(io::ErrorKind::InvalidInput)?;
    let events: usize = events.parse().map_err(io::Error::other)?;
    let hub = Hub::new(&interests::kind());
    let entries = match part {
        "views" => joined(&hub, By::Node, views),
        _ => Vec::new(),
    };
    let start = Instant::now();
    let hub = Arc::new(hub);
    let shown = Arc::clone(&hub);
    let writer = interests::each(views, views * events, move |event| {
        let (through, version) = (event.sequence() + 1, event.resource_version());
        let now = start + Duration::from_secs(event.sequence() / views as u64);
        shown.dispatch(std::slice::from_ref(&event), through, version, now);
    });
    child::report(&[resident(std::process::id())?]);
    drop((hub, entries, writer));
    Ok(())
}
