//! A kube-rs watcher with its store, statistics of its events, and the comparison of its store with the API server.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use kube::api::ListParams;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::support::PATIENCE;

/// A store is compared again after its next event or after this time, because the server's objects may change, too.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The most objects with a decreasing version that are reported.
const WENT_BACK_MAX: usize = 5;

/// `namespace/name` → the whole object.
pub(crate) type Objects = BTreeMap<String, Value>;

/// An object type that kube-rs can watch and this test can compare.
pub(crate) trait WatchableKind:
    Resource<DynamicType: Clone + Debug + Eq + Hash + Send + Sync + Unpin>
    + Clone
    + Debug
    + DeserializeOwned
    + Serialize
    + Send
    + Sync
    + 'static
{
}

impl<K> WatchableKind for K where
    K: Resource<DynamicType: Clone + Debug + Eq + Hash + Send + Sync + Unpin>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize
        + Send
        + Sync
        + 'static
{
}

/// The same collection through the gateway, and directly at the API server for comparison.
pub(crate) struct Collection<K: Resource> {
    pub(crate) watched: Api<K>,
    pub(crate) reference: Api<K>,
    pub(crate) dynamic_type: K::DynamicType,
}

/// A running watcher; dropping it stops it.
pub(crate) struct StoreWatcher {
    name: String,
    objects_in_store: Box<dyn Fn() -> Objects + Send + Sync>,
    reference: Box<dyn Fn() -> BoxFuture<'static, Objects> + Send + Sync>,
    stats: watch::Receiver<WatcherStats>,
    _task: JoinSet<()>,
}

/// Statistics of a watcher's events.
#[derive(Clone, Debug, Default)]
pub(crate) struct WatcherStats {
    /// The number of lists that it started.
    pub(crate) lists_started: u64,
    /// The number of lists that it completed.
    pub(crate) lists_done: u64,
    /// The number of watch events, without the objects of lists.
    pub(crate) changes: u64,
    /// The number of watch events that were not newer than the previous one.
    pub(crate) out_of_order: u64,
    /// The first few objects that were received in an older version than before.
    pub(crate) went_back: Vec<String>,
    /// The errors that kube-rs reported.
    pub(crate) errors: Vec<String>,
    last_version: u64,
    /// The newest version of each object, including deleted ones.
    newest: BTreeMap<String, u64>,
}

impl WatcherStats {
    fn record<K: Resource>(&mut self, event: &watcher::Result<watcher::Event<K>>) {
        match event {
            Ok(watcher::Event::Init) => {
                self.lists_started += 1;
                self.last_version = 0;
            }
            Ok(watcher::Event::InitApply(object)) => self.check_newer(object),
            Ok(watcher::Event::InitDone) => self.lists_done += 1,
            Ok(watcher::Event::Apply(object) | watcher::Event::Delete(object)) => {
                let version = version_of(object);
                self.changes += 1;
                self.check_newer(object);
                self.out_of_order += u64::from(version <= self.last_version);
                self.last_version = version;
            }
            Err(error) => self.errors.push(format!("{error:?}")),
        }
    }

    fn check_newer<K: Resource>(&mut self, object: &K) {
        let version = version_of(object);
        let newest = self.newest.entry(key_of(object)).or_default();
        if version < *newest && self.went_back.len() < WENT_BACK_MAX {
            let line = format!("{} at {version} after {newest}", key_of(object));
            self.went_back.push(line);
        }
        *newest = version.max(*newest);
    }
}

fn key_of<K: Resource>(object: &K) -> String {
    let namespace = object.namespace().unwrap_or_default();
    format!("{namespace}/{}", object.name_any())
}

fn version_of<K: Resource>(object: &K) -> u64 {
    object.resource_version().unwrap().parse().unwrap()
}

fn objects<'a, K: WatchableKind>(all: impl IntoIterator<Item = &'a K>) -> Objects {
    let named = |object: &K| {
        let mut value = serde_json::to_value(object).unwrap();
        // Watch events contain each object's kind, lists of compiled-in kinds do not.
        if let Some(fields) = value.as_object_mut() {
            fields.remove("apiVersion");
            fields.remove("kind");
        }
        (key_of(object), value)
    };
    all.into_iter().map(named).collect()
}

