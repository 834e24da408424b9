//! The feed against a scripted upstream with a paused clock, which moves only when all tasks wait; and against an API server.

use std::time::Duration;

use kube_fanout_testkit::apiserver::kinds::ObjectKey;
use kube_fanout_testkit::apiserver::store::Write;
use kube_fanout_testkit::apiserver::{self, Options};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{self, Receiver};
use tokio::task::JoinSet;
use tokio::time::{advance, timeout};

use super::*;
use crate::auth::user::User;
use crate::cache::WatchCache;
use crate::cache::samples::{Recorder, Sample, World};
use crate::upstream::client::ConnectSource;
use crate::upstream::driver::samples::scripted::{
    Asked, EXPIRED, Feed, Script, bookmark, marker, push, settled, sort_of,
};

const MINUTE: Duration = Duration::from_secs(60);
/// Longer than every pause between two attempts.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A cache with its age.
type CacheSlot = Arc<Mutex<Option<(Arc<WatchCache>, Duration)>>>;

/// A feed whose upstream is scripted.
struct Stage {
    followed: Arc<Followed>,
    told: Arc<Mutex<Vec<Box<str>>>>,
    listed: Arc<Mutex<Option<LivenessCheck>>>,
    /// The cache of pods, with its age.
    cache: CacheSlot,
    requests: Receiver<Asked>,
    /// Requests that came before the one that a test waited for.
    early: Vec<Asked>,
    _running: JoinSet<()>,
}

impl Stage {
    fn start() -> Self {
        let (script, requests) = Script::new();
        let followed = Arc::<Followed>::default();
        let told = Arc::<Mutex<Vec<Box<str>>>>::default();
        let listed = Arc::<Mutex<Option<LivenessCheck>>>::default();
        let cache = CacheSlot::default();
        let (deletions, lists) = (Arc::clone(&told), Arc::clone(&listed));
        let reports = DeletionReports {
            on_deleted: Arc::new(move |uids| deletions.lock().extend(uids)),
            on_listed: Arc::new(move |is_live| *lists.lock() = Some(is_live)),
        };
        let feed = BoundObjectFeed::new(script, Arc::clone(&followed), reports);
        let kept = Arc::clone(&cache);
        let caches: CacheLookup = Arc::new(move |gvr| {
            let kept = kept.lock().clone().filter(|_| &*gvr.resource == "pods");
            kept.map(|(cache, age)| KeptCache { cache, age })
        });
        let mut running = JoinSet::new();
        running.spawn(async move {
            feed.run(&caches).await;
        });
        Self {
            followed,
            told,
            listed,
            cache,
            requests,
            early: Vec::new(),
            _running: running,
        }
    }

    /// The next request for this resource. The two resources are read side by side.
    async fn request(&mut self, resource: &str) -> Asked {
        let path = format!("/api/v1/{resource}?");
        if let Some(index) = self
            .early
            .iter()
            .position(|one| one.path.starts_with(&path))
        {
            return self.early.remove(index);
        }
        loop {
            let request = timeout(TIMEOUT, self.requests.recv()).await;
            let request = request.unwrap().unwrap();
            if request.path.starts_with(&path) {
                return request;
            }
            self.early.push(request);
        }
    }

    /// The streams of both resources.
    async fn streams(&mut self) -> (Feed, Feed) {
        let pods = self.request("pods").await;
        assert_eq!(sort_of(&pods.path), "stream 0");
        let accounts = self.request("serviceaccounts").await;
        (pods.open(), accounts.open())
    }

    async fn is_followed(&self) -> bool {
        advance(CONTACT_PERIOD).await;
        settled().await;
        self.followed.has_bound_objects()
    }

    /// Whether a token that is bound to this pod is live, by the last list.
    fn is_live(&self, pod: &str) -> bool {
        let key = "authentication.kubernetes.io/pod-uid".to_owned();
        let user = User {
            name: "system:serviceaccount:a:default".to_owned(),
            uid: "u2".to_owned(),
            extra: [(key, vec![pod.to_owned()])].into(),
            ..User::default()
        };
        let listed = self.listed.lock();
        listed.as_ref().unwrap()(&user)
    }

    #[track_caller]
    fn expect_told(&self, uids: &[&str]) {
        let told = std::mem::take(&mut *self.told.lock());
        let told: Vec<&str> = told.iter().map(|uid| &**uid).collect();
        assert_eq!(told, uids);
    }
}

fn line(kind: &str, key: &str, uid: u64, version: u64) -> String {
    let mut sample = Sample::new(key, version);
    sample.uid = uid;
    format!("{{\"type\":\"{kind}\",\"object\":{}}}\n", sample.json().0)
}

