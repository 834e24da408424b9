//! Records the reference: one list and one watch by another client (hyper) and another parser (serde_json) than the swarm's.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hdrhistogram::Histogram;
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::client::Client;
use crate::recorder::now_ns;
use crate::target::Target;
use crate::verify::reference::{
    ObjectVersions, Part, Reference, ReferenceEvent, fingerprint, line_hash,
};
use crate::wire::event::{Event, EventKind, WriteTime, name_of};
use crate::wire::list::json_list;

/// How long to wait before watching again.
const AGAIN_AFTER: Duration = Duration::from_millis(200);
/// How often the record is compared with the server's list.
const LOOK: Duration = Duration::from_millis(100);

/// The parts of a collection that an object belongs to, besides the whole.
pub type PartsOf = fn(&Value) -> Vec<Part>;

/// For collections that are watched as a whole.
pub const fn whole(_: &Value) -> Vec<Part> {
    Vec::new()
}

/// A reference that is being recorded.
#[derive(Debug)]
pub struct Recording {
    /// Version of the list; the recorded events come after it.
    pub start: u64,
    target: Target,
    path: String,
    record: Arc<Mutex<Record>>,
    task: JoinHandle<Result<()>>,
}

#[derive(Debug)]
struct Record {
    parts_of: PartsOf,
    /// The events of the whole collection.
    whole: Reference,
    /// What watchers with selectors must receive.
    parts: HashMap<Part, Reference>,
    parts_by_name: HashMap<String, Vec<Part>>,
    /// In the order of their versions.
    writes: Vec<RecordedWrite>,
}

/// A write whose event says when it was sent.
#[derive(Debug, Clone, Copy)]
pub struct RecordedWrite {
    pub version: u64,
    pub write: WriteTime,
    /// How much later its event arrived here.
    delay_ns: u64,
}

impl Recording {
    /// Lists, then records all following events.
    pub async fn begin(target: Target, path: &str, parts_of: PartsOf) -> Result<Self> {
        let mut client = Client::new(target.clone());
        let list = client.json(path).await.context("the reference's list")?;
        let record = Record::begin(&list, parts_of)?;
        let (start, _) = json_list(&list)?;
        let record = Arc::new(Mutex::new(record));
        let task = tokio::spawn(follow(client, path.to_owned(), start, record.clone()));
        Ok(Self {
            start,
            target,
            path: path.to_owned(),
            record,
            task,
        })
    }

    /// How late the reference itself received the events of writes in this time, microseconds: the API server's share of the latency.
    pub fn latency(&self, written_ns: Range<u64>) -> Histogram<u64> {
        let mut latency = crate::recorder::latencies();
        for one in &self.record.lock().writes {
            if written_ns.contains(&one.write.sent_ns) {
                latency.saturating_record(one.delay_ns / 1_000);
            }
        }
        latency
    }

    /// The writes whose events are recorded.
    pub fn writes(&self) -> Vec<RecordedWrite> {
        self.record.lock().writes.clone()
    }

