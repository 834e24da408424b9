//! The same checks over sockets: informers of the embedded API server with its own faults, directly and through the gateway.

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
use kube_fanout::config::ServeSettings;
use kube_fanout::informer::ListWatch;
use kube_fanout::resource::{Encoding, Gvr};
use kube_fanout::shutdown::Drain;
use kube_fanout::upstream::driver::{Fetch, FetchError, RequestPurpose};
use kube_fanout_testkit::apiserver::faults::{Fault, FaultOrder};
use kube_fanout_testkit::apiserver::kinds::ObjectKey;
use kube_fanout_testkit::apiserver::request::Verb;
use kube_fanout_testkit::apiserver::store::Write;
use kube_fanout_testkit::apiserver::{self, Apiserver, Options};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::informer_chaos::history::{Content, ObjectState, ObjectStates};
use crate::informer_chaos::observed::{ObservedInformer, Totals};
use crate::informer_chaos::run::BURSTS;
use crate::support::PATIENCE;
use crate::support::gateway::Running;
use crate::support::random::Random;

const STEPS: u64 = 150;
const KEY_COUNT: u64 = 12;
/// The pause between two steps, long enough for some requests to succeed between two faults.
const STEP: Duration = Duration::from_millis(40);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// The time within which all informers must have the last write. An idle machine needs well under a second, as the printed times show. The
/// limit allows for a loaded machine, and is shorter than the minute between bookmarks, which could release a stuck event and hide it.
const DELIVERY_TIME_MAX: Duration = Duration::from_secs(50);
const METADATA: &str =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// The HTTP version of a connection.
#[derive(Clone, Copy, Debug)]
enum Http {
    One,
    Two,
}

/// An HTTP client of a server or gateway.
struct HttpFetcher {
    address: SocketAddr,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl HttpFetcher {
    fn new(address: SocketAddr, http: Http) -> Self {
        let mut builder = Client::builder(TokioExecutor::new());
        if matches!(http, Http::Two) {
            builder.http2_only(true);
        }
        let client = builder.build_http();
        Self { address, client }
    }

    async fn send(&self, path: &str, accept: &str) -> Result<Response<Incoming>, FetchError> {
        let request = Request::get(format!("http://{}{path}", self.address))
            .header("accept", accept)
            .body(Full::default())
            .unwrap();
        let response = self.client.request(request).await;
        response.map_err(|error| FetchError(error.into()))
    }
}

impl Fetch for HttpFetcher {
    type Body = Incoming;

    async fn get(
        &self,
        path: String,
        purpose: RequestPurpose,
        _: Encoding,
    ) -> Result<Response<Incoming>, FetchError> {
        let accept = match purpose {
            RequestPurpose::Read | RequestPurpose::ReadShort | RequestPurpose::Watch => {
                "application/json"
            }
            RequestPurpose::ReadMetadata | RequestPurpose::ReadVersions => METADATA_LIST,
            RequestPurpose::WatchMetadata => METADATA,
        };
        self.send(&path, accept).await
    }
}

/// An informer of any object type.
trait ChaosInformer {
    fn disturb(&mut self, random: &mut Random, at: u64) -> LocalBoxFuture<'_, ()>;
    fn incomplete(&mut self, expected: &ObjectStates) -> Vec<&'static str>;
    fn end(
        self: Box<Self>,
        expected: ObjectStates,
    ) -> LocalBoxFuture<'static, Result<Totals, String>>;
}

struct TypedInformer<T: Content> {
    observed: ObservedInformer<T>,
    removed_len: usize,
}

impl<T: Content> TypedInformer<T> {
    fn start(fetcher: HttpFetcher, list_watch: ListWatch<T>) -> Box<dyn ChaosInformer> {
        // Failures are expected here, so they are not logged.
        let observed = ObservedInformer::new(fetcher, list_watch, Arc::new(|_| {}));
        observed.informer.start();
        Box::new(Self {
            observed,
            removed_len: 0,
        })
    }
}

impl<T: Content> ChaosInformer for TypedInformer<T> {
    fn disturb(&mut self, random: &mut Random, at: u64) -> LocalBoxFuture<'_, ()> {
        if random.one_in(4) {
            self.observed.gate.set_closed(random.one_in(2));
        }
        if random.one_in(3) {
            self.observed.read();
        }
        self.observed.note_synced();
        Box::pin(async move {
            if at == STEPS / 3 {
                self.observed.add_handler("late");
            }
            if at == STEPS / 2 {
                // This may block: a slow handler may hold up the thread.
                self.removed_len = self.observed.remove_handler().await;
            }
        })
    }

