//! Who hears of changes and writes down what was heard; and what such a history must be like.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};

use k8s_openapi::api::core::v1::ConfigMap;
use kube_fanout::informer::{Cached, EventHandler, Metadata, Notification, Raw};
use serde_json::Value;

/// What can be read of an object, whatever it is held as.
pub(crate) trait Content: Sized + Send + Sync + 'static {
    /// The number that stands in the object.
    fn number(&self) -> Option<u64>;
}

impl Content for Raw {
    fn number(&self) -> Option<u64> {
        let value: Value = self.read().ok()?;
        value["data"]["n"].as_str()?.parse().ok()
    }
}

impl Content for ConfigMap {
    fn number(&self) -> Option<u64> {
        self.data.as_ref()?.get("n")?.parse().ok()
    }
}

impl Content for Metadata {
    fn number(&self) -> Option<u64> {
        self.metadata.annotations.as_ref()?.get("n")?.parse().ok()
    }
}

/// An object as it was seen.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Seen {
    pub(crate) uid: String,
    pub(crate) version: u64,
    pub(crate) n: Option<u64>,
}

impl Seen {
    pub(crate) fn of<T: Content>(object: &Cached<T>) -> Self {
        Self {
            uid: object.uid().to_owned(),
            version: object.resource_version().0,
            n: object.number(),
        }
    }
}

/// By `namespace/name`.
pub(crate) type SeenAll = BTreeMap<String, Seen>;

/// One thing that was told.
#[derive(Clone, Debug)]
pub(crate) enum Told {
    Added {
        new: Seen,
        in_initial_list: bool,
    },
    Updated {
        old: Seen,
        new: Seen,
    },
    Deleted {
        old: Seen,
        last: Seen,
        final_state_known: bool,
    },
}

/// All that was told, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    told: Vec<(String, Told)>,
    /// What it leads to.
    held: SeenAll,
    /// How much of it was told when the initial list was.
    synced_at: Option<usize>,
}

/// A history that is still written.
pub(crate) type Book = Arc<Mutex<History>>;

pub(crate) fn write_down<T: Content>(book: &Book, notification: &Notification<T>) {
    let told = match notification {
        Notification::Added {
            object,
            in_initial_list,
        } => Told::Added {
            new: Seen::of(object),
            in_initial_list: *in_initial_list,
        },
        Notification::Updated { old, new } => Told::Updated {
            old: Seen::of(old),
            new: Seen::of(new),
        },
        Notification::Deleted {
            old,
            object,
            final_state_known,
        } => Told::Deleted {
            old: Seen::of(old),
            last: Seen::of(object),
            final_state_known: *final_state_known,
        },
    };
    let key = notification.key().to_string();
    let mut history = book.lock().unwrap();
    match &told {
        Told::Added { new, .. } | Told::Updated { new, .. } => {
            history.held.insert(key.clone(), new.clone());
        }
        Told::Deleted { .. } => drop(history.held.remove(&key)),
    }
    history.told.push((key, told));
}

/// Notes that the initial list was told, as early as the test can see it.
pub(crate) fn note_synced(book: &Book, has_synced: bool) {
    let mut history = book.lock().unwrap();
    if has_synced && history.synced_at.is_none() {
        history.synced_at = Some(history.told.len());
    }
}

/// Where a slow handler waits.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    shut: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    pub(crate) fn turn(&self, shut: bool) {
        *self.shut.lock().unwrap() = shut;
        self.opened.notify_all();
    }

    fn pass(&self) {
        let mut shut = self.shut.lock().unwrap();
        while *shut {
            shut = self.opened.wait(shut).unwrap();
        }
    }
}

/// A handler that writes down what it is told, once it may.
pub(crate) struct Witness {
    pub(crate) book: Book,
    pub(crate) gate: Option<Arc<Gate>>,
}

impl<T: Content> EventHandler<T> for Witness {
    fn on_notification(&self, notification: &Notification<T>) {
        if let Some(gate) = &self.gate {
            gate.pass();
        }
        write_down(&self.book, notification);
    }
}

/// What is expected of a history beside that it makes sense.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    /// Nothing was merged, so each deletion is of the object that was told before.
    pub(crate) exact: bool,
    /// Objects may be told again as they are.
    pub(crate) resyncs: bool,
    /// A filter makes additions and deletions of updates.
    pub(crate) filtered: bool,
    /// Where the server went back, from and to.
    pub(crate) setbacks: Vec<(u64, u64)>,
}

impl Terms {
    fn may_follow(&self, before: u64, after: u64) -> bool {
        let undone = |&(from, to): &(u64, u64)| to < before && before <= from;
        // What came after it was undone, and nobody may have seen that.
        let returned = |&(from, _): &(u64, u64)| after == before && before < from;
        let mut setbacks = self.setbacks.iter();
        after > before || setbacks.any(|setback| undone(setback) || returned(setback))
    }
}

impl History {
    /// Whether this is what was told by now.
    pub(crate) fn holds(&self, expected: &SeenAll) -> bool {
        self.held == *expected
    }

    pub(crate) fn len(&self) -> usize {
        self.told.len()
    }

    pub(crate) fn made_anew(&self) -> u64 {
        let anew = |told: &Told| matches!(told, Told::Updated { old, new } if old.uid != new.uid);
        self.told.iter().filter(|(_, told)| anew(told)).count() as u64
    }

