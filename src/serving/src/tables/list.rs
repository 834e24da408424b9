//! Lists of Tables: clients that ask alike share requests to upstream (decision 67).
//!
//! At most one request of a key is at upstream. Who comes while it is there waits for its answer, and takes it if the collection is known not
//! to have changed since; otherwise the next request, which begins after the client has come, is for all that wait.

mod fetch;
mod request;
mod state;
mod unchanged;

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tracing::error;

use crate::fairness::Permits;
use crate::metrics::{Metrics, TaskKind};
use crate::resource::{CacheKey, Gvr, ResourceVersion};
use crate::task::catch_panic;
use crate::upstream::client::Client;
use fetch::{KEPT_FOR, TableListFetch};
pub use request::TableListRequest;
pub use state::TableList;
use state::{ListAtUpstream, ListTable};
pub use unchanged::is_unchanged;

/// Lists that are at upstream, kept, or being sent to clients. Beyond this number, or beyond their client's share, lists are forwarded.
const LISTS_MAX: usize = 64;

/// All shared lists.
pub struct TableLists {
    table: Arc<ListTable>,
    client: Arc<Client>,
    metrics: Arc<Metrics>,
    /// One for each list.
    permits: Permits,
    /// The tasks that fetch and keep lists; they end when this is dropped.
    tasks: Mutex<JoinSet<()>>,
}

impl fmt::Debug for TableLists {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableLists").finish_non_exhaustive()
    }
}

impl TableLists {
    /// No list yet.
    pub fn new(client: Arc<Client>, metrics: Arc<Metrics>) -> Self {
        Self {
            table: Arc::default(),
            client,
            metrics,
            permits: Permits::new(LISTS_MAX),
            tasks: Mutex::default(),
        }
    }

    /// Drops the lists of these resources. Who waits for one of them is forwarded.
    pub fn expire(&self, is_expired: impl Fn(&Gvr) -> bool) {
        self.table.expire(is_expired);
    }

    /// Requests to upstream that have begun.
    pub fn requests(&self) -> u64 {
        self.table.lock().begun
    }

    /// Drops all lists; none is shared afterwards.
    pub fn close(&self) {
        self.table.close();
        self.tasks.lock().abort_all();
    }

    /// The list that a request gets together with others; `None` if it must be forwarded. `is_unchanged` tells whether the collection is
    /// the same now as at a version; if that is not known it is not.
    pub async fn list<F>(
        &self,
        request: &TableListRequest,
        is_unchanged: impl Fn(ResourceVersion) -> F,
    ) -> Option<Arc<TableList>>
    where
        F: Future<Output = bool>,
    {
        let (seen, expiries, kept) = {
            let state = self.table.lock();
            if !state.shares(&request.key) {
                return None;
            }
            let entry = state.entries.get(&request.key);
            let kept = entry.and_then(|entry| entry.kept.clone());
            (state.begun, state.expiries, kept)
        };
        let is_current = async |list: &TableList| match list.version {
            Some(version) if list.begun.elapsed() < KEPT_FOR => {
                timeout(KEPT_FOR, is_unchanged(version)).await == Ok(true)
            }
            Some(_) | None => false,
        };
        let mut found = None;
        if let Some(list) = kept
            && is_current(&list).await
        {
            found = Some(list);
        }
        let metrics = self
            .metrics
            .tables((&CacheKey::json(request.key.gvr())).into());
        let mut is_shared = true;
        while found.is_none() {
            let (at_upstream, has_begun) = self.at_upstream(request)?;
            if has_begun {
                metrics.lists.inc();
                is_shared = false;
            }
            let list = at_upstream.list().await?;
            // The second one has begun after this client had come.
            if list.number > seen || is_current(&list).await {
                found = Some(list);
            }
        }
        // Another server may serve the resource now.
        let found = found.filter(|_| self.table.lock().expiries == expiries)?;
        metrics.shared_lists.inc_by(u64::from(is_shared));
        Some(found)
    }

    /// The request that is at upstream, and whether it has begun now because there was none.
    fn at_upstream(&self, request: &TableListRequest) -> Option<(ListAtUpstream, bool)> {
        let TableListRequest { key, peer } = request;
        let mut state = self.table.lock();
        if !state.shares(key) {
            return None;
        }
        if let Some(current) = state
            .entries
            .get(key)
            .and_then(|entry| entry.current.clone())
        {
            return Some((current, false));
        }
        let permit = self.permits.try_acquire(*peer)?;
        state.begun += 1;
        let (sender, list) = watch::channel(None);
        let current = ListAtUpstream {
            number: state.begun,
            list,
        };
        let entry = state.entries.entry(key.clone()).or_default();
        entry.current = Some(current.clone());
        drop(state);
        let fetch = TableListFetch {
            table: Arc::clone(&self.table),
            client: Arc::clone(&self.client),
            key: key.clone(),
            number: current.number,
            begun: Instant::now(),
        };
        let ends = self.metrics.task_ends();
        let mut tasks = self.tasks.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            if let Err(panic) = catch_panic(fetch.run(sender, permit)).await {
                error!(%panic, "the task of a list of Tables panicked; its clients' lists are forwarded");
                ends.inc(TaskKind::TableList);
            }
        });
        Some((current, true))
    }
}
