//! The same over sockets: the embedded API server with its own faults, and the gateway in front of it.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::{LocalBoxFuture, join_all};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_fanout::apiserver::faults::{Fault, FaultOrder};
use kube_fanout::apiserver::route::ResourceVerb;
use kube_fanout::apiserver::storage::{Preconditions, WritablePart, WriteMode, WriteTarget};
use kube_fanout::apiserver::{self, Apiserver, Options, patch::Patch};
use kube_fanout::config::ServeSettings;
use kube_fanout::informer::ListWatch;
use kube_fanout::resource::{Encoding, Gvr, ObjectKey};
use kube_fanout::shutdown::Drain;
use kube_fanout::upstream::driver::{Fetch, FetchError, RequestPurpose};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::audience::{Audience, Totals};
use crate::dice::Dice;
use crate::gateway::Running;
use crate::run::BURSTS;
use crate::witness::{Content, Seen, SeenAll};

const STEPS: u64 = 150;
const KEY_COUNT: u64 = 12;
/// Between two steps: so long that some requests come through between two faults.
const STEP: Duration = Duration::from_millis(40);
/// Several times the longest back-off that the few faults of a run lead to.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK_PERIOD: Duration = Duration::from_millis(5);
/// On a quiet machine everybody has everything well within a second of the last write, which the printed times show. A loaded
/// one gets more, yet less than the minute until a bookmark comes to a watch: it would push on what is stuck, and hide it.
const LEVEL_WITHIN: Duration = Duration::from_secs(20);
const METADATA: &str =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// HTTP version towards a server.
#[derive(Clone, Copy, Debug)]
enum Http {
    One,
    Two,
}

/// A way to a server or gateway.
struct Way {
    address: SocketAddr,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Way {
    fn new(address: SocketAddr, http: Http) -> Self {
        let mut builder = Client::builder(TokioExecutor::new());
        if matches!(http, Http::Two) {
            builder.http2_only(true);
        }
        let client = builder.build_http();
        Self { address, client }
    }

    async fn ask(&self, path: &str, accept: &str) -> Result<Response<Incoming>, FetchError> {
        let request = Request::get(format!("http://{}{path}", self.address))
            .header("accept", accept)
            .body(Full::default())
            .unwrap();
        let answer = self.client.request(request).await;
        answer.map_err(|error| FetchError(error.into()))
    }
}

impl Fetch for Way {
    type Body = Incoming;

    async fn get(
        &self,
        path: String,
        purpose: RequestPurpose,
        _: Encoding,
    ) -> Result<Response<Incoming>, FetchError> {
        let accept = match purpose {
            RequestPurpose::Read | RequestPurpose::Watch => "application/json",
            RequestPurpose::ReadMetadata | RequestPurpose::ReadVersions => METADATA_LIST,
            RequestPurpose::WatchMetadata => METADATA,
        };
        self.ask(&path, accept).await
    }
}

/// An informer of any type.
trait Follower {
    fn disturb(&mut self, dice: &mut Dice, at: u64) -> LocalBoxFuture<'_, ()>;
    fn behind(&mut self, expected: &SeenAll) -> Vec<&'static str>;
    fn end(self: Box<Self>, expected: SeenAll) -> LocalBoxFuture<'static, Result<Totals, String>>;
}

struct Followed<T: Content> {
    audience: Audience<T>,
    left_with: usize,
}

impl<T: Content> Followed<T> {
    fn start(way: Way, list_watch: ListWatch<T>) -> Box<dyn Follower> {
        // Failures are what this is about: nobody needs to read of each.
        let audience = Audience::new(way, list_watch, Arc::new(|_| {}));
        audience.informer.start();
        Box::new(Self {
            audience,
            left_with: 0,
        })
    }
}

impl<T: Content> Follower for Followed<T> {
    fn disturb(&mut self, dice: &mut Dice, at: u64) -> LocalBoxFuture<'_, ()> {
        if dice.once_in(4) {
            self.audience.gate.turn(dice.once_in(2));
        }
        if dice.once_in(3) {
            self.audience.read();
        }
        self.audience.note_synced();
        Box::pin(async move {
            if at == STEPS / 3 {
                self.audience.join("late");
            }
            if at == STEPS / 2 {
                // Its thread may be the one that the slow handler holds up.
                self.left_with = self.audience.leave().await;
            }
        })
    }

    fn behind(&mut self, expected: &SeenAll) -> Vec<&'static str> {
        self.audience.gate.turn(false);
        self.audience.behind(expected)
    }

    fn end(self: Box<Self>, expected: SeenAll) -> LocalBoxFuture<'static, Result<Totals, String>> {
        let Self {
            audience,
            left_with,
        } = *self;
        Box::pin(async move { audience.end(&expected, left_with, &[]).await })
    }
}

