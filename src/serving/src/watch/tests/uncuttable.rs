//! Watches of metadata with an event whose object has no metadata to project.

use super::*;
use crate::cache::Change;
use crate::cache::samples::uncuttable;
use crate::fairness::Peer;
use crate::view::{MetaVersion, ObjectFormat, ObjectPart};

impl Scene {
    /// A watch of the metadata of all objects from a version on.
    fn metadata_after(&self, version: u64) -> Client {
        let format = ObjectFormat {
            form: ObjectPart::Metadata(MetaVersion::V1),
            ..ObjectFormat::default()
        };
        let entry = (self.served.hub)
            .join_as(&everything(), format, Peer::UNKNOWN)
            .unwrap();
        let version = ResourceVersion(version);
        let sequence = self.served.cache.resume_after(version).unwrap();
        self.enter(entry, Start::After { sequence, version }, HOUR)
    }

    fn put_uncuttable(&mut self, key: &str) -> u64 {
        self.world.version += 1;
        let object = uncuttable(key, self.world.version);
        self.world.apply(vec![Change::Put(object)]);
        self.world.version
    }
}

fn added(key: &str, version: u64) -> String {
    format!("ADDED {key} {version} -")
}

#[tokio::test(start_paused = true)]
async fn an_event_that_cannot_be_projected_ends_only_the_streams_that_show_it() {
    let mut scene = Scene::new(WIDE);
    let start = scene.world.version;
    let mut current = scene.metadata_after(start);
    let mut slow = scene.metadata_after(start);
    let mut whole = scene.after(&everything(), start);
    let first = scene.put("a/1", None);
    assert_eq!(current.drain(), [added("a/1", first)]);
    assert_eq!(whole.drain(), [added("a/1", first)]);
    let bad = scene.put_uncuttable("a/2");
    let last = scene.put("a/3", None);

    assert_eq!(current.poll(), Polled::Ended);
    assert_eq!(
        slow.drain(),
        [added("a/1", first)],
        "events before it are sent"
    );
    assert_eq!(slow.poll(), Polled::Ended);
    // Watches from a version after the event work.
    let mut after = scene.metadata_after(bad);
    assert_eq!(after.drain(), [added("a/3", last)]);
    assert_eq!(after.poll(), Polled::Waits);
    let mut now = scene.metadata_after(last);
    assert_eq!(now.poll(), Polled::Waits);
    let next = scene.put("a/4", None);
    for client in [&mut after, &mut now] {
        assert_eq!(client.drain(), [added("a/4", next)]);
        assert_eq!(client.poll(), Polled::Waits);
    }
}

#[tokio::test(start_paused = true)]
async fn resuming_before_an_event_that_cannot_be_projected_gets_410() {
    let mut scene = Scene::new(WIDE);
    let start = scene.world.version;
    let first = scene.put("a/1", None);
    scene.put_uncuttable("a/2");
    scene.put("a/3", None);
    let mut early = scene.metadata_after(start);
    assert_eq!(early.drain(), [added("a/1", first), "ERROR 410".to_owned()]);
    assert_eq!(early.poll(), Polled::Ended);
    let mut at_it = scene.metadata_after(first);
    assert_eq!(at_it.drain(), ["ERROR 410"]);
    assert_eq!(at_it.end().end, WatchEnd::Lagged);
}

/// The timer may fire between the event and the next read.
#[tokio::test(start_paused = true)]
async fn no_bookmark_is_beyond_an_event_that_cannot_be_projected() {
    let mut scene = Scene::new(WIDE);
    let mut client = scene.metadata_after(scene.world.version);
    scene.put("a/1", None);
    client.drain();
    assert_eq!(client.poll(), Polled::Waits);
    scene.put_uncuttable("a/2");
    advance(Duration::from_secs(61)).await;
    let timed = client.body.cursor.on_timer(Instant::now());
    assert!(matches!(timed, TimerAction::Nothing), "{timed:?}");
    assert_eq!(client.poll(), Polled::Ended);
}
