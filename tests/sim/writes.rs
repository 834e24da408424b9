//! The API server's state and the writes to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::json;

use super::history::History;
use super::plan::Writes;
use kube_fanout_testkit::apiserver::Apiserver;
use kube_fanout_testkit::apiserver::kinds::ObjectKey;
use kube_fanout_testkit::apiserver::store::Write;

/// Bytes of a large object: more than what delivery writes to a client at once.
const LARGE_LEN: usize = 70_000;
/// The writes of a burst.
const BURST: usize = 30;

/// The API server's state, which outlives its process.
#[derive(Clone, Default)]
pub(crate) struct Server {
    pub(crate) history: History,
    pub(crate) apiserver: Arc<Mutex<Option<Arc<Apiserver>>>>,
    pub(crate) random: Arc<Mutex<fastrand::Rng>>,
    /// No write is to begin any more, but the last ones.
    is_ending: Arc<AtomicBool>,
    is_quiet: Arc<AtomicBool>,
}

/// An object that is written.
struct ObjectWrite {
    index: usize,
    /// The object's data, unlike that of any other write.
    count: String,
    filler_len: usize,
    /// If the object exists, it is deleted.
    is_end: bool,
}

impl Server {
    pub(crate) fn with_seed(seed: u64) -> Self {
        Self {
            random: Arc::new(Mutex::new(fastrand::Rng::with_seed(seed))),
            ..Self::default()
        }
    }

    /// Lets the writes end.
    pub(crate) fn end_writes(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
    }

    /// Whether nothing is written any more.
    pub(crate) fn is_quiet(&self) -> bool {
        self.is_quiet.load(Ordering::Relaxed)
    }

    /// Changes objects until the faults end. Never returns.
    pub(crate) async fn write(&self, apiserver: &Apiserver, writes: Writes) -> turmoil::Result {
        let mut count = 0;
        if self.history.newest() == (0, 0) {
            for _ in 0..writes.first {
                count += 1;
                self.write_secret(apiserver, count);
            }
        }
        for _ in 0..3 {
            count += 1;
            self.write_object(apiserver, &self.draw(writes, count));
        }
        while !self.is_ending.load(Ordering::Relaxed) {
            let pause = self.random.lock().u64(0..=writes.pause_ms);
            tokio::time::sleep(Duration::from_millis(pause)).await;
            if self.random.lock().u8(..4) == 0 {
                count += 1;
                self.write_secret(apiserver, count);
            }
            if self.random.lock().u8(..100) >= writes.percent {
                continue;
            }
            let is_burst = self.random.lock().u8(..20) == 0;
            for _ in 0..if is_burst { BURST } else { 1 } {
                count += 1;
                self.write_object(apiserver, &self.draw(writes, count));
            }
        }
        // What is last is not pushed on by a later event. If it is long, it takes several writes to each client.
        for last in 0..3 {
            count += 1;
            let mut object = self.draw(writes, count);
            (object.index, object.is_end) = (0, false);
            if writes.has_large {
                object.filler_len = LARGE_LEN + last;
            }
            self.write_object(apiserver, &object);
        }
        self.is_quiet.store(true, Ordering::Relaxed);
        std::future::pending().await
    }

    fn draw(&self, writes: Writes, count: u64) -> ObjectWrite {
        let mut random = self.random.lock();
        let is_large = writes.has_large && random.u8(..25) == 0;
        ObjectWrite {
            index: random.usize(..writes.objects),
            count: format!("{count}-{}", random.u32(..)),
            filler_len: if is_large {
                LARGE_LEN
            } else {
                random.usize(..1_000)
            },
            is_end: random.u8(..4) == 0,
        }
    }

    fn write_object(&self, apiserver: &Apiserver, write: &ObjectWrite) {
        let name = format!("c{:02}", write.index);
        let namespace = ["default", "other"][write.index % 2];
        let key = ObjectKey::new(namespace, &name);
        let exists = self.history.exists(key.as_str());
        let side = ["left", "right"][self.random.lock().usize(..2)];
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": namespace, "labels": {"side": side}},
            "data": {"count": write.count, "filler": "x".repeat(write.filler_len)},
        });
        let kind_index = kind_index(apiserver, "configmaps");
        let write = match (exists, write.is_end) {
            (false, _) => Write::create(kind_index, namespace, object),
            (true, true) => Write::delete(kind_index, key),
            (true, false) => Write::merge(kind_index, key, object),
        };
        apiserver.store().write(write).unwrap();
    }

    /// Deletes an object, if there is one.
    pub(crate) fn delete_one(&self) {
        let newest = (self.history.life(), u64::MAX);
        let keys = self.history.at(newest, None).into_keys();
        let key = self.random.lock().choice(keys);
        let (Some(apiserver), Some(key)) = (self.apiserver.lock().clone(), key) else {
            return;
        };
        let (namespace, name) = key.split_once('/').unwrap();
        let kind_index = kind_index(&apiserver, "configmaps");
        let key = ObjectKey::new(namespace, name);
        let write = Write::delete(kind_index, key);
        apiserver.store().write(write).unwrap();
    }

    /// Writes an object that no client reads: the API server's version rises, and no event of the clients' resource has it.
    fn write_secret(&self, apiserver: &Apiserver, count: u64) {
        let name = format!("s{}-{count}", self.random.lock().u32(..));
        let object = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "default"},
        });
        let write = Write::create(kind_index(apiserver, "secrets"), "default", object);
        apiserver.store().write(write).unwrap();
    }
}

fn kind_index(apiserver: &Apiserver, plural: &str) -> usize {
    let catalogue = apiserver.catalogue();
    catalogue.index_of("", "v1", plural).unwrap()
}
