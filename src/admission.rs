//! Who may be served now: how many lists, watches and connections there are at once, and who waits or is sent away with 429.
//!
//! ```text
//! list ── place free? ──▶ runs until its body is gone, or gives the place up when its client does not read: then it
//!             │           goes on slowly until a place is free
//!             │ no
//!             ▼
//!       line, bounded in places and time ──▶ runs, or 429 with Retry-After
//! watch ── below its bound? ──▶ runs until its stream is gone, or 429
//! ```
//!
//! What is decided is `lists`' and `fairness::line`'s. Short answers and everything on the admin port are not bounded here, forwarded
//! requests in the pass-through (`docs/decisions/0017-admission.md`, `0025-shares.md`).

mod lists;
mod memory;

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep};

use crate::cache::{Mutex, MutexGuard};
use crate::config::{AdmissionLimits, OpenFiles};
use crate::fairness::fair_queue::QueueDecision;
use crate::fairness::{Peer, Permit, Permits, Shortage};
use crate::metrics::{AdmissionMetrics, LimitLabel, PermitKind};
use crate::protocol::status::Status;
use lists::{Lists, Stall};
use memory::Memory;
pub use memory::resident;

/// Clients that were sent away together shall not come back together.
const LIST_RETRY_SECONDS: std::ops::Range<f64> = 1.0..5.0;
/// Watches and memory are held for minutes.
const WATCH_RETRY_SECONDS: std::ops::Range<f64> = 5.0..15.0;

/// A list without a place makes a frame once in this time: about a megabyte a second.
const SLOW_FRAME_PERIOD: Duration = Duration::from_millis(100);

/// How often somebody in line looks whether a client that does not read holds a place.
const LOOK_PERIOD: Duration = Duration::from_secs(1);

/// The bounds of one service, and what is taken of them.
#[derive(Clone, Debug)]
pub struct Admission(Arc<AdmissionState>);

type WaitingLists = Lists<oneshot::Sender<ListPermit>>;

#[derive(Debug)]
struct AdmissionState {
    limits: AdmissionLimits,
    lists: Mutex<WaitingLists>,
    watches: Permits,
    memory: Memory,
    is_for_operators: bool,
    metrics: Option<AdmissionMetrics>,
}

impl Admission {
    /// With these bounds, told to these metrics.
    #[must_use]
    pub fn new(limits: AdmissionLimits, metrics: Option<AdmissionMetrics>) -> Self {
        Self(Arc::new(AdmissionState {
            lists: Mutex::new(Lists::new(limits.lists_max, limits.lists_waiting_max)),
            watches: Permits::new(limits.watches_max),
            memory: Memory::new(limits.memory_max),
            is_for_operators: false,
            limits,
            metrics,
        }))
    }

