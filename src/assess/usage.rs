//! Who reads what, added up from an audit log in bounded memory.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};

use super::audit_entry::{AuditedRead, ReadProgress, WatchScope};
use super::client::AuditedClient;
use super::group_resource::GroupResource;

/// Clients and resources that have a row of their own; all others share one. More than the controllers of large clusters.
const ROWS_MAX: usize = 10_000;
/// Watches that are open at the same time: 14 for each of 50,000 nodes. Each takes about 64 bytes here.
const OPEN_MAX: usize = 700_000;
/// Tokens, questions and nodes that are told apart. Each takes about 16 bytes here.
const DISTINCT_MAX: usize = 2_000_000;

/// What a client does with a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ReadUsage {
    /// Seconds of all watches together, for each [`WatchScope`].
    pub(super) watch_seconds: [f64; WatchScope::COUNT],
    pub(super) watch_requests: u64,
    pub(super) list_requests: u64,
    /// Reads of the newest state.
    pub(super) consistent: u64,
    /// Reads that a gateway forwards because of their options.
    pub(super) forwarded: u64,
    /// Different questions of authorization.
    pub(super) questions: u64,
}

/// What is known of a client beside its reads.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ClientFacts {
    pub(super) is_in_pod: bool,
    /// Different tokens.
    pub(super) tokens: u64,
    /// Different nodes, or addresses where the log does not tell nodes.
    pub(super) nodes: u64,
}

/// A watch that has begun in the log.
struct OpenWatch {
    row: usize,
    scope: WatchScope,
    since: f64,
}

/// A client's use of a resource. The last row, if it has no resource, is that of all others.
type UsageRow = (AuditedClient, Option<GroupResource>);

/// The sums so far.
pub(super) struct AuditUsage {
    begins_at: f64,
    ends_at: f64,
    rows: Vec<(UsageRow, ReadUsage)>,
    numbers: HashMap<UsageRow, usize>,
    facts: HashMap<AuditedClient, ClientFacts>,
    open: HashMap<u64, OpenWatch>,
    distinct: HashSet<u64>,
    hasher: RandomState,
    /// Reads without a row of their own.
    others: u64,
    /// Watches that could not be followed to their end.
    unfollowed: u64,
    is_distinct_full: bool,
}

/// The sums of the whole log.
#[derive(Debug, Default)]
pub(super) struct UsageSums {
    pub(super) window_seconds: f64,
    /// Seconds of Unix time.
    pub(super) begins_at: f64,
    pub(super) rows: Vec<(UsageRow, ReadUsage)>,
    pub(super) facts: HashMap<AuditedClient, ClientFacts>,
    /// What the bounds left out.
    pub(super) notes: Vec<String>,
}

impl AuditUsage {
    /// What happened before `begins_at`, in seconds of Unix time, only says which watches were open then, and whose they are.
    pub(super) fn new(begins_at: f64) -> Self {
        Self {
            begins_at,
            ends_at: 0.0,
            rows: Vec::new(),
            numbers: HashMap::new(),
            facts: HashMap::new(),
            open: HashMap::new(),
            distinct: HashSet::new(),
            hasher: RandomState::new(),
            others: 0,
            unfollowed: 0,
            is_distinct_full: false,
        }
    }

    /// Notes that the log reaches to this time.
    pub(super) const fn reach(&mut self, time: f64) {
        self.ends_at = self.ends_at.max(time);
    }

