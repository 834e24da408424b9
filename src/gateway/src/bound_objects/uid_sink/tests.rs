//! Which uids the sink tells, and when it counts as being in contact.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::*;
use crate::cache::samples::Sample;
use crate::resource::{ByteSpan, ObjectParts};

struct Stage {
    sink: UidSink,
    live: Arc<LiveUids>,
    told: Arc<Mutex<Vec<Box<str>>>>,
}

impl Stage {
    fn new() -> Self {
        let told = Arc::<Mutex<Vec<Box<str>>>>::default();
        let deleted = Arc::clone(&told);
        let live = LiveUids::new(Arc::new(move |uids| deleted.lock().extend(uids)));
        let live = Arc::new(live);
        Self {
            sink: UidSink::new(Arc::clone(&live)),
            live,
            told,
        }
    }

    /// Objects named by their uids.
    fn list(&mut self, uids: &[u64], version: u64) {
        self.sink.restart();
        for uid in uids {
            self.sink.initial(EventKind::Added, object(*uid, 1));
        }
        self.sink.replace(ResourceVersion(version)).unwrap();
    }

    fn live(&mut self, kind: EventKind, uid: u64, version: u64) {
        self.sink.live(kind, object(uid, version));
        self.sink.publish();
    }

    #[track_caller]
    fn expect_told(&self, uids: &[&str]) {
        let mut told = std::mem::take(&mut *self.told.lock());
        told.sort_unstable();
        let told: Vec<&str> = told.iter().map(|uid| &**uid).collect();
        assert_eq!(told, uids);
    }

    /// Whether upstream may have these objects, and whether they were listed since the last call.
    #[track_caller]
    fn expect_live(&self, uids: &[&str], expected: &[bool], is_listed: bool) {
        let live: Vec<bool> = uids.iter().map(|uid| self.live.may_have(uid)).collect();
        assert_eq!(live, expected);
        assert_eq!(self.live.contact.take_listed(), is_listed);
    }

    fn is_current(&self) -> bool {
        self.live.contact.is_current(Instant::now())
    }
}

/// All objects have one name: only uids tell them apart.
fn object(uid: u64, version: u64) -> Object {
    let mut sample = Sample::new("default/x", version);
    sample.uid = uid;
    sample.object()
}

#[test]
fn an_object_is_gone_when_upstream_deletes_it() {
    let mut stage = Stage::new();
    stage.list(&[1, 2], 5);
    stage.live(EventKind::Added, 3, 6);
    stage.live(EventKind::Modified, 3, 7);
    stage.expect_told(&[]);
    stage.live(EventKind::Deleted, 3, 8);
    stage.live(EventKind::Deleted, 1, 9);
    stage.expect_told(&["u1", "u3"]);
    // Events at the version of the state may be repeated, and be told again.
    stage.live(EventKind::Deleted, 1, 9);
    stage.expect_told(&["u1"]);
    // It came and went between two lists; a token may be bound to it.
    stage.live(EventKind::Deleted, 9, 10);
    stage.expect_told(&["u9"]);
    assert_eq!(stage.sink.object_count(), Some(1));
}

#[test]
fn an_object_is_gone_when_a_later_list_lacks_it() {
    let mut stage = Stage::new();
    let uids = ["u1", "u2", "u4"];
    stage.expect_live(&uids, &[true; 3], false);
    stage.list(&[1, 2], 5);
    stage.expect_live(&uids, &[true, true, false], true);
    stage.list(&[2, 4], 9);
    stage.expect_live(&uids, &[false, true, true], true);
    // A restored backup.
    stage.list(&[], 3);
    stage.expect_live(&uids, &[false; 3], true);
    stage.expect_told(&[]);
}

