//! Ways to store an informer's objects with an index by node: the library's, and those it is compared with.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use arc_swap::ArcSwap;
use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashSet};
use kube_fanout::informer::{Cached, Indexer, cached_key, index_by};
use kube_fanout::resource::ObjectKey;
use rpds::HashTrieMapSync;
use std::hash::BuildHasher as _;

/// A pod as a typed informer holds it, reduced to the field that is read; padding replaces the others.
#[derive(Debug)]
pub(crate) struct Pod {
    pub(crate) node: String,
    pub(crate) _rest: [u64; 24],
}

pub(crate) type Stored = Arc<Cached<Pod>>;

/// A store that one thread at a time writes and any thread reads.
pub(crate) trait Store: Sync {
    fn new() -> Self;
    fn put(&self, object: Stored);
    fn object(&self, key: &str) -> Option<Stored>;
    fn on_node(&self, node: &str) -> Vec<Stored>;
    /// Visits all objects at one moment, in the way that blocks the writer the least.
    fn walk(&self, each: &mut dyn FnMut(&Stored));
}

/// The library's store.
pub(crate) struct Ours(Indexer<Cached<Pod>>);

impl Store for Ours {
    fn new() -> Self {
        let indexer = Indexer::new(cached_key());
        let node = index_by(|pod: &Cached<Pod>| [pod.node.clone()]);
        indexer.add_index("node", node).expect("the only one");
        Self(indexer)
    }

    fn put(&self, object: Stored) {
        self.0.put(object).expect("it has a name");
    }

    fn object(&self, key: &str) -> Option<Stored> {
        self.0.object(key)
    }

    fn on_node(&self, node: &str) -> Vec<Stored> {
        self.0.by_index("node", node).expect("it is there")
    }

    fn walk(&self, each: &mut dyn FnMut(&Stored)) {
        self.0.snapshot().iter().for_each(each);
    }
}

type Map<K, V> = HashMap<K, V, RandomState>;
type Nodes = Map<String, HashSet<ObjectKey, RandomState>>;

