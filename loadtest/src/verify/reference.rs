//! The sequence of events that every watcher must receive, recorded by one independent watcher.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::wire::event::EventKind;

/// One event of the reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReferenceEvent {
    pub version: u64,
    pub kind: EventKind,
    /// Hash of the event's line, see [`line_hash`].
    pub body_hash: u64,
    /// Number of the object in the order of first appearance, see [`Reference::object`].
    pub object: u32,
}

/// A part of a collection: what a selector lets through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    All,
    /// What kube-proxy's selector lets through.
    Proxied,
    /// The pods of the node with this number, or the object with this number.
    Number(u32),
}

/// Objects by name with their versions: the state of a watcher's cache.
pub type ObjectVersions = BTreeMap<String, u64>;

/// The recorded events, in version order.
#[derive(Debug, Default, Clone)]
pub struct Reference {
    entries: Vec<ReferenceEvent>,
    names: Vec<String>,
    /// For adding events only.
    numbers: HashMap<String, u32>,
    initial: ObjectVersions,
}

impl Reference {
    /// Most events that are kept: 48 hours at 25 a second, 100 MB.
    pub const ENTRIES_MAX: usize = 4 << 20;

    /// A reference that starts with these objects.
    pub fn begin(initial: ObjectVersions) -> Self {
        Self {
            initial,
            ..Self::default()
        }
    }

    /// The number of an object; a new one if the name is new.
    pub fn object(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.names.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        number
    }

    /// The objects after all events up to `until`.
    pub fn state_at(&self, until: u64) -> ObjectVersions {
        let mut state = self.initial.clone();
        for entry in self.after(0, until) {
            let name = &self.names[entry.object as usize];
            match entry.kind {
                EventKind::Deleted => drop(state.remove(name)),
                _ => drop(state.insert(name.clone(), entry.version)),
            }
        }
        state
    }

    /// The fingerprint of the objects after each event, and before the first one: [`fingerprint`] of a list at that version.
    pub fn fingerprints(&self) -> Fingerprints {
        let mut versions: HashMap<&str, u64> = HashMap::new();
        for (name, version) in &self.initial {
            versions.insert(name, *version);
        }
        let mut print = fingerprint(&self.initial);
        let mut prints = Vec::with_capacity(self.entries.len() + 1);
        prints.push((0, print));
        for entry in &self.entries {
            let name = self.names[entry.object as usize].as_str();
            let before = match entry.kind {
                EventKind::Deleted => versions.remove(name),
                _ => versions.insert(name, entry.version),
            };
            if let Some(version) = before {
                print ^= object_print(name, version);
            }
            if entry.kind != EventKind::Deleted {
                print ^= object_print(name, entry.version);
            }
            prints.push((entry.version, print));
        }
        Fingerprints { prints }
    }

    /// The objects before the first event.
    pub fn initial(&self) -> &ObjectVersions {
        &self.initial
    }

    /// Adds the next event; false if it is not newer than the last, or the limit is reached.
    pub fn push(&mut self, entry: ReferenceEvent) -> bool {
        let fits = self.entries.len() < Self::ENTRIES_MAX && entry.version > self.last();
        if fits {
            self.entries.push(entry);
        }
        fits
    }

    /// The newest version, 0 if there is none.
    pub fn last(&self) -> u64 {
        self.entries.last().map_or(0, |entry| entry.version)
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The events with versions in (`after`, `until`].
    pub fn after(&self, after: u64, until: u64) -> &[ReferenceEvent] {
        let from = self.entries.partition_point(|entry| entry.version <= after);
        let to = self.entries.partition_point(|entry| entry.version <= until);
        &self.entries[from..to.max(from)]
    }

    /// The body hash of a version.
    pub fn body_hash(&self, version: u64) -> Option<u64> {
        let at = self
            .entries
            .binary_search_by_key(&version, |entry| entry.version)
            .ok()?;
        Some(self.entries[at].body_hash)
    }

    /// The first of `versions` (in any order) after `start` that the reference lacks.
    pub fn first_missing(&self, versions: &[u64], start: u64) -> Option<u64> {
        versions
            .iter()
            .copied()
            .find(|version| *version > start && self.body_hash(*version).is_none())
    }
}

/// Fingerprints of the reference's states, by version.
#[derive(Debug)]
pub struct Fingerprints {
    prints: Vec<(u64, u64)>,
}

impl Fingerprints {
    /// The fingerprint after all events up to `version`.
    pub fn at(&self, version: u64) -> u64 {
        let after = self.prints.partition_point(|(one, _)| *one <= version);
        self.prints[after.max(1) - 1].1
    }
}

/// A fingerprint of objects that does not depend on their order.
pub fn fingerprint<'a>(objects: impl IntoIterator<Item = (&'a String, &'a u64)>) -> u64 {
    objects.into_iter().fold(0, |print, (name, version)| {
        print ^ object_print(name, *version)
    })
}

/// The part of one object in a fingerprint.
pub fn object_print(name: &str, version: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    (name, version).hash(&mut hasher);
    hasher.finish()
}

/// The hash of an event's line, without its newline.
pub fn line_hash(line: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(line);
    hasher.finish()
}
