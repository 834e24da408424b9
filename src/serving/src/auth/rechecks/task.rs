//! The task of the rechecks: scans the leases, and starts the checks that are due.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior};

use super::Rechecks;
use super::check::RequirementCheck;
use super::queue::CheckQueue;
use crate::metrics::Revocation;

/// From a change of roles to the checks that it causes. Collects changes that come in batches, and lets the API server's authorizer
/// learn of them.
pub(super) const SETTLING_TIME: Duration = Duration::from_secs(1);

/// Bounds of the time between two scans, which is otherwise a thirtieth of the interval.
const TICK_MIN: Duration = Duration::from_millis(50);

const TICK_MAX: Duration = Duration::from_secs(1);

impl Rechecks {
    /// Scans the leases and runs their checks. Never returns.
    pub async fn run(self: &Arc<Self>) {
        let mut queue = CheckQueue::new();
        let mut tick = tokio::time::interval(self.tick());
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut settled_at = None;
        loop {
            // Every branch is cancel-safe.
            tokio::select! {
                _ = tick.tick() => self.scan(&mut queue),
                Some(()) = queue.end_one() => {}
                () = self.change.notified() => {
                    settled_at.get_or_insert_with(|| Instant::now() + SETTLING_TIME);
                }
                () = until(settled_at) => {
                    settled_at = None;
                    self.mark_doubtful();
                    self.scan(&mut queue);
                }
            }
        }
    }

    /// Makes the requirements due that recent changes of roles may affect. The API server's authorizer also learns of changes by a watch,
    /// so this runs a second after a change. Decisions of that second may be outdated, so they are invalidated again.
    fn mark_doubtful(&self) {
        let mut changes = self.changes.lock();
        let scopes = std::mem::take(&mut *changes);
        drop(changes);
        self.decisions.forget(&scopes);
        self.leases().mark_doubtful(&scopes, Instant::now());
    }

    fn scan(self: &Arc<Self>, queue: &mut CheckQueue) {
        let now = Instant::now();
        let mut leases = self.leases();
        let scan = leases.scan(now);
        leases.offer_due(now, |requirement| {
            queue.accept(requirement.payer(), || RequirementCheck {
                key: requirement.key(),
                requirement: requirement.clone(),
                rechecks: Arc::clone(self),
                is_done: false,
            })
        });
        drop(leases);
        queue.start();
        self.record_revocations(Revocation::GraceOver, scan.revoked);
        self.metrics
            .leases
            .set(i64::try_from(scan.held).unwrap_or(i64::MAX));
    }

    fn tick(&self) -> Duration {
        (self.times.interval / 30).clamp(TICK_MIN, TICK_MAX)
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
