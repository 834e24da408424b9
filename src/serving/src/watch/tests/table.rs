//! What the table of open watches shows of them.

use super::*;
use crate::cache::Sequence;
use crate::resource::{CacheKey, Gvr};
use crate::talkers::{OpenWatches, Talkers};

struct Table {
    table: Arc<WatchTable>,
    cuts: Arc<RecentCuts>,
    talkers: Arc<Talkers>,
}

impl Table {
    fn new() -> Self {
        let cuts = Arc::<RecentCuts>::default();
        let key = CacheKey::json(&Gvr::new("", "v1", "pods"));
        let talkers = Arc::<Talkers>::default();
        let table = WatchTable::new(key, Arc::clone(&cuts), Arc::clone(&talkers));
        Self {
            table: Arc::new(table),
            cuts,
            talkers,
        }
    }

    /// The open watches and the bytes that are counted for a user agent.
    fn talk(&self, agent: &str) -> (u64, u64) {
        let mut open = OpenWatches::default();
        for part in 0..SWEEPS {
            self.table.sweep(part, Some(&mut open));
        }
        let agents = self.talkers.top(open).agents;
        let mut found = agents.iter().filter(|one| one.name == agent);
        found
            .next()
            .map_or((0, 0), |one| (one.watches, one.counts.bytes))
    }

    fn enter(&self, client: &mut Client, agent: &str) {
        let who = WatchClient::new("jane", agent, [10, 0, 0, 1].into());
        client.body.cursor.enter(&self.table, who);
    }

    /// The first unread event of the last watch that is shown.
    fn first_unread(&self) -> Option<UnreadEvent> {
        let mut found = None;
        self.table.visit(|watch| found = watch.unread);
        found
    }

