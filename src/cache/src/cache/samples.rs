//! Sample objects and sample histories for the tests of all readers of a cache.

#![allow(missing_docs, clippy::unwrap_used, reason = "only tests use them")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::cache::{CacheWriter, Change, DispatchOutcome, Event, Observer, Retention, Sequence};
use crate::resource::{
    ByteSpan, Encoding, Gvr, Layout, Object, ObjectParts, ResourceKind, ResourceVersion,
};

/// Config maps for the typed layout, widgets for the dynamic one.
pub fn kind(layout: Layout) -> ResourceKind {
    let (group, resource, kind) = match layout {
        Layout::Typed => ("", "configmaps", "ConfigMap"),
        Layout::Dynamic => ("example.com", "widgets", "Widget"),
    };
    ResourceKind {
        gvr: Gvr::new(group, "v1", resource),
        kind: kind.into(),
        list_kind: format!("{kind}List"),
        namespaced: true,
        layout,
        encoding: Encoding::Json,
        warnings: Vec::new(),
    }
}

/// Keeps `events_max` events, none of them for its age.
pub fn keep(events_max: usize) -> Retention {
    Retention {
        segment_slots: 4,
        events_min: 0,
        events_max,
        bytes_max: usize::MAX,
        age_max: Duration::MAX,
    }
}

/// An observer that processes all events at once, wakes no watch, and records the dispatches.
#[derive(Debug, Default)]
pub struct Recorder(Mutex<Vec<(Vec<Arc<Event>>, ResourceVersion)>>);

impl Recorder {
    /// The events and the version of each dispatch since the last call.
    pub fn take(&self) -> Vec<(Vec<Arc<Event>>, ResourceVersion)> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl Observer for Recorder {
    fn dispatch(
        &self,
        events: &[Arc<Event>],
        _: Sequence,
        version: ResourceVersion,
        _: Instant,
    ) -> DispatchOutcome {
        self.0.lock().unwrap().push((events.to_vec(), version));
        DispatchOutcome {
            events: events.len(),
            ..DispatchOutcome::default()
        }
    }
}

/// A pseudo-random generator: the high bits of Knuth's linear congruential generator.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    pub fn index(&mut self, len: u64) -> usize {
        usize::try_from(self.below(len)).unwrap()
    }

    pub fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// Short, because some tests have very many objects.
const MANAGED_FIELDS: &str =
    r#","managedFields":[{"manager":"kubectl","operation":"Update","fieldsV1":{}}]"#;

/// The properties from which an object's bytes are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    pub layout: Layout,
    /// `namespace/name`.
    pub key: String,
    pub uid: u64,
    pub version: u64,
    /// The value of its label `tier`.
    pub tier: Option<&'static str>,
    /// Whether the object has `managedFields`.
    pub has_managed_fields: bool,
    /// Bytes of data; 0 for no `data` at all.
    pub data_len: usize,
}

impl Sample {
    pub fn new(key: &str, version: u64) -> Self {
        Self {
            layout: Layout::Typed,
            key: key.into(),
            uid: version,
            version,
            tier: None,
            has_managed_fields: false,
            data_len: 0,
        }
    }

    pub fn layout(mut self, layout: Layout) -> Self {
        self.layout = layout;
        self
    }

    /// The object's JSON as in a watch event, and the length of its type prefix.
    pub fn json(&self) -> (String, usize) {
        let (namespace, name) = self.key.split_once('/').unwrap();
        let kind = kind(self.layout);
        let (kind_name, api) = (&kind.kind, kind.gvr.api_version());
        let labels = self.tier.map_or_else(String::new, |tier| {
            format!(",\"labels\":{{\"tier\":\"{tier}\"}}")
        });
        let managed_fields = match self.has_managed_fields {
            true => MANAGED_FIELDS,
            false => "",
        };
        let (uid, version) = (self.uid, self.version);
        let data = match self.data_len {
            0 => String::new(),
            len => format!(",\"data\":{{\"d\":\"{}\"}}", "d".repeat(len)),
        };
        let prefix = match self.layout {
            Layout::Typed => format!("\"kind\":\"{kind_name}\",\"apiVersion\":\"{api}\","),
            Layout::Dynamic => format!("\"apiVersion\":\"{api}\",\"kind\":\"{kind_name}\","),
        };
        let text = format!(
            "{{{prefix}\"metadata\":{{\"name\":\"{name}\",\"namespace\":\"{namespace}\",\"uid\":\"u{uid}\",\"resourceVersion\":\"{version}\"{labels}{managed_fields}}}{data}}}"
        );
        let prefix_len = match self.layout {
            Layout::Typed => prefix.len(),
            Layout::Dynamic => 0,
        };
        (text, prefix_len)
    }

