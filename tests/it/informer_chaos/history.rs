//! A handler that records its notifications, and the rules that the recorded history must keep.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};

use k8s_openapi::api::core::v1::ConfigMap;
use kube_fanout::informer::{Cached, EventHandler, Metadata, Notification, Raw};
use serde_json::Value;

/// An object in any representation (typed, raw or metadata only), from which a test can read its number.
pub(crate) trait Content: Sized + Send + Sync + 'static {
    /// The number that the object's last write stored in it.
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

/// What a test compares of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ObjectState {
    pub(crate) uid: String,
    pub(crate) version: u64,
    pub(crate) n: Option<u64>,
}

impl ObjectState {
    pub(crate) fn of<T: Content>(object: &Cached<T>) -> Self {
        Self {
            uid: object.uid().to_owned(),
            version: object.resource_version().0,
            n: object.number(),
        }
    }
}

/// Objects by `namespace/name`.
pub(crate) type ObjectStates = BTreeMap<String, ObjectState>;

/// A recorded notification.
#[derive(Clone, Debug)]
pub(crate) enum RecordedNotification {
    Added {
        new: ObjectState,
        in_initial_list: bool,
    },
    Updated {
        old: ObjectState,
        new: ObjectState,
    },
    Deleted {
        old: ObjectState,
        last: ObjectState,
        final_state_known: bool,
    },
}

/// The recorded notifications, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    notifications: Vec<(String, RecordedNotification)>,
    /// The objects that the notifications lead to.
    objects: ObjectStates,
    /// The number of notifications when the initial list was first seen as complete.
    synced_at: Option<usize>,
}

/// A history that a handler still appends to.
pub(crate) type SharedHistory = Arc<Mutex<History>>;

pub(crate) fn record<T: Content>(shared_history: &SharedHistory, notification: &Notification<T>) {
    let recorded = match notification {
        Notification::Added {
            object,
            in_initial_list,
        } => RecordedNotification::Added {
            new: ObjectState::of(object),
            in_initial_list: *in_initial_list,
        },
        Notification::Updated { old, new } => RecordedNotification::Updated {
            old: ObjectState::of(old),
            new: ObjectState::of(new),
        },
        Notification::Deleted {
            old,
            object,
            final_state_known,
        } => RecordedNotification::Deleted {
            old: ObjectState::of(old),
            last: ObjectState::of(object),
            final_state_known: *final_state_known,
        },
    };
    let key = notification.key().to_string();
    let mut history = shared_history.lock().unwrap();
    match &recorded {
        RecordedNotification::Added { new, .. } | RecordedNotification::Updated { new, .. } => {
            history.objects.insert(key.clone(), new.clone());
        }
        RecordedNotification::Deleted { .. } => drop(history.objects.remove(&key)),
    }
    history.notifications.push((key, recorded));
}

/// Records the length of the history when the test first sees that the initial list is complete.
pub(crate) fn note_synced(shared_history: &SharedHistory, has_synced: bool) {
    let mut history = shared_history.lock().unwrap();
    if has_synced && history.synced_at.is_none() {
        history.synced_at = Some(history.notifications.len());
    }
}

/// A gate that holds up slow handlers while it is closed.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    closed: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    pub(crate) fn set_closed(&self, closed: bool) {
        *self.closed.lock().unwrap() = closed;
        self.opened.notify_all();
    }

    fn wait_until_open(&self) {
        let mut closed = self.closed.lock().unwrap();
        while *closed {
            closed = self.opened.wait(closed).unwrap();
        }
    }
}

/// A handler that records its notifications, after waiting at its gate if it has one.
pub(crate) struct EventRecorder {
    pub(crate) history: SharedHistory,
    pub(crate) gate: Option<Arc<Gate>>,
}

impl<T: Content> EventHandler<T> for EventRecorder {
    fn on_notification(&self, notification: &Notification<T>) {
        if let Some(gate) = &self.gate {
            gate.wait_until_open();
        }
        record(&self.history, notification);
    }
}

/// The rules for a history that depend on its handler.
#[derive(Clone, Debug)]
pub(crate) struct HistoryRules {
    /// No notifications were merged, so each deletion must be of the object of the previous notification.
    pub(crate) exact: bool,
    /// Unchanged objects may be repeated by a resync.
    pub(crate) resyncs: bool,
    /// A filter turns some updates into additions and deletions.
    pub(crate) filtered: bool,
    /// The versions before and after each rollback of the server.
    pub(crate) rollbacks: Vec<(u64, u64)>,
}

impl HistoryRules {
    fn may_follow(&self, before: u64, after: u64) -> bool {
        let is_rolled_back = |&(from, to): &(u64, u64)| to < before && before <= from;
        // Later writes were rolled back, and this handler may not have seen them.
        let is_same_again = |&(from, _): &(u64, u64)| after == before && before < from;
        let mut rollbacks = self.rollbacks.iter();
        after > before
            || rollbacks.any(|rollback| is_rolled_back(rollback) || is_same_again(rollback))
    }
}

impl History {
    /// Whether the notifications so far lead to these objects.
    pub(crate) fn holds(&self, expected: &ObjectStates) -> bool {
        self.objects == *expected
    }

    pub(crate) fn len(&self) -> usize {
        self.notifications.len()
    }

    pub(crate) fn recreated(&self) -> u64 {
        let is_recreation = |notification: &RecordedNotification| matches!(notification, RecordedNotification::Updated { old, new } if old.uid != new.uid);
        self.notifications
            .iter()
            .filter(|(_, notification)| is_recreation(notification))
            .count() as u64
    }

