//! Watches that are sent as gzip (decision 66): clients that decode them as they come have what others have, as soon as they have it.

mod choice;
mod client;
mod leaving;
mod stage;
mod tiers;

use futures::future::join_all;

use crate::support::auth::until;
use crate::support::client::{HttpVersion, metric_sum};
use client::{Asked, Client, is_bookmark};
use stage::{Stage, ways};

const CONFIGMAPS: &str = "configmaps";
const WATCH: &str = "/api/v1/configmaps?watch=1";
const FORMS: [&str; 4] = [
    "application/json",
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
    "application/vnd.kubernetes.protobuf",
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
];
/// Enough that their view is worth compressing.
const COMPRESSED: usize = 5;
const SIZES: [usize; 6] = [100, 1_000, 5_000, 20_000, 200_000, 1 << 20];
/// The objects of each burst, and the bytes of each.
const BURSTS: [(usize, usize); 5] = [(30, 100), (40, 1_200), (10, 9_000), (3, 200_000), (1, 700)];
const INPUT: &str = "kube_fanout_watch_gzip_input_bytes_total";
const SENT: &str = "kube_fanout_watch_gzip_sent_bytes_total";

/// Clients that must have the same, of which the first one's watch is not compressed.
struct Crowd {
    name: String,
    clients: Vec<Client>,
}

impl Crowd {
    /// Clients that all have read the event of an object.
    async fn open(
        stage: &Stage,
        accept: &str,
        (way, http, server): (&str, HttpVersion, std::net::SocketAddr),
    ) -> Self {
        let initial = format!(
            "{WATCH}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1"
        );
        // Some get something of their own first: initial events, and their end.
        let targets = [WATCH, WATCH, WATCH, &initial, &initial, WATCH];
        let encodings = ["identity"].into_iter().chain(["gzip"; COMPRESSED]);
        let opened = targets
            .into_iter()
            .zip(encodings)
            .map(async |(target, encoding)| {
                let asked = Asked {
                    target,
                    accept,
                    encoding,
                    ..Asked::default()
                };
                let client = Client::open(http, server, &asked).await;
                assert_eq!(client.is_gzip(), encoding == "gzip");
                client
            });
        let mut crowd = Self {
            name: format!("{accept}, {way}"),
            clients: join_all(opened).await,
        };
        let begin = stage.create(CONFIGMAPS, 2_000).await;
        crowd.until(&begin).await;
        crowd
            .clients
            .iter_mut()
            .for_each(|client| drop(client.take()));
        crowd
    }

    async fn until(&mut self, name: &str) {
        join_all(self.clients.iter_mut().map(|client| client.until(name))).await;
    }

    /// Reads up to the event of this object, and compares.
    async fn check(&mut self, name: &str) {
        self.until(name).await;
        let all: Vec<_> = self.clients.iter_mut().map(Client::take).collect();
        for (at, one) in all.iter().enumerate() {
            assert!(
                *one == all[0],
                "client {at} of {}: {} bytes instead of {}",
                self.name,
                one.len(),
                all[0].len()
            );
        }
    }
}

