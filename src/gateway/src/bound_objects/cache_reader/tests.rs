//! The reader against caches with generated histories.

use parking_lot::Mutex;

use super::*;
use crate::cache::samples::{Recorder, World};

#[test]
fn after_each_read_the_uids_are_those_of_the_cache_and_no_deletion_is_missed() {
    for seed in 1..30 {
        let told = Arc::<Mutex<Vec<Box<str>>>>::default();
        let deletions = Arc::clone(&told);
        let live = LiveUids::new(Arc::new(move |uids| deletions.lock().extend(uids)));
        let mut reader = CacheReader::new(&live);
        // A short history, which some reads miss.
        let mut world = World::new(seed, 128, Arc::<Recorder>::default());
        for _ in 0..100 {
            for _ in 0..world.dice.below(4) {
                world.step();
            }
            if world.dice.once_in(20) {
                world.lose_and_relist();
            }
            if world.dice.once_in(20) {
                (0..200).for_each(|_| world.step());
            }
            let cache = Arc::clone(world.writer.cache());
            let age = Duration::ZERO;
            reader.read(&KeptCache { cache, age }, Instant::now());
            let uids = world.state.values().map(|sample| sample.uid);
            let uids: std::collections::BTreeSet<u64> = uids.collect();
            assert_eq!(live.len(), Some(uids.len()), "seed {seed}");
            let is_listed = live.contact.take_listed();
            for sample in world.past.drain(..).filter_map(|past| past.before) {
                let uid = format!("u{}", sample.uid);
                let is_live = uids.contains(&sample.uid);
                assert_eq!(live.may_have(&uid), is_live, "seed {seed}, {uid}");
                // What a list lacks is not told.
                let is_told = is_listed || told.lock().iter().any(|one| **one == *uid);
                assert!(is_live || is_told, "seed {seed}, {uid}");
            }
        }
        live.contact.take_listed();
        // Another cache of the resource, as after an eviction.
        let world = World::new(seed, 100, Arc::<Recorder>::default());
        let cache = Arc::clone(world.writer.cache());
        let age = Duration::ZERO;
        reader.read(&KeptCache { cache, age }, Instant::now());
        assert!(live.contact.take_listed());
        assert_eq!(live.len(), Some(0));
    }
}
