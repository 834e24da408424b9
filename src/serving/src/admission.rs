//! Admission control: how many lists, watches and connections may be open at a time, and which requests wait or get 429.
//!
//! ```text
//! list ── permit free? ──▶ runs until its body is dropped, or loses the permit while its client does not read:
//!             │            then it continues slowly until a permit is free
//!             │ no
//!             ▼
//!       queue, bounded in length and time ──▶ runs, or 429 with Retry-After
//! watch ── below the limit? ──▶ runs until its stream is dropped, or 429
//! ```
//!
//! The decisions are made by `lists` and `fairness::fair_queue`. Short responses and the admin port are not limited here; forwarded
//! requests are limited in `passthrough` (`docs/decisions/0017-admission.md`).

mod lists;
mod memory;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep};

use crate::config::{AdmissionLimits, OpenFiles};
use crate::fairness::fair_queue::QueueDecision;
use crate::fairness::{Peer, Permit, Permits, Reclaim, Shortage};
use crate::metrics::{AdmissionMetrics, LimitLabel, PermitKind};
use crate::protocol::status::Status;
use crate::sync::{Mutex, MutexGuard};
use lists::{Lists, Stall};
use memory::Memory;
pub use memory::{ResidentMemory, in_use, resident};

/// A random range, so that clients that were refused together do not come back together.
const LIST_RETRY_SECONDS: std::ops::Range<f64> = 1.0..5.0;
/// Watches and memory are held for minutes.
const WATCH_RETRY_SECONDS: std::ops::Range<f64> = 5.0..15.0;

/// A list without a permit makes at most one frame in this time: about a megabyte per second.
const SLOW_FRAME_PERIOD: Duration = Duration::from_millis(100);

/// How often a waiting list checks whether a client that does not read holds a permit.
const CHECK_PERIOD: Duration = Duration::from_secs(1);

/// The limits of one service and the permits that are in use. Clones share them.
#[derive(Clone, Debug)]
pub struct Admission(Arc<AdmissionState>);

type WaitingLists = Lists<oneshot::Sender<ListPermit>>;

#[derive(Debug)]
struct AdmissionState {
    limits: Mutex<AdmissionLimits>,
    lists: Mutex<WaitingLists>,
    watches: Permits,
    memory: Memory,
    is_for_operators: bool,
    metrics: Option<AdmissionMetrics>,
}

impl Admission {
    /// With these limits, reported in these metrics.
    #[must_use]
    pub fn new(limits: AdmissionLimits, metrics: Option<AdmissionMetrics>) -> Self {
        Self(Arc::new(AdmissionState {
            lists: Mutex::new(Lists::new(limits.lists_max, limits.lists_waiting_max)),
            watches: Permits::new(limits.watches_max),
            memory: Memory::new(limits.memory_max),
            is_for_operators: false,
            limits: Mutex::new(limits),
            metrics,
        }))
    }

