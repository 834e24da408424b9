//! The lists of Tables that are at upstream, and those that are kept.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hashbrown::HashMap;
use http::{HeaderMap, Response};
use http_body_util::Full;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::time::Instant;

use super::request::ListKey;
use crate::fairness::Permit;
use crate::protocol::{audit_id, with_audit_id};
use crate::resource::{Gvr, ResourceVersion};

/// How long lists of a key are forwarded after one could not be shared.
const FORWARDED_FOR: Duration = Duration::from_secs(60);
/// Keys of which that is known.
const FORWARDED_MAX: usize = 1_024;

/// A list as upstream has answered it.
#[derive(Debug)]
pub struct TableList {
    pub(super) number: u64,
    /// When it was requested from upstream.
    pub(super) begun: Instant,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// The version of the collection; `None` if it cannot be read.
    pub(super) version: Option<ResourceVersion>,
    pub(super) _permit: Permit,
}

impl TableList {
    /// The response to one client that sent these headers. The list must be held until the response is sent.
    #[must_use]
    pub fn response(&self, headers: &HeaderMap) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::from(self.body.clone()));
        *response.headers_mut() = self.headers.clone();
        with_audit_id(response, &audit_id(headers))
    }
}

/// The lists of all keys.
#[derive(Debug, Default)]
pub(super) struct ListTable(Mutex<ListTableState>);

#[derive(Debug, Default)]
pub(super) struct ListTableState {
    pub(super) entries: HashMap<ListKey, ListEntry, foldhash::fast::RandomState>,
    /// Keys whose lists could not be shared, and when.
    forwarded: HashMap<ListKey, Instant, foldhash::fast::RandomState>,
    /// Number of requests to upstream that have begun.
    pub(super) begun: u64,
    /// How often lists were expired.
    pub(super) expiries: u64,
    is_closed: bool,
}

#[derive(Debug, Default)]
pub(super) struct ListEntry {
    /// The request that is at upstream.
    pub(super) current: Option<ListAtUpstream>,
    /// The newest answer, for a short time.
    pub(super) kept: Option<Arc<TableList>>,
}

/// A request that is at upstream; the channel closes without a list if it cannot be shared.
#[derive(Clone, Debug)]
pub(super) struct ListAtUpstream {
    pub(super) number: u64,
    pub(super) list: watch::Receiver<Option<Arc<TableList>>>,
}

impl ListAtUpstream {
    pub(super) async fn list(mut self) -> Option<Arc<TableList>> {
        let list = self.list.wait_for(Option::is_some).await;
        list.ok()?.clone()
    }
}

impl ListTable {
    pub(super) fn lock(&self) -> MutexGuard<'_, ListTableState> {
        self.0.lock()
    }

    /// Drops the lists of these resources. Who waits for one of them is forwarded.
    pub(super) fn expire(&self, is_expired: impl Fn(&Gvr) -> bool) {
        let mut state = self.lock();
        state.expiries += 1;
        state.entries.retain(|key, _| !is_expired(key.gvr()));
        state.forwarded.retain(|key, _| !is_expired(key.gvr()));
    }

    /// Drops all lists; none is shared afterwards.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        state.entries.clear();
    }
}

impl ListTableState {
    /// Whether lists of this key are shared at present.
    pub(super) fn shares(&self, key: &ListKey) -> bool {
        let refused = self.forwarded.get(key);
        !self.is_closed && refused.is_none_or(|at| at.elapsed() >= FORWARDED_FOR)
    }

    pub(super) fn refuse(&mut self, key: &ListKey) {
        if self.forwarded.len() >= FORWARDED_MAX {
            self.forwarded.retain(|_, at| at.elapsed() < FORWARDED_FOR);
        }
        if self.forwarded.len() >= FORWARDED_MAX {
            self.forwarded.clear();
        }
        self.forwarded.insert(key.clone(), Instant::now());
    }
}
