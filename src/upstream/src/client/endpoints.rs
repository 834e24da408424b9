//! The API servers of a client, for its requests and its checks: an [`EndpointTable`] behind a lock, and what waits for its
//! changes.

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{error, info, warn};

use super::SendError;
use super::endpoint_table::{
    EndpointChange, EndpointChoice, EndpointFailure, EndpointState, EndpointTable, ProbeOutcome,
    RETURN_AFTER,
};

/// Records what happens to the API servers of a client, which it names by their index.
pub trait EndpointRecorder: Send + Sync + std::fmt::Debug {
    /// The endpoint has another state.
    fn state(&self, index: usize, state: EndpointState);

    /// Requests go to this endpoint first.
    fn active(&self, index: usize);

    /// Requests move to this endpoint.
    fn activated(&self, index: usize);

    /// A check of the endpoint, or a connection to it, failed.
    fn failed(&self, index: usize, failure: EndpointFailure);
}

/// The API servers of a client. A single one is used as it is: it is neither checked nor given up.
pub(super) struct Endpoints {
    names: Vec<String>,
    table: Mutex<EndpointTable>,
    choice: watch::Sender<EndpointChoice>,
    recorder: OnceLock<Arc<dyn EndpointRecorder>>,
}

impl Endpoints {
    /// Which endpoint is preferred is drawn, so that the replicas of a gateway spread.
    pub(super) fn new(names: Vec<String>, random: u64) -> Self {
        let count = names.len().max(1);
        let preferred = usize::try_from(random % count as u64).unwrap_or(0);
        let return_after = RETURN_AFTER.mul_f64(1.0 + crate::resource::fraction());
        let table = EndpointTable::new(count, preferred, return_after, now());
        Self {
            names,
            choice: watch::Sender::new(table.choice()),
            table: Mutex::new(table),
            recorder: OnceLock::new(),
        }
    }

    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// Whether there are several, of which one is chosen.
    pub(super) fn are_several(&self) -> bool {
        self.names.len() > 1
    }

    pub(super) fn record(&self, recorder: Arc<dyn EndpointRecorder>) {
        for index in 0..self.names.len() {
            recorder.state(index, EndpointState::Unchecked);
        }
        recorder.active(self.choice.borrow().active);
        // A second recorder would miss what the first has counted.
        let _ = self.recorder.set(recorder);
    }

    /// Whether requests have moved to another endpoint, and its caches may be behind.
    pub(super) fn have_moved(&self) -> bool {
        self.choice.borrow().has_moved(now())
    }

    /// The endpoint for the next attempt of a request that these endpoints have failed.
    pub(super) fn next(&self, failed: &[usize]) -> Option<usize> {
        match self.are_several() {
            true => self.choice.borrow().next(failed),
            false => failed.is_empty().then_some(0),
        }
    }

    /// Waits until requests that wait for this endpoint should go to another one.
    pub(super) fn abandoned(&self, index: usize) -> impl Future<Output = ()> + Send + Sync + use<> {
        self.wait_for(move |choice| choice.is_abandoned(index))
    }

    /// Waits until it is known that an endpoint belongs to another cluster.
    pub(super) fn foreign(&self, index: usize) -> impl Future<Output = ()> + Send + Sync + use<> {
        self.wait_for(move |choice| choice.is_foreign(index))
    }

    fn wait_for<F>(&self, holds: F) -> impl Future<Output = ()> + Send + Sync + use<F>
    where
        F: Fn(&EndpointChoice) -> bool + Send + Sync,
    {
        let mut choice = self.choice.subscribe();
        async move {
            if choice.wait_for(holds).await.map(drop).is_err() {
                // The client is gone; what it has sent may continue.
                std::future::pending::<()>().await;
            }
        }
    }

    /// A request to the endpoint had no response. A refused connection is certain; whether any other failure is the server's own,
    /// the next check decides.
    pub(super) fn request_failed(&self, index: usize, error: &SendError) {
        if let SendError::Unreachable(cause) = error
            && self.are_several()
            && is_refused(cause)
        {
            self.count(index, EndpointFailure::Connect);
            self.change(|table, now| table.refused(index, &error.to_string(), now));
        }
    }

    /// A watch has been shown to lack what the cluster has.
    pub(super) fn lagging(&self) {
        if self.are_several() {
            self.change(EndpointTable::lagging);
        }
    }