    /// Marks these limits as those of operators. Must be called before the first clone.
    #[must_use]
    pub fn for_operators(mut self) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.0) {
            shared.is_for_operators = true;
        }
        self
    }

    /// Whether these limits are those of operators.
    #[must_use]
    pub fn is_for_operators(&self) -> bool {
        self.0.is_for_operators
    }

    /// The connection limit: the configured one, or less if the limit of open files is lower.
    #[must_use]
    pub fn connections_max(&self) -> usize {
        OpenFiles::of_process(self.0.limits().connections_max).clients
    }

    /// Changes all limits but that of connections. What is beyond them stays; what waits and may now begin does.
    pub fn change_limits(&self, limits: AdmissionLimits) {
        {
            let mut current = self.0.limits.lock();
            *current = AdmissionLimits {
                connections_max: current.connections_max,
                ..limits
            };
        }
        self.0.watches.resize(limits.watches_max);
        self.0.memory.set_max(limits.memory_max);
        let mut lists = self.0.lists();
        lists.resize(limits.lists_max, limits.lists_waiting_max);
        self.0.admit_waiting(lists);
    }

    /// Whether watches that begin with a state are refused because memory is short, and lists while another one runs. Above the limit they
    /// are in any case, and so are all new watches.
    pub fn set_memory_short(&self, is_short: bool) {
        self.0.memory.set_short(is_short);
    }

    /// Whether memory is short, or above the limit.
    pub fn is_memory_short(&self) -> bool {
        self.0.memory.is_over(Instant::now())
    }

    /// A permit for a list; waits up to the configured time for it.
    ///
    /// # Errors
    /// 429 if there is no permit in time, or too many lists wait, or memory is short.
    pub async fn list(&self, peer: Peer) -> Result<ListPermit, Status> {
        let is_memory_over = self.0.memory.is_over(Instant::now());
        let (id, mut receiver) = {
            let mut lists = self.0.lists();
            // One list may always run, so that memory which other parts use does not block all lists permanently.
            if is_memory_over && lists.queue.running() > 0 {
                return Err(self.refuse(LimitLabel::Memory));
            }
            if !lists.queue.has_room_for(peer) {
                lists = self.0.reclaim(lists);
            }
            match lists.queue.enter(peer) {
                QueueDecision::Runs => {
                    let permit = self.0.permit(&mut lists, peer);
                    self.0.update_gauges(&lists);
                    return Ok(permit);
                }
                QueueDecision::Full(shortage) => {
                    return Err(self.refuse_permit(LimitLabel::Lists, PermitKind::Lists, shortage));
                }
                QueueDecision::MayWait(ticket) => {
                    let (sender, receiver) = oneshot::channel();
                    let id = ticket.wait(sender);
                    self.0.update_gauges(&lists);
                    (id, receiver)
                }
            }
        };
        let _waiter = ListWaiter {
            shared: &self.0,
            peer,
            id,
        };
        let mut timeout = std::pin::pin!(tokio::time::sleep(self.0.limits().list_wait_max));
        loop {
            // Cancelling any branch is safe: a permit that arrives at this moment is released when its channel is dropped.
            tokio::select! {
                biased;
                permit = &mut receiver => return permit.map_err(|_| self.refuse(LimitLabel::ListWait)),
                () = &mut timeout => {
                    let shortage = self.0.lists().queue.shortage(peer);
                    // If there is room now, all permits were in use until just now.
                    let shortage = shortage.unwrap_or(Shortage::Total);
                    return Err(self.refuse_permit(LimitLabel::ListWait, PermitKind::Lists, shortage));
                }
                () = tokio::time::sleep(CHECK_PERIOD) => drop(self.0.reclaim(self.0.lists())),
            }
        }
    }

    /// A permit for a watch that begins with a state.
    ///
    /// # Errors
    /// 429 if there is none, or memory is short.
    pub fn watch(&self, peer: Peer) -> Result<WatchPermit, Status> {
        if self.0.memory.is_over(Instant::now()) {
            return Err(self.refuse(LimitLabel::Memory));
        }
        self.watch_permit(peer)
    }

    /// A permit for a watch that continues from a version. It takes little memory, and its client would list again if it were refused for
    /// long: only the limit itself stops it.
    ///
    /// # Errors
    /// 429 if there is none, or memory is above the limit.
    pub fn resuming_watch(&self, peer: Peer) -> Result<WatchPermit, Status> {
        if self.0.memory.is_exceeded(Instant::now()) {
            return Err(self.refuse(LimitLabel::Memory));
        }
        self.watch_permit(peer)
    }

    fn watch_permit(&self, peer: Peer) -> Result<WatchPermit, Status> {
        let permit = self.0.watches.acquire(peer);
        permit.map(WatchPermit::new).map_err(|shortage| {
            self.refuse_permit(LimitLabel::Watches, PermitKind::Watches, shortage)
        })
    }

    /// Counts a refusal for lack of a permit, and returns the client's error.
    pub(crate) fn refuse_permit(
        &self,
        limit: LimitLabel,
        kind: PermitKind,
        shortage: Shortage,
    ) -> Status {
        if let Some(metrics) = &self.0.metrics {
            metrics.shortages.inc(kind, shortage);
        }
        let mut status = self.refuse(limit);
        status.message.push_str(match shortage {
            Shortage::User => ", most of them this user's",
            Shortage::Address => ", most of them from this address",
            Shortage::Total => "",
        });
        status
    }

    /// Counts a refusal, and returns the client's error.
    fn refuse(&self, limit: LimitLabel) -> Status {
        if let Some(metrics) = &self.0.metrics {
            metrics.refusals.inc(limit);
        }
        let (cause, seconds) = match limit {
            LimitLabel::Connections => ("too many connections are open", WATCH_RETRY_SECONDS),
            LimitLabel::Lists => ("too many lists wait for their turn", LIST_RETRY_SECONDS),
            LimitLabel::ListWait => ("the list's turn did not come in time", LIST_RETRY_SECONDS),
            LimitLabel::Watches => ("too many watches are open", WATCH_RETRY_SECONDS),
            LimitLabel::Memory => ("memory is short", WATCH_RETRY_SECONDS),
        };
        let range = seconds.end - seconds.start;
        let wait = Duration::from_secs_f64(seconds.start + range * crate::resource::fraction());
        Status::too_many_requests(
            format!("Too many requests, please try again later: {cause}"),
            u32::try_from(wait.as_secs()).unwrap_or(1),
        )
    }
}

impl AdmissionState {
    fn limits(&self) -> AdmissionLimits {
        *self.limits.lock()
    }