    /// The first unread event of each open watch.
    fn unread(&self) -> Vec<Option<Sequence>> {
        let mut found = Vec::new();
        self.table
            .visit(|watch| found.push(watch.unread.map(|one| one.sequence)));
        found
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_is_behind_from_an_event_until_it_has_taken_it() {
    let (table, mut scene) = (Table::new(), Scene::new(400));
    let mut client = scene.after(&tier("x"), 10);
    table.enter(&mut client, "kubectl");
    assert_eq!(client.poll(), Polled::Waits);
    assert_eq!(table.unread(), [None]);
    // What the selector does not show, nobody waits for.
    scene.put("a/other", None);
    assert_eq!(table.unread(), [None]);
    let mine = scene.served.cache.history().head();
    scene.put("a/mine", Some("x"));
    scene.put("a/mine", Some("x"));
    assert_eq!(table.unread(), [Some(mine)]);
    client.drain();
    assert_eq!(table.unread(), [None]);
    client.end();
    assert_eq!(table.unread(), []);
    assert!(table.cuts.latest().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_falls_out_of_the_history_is_remembered_with_its_client() {
    let (table, mut scene) = (Table::new(), Scene::new(16));
    let mut client = scene.after(&Selector::default(), 10);
    table.enter(&mut client, &"<b>ä".repeat(100));
    assert_eq!(client.poll(), Polled::Waits);
    for _ in 0..1000 {
        scene.put("a/one", None);
    }
    // Its place is before the oldest event that there is.
    let unread = table.first_unread().unwrap();
    assert!(unread.is_lost && unread.sequence < scene.served.cache.history().oldest());
    advance(Duration::from_secs(60)).await;
    client.drain();
    assert_eq!(client.end().end, WatchEnd::Lagged);
    let cuts = table.cuts.latest();
    assert_eq!(cuts.len(), 1);
    assert_eq!(cuts[0].reason, CutReason::Lagged);
    // The history's clock is not the paused one.
    let lag = cuts[0].lag.unwrap_or_default();
    assert!(lag > Duration::from_secs(5), "{lag:?}");
    assert_eq!(&*cuts[0].client.user, "jane");
    // As much of the name as fits, and no part of a character.
    let agent = &*cuts[0].client.user_agent;
    assert!(
        agent.len() <= 160 && agent.starts_with("<b>ä<b>ä"),
        "{agent}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_frame_is_unread_until_the_connection_asks_for_the_next_one() {
    let (table, mut scene) = (Table::new(), Scene::new(400));
    let mut client = scene.after(&Selector::default(), 10);
    table.enter(&mut client, "kubectl");
    assert_eq!(client.poll(), Polled::Waits);
    let first = scene.served.cache.history().head();
    scene.put("a/one", None);
    assert!(matches!(client.poll(), Polled::Lines(_)));
    assert_eq!(table.unread(), [Some(first)]);
    assert_eq!(client.poll(), Polled::Waits);
    assert_eq!(table.unread(), [None]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_waits_for_its_initial_events_until_it_has_taken_them() {
    let (table, mut scene) = (Table::new(), Scene::new(400));
    scene.put("a/one", None);
    let start = scene.initial(Marker::InitialEventsEnd);
    let mut client = scene.client(&Selector::default(), start, HOUR);
    table.enter(&mut client, "kubectl");
    // Nothing was published after them, so nothing else tells that it waits.
    let head = scene.served.cache.history().head();
    let check = || {
        let unread = table.first_unread().unwrap();
        assert_eq!((unread.sequence, unread.is_lost), (head, false));
        table.table.visit(|watch| {
            assert!(watch.is_initial);
            assert_eq!(watch.unread.unwrap().waits_since, Some(watch.opened_at));
        });
    };
    check();
    assert!(matches!(client.poll(), Polled::Lines(_)));
    // The connection has them now, but has not asked for more.
    check();
    client.drain();
    assert_eq!(table.unread(), [None]);
    table.table.visit(|watch| assert!(!watch.is_initial));
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_a_future_version_is_not_behind() {
    let (table, mut scene) = (Table::new(), Scene::new(400));
    let entry = scene.served.hub.join(&Selector::default());
    let version = ResourceVersion(scene.world.version + 1_000);
    let sequence = scene.served.cache.history().head();
    let start = Start::After { sequence, version };
    let mut client = scene.enter(entry, start, HOUR);
    table.enter(&mut client, "kubectl");
    assert_eq!(client.poll(), Polled::Waits);
    scene.put("a/one", None);
    assert_eq!(client.poll(), Polled::Waits);
    assert_eq!(table.unread(), [None]);
    table.table.visit(|watch| assert!(watch.is_future));
    scene.progress(version.0);
    client.drain();
    let wanted = scene.served.cache.history().head();
    scene.put("a/one", None);
    assert_eq!(table.unread(), [Some(wanted)]);
    table.table.visit(|watch| assert!(!watch.is_future));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_is_remembered_only_if_events_have_waited_for_it() {
    let (table, mut scene) = (Table::new(), Scene::new(400));
    for (wait, expected) in [(1, 0), (60, 1)] {
        let version = scene.world.version;
        let mut client = scene.after(&Selector::default(), version);
        table.enter(&mut client, "curl");
        assert_eq!(client.poll(), Polled::Waits);
        scene.put("a/one", None);
        advance(Duration::from_secs(wait)).await;
        client.end();
        assert_eq!(table.cuts.latest().len(), expected, "{wait} s");
    }
    assert_eq!(table.cuts.latest()[0].reason, CutReason::Disconnected);
}

#[tokio::test(start_paused = true)]
async fn the_cuts_that_are_remembered_are_bounded() {
    let (table, mut scene) = (Table::new(), Scene::new(400));
    for number in 0..60 {
        let version = scene.world.version;
        let mut client = scene.after(&Selector::default(), version);
        table.enter(&mut client, &format!("curl/{number}"));
        scene.put("a/one", None);
        advance(Duration::from_secs(60)).await;
        client.end();
    }
    let cuts = table.cuts.latest();
    assert_eq!(cuts.len(), 50);
    assert_eq!(&*cuts[0].client.user_agent, "curl/59");
}

#[tokio::test(start_paused = true)]
async fn what_was_published_before_a_watch_opened_has_not_kept_it_waiting() {
    let (table, mut scene) = (Table::new(), Scene::new(400));
    scene.put("a/one", None);
    advance(Duration::from_secs(60)).await;
    let mut client = scene.after(&Selector::default(), 10);
    table.enter(&mut client, "kubectl");
    assert!(table.unread()[0].is_some());
    client.end();
    assert!(table.cuts.latest().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_a_watch_is_sent_counts_once_for_its_client_before_and_after_its_end() {
    let (table, mut scene) = (Table::new(), Scene::new(400));
    let mut client = scene.after(&tier("x"), 10);
    table.enter(&mut client, "kubectl");
    let mut len = 0;
    for key in ["a/one", "a/two"] {
        scene.put(key, Some("x"));
        let lines = client.drain();
        assert_eq!(lines.len(), 1);
        assert_eq!(client.poll(), Polled::Waits);
        let (open, counted) = table.talk("kubectl");
        assert!(open == 1 && counted > len, "{counted} bytes after {key}");
        len = counted;
    }
    assert_eq!(table.talk("kubectl"), (1, len));
    scene.put("a/three", Some("x"));
    client.drain();
    let bytes = client.end().bytes;
    assert!(bytes > len);
    assert_eq!(table.talk("kubectl"), (0, bytes));
}
