//! Load for demos and measurements: realistic objects, and a stream of changes to them. The same seed gives the same changes.

mod content;

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};

use super::kinds::Catalogue;
use super::store::{Random, Store, Write};
use content::Template;

pub use content::WRITTEN_AT;

/// Of a hundred changes so many are deletions, and as many creations; the others are updates.
const DELETE_PERCENT: u64 = 5;
const CREATE_PERCENT: u64 = 5;
/// Names have six digits.
const COUNT_MAX: u32 = 999_999;
/// Short enough for an even stream, long enough for the timer to be cheap.
const TICK: Duration = Duration::from_millis(5);
/// How much of a stall is made up for.
const CATCH_UP_SECONDS_MAX: f64 = 1.0;
/// Bounds how long readers wait for the store.
const BATCH_COUNT: usize = 64;

/// How many objects of a kind there are at first, as in `pods=1000`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitialCount {
    /// Plural name.
    pub resource: String,
    /// Number of objects.
    pub count: u32,
}

/// A text that is not of the form `resource=count`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not of the form resource=count with a count up to {COUNT_MAX}")]
pub struct InvalidObjectCount(String);

/// Objects of a resource that is not served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no resource {0:?} is served")]
pub struct UnknownResource(String);

impl FromStr for InitialCount {
    type Err = InvalidObjectCount;

    fn from_str(text: &str) -> Result<Self, InvalidObjectCount> {
        let parts = text.split_once('=').and_then(|(resource, count)| {
            let count = count.parse().ok().filter(|count| *count <= COUNT_MAX)?;
            (!resource.is_empty()).then(|| Self {
                resource: resource.to_owned(),
                count,
            })
        });
        parts.ok_or_else(|| InvalidObjectCount(text.to_owned()))
    }
}

/// Generates objects and changes.
#[derive(Debug)]
pub(super) struct Churn {
    random: Random,
    object_len: usize,
    populations: Vec<Population>,
}

/// The generated objects of one kind. Each has a number, which determines its name and content.
#[derive(Debug)]
struct Population {
    kind_index: usize,
    template: Template,
    count: u32,
    /// The numbers of the objects that exist.
    live: Vec<u32>,
    next: u32,
}

impl Churn {
    pub(super) fn new(
        catalogue: &Catalogue,
        counts: &[InitialCount],
        object_len: usize,
        seed: u64,
    ) -> Result<Self, UnknownResource> {
        let mut populations = Vec::new();
        for InitialCount { resource, count } in counts {
            let unknown = || UnknownResource(resource.clone());
            let kind_index = catalogue.index_of_plural(resource).ok_or_else(unknown)?;
            populations.push(Population {
                kind_index,
                template: Template::new(catalogue.kind(kind_index).clone()),
                count: *count,
                live: Vec::new(),
                next: 0,
            });
        }
        Ok(Self {
            random: Random(seed),
            object_len,
            populations,
        })
    }

    /// Creates the initial objects.
    pub(super) fn seed(&mut self, store: &Store) {
        for population in &mut self.populations {
            while population.next < population.count {
                let mut creations = Vec::new();
                while population.next < population.count && creations.len() < BATCH_COUNT {
                    creations.push(population.create(self.object_len));
                }
                write(store, creations);
            }
        }
    }

    /// The next change; `None` if there are no objects. Their number stays near the initial one.
    fn step(&mut self) -> Option<Write> {
        let total: u64 = self
            .populations
            .iter()
            .map(|one| u64::from(one.count))
            .sum();
        let mut pick = self.random.next().checked_rem(total)?;
        let percent = self.random.next() % 100;
        let choice = self.random.next();
        let population = self.populations.iter_mut().find(|population| {
            let count = u64::from(population.count);
            let is_picked = pick < count;
            pick = pick.saturating_sub(count);
            is_picked
        })?;
        let is_small = population.live.len() < population.count as usize;
        let is_resized = percent < DELETE_PERCENT + CREATE_PERCENT;
        if population.live.is_empty() || (is_resized && is_small) {
            return Some(population.create(self.object_len));
        }
        let index = usize::try_from(choice % population.live.len() as u64).unwrap_or_default();
        let kind_index = population.kind_index;
        if is_resized {
            let number = population.live.swap_remove(index);
            return Some(Write::delete(kind_index, population.template.key(number)));
        }
        let key = population.template.key(population.live[index]);
        let annotations = json!({WRITTEN_AT: content::now_ns()});
        let patch = json!({"metadata": {"annotations": annotations}});
        Some(Write::merge(kind_index, key, patch))
    }

    /// Changes objects at the latest rate, until the sender of rates is gone.
    pub(super) async fn run(mut self, store: Arc<Store>, mut rate: watch::Receiver<u32>) {
        while rate.wait_for(|rate| *rate > 0).await.is_ok() {
            let mut tick = tokio::time::interval(TICK);
            tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let (mut due, mut last) = (0.0, Instant::now());
            loop {
                let now = tick.tick().await;
                let per_second = *rate.borrow();
                if per_second == 0 {
                    break;
                }
                let elapsed = now.saturating_duration_since(last).as_secs_f64();
                last = now;
                due += elapsed.min(CATCH_UP_SECONDS_MAX) * f64::from(per_second);
                while due >= 1.0 && *rate.borrow() > 0 {
                    let mut writes = Vec::new();
                    while due >= 1.0 && writes.len() < BATCH_COUNT {
                        due -= 1.0;
                        writes.extend(self.step());
                    }
                    write(&store, writes);
                    tokio::task::yield_now().await;
                }
            }
        }
    }
}

/// Writes a batch. A write is refused if a client has changed or deleted the same object.
fn write(store: &Store, writes: Vec<Write>) {
    for error in store.write_all(writes) {
        tracing::debug!(%error, "the store refused a churn write");
    }
}

impl Population {
    fn create(&mut self, object_len: usize) -> Write {
        let number = self.next;
        self.next += 1;
        self.live.push(number);
        let key = self.template.key(number);
        let object = self.template.object(number, object_len);
        Write::create(self.kind_index, key.namespace(), object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_changes_and_their_number_stays() {
        let catalogue = Arc::new(Catalogue::new(&[]));
        let counts = ["pods=40".parse().unwrap(), "nodes=10".parse().unwrap()];
        let run = || {
            let store = Store::new(Arc::clone(&catalogue));
            let mut churn = Churn::new(&catalogue, &counts, 500, 7).unwrap();
            churn.seed(&store);
            let mut keys = Vec::new();
            for _ in 0..1_000 {
                let write = churn.step().unwrap();
                keys.push(write.key.clone());
                store.write(write).unwrap();
            }
            let pods = store.object_count(catalogue.index_of_plural("pods").unwrap());
            (keys, pods)
        };
        let (keys, pods) = run();
        assert!((35..=40).contains(&pods), "{pods}");
        assert_eq!(run().0, keys);
    }
}
