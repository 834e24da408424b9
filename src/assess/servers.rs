//! Pairs scrapes of the same server, and turns counters into rates of all servers together.

use std::collections::BTreeMap;
use std::time::Duration;

use super::group_resource::GroupResource;
use super::scrape::{ResourceSeries, Scrape};

/// Shorter windows miss watches, which last five to ten minutes.
const WINDOW_MIN_SECONDS: f64 = 600.0;
/// Go collects garbage every two minutes at least, so two times between collections differ from those between scrapes by as much.
const COLLECTION_SECONDS: f64 = 130.0;

/// A scrape with the file that it was read from.
#[derive(Debug)]
pub(super) struct ScrapeFile {
    pub(super) name: String,
    /// When the file was written, in seconds of Unix time.
    pub(super) modified_at: Option<f64>,
    pub(super) scrape: Scrape,
}

/// What all servers did together, a second. What every server does alike, because each has a watch cache of its own, is that of one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ResourceRates {
    /// Open watches, on average.
    pub(super) watches: f64,
    pub(super) watch_requests: f64,
    pub(super) list_requests: f64,
    pub(super) events: f64,
    pub(super) event_bytes: f64,
    pub(super) initial_events: f64,
    pub(super) list_bytes: f64,
    /// Of the server with most.
    pub(super) changes: f64,
    /// Of the server with most.
    pub(super) objects: Option<f64>,
}

/// The rates of all servers whose scrapes can be used.
#[derive(Debug, Default)]
pub(super) struct ServerRates {
    pub(super) server_count: usize,
    /// The longest time between two scrapes of a server.
    pub(super) window_seconds: f64,
    /// Cores in use.
    pub(super) cpu: f64,
    pub(super) resources: BTreeMap<GroupResource, ResourceRates>,
    /// Which files were left out, and what is uncertain.
    pub(super) notes: Vec<String>,
}

impl ServerRates {
    /// Pairs the scrapes by the start times of their processes. A restart in between changes it, so that both scrapes remain alone.
    pub(super) fn new(
        before: Vec<ScrapeFile>,
        after: Vec<ScrapeFile>,
        window: Option<Duration>,
    ) -> Self {
        let mut all = Self::default();
        let mut earlier = all.by_start(before);
        let mut later = all.by_start(after);
        while let Some((start, before)) = earlier.pop_first() {
            let Some(after) = later.remove(&start) else {
                all.leave_out_single(&before.name, "--after");
                continue;
            };
            let added = seconds_between(&before, &after, window, &mut all.notes);
            let added = added.and_then(|seconds| all.add(&before.scrape, &after.scrape, seconds));
            if let Err(reason) = added {
                let files = format!("{} and {}", before.name, after.name);
                all.notes.push(format!("{files} are left out: {reason}"));
            }
        }
        for after in later.values() {
            all.leave_out_single(&after.name, "--before");
        }
        all
    }

    /// The files by the bits of their start times, the first of each.
    fn by_start(&mut self, files: Vec<ScrapeFile>) -> BTreeMap<u64, ScrapeFile> {
        let mut found = BTreeMap::<u64, ScrapeFile>::new();
        for file in files {
            let start = file.scrape.started_at.unwrap_or_default().to_bits();
            if let Some(first) = found.get(&start) {
                self.notes.push(format!(
                    "{} is left out: it is of the same server as {}; scrape each by its own address, not through a balancer",
                    file.name, first.name
                ));
                continue;
            }
            found.insert(start, file);
        }
        found
    }

    fn leave_out_single(&mut self, name: &str, side: &str) {
        self.notes.push(format!(
            "{name} is left out: no file of {side} is of the same process; the server was restarted, or scraped once only"
        ));
    }