/// Clients on every way and in every form.
async fn crowds(stage: &Stage, tls: std::net::SocketAddr) -> Vec<Crowd> {
    // So that there are initial events.
    stage.create(CONFIGMAPS, 3_000).await;
    let mut crowds = Vec::new();
    for way in ways(stage.gateway.address, tls) {
        for accept in FORMS {
            crowds.push(Crowd::open(stage, accept, way).await);
        }
    }
    // Those that were opened first have seen the objects of the others' beginnings.
    let begin = stage.create(CONFIGMAPS, 2_000).await;
    join_all(crowds.iter_mut().map(|crowd| crowd.until(&begin))).await;
    let clients = crowds.iter_mut().flat_map(|crowd| &mut crowd.clients);
    clients.for_each(|client| drop(client.take()));
    crowds
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_event_can_be_read_when_it_has_come_and_no_other_follows() {
    let stage = Stage::new().await;
    let tls = stage.tls("compressed-one-by-one").await;
    let mut crowds = crowds(&stage, tls.bridge.address).await;
    for len in SIZES.into_iter().chain([700, 700]) {
        let name = stage.create(CONFIGMAPS, len).await;
        join_all(crowds.iter_mut().map(|crowd| crowd.check(&name))).await;
    }
    drop(crowds);
    tls.end().await;
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_bursts_nobody_lacks_anything() {
    let stage = Stage::new().await;
    let tls = stage.tls("compressed-bursts").await;
    let mut crowds = crowds(&stage, tls.bridge.address).await;
    for (count, len) in BURSTS {
        let mut last = String::new();
        for _ in 0..count {
            last = stage.create(CONFIGMAPS, len).await;
        }
        join_all(crowds.iter_mut().map(|crowd| crowd.check(&last))).await;
    }
    drop(crowds);
    tls.end().await;
    stage.end().await;
}

/// Bookmarks come two seconds before the end. The test goes on until one was followed by an event.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_ends_is_a_whole_member_also_with_bookmarks_in_between() {
    let stage = Stage::new().await;
    let tls = stage.tls("compressed-ends").await;
    let mut all = Client::open(
        HttpVersion::One,
        stage.gateway.address,
        &Asked {
            target: WATCH,
            encoding: "identity",
            ..Asked::default()
        },
    )
    .await;
    let target = format!("{WATCH}&allowWatchBookmarks=1&timeoutSeconds=3");
    let mut is_interrupted = false;
    while !is_interrupted {
        let asked = Asked {
            target: &target,
            ..Asked::default()
        };
        let clients = ways(stage.gateway.address, tls.bridge.address).map(|(_, http, server)| {
            join_all((0..COMPRESSED).map(|_| Client::open(http, server, &asked)))
        });
        let clients = join_all(clients).await.into_iter().flatten();
        let ends = join_all(clients.map(Client::into_events));
        let (stop, mut stopped) = tokio::sync::oneshot::channel();
        let ending = async {
            let ends = ends.await;
            stop.send(()).unwrap();
            ends
        };
        let writing = async {
            while stopped.try_recv().is_err() {
                let name = stage.create(CONFIGMAPS, 1_500).await;
                all.until(&name).await;
            }
        };
        let (ends, ()) = tokio::join!(ending, writing);
        let all = all.steady().collect::<Vec<_>>().concat();
        for events in ends {
            let mut since_bookmark = events.iter().skip_while(|event| !is_bookmark(event));
            is_interrupted |= since_bookmark.any(|event| !is_bookmark(event));
            let steady: Vec<_> = events
                .into_iter()
                .filter(|event| !is_bookmark(event))
                .collect();
            // Objects are named in the order in which they were written, so initial events have that order, too.
            assert!(all.starts_with(&steady.concat()));
        }
    }
    tls.end().await;
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fraction_is_sent_of_events_that_resemble_each_other() {
    const EVENTS: usize = 40;
    let stage = Stage::new().await;
    let open = |_| async {
        Client::open(HttpVersion::One, stage.gateway.address, &Asked::default()).await
    };
    let mut clients = join_all((0..COMPRESSED).map(open)).await;
    // Objects that are alike: 2 KB whose text is the same.
    let mut expected = 0;
    for _ in 0..EVENTS {
        let name = stage.create_alike().await;
        join_all(clients.iter_mut().map(|client| client.until(&name))).await;
        expected += clients
            .iter_mut()
            .map(|client| client.take().len())
            .sum::<usize>();
    }
    let metric = |name| metric_sum(stage.gateway.admin, name, "resource=\"configmaps\"");
    until("all is counted", async || metric(INPUT).await == expected).await;
    let sent = metric(SENT).await;
    assert!(sent * 4 < expected, "{sent} of {expected} bytes");
    drop(clients);
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fraction_is_sent_of_initial_events() {
    // More than one chunk of the cache.
    const OBJECTS: usize = 300;
    let stage = Stage::new().await;
    let mut last = String::new();
    for _ in 0..OBJECTS {
        last = stage.create_alike().await;
    }
    let target = format!(
        "{WATCH}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1"
    );
    let (mut expected, mut clients) = (0, Vec::new());
    for http in [HttpVersion::One, HttpVersion::Two] {
        for accept in [FORMS[0], FORMS[2]] {
            let opened = ["identity", "gzip", "gzip"].map(async |encoding| {
                let asked = Asked {
                    target: &target,
                    accept,
                    encoding,
                    ..Asked::default()
                };
                let mut client = Client::open(http, stage.gateway.address, &asked).await;
                client.until(&last).await;
                client
            });
            let mut opened = join_all(opened).await;
            let events: Vec<_> = opened.iter_mut().map(Client::take).collect();
            assert!(events[0] == events[1] && events[0] == events[2], "{accept}");
            expected += 2 * events[0].len();
            clients.extend(opened);
        }
    }
    let metric = |name| metric_sum(stage.gateway.admin, name, "resource=\"configmaps\"");
    // The bookmarks at their ends are counted, too.
    until("all is counted", async || metric(INPUT).await >= expected).await;
    let sent = metric(SENT).await;
    assert!(sent * 4 < expected, "{sent} of {expected} bytes");
    drop(clients);
    stage.end().await;
}
