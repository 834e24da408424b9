//! What the API server of a simulation holds: all history, and how much of it clients may see. Answers nothing.

use std::collections::BTreeMap;
use std::ops::Range;
use std::task::Waker;

use crate::dice::Dice;

/// Names that are written; few, so that objects come, go and come again.
const KEY_COUNT: u64 = 16;

/// One object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) uid: u64,
    pub(crate) version: u64,
    /// What stands in it: the version of the write that put it there.
    pub(crate) n: u64,
    /// How many letters it has besides.
    pub(crate) padding: usize,
}

/// By `namespace/name`.
pub(crate) type Items = BTreeMap<String, Item>;

/// How much of an object a client asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    Whole,
    Metadata,
}

impl Item {
    /// The object without its opening brace and `kind`.
    fn rest(&self, key: &str, cut: Cut) -> String {
        let (namespace, name) = key.split_once('/').unwrap();
        let Self {
            uid,
            version,
            n,
            padding,
        } = self;
        let padding = "x".repeat(*padding);
        let metadata = format!(
            "\"metadata\":{{\"name\":\"{name}\",\"namespace\":\"{namespace}\",\"uid\":\"u{uid}\",\"resourceVersion\":\"{version}\",\"annotations\":{{\"n\":\"{n}\"}}}}"
        );
        match cut {
            Cut::Whole => {
                format!("{metadata},\"data\":{{\"n\":\"{n}\",\"padding\":\"{padding}\"}}}}")
            }
            Cut::Metadata => format!("{metadata}}}"),
        }
    }

    pub(crate) fn object(&self, key: &str, cut: Cut) -> String {
        let head = match cut {
            Cut::Whole => "\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\"",
            Cut::Metadata => "\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/v1\"",
        };
        format!("{{{head},{}", self.rest(key, cut))
    }

    /// As an item of a list.
    pub(crate) fn listed(&self, key: &str, cut: Cut) -> String {
        match cut {
            Cut::Whole => format!("{{{}", self.rest(key, cut)),
            Cut::Metadata => self.object(key, cut),
        }
    }
}

/// What one write left behind: what happened, and the state after it.
struct Past {
    version: u64,
    word: &'static str,
    key: String,
    item: Item,
    state: Items,
}

/// A defect that a test has put in, to see that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plant {
    Nothing,
    /// One event never reaches anybody, once the trouble is over.
    LostEvent,
}

/// Whether requests are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    /// Most of them.
    Rough,
    /// None; all streams are cut.
    Away,
    /// All.
    Calm,
}

pub(crate) struct Model {
    pub(crate) dice: Dice,
    pub(crate) mood: Mood,
    pub(crate) revision: u64,
    /// History up to here is compacted.
    pub(crate) floor: u64,
    /// Streams of another epoch are cut.
    pub(crate) epoch: u32,
    /// Counts restored backups. Tokens of another timeline are void.
    pub(crate) timeline: u32,
    /// Of each restored backup, the version before and after.
    pub(crate) setbacks: Vec<(u64, u64)>,
    /// After a restored backup, until the client has noticed: versions are given again, so that later it could not tell
    /// anything by them, as nobody can, client-go included.
    pub(crate) writes_wait: bool,
    /// The client was given a whole list, and has not yet shown what came of it by a failure or by what it asks for next.
    /// It reads long lists on another thread, which no clock of ours moves.
    pub(crate) list_is_read: bool,
    pub(crate) plant: Plant,
    /// Objects are of all sizes, and writes come in bursts.
    pub(crate) large: bool,
    pub(crate) struck: BTreeMap<&'static str, u64>,
    pub(crate) requests: Vec<String>,
    past: Vec<Past>,
    waiting: Vec<Waker>,
}

