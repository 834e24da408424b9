//! The notifications that handlers and streams get, and their order.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_fanout::informer::{
    Cached, HandlerEnd, HandlerOptions, Indexer, Notification, SharedInformer, index_by_label,
};

use crate::informer::stage::{Journal, Stage, soon, state_of};
use crate::support::history::{unseen, until};

async fn started(stage: &Stage) -> (SharedInformer<ConfigMap>, Journal) {
    let (informer, journal) = (stage.informer(), Journal::new());
    informer.add_handler(journal.clone());
    informer.start();
    soon("the first list", informer.synced()).await.unwrap();
    (informer, journal)
}

#[tokio::test]
async fn what_is_there_and_what_comes_is_told_in_order() {
    let stage = Stage::with_objects(1).await;
    let (informer, journal) = started(&stage).await;
    stage.put("b", "1").await;
    stage.put("a0", "2").await;
    stage.put("a0", "3").await;
    stage.delete("b").await;
    journal
        .tells(&["+a0 0 (initial)", "+b 1", "a0 0>2", "a0 2>3", "-b 1"])
        .await;
    informer.shutdown().await;
}

/// Whether the store or its index by state is older than an object that a handler was told of.
///
/// Store and index are read one after the other: a state that changes in between is read again.
fn is_older_than(store: &Indexer<Cached<ConfigMap>>, notified: &Cached<ConfigMap>) -> bool {
    loop {
        let Some(stored) = store.object(notified.key().as_str()) else {
            return false;
        };
        let indexed = store.index_keys("state", state_of(&stored)).unwrap();
        let is_same = store
            .object(notified.key().as_str())
            .is_some_and(|again| again.resource_version() == stored.resource_version());
        if is_same {
            return stored.resource_version() < notified.resource_version()
                || !indexed.contains(notified.key());
        }
    }
}

#[tokio::test]
async fn store_and_indices_are_as_new_as_what_is_told() {
    let stage = Stage::with_objects(3).await;
    let informer = stage.informer();
    informer
        .add_index("state", index_by_label("state"))
        .unwrap();
    let (store, older_keys) = (
        Arc::clone(informer.store()),
        Arc::new(Mutex::new(Vec::new())),
    );
    let journal = Journal::new();
    let handler = {
        let (journal, older_keys) = (journal.clone(), Arc::clone(&older_keys));
        move |change: &Notification<ConfigMap>| {
            let key = change.key();
            let notified = match change {
                Notification::Added { object, .. } => Some(object),
                Notification::Updated { new, .. } => Some(new),
                Notification::Deleted { .. } => None,
            };
            let is_older = notified.is_some_and(|notified| is_older_than(&store, notified));
            if is_older {
                older_keys.lock().unwrap().push(key.clone());
            }
            journal.note(key.to_string());
        }
    };
    informer.add_handler(handler);
    informer.start();
    for state in 1..30 {
        stage
            .put(&format!("a{}", state % 3), &state.to_string())
            .await;
    }
    until("the last state", || {
        let last = informer.store().object("n/a2");
        last.is_some_and(|last| state_of(&last) == "29")
    })
    .await;
    informer.shutdown().await;
    assert_eq!(*older_keys.lock().unwrap(), []);
    assert!(journal.lines().len() >= 3);
}

#[tokio::test]
async fn a_deletion_that_nobody_saw_is_told_with_the_last_known_state() {
    let stage = Stage::with_objects(1).await;
    let (informer, journal) = started(&stage).await;
    unseen(&stage.server, async {
        stage.put("a0", "1").await;
        stage.delete("a0").await;
    })
    .await;
    journal.tells(&["+a0 0 (initial)", "-a0 0?"]).await;
    informer.shutdown().await;
}

#[tokio::test]
async fn a_recreation_that_nobody_saw_is_one_update_with_another_uid() {
    let stage = Stage::with_objects(1).await;
    let (informer, journal) = started(&stage).await;
    unseen(&stage.server, async {
        stage.delete("a0").await;
        stage.put("a0", "1").await;
    })
    .await;
    journal
        .tells(&["+a0 0 (initial)", "a0 0>1 (another)"])
        .await;
    informer.shutdown().await;
}

#[tokio::test]
async fn a_list_after_lost_history_tells_what_changed_and_nothing_else() {
    let stage = Stage::with_objects(3).await;
    let (informer, journal) = started(&stage).await;
    until("the initial list", || journal.lines().len() == 3).await;
    journal.clear();
    unseen(&stage.server, async {
        stage.put("a1", "1").await;
        stage.put("b", "1").await;
    })
    .await;
    until("two changes", || journal.lines().len() >= 2).await;
    stage.put("c", "1").await;
    until("the last change", || journal.lines().len() >= 3).await;
    let mut lines = journal.lines();
    lines.sort_unstable();
    assert_eq!(lines, ["+b 1", "+c 1", "a1 0>1"]);
    informer.shutdown().await;
}

