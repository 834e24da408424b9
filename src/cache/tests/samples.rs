//! Made-up objects and a made-up history for the tests of all who read a cache. No test stands here.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::cache::{CacheWriter, Change, DispatchOutcome, Event, Observer, Retention, Sequence};
use crate::resource::{
    ByteSpan, Encoding, Gvr, Layout, Object, ObjectParts, ResourceKind, ResourceVersion,
};

/// Config maps, or widgets where the layout is dynamic.
pub(crate) fn kind(layout: Layout) -> ResourceKind {
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

/// Keeps so many events, and none for its age.
pub(crate) fn keep(events_max: usize) -> Retention {
    Retention {
        segment_slots: 4,
        events_min: 0,
        events_max,
        bytes_max: usize::MAX,
        age_min: Duration::MAX,
    }
}

/// Takes all events at once, wakes nobody, and keeps what it was told.
#[derive(Debug, Default)]
pub(crate) struct Recorder(Mutex<Vec<(Vec<Arc<Event>>, ResourceVersion)>>);

impl Recorder {
    /// Each dispatch since the last call: its events and its version.
    pub(crate) fn take(&self) -> Vec<(Vec<Arc<Event>>, ResourceVersion)> {
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
            woken: 0,
        }
    }
}

/// Knuth's linear congruential generator, its high half.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    pub(crate) fn index(&mut self, len: u64) -> usize {
        usize::try_from(self.below(len)).unwrap()
    }

    pub(crate) fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// As short as can be: there are tests with very many objects.
const MANAGED_FIELDS: &str =
    r#","managedFields":[{"manager":"kubectl","operation":"Update","fieldsV1":{}}]"#;

/// One object in words: what its bytes are made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) layout: Layout,
    /// `namespace/name`.
    pub(crate) key: String,
    pub(crate) uid: u64,
    pub(crate) version: u64,
    /// The value of its label `tier`.
    pub(crate) tier: Option<&'static str>,
    /// Whether it says who wrote its fields.
    pub(crate) has_managed_fields: bool,
    /// Bytes of data; no data at all when 0.
    pub(crate) data_len: usize,
}