impl StoreWatcher {
    /// Starts to watch a collection.
    pub(crate) fn start<K: WatchableKind>(
        name: impl Into<String>,
        collection: Collection<K>,
        config: watcher::Config,
    ) -> Self {
        let mut list_params = ListParams::default();
        list_params
            .label_selector
            .clone_from(&config.label_selector);
        list_params
            .field_selector
            .clone_from(&config.field_selector);
        let reference = move || -> BoxFuture<'static, Objects> {
            let (api, list_params) = (collection.reference.clone(), list_params.clone());
            Box::pin(async move { objects(&api.list(&list_params).await.unwrap().items) })
        };
        let writer = reflector::store::Writer::<K>::new(collection.dynamic_type);
        let store = writer.as_reader();
        let objects_in_store = move || objects(store.state().iter().map(AsRef::as_ref));
        let (stats_sender, stats) = watch::channel(WatcherStats::default());
        let mut task = JoinSet::new();
        task.spawn(async move {
            let events = watcher(collection.watched, config)
                .default_backoff()
                .reflect(writer);
            let mut events = std::pin::pin!(events);
            while let Some(event) = events.next().await {
                stats_sender.send_modify(|stats| stats.record(&event));
            }
        });
        Self {
            name: name.into(),
            objects_in_store: Box::new(objects_in_store),
            reference: Box::new(reference),
            stats,
            _task: task,
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The store's objects.
    pub(crate) fn objects_in_store(&self) -> Objects {
        (self.objects_in_store)()
    }

    pub(crate) fn stats(&self) -> WatcherStats {
        self.stats.borrow().clone()
    }

    /// Waits until the first list is complete.
    pub(crate) async fn filled(&mut self) {
        let filled = self.stats.wait_for(|stats| stats.lists_done > 0);
        if timeout(PATIENCE, filled).await.is_err() {
            panic!("{} has no complete list: {:?}", self.name, self.stats());
        }
    }

    /// Whether the store equals the server's objects.
    pub(crate) async fn is_equal(&self) -> bool {
        (self.objects_in_store)() == (self.reference)().await
    }

    /// Waits until the store equals the server's objects; returns their number.
    pub(crate) async fn converged(&mut self) -> usize {
        let wait_until_equal = async {
            loop {
                self.stats.borrow_and_update();
                let reference = (self.reference)().await;
                if (self.objects_in_store)() == reference {
                    return reference.len();
                }
                // The store is compared again, whether there was a change or not.
                let _ = timeout(POLL_INTERVAL, self.stats.changed()).await;
            }
        };
        match timeout(PATIENCE, wait_until_equal).await {
            Ok(count) => count,
            Err(_) => self.panic_with_differences((self.reference)().await),
        }
    }

    fn panic_with_differences(&self, reference: Objects) -> ! {
        let objects_in_store = (self.objects_in_store)();
        let keys: std::collections::BTreeSet<_> =
            objects_in_store.keys().chain(reference.keys()).collect();
        let differing: Vec<_> = keys
            .into_iter()
            .filter(|key| objects_in_store.get(*key) != reference.get(*key))
            .map(|key| {
                format!(
                    "{key}: store {:?}, server {:?}",
                    objects_in_store.get(key),
                    reference.get(key)
                )
            })
            .collect();
        panic!(
            "the store of {} differs from the server: {:?}\n{}",
            self.name,
            self.stats(),
            differing.join("\n")
        );
    }

    /// Checks that there was no error and only one list, and that all events were in order.
    #[track_caller]
    pub(crate) fn check_undisturbed(&self) {
        let stats = self.stats();
        assert_eq!(
            (stats.lists_started, stats.out_of_order, &stats.errors),
            (1, 0, &Vec::new()),
            "{}: {stats:?}",
            self.name
        );
    }
}