    /// Adds a stage of a read. Those of one request come in their order.
    pub(super) fn add(&mut self, read: &AuditedRead) {
        let row = self.row(read);
        self.note_client(row, read);
        let id = self.hasher.hash_one(&read.id);
        let since = read.received_at.max(self.begins_at);
        let is_new = read.received_at >= self.begins_at;
        match (read.progress, read.is_watch) {
            (ReadProgress::Started, _) => {
                if is_new {
                    self.count(row, read);
                }
                if self.open.len() >= OPEN_MAX {
                    self.unfollowed += 1;
                    return;
                }
                let scope = read.scope;
                self.open.insert(id, OpenWatch { row, scope, since });
            }
            (ReadProgress::Complete, true) => {
                let begun = self.open.remove(&id);
                if begun.is_none() && is_new {
                    // The policy omits the first stage, or there was none.
                    self.count(row, read);
                }
                let open = begun.unwrap_or(OpenWatch {
                    row,
                    scope: read.scope,
                    since,
                });
                if !read.is_refused {
                    self.close(&open, read.stage_at);
                }
            }
            (ReadProgress::Complete, false) => {
                if is_new {
                    self.count(row, read);
                }
            }
        }
    }

    /// Ends at the log's end, where all watches that are left are still open.
    pub(super) fn finish(mut self) -> UsageSums {
        let open = std::mem::take(&mut self.open);
        for watch in open.values() {
            self.close(watch, self.ends_at);
        }
        let mut notes = Vec::new();
        if self.others > 0 {
            notes.push(format!(
                "the audit log names more than {ROWS_MAX} pairs of client and resource: {} stages of reads are in the row of all others",
                self.others
            ));
        }
        if self.unfollowed > 0 {
            notes.push(format!(
                "more than {OPEN_MAX} watches were open at the same time: {} were not followed",
                self.unfollowed
            ));
        }
        if self.is_distinct_full {
            notes.push(format!(
                "more than {DISTINCT_MAX} tokens, questions and nodes: further ones are not counted, and reviews are more than estimated"
            ));
        }
        UsageSums {
            window_seconds: (self.ends_at - self.begins_at).max(0.0),
            begins_at: self.begins_at,
            rows: self.rows,
            facts: self.facts,
            notes,
        }
    }

    fn row(&mut self, read: &AuditedRead) -> usize {
        let mut name = (read.client.clone(), Some(read.resource.clone()));
        if let Some(number) = self.numbers.get(&name) {
            return *number;
        }
        if self.rows.len() >= ROWS_MAX {
            self.others += 1;
            name = (AuditedClient::others("all others"), None);
            if let Some(number) = self.numbers.get(&name) {
                return *number;
            }
        }
        let number = self.rows.len();
        self.rows.push((name.clone(), ReadUsage::default()));
        self.numbers.insert(name, number);
        number
    }

    fn note_client(&mut self, row: usize, read: &AuditedRead) {
        let client = self.rows[row].0.0.clone();
        let token = read.token.as_ref();
        let is_token = token.is_some_and(|token| self.is_first(&(0_u8, &client, token)));
        let node = read.node.as_ref();
        let is_node = node.is_some_and(|node| self.is_first(&(1_u8, &client, node)));
        let place = (&read.namespace, &read.name);
        let is_question = self.is_first(&(2_u8, row, read.is_watch, place));
        self.rows[row].1.questions += u64::from(is_question);
        let facts = self.facts.entry(client).or_default();
        facts.is_in_pod |= read.is_in_pod;
        facts.tokens += u64::from(is_token);
        facts.nodes += u64::from(is_node);
    }

    /// Counts a request, at the first stage that the log has of it.
    fn count(&mut self, row: usize, read: &AuditedRead) {
        let usage = &mut self.rows[row].1;
        usage.consistent += u64::from(read.is_consistent);
        usage.forwarded += u64::from(read.is_forwarded);
        if read.is_watch {
            usage.watch_requests += 1;
        } else {
            usage.list_requests += 1;
        }
    }

    fn close(&mut self, watch: &OpenWatch, at: f64) {
        let seconds = (at - watch.since).max(0.0);
        self.rows[watch.row].1.watch_seconds[watch.scope as usize] += seconds;
    }

    fn is_first(&mut self, what: &impl std::hash::Hash) -> bool {
        let hash = self.hasher.hash_one(what);
        if self.distinct.len() >= DISTINCT_MAX && !self.distinct.contains(&hash) {
            self.is_distinct_full = true;
            return false;
        }
        self.distinct.insert(hash)
    }
}

#[cfg(test)]
mod tests;