    /// A check of the endpoint has ended.
    pub(super) fn probed(&self, index: usize, outcome: ProbeOutcome, began: Instant) {
        self.count_outcome(index, &outcome);
        self.change(|table, now| table.observe(index, outcome, began.into_std(), now));
    }

    /// A check of each endpoint has ended.
    pub(super) fn all_probed(&self, outcomes: Vec<ProbeOutcome>, began: Instant) {
        for (index, outcome) in outcomes.iter().enumerate() {
            self.count_outcome(index, outcome);
        }
        self.change(|table, now| table.observe_all(outcomes, began.into_std(), now));
    }

    pub(super) fn have_cluster(&self) -> bool {
        self.table.lock().has_cluster()
    }

    /// The time to the next check of an endpoint.
    pub(super) fn pause(&self, index: usize) -> Duration {
        self.table.lock().pause(index)
    }

    fn count_outcome(&self, index: usize, outcome: &ProbeOutcome) {
        match outcome {
            ProbeOutcome::Failed { failure, .. } => self.count(index, *failure),
            ProbeOutcome::Answered(answer) if answer.has_error() => {
                self.count(index, EndpointFailure::Status);
            }
            ProbeOutcome::Answered(_) | ProbeOutcome::Undecided => {}
        }
    }

    fn count(&self, index: usize, failure: EndpointFailure) {
        if let Some(recorder) = self.recorder.get() {
            recorder.failed(index, failure);
        }
    }

    /// Changes the table and reports what that has changed.
    fn change(&self, change: impl FnOnce(&mut EndpointTable, std::time::Instant)) {
        let mut table = self.table.lock();
        change(&mut table, now());
        let choice = table.choice();
        self.choice.send_if_modified(|last| {
            let is_other = *last != choice;
            *last = choice;
            is_other
        });
        // Under the lock, so that the gauges show the last change.
        for change in &table.take_changes() {
            self.report(change);
        }
    }

    fn report(&self, change: &EndpointChange) {
        let recorder = self.recorder.get();
        match change {
            EndpointChange::Active { index } => {
                let endpoint = &self.names[*index];
                warn!(endpoint, "requests go to another API server now");
                if let Some(recorder) = recorder {
                    recorder.activated(*index);
                }
            }
            EndpointChange::State {
                index,
                state,
                reason,
            } => {
                let endpoint = &self.names[*index];
                match state {
                    EndpointState::Ready => info!(endpoint, "the API server is ready"),
                    EndpointState::Foreign => error!(
                        endpoint,
                        reason, "this API server belongs to another cluster and is not used"
                    ),
                    EndpointState::Unready => {
                        warn!(endpoint, reason, "the API server is not ready")
                    }
                    EndpointState::Unreachable | EndpointState::Unchecked => {
                        warn!(endpoint, reason, "the API server cannot be reached");
                    }
                }
                if let Some(recorder) = recorder {
                    recorder.state(*index, *state);
                    if *state == EndpointState::Foreign {
                        recorder.failed(*index, EndpointFailure::Foreign);
                    }
                }
            }
        }
    }
}

/// The runtime's clock, which timers use as well.
fn now() -> std::time::Instant {
    Instant::now().into_std()
}

/// Whether the other end, or the network on the way to it, refused the connection.
fn is_refused(error: &(dyn std::error::Error + 'static)) -> bool {
    use io::ErrorKind as Kind;
    let kinds = [
        Kind::ConnectionRefused,
        Kind::HostUnreachable,
        Kind::NetworkUnreachable,
    ];
    find_io(error, |error| kinds.contains(&error.kind()))
}

/// Whether this process or its machine has no room for another connection, which says nothing about the other end.
pub(super) fn is_local(error: &(dyn std::error::Error + 'static)) -> bool {
    /// `ENOMEM`, `ENFILE`, `EMFILE`, `EADDRNOTAVAIL`, `ENOBUFS` on Linux.
    const SHORTAGES: [i32; 5] = [12, 23, 24, 99, 105];
    find_io(error, |error| {
        error
            .raw_os_error()
            .is_some_and(|code| SHORTAGES.contains(&code))
    })
}

/// Whether one of the causes is an `io::Error` for which `holds` returns true.
fn find_io(error: &(dyn std::error::Error + 'static), holds: impl Fn(&io::Error) -> bool) -> bool {
    let mut next = Some(error);
    // Chains of causes have four or five links. The bound protects against a cycle.
    for _ in 0..16 {
        let Some(error) = next else { return false };
        if error.downcast_ref().is_some_and(&holds) {
            return true;
        }
        next = error.source();
    }
    false
}
