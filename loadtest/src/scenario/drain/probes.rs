//! New connections while a gateway ends: each must be turned away or get a complete response, and none may be left waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use parking_lot::Mutex;
use tokio::io::AsyncWriteExt;

use crate::results::Results;
use crate::swarm::TOO_MANY;
use crate::target::Target;
use crate::wire::response::read_head;

const EVERY: Duration = Duration::from_millis(20);
/// A connection without a response after this time counts as left waiting.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// The status of a server that takes no more requests.
const UNAVAILABLE: u16 = 503;

/// The outcome of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProbeOutcome {
    /// Refused, or closed before a response.
    Refused,
    /// Closed in the middle of a response.
    Half,
    /// A complete response with this status.
    Whole(u16),
    Silence,
}

/// A client that connects again and again.
#[derive(Debug, Clone)]
pub struct ConnectionProbes(Arc<ProbeState>);

#[derive(Debug)]
struct ProbeState {
    target: Target,
    path: String,
    /// Whether all clients that were connected before have gone, so that new ones must not be served.
    is_late: AtomicBool,
    has_stopped: AtomicBool,
    /// Each outcome, and whether the probe was late.
    outcomes: Mutex<Vec<(ProbeOutcome, bool)>>,
}

impl ConnectionProbes {
    /// A client that requests this path.
    pub fn new(target: Target, path: String) -> Self {
        Self(Arc::new(ProbeState {
            target,
            path,
            is_late: AtomicBool::new(false),
            has_stopped: AtomicBool::new(false),
            outcomes: Mutex::default(),
        }))
    }

    /// Starts to connect; ends after [`Self::stop`].
    pub fn begin(&self) {
        let shared = self.0.clone();
        // Each probe has a deadline, so the task ends soon after the last one.
        tokio::spawn(async move {
            while !shared.has_stopped.load(Ordering::Relaxed) {
                let is_late = shared.is_late.load(Ordering::Relaxed);
                let outcome = probe(&shared.target, &shared.path).await;
                // The port may belong to another process by now.
                if !shared.has_stopped.load(Ordering::Relaxed) {
                    shared.outcomes.lock().push((outcome, is_late));
                }
                tokio::time::sleep(EVERY).await;
            }
        });
    }

    /// From the next probe on no client may be served; returns the number of outcomes so far.
    pub fn be_late(&self) -> usize {
        self.0.is_late.store(true, Ordering::Relaxed);
        self.count()
    }

    pub fn count(&self) -> usize {
        self.0.outcomes.lock().len()
    }

    /// Later outcomes do not count.
    pub fn stop(&self) {
        self.0.has_stopped.store(true, Ordering::Relaxed);
    }

    pub fn finish(&self) -> ProbeOutcomes {
        ProbeOutcomes(self.0.outcomes.lock().clone())
    }
}

async fn probe(target: &Target, path: &str) -> ProbeOutcome {
    let mut has_started = false;
    let asking = ask(target, path, &mut has_started);
    match tokio::time::timeout(ANSWER_WAIT, asking).await {
        Ok(Ok(status)) => ProbeOutcome::Whole(status),
        Ok(Err(_)) if has_started => ProbeOutcome::Half,
        Ok(Err(_)) => ProbeOutcome::Refused,
        Err(_) => ProbeOutcome::Silence,
    }
}

/// The status of a complete response.
async fn ask(target: &Target, path: &str, has_started: &mut bool) -> Result<u16> {
    let mut stream = target.connect("http/1.1").await?;
    let request = target.fetch_text_as(path, "application/json");
    stream.write_all(&request).await?;
    Ok(read_head(&mut stream, has_started).await?.status)
}

/// All outcomes, each with whether the probe was late.
#[derive(Debug)]
pub struct ProbeOutcomes(Vec<(ProbeOutcome, bool)>);

impl ProbeOutcomes {
    /// Counts the outcomes, and adds faults for wrong ones.
    pub fn report(&self, results: &mut Results) {
        let count = |is: fn(ProbeOutcome) -> bool| {
            let outcomes = self.0.iter().filter(|(outcome, _)| is(*outcome));
            outcomes.count() as f64
        };
        let refused = count(|outcome| outcome == ProbeOutcome::Refused);
        let shed =
            |outcome: ProbeOutcome| matches!(outcome, ProbeOutcome::Whole(TOO_MANY | UNAVAILABLE));
        results.figure("new connections", self.0.len() as f64);
        results.figure("new connections refused", refused);
        results.figure("new connections answered 429 or 503", count(shed));
        for (outcome, is_late) in &self.0 {
            let fault = match (outcome, is_late) {
                (ProbeOutcome::Half, _) => "was closed within its response",
                (ProbeOutcome::Silence, _) => "got no response",
                (ProbeOutcome::Whole(200), true) => "was served although the others had gone",
                (ProbeOutcome::Refused, _)
                | (ProbeOutcome::Whole(200 | TOO_MANY | UNAVAILABLE), _) => continue,
                (ProbeOutcome::Whole(_), _) => "got a response that is neither 200, 429 nor 503",
            };
            results.fault(format!("a new connection {fault}"));
        }
        if !self.0.iter().any(|(_, is_late)| *is_late) {
            results.invalid("no new connection was tried while the slow were there".to_owned());
        }
    }
}