    pub fn object(&self) -> Object {
        let (json, prefix_len) = self.json();
        let mark = "\"resourceVersion\":\"";
        let start = json.find(mark).unwrap() + mark.len();
        let len = self.version.to_string().len();
        let (namespace, name) = self.key.split_once('/').unwrap();
        let u32_of = |len: usize| u32::try_from(len).unwrap();
        let parts = ObjectParts {
            namespace: namespace.into(),
            name: name.into(),
            uid: format!("u{}", self.uid).into(),
            resource_version: ResourceVersion(self.version),
            version_span: ByteSpan {
                start: u32_of(start),
                end: u32_of(start + len),
            },
            labels: self
                .tier
                .map(|tier| ("tier".into(), tier.into()))
                .into_iter()
                .collect(),
            fields: Vec::new(),
            type_prefix_len: u32_of(prefix_len),
        };
        Object::new(parts, json.as_bytes())
    }
}

/// An object whose bytes are not an object, so no part can be extracted from them. The scanner would have refused it.
pub fn uncuttable(key: &str, version: u64) -> Object {
    let (namespace, name) = key.split_once('/').unwrap();
    let parts = ObjectParts {
        namespace: namespace.into(),
        name: name.into(),
        resource_version: ResourceVersion(version),
        ..ObjectParts::default()
    };
    Object::new(parts, b"[]")
}

/// A change at one version: the object before and after it.
#[derive(Clone, Debug)]
pub struct Past {
    pub version: u64,
    pub before: Option<Sample>,
    /// `None` if the object was deleted.
    pub after: Option<Sample>,
}

impl Past {
    /// The event as a watch receives it whose selector is `sees`, written as `TYPE key version tier`.
    pub fn seen(&self, sees: impl Fn(&Sample) -> bool) -> Option<String> {
        let before = self.before.as_ref().filter(|sample| sees(sample));
        let after = self.after.as_ref().filter(|sample| sees(sample));
        let (event_type, sample) = match (before, after) {
            (None, None) => return None,
            (None, Some(after)) => ("ADDED", after),
            (Some(_), Some(after)) => ("MODIFIED", after),
            (Some(before), None) => ("DELETED", before),
        };
        let tier = sample.tier.unwrap_or("-");
        Some(format!(
            "{event_type} {} {} {tier}",
            sample.key, self.version
        ))
    }
}

/// A writer with a generated history, and a complete record of that history.
pub struct World {
    pub writer: CacheWriter,
    pub dice: Dice,
    pub state: BTreeMap<String, Sample>,
    pub past: Vec<Past>,
    pub version: u64,
    pub now: Instant,
    /// Bytes of data in the objects that are written from now on.
    pub data_len: usize,
}

const NAMESPACES: [&str; 3] = ["a", "a-b", "b"];
const TIERS: [Option<&str>; 4] = [None, Some("x"), Some("y"), Some("rare")];

impl World {
    /// An empty cache, listed at version 10.
    pub fn new(seed: u64, events_max: usize, observer: Arc<dyn Observer>) -> Self {
        Self::after_loss(seed, events_max, observer, 0)
    }

    /// Like [`World::new`], but clients may hold versions up to `lost` from another history.
    pub fn after_loss(
        seed: u64,
        events_max: usize,
        observer: Arc<dyn Observer>,
        lost: u64,
    ) -> Self {
        let (kind, lost) = (kind(Layout::Typed), ResourceVersion(lost));
        let writer = CacheWriter::after_loss(kind, keep(events_max), observer, lost);
        Self::over(writer, seed)
    }

    /// Like [`World::new`], and keeps `bytes_max` bytes of deletions for clients that catch up.
    pub fn keeping_deletions(
        seed: u64,
        events_max: usize,
        bytes_max: usize,
        observer: Arc<dyn Observer>,
    ) -> Self {
        let writer = CacheWriter::new(kind(Layout::Typed), keep(events_max), observer);
        Self::over(writer.keeping_deletions(bytes_max), seed)
    }

    /// The same with another writer.
    pub fn over(mut writer: CacheWriter, seed: u64) -> Self {
        let now = Instant::now();
        writer
            .replace(Vec::new(), ResourceVersion(10), now)
            .unwrap();
        Self {
            writer,
            dice: Dice(seed),
            state: BTreeMap::new(),
            past: Vec::new(),
            version: 10,
            now,
            data_len: 0,
        }
    }