#[tokio::test(start_paused = true)]
async fn deletions_are_noticed_while_both_watches_are_heard_of() {
    let mut stage = Stage::start();
    let (pods, accounts) = stage.streams().await;
    push(&pods, &[line("ADDED", "a/x", 1, 3), marker(5)]).await;
    push(&accounts, &[line("ADDED", "a/default", 2, 3)]).await;
    assert!(!stage.is_followed().await);
    push(&accounts, &[marker(5)]).await;
    assert!(stage.is_followed().await);
    // Service accounts are heard of no more.
    for version in 6..9 {
        push(&pods, &[bookmark(version)]).await;
        assert!(stage.is_followed().await);
        advance(MINUTE).await;
    }
    push(&pods, &[bookmark(9)]).await;
    assert!(!stage.is_followed().await);
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_gone_when_its_deletion_is_complete() {
    let mut stage = Stage::start();
    let (pods, accounts) = stage.streams().await;
    push(&pods, &[line("ADDED", "a/x", 1, 3), marker(5)]).await;
    push(&accounts, &[line("ADDED", "a/default", 2, 3), marker(5)]).await;
    let deleting = line("MODIFIED", "a/x", 1, 6).replacen(
        "\"metadata\":{",
        "\"metadata\":{\"deletionTimestamp\":\"2026-01-01T00:00:00Z\",",
        1,
    );
    push(&pods, &[deleting]).await;
    stage.expect_told(&[]);
    push(&pods, &[line("DELETED", "a/x", 1, 7)]).await;
    stage.expect_told(&["u1"]);
    push(&accounts, &[line("DELETED", "a/default", 2, 8)]).await;
    stage.expect_told(&["u2"]);
}

#[tokio::test(start_paused = true)]
async fn deletions_that_no_watch_brought_are_found_by_the_next_list() {
    let mut stage = Stage::start();
    let (pods, _accounts) = stage.streams().await;
    let initial = [
        line("ADDED", "a/x", 1, 3),
        line("ADDED", "a/y", 2, 4),
        marker(5),
    ];
    push(&pods, &initial).await;
    push(&pods, &[EXPIRED.to_owned()]).await;
    let again = stage.request("pods").await;
    assert!(sort_of(&again.path).starts_with("stream"), "{}", again.path);
    let pods = again.open();
    // The second pod has the name of the one before it.
    let replaced = [
        line("ADDED", "a/x", 1, 3),
        line("ADDED", "a/y", 7, 8),
        marker(9),
    ];
    push(&pods, &replaced).await;
    stage.expect_told(&[]);
    assert!(stage.is_live("u1") && stage.is_live("u7") && !stage.is_live("u2"));
}

#[tokio::test(start_paused = true)]
async fn a_token_is_live_while_both_its_pod_and_its_account_are() {
    let mut stage = Stage::start();
    let (pods, accounts) = stage.streams().await;
    push(&pods, &[line("ADDED", "a/x", 1, 3), marker(5)]).await;
    // Accounts are not known yet.
    assert!(stage.is_live("u1") && !stage.is_live("u3"));
    push(&accounts, &[line("ADDED", "a/default", 2, 3), marker(5)]).await;
    assert!(stage.is_live("u1") && !stage.is_live("u3"));
    push(&accounts, &[line("DELETED", "a/default", 2, 6)]).await;
    assert!(!stage.is_live("u1"));
}

/// Before 200 kubelets a second watch of pods would cost upstream more than the gateway saves.
#[tokio::test(start_paused = true)]
async fn a_cache_that_clients_use_takes_the_place_of_the_watch_and_gives_it_back() {
    let mut stage = Stage::start();
    let (pods, accounts) = stage.streams().await;
    push(&pods, &[line("ADDED", "a/x", 1, 3), marker(5)]).await;
    push(&accounts, &[line("ADDED", "a/default", 2, 3), marker(5)]).await;
    assert!(stage.is_followed().await);

    let mut world = World::new(7, 100, Arc::<Recorder>::default());
    let changes = vec![world.write("a/y", None), world.write("a/z", None)];
    world.apply(changes);
    let [y, z] = ["a/y", "a/z"].map(|key| format!("u{}", world.state[key].uid));
    let cache = Arc::clone(world.writer.cache());
    *stage.cache.lock() = Some((Arc::clone(&cache), Duration::ZERO));
    advance(READ_PERIOD).await;
    settled().await;
    assert!(pods.is_closed(), "upstream is watched once");
    assert!(stage.is_live(&y) && stage.is_live(&z));
    assert!(!stage.is_live("u1"), "it went before the cache took over");
    let deletion = world.delete("a/y").unwrap();
    world.apply(vec![deletion]);
    advance(READ_PERIOD).await;
    settled().await;
    stage.expect_told(&[&y]);

    // The cache ends; what is deleted until the watch has listed is in no event.
    *stage.cache.lock() = None;
    stage.listed.lock().take();
    let pods = stage.request("pods").await;
    assert!(stage.followed.has_bound_objects());
    assert!(stage.listed.lock().is_none());
    push(&pods.open(), &[line("ADDED", "a/x", 1, 3), marker(500)]).await;
    assert!(stage.is_live("u1") && !stage.is_live(&z));
    stage.expect_told(&[]);
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_upstream_has_not_proven_for_long_is_not_relied_on() {
    let mut stage = Stage::start();
    let world = World::new(7, 100, Arc::<Recorder>::default());
    let cache = Arc::clone(world.writer.cache());
    *stage.cache.lock() = Some((Arc::clone(&cache), Duration::ZERO));
    let accounts = stage.request("serviceaccounts").await.open();
    push(&accounts, &[marker(5)]).await;
    assert!(stage.is_followed().await);
    assert!(stage.early.is_empty(), "pods are not read upstream");
    *stage.cache.lock() = Some((cache, Duration::from_secs(180)));
    // The cache is read first; silence is looked for by then at the latest.
    stage.is_followed().await;
    assert!(!stage.is_followed().await);
}

#[tokio::test(start_paused = true)]
async fn without_the_right_nothing_is_followed_until_it_is_granted() {
    let mut stage = Stage::start();
    let pods = stage.request("pods").await.open();
    push(&pods, &[marker(5)]).await;
    let mut refusals = 0;
    let end = Instant::now() + 5 * MINUTE;
    while Instant::now() < end {
        let request = stage.request("serviceaccounts").await;
        request.refuse(403).await;
        refusals += 1;
        push(&pods, &[bookmark(5 + refusals)]).await;
        assert!(!stage.is_followed().await);
    }
    assert!((3..60).contains(&refusals), "{refusals}");
    let request = stage.request("serviceaccounts").await;
    match sort_of(&request.path).starts_with("list") {
        true => {
            let list = r#"{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"400"},"items":[]}"#;
            request.whole(200, list).await;
        }
        false => push(&request.open(), &[marker(400)]).await,
    }
    settled().await;
    assert!(stage.is_followed().await);
}

async fn next(told: &mut Receiver<Vec<Box<str>>>) -> Vec<Box<str>> {
    timeout(TIMEOUT, told.recv()).await.unwrap().unwrap()
}

fn uid(object: &[u8]) -> Box<str> {
    let object: Value = serde_json::from_slice(object).unwrap();
    object["metadata"]["uid"].as_str().unwrap().into()
}

#[tokio::test]
async fn an_api_server_tells_which_pod_and_which_service_account_is_gone() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = apiserver::start(listener, Options::default()).unwrap();
    let store = server.store();
    let mut created = Vec::new();
    for resource in ["pods", "serviceaccounts"] {
        let kinds = server.catalogue().kinds();
        let index = kinds.iter().position(|kind| kind.plural == resource);
        let index = index.unwrap();
        for name in ["kept", "deleted"] {
            let object = json!({"metadata": {"name": name}});
            store
                .write(Write::create(index, "default", object))
                .unwrap();
        }
        let key = ObjectKey::new("default", "deleted");
        let uid = uid(&store.object(index, &key).unwrap());
        created.push((index, key, uid));
    }
    let source = ConnectSource::url(&format!("http://{}", server.address())).unwrap();
    let client = Client::connect(source).await.unwrap();
    let followed = Arc::<Followed>::default();
    let (send, mut told) = mpsc::channel(16);
    let reports = DeletionReports {
        on_deleted: Arc::new(move |uids| send.try_send(uids).unwrap()),
        on_listed: Arc::new(|_| {}),
    };
    let feed = BoundObjectFeed::new(client, Arc::clone(&followed), reports);
    let caches: CacheLookup = Arc::new(|_| None);
    let mut running = JoinSet::new();
    running.spawn(async move {
        feed.run(&caches).await;
    });
    let is_followed = async {
        while !followed.has_bound_objects() {
            tokio::task::yield_now().await;
        }
    };
    timeout(TIMEOUT, is_followed).await.unwrap();
    for (index, key, uid) in created {
        store.write(Write::delete(index, key)).unwrap();
        assert_eq!(next(&mut told).await, [uid]);
    }
}
