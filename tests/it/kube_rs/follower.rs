//! One watcher of kube-rs with its store: what it holds, what befell it, and what it should hold.

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

/// So long a store may take to be filled or to agree.
const PATIENCE: Duration = Duration::from_secs(60);
/// A store is compared again after its next event, or after so long: the truth may move, too.
const LOOK_PERIOD: Duration = Duration::from_millis(100);
/// Objects whose versions went back are told, up to so many.
const WENT_BACK_MAX: usize = 5;

/// `namespace/name` → the whole object.
pub(crate) type Objects = BTreeMap<String, Value>;

/// What kube-rs can watch and this test can compare.
pub(crate) trait Followed:
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

impl<K> Followed for K where
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

/// The same collection, as the client sees it and as it is.
pub(crate) struct Collection<K: Resource> {
    pub(crate) watched: Api<K>,
    pub(crate) truth: Api<K>,
    pub(crate) dynamic_type: K::DynamicType,
}

/// A running watcher; dropping it ends it.
pub(crate) struct Follower {
    name: String,
    held: Box<dyn Fn() -> Objects + Send + Sync>,
    truth: Box<dyn Fn() -> BoxFuture<'static, Objects> + Send + Sync>,
    course: watch::Receiver<Course>,
    _task: JoinSet<()>,
}

/// What befell a watcher.
#[derive(Clone, Debug, Default)]
pub(crate) struct Course {
    /// Times it began to list.
    pub(crate) lists_begun: u64,
    /// Times it had a whole list.
    pub(crate) lists_done: u64,
    /// Single changes, not those of lists.
    pub(crate) changes: u64,
    /// Changes that were not newer than the one before.
    pub(crate) out_of_order: u64,
    /// Objects that came in a version older than one that came before, the first few.
    pub(crate) went_back: Vec<String>,
    /// Errors that kube-rs told.
    pub(crate) errors: Vec<String>,
    last: u64,
    /// Newest version of each object, also of those that are gone.
    newest: BTreeMap<String, u64>,
}

impl Course {
    fn take<K: Resource>(&mut self, event: &watcher::Result<watcher::Event<K>>) {
        match event {
            Ok(watcher::Event::Init) => {
                self.lists_begun += 1;
                self.last = 0;
            }
            Ok(watcher::Event::InitApply(object)) => self.check_newer(object),
            Ok(watcher::Event::InitDone) => self.lists_done += 1,
            Ok(watcher::Event::Apply(object) | watcher::Event::Delete(object)) => {
                let version = version_of(object);
                self.changes += 1;
                self.check_newer(object);
                self.out_of_order += u64::from(version <= self.last);
                self.last = version;
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

fn objects<'a, K: Followed>(all: impl IntoIterator<Item = &'a K>) -> Objects {
    let named = |object: &K| {
        let mut value = serde_json::to_value(object).unwrap();
        // Watches name the kind of each object, lists of compiled-in kinds do not.
        if let Some(fields) = value.as_object_mut() {
            fields.remove("apiVersion");
            fields.remove("kind");
        }
        (key_of(object), value)
    };
    all.into_iter().map(named).collect()
}

impl Follower {
    /// Begins to watch a collection.
    pub(crate) fn start<K: Followed>(
        name: impl Into<String>,
        collection: Collection<K>,
        config: watcher::Config,
    ) -> Self {
        let mut wanted = ListParams::default();
        wanted.label_selector.clone_from(&config.label_selector);
        wanted.field_selector.clone_from(&config.field_selector);
        let truth = move || -> BoxFuture<'static, Objects> {
            let (api, wanted) = (collection.truth.clone(), wanted.clone());
            Box::pin(async move { objects(&api.list(&wanted).await.unwrap().items) })
        };
        let writer = reflector::store::Writer::<K>::new(collection.dynamic_type);
        let store = writer.as_reader();
        let held = move || objects(store.state().iter().map(AsRef::as_ref));
        let (tell, course) = watch::channel(Course::default());
        let mut task = JoinSet::new();
        task.spawn(async move {
            let events = watcher(collection.watched, config)
                .default_backoff()
                .reflect(writer);
            let mut events = std::pin::pin!(events);
            while let Some(event) = events.next().await {
                tell.send_modify(|course| course.take(&event));
            }
        });
        Self {
            name: name.into(),
            held: Box::new(held),
            truth: Box::new(truth),
            course,
            _task: task,
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// What the store holds.
    pub(crate) fn held(&self) -> Objects {
        (self.held)()
    }

    pub(crate) fn course(&self) -> Course {
        self.course.borrow().clone()
    }

    /// Waits until the first list is whole.
    pub(crate) async fn filled(&mut self) {
        let filled = self.course.wait_for(|course| course.lists_done > 0);
        if timeout(PATIENCE, filled).await.is_err() {
            panic!("{} has no list: {:?}", self.name, self.course());
        }
    }

    /// Whether the store is what the server holds.
    pub(crate) async fn agrees(&self) -> bool {
        (self.held)() == (self.truth)().await
    }

    /// Waits until the store is what the server holds; gives the number of objects.
    pub(crate) async fn converged(&mut self) -> usize {
        let agree = async {
            loop {
                self.course.borrow_and_update();
                let truth = (self.truth)().await;
                if (self.held)() == truth {
                    return truth.len();
                }
                // Either way it is looked at again.
                let _ = timeout(LOOK_PERIOD, self.course.changed()).await;
            }
        };
        match timeout(PATIENCE, agree).await {
            Ok(count) => count,
            Err(_) => self.differs((self.truth)().await),
        }
    }

    fn differs(&self, truth: Objects) -> ! {
        let held = (self.held)();
        let keys: std::collections::BTreeSet<_> = held.keys().chain(truth.keys()).collect();
        let differing: Vec<_> = keys
            .into_iter()
            .filter(|key| held.get(*key) != truth.get(*key))
            .map(|key| format!("{key}: {:?}, server: {:?}", held.get(key), truth.get(key)))
            .collect();
        panic!(
            "{} differs: {:?}\n{}",
            self.name,
            self.course(),
            differing.join("\n")
        );
    }

    /// Nothing failed, nothing was listed twice, and everything came in order.
    #[track_caller]
    pub(crate) fn check_undisturbed(&self) {
        let course = self.course();
        assert_eq!(
            (course.lists_begun, course.out_of_order, &course.errors),
            (1, 0, &Vec::new()),
            "{}: {course:?}",
            self.name
        );
    }
}