    /// The same for operators. To be called before it is cloned.
    #[must_use]
    pub fn for_operators(mut self) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.0) {
            shared.is_for_operators = true;
        }
        self
    }

    /// Whether its places are those of operators.
    #[must_use]
    pub fn is_for_operators(&self) -> bool {
        self.0.is_for_operators
    }

    /// Connections at once: as set, and as the limit of open files allows.
    #[must_use]
    pub fn connections_max(&self) -> usize {
        OpenFiles::of_process(self.0.limits.connections_max).clients
    }

    /// A place for a list, waited for as long as may be.
    ///
    /// # Errors
    /// 429 if there is none to be had.
    pub async fn list(&self, peer: Peer) -> Result<ListPermit, Status> {
        let is_memory_over = self.0.memory.is_over(Instant::now());
        let (id, mut turn) = {
            let mut lists = self.0.lists();
            // One goes on, so that memory which is not the lists' does not shut them out for good.
            if is_memory_over && lists.line.running() > 0 {
                return Err(self.refuse(LimitLabel::Memory));
            }
            if !lists.line.has_room_for(peer) {
                lists = self.0.take_back(lists);
            }
            match lists.line.enter(peer) {
                QueueDecision::Runs => {
                    let place = self.0.place(&mut lists, peer);
                    self.0.show(&lists);
                    return Ok(place);
                }
                QueueDecision::Full(shortage) => {
                    return Err(self.refuse_place(LimitLabel::Lists, PermitKind::Lists, shortage));
                }
                QueueDecision::MayWait(ticket) => {
                    let (sender, turn) = oneshot::channel();
                    let id = ticket.wait(sender);
                    self.0.show(&lists);
                    (id, turn)
                }
            }
        };
        let _waiting = ListWaiter {
            shared: &self.0,
            peer,
            id,
        };
        let mut overdue = std::pin::pin!(tokio::time::sleep(self.0.limits.list_wait_max));
        loop {
            // All are safe to cancel: a place that comes just now is given back with the channel it lies in.
            tokio::select! {
                biased;
                place = &mut turn => return place.map_err(|_| self.refuse(LimitLabel::ListWait)),
                () = &mut overdue => {
                    let shortage = self.0.lists().line.shortage(peer);
                    // If there is room just now, all places were taken until now.
                    let shortage = shortage.unwrap_or(Shortage::Total);
                    return Err(self.refuse_place(LimitLabel::ListWait, PermitKind::Lists, shortage));
                }
                () = tokio::time::sleep(LOOK_PERIOD) => drop(self.0.take_back(self.0.lists())),
            }
        }
    }

    /// A place for a watch.
    ///
    /// # Errors
    /// 429 if there is none.
    pub fn watch(&self, peer: Peer) -> Result<WatchPermit, Status> {
        if self.0.memory.is_over(Instant::now()) {
            return Err(self.refuse(LimitLabel::Memory));
        }
        let permit = self.0.watches.acquire(peer);
        permit.map(WatchPermit).map_err(|shortage| {
            self.refuse_place(LimitLabel::Watches, PermitKind::Watches, shortage)
        })
    }

    /// Counts a refusal for want of a place, and says it to the client.
    pub(crate) fn refuse_place(
        &self,
        why: LimitLabel,
        place: PermitKind,
        shortage: Shortage,
    ) -> Status {
        if let Some(metrics) = &self.0.metrics {
            metrics.shortages.inc(place, shortage);
        }
        let mut status = self.refuse(why);
        status.message.push_str(match shortage {
            Shortage::User => ", most of them this user's",
            Shortage::Address => ", most of them from this address",
            Shortage::Total => "",
        });
        status
    }

    /// Counts a refusal, and says it to the client.
    fn refuse(&self, why: LimitLabel) -> Status {
        if let Some(metrics) = &self.0.metrics {
            metrics.refusals.inc(why);
        }
        let (what, seconds) = match why {
            LimitLabel::Connections => ("too many connections are open", WATCH_RETRY_SECONDS),
            LimitLabel::Lists => ("too many lists wait for their turn", LIST_RETRY_SECONDS),
            LimitLabel::ListWait => ("the list's turn did not come in time", LIST_RETRY_SECONDS),
            LimitLabel::Watches => ("too many watches are open", WATCH_RETRY_SECONDS),
            LimitLabel::Memory => ("memory is short", WATCH_RETRY_SECONDS),
        };
        let range = seconds.end - seconds.start;
        let wait = Duration::from_secs_f64(seconds.start + range * crate::resource::fraction());
        Status::too_many_requests(
            format!("Too many requests, please try again later: {what}"),
            u32::try_from(wait.as_secs()).unwrap_or(1),
        )
    }
}

impl AdmissionState {
    fn lists(&self) -> MutexGuard<'_, WaitingLists> {
        // Lists are whole between their methods, and these do not panic.
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For a peer that the line has let in.
    fn place(self: &Arc<Self>, lists: &mut WaitingLists, peer: Peer) -> ListPermit {
        let stall = Arc::<Stall>::default();
        ListPermit {
            id: lists.begin(peer, Arc::clone(&stall)),
            shared: Arc::clone(self),
            peer,
            stall,
            pause: None,
        }
    }

