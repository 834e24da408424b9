//! Who may be served now: how many lists, watches and connections there are at once, and who waits or is sent away with 429.
//!
//! ```text
//! list ── place free? ──▶ runs until its body is gone
//!             │ no
//!             ▼
//!       line, bounded in places and time ──▶ runs, or 429 with Retry-After
//! watch ── below its bound? ──▶ runs until its stream is gone, or 429
//! ```
//!
//! What is decided is `line`'s, without clock or socket. Short answers, forwarded requests and everything on the admin
//! port are not bounded here (`docs/decisions/0017-admission.md`).

mod line;
mod memory;

use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::status::Status;
use crate::config::AdmissionLimits;
use crate::metrics::{AdmissionMetrics, Refused};
use line::{Entry, Line};
use memory::Memory;
pub use memory::resident;

/// Of the files that the process may open, one in so many is left for what is not a client: upstream above all.
const FILES_LEFT: usize = 16;
/// Without a limit of open files: more than one machine's ports and memory allow.
const CONNECTIONS_UNLIMITED: usize = 1 << 20;
/// Clients that were sent away together shall not come back together.
const LIST_RETRY_SECONDS: std::ops::Range<f64> = 1.0..5.0;
/// Watches and memory are held for minutes.
const WATCH_RETRY_SECONDS: std::ops::Range<f64> = 5.0..15.0;

/// Who asks, as far as an address tells. All hosts of one IPv6 network count as one: they cost their owner nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer(IpAddr);

impl Peer {
    /// All whose address is not known.
    pub const UNKNOWN: Self = Self(IpAddr::V6(Ipv6Addr::UNSPECIFIED));
}

impl From<IpAddr> for Peer {
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V4(address) => IpAddr::V4(address),
            IpAddr::V6(address) => IpAddr::V6((u128::from(address) & !u128::from(u64::MAX)).into()),
        })
    }
}

/// The bounds of one service, and what is taken of them.
#[derive(Clone, Debug)]
pub struct Admission(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limits: AdmissionLimits,
    lists: Mutex<Line<oneshot::Sender<ListPlace>>>,
    watches: Mutex<usize>,
    memory: Memory,
    metrics: Option<AdmissionMetrics>,
}

impl Admission {
    /// With these bounds, told to these metrics.
    #[must_use]
    pub fn new(limits: AdmissionLimits, metrics: Option<AdmissionMetrics>) -> Self {
        Self(Arc::new(Shared {
            lists: Mutex::new(Line::new(limits.lists_max, limits.lists_waiting_max)),
            watches: Mutex::new(0),
            memory: Memory::new(limits.memory_max),
            limits,
            metrics,
        }))
    }

    /// Connections at once: as set, or what the limit of open files leaves.
    #[must_use]
    pub fn connections_max(&self) -> usize {
        match self.0.limits.connections_max {
            0 => {
                let files = getrlimit(Resource::Nofile).current;
                files.map_or(CONNECTIONS_UNLIMITED, |files| {
                    let files = usize::try_from(files).unwrap_or(usize::MAX);
                    (files - files / FILES_LEFT).clamp(1, CONNECTIONS_UNLIMITED)
                })
            }
            set => set,
        }
    }

    /// A place for a list, waited for as long as may be.
    ///
    /// # Errors
    /// 429 if there is none to be had.
    pub async fn list(&self, peer: Peer) -> Result<ListPlace, Status> {
        let is_memory_over = self.0.memory.is_over(Instant::now());
        let (id, turn) = {
            let mut lists = self.0.lists();
            // One goes on, so that memory which is not the lists' does not shut them out for good.
            if is_memory_over && lists.running() > 0 {
                return Err(self.refuse(Refused::Memory));
            }
            match lists.enter(peer) {
                Entry::Runs => {
                    self.0.show(&lists);
                    return Ok(self.0.place(peer));
                }
                Entry::Full => return Err(self.refuse(Refused::Lists)),
                Entry::MayWait(ticket) => {
                    let (sender, turn) = oneshot::channel();
                    let id = ticket.wait(sender);
                    self.0.show(&lists);
                    (id, turn)
                }
            }
        };
        let _waiting = Waiting {
            shared: &self.0,
            id,
        };
        match tokio::time::timeout(self.0.limits.list_wait_max, turn).await {
            Ok(Ok(place)) => Ok(place),
            // A place that comes just now is given back with the channel it lies in.
            Ok(Err(_)) | Err(_) => Err(self.refuse(Refused::ListWait)),
        }
    }

