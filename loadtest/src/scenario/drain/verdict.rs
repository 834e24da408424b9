//! The verdict about the end of a gateway: how long it took, and how each client saw it.

use std::time::Duration;

use super::client::DrainClient;
use super::clients::{ClientResults, GroupResult};
use super::collection::Collections;
use crate::lister::LIST_COMPLETE;
use crate::results::{Results, mib};

const GOOD_ENDS: [&str; 2] = ["clean end", LIST_COMPLETE];

#[derive(Debug)]
pub struct DrainTimes {
    /// When the gateway was asked to end, nanoseconds since the epoch.
    pub asked_ns: u64,
    /// Time until the responses of all reading clients had ended, or the wait was given up.
    pub prompt_after: Duration,
    /// The same for all clients.
    pub all_after: Duration,
    /// Time until the gateway had ended, if it has.
    pub ended_after: Option<Duration>,
    /// Bytes that slow clients received after the request to end.
    pub held_bytes: u64,
}

impl DrainTimes {
    /// Adds the times to the results; exceeding the drain timeout is a fault.
    pub fn report(&self, results: &mut Results, drain_timeout: Duration) {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        results.figure("all who read at their end after, ms", ms(self.prompt_after));
        results.figure("all at their end after, ms", ms(self.all_after));
        let held_mib = mib(self.held_bytes);
        results.figure("MiB that the slow took afterwards", held_mib);
        match self.ended_after {
            Some(time) => {
                results.figure("gateway ended after, ms", ms(time));
                if time > drain_timeout {
                    results.fault(format!(
                        "the gateway ended after {time:?}, its timeout is {drain_timeout:?}"
                    ));
                }
            }
            None => results.fault(format!(
                "the gateway has not ended within its timeout of {drain_timeout:?}"
            )),
        }
    }
}

impl ClientResults {
    /// Compares each client with the references.
    pub fn report(&self, asked_ns: u64, collections: &Collections, results: &mut Results) {
        let expected = [false, true].map(|is_forwarded| {
            let reference = collections.of(is_forwarded).recording.reference().clone();
            (reference.fingerprints(), reference)
        });
        let (mut clients, mut good, mut events) = (0, 0, 0);
        for group in &self.0 {
            let (states, reference) = &expected[usize::from(group.kind.is_forwarded())];
            let fault = |client: &DrainClient| client.fault(asked_ns, reference, states);
            good += group.judge(asked_ns, fault, results);
            clients += group.clients.len();
            let of_group = group.clients.iter().map(|client| client.events());
            events += of_group.sum::<u64>();
        }
        results.figure("clients", clients as f64);
        results.figure("ended in order with all events", good as f64);
        results.figure("events verified", events as f64);
    }
}

impl GroupResult {
    /// Adds the faults of clients; returns the number of clients without one.
    fn judge(
        &self,
        asked_ns: u64,
        fault: impl Fn(&DrainClient) -> Option<String>,
        results: &mut Results,
    ) -> usize {
        let name = self.kind.name;
        let mut good = 0;
        for client in &self.clients {
            match fault(client) {
                None => good += 1,
                Some(fault) => results.fault_of("", &format!("{name}: {fault}")),
            }
        }
        let ended_ns = self.clients.iter().filter_map(|client| client.ended_ns());
        let last_ns = ended_ns.max().unwrap_or(asked_ns).saturating_sub(asked_ns);
        results.figure(&format!("{name}: the last after, ms"), last_ns as f64 / 1e6);
        for (cause, count) in &self.recorder.ends {
            if cause.starts_with("ERROR") {
                results.fault(format!("{name}: {count} streams ended with {cause}"));
            } else if !GOOD_ENDS.contains(&cause.as_str()) {
                results.note(format!("{name}: {cause}: {count}"));
            }
        }
        for message in self.recorder.messages.lines() {
            results.note(format!("{name}: {message}"));
        }
        good
    }
}
