//! What the store holds: representations of objects, objects that cannot be decoded, and failures that are reported to the hook.

use std::sync::{Arc, Mutex};

use http::Method;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_fanout::informer::{
    Cached, FailureKind, InformerOptions, ListWatch, SharedInformer, TransformError, WatchFailure,
};
use kube_fanout::resource::Gvr;
use kube_fanout_testkit::apiserver::faults::Fault;
use kube_fanout_testkit::apiserver::request::Verb;
use serde::Deserialize;

use crate::informer::stage::{Journal, Stage, soon, state_of};
use crate::support::history::{order, until};

fn config_maps() -> Gvr {
    Gvr::new("", "v1", "configmaps")
}

#[tokio::test]
async fn any_serde_type_and_raw_bytes_and_metadata_alone_are_read() {
    #[derive(Deserialize)]
    struct Data {
        data: State,
    }
    #[derive(Deserialize)]
    struct State {
        state: String,
    }
    let stage = Stage::with_objects(1).await;
    let client = || Arc::clone(&stage.client);

    let typed = SharedInformer::new(client(), ListWatch::<Data>::typed(&config_maps()));
    let raw = SharedInformer::new(client(), ListWatch::raw(&config_maps()));
    let metadata = SharedInformer::new(client(), ListWatch::metadata(&config_maps()));
    typed.start();
    raw.start();
    metadata.start();
    soon("all lists", async {
        typed.synced().await.unwrap();
        raw.synced().await.unwrap();
        metadata.synced().await.unwrap();
    })
    .await;

    let object = typed.store().object("n/a0").unwrap();
    assert_eq!(object.data.state, "0");
    let object = raw.store().object("n/a0").unwrap();
    assert_eq!(object.read::<Data>().unwrap().data.state, "0");
    let object = metadata.store().object("n/a0").unwrap();
    assert_eq!(object.metadata.name.as_deref(), Some("a0"));
    assert_eq!(object.label("state"), Some("0"));
}

#[tokio::test]
async fn the_transform_runs_before_the_store_and_what_it_refuses_keeps_its_last_state() {
    let stage = Stage::with_objects(2).await;
    let transform = |object: &mut Cached<ConfigMap>| {
        if state_of(object) == "bad" {
            return Err(TransformError::new("it is bad"));
        }
        let data = object.object_mut().data.get_or_insert_default();
        if let Some(state) = data.get_mut("state") {
            state.insert(0, '~');
        }
        Ok(())
    };
    let options = InformerOptions {
        transform: Some(Arc::new(transform)),
        ..InformerOptions::default()
    };
    let list_watch = ListWatch::of_kind();
    let informer = SharedInformer::with_options(Arc::clone(&stage.client), list_watch, options);
    let journal = Journal::new();
    informer.add_handler(journal.clone());
    informer.start();
    soon("the first list", informer.synced()).await.unwrap();
    stage.put("a0", "bad").await;
    stage.put("a1", "1").await;
    until("both objects", || journal.lines().len() >= 3).await;
    assert_eq!(journal.lines()[2], "a1 ~0>~1");
    assert_eq!(state_of(&informer.store().object("n/a0").unwrap()), "~0");
    assert_eq!(informer.counts().failures(FailureKind::Transform), 1);
    // The deletion is delivered although the transform refuses the object.
    stage.delete("a0").await;
    until("the deletion", || journal.lines().len() >= 4).await;
    assert_eq!(informer.store().len(), 1);
    informer.shutdown().await;
}

#[tokio::test]
async fn an_object_of_another_form_keeps_its_last_state_and_others_go_on() {
    #[derive(Deserialize)]
    struct Numbered {
        data: Number,
    }
    #[derive(Deserialize)]
    struct Number {
        #[serde(deserialize_with = "digits")]
        state: u64,
    }
    fn digits<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
    let stage = Stage::with_objects(2).await;
    let list_watch = ListWatch::<Numbered>::typed(&config_maps());
    let informer = SharedInformer::new(Arc::clone(&stage.client), list_watch);
    informer.start();
    soon("the first list", informer.synced()).await.unwrap();
    let state = |key: &str| informer.store().object(key).map(|object| object.data.state);
    stage.put("a0", "seven").await;
    stage.put("a1", "7").await;
    until("the other object", || state("n/a1") == Some(7)).await;
    assert_eq!(state("n/a0"), Some(0));
    assert_eq!(informer.counts().failures(FailureKind::Undecodable), 1);
    stage.put("a0", "8").await;
    until("an object that can be decoded", || state("n/a0") == Some(8)).await;
    informer.shutdown().await;
}

#[tokio::test]
async fn failures_are_told_to_the_hook_and_the_informer_goes_on() {
    let stage = Stage::with_objects(1).await;
    let refuse = Fault::Refuse {
        code: 500,
        retry_after_seconds: 0,
    };
    order(&stage.server, refuse, Some(Verb::List), 1);
    let failures = Arc::new(Mutex::new(Vec::new()));
    let options = InformerOptions {
        on_failure: Some(Arc::new({
            let failures = Arc::clone(&failures);
            move |failure: &WatchFailure| failures.lock().unwrap().push(failure.to_string())
        })),
        ..InformerOptions::default()
    };
    let list_watch = ListWatch::<ConfigMap>::of_kind().in_pages(500);
    let informer = SharedInformer::with_options(Arc::clone(&stage.client), list_watch, options);
    informer.start();
    soon("the first list", informer.synced()).await.unwrap();
    assert_eq!(informer.store().len(), 1);
    let failures = failures.lock().unwrap();
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert!(failures[0].contains("500"), "{failures:?}");
    assert_eq!(informer.counts().failures(FailureKind::Refused), 1);
}

#[tokio::test]
async fn the_version_reached_is_the_servers() {
    let stage = Stage::with_objects(2).await;
    let informer = stage.informer();
    assert_eq!(informer.counts().last_version, None);
    informer.start();
    soon("the first list", informer.synced()).await.unwrap();
    stage.put("a0", "1").await;
    let (_, list) = stage.send(Method::GET, "/api/v1/configmaps", None).await;
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    until("the server's version", || {
        let reached = informer.counts().last_version;
        reached.is_some_and(|reached| reached.to_string() == version)
    })
    .await;
    informer.shutdown().await;
}
