//! Compares a cache with upstream, page after page, and finds drift: an object that one of the two holds and the other does not.
//!
//! `consistency` asks whether upstream still has the cache's history. Here both states are taken at the same version and must be equal
//! (decision 19).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tracing::{info, warn};

use crate::cache::{Snapshot, WatchCache};
use crate::live::LiveLimits;
use crate::metrics::{Contradiction, Label};
use crate::protocol::continue_token::ContinueToken;
use crate::recorders::ResourceRecorder;
use crate::resource::{ResourceVersion, random};
use crate::serve::wait_until_fresh;
use crate::upstream::driver::{Collection, Fetch, Sample, sample_from};
use crate::upstream::reflector::Failure;
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
#[derive(Clone, Debug)]
pub(super) struct DriftPace {
    limits: LiveLimits,
    /// How often the interval is doubled.
    doublings: u32,
}

impl DriftPace {
    /// A page each interval of the limits, zero for never, and more rarely after that many contradictions.
    pub(super) fn new(limits: LiveLimits, contradictions: u64) -> Self {
        let doublings =
            u32::try_from(contradictions).map_or(DOUBLED_MAX, |count| count.min(DOUBLED_MAX));
        Self { limits, doublings }
    }

    /// Waits for the next page. The time varies by a quarter, so that the caches of a gateway do not ask together.
    async fn next(&self) {
        let variation = random();
        self.limits
            .sleep(|values| {
                let interval = values.drift_interval * (1 << self.doublings);
                let half = u64::try_from(interval.as_micros() / 2).unwrap_or(u64::MAX);
                let time = interval * 3 / 4 + Duration::from_micros(variation % half.max(1));
                (!interval.is_zero()).then_some(time)
            })
            .await;
    }
}

/// What the comparison of one page found.
enum PageOutcome {
    /// The page is equal. The next one starts here; `None` after the last one.
    Equal(Option<PageStart>),
    /// The page or the cache's state at its version cannot be read now.
    Unknown,
    /// Upstream does not send a page from this start.
    Refused,
    /// The page is not in the order of keys, so that no part of it can be compared.
    Unordered,
    Different(PageFault),
}

/// What upstream's number of remaining objects is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CountTrust {
    /// It was right so far.
    Exact,
    /// It was wrong at this page: all pages are compared at once, to find the object.
    Doubted,
    /// All pages were equal although it was wrong. The API allows for that.
    Ignored,
}

/// Compares a page of the cache with upstream from time to time, and returns when a difference is confirmed.
pub(super) async fn drift<F: Fetch>(
    fetch: &F,
    served: &ServedResource,
    recorder: &ResourceRecorder,
    pace: DriftPace,
) -> Contradiction {
    let resource = &served.cache.kind().gvr;
    let mut sweep = Sweep {
        fetch,
        served,
        recorder,
        start: PageStart::default(),
        trust: CountTrust::Exact,
    };
    loop {
        // Pages that are compared at once must not load upstream much more than a client's list does.
        match sweep.trust {
            CountTrust::Doubted => sleep(CONFIRMED_AFTER).await,
            CountTrust::Exact | CountTrust::Ignored => pace.next().await,
        }
        match sweep.confirmed().await {
            PageOutcome::Equal(next) => sweep.advance(next),
            PageOutcome::Unknown => recorder.not_compared(),
            PageOutcome::Refused => {
                recorder.not_compared();
                sweep.start = PageStart::default();
            }
            PageOutcome::Unordered => {
                info!(%resource, "upstream's lists are not in the order of keys, and are not compared with the cache");
                return std::future::pending().await;
            }
            PageOutcome::Different(PageFault::Object(contradiction, key)) => {
                warn!(%resource, reason = contradiction.as_str(), key, "the cache differs from upstream");
                return contradiction;
            }
            PageOutcome::Different(PageFault::Older) => {
                warn!(%resource, "upstream is behind a version that clients have");
                return Contradiction::Older;
            }
            PageOutcome::Different(PageFault::Count) => {
                warn!(%resource, "upstream counts other objects than the cache holds: all are compared");
                sweep.trust = CountTrust::Doubted;
                sweep.start = PageStart::default();
            }
        }
    }
}