struct Stage {
    seed: u64,
    dice: Dice,
    server: Apiserver,
    kind_index: usize,
    direct: Way,
    gateway: Running,
    followers: Vec<(String, Box<dyn Follower>)>,
}

impl Stage {
    async fn set(seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = apiserver::start(listener, Options::default()).unwrap();
        let upstream = format!("http://{}/", server.address()).parse().unwrap();
        let drain = Drain::with_timeout(Duration::from_millis(100));
        let gateway = Running::start(ServeSettings::embedded(upstream), drain).await;
        let through = gateway.address;
        let mut stage = Self {
            seed,
            dice: Dice(seed),
            kind_index: server.catalogue().index_of_plural("configmaps").unwrap(),
            direct: Way::new(server.address(), Http::One),
            followers: Vec::new(),
            server,
            gateway,
        };
        (0..20).for_each(|_| stage.write(0));
        let addresses = [("directly", stage.server.address()), ("gateway", through)];
        let mut way = seed;
        for (name, address) in addresses {
            for http in [Http::One, Http::Two] {
                let follower = follow(way, Way::new(address, http));
                stage
                    .followers
                    .push((format!("{name}, {http:?}"), follower));
                way += 1;
            }
        }
        stage
    }

    fn order(&self, fault: Fault, verb: Option<ResourceVerb>, count: u32) {
        let resource = Some("configmaps".to_owned());
        let order = FaultOrder {
            fault,
            verb,
            resource,
            count,
        };
        // More than a few hundred that wait are refused, and no loss.
        self.server.order(order).unwrap_or_default();
    }

    /// One write of any object, with so many letters in it.
    fn write(&mut self, padding: usize) {
        let number = self.dice.below(KEY_COUNT);
        let key = ObjectKey::new("default", &format!("o{number:02}"));
        let n = self.dice.number() >> 16;
        let target = WriteTarget {
            kind_index: self.kind_index,
            key,
            part: WritablePart::Whole,
            mode: WriteMode::Keep,
        };
        let content = json!({"metadata": {"name": target.key.name(), "annotations": {"n": n.to_string()}}, "data": {"n": n.to_string(), "padding": "x".repeat(padding)}});
        let held = self
            .server
            .store()
            .object(self.kind_index, &target.key)
            .is_ok();
        let choice = self.dice.below(6);
        let store = self.server.store();
        if held && choice < 3 {
            let patch = Patch::Merge(content);
            store
                .write(|storage, _| storage.patch(&target, &patch))
                .unwrap();
            return;
        }
        if held {
            let any = Preconditions::default();
            store
                .write(|storage, stamp| storage.delete(&target, &any, stamp))
                .unwrap();
        }
        // Most that go come again at once, as another object.
        if !held || choice < 5 {
            let mut object = content;
            object["kind"] = "ConfigMap".into();
            object["apiVersion"] = "v1".into();
            store
                .write(|storage, stamp| storage.create(&target, object, stamp))
                .unwrap();
        }
    }

    fn disturb(&mut self) {
        let retry_after_seconds = 1;
        let code = self.dice.one_of(&[410, 429, 500, 503]);
        let after_bytes = self.dice.below(3_000);
        let refuse = Fault::Refuse {
            code,
            retry_after_seconds,
        };
        match self.dice.below(28) {
            0 => self.order(Fault::CutWatch { after_bytes }, None, 2),
            1 => self.order(Fault::GarbageFrame, None, 1),
            2 => self.order(refuse, Some(ResourceVerb::Watch), 2),
            3 => self.order(refuse, Some(ResourceVerb::List), 2),
            4 => self.order(Fault::CloseConnection, None, 1),
            5 | 6 => self.order(Fault::EndWatches, None, 1),
            7 => self.order(Fault::Compact, None, 1),
            _ => {}
        }
    }

    /// Watches end and cannot be opened while objects are made anew whose history is then forgotten.
    async fn away(&mut self) {
        let refuse = Fault::Refuse {
            code: 503,
            retry_after_seconds: 1,
        };
        self.order(refuse, Some(ResourceVerb::Watch), 1_000);
        self.order(Fault::EndWatches, None, 1);
        for _ in 0..20 {
            self.write(0);
        }
        tokio::time::sleep(STEP).await;
        self.order(Fault::Compact, None, 1);
        self.order(Fault::Clear, None, 1);
    }

