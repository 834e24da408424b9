//! Compares the held state with upstream's, when watches bring nothing: silence is no evidence of anything.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::timeout;

use super::Driver;
use super::fetch::Fetch;
use super::object_versions::{
    CENSUS_MAX, ObjectVersionsError, ObjectVersionsPage, census, read_page,
};
use super::probe::{NewestVersion, newest_version};
use super::request::Collection;
use crate::reflector::{Comparison, Failure, Input};
use crate::resource::{ObjectKey, ResourceVersion};
use crate::sink::Sink;

/// The time for a comparison. Most of them read one object; [`CENSUS_MAX`] names and versions take a second or two.
const COMPARISON_TIME_MAX: Duration = Duration::from_secs(10);
/// Objects that are looked up before other tasks run: about a millisecond.
const COMPARED_PER_SLICE: usize = 1_000;

/// A comparison that is under way.
pub(super) type UpstreamStateFuture = Pin<Box<dyn Future<Output = UpstreamState> + Send>>;

#[derive(Debug)]
pub(super) enum UpstreamState {
    /// It cannot be read. Upstream asks for this wait, in seconds.
    Unknown(u32),
    /// It is at the held version.
    Same,
    /// It is at a lower version.
    Older,
    /// Its version is newer than the held one.
    Newer {
        /// How many objects it has, if it says so.
        count: Option<usize>,
        /// Some of them, or all.
        entries: Vec<(ObjectKey, ResourceVersion)>,
    },
}

/// What is asked, and what is held meanwhile.
struct ComparisonRequest {
    collection: Collection,
    held: Option<ResourceVersion>,
    /// Where the page begins if there are too many objects to read all; `None` for the first one.
    page_start: Option<String>,
}

impl ComparisonRequest {
    async fn send<F: Fetch>(self, fetch: Arc<F>) -> UpstreamState {
        let read = timeout(COMPARISON_TIME_MAX, self.read(&*fetch))
            .await
            .unwrap_or(Err(Failure::Transport));
        read.unwrap_or_else(|failure| UpstreamState::Unknown(failure.retry_after_seconds()))
    }

    async fn read<F: Fetch>(&self, fetch: &F) -> Result<UpstreamState, Failure> {
        let NewestVersion { version, count } = newest_version(fetch, &self.collection).await?;
        if self.held == Some(version) {
            return Ok(UpstreamState::Same);
        }
        if self.held.is_some_and(|held| version < held) {
            return Ok(UpstreamState::Older);
        }
        if count.is_none_or(|count| count <= CENSUS_MAX) {
            match census(fetch, &self.collection).await {
                Ok(census) => return Ok(UpstreamState::of_all(census.into_entries())),
                Err(ObjectVersionsError::Page(failure)) => return Err(failure),
                Err(ObjectVersionsError::Disjoint) => return Err(Failure::Protocol),
                Err(ObjectVersionsError::TooMany) => {}
            }
        }
        self.read_page(fetch, count).await
    }

    async fn read_page<F: Fetch>(
        &self,
        fetch: &F,
        count: Option<usize>,
    ) -> Result<UpstreamState, Failure> {
        if let Some(start) = self.page_start.as_deref()
            // Not every server knows such a start.
            && let Ok(page) = read_page(fetch, &self.collection, Some(start)).await
        {
            return Ok(UpstreamState::Newer {
                count,
                entries: page.entries,
            });
        }
        let ObjectVersionsPage { entries, token, .. } =
            read_page(fetch, &self.collection, None).await?;
        Ok(match token.is_empty() {
            true => UpstreamState::of_all(entries),
            false => UpstreamState::Newer { count, entries },
        })
    }
}

impl UpstreamState {
    fn of_all(entries: Vec<(ObjectKey, ResourceVersion)>) -> Self {
        Self::Newer {
            count: Some(entries.len()),
            entries,
        }
    }
}

impl<F: Fetch, S: Sink> Driver<F, S> {
    /// Compares the state with upstream's while no watch is open.
    pub(super) async fn compare(&mut self) {
        let upstream = self.upstream_state().await;
        let comparison = self.compared_with(&upstream).await;
        self.observe(Input::Compared(comparison));
    }

    pub(super) fn upstream_state(&self) -> UpstreamStateFuture {
        let request = ComparisonRequest {
            collection: self.spec.collection.clone(),
            held: self.reflector.version().max(self.sink.newest_given()),
            page_start: self.sink.page_start(),
        };
        Box::pin(request.send(Arc::clone(&self.fetch)))
    }

    /// Compares upstream's state with the held one. Other tasks run in between.
    #[expect(
        clippy::needless_pass_by_ref_mut,
        reason = "a shared reference would have to be Send, and sinks need not be Sync"
    )]
    pub(super) async fn compared_with(&mut self, upstream: &UpstreamState) -> Comparison {
        let (count, entries) = match upstream {
            UpstreamState::Unknown(seconds) => return Comparison::Unknown(*seconds),
            UpstreamState::Same => return Comparison::Equal,
            UpstreamState::Older => return Comparison::Different,
            UpstreamState::Newer { count, entries } => (*count, entries),
        };
        let Some(held_count) = self.sink.object_count() else {
            return Comparison::Unknown(0);
        };
        if count.is_some_and(|count| count != held_count) {
            return Comparison::Different;
        }
        for slice in entries.chunks(COMPARED_PER_SLICE) {
            if !self.sink.holds(slice) {
                return Comparison::Different;
            }
            yield_now().await;
        }
        match count == Some(entries.len()) {
            true => Comparison::Equal,
            false => Comparison::Unrefuted,
        }
    }
}
