//! Which callback is called for which notification, and what filters pass on.

use std::sync::Mutex;

use super::*;
use crate::processor::tests::samples::{added, deleted, initial, object, updated, word};

#[derive(Default)]
struct Recorder(Mutex<Vec<String>>);

impl Recorder {
    fn record(&self, text: String) {
        self.0.lock().unwrap().push(text);
    }
}

impl EventHandler<u64> for Recorder {
    fn on_add(&self, object: &Arc<Cached<u64>>, in_initial_list: bool) {
        self.record(format!("add {} {in_initial_list}", ***object));
    }

    fn on_update(&self, old: &Arc<Cached<u64>>, new: &Arc<Cached<u64>>) {
        self.record(format!("update {} {}", ***old, ***new));
    }

    fn on_delete(&self, object: &Arc<Cached<u64>>, final_state_known: bool) {
        self.record(format!("delete {} {final_state_known}", ***object));
    }
}

struct OnlyAdds(Recorder);

impl EventHandler<u64> for OnlyAdds {
    fn on_add(&self, object: &Arc<Cached<u64>>, in_initial_list: bool) {
        self.0.on_add(object, in_initial_list);
    }
}

#[test]
fn each_change_reaches_its_callback() {
    let recorder = Recorder::default();
    let unknown = Notification::Deleted {
        old: object("a", 3),
        object: object("a", 4),
        final_state_known: false,
    };
    for change in [
        initial("a", 1),
        added("b", 2),
        updated("a", 1, 3),
        deleted("b", 2, 4),
        unknown,
    ] {
        recorder.on_notification(&change);
    }
    let expected = [
        "add 1 true",
        "add 2 false",
        "update 1 3",
        "delete 4 true",
        "delete 4 false",
    ];
    assert_eq!(*recorder.0.lock().unwrap(), expected);
}

#[test]
fn callbacks_that_are_left_out_do_nothing() {
    let handler = OnlyAdds(Recorder::default());
    for change in [added("a", 1), updated("a", 1, 2), deleted("a", 2, 3)] {
        handler.on_notification(&change);
    }
    assert_eq!(*handler.0.0.lock().unwrap(), ["add 1 false"]);
}

#[test]
fn a_closure_is_told_of_every_change() {
    let received = Arc::new(Mutex::new(Vec::new()));
    let recorder = Arc::clone(&received);
    let handler: Arc<dyn EventHandler<u64>> =
        Arc::new(move |change: &Notification<u64>| recorder.lock().unwrap().push(word(change)));
    for change in [added("a", 1), updated("a", 1, 2), deleted("a", 2, 3)] {
        handler.on_notification(&change);
    }
    assert_eq!(*received.lock().unwrap(), ["+a1", "a1>2", "-a2>3"]);
}

/// Checks what a filter for even versions passes on.
#[track_caller]
fn check_filtered(change: Notification<u64>, expected: &[&str]) {
    let received = Arc::new(Mutex::new(Vec::new()));
    let recorder = Arc::clone(&received);
    let handler = EventFilter::new(
        |object: &Cached<u64>| object.is_multiple_of(2),
        move |change: &Notification<u64>| recorder.lock().unwrap().push(word(change)),
    );
    handler.on_notification(&change);
    assert_eq!(*received.lock().unwrap(), expected);
}

#[test]
fn a_filter_passes_on_what_concerns_objects_that_pass() {
    check_filtered(added("a", 2), &["+a2"]);
    check_filtered(initial("a", 2), &["^a2"]);
    check_filtered(updated("a", 2, 4), &["a2>4"]);
    check_filtered(deleted("a", 2, 4), &["-a2>4"]);
}

#[test]
fn a_filter_keeps_back_what_concerns_others() {
    check_filtered(added("a", 1), &[]);
    check_filtered(updated("a", 1, 3), &[]);
    check_filtered(deleted("a", 1, 3), &[]);
}

#[test]
fn an_object_that_begins_to_pass_a_filter_is_told_as_added() {
    check_filtered(updated("a", 1, 2), &["+a2"]);
}

#[test]
fn an_object_that_no_longer_passes_a_filter_is_told_as_deleted_in_its_last_passing_state() {
    check_filtered(updated("a", 2, 3), &["-a2>2"]);
}

#[test]
fn the_deletion_of_an_object_that_passed_a_filter_is_told_whatever_its_final_state() {
    check_filtered(deleted("a", 2, 3), &["?a2>2"]);
}

#[test]
fn the_deletion_of_an_object_that_did_not_pass_a_filter_is_not_told_whatever_its_final_state() {
    check_filtered(deleted("a", 1, 2), &[]);
}