    async fn play(&mut self) {
        for at in 0..STEPS {
            self.disturb();
            if self.seed % 5 == 3 && self.dice.once_in(8) {
                self.burst();
            }
            for _ in 0..self.dice.below(5) {
                self.write(0);
            }
            if at % 50 == 10 {
                self.away().await;
            }
            for (_, follower) in &mut self.followers {
                follower.disturb(&mut self.dice, at).await;
            }
            tokio::time::sleep(STEP).await;
        }
        self.order(Fault::Clear, None, 1);
        self.order(Fault::EndWatches, None, 1);
        (0..3).for_each(|_| self.write(0));
    }

    /// Writes of one size at once, some megabytes at most; what they were.
    fn burst(&mut self) -> String {
        let count = self.dice.one_of(&BURSTS);
        let padding = self.dice.one_of(&[100, 1_000, 20_000, 70_000, 1 << 20]);
        let padding = padding.min((4 << 20) / usize::try_from(count).unwrap());
        (0..count).for_each(|_| self.write(padding));
        format!("{count} writes of {padding} bytes")
    }

    /// Waits until everybody has everything, which takes so long at most.
    async fn level(&mut self, when: &str, within: Duration) -> Duration {
        let begun = Instant::now();
        let expected = self.truth().await;
        loop {
            let mut behind = Vec::new();
            for (name, follower) in &mut self.followers {
                let who = follower.behind(&expected).into_iter();
                behind.extend(who.map(|who| format!("{name}: {who}")));
            }
            let took = begun.elapsed();
            if behind.is_empty() {
                return took;
            }
            assert!(
                took < within,
                "seed {}, behind {when}: {behind:?} after {took:?}",
                self.seed
            );
            tokio::time::sleep(LOOK_PERIOD).await;
        }
    }

    /// What the server holds.
    async fn truth(&self) -> SeenAll {
        let answer = self
            .direct
            .ask("/api/v1/configmaps", "application/json")
            .await;
        let body = answer.unwrap().into_body().collect().await.unwrap();
        let list: Value = serde_json::from_slice(&body.to_bytes()).unwrap();
        let seen = |item: &Value| {
            let metadata = |name: &str| item["metadata"][name].as_str().unwrap().to_owned();
            let seen = Seen {
                uid: metadata("uid"),
                version: metadata("resourceVersion").parse().unwrap(),
                n: item["data"]["n"].as_str().unwrap().parse().ok(),
            };
            (
                format!("{}/{}", metadata("namespace"), metadata("name")),
                seen,
            )
        };
        list["items"].as_array().unwrap().iter().map(seen).collect()
    }

    async fn end(mut self) -> Vec<Totals> {
        self.level("after the trouble", PATIENCE).await;
        let last = self.burst();
        let took = self.level("at the end", LEVEL_WITHIN).await;
        eprintln!(
            "seed {}: {last}; everybody had everything {took:?} later",
            self.seed
        );
        let expected = self.truth().await;
        let mut totals = Vec::new();
        for (name, follower) in self.followers {
            let ended = follower.end(expected.clone()).await;
            totals.push(ended.unwrap_or_else(|why| panic!("seed {}, {name}: {why}", self.seed)));
        }
        self.gateway.ended().await;
        totals
    }
}

fn follow(way: u64, fetch: Way) -> Box<dyn Follower> {
    let gvr = Gvr::new("", "v1", "configmaps");
    match way % 5 {
        0 => Followed::start(fetch, ListWatch::raw(&gvr)),
        1 => Followed::start(fetch, ListWatch::<ConfigMap>::of_kind().in_pages(5)),
        2 => Followed::start(fetch, ListWatch::metadata(&gvr)),
        3 => Followed::start(fetch, ListWatch::<ConfigMap>::of_kind().consistent()),
        _ => Followed::start(fetch, ListWatch::metadata(&gvr).in_pages(5)),
    }
}

/// Runs seeds at the same time: most of it is waiting.
pub(crate) async fn play_all(seeds: impl IntoIterator<Item = u64> + Debug) {
    let runs = seeds.into_iter().map(|seed| async move {
        let mut stage = Stage::set(seed).await;
        stage.play().await;
        stage.end().await
    });
    let totals: Vec<_> = join_all(runs).await.into_iter().flatten().collect();
    let sum = |of: fn(&Totals) -> u64| totals.iter().map(of).sum::<u64>();
    let (anew, gone) = (sum(|one| one.made_anew), sum(|one| one.found_gone));
    let (told, merged) = (sum(|one| one.told), sum(|one| one.merged));
    let all = format!("{anew} made anew, {gone} found gone, {told} told, {merged} merged");
    assert!(
        anew > 10 && gone > 10 && told > 5_000 && merged > 10,
        "{all}"
    );
    assert_eq!(sum(|one| one.went_back), 0);
}