impl Sample {
    pub(crate) fn new(key: &str, version: u64) -> Self {
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

    pub(crate) fn layout(mut self, layout: Layout) -> Self {
        self.layout = layout;
        self
    }

    /// The object's own JSON as watches carry it, and the length of the type prefix.
    pub(crate) fn json(&self) -> (String, usize) {
        let (namespace, name) = self.key.split_once('/').unwrap();
        let kind = kind(self.layout);
        let (word, api) = (&kind.kind, kind.gvr.api_version());
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
            Layout::Typed => format!("\"kind\":\"{word}\",\"apiVersion\":\"{api}\","),
            Layout::Dynamic => format!("\"apiVersion\":\"{api}\",\"kind\":\"{word}\","),
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

    pub(crate) fn object(&self) -> Object {
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

/// An object whose bytes are no object at all, so that nothing can be cut out of it. The scanner would not have let it in.
pub(crate) fn uncuttable(key: &str, version: u64) -> Object {
    let (namespace, name) = key.split_once('/').unwrap();
    let parts = ObjectParts {
        namespace: namespace.into(),
        name: name.into(),
        resource_version: ResourceVersion(version),
        ..ObjectParts::default()
    };
    Object::new(parts, b"[]")
}

/// What happened at one version: the object before and after.
#[derive(Clone, Debug)]
pub(crate) struct Past {
    pub(crate) version: u64,
    pub(crate) before: Option<Sample>,
    /// `None` when it was deleted.
    pub(crate) after: Option<Sample>,
}

impl Past {
    /// What a watcher is told whose selector lets through what `sees` does: `TYPE key version tier`.
    pub(crate) fn seen(&self, sees: impl Fn(&Sample) -> bool) -> Option<String> {
        let before = self.before.as_ref().filter(|sample| sees(sample));
        let after = self.after.as_ref().filter(|sample| sees(sample));
        let (word, sample) = match (before, after) {
            (None, None) => return None,
            (None, Some(after)) => ("ADDED", after),
            (Some(_), Some(after)) => ("MODIFIED", after),
            (Some(before), None) => ("DELETED", before),
        };
        let tier = sample.tier.unwrap_or("-");
        Some(format!("{word} {} {} {tier}", sample.key, self.version))
    }
}

/// A writer with a history of its own making, which is kept whole beside it.
pub(crate) struct World {
    pub(crate) writer: CacheWriter,
    pub(crate) dice: Dice,
    pub(crate) state: BTreeMap<String, Sample>,
    pub(crate) past: Vec<Past>,
    pub(crate) version: u64,
    pub(crate) now: Instant,
    /// Bytes of data of the objects that are written from now on.
    pub(crate) data_len: usize,
}

const NAMESPACES: [&str; 3] = ["a", "a-b", "b"];
const TIERS: [Option<&str>; 4] = [None, Some("x"), Some("y"), Some("rare")];

impl World {
    /// Empty, listed at version 10.
    pub(crate) fn new(seed: u64, events_max: usize, observer: Arc<dyn Observer>) -> Self {
        Self::after_loss(seed, events_max, observer, 0)
    }

    /// The same, where clients may know versions up to `lost` from another history.
    pub(crate) fn after_loss(
        seed: u64,
        events_max: usize,
        observer: Arc<dyn Observer>,
        lost: u64,
    ) -> Self {
        let (kind, lost) = (kind(Layout::Typed), ResourceVersion(lost));
        let mut writer = CacheWriter::after_loss(kind, keep(events_max), observer, lost);
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

    /// Writes one object and publishes nothing yet. Versions leap, because other resources are written too.
    pub(crate) fn write(&mut self, key: &str, tier: Option<&'static str>) -> Change {
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

    /// Deletes one object; nothing if it is not there.
    pub(crate) fn delete(&mut self, key: &str) -> Option<Change> {
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

    /// Anything.
    pub(crate) fn happen(&mut self) -> Change {
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
    pub(crate) fn apply(&mut self, changes: Vec<Change>) {
        self.writer.apply(changes, self.now);
    }

    /// Publishes up to three random changes at once, or a bookmark.
    pub(crate) fn step(&mut self) {
        let count = self.dice.below(4);
        if count == 0 {
            self.version += 1;
            self.writer
                .progress(ResourceVersion(self.version), self.now);
        }
        let changes = (0..count).map(|_| self.happen()).collect();
        self.apply(changes);
    }

    /// All that a watcher from `version` on has to be told.
    pub(crate) fn told(&self, version: u64, sees: impl Fn(&Sample) -> bool) -> Vec<String> {
        self.past
            .iter()
            .filter(|past| past.version > version)
            .filter_map(|past| past.seen(&sees))
            .collect()
    }
}

/// The lines of a stream, each as `TYPE key version tier`; a bookmark as `BOOKMARK version` or `MARKER version`, an
/// error as `ERROR code`.
pub(crate) fn told(lines: &[u8]) -> Vec<String> {
    let text = std::str::from_utf8(lines).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'), "cut line: {text}");
    text.lines().map(told_line).collect()
}

fn told_line(line: &str) -> String {
    let event: serde_json::Value = serde_json::from_str(line).unwrap();
    let (word, object) = (event["type"].as_str().unwrap(), &event["object"]);
    let metadata = &object["metadata"];
    let version = metadata["resourceVersion"].as_str().unwrap_or("-");
    match word {
        "ERROR" => format!("ERROR {}", object["code"]),
        "BOOKMARK" => {
            let end = &metadata["annotations"]["k8s.io/initial-events-end"];
            let word = if end == "true" { "MARKER" } else { word };
            format!("{word} {version}")
        }
        _ => {
            let tier = metadata["labels"]["tier"].as_str().unwrap_or("-");
            let part = |name: &str| metadata[name].as_str().unwrap().to_owned();
            format!(
                "{word} {}/{} {version} {tier}",
                part("namespace"),
                part("name")
            )
        }
    }
}