/// The comparison of all pages, one after the other.
struct Sweep<'a, F> {
    fetch: &'a F,
    served: &'a ServedResource,
    recorder: &'a ResourceRecorder,
    start: PageStart,
    trust: CountTrust,
}

impl<F: Fetch> Sweep<'_, F> {
    fn advance(&mut self, next: Option<PageStart>) {
        if next.is_none() && self.trust == CountTrust::Doubted {
            let resource = &self.served.cache.kind().gvr;
            info!(%resource, "all objects are equal: upstream's count is not used any more");
            self.trust = CountTrust::Ignored;
        }
        self.start = next.unwrap_or_default();
    }

    /// Compares a page; a difference counts if it is found a second time.
    async fn confirmed(&self) -> PageOutcome {
        let first = match self.compare().await {
            PageOutcome::Different(fault) => fault,
            other @ (PageOutcome::Equal(_)
            | PageOutcome::Unknown
            | PageOutcome::Refused
            | PageOutcome::Unordered) => return other,
        };
        sleep(CONFIRMED_AFTER).await;
        match self.compare().await {
            // Where objects and version are not read at one moment, as some servers do, another object differs each time.
            PageOutcome::Different(fault) if fault != first => PageOutcome::Unknown,
            outcome @ (PageOutcome::Equal(_)
            | PageOutcome::Unknown
            | PageOutcome::Refused
            | PageOutcome::Unordered
            | PageOutcome::Different(_)) => outcome,
        }
    }

    async fn compare(&self) -> PageOutcome {
        let cache = &self.served.cache;
        let given = cache.newest_given();
        let Some(epoch) = cache.snapshot().map(|snapshot| snapshot.epoch) else {
            return PageOutcome::Unknown;
        };
        let token = self.start.key().map(|key| {
            ContinueToken::after(key, ResourceVersion::default())
                .at_latest()
                .encode()
        });
        let collection = Collection::all(&cache.kind().gvr);
        let page = match sample_from(self.fetch, &collection, token.as_deref(), PAGE_LEN).await {
            Ok(page) => page,
            Err(failure) => return unread(&failure),
        };
        if page.version < given {
            return PageOutcome::Different(PageFault::Older);
        }
        let Some(state) = state_at(page.version, self.served).await else {
            return PageOutcome::Unknown;
        };
        // After another list the cache was changed by the difference between two states, not by the events in between.
        if state.epoch != epoch {
            return PageOutcome::Unknown;
        }
        self.judged(&page, &state)
    }

    fn judged(&self, page: &Sample, state: &Snapshot) -> PageOutcome {
        if !self.start.is_ordered(page) {
            return PageOutcome::Unordered;
        }
        match compared(page, &self.start, &state.objects) {
            Err(PageFault::Count) if self.trust != CountTrust::Exact => {}
            Err(fault) => return PageOutcome::Different(fault),
            Ok(()) => {}
        }
        self.recorder.compared(page.entries.len(), page.is_complete);
        PageOutcome::Equal(if page.is_complete {
            None
        } else {
            PageStart::after(page)
        })
    }
}

fn unread(failure: &Failure) -> PageOutcome {
    match failure {
        Failure::Status(status) if matches!(status.code, 400 | 410) => PageOutcome::Refused,
        Failure::Protocol | Failure::TooLong => PageOutcome::Refused,
        Failure::Status(_) | Failure::Transport | Failure::Unordered | Failure::Saturated => {
            PageOutcome::Unknown
        }
    }
}

/// The cache's state at exactly this version; `None` if it does not reach the version in time, or no longer knows its state there.
async fn state_at(version: ResourceVersion, served: &ServedResource) -> Option<Arc<Snapshot>> {
    if !wait_until_fresh(served, version, STREAM_WAIT).await {
        return None;
    }
    let cache: &WatchCache = &served.cache;
    let newest = cache.snapshot()?;
    // A bookmark has moved the version, and no object.
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