    fn incomplete(&mut self, expected: &ObjectStates) -> Vec<&'static str> {
        self.observed.gate.set_closed(false);
        self.observed.incomplete(expected)
    }

    fn end(
        self: Box<Self>,
        expected: ObjectStates,
    ) -> LocalBoxFuture<'static, Result<Totals, String>> {
        let Self {
            observed,
            removed_len,
        } = *self;
        Box::pin(async move { observed.end(&expected, removed_len, &[]).await })
    }
}

struct Stage {
    seed: u64,
    random: Random,
    server: Apiserver,
    kind_index: usize,
    direct: HttpFetcher,
    gateway: Running,
    informers: Vec<(String, Box<dyn ChaosInformer>)>,
}

impl Stage {
    async fn start(seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = apiserver::start(listener, Options::default()).unwrap();
        let upstream = format!("http://{}/", server.address()).parse().unwrap();
        let drain = Drain::with_timeout(Duration::from_millis(100));
        let gateway = Running::start(ServeSettings::embedded(upstream), drain).await;
        let through = gateway.address;
        let mut stage = Self {
            seed,
            random: Random(seed),
            kind_index: server.catalogue().index_of_plural("configmaps").unwrap(),
            direct: HttpFetcher::new(server.address(), Http::One),
            informers: Vec::new(),
            server,
            gateway,
        };
        (0..20).for_each(|_| stage.write(0));
        let addresses = [("directly", stage.server.address()), ("gateway", through)];
        let mut variant = seed;
        for (name, address) in addresses {
            for http in [Http::One, Http::Two] {
                let informer = start_informer(variant, HttpFetcher::new(address, http));
                stage
                    .informers
                    .push((format!("{name}, {http:?}"), informer));
                variant += 1;
            }
        }
        stage
    }

    fn order(&self, fault: Fault, verb: Option<Verb>, count: u32) {
        let resource = Some("configmaps".to_owned());
        let order = FaultOrder {
            fault,
            verb,
            resource,
            count,
        };
        // The server refuses an order when a few hundred are pending; the run does not need it then.
        self.server.order(order).unwrap_or_default();
    }

    /// Creates, updates or deletes a random object, with this many bytes of padding.
    fn write(&mut self, padding: usize) {
        let number = self.random.below(KEY_COUNT);
        let key = ObjectKey::new("default", &format!("o{number:02}"));
        let n = self.random.number() >> 16;
        let content = json!({"metadata": {"name": key.name(), "annotations": {"n": n.to_string()}}, "data": {"n": n.to_string(), "padding": "x".repeat(padding)}});
        let store = self.server.store();
        let exists = store.object(self.kind_index, &key).is_ok();
        let choice = self.random.below(6);
        if exists && choice < 3 {
            let write = Write::merge(self.kind_index, key, content);
            store.write(write).unwrap();
            return;
        }
        if exists {
            let write = Write::delete(self.kind_index, key.clone());
            store.write(write).unwrap();
        }
        // Most deleted objects are created again at once, as another object.
        if !exists || choice < 5 {
            let write = Write::create(self.kind_index, key.namespace(), content);
            store.write(write).unwrap();
        }
    }

    fn disturb(&mut self) {
        let retry_after_seconds = 1;
        let code = self.random.one_of(&[410, 429, 500, 503]);
        let after_bytes = self.random.below(3_000);
        let refuse = Fault::Refuse {
            code,
            retry_after_seconds,
        };
        match self.random.below(28) {
            0 => self.order(Fault::CutWatch { after_bytes }, None, 2),
            1 => self.order(Fault::GarbageFrame, None, 1),
            2 => self.order(refuse, Some(Verb::Watch), 2),
            3 => self.order(refuse, Some(Verb::List), 2),
            4 => self.order(Fault::CloseConnection, None, 1),
            5 | 6 => self.order(Fault::EndWatches, None, 1),
            7 => self.order(Fault::Compact, None, 1),
            _ => {}
        }
    }