    fn lists(&self) -> MutexGuard<'_, WaitingLists> {
        // A panic leaves the state consistent: the methods of `Lists` do not panic halfway.
        self.lists.lock()
    }

    /// Creates the permit of a list that the queue has admitted.
    fn permit(self: &Arc<Self>, lists: &mut WaitingLists, peer: Peer) -> ListPermit {
        let stall = Arc::<Stall>::default();
        ListPermit {
            id: lists.begin(peer, Arc::clone(&stall)),
            shared: Arc::clone(self),
            peer,
            stall,
            pause: None,
        }
    }

    fn update_gauges(&self, lists: &WaitingLists) {
        let gauge = |count| i64::try_from(count).unwrap_or(i64::MAX);
        // The gauges show only the limits that all clients share.
        if let Some(metrics) = self.metrics.as_ref().filter(|_| !self.is_for_operators) {
            metrics.lists_running.set(gauge(lists.queue.running()));
            metrics.lists_waiting.set(gauge(lists.queue.waiting()));
            metrics.lists_slow.set(gauge(lists.slow()));
        }
    }

    /// Reclaims the permits of lists whose clients do not read, and passes them to waiting lists.
    fn reclaim<'a>(
        self: &'a Arc<Self>,
        mut lists: MutexGuard<'a, WaitingLists>,
    ) -> MutexGuard<'a, WaitingLists> {
        if lists.reclaim(Instant::now(), self.limits().list_stall_max) {
            self.admit_waiting(lists);
            return self.lists();
        }
        lists
    }

    /// Passes free permits to waiting lists.
    fn admit_waiting(self: &Arc<Self>, mut lists: MutexGuard<'_, WaitingLists>) {
        let mut admitted = Vec::new();
        while let Some((peer, sender)) = lists.queue.admit_next() {
            admitted.push((self.permit(&mut lists, peer), sender));
        }
        self.update_gauges(&lists);
        drop(lists);
        for (permit, sender) in admitted {
            // If the receiver is gone, the permit is dropped here and becomes free again.
            let _ = sender.send(permit);
        }
    }
}

/// A list in the queue; dropping it removes it from the queue.
struct ListWaiter<'a> {
    shared: &'a Arc<AdmissionState>,
    peer: Peer,
    id: u64,
}

impl Drop for ListWaiter<'_> {
    fn drop(&mut self) {
        let mut lists = self.shared.lists();
        if lists.queue.give_up(self.peer, self.id) {
            self.shared.update_gauges(&lists);
        }
    }
}

/// A list ends early, because too many lists of its client are not read.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("too many lists of this client are not read")]
pub struct ListLost;

/// Permission to send one list, until it is dropped. The sender reports, frame by frame, which side waits.
#[derive(Debug)]
pub struct ListPermit {
    shared: Arc<AdmissionState>,
    peer: Peer,
    id: u64,
    stall: Arc<Stall>,
    /// The pause between two frames of a slow list.
    pause: Option<Pin<Box<Sleep>>>,
}

impl ListPermit {
    /// Ready when the next frame may be made. It is ready at once unless the list has lost its permit because its client did not read, and
    /// gets no other one: then it continues slowly and leaves the CPU to lists with permits.
    ///
    /// # Errors
    /// The list must end, because others of its client have not been read either.
    pub fn poll_work(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ListLost>> {
        if let Some(since) = self.stall.since()
            && !self.has_regained()
        {
            if self.stall.is_lost() {
                return Poll::Ready(Err(ListLost));
            }
            let pause = self.pause.get_or_insert_with(|| {
                Box::pin(tokio::time::sleep_until(since + SLOW_FRAME_PERIOD))
            });
            ready!(pause.as_mut().poll(context));
        }
        self.pause = None;
        self.stall.set(None);
        Poll::Ready(Ok(()))
    }

    /// Whether the list has a permit, or has regained one.
    fn has_regained(&self) -> bool {
        if !self.stall.is_slow() {
            return true;
        }
        let mut lists = self.shared.lists();
        if !lists.queue.has_room_for(self.peer) {
            lists = self.shared.reclaim(lists);
        }
        // Checked again, because the lock was released in `reclaim`.
        let has_regained = !self.stall.is_slow() || lists.regain(self.id, self.peer, &self.stall);
        self.shared.update_gauges(&lists);
        has_regained
    }

    /// Reports that a frame was handed over: from now on the list waits for its client.
    pub fn gave_frame(&self) {
        self.stall.set(Some(Instant::now()));
    }

    /// Reports that the client waits for the list.
    pub fn resume_work(&self) {
        self.has_regained();
        self.stall.set(None);
    }
}

impl Drop for ListPermit {
    fn drop(&mut self) {
        let mut lists = self.shared.lists();
        lists.end(self.id, self.peer, &self.stall);
        self.shared.admit_waiting(lists);
    }
}

/// Permission for one watch, until it is dropped or taken back for a client that has fewer watches.
#[derive(Debug)]
pub struct WatchPermit {
    reclaim: Reclaim,
    _permit: Permit,
}

impl WatchPermit {
    fn new(mut permit: Permit) -> Self {
        Self {
            reclaim: permit.reclaimable(),
            _permit: permit,
        }
    }

    /// Wakes `waker` when the permit is taken back.
    pub fn arm(&mut self, waker: &Waker) {
        // It remembers by itself whether it was.
        let _ = Pin::new(&mut self.reclaim).poll(&mut Context::from_waker(waker));
    }

    /// Whether the permit was taken back. Arm first, so that nothing is missed in between.
    pub fn is_taken_back(&mut self) -> bool {
        self.reclaim.is_taken_back()
    }
}

#[cfg(all(test, feature = "loom"))]
mod models;
#[cfg(any(test, feature = "testing"))]
pub mod samples;
#[cfg(test)]
mod tests;