    /// A place for a watch.
    ///
    /// # Errors
    /// 429 if there is none.
    pub fn watch(&self) -> Result<WatchPlace, Status> {
        if self.0.memory.is_over(Instant::now()) {
            return Err(self.refuse(Refused::Memory));
        }
        let mut watches = self.0.watches();
        if *watches >= self.0.limits.watches_max {
            return Err(self.refuse(Refused::Watches));
        }
        *watches += 1;
        Ok(WatchPlace(Arc::clone(&self.0)))
    }

    /// Counts a refusal, and says it to the client.
    pub(super) fn refuse(&self, why: Refused) -> Status {
        if let Some(metrics) = &self.0.metrics {
            metrics.refusals.inc(why);
        }
        let (what, seconds) = match why {
            Refused::Connections => ("too many connections are open", WATCH_RETRY_SECONDS),
            Refused::Lists => ("too many lists wait for their turn", LIST_RETRY_SECONDS),
            Refused::ListWait => ("the list's turn did not come in time", LIST_RETRY_SECONDS),
            Refused::Watches => ("too many watches are open", WATCH_RETRY_SECONDS),
            Refused::Memory => ("memory is short", WATCH_RETRY_SECONDS),
        };
        let range = seconds.end - seconds.start;
        let wait = Duration::from_secs_f64(seconds.start + range * crate::resource::fraction());
        Status::too_many_requests(
            format!("Too many requests, please try again later: {what}"),
            u32::try_from(wait.as_secs()).unwrap_or(1),
        )
    }
}

impl Shared {
    fn lists(&self) -> MutexGuard<'_, Line<oneshot::Sender<ListPlace>>> {
        // A line is whole between its methods, and these do not panic.
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watches(&self) -> MutexGuard<'_, usize> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(self: &Arc<Self>, peer: Peer) -> ListPlace {
        ListPlace {
            shared: Arc::clone(self),
            peer,
        }
    }

    fn show(&self, lists: &Line<oneshot::Sender<ListPlace>>) {
        let gauge = |count| i64::try_from(count).unwrap_or(i64::MAX);
        if let Some(metrics) = &self.metrics {
            metrics.lists_running.set(gauge(lists.running()));
            metrics.lists_waiting.set(gauge(lists.waiting()));
        }
    }

    /// Gives the places that have become free to whoever is next.
    fn hand_out(self: &Arc<Self>, mut lists: MutexGuard<'_, Line<oneshot::Sender<ListPlace>>>) {
        let mut turns = Vec::new();
        while let Some((peer, sender)) = lists.admit_next() {
            turns.push((self.place(peer), sender));
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
struct Waiting<'a> {
    shared: &'a Arc<Shared>,
    id: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut lists = self.shared.lists();
        if lists.give_up(self.id) {
            self.shared.show(&lists);
        }
    }
}

/// The right to send one list, until it is dropped.
#[derive(Debug)]
pub struct ListPlace {
    shared: Arc<Shared>,
    peer: Peer,
}

impl Drop for ListPlace {
    fn drop(&mut self) {
        let mut lists = self.shared.lists();
        lists.leave(self.peer);
        self.shared.hand_out(lists);
    }
}

/// The right to one watch, until it is dropped.
#[derive(Debug)]
pub struct WatchPlace(Arc<Shared>);

impl Drop for WatchPlace {
    fn drop(&mut self) {
        *self.0.watches() -= 1;
    }
}

#[cfg(test)]
mod tests;