impl Model {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            dice: Dice(seed),
            mood: Mood::Rough,
            revision: 5,
            floor: 0,
            epoch: 0,
            timeline: 0,
            setbacks: Vec::new(),
            writes_wait: false,
            list_is_read: false,
            plant: Plant::Nothing,
            large: seed % 23 == 2,
            struck: BTreeMap::new(),
            requests: Vec::new(),
            past: Vec::new(),
            waiting: Vec::new(),
        }
    }

    pub(crate) fn state_at(&self, version: u64) -> Items {
        let after = self.past.partition_point(|past| past.version <= version);
        let last = after.checked_sub(1).map(|at| &self.past[at]);
        last.map_or_else(Items::new, |past| past.state.clone())
    }

    pub(crate) fn state(&self) -> Items {
        self.state_at(u64::MAX)
    }

    /// Event lines after a version, and the version that they lead to.
    pub(crate) fn events_after(&mut self, version: u64, cut: Cut) -> (String, u64) {
        let from = self.past.partition_point(|past| past.version <= version);
        let mut lines = String::new();
        let mut reached = version;
        for past in &self.past[from..] {
            reached = past.version;
            if self.plant == Plant::LostEvent && self.mood == Mood::Calm {
                self.plant = Plant::Nothing;
                // A bookmark that runs ahead of it, or the next watch would bring it after all.
                lines.push_str(&bookmark(reached, ""));
                continue;
            }
            lines.push_str(&event(past.word, &past.item.object(&past.key, cut)));
        }
        (lines, reached)
    }

    /// The last event of those that a stream has told, once more.
    pub(crate) fn repetition(&self, told: Range<u64>, cut: Cut) -> Option<String> {
        let after = self.past.partition_point(|past| past.version <= told.end);
        let past = &self.past[after.checked_sub(1)?];
        let line = event(past.word, &past.item.object(&past.key, cut));
        (past.version > told.start).then_some(line)
    }

    /// One write of any object.
    pub(crate) fn write(&mut self) {
        let key = self.any_key();
        let held = self.state().contains_key(&key);
        if held && self.dice.once_in(3) {
            self.delete(&key);
        } else {
            self.put(&key);
        }
    }

    /// Deletes an object and makes it anew, with another uid.
    pub(crate) fn replace(&mut self) {
        let key = self.any_key();
        if self.state().contains_key(&key) {
            self.delete(&key);
        }
        self.put(&key);
    }

    fn any_key(&mut self) -> String {
        let number = self.dice.below(KEY_COUNT);
        format!(
            "{}/{number:02}",
            ["a", "b"][usize::from(number.is_multiple_of(3))]
        )
    }

    fn put(&mut self, key: &str) {
        let Some((version, mut state)) = self.begin() else {
            return;
        };
        let held = state.get(key);
        let item = Item {
            uid: held.map_or(version, |held| held.uid),
            version,
            n: version,
            padding: if self.large {
                padding(&mut self.dice)
            } else {
                0
            },
        };
        let word = if held.is_some() { "MODIFIED" } else { "ADDED" };
        state.insert(key.to_owned(), item.clone());
        self.end(word, key, item, state);
    }

    fn delete(&mut self, key: &str) {
        let Some((version, mut state)) = self.begin() else {
            return;
        };
        let mut item = state.remove(key).unwrap();
        item.version = version;
        self.end("DELETED", key, item, state);
    }

    fn begin(&mut self) -> Option<(u64, Items)> {
        if self.writes_wait {
            return None;
        }
        self.revision += 1 + self.dice.below(2);
        Some((self.revision, self.state()))
    }

    fn end(&mut self, word: &'static str, key: &str, item: Item, state: Items) {
        self.past.push(Past {
            version: self.revision,
            word,
            key: key.to_owned(),
            item,
            state,
        });
        self.wake();
    }

    pub(crate) fn compact(&mut self) {
        self.strike("compaction");
        let kept = self.dice.below(8);
        self.floor = self.floor.max(self.revision.saturating_sub(kept));
    }

    /// The server restarts: what its watch cache held of history is gone, and perhaps more.
    pub(crate) fn restart(&mut self) {
        self.strike("restart");
        self.epoch += 1;
        if self.dice.once_in(2) {
            self.floor = self.revision;
        }
        self.wake();
    }

    /// A backup is restored: what was written last is undone.
    pub(crate) fn restore(&mut self) {
        let back = 1 + self.dice.below(20);
        let kept = self
            .past
            .len()
            .saturating_sub(usize::try_from(back).unwrap());
        if kept == 0 {
            return;
        }
        self.strike("restore");
        self.past.truncate(kept);
        let before = self.revision;
        self.revision = self.past[kept - 1].version;
        self.setbacks.push((before, self.revision));
        self.floor = self.floor.min(self.revision);
        self.timeline += 1;
        self.epoch += 1;
        self.writes_wait = true;
        self.wake();
    }

    pub(crate) fn turn(&mut self, mood: Mood) {
        self.mood = mood;
        self.wake();
    }

    /// One time in `n`, while there is trouble.
    pub(crate) fn trouble(&mut self, n: u64, what: &'static str) -> bool {
        let struck = self.mood == Mood::Rough && self.dice.once_in(n);
        if struck {
            self.strike(what);
        }
        struck
    }

    pub(crate) fn strike(&mut self, what: &'static str) {
        *self.struck.entry(what).or_default() += 1;
    }

    pub(crate) fn wait(&mut self, waker: &Waker) {
        self.waiting.push(waker.clone());
    }

    fn wake(&mut self) {
        self.waiting.drain(..).for_each(Waker::wake);
    }
}

/// From 100 bytes to 1 MiB; the long ones are rare, or a run would take minutes.
pub(crate) fn padding(dice: &mut Dice) -> usize {
    match dice.below(64) {
        0 => 1 << 20,
        1..4 => 70_000,
        4..16 => 10_000,
        16..32 => 1_000,
        _ => 100,
    }
}

pub(crate) fn event(word: &str, object: &str) -> String {
    format!("{{\"type\":\"{word}\",\"object\":{object}}}\n")
}

pub(crate) fn bookmark(version: u64, annotations: &str) -> String {
    event(
        "BOOKMARK",
        &format!(
            "{{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\"{version}\"{annotations}}}}}"
        ),
    )
}