    fn add(&mut self, before: &Scrape, after: &Scrape, seconds: f64) -> Result<(), String> {
        let cpu = [before, after].map(|scrape| scrape.cpu_seconds.unwrap_or_default());
        let cpu = growth("process_cpu_seconds_total", cpu[0], cpu[1])?;
        let mut rates = Vec::new();
        let names = before.resources.keys().chain(after.resources.keys());
        for name in names {
            let of = |scrape: &Scrape| scrape.resources.get(name).copied().unwrap_or_default();
            let rate = resource_rates(&of(before), &of(after), seconds)
                .map_err(|reason| format!("{reason} of {name}"))?;
            rates.push((name.clone(), rate));
        }
        // Those that both scrapes have came twice, and are equal.
        rates.sort_by(|(one, _), (other, _)| one.cmp(other));
        rates.dedup_by(|(one, _), (other, _)| one == other);
        for (name, rate) in rates {
            self.resources.entry(name).or_default().add(&rate);
        }
        self.cpu += cpu / seconds;
        self.server_count += 1;
        self.window_seconds = self.window_seconds.max(seconds);
        Ok(())
    }
}

impl ResourceRates {
    fn add(&mut self, other: &Self) {
        self.watches += other.watches;
        self.watch_requests += other.watch_requests;
        self.list_requests += other.list_requests;
        self.events += other.events;
        self.event_bytes += other.event_bytes;
        self.initial_events += other.initial_events;
        self.list_bytes += other.list_bytes;
        self.changes = self.changes.max(other.changes);
        self.objects = match (self.objects, other.objects) {
            (Some(one), Some(other)) => Some(one.max(other)),
            (one, other) => one.or(other),
        };
    }
}

fn resource_rates(
    before: &ResourceSeries,
    after: &ResourceSeries,
    seconds: f64,
) -> Result<ResourceRates, String> {
    let rate = |name, one, other| growth(name, one, other).map(|growth| growth / seconds);
    Ok(ResourceRates {
        watches: f64::midpoint(before.watches, after.watches),
        watch_requests: rate(
            "apiserver_request_total",
            before.watch_requests,
            after.watch_requests,
        )?,
        list_requests: rate(
            "apiserver_request_total",
            before.list_requests,
            after.list_requests,
        )?,
        events: rate("apiserver_watch_events_total", before.events, after.events)?,
        event_bytes: rate(
            "apiserver_watch_events_sizes_sum",
            before.event_bytes,
            after.event_bytes,
        )?,
        initial_events: rate(
            "apiserver_init_events_total",
            before.initial_events,
            after.initial_events,
        )?,
        list_bytes: rate(
            "apiserver_response_sizes_sum",
            before.list_bytes,
            after.list_bytes,
        )?,
        changes: rate(
            "apiserver_watch_cache_events_received_total",
            before.changes,
            after.changes,
        )?,
        objects: after.objects.or(before.objects),
    })
}

/// By how much a counter grew.
fn growth(name: &str, before: f64, after: f64) -> Result<f64, String> {
    match after >= before {
        true => Ok(after - before),
        false => Err(format!(
            "{name} went back from {before} to {after}: the files are in the wrong order, or one is a part of a scrape"
        )),
    }
}

/// The time between two scrapes of a server, in which nothing says when it was made.
fn seconds_between(
    before: &ScrapeFile,
    after: &ScrapeFile,
    window: Option<Duration>,
    notes: &mut Vec<String>,
) -> Result<f64, String> {
    let span = |one: Option<f64>, other: Option<f64>| Some(other? - one?);
    let files = span(before.modified_at, after.modified_at);
    let collections = span(before.scrape.collected_at, after.scrape.collected_at);
    let pair = format!("{} and {}", before.name, after.name);
    let seconds = match (window, files, collections) {
        (Some(window), _, _) => window.as_secs_f64(),
        (None, Some(files), Some(collections))
            if (files - collections).abs() > COLLECTION_SECONDS =>
        {
            notes.push(format!(
                "the times of {pair} are not those of the scrapes; the time between the server's garbage collections, {collections:.0} s, is used, \
                 which is right within two minutes (--window sets it)"
            ));
            collections
        }
        (None, Some(seconds), _) | (None, None, Some(seconds)) => seconds,
        (None, None, None) => {
            return Err("nothing says how much time is between them: give --window".to_owned());
        }
    };
    if seconds < 1.0 {
        return Err(
            "the second one is not later than the first one; --window sets the time between them"
                .to_owned(),
        );
    }
    if seconds < WINDOW_MIN_SECONDS {
        notes.push(format!(
            "{pair} are {seconds:.0} s apart: watches last five to ten minutes, so less than ten says little"
        ));
    }
    Ok(seconds)
}

#[cfg(test)]
mod tests;
