//! Compares a cache with upstream, page after page, and finds drift: an object that one of the two holds and the other does not.
//!
//! `consistency` asks whether upstream still has the cache's history. Here both states are taken at the same version and must be equal
//! (decision 51).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tracing::{info, warn};

use crate::cache::{Snapshot, WatchCache};
use crate::gateway::recorders::ResourceRecorder;
use crate::metrics::{Contradiction, Label};
use crate::protocol::continue_token::ContinueToken;
use crate::resource::{ResourceVersion, random};
use crate::serve::wait_until_fresh;
use crate::upstream::driver::{Collection, Fetch, Sample, sample_from};
use crate::view::ServedResource;
use comparison::{PageFault, PageStart, compared};

mod comparison;

/// Objects per page. Their metadata has about a megabyte.
const PAGE_LEN: u32 = 500;
/// How long to wait until the cache reaches the page's version. On a quiet resource the next bookmark does, which comes within a minute.
const STREAM_WAIT: Duration = Duration::from_secs(90);
/// A difference must be found again after this time.
const CONFIRMED_AFTER: Duration = Duration::from_secs(1);
/// The interval doubles with each contradiction, at most this many times.
const DOUBLED_MAX: u32 = 6;
/// Number of events that are undone before the task yields.
const REWIND_BATCH: usize = 64;

/// How often a page is compared.
#[derive(Clone, Copy, Debug)]
pub(super) struct DriftPace {
    /// `None` for never.
    interval: Option<Duration>,
}

impl DriftPace {
    /// A page each `interval`, zero for never, and more rarely after that many contradictions.
    pub(super) fn new(interval: Duration, contradictions: u64) -> Self {
        let doublings =
            u32::try_from(contradictions).map_or(DOUBLED_MAX, |count| count.min(DOUBLED_MAX));
        Self {
            interval: (!interval.is_zero()).then(|| interval * (1 << doublings)),
        }
    }

    /// Waits for the next page. The time varies by a quarter, so that the caches of a gateway do not ask together.
    async fn next(self) {
        let Some(interval) = self.interval else {
            return std::future::pending().await;
        };
        let half = u64::try_from(interval.as_micros() / 2).unwrap_or(u64::MAX);
        sleep(interval * 3 / 4 + Duration::from_micros(random() % half.max(1))).await;
    }
}

/// What the comparison of one page found.
enum PageOutcome {
    /// The page is equal. The next one starts here; `None` after the last one.
    Equal(Option<PageStart>),
    /// Upstream did not send the page. It may refuse a start that it has not given.
    Unread,
    /// The cache's state at the page's version is not known.
    Unknown,
    /// The page is not in the order of keys, so that no part of it can be compared.
    Unordered,
    /// The two differ.
    Different(PageFault),
}

/// Compares a page of the cache with upstream from time to time, and returns when a difference is confirmed.
pub(super) async fn drift<F: Fetch>(
    fetch: &F,
    served: &ServedResource,
    recorder: &ResourceRecorder,
    pace: DriftPace,
) -> Contradiction {
    let resource = &served.cache.kind().gvr;
    let mut start = PageStart::default();
    loop {
        pace.next().await;
        let mut outcome = compare(fetch, served, recorder, &start).await;
        if matches!(outcome, PageOutcome::Different(_)) {
            sleep(CONFIRMED_AFTER).await;
            outcome = compare(fetch, served, recorder, &start).await;
        }
        start = match outcome {
            PageOutcome::Equal(next) => next.unwrap_or_default(),
            PageOutcome::Unread => PageStart::default(),
            PageOutcome::Unknown => start,
            PageOutcome::Unordered => {
                info!(%resource, "upstream's lists are not in the order of keys, and are not compared with the cache");
                return std::future::pending().await;
            }
            PageOutcome::Different(fault) => {
                warn!(%resource, reason = fault.contradiction.as_str(), key = fault.key, "the cache differs from upstream");
                return fault.contradiction;
            }
        };
    }
}

async fn compare<F: Fetch>(
    fetch: &F,
    served: &ServedResource,
    recorder: &ResourceRecorder,
    start: &PageStart,
) -> PageOutcome {
    let Some(epoch) = served.cache.snapshot().map(|snapshot| snapshot.epoch) else {
        return PageOutcome::Unknown;
    };
    let token = start.key().map(|key| {
        let exact = ContinueToken::after(key, ResourceVersion::default());
        exact.at_latest().encode()
    });
    let collection = Collection::all(&served.cache.kind().gvr);
    let page = sample_from(fetch, &collection, token.as_deref(), PAGE_LEN).await;
    let Ok(page) = page else {
        return PageOutcome::Unread;
    };
    let Some(state) = state_at(page.version, served).await else {
        return PageOutcome::Unknown;
    };
    // After another list the cache was changed by the difference between two states, not by the events in between.
    if state.epoch != epoch {
        return PageOutcome::Unknown;
    }
    judged(&page, start, &state, recorder)
}

fn judged(
    page: &Sample,
    start: &PageStart,
    state: &Snapshot,
    recorder: &ResourceRecorder,
) -> PageOutcome {
    if !start.is_ordered(page) {
        return PageOutcome::Unordered;
    }
    if let Err(fault) = compared(page, start, &state.objects) {
        return PageOutcome::Different(fault);
    }
    recorder.compared(page.entries.len(), page.is_complete);
    PageOutcome::Equal(if page.is_complete {
        None
    } else {
        PageStart::after(page)
    })
}

/// The cache's state at exactly this version; `None` if it does not reach the version in time, or no longer knows its state there.
async fn state_at(version: ResourceVersion, served: &ServedResource) -> Option<Arc<Snapshot>> {
    if !wait_until_fresh(served, version, STREAM_WAIT).await {
        return None;
    }
    let cache: &WatchCache = &served.cache;
    let newest = cache.snapshot()?;
    // A bookmark or a proof has moved the version, and no object.
    if newest.resource_version <= version {
        return Some(newest);
    }
    let mut rewind = cache.rewind(version).ok()?;
    while rewind.step(REWIND_BATCH) {
        tokio::task::yield_now().await;
    }
    Some(Arc::new(rewind.finish()))
}

#[cfg(test)]
mod tests;
