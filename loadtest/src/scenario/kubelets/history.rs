//! What happened in a collection, recorded directly at the API server by another client and another parser than the swarm's; from it follows
//! what every reflector must have.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::JoinHandle;

use super::selection::{Collection, Part};
use crate::client::{Client, list_version};
use crate::target::Target;
use crate::verify::reference::{ObjectVersions, Reference, ReferenceEvent, fingerprint};
use crate::wire::event::{EventKind, name_of};
use crate::wire::list::json_list;

/// How long to wait before watching again.
const AGAIN_AFTER: Duration = Duration::from_millis(200);
/// How often the record is compared with the server's list.
const LOOK: Duration = Duration::from_millis(100);

/// A collection that is being recorded.
#[derive(Debug)]
pub struct History {
    collection: Collection,
    target: Target,
    log: Arc<Mutex<Log>>,
    task: JoinHandle<Result<()>>,
}

#[derive(Debug, Default)]
struct Log {
    /// Version of the list; the recorded changes come after it.
    start: u64,
    initial: Vec<Change>,
    changes: Vec<Change>,
}

#[derive(Debug, Clone)]
struct Change {
    version: u64,
    /// `namespace/name`.
    name: String,
    /// The parts that it belongs to now; none once it is deleted.
    parts: Vec<Part>,
    is_deleted: bool,
}

impl History {
    /// Lists, then records all changes. None if the server does not have the collection.
    pub async fn begin(target: &Target, collection: Collection) -> Result<Option<Self>> {
        let mut client = Client::new(target.clone());
        let path = collection.path();
        let (status, body) = client.call(hyper::Method::GET, path, Vec::new()).await?;
        if status == hyper::StatusCode::NOT_FOUND {
            return Ok(None);
        }
        ensure!(status.is_success(), "GET {path}: {status}");
        let list: Value = serde_json::from_slice(&body).with_context(|| path.to_owned())?;
        let mut log = Log {
            start: list_version(&list)?,
            ..Log::default()
        };
        for object in list["items"].as_array().into_iter().flatten() {
            log.initial.push(Change::of(collection, object, false)?);
        }
        let log = Arc::new(Mutex::new(log));
        let task = tokio::spawn(record(client, collection, log.clone()));
        Ok(Some(Self {
            collection,
            target: target.clone(),
            log,
            task,
        }))
    }

    pub fn collection(&self) -> Collection {
        self.collection
    }

    /// Number of changes so far.
    pub fn changes(&self) -> usize {
        self.log.lock().changes.len()
    }