    fn show(&self, lists: &WaitingLists) {
        let gauge = |count| i64::try_from(count).unwrap_or(i64::MAX);
        // The gauges are of what everybody shares.
        if let Some(metrics) = self.metrics.as_ref().filter(|_| !self.is_for_operators) {
            metrics.lists_running.set(gauge(lists.line.running()));
            metrics.lists_waiting.set(gauge(lists.line.waiting()));
            metrics.lists_slow.set(gauge(lists.slow()));
        }
    }

    /// Takes back the places of lists that wait for their clients, and gives them to whoever is next.
    fn take_back<'a>(
        self: &'a Arc<Self>,
        mut lists: MutexGuard<'a, WaitingLists>,
    ) -> MutexGuard<'a, WaitingLists> {
        if lists.take_back(Instant::now(), self.limits.list_stall_max) {
            self.hand_out(lists);
            return self.lists();
        }
        lists
    }

    /// Gives the places that have become free to whoever is next.
    fn hand_out(self: &Arc<Self>, mut lists: MutexGuard<'_, WaitingLists>) {
        let mut turns = Vec::new();
        while let Some((peer, sender)) = lists.line.admit_next() {
            turns.push((self.place(&mut lists, peer), sender));
        }
        self.show(&lists);
        drop(lists);
        for (place, sender) in turns {
            // Who has just given up lets the place go, and it comes back here.
            let _ = sender.send(place);
        }
    }
}

/// Somebody in the line. Dropped, it stands there no longer.
struct ListWaiter<'a> {
    shared: &'a Arc<AdmissionState>,
    peer: Peer,
    id: u64,
}

impl Drop for ListWaiter<'_> {
    fn drop(&mut self) {
        let mut lists = self.shared.lists();
        if lists.line.give_up(self.peer, self.id) {
            self.shared.show(&lists);
        }
    }
}

/// The right to send one list, until it is dropped. Who sends tells it whom the list waits for, frame by frame.
#[derive(Debug)]
pub struct ListPermit {
    shared: Arc<AdmissionState>,
    peer: Peer,
    id: u64,
    stall: Arc<Stall>,
    /// Between two frames of a slow list.
    pause: Option<Pin<Box<Sleep>>>,
}

impl ListPermit {
    /// Ready when the next frame may be made. So it is at once, but of a list that lost its place because its client did not take it,
    /// and finds no other: that one goes on slowly, and leaves the work to those who have places.
    pub fn poll_work(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Some(since) = self.stall.since()
            && !self.has_regained()
        {
            let pause = self.pause.get_or_insert_with(|| {
                Box::pin(tokio::time::sleep_until(since + SLOW_FRAME_PERIOD))
            });
            ready!(pause.as_mut().poll(context));
        }
        self.pause = None;
        self.stall.set(None);
        Poll::Ready(())
    }

    /// Whether the list has a place, or has one again.
    fn has_regained(&self) -> bool {
        if !self.stall.is_slow() {
            return true;
        }
        let mut lists = self.shared.lists();
        if !lists.line.has_room_for(self.peer) {
            lists = self.shared.take_back(lists);
        }
        // Looked at again: the lock may have been open meanwhile.
        let has_regained = !self.stall.is_slow() || lists.regain(self.id, self.peer, &self.stall);
        self.shared.show(&lists);
        has_regained
    }

    /// A frame is handed over: from now on the list waits for its client.
    pub fn gave_frame(&self) {
        self.stall.set(Some(Instant::now()));
    }

    /// The client waits for the list.
    pub fn is_at_work(&self) {
        self.has_regained();
        self.stall.set(None);
    }
}

impl Drop for ListPermit {
    fn drop(&mut self) {
        let mut lists = self.shared.lists();
        lists.end(self.id, self.peer);
        self.shared.hand_out(lists);
    }
}

/// The right to one watch, until it is dropped.
#[derive(Debug)]
pub struct WatchPermit(#[expect(dead_code, reason = "held for its drop")] Permit);

#[cfg(all(test, fanout_loom))]
mod models;
#[cfg(test)]
mod tests;