#[tokio::test]
async fn a_late_handler_is_told_of_everything_once() {
    let stage = Stage::with_objects(3).await;
    let (informer, _) = started(&stage).await;
    stage.put("a0", "1").await;
    until("the update", || {
        let first = informer.store().object("n/a0");
        first.is_some_and(|first| state_of(&first) == "1")
    })
    .await;
    let late = Journal::new();
    let registration = informer.add_handler(late.clone());
    soon("the late handler's sync", registration.synced())
        .await
        .unwrap();
    let mut lines = late.lines();
    lines.sort_unstable();
    assert_eq!(
        lines,
        ["+a0 1 (initial)", "+a1 0 (initial)", "+a2 0 (initial)"]
    );
    late.clear();
    stage.put("a1", "1").await;
    late.tells(&["a1 0>1"]).await;
    informer.shutdown().await;
}

#[tokio::test]
async fn of_a_handler_that_is_there_twice_one_is_removed() {
    let stage = Stage::with_objects(1).await;
    let (informer, journal) = (stage.informer(), Journal::new());
    let one = informer.add_handler(journal.clone());
    let other = informer.add_handler(journal.clone());
    informer.start();
    journal.tells(&["+a0 0 (initial)", "+a0 0 (initial)"]).await;
    one.remove();
    one.remove();
    stage.put("a0", "1").await;
    let expected = ["+a0 0 (initial)", "+a0 0 (initial)", "a0 0>1"];
    journal.tells(&expected).await;
    other.remove();
    stage.put("a0", "2").await;
    until("the store's update", || {
        let first = informer.store().object("n/a0");
        first.is_some_and(|first| state_of(&first) == "2")
    })
    .await;
    informer.shutdown().await;
    assert_eq!(journal.lines(), expected);
}

#[tokio::test]
async fn a_resync_tells_every_object_again_and_asks_the_server_nothing() {
    let stage = Stage::with_objects(2).await;
    let (informer, resynced, other) = (stage.informer(), Journal::new(), Journal::new());
    let options = HandlerOptions::named("resynced").with_resync(Duration::from_secs(1));
    informer.add_handler_with(resynced.clone(), options);
    informer.add_handler(other.clone());
    informer.start();
    until("a resync", || resynced.lines().len() >= 4).await;
    let mut lines = resynced.lines()[2..4].to_vec();
    lines.sort_unstable();
    assert_eq!(lines, ["a0 0>0", "a1 0>0"]);
    assert_eq!(other.lines().len(), 2);
    assert_eq!(informer.counts().replaced, 1);
    informer.shutdown().await;
}

#[tokio::test]
async fn starting_again_changes_nothing() {
    let stage = Stage::with_objects(1).await;
    let (informer, journal) = started(&stage).await;
    informer.start();
    stage.put("a0", "1").await;
    journal.tells(&["+a0 0 (initial)", "a0 0>1"]).await;
    assert_eq!(stage.server.watch_count(), 1);
    informer.shutdown().await;
}

#[tokio::test]
async fn after_the_end_nothing_runs_and_nobody_is_added() {
    let stage = Stage::with_objects(1).await;
    let (informer, journal) = (stage.informer(), Journal::new());
    let registration = informer.add_handler(journal.clone());
    informer.start();
    journal.tells(&["+a0 0 (initial)"]).await;
    soon("the end", informer.shutdown()).await;
    until("the watch's end", || stage.server.watch_count() == 0).await;
    stage.put("a0", "1").await;
    assert_eq!(registration.ended(), Some(HandlerEnd::ShutDown));
    registration.remove();

    let late = informer.add_handler(journal.clone());
    assert_eq!(late.ended(), Some(HandlerEnd::ShutDown));
    assert_eq!(late.synced().await, Err(HandlerEnd::ShutDown));
    assert_eq!(journal.lines(), ["+a0 0 (initial)"]);
    // The store can still be read.
    assert_eq!(informer.store().len(), 1);
}

#[tokio::test]
async fn a_stream_gives_what_is_there_and_what_comes_and_ends_with_the_informer() {
    let stage = Stage::with_objects(1).await;
    let informer = stage.informer();
    let mut changes = informer.subscribe();
    informer.start();
    let first = soon("the first object", changes.next()).await;
    let is_initial = |object: &Arc<Cached<ConfigMap>>| object.key().as_str() == "n/a0";
    assert!(matches!(
        first,
        Some(Notification::Added { object, in_initial_list: true }) if is_initial(&object)
    ));
    stage.delete("a0").await;
    let second = soon("the deletion", changes.next()).await;
    assert!(matches!(
        second,
        Some(Notification::Deleted {
            final_state_known: true,
            ..
        })
    ));
    informer.shutdown().await;
    assert!(soon("the end", changes.next()).await.is_none());
}