    /// Writes one object without publishing it. Versions skip some numbers, as if other resources were written, too.
    pub fn write(&mut self, key: &str, tier: Option<&'static str>) -> Change {
        self.version += 1 + self.dice.below(3);
        let before = self.state.get(key).cloned();
        let mut after = Sample::new(key, self.version);
        after.uid = before.as_ref().map_or(self.version, |before| before.uid);
        after.tier = tier;
        after.data_len = self.data_len;
        self.state.insert(key.into(), after.clone());
        self.past.push(Past {
            version: self.version,
            before,
            after: Some(after.clone()),
        });
        Change::Put(after.object())
    }

    /// Deletes one object without publishing it; `None` if it does not exist.
    pub fn delete(&mut self, key: &str) -> Option<Change> {
        let before = self.state.remove(key)?;
        self.version += 1 + self.dice.below(3);
        let mut last = before.clone();
        last.version = self.version;
        self.past.push(Past {
            version: self.version,
            before: Some(before),
            after: None,
        });
        Some(Change::Delete(last.object()))
    }

    /// Writes or deletes a random object.
    pub fn happen(&mut self) -> Change {
        let namespace = NAMESPACES[self.dice.index(3)];
        let key = format!("{namespace}/o{}", self.dice.below(5));
        if self.dice.once_in(4)
            && let Some(change) = self.delete(&key)
        {
            return change;
        }
        let tier = TIERS[self.dice.index(4)];
        self.write(&key, tier)
    }

    /// Publishes a batch.
    pub fn apply(&mut self, changes: Vec<Change>) {
        self.writer.apply(changes, self.now);
    }

    /// Publishes up to three random changes at once, or a bookmark.
    pub fn step(&mut self) {
        let count = self.dice.below(4);
        if count == 0 {
            self.version += 1;
            self.writer
                .progress(ResourceVersion(self.version), self.now);
        }
        let changes = (0..count).map(|_| self.happen()).collect();
        self.apply(changes);
    }

    /// Random writes that the cache does not see, and then a relist that finds their result.
    pub fn lose_and_relist(&mut self) {
        for _ in 0..=self.dice.below(6) {
            self.happen();
        }
        self.version += self.dice.below(3);
        let listed = self.state.values().map(Sample::object).collect();
        let version = ResourceVersion(self.version);
        self.writer.replace(listed, version, self.now).unwrap();
    }

    /// The objects at an older version.
    pub fn state_at(&self, version: u64) -> BTreeMap<String, Sample> {
        let mut state = BTreeMap::new();
        for past in self.past.iter().filter(|past| past.version <= version) {
            match (&past.before, &past.after) {
                (_, Some(after)) => state.insert(after.key.clone(), after.clone()),
                (Some(before), None) => state.remove(&before.key),
                (None, None) => None,
            };
        }
        state
    }

    /// The events that a watch from `version` must receive, each written as `TYPE key version tier`.
    pub fn told(&self, version: u64, sees: impl Fn(&Sample) -> bool) -> Vec<String> {
        self.past
            .iter()
            .filter(|past| past.version > version)
            .filter_map(|past| past.seen(&sees))
            .collect()
    }
}

/// The lines of a stream, each as `TYPE key version tier`; a bookmark as `BOOKMARK version`, the one that ends initial events as
/// `MARKER version`, an error as `ERROR code`.
pub fn told(lines: &[u8]) -> Vec<String> {
    let text = std::str::from_utf8(lines).unwrap();
    assert!(
        text.is_empty() || text.ends_with('\n'),
        "truncated line: {text}"
    );
    text.lines().map(summarize_line).collect()
}

fn summarize_line(line: &str) -> String {
    let event: serde_json::Value = serde_json::from_str(line).unwrap();
    let (event_type, object) = (event["type"].as_str().unwrap(), &event["object"]);
    let metadata = &object["metadata"];
    let version = metadata["resourceVersion"].as_str().unwrap_or("-");
    match event_type {
        "ERROR" => format!("ERROR {}", object["code"]),
        "BOOKMARK" => {
            let end = &metadata["annotations"]["k8s.io/initial-events-end"];
            let event_type = if end == "true" { "MARKER" } else { event_type };
            format!("{event_type} {version}")
        }
        _ => {
            let tier = metadata["labels"]["tier"].as_str().unwrap_or("-");
            let part = |name: &str| metadata[name].as_str().unwrap().to_owned();
            format!(
                "{event_type} {}/{} {version} {tier}",
                part("namespace"),
                part("name")
            )
        }
    }
}