    pub(crate) fn missed_deletions(&self) -> u64 {
        let is_missed_deletion = |notification: &RecordedNotification| {
            matches!(
                notification,
                RecordedNotification::Deleted {
                    final_state_known: false,
                    ..
                }
            )
        };
        self.notifications
            .iter()
            .filter(|(_, notification)| is_missed_deletion(notification))
            .count() as u64
    }

    /// Checks the history against the rules; returns the objects at its end.
    pub(crate) fn replay(&self, rules: &HistoryRules) -> Result<ObjectStates, String> {
        let mut replay = Replay::default();
        for (at, (key, notification)) in self.notifications.iter().enumerate() {
            replay.is_synced = self.synced_at.is_some_and(|synced| at >= synced);
            replay
                .check(key, notification, rules)
                .map_err(|violation| {
                    let before = self.notifications[..=at].iter().filter(|(k, _)| k == key);
                    let before: Vec<_> = before.map(|(_, notification)| notification).collect();
                    let last = &before[before.len().saturating_sub(5)..];
                    let rollbacks = &rules.rollbacks;
                    format!(
                        "{violation}: {key} at notification {at}: {last:?}, rollbacks {rollbacks:?}"
                    )
                })?;
        }
        Ok(replay.objects)
    }
}

/// The state of a check that replays a history.
#[derive(Default)]
struct Replay {
    objects: ObjectStates,
    /// The last version of each name, including deleted objects.
    versions: BTreeMap<String, u64>,
    /// Whether the initial list is complete.
    is_synced: bool,
    /// Whether an object was added that is not part of the initial list.
    is_live: bool,
}

impl Replay {
    fn check(
        &mut self,
        key: &str,
        notification: &RecordedNotification,
        rules: &HistoryRules,
    ) -> Result<(), &'static str> {
        let before = self.objects.get(key);
        let (new, is_repetition) = match notification {
            RecordedNotification::Added { .. } if before.is_some() => {
                return Err("an add of a present object");
            }
            RecordedNotification::Added {
                in_initial_list: true,
                ..
            } if self.is_synced => return Err("an initial add after the initial list"),
            RecordedNotification::Added {
                in_initial_list: true,
                ..
            } if self.is_live && !rules.filtered => return Err("an initial add after a later add"),
            RecordedNotification::Added {
                new,
                in_initial_list,
            } => {
                self.is_live |= !in_initial_list;
                (new, false)
            }
            RecordedNotification::Updated { old, new } => {
                let before = before.ok_or("an update of an absent object")?;
                if before != old {
                    return Err("an update from another old state");
                }
                (new, rules.resyncs && old == new && before == new)
            }
            RecordedNotification::Deleted {
                old,
                last,
                final_state_known,
            } => {
                let before = before.ok_or("a deletion of an absent object")?;
                if before != old {
                    return Err("a deletion from another old state");
                }
                if rules.exact && before.uid != last.uid {
                    return Err("a deletion of another object");
                }
                if rules.exact && !final_state_known && before != last {
                    return Err("a last known state that was never delivered");
                }
                let may_repeat = rules.filtered || !final_state_known;
                (last, may_repeat && before == last)
            }
        };
        let last = self.versions.insert(key.to_owned(), new.version);
        if last.is_some_and(|last| !is_repetition && !rules.may_follow(last, new.version)) {
            return Err("a version that went back");
        }
        if matches!(notification, RecordedNotification::Deleted { .. }) {
            self.objects.remove(key);
        } else {
            self.objects.insert(key.to_owned(), new.clone());
        }
        Ok(())
    }
}

/// Checks that a replay detects invalid histories; otherwise the runs would prove nothing.
#[test]
fn histories_that_make_no_sense_are_refused() {
    let state = |version| ObjectState {
        uid: "u".into(),
        version,
        n: None,
    };
    let add = |version, in_initial_list| RecordedNotification::Added {
        new: state(version),
        in_initial_list,
    };
    let update = |old, new| RecordedNotification::Updated {
        old: state(old),
        new: state(new),
    };
    let delete = |old, version, final_state_known| RecordedNotification::Deleted {
        old: state(old),
        last: state(version),
        final_state_known,
    };
    let rules = HistoryRules {
        exact: true,
        resyncs: false,
        filtered: false,
        rollbacks: vec![(20, 10)],
    };
    let check = |notifications: &[RecordedNotification], violation: Option<&str>| {
        let mut history = History::default();
        let named = |notification: &RecordedNotification| ("a/b".to_owned(), notification.clone());
        history.notifications = notifications.iter().map(named).collect();
        match (history.replay(&rules), violation) {
            (Ok(_), None) => {}
            (Err(found), Some(violation)) if found.starts_with(violation) => {}
            (replayed, _) => panic!("{notifications:?}: got {replayed:?}, expected {violation:?}"),
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
    for (notifications, violation) in [
        ([add(1, true), add(2, false)], "an add of a present object"),
        (
            [add(1, true), update(2, 3)],
            "an update from another old state",
        ),
        ([add(25, true), update(25, 25)], "a version that went back"),
        ([add(9, true), update(9, 8)], "a version that went back"),
        (
            [add(1, true), delete(2, 2, true)],
            "a deletion from another old state",
        ),
        (
            [add(1, true), delete(1, 2, false)],
            "a last known state that was never delivered",
        ),
    ] {
        check(&notifications, Some(violation));
    }
    check(&[update(1, 2)], Some("an update of an absent object"));
    check(
        &[delete(1, 1, true)],
        Some("a deletion of an absent object"),
    );
    let again = [add(1, false), delete(1, 2, true), add(3, true)];
    check(&again, Some("an initial add after a later add"));
}