    /// Waits until the record has the server's state; nothing may be written any more.
    pub async fn is_complete(&mut self, wait: Duration) -> Result<()> {
        let deadline = Instant::now() + wait;
        let mut client = Client::new(self.target.clone());
        loop {
            if self.task.is_finished() {
                (&mut self.task).await??;
            }
            let (_, objects) = json_list(&client.json(self.collection.path()).await?)?;
            let objects = ObjectVersions::from_iter(objects);
            if fingerprint(&objects) == fingerprint(&self.log.lock().state()) {
                return Ok(());
            }
            if Instant::now() > deadline {
                let path = self.collection.path();
                bail!("the reference of {path} has not reached the server's state within {wait:?}");
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// What the reflectors of each part must have.
    pub fn parts(&self) -> HashMap<Part, Reference> {
        self.log.lock().references()
    }
}

impl Drop for History {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Records until it is aborted, or until an error that a new watch cannot repair.
async fn record(mut client: Client, collection: Collection, log: Arc<Mutex<Log>>) -> Result<()> {
    loop {
        let version = log.lock().version();
        let path = collection.path();
        let watch = format!(
            "{path}?watch=1&resourceVersion={version}&allowWatchBookmarks=true&timeoutSeconds=3600"
        );
        let mut failure = None;
        let watching = client.watch(&watch, |line| {
            failure = log.lock().record(collection, line).err();
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

impl Change {
    fn of(collection: Collection, object: &Value, is_deleted: bool) -> Result<Self> {
        let version = object["metadata"]["resourceVersion"].as_str();
        let version = version.and_then(|text| text.parse().ok());
        Ok(Self {
            version: version.context("an object without a version")?,
            name: name_of(object).context("an object without a name")?,
            parts: match is_deleted {
                true => Vec::new(),
                false => collection.parts(object),
            },
            is_deleted,
        })
    }
}

impl Log {
    fn version(&self) -> u64 {
        self.changes
            .last()
            .map_or(self.start, |change| change.version)
    }

    fn record(&mut self, collection: Collection, line: &[u8]) -> Result<()> {
        let event: Value = serde_json::from_slice(line)?;
        let is_deleted = match event["type"].as_str() {
            Some("ADDED" | "MODIFIED") => false,
            Some("DELETED") => true,
            Some("BOOKMARK") => return Ok(()),
            other => bail!("the reference of {}: {other:?}", collection.path()),
        };
        let change = Change::of(collection, &event["object"], is_deleted)?;
        ensure!(
            self.changes.len() < Reference::ENTRIES_MAX,
            "too many changes"
        );
        if change.version > self.version() {
            self.changes.push(change);
        }
        Ok(())
    }

    fn state(&self) -> ObjectVersions {
        let mut state = ObjectVersions::new();
        for change in self.initial.iter().chain(&self.changes) {
            match change.is_deleted {
                true => drop(state.remove(&change.name)),
                false => drop(state.insert(change.name.clone(), change.version)),
            }
        }
        state
    }

    /// An object that begins or ceases to belong to a part is added to it or deleted from it.
    fn references(&self) -> HashMap<Part, Reference> {
        let mut states: HashMap<Part, ObjectVersions> = HashMap::new();
        let mut parts_by_name: HashMap<&str, &[Part]> = HashMap::new();
        for object in &self.initial {
            for part in &object.parts {
                let state = states.entry(*part).or_default();
                state.insert(object.name.clone(), object.version);
            }
            parts_by_name.insert(&object.name, &object.parts);
        }
        let begin = |(part, state)| (part, Reference::begin(state));
        let mut references: HashMap<Part, Reference> = states.into_iter().map(begin).collect();
        for change in &self.changes {
            let before = parts_by_name.insert(&change.name, &change.parts);
            let before = before.unwrap_or_default();
            let left = before.iter().filter(|part| !change.parts.contains(part));
            let left = left.map(|part| (part, EventKind::Deleted));
            let present = change.parts.iter().map(|part| match before.contains(part) {
                true => (part, EventKind::Modified),
                false => (part, EventKind::Added),
            });
            for (part, kind) in left.chain(present) {
                let reference = references.entry(*part).or_default();
                let object = reference.object(&change.name);
                reference.push(ReferenceEvent {
                    version: change.version,
                    kind,
                    body_hash: 0,
                    object,
                });
            }
        }
        references
    }
}

#[cfg(test)]
mod tests {
    //! What the reflectors of a node must get.

    use serde_json::json;

    use super::*;

    fn line(kind: &str, version: u64, node: Option<&str>) -> Vec<u8> {
        json!({"type": kind, "object": {
            "metadata": {"name": "pod-1", "namespace": "n", "resourceVersion": version.to_string()},
            "spec": {"nodeName": node},
        }})
        .to_string()
        .into_bytes()
    }

    #[test]
    fn a_node_gets_a_pod_when_it_is_bound_and_until_it_is_deleted() {
        let mut log = Log::default();
        for (kind, version, node) in [
            ("ADDED", 5, None),
            ("MODIFIED", 6, Some("node-00003")),
            ("MODIFIED", 8, Some("node-00003")),
            ("DELETED", 9, Some("node-00003")),
        ] {
            let line = line(kind, version, node);
            log.record(Collection::Pods, &line).unwrap();
        }
        let references = log.references();
        assert_eq!(references.len(), 1);
        let events = references[&Part::Number(3)].after(0, 10);
        let events: Vec<_> = events.iter().map(|one| (one.version, one.kind)).collect();
        assert_eq!(
            events,
            [
                (6, EventKind::Added),
                (8, EventKind::Modified),
                (9, EventKind::Deleted)
            ]
        );
        assert!(log.state().is_empty());
    }

    #[test]
    fn a_reference_that_the_server_has_expired_ends_the_run() {
        let mut log = Log::default();
        let expired = br#"{"type":"ERROR","object":{"code":410}}"#;
        assert!(log.record(Collection::Pods, expired).is_err());
    }
}
