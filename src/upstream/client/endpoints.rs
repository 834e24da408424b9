//! The API servers of a client, for its requests and its checks: an [`EndpointTable`] behind a lock, and what waits for its
//! changes.

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::StatusCode;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tracing::{error, info, warn};

use super::SendError;
use super::endpoint_table::{
    EndpointChange, EndpointChoice, EndpointFailure, EndpointMask, EndpointState, EndpointTable,
    ProbeOutcome,
};

/// The time for a check. `/readyz` waits up to 2 s for etcd.
pub(super) const PROBE_TIMEOUT: Duration = Duration::from_secs(4);
/// A call of the gateway itself that is given up after this silence says something about the server. Proofs of freshness, the
/// most frequent of them, are given up later than that.
pub const OWN_SILENCE: Duration = Duration::from_millis(2_500);

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
    /// `host:port` of each.
    names: Vec<String>,
    table: Mutex<EndpointTable>,
    choice: watch::Sender<EndpointChoice>,
    suspicion: Notify,
    recorder: OnceLock<Arc<dyn EndpointRecorder>>,
}

impl Endpoints {
    pub(super) fn new(names: Vec<String>, random: u64) -> Self {
        let count = names.len().max(1);
        let preferred = usize::try_from(random % count as u64).unwrap_or(0);
        let table = EndpointTable::new(count, preferred, now());
        Self {
            names,
            choice: watch::Sender::new(table.choice()),
            table: Mutex::new(table),
            suspicion: Notify::new(),
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
    pub(super) fn next(&self, failed: EndpointMask) -> Option<usize> {
        if !self.are_several() {
            return (!failed.contains(0)).then_some(0);
        }
        let next = self.choice.borrow().next(failed);
        if next.is_none() {
            self.suspect_all();
        }
        next
    }

    /// Waits until requests that wait for this endpoint should go to another one.
    pub(super) fn abandoned(&self, index: usize) -> impl Future<Output = ()> + Send + Sync + use<> {
        self.wait_for(move |choice| choice.is_abandoned(index))
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

    /// A request to the endpoint had no response.
    pub(super) fn request_failed(&self, index: usize, error: &SendError) {
        if !self.are_several() {
            return;
        }
        match error {
            SendError::Unreachable(cause) if is_refused(cause) => {
                self.count(index, EndpointFailure::Connect);
                let reason = error.to_string();
                self.change(|table, now, random| table.refused(index, &reason, now, random));
                self.suspicion.notify_one();
            }
            SendError::Unreachable(cause) if is_local(cause) => {}
            SendError::Unreachable(_)
            | SendError::Untrusted(_)
            | SendError::Broken(_)
            | SendError::Lost
            | SendError::Unprocessed(_)
            | SendError::Timeout => self.suspect(index),
            SendError::Credentials(_)
            | SendError::Saturated
            | SendError::Target(_)
            | SendError::Abandoned
            | SendError::NoEndpoint => {}
        }
    }

    /// A request that has no answer from the endpoint yet, and whether it is a call of the gateway itself.
    pub(super) fn waiting_for(&self, index: usize, is_own: bool) -> UnansweredRequest<'_> {
        UnansweredRequest {
            endpoints: self,
            index,
            silence: if is_own { OWN_SILENCE } else { PROBE_TIMEOUT },
            since: Instant::now(),
            has_ended: false,
        }
    }

    /// Waits until it is known that an endpoint belongs to another cluster.
    pub(super) fn foreign(&self, index: usize) -> impl Future<Output = ()> + Send + Sync + use<> {
        self.wait_for(move |choice| choice.is_foreign(index))
    }

    /// The endpoint has answered a request. Whether an error is the server's own fault is decided by a check: it may be that
    /// of an aggregated API server or a webhook. 429 is a request to come again later, not to go elsewhere.
    pub(super) fn answered(&self, index: usize, status: StatusCode) {
        if self.are_several() && status == StatusCode::SERVICE_UNAVAILABLE {
            self.suspect(index);
        }
    }

    /// A watch has been shown to lack what the cluster has.
    pub(super) fn lagging(&self) {
        if self.are_several() {
            self.change(EndpointTable::lagging);
        }
    }

    /// A check of the endpoint has ended.
    pub(super) fn probed(&self, index: usize, outcome: ProbeOutcome) {
        match &outcome {
            ProbeOutcome::Failed { failure, .. } => self.count(index, *failure),
            ProbeOutcome::Unready { .. }
            | ProbeOutcome::Unidentified
            | ProbeOutcome::Unauthorized => self.count(index, EndpointFailure::Status),
            ProbeOutcome::Ready | ProbeOutcome::Identified(_) | ProbeOutcome::Undecided => {}
        }
        self.change(|table, now, random| table.observe(index, outcome, now, random));
    }

    /// The first checks have ended.
    pub(super) fn start(&self) {
        self.change(EndpointTable::start);
    }

    pub(super) fn needs_identity(&self, index: usize) -> bool {
        self.table.lock().needs_identity(index)
    }

    pub(super) fn is_proven(&self, index: usize) -> bool {
        self.table.lock().is_proven(index)
    }

    pub(super) fn have_cluster(&self) -> bool {
        self.table.lock().has_cluster()
    }

    /// The endpoints that are to be checked now and are not in `except`.
    pub(super) fn due(&self, except: EndpointMask) -> Vec<usize> {
        let mut due = self.table.lock().due(now());
        due.retain(|index| !except.contains(*index));
        due
    }

    /// Waits until an endpoint that is not in `except` may be due.
    pub(super) async fn wait_until_due(&self, except: EndpointMask) {
        let next = self.table.lock().next_due(except);
        let due = async {
            match next {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = due => {}
            () = self.suspicion.notified() => {}
        }
    }

    fn suspect(&self, index: usize) {
        self.table.lock().suspect(index, now());
        self.suspicion.notify_one();
    }

    fn suspect_all(&self) {
        let mut table = self.table.lock();
        for index in 0..self.names.len() {
            table.suspect(index, now());
        }
        drop(table);
        self.suspicion.notify_one();
    }

    fn count(&self, index: usize, failure: EndpointFailure) {
        if let Some(recorder) = self.recorder.get() {
            recorder.failed(index, failure);
        }
    }

    /// Changes the table and reports what that has changed.
    fn change(&self, change: impl FnOnce(&mut EndpointTable, std::time::Instant, u64)) {
        let mut table = self.table.lock();
        change(&mut table, now(), crate::resource::random());
        let (choice, changes) = (table.choice(), table.take_changes());
        self.choice
            .send_if_modified(|last| std::mem::replace(last, choice) != choice);
        // Under the lock, so that the gauges show the last change.
        for change in &changes {
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

/// A request without an answer. If it is dropped after the endpoint was silent for long, because the time for the request is over or its
/// caller has left, the endpoint is checked soon.
pub(super) struct UnansweredRequest<'a> {
    endpoints: &'a Endpoints,
    index: usize,
    since: Instant,
    /// The silence that is long.
    silence: Duration,
    has_ended: bool,
}

impl UnansweredRequest<'_> {
    /// The request has an answer, or has failed.
    pub(super) fn end(mut self) {
        self.has_ended = true;
    }
}

impl Drop for UnansweredRequest<'_> {
    fn drop(&mut self) {
        let is_late = !self.has_ended && self.since.elapsed() >= self.silence;
        if is_late && self.endpoints.are_several() {
            self.endpoints.suspect(self.index);
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

#[cfg(test)]
mod tests;