    /// An outage of watches: they end and are refused while objects are written whose history is then compacted.
    async fn watch_outage(&mut self) {
        let refuse = Fault::Refuse {
            code: 503,
            retry_after_seconds: 1,
        };
        self.order(refuse, Some(Verb::Watch), 1_000);
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
            if self.seed % 5 == 3 && self.random.one_in(8) {
                self.burst();
            }
            for _ in 0..self.random.below(5) {
                self.write(0);
            }
            if at % 50 == 10 {
                self.watch_outage().await;
            }
            for (_, informer) in &mut self.informers {
                informer.disturb(&mut self.random, at).await;
            }
            tokio::time::sleep(STEP).await;
        }
        self.order(Fault::Clear, None, 1);
        self.order(Fault::EndWatches, None, 1);
        (0..3).for_each(|_| self.write(0));
    }

    /// Writes objects of one size without a pause, at most a few megabytes in all; returns a description.
    fn burst(&mut self) -> String {
        let count = self.random.one_of(&BURSTS);
        let padding = self.random.one_of(&[100, 1_000, 20_000, 70_000, 1 << 20]);
        let padding = padding.min((4 << 20) / usize::try_from(count).unwrap());
        (0..count).for_each(|_| self.write(padding));
        format!("{count} writes of {padding} bytes")
    }

    /// Waits until all informers have the server's objects, for at most `within`; returns the time it took.
    async fn wait_until_complete(&mut self, when: &str, within: Duration) -> Duration {
        let started_at = Instant::now();
        let expected = self.server_objects().await;
        loop {
            let mut incomplete = Vec::new();
            for (name, informer) in &mut self.informers {
                let names = informer.incomplete(&expected).into_iter();
                incomplete.extend(names.map(|part| format!("{name}: {part}")));
            }
            let elapsed = started_at.elapsed();
            if incomplete.is_empty() {
                return elapsed;
            }
            assert!(
                elapsed < within,
                "seed {}, incomplete {when}: {incomplete:?} after {elapsed:?}",
                self.seed
            );
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// The server's objects.
    async fn server_objects(&self) -> ObjectStates {
        let response = self
            .direct
            .send("/api/v1/configmaps", "application/json")
            .await;
        let body = response.unwrap().into_body().collect().await.unwrap();
        let list: Value = serde_json::from_slice(&body.to_bytes()).unwrap();
        let state = |item: &Value| {
            let metadata = |name: &str| item["metadata"][name].as_str().unwrap().to_owned();
            let state = ObjectState {
                uid: metadata("uid"),
                version: metadata("resourceVersion").parse().unwrap(),
                n: item["data"]["n"].as_str().unwrap().parse().ok(),
            };
            (
                format!("{}/{}", metadata("namespace"), metadata("name")),
                state,
            )
        };
        list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(state)
            .collect()
    }

    async fn end(mut self) -> Vec<Totals> {
        self.wait_until_complete("after the faults", PATIENCE).await;
        let last = self.burst();
        let elapsed = self
            .wait_until_complete("at the end", DELIVERY_TIME_MAX)
            .await;
        eprintln!(
            "seed {}: {last}; all informers had them after {elapsed:?}",
            self.seed
        );
        let expected = self.server_objects().await;
        let mut totals = Vec::new();
        for (name, informer) in self.informers {
            let ended = informer.end(expected.clone()).await;
            totals.push(
                ended.unwrap_or_else(|violation| panic!("seed {}, {name}: {violation}", self.seed)),
            );
        }
        self.gateway.ended().await;
        totals
    }
}

fn start_informer(variant: u64, fetcher: HttpFetcher) -> Box<dyn ChaosInformer> {
    let gvr = Gvr::new("", "v1", "configmaps");
    match variant % 5 {
        0 => TypedInformer::start(fetcher, ListWatch::raw(&gvr)),
        1 => TypedInformer::start(fetcher, ListWatch::<ConfigMap>::of_kind().in_pages(5)),
        2 => TypedInformer::start(fetcher, ListWatch::metadata(&gvr)),
        3 => TypedInformer::start(fetcher, ListWatch::<ConfigMap>::of_kind().consistent()),
        _ => TypedInformer::start(fetcher, ListWatch::metadata(&gvr).in_pages(5)),
    }
}

/// Runs all seeds concurrently, because they mostly wait.
pub(crate) async fn play_all(seeds: impl IntoIterator<Item = u64> + Debug) {
    let runs = seeds.into_iter().map(|seed| async move {
        let mut stage = Stage::start(seed).await;
        stage.play().await;
        stage.end().await
    });
    let totals: Vec<_> = join_all(runs).await.into_iter().flatten().collect();
    let sum = |of: fn(&Totals) -> u64| totals.iter().map(of).sum::<u64>();
    let (recreated, missed_deletions) = (
        sum(|totals| totals.recreated),
        sum(|totals| totals.missed_deletions),
    );
    let (notifications, merged) = (
        sum(|totals| totals.notifications),
        sum(|totals| totals.merged),
    );
    let all = format!(
        "{recreated} recreated, {missed_deletions} missed deletions, {notifications} notifications, {merged} merged"
    );
    assert!(
        recreated > 10 && missed_deletions > 10 && notifications > 5_000 && merged > 10,
        "{all}"
    );
    assert_eq!(sum(|totals| totals.older_lists), 0);
}