    /// The whole reference recorded so far.
    pub fn reference(&self) -> MappedMutexGuard<'_, Reference> {
        MutexGuard::map(self.record.lock(), |record| &mut record.whole)
    }

    /// The references of all parts, and of the whole.
    pub fn parts(&self) -> HashMap<Part, Reference> {
        let record = self.record.lock();
        let mut parts = record.parts.clone();
        parts.insert(Part::All, record.whole.clone());
        parts
    }

    /// The newest version of a part, 0 if it has no event.
    pub fn last_of(&self, part: Part) -> u64 {
        let record = self.record.lock();
        match part {
            Part::All => record.whole.last(),
            part => record.parts.get(&part).map_or(0, Reference::last),
        }
    }

    /// The newest recorded version, or the list's.
    pub fn last(&self) -> u64 {
        self.reference().last().max(self.start)
    }

    /// Waits until the recording has reached `version`.
    pub async fn reached(&mut self, version: u64, wait: Duration) -> Result<()> {
        let deadline = Instant::now() + wait;
        while self.last() < version {
            self.runs().await?;
            if Instant::now() > deadline {
                bail!(
                    "the reference stands at {} and has not reached {version} within {wait:?}",
                    self.last()
                );
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Waits until the recording has the server's state; nothing may be written any more.
    pub async fn caught_up(&mut self, wait: Duration) -> Result<()> {
        let deadline = Instant::now() + wait;
        let mut client = Client::new(self.target.clone());
        loop {
            self.runs().await?;
            let (_, objects) = json_list(&client.json(&self.path).await?)?;
            let state = self.reference().state_at(u64::MAX);
            if fingerprint(&ObjectVersions::from_iter(objects)) == fingerprint(&state) {
                return Ok(());
            }
            if Instant::now() > deadline {
                let path = &self.path;
                bail!("the reference of {path} has not reached the server's state within {wait:?}");
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The error of a recording that has ended.
    async fn runs(&mut self) -> Result<()> {
        if self.task.is_finished() {
            (&mut self.task).await??;
        }
        Ok(())
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Records until it is aborted, or until an error that a new watch cannot repair.
async fn follow(
    mut client: Client,
    path: String,
    mut resume: u64,
    record: Arc<Mutex<Record>>,
) -> Result<()> {
    loop {
        let watch = format!(
            "{path}?watch=1&resourceVersion={resume}&allowWatchBookmarks=true&timeoutSeconds=3600"
        );
        let mut failure = None;
        let watching = client.watch(&watch, |line| {
            match record.lock().line(line) {
                Ok(version) => resume = version.max(resume),
                Err(error) => failure = Some(error.context(path.clone())),
            }
            ensure!(failure.is_none(), "not recorded");
            Ok(())
        });
        // A broken stream is resumed.
        let _ = watching.await;
        if let Some(error) = failure {
            return Err(error);
        }
        tokio::time::sleep(AGAIN_AFTER).await;
    }
}

impl Record {
    fn begin(list: &Value, parts_of: PartsOf) -> Result<Self> {
        let (_, objects) = json_list(list)?;
        let mut record = Self {
            parts_of,
            whole: Reference::begin(objects.iter().cloned().collect()),
            parts: HashMap::new(),
            parts_by_name: HashMap::new(),
            writes: Vec::new(),
        };
        let versions: HashMap<String, u64> = objects.into_iter().collect();
        let mut initial: HashMap<Part, ObjectVersions> = HashMap::new();
        for object in list["items"].as_array().into_iter().flatten() {
            let parts = parts_of(object);
            let Some(name) = name_of(object).filter(|_| !parts.is_empty()) else {
                continue;
            };
            for part in &parts {
                let version = versions.get(&name).copied().unwrap_or_default();
                let state = initial.entry(*part).or_default();
                state.insert(name.clone(), version);
            }
            record.parts_by_name.insert(name, parts);
        }
        let begin = |(part, state)| (part, Reference::begin(state));
        record.parts = initial.into_iter().map(begin).collect();
        Ok(record)
    }

    /// Adds an event; returns its version.
    fn line(&mut self, line: &[u8]) -> Result<u64> {
        let value: Value = serde_json::from_slice(line).context("an event that is not JSON")?;
        let (event, object) = (Event::of(&value)?, &value["object"]);
        match event.kind {
            EventKind::Error => bail!("the reference's watch ended with ERROR {}", event.version),
            EventKind::Bookmark => return Ok(event.version),
            EventKind::Added | EventKind::Modified | EventKind::Deleted => {}
        }
        let name = name_of(object).context("an object without a name")?;
        let body_hash = line_hash(line);
        let pushed = push(&mut self.whole, &name, &event, body_hash);
        ensure!(
            pushed,
            "the reference cannot take version {} after {}: out of order or too many",
            event.version,
            self.whole.last()
        );
        let now = match event.kind {
            EventKind::Deleted => Vec::new(),
            _ => (self.parts_of)(object),
        };
        self.divide(&name, now, event, body_hash);
        // A deleted object still carries the time of its last change.
        if let (Some(write), EventKind::Added | EventKind::Modified) = (event.write, event.kind) {
            self.keep_write(event.version, write);
        }
        Ok(event.version)
    }

    /// Adds the event to the parts: an object that begins or ceases to belong to a part is added to it or deleted from it.
    fn divide(&mut self, name: &str, now: Vec<Part>, event: Event, body_hash: u64) {
        let before = self.parts_by_name.remove(name).unwrap_or_default();
        let left = before.iter().filter(|part| !now.contains(part));
        let left = left.map(|part| (part, EventKind::Deleted));
        let present = now.iter().map(|part| match before.contains(part) {
            true => (part, EventKind::Modified),
            false => (part, EventKind::Added),
        });
        for (part, kind) in left.chain(present) {
            let reference = self.parts.entry(*part).or_default();
            push(reference, name, &Event { kind, ..event }, body_hash);
        }
        if !now.is_empty() {
            self.parts_by_name.insert(name.to_owned(), now);
        }
    }

    fn keep_write(&mut self, version: u64, write: WriteTime) {
        if self.writes.len() < Reference::ENTRIES_MAX {
            self.writes.push(RecordedWrite {
                version,
                write,
                delay_ns: now_ns().saturating_sub(write.sent_ns),
            });
        }
    }
}

fn push(reference: &mut Reference, name: &str, event: &Event, body_hash: u64) -> bool {
    let object = reference.object(name);
    reference.push(ReferenceEvent {
        version: event.version,
        kind: event.kind,
        body_hash,
        object,
    })
}

#[cfg(test)]
mod tests {
    //! What watchers with selectors must receive.

    use serde_json::json;

    use super::*;

    fn line(kind: &str, version: u64, node: Option<u32>) -> Vec<u8> {
        json!({"type": kind, "object": {
            "metadata": {"name": "pod-1", "namespace": "n", "resourceVersion": version.to_string()},
            "spec": {"node": node},
        }})
        .to_string()
        .into_bytes()
    }

    fn record() -> Record {
        let node = |object: &Value| {
            let node = object["spec"]["node"].as_u64();
            node.map(|node| Part::Number(node as u32))
                .into_iter()
                .collect()
        };
        let list = json!({"metadata": {"resourceVersion": "1"}, "items": []});
        Record::begin(&list, node).unwrap()
    }

    #[test]
    fn a_node_gets_a_pod_when_it_is_bound_and_until_it_is_deleted() {
        let mut record = record();
        for (kind, version, node) in [
            ("ADDED", 5, None),
            ("MODIFIED", 6, Some(3)),
            ("MODIFIED", 8, Some(3)),
            ("DELETED", 9, Some(3)),
        ] {
            let recorded = record.line(&line(kind, version, node)).unwrap();
            assert_eq!(recorded, version);
        }
        assert_eq!((record.whole.len(), record.parts.len()), (4, 1));
        let events = record.parts[&Part::Number(3)].after(0, 10);
        let events: Vec<_> = events.iter().map(|one| (one.version, one.kind)).collect();
        assert_eq!(
            events,
            [
                (6, EventKind::Added),
                (8, EventKind::Modified),
                (9, EventKind::Deleted)
            ]
        );
        assert!(record.whole.state_at(u64::MAX).is_empty());
    }

    #[test]
    fn a_reference_that_the_server_has_expired_ends_the_run() {
        let expired = br#"{"type":"ERROR","object":{"code":410}}"#;
        assert!(record().line(expired).is_err());
    }
}