/// The index update of all other stores: computes the node of the old and the new object and changes the sets if they differ.
fn reindex(nodes: &mut Nodes, old: Option<&Stored>, new: &Stored) {
    let (old_node, node) = (old.map(|old| old.node.clone()), new.node.clone());
    if old_node.as_ref() == Some(&node) {
        return;
    }
    if let Some(old_node) = old_node
        && let Some(keys) = nodes.get_mut(&old_node)
    {
        keys.remove(new.key().as_str());
        if keys.is_empty() {
            nodes.remove(&old_node);
        }
    }
    nodes.entry(node).or_default().insert(new.key().clone());
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// client-go's way: one lock, one map, index functions called under the lock, lists copied under it.
pub(crate) struct OneMap(RwLock<(Map<ObjectKey, Stored>, Nodes)>);

impl Store for OneMap {
    fn new() -> Self {
        Self(RwLock::default())
    }

    fn put(&self, object: Stored) {
        let mut guard = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let (objects, nodes) = &mut *guard;
        let old = objects.insert(object.key().clone(), Arc::clone(&object));
        reindex(nodes, old.as_ref(), &object);
    }

    fn object(&self, key: &str) -> Option<Stored> {
        let guard = self.0.read().unwrap_or_else(PoisonError::into_inner);
        guard.0.get(key).cloned()
    }

    fn on_node(&self, node: &str) -> Vec<Stored> {
        let guard = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let (objects, nodes) = &*guard;
        let keys = nodes.get(node).into_iter().flatten();
        keys.filter_map(|key| objects.get(key).cloned()).collect()
    }

    fn walk(&self, each: &mut dyn FnMut(&Stored)) {
        let guard = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let all: Vec<_> = guard.0.values().cloned().collect();
        drop(guard);
        all.iter().for_each(each);
    }
}

/// Shards of about 200 objects, so that both the list of shards and a shard are cheap to copy.
const SHARDS: usize = 512;

type Shard = Arc<Map<ObjectKey, Stored>>;

/// One lock over maps that are shared with readers that list; a change copies a map while it is shared.
pub(crate) struct Shards {
    hasher: RandomState,
    guarded: RwLock<(Vec<Shard>, Nodes)>,
}

impl Shards {
    #[expect(clippy::cast_possible_truncation, reason = "a remainder")]
    fn shard(&self, key: &str) -> usize {
        (self.hasher.hash_one(key) % SHARDS as u64) as usize
    }
}

impl Store for Shards {
    fn new() -> Self {
        let shards = (0..SHARDS).map(|_| Arc::default()).collect();
        Self {
            hasher: RandomState::default(),
            guarded: RwLock::new((shards, Nodes::default())),
        }
    }

    fn put(&self, object: Stored) {
        let shard = self.shard(object.key().as_str());
        let mut guard = self.guarded.write().unwrap_or_else(PoisonError::into_inner);
        let (shards, nodes) = &mut *guard;
        let shard = Arc::make_mut(&mut shards[shard]);
        let old = shard.insert(object.key().clone(), Arc::clone(&object));
        reindex(nodes, old.as_ref(), &object);
    }

    fn object(&self, key: &str) -> Option<Stored> {
        let shard = self.shard(key);
        let guard = self.guarded.read().unwrap_or_else(PoisonError::into_inner);
        guard.0[shard].get(key).cloned()
    }

    fn on_node(&self, node: &str) -> Vec<Stored> {
        let guard = self.guarded.read().unwrap_or_else(PoisonError::into_inner);
        let (shards, nodes) = &*guard;
        let keys = nodes.get(node).into_iter().flatten();
        keys.filter_map(|key| shards[self.shard(key.as_str())].get(key).cloned())
            .collect()
    }

    fn walk(&self, each: &mut dyn FnMut(&Stored)) {
        let guard = self.guarded.read().unwrap_or_else(PoisonError::into_inner);
        let shards = guard.0.clone();
        drop(guard);
        shards
            .iter()
            .flat_map(|shard| shard.values())
            .for_each(each);
    }
}

type Trie<K, V> = HashTrieMapSync<K, V, RandomState>;

#[derive(Clone)]
struct Persistent {
    objects: Trie<ObjectKey, Stored>,
    nodes: Trie<String, Trie<ObjectKey, ()>>,
}

/// Persistent maps; each change makes a new version, and readers load the newest without a lock.
pub(crate) struct Tries {
    newest: ArcSwap<Persistent>,
    writer: Mutex<()>,
}

fn trie<K: std::hash::Hash + Eq, V>() -> Trie<K, V> {
    HashTrieMapSync::new_with_hasher_and_ptr_kind(RandomState::default())
}

impl Store for Tries {
    fn new() -> Self {
        Self {
            newest: ArcSwap::from_pointee(Persistent {
                objects: trie(),
                nodes: trie(),
            }),
            writer: Mutex::default(),
        }
    }

    fn put(&self, object: Stored) {
        let _one = locked(&self.writer);
        let mut next = Persistent::clone(&self.newest.load());
        let old_node = next
            .objects
            .get(object.key().as_str())
            .map(|old| old.node.clone());
        let node = object.node.clone();
        if old_node.as_ref() != Some(&node) {
            if let Some(old_node) = old_node
                && let Some(keys) = next.nodes.get(&old_node)
            {
                let keys = keys.remove(object.key().as_str());
                next.nodes.insert_mut(old_node, keys);
            }
            let keys = next.nodes.get(&node).cloned().unwrap_or_else(trie);
            next.nodes
                .insert_mut(node, keys.insert(object.key().clone(), ()));
        }
        next.objects.insert_mut(object.key().clone(), object);
        self.newest.store(Arc::new(next));
    }

    fn object(&self, key: &str) -> Option<Stored> {
        self.newest.load().objects.get(key).cloned()
    }

    fn on_node(&self, node: &str) -> Vec<Stored> {
        let newest = self.newest.load();
        let keys = newest.nodes.get(node).into_iter().flat_map(Trie::keys);
        keys.filter_map(|key| newest.objects.get(key).cloned())
            .collect()
    }

    fn walk(&self, each: &mut dyn FnMut(&Stored)) {
        self.newest.load_full().objects.values().for_each(each);
    }
}