    pub(crate) fn found_gone(&self) -> u64 {
        let gone = |told: &Told| {
            matches!(
                told,
                Told::Deleted {
                    final_state_known: false,
                    ..
                }
            )
        };
        self.told.iter().filter(|(_, told)| gone(told)).count() as u64
    }

    /// Goes through the history; what is held at its end.
    pub(crate) fn replay(&self, terms: &Terms) -> Result<SeenAll, String> {
        let mut replay = Replay::default();
        for (at, (key, told)) in self.told.iter().enumerate() {
            replay.is_synced = self.synced_at.is_some_and(|synced| at >= synced);
            replay.judge(key, told, terms).map_err(|why| {
                let before = self.told[..=at].iter().filter(|(k, _)| k == key);
                let before: Vec<_> = before.map(|(_, told)| told).collect();
                let last = &before[before.len().saturating_sub(5)..];
                let setbacks = &terms.setbacks;
                format!("{why}: {key} at {at}: {last:?}, the server went back {setbacks:?}")
            })?;
        }
        Ok(replay.held)
    }
}

/// How far a history was gone through.
#[derive(Default)]
struct Replay {
    held: SeenAll,
    /// The last version of each name, also of those that are gone.
    versions: BTreeMap<String, u64>,
    /// The initial list was told.
    is_synced: bool,
    /// Something was told that is not of it.
    is_live: bool,
}

impl Replay {
    fn judge(&mut self, key: &str, told: &Told, terms: &Terms) -> Result<(), &'static str> {
        let before = self.held.get(key);
        let (new, is_repetition) = match told {
            Told::Added { .. } if before.is_some() => return Err("an add of what is held"),
            Told::Added {
                in_initial_list: true,
                ..
            } if self.is_synced => return Err("an initial add after the initial list"),
            Told::Added {
                in_initial_list: true,
                ..
            } if self.is_live && !terms.filtered => return Err("an initial add after another one"),
            Told::Added {
                new,
                in_initial_list,
            } => {
                self.is_live |= !in_initial_list;
                (new, false)
            }
            Told::Updated { old, new } => {
                let before = before.ok_or("an update of what is not held")?;
                if before != old {
                    return Err("an update that begins elsewhere");
                }
                (new, terms.resyncs && old == new && before == new)
            }
            Told::Deleted {
                old,
                last,
                final_state_known,
            } => {
                let before = before.ok_or("a deletion of what is not held")?;
                if before != old {
                    return Err("a deletion that begins elsewhere");
                }
                if terms.exact && before.uid != last.uid {
                    return Err("a deletion of another object");
                }
                if terms.exact && !final_state_known && before != last {
                    return Err("a last known state that was not known");
                }
                let may_repeat = terms.filtered || !final_state_known;
                (last, may_repeat && before == last)
            }
        };
        let last = self.versions.insert(key.to_owned(), new.version);
        if last.is_some_and(|last| !is_repetition && !terms.may_follow(last, new.version)) {
            return Err("a version that went back");
        }
        if matches!(told, Told::Deleted { .. }) {
            self.held.remove(key);
        } else {
            self.held.insert(key.to_owned(), new.clone());
        }
        Ok(())
    }
}

/// Histories that make no sense must be found out, or a run shows nothing.
#[test]
fn histories_that_make_no_sense_are_refused() {
    let seen = |version| Seen {
        uid: "u".into(),
        version,
        n: None,
    };
    let add = |version, in_initial_list| Told::Added {
        new: seen(version),
        in_initial_list,
    };
    let update = |old, new| Told::Updated {
        old: seen(old),
        new: seen(new),
    };
    let delete = |old, version, final_state_known| Told::Deleted {
        old: seen(old),
        last: seen(version),
        final_state_known,
    };
    let terms = Terms {
        exact: true,
        resyncs: false,
        filtered: false,
        setbacks: vec![(20, 10)],
    };
    let check = |told: &[Told], why: Option<&str>| {
        let mut history = History::default();
        let named = |told: &Told| ("a/b".to_owned(), told.clone());
        history.told = told.iter().map(named).collect();
        match (history.replay(&terms), why) {
            (Ok(_), None) => {}
            (Err(found), Some(why)) if found.starts_with(why) => {}
            (replayed, _) => panic!("{told:?}: {replayed:?} instead of {why:?}"),
        }
    };
    let whole = [
        add(1, true),
        update(1, 2),
        delete(2, 3, true),
        add(4, false),
    ];
    let set_back = [add(15, true), update(15, 12), delete(12, 12, false)];
    check(&whole, None);
    check(&set_back, None);
    for (told, why) in [
        ([add(1, true), add(2, false)], "an add of what is held"),
        (
            [add(1, true), update(2, 3)],
            "an update that begins elsewhere",
        ),
        ([add(25, true), update(25, 25)], "a version that went back"),
        ([add(9, true), update(9, 8)], "a version that went back"),
        (
            [add(1, true), delete(2, 2, true)],
            "a deletion that begins elsewhere",
        ),
        (
            [add(1, true), delete(1, 2, false)],
            "a last known state that was not known",
        ),
    ] {
        check(&told, Some(why));
    }
    check(&[update(1, 2)], Some("an update of what is not held"));
    check(
        &[delete(1, 1, true)],
        Some("a deletion of what is not held"),
    );
    let again = [add(1, false), delete(1, 2, true), add(3, true)];
    check(&again, Some("an initial add after another one"));
}