#[test]
fn a_list_that_is_cut_off_changes_nothing() {
    let mut stage = Stage::new();
    stage.list(&[1, 2], 5);
    stage.sink.restart();
    stage.sink.initial(EventKind::Added, object(2, 1));
    stage.expect_live(&["u1", "u2"], &[true, true], true);
    stage.sink.restart();
    stage.sink.initial(EventKind::Added, object(1, 1));
    stage.sink.initial(EventKind::Added, object(2, 1));
    stage.sink.initial(EventKind::Deleted, object(2, 8));
    stage.sink.replace(ResourceVersion(8)).unwrap();
    stage.expect_live(&["u1", "u2"], &[true, false], true);
}

#[test]
fn an_object_that_replaces_another_under_its_name_has_another_uid() {
    let mut stage = Stage::new();
    stage.list(&[1], 5);
    stage.live(EventKind::Deleted, 1, 6);
    stage.live(EventKind::Added, 2, 7);
    stage.expect_told(&["u1"]);
    stage.expect_live(&["u1", "u2"], &[false, true], true);
}

#[test]
fn a_late_deletion_is_applied_and_what_may_be_missing_is_listed() {
    let mut stage = Stage::new();
    stage.list(&[1, 2], 9);
    for (kind, uid, expected) in [
        (EventKind::Modified, 1, LateChange::Known),
        (EventKind::Deleted, 1, LateChange::Applied),
        (EventKind::Deleted, 1, LateChange::Known),
        (EventKind::Added, 1, LateChange::Missing),
    ] {
        assert_eq!(stage.sink.late(kind, &object(uid, 7)), expected, "{kind:?}");
    }
    stage.sink.publish();
    stage.expect_told(&["u1"]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_relied_on_before_all_objects_are_known() {
    let mut stage = Stage::new();
    stage.sink.watch_opened();
    stage.sink.restart();
    stage.sink.initial(EventKind::Added, object(1, 1));
    stage.sink.publish();
    assert!(!stage.is_current());
    assert_eq!(stage.sink.object_count(), None);
    stage.sink.replace(ResourceVersion(5)).unwrap();
    assert!(stage.is_current());
}

#[tokio::test(start_paused = true)]
async fn a_resource_with_a_uid_that_cannot_be_held_is_not_relied_on() {
    let mut stage = Stage::new();
    stage.list(&[1], 5);
    assert!(stage.is_current());
    let parts = ObjectParts {
        uid: "u".repeat(100).into(),
        resource_version: ResourceVersion(6),
        ..ObjectParts::default()
    };
    stage.sink.live(EventKind::Added, Object::new(parts, b"{}"));
    assert!(!stage.is_current());
    assert_eq!(stage.sink.object_count(), None);
    // Deletions that are noticed are told all the same.
    stage.live(EventKind::Deleted, 1, 7);
    stage.expect_told(&["u1"]);
    assert!(!stage.is_current());
    stage.list(&[2], 9);
    assert!(stage.is_current());
}

#[tokio::test(start_paused = true)]
async fn events_and_bookmarks_show_that_the_watch_is_alive() {
    let mut stage = Stage::new();
    stage.list(&[1], 5);
    let bookmark = |version| Bookmark {
        resource_version: ResourceVersion(version),
        version_span: ByteSpan { start: 0, end: 0 },
        initial_events_end: false,
    };
    for version in 5..10 {
        tokio::time::advance(Duration::from_secs(100)).await;
        assert!(stage.is_current());
        stage.sink.bookmark(b"{}", &bookmark(version));
        stage.sink.progress(ResourceVersion(version));
    }
    tokio::time::advance(Duration::from_secs(100)).await;
    stage.live(EventKind::Modified, 1, 10);
    tokio::time::advance(Duration::from_secs(100)).await;
    assert!(stage.is_current());
    // A watch that was opened again has shown nothing yet, and the server behind it lags.
    stage.sink.watch_opened();
    stage.sink.publish();
    stage.sink.bookmark(b"{}", &bookmark(9));
    tokio::time::advance(Duration::from_secs(100)).await;
    assert!(!stage.is_current());
    stage.sink.bookmark(b"{}", &bookmark(10));
    assert!(stage.is_current());
}
