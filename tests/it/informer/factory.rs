//! Informers shared through a factory.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube_fanout::informer::{ListWatch, Notification, SharedInformerFactory};

use crate::informer::stage::{Stage, soon};
use crate::support::history::until;

#[tokio::test]
async fn who_asks_for_the_same_shares_one_informer() {
    let stage = Stage::with_objects(1).await;
    let factory = SharedInformerFactory::new(Arc::clone(&stage.client));
    let all = || ListWatch::<ConfigMap>::of_kind();
    let one = factory.informer(all());
    assert!(Arc::ptr_eq(one.store(), factory.informer(all()).store()));
    let others = [
        factory.informer(all().in_namespace("n")),
        factory.informer(all().with_labels("state=0")),
        factory.informer(all().with_fields("metadata.name=a0")),
    ];
    for other in &others {
        assert!(!Arc::ptr_eq(one.store(), other.store()));
    }
    factory.informer(ListWatch::metadata(&one.collection().gvr));
    factory.start();
    soon("all lists", factory.wait_for_cache_sync())
        .await
        .unwrap();
    assert_eq!(stage.server.watch_count(), 5);
    factory.shutdown().await;
}

#[tokio::test]
async fn who_reads_otherwise_has_an_informer_of_their_own() {
    let stage = Stage::with_objects(1).await;
    let factory = SharedInformerFactory::new(Arc::clone(&stage.client));
    let all = || ListWatch::<ConfigMap>::of_kind();
    let others = [
        factory.informer(all()),
        factory.informer(all().without_managed_fields()),
        factory.informer(all().consistent()),
        factory.informer(all().in_pages(500)),
        factory.informer(all().in_pages(7)),
    ];
    for (at, one) in others.iter().enumerate() {
        for other in &others[at + 1..] {
            assert!(!Arc::ptr_eq(one.store(), other.store()), "{at}");
        }
    }
    let again = factory.informer(all().in_pages(7));
    assert!(Arc::ptr_eq(others[4].store(), again.store()));
    factory.shutdown().await;
}

#[tokio::test]
async fn an_informer_made_after_the_end_of_its_factory_has_ended() {
    let stage = Stage::with_objects(1).await;
    let factory = SharedInformerFactory::new(Arc::clone(&stage.client));
    factory.shutdown().await;
    let maps = factory.informer(ListWatch::<ConfigMap>::of_kind());
    assert!(soon("the refusal", maps.synced()).await.is_err());
    let handler = |_: &Notification<ConfigMap>| {};
    assert!(maps.add_handler(handler).ended().is_some());
    maps.start();
    soon("the end", factory.shutdown()).await;
    assert_eq!(stage.server.watch_count(), 0);
}

#[tokio::test]
async fn starting_again_starts_what_was_asked_for_since() {
    let stage = Stage::with_objects(1).await;
    let factory = SharedInformerFactory::new(Arc::clone(&stage.client));
    let maps = factory.informer(ListWatch::<ConfigMap>::of_kind());
    factory.start();
    let pods = factory.informer(ListWatch::<Pod>::of_kind());
    // The factory does not wait for informers that were not started.
    soon("the first list", factory.wait_for_cache_sync())
        .await
        .unwrap();
    assert!(maps.has_synced());
    assert!(!pods.has_synced());
    factory.start();
    soon("both lists", factory.wait_for_cache_sync())
        .await
        .unwrap();
    assert!(pods.has_synced());
    assert_eq!(stage.server.watch_count(), 2);
    factory.shutdown().await;
}

#[tokio::test]
async fn the_end_of_a_factory_is_the_end_of_its_informers() {
    let stage = Stage::with_objects(1).await;
    let factory = SharedInformerFactory::new(Arc::clone(&stage.client));
    let maps = factory.informer(ListWatch::<ConfigMap>::of_kind());
    factory.start();
    soon("the first list", factory.wait_for_cache_sync())
        .await
        .unwrap();
    soon("the end", factory.shutdown()).await;
    until("the watch's end", || stage.server.watch_count() == 0).await;
    factory.start();
    maps.start();
    stage.put("a0", "1").await;
    assert_eq!(stage.server.watch_count(), 0);
    soon("the end, again", factory.shutdown()).await;
}

/// The factory's shutdown waits for the handler; the other informers' handlers and all watches end without it.
#[tokio::test]
async fn a_handler_that_does_not_return_keeps_no_other_informer_from_ending() {
    let stage = Stage::with_objects(1).await;
    let factory = SharedInformerFactory::new(Arc::clone(&stage.client));
    let maps = factory.informer(ListWatch::<ConfigMap>::of_kind());
    let pods = factory.informer(ListWatch::<Pod>::of_kind());
    let (release, released) = crossbeam_channel::bounded::<()>(1);
    maps.add_handler(move |_: &Notification<ConfigMap>| {
        // Returns with an error when the sender is gone.
        let _ = released.recv();
    });
    let registration = pods.add_handler(|_: &Notification<Pod>| {});
    factory.start();
    soon("both lists", factory.wait_for_cache_sync())
        .await
        .unwrap();
    let ending = tokio::spawn(async move { factory.shutdown().await });
    soon("the end of the pods' handler", registration.removed()).await;
    until("the watches' end", || stage.server.watch_count() == 0).await;
    assert!(!ending.is_finished());
    drop(release);
    soon("the end", ending).await.unwrap();
}
