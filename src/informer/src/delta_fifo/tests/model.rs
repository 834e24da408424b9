//! Random changes: a consumer that replays the deltas ends with what a plain map of the same changes holds.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

#[derive(Clone, Debug)]
enum Step {
    Add(usize),
    Update(usize),
    Delete(usize),
    /// The positions of the listed objects in `NAMES`, and whether each has a new version.
    Replace(Vec<(usize, bool)>),
    Resync,
    Pop,
}

fn step() -> impl Strategy<Value = Step> {
    let name = 0..NAMES.len();
    prop_oneof![
        3 => name.clone().prop_map(Step::Add),
        3 => name.clone().prop_map(Step::Update),
        3 => name.clone().prop_map(Step::Delete),
        1 => proptest::collection::vec((name, any::<bool>()), 0..6).prop_map(Step::Replace),
        1 => Just(Step::Resync),
        4 => Just(Step::Pop),
    ]
}

/// The server's state, and the state that the deltas lead to.
struct World {
    rig: Rig,
    server: BTreeMap<&'static str, u32>,
    /// The map that a consumer builds from the deltas.
    replayed: BTreeMap<&'static str, u32>,
    version: u32,
    synced: bool,
    /// Objects of the initial population that are not processed yet; `None` before the first change or replacement.
    initial: Option<usize>,
}

impl World {
    fn new() -> Self {
        Self {
            rig: Rig::new(),
            server: BTreeMap::new(),
            replayed: BTreeMap::new(),
            version: 0,
            synced: false,
            initial: None,
        }
    }

    fn take(&mut self, step: &Step) {
        self.version += 1;
        match step {
            Step::Add(name) => self.change(NAMES[*name], Rig::add),
            Step::Update(name) => self.change(NAMES[*name], Rig::update),
            Step::Delete(name) => {
                self.server.remove(NAMES[*name]);
                self.rig.delete(NAMES[*name], self.version);
                self.initial.get_or_insert(0);
            }
            Step::Replace(objects) => self.replace(objects),
            Step::Resync => self.rig.fifo.resync(),
            Step::Pop => self.pop(),
        }
        let synced = self.rig.fifo.has_synced();
        assert!(
            synced || !self.synced,
            "once synced, the queue stays synced"
        );
        assert_eq!(synced, self.initial == Some(0));
        self.synced = synced;
        assert!(self.rig.fifo.len() <= NAMES.len());
        assert!(self.rig.fifo.delta_count() >= self.rig.fifo.len());
    }

    fn change(&mut self, name: &'static str, queue: fn(&Rig, &'static str, u32)) {
        self.server.insert(name, self.version);
        queue(&self.rig, name, self.version);
        self.initial.get_or_insert(0);
    }

    fn replace(&mut self, objects: &[(usize, bool)]) {
        let listed = objects.iter().map(|&(name, is_new)| {
            let before = self.server.get(NAMES[name]).copied();
            let version = before.filter(|_| !is_new).unwrap_or(self.version);
            (NAMES[name], version)
        });
        let listed: BTreeMap<_, _> = listed.collect();
        self.rig.replace(listed.clone());
        self.server = listed;
        // Everything that waits now is popped before anything that is queued later.
        self.initial.get_or_insert(self.rig.fifo.len());
    }

    fn pop(&mut self) {
        let (initial, replayed, store) = (self.initial, &mut self.replayed, &self.rig.store);
        let popped = self.rig.fifo.pop(|key, deltas, in_initial_list| {
            assert_eq!(in_initial_list, initial != Some(0));
            assert!(!deltas.is_empty());
            for delta in deltas {
                replay(replayed, delta);
            }
            match deltas.last().unwrap() {
                Delta {
                    kind: DeltaKind::Deleted,
                    ..
                } => drop(store.remove(key)),
                newest => drop(
                    store
                        .put(Arc::clone(newest.subject.object().unwrap()))
                        .unwrap(),
                ),
            }
            Ok::<_, ()>(())
        });
        if popped.is_some() {
            self.initial = self.initial.map(|left| left.saturating_sub(1));
        }
    }

    /// Processes everything that waits; then the replay and the store agree with the server.
    fn drain(&mut self) {
        while !self.rig.fifo.is_empty() {
            self.pop();
        }
        assert_eq!(self.replayed, self.server);
        let stored = self.rig.store.snapshot();
        let stored: BTreeMap<_, _> = stored
            .iter()
            .map(|item| (item.name, item.version))
            .collect();
        assert_eq!(stored, self.server);
        assert_eq!(self.rig.fifo.delta_count(), 0);
        assert!(self.rig.fifo.has_synced() || self.initial.is_none());
    }
}

fn replay(replayed: &mut BTreeMap<&'static str, u32>, delta: &Delta<Item>) {
    let item = delta.subject.object().unwrap();
    match delta.kind {
        DeltaKind::Deleted => {
            let last = replayed.remove(item.name);
            if delta.is_final_state_unknown() {
                assert_eq!(
                    last,
                    Some(item.version),
                    "the last state that was delivered"
                );
            }
        }
        DeltaKind::Sync => {
            assert_eq!(replayed.get(item.name), Some(&item.version), "nothing new");
        }
        DeltaKind::Added | DeltaKind::Updated | DeltaKind::Replaced => {
            let before = replayed.insert(item.name, item.version);
            assert!(before <= Some(item.version), "versions do not go back");
        }
    }
}

proptest! {
    #[test]
    fn whoever_replays_the_deltas_ends_with_the_servers_state(
        steps in proptest::collection::vec(step(), 0..60),
        drains in proptest::collection::vec(0_usize..60, 0..3),
    ) {
        let mut world = World::new();
        for (at, step) in steps.iter().enumerate() {
            world.take(step);
            if drains.contains(&at) {
                world.drain();
            }
        }
        world.drain();
    }
}
