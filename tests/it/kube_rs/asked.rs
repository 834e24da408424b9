//! kube-rs as a client of a gateway that may be restarted meanwhile. Tests that another program runs: one prints the contents of its stores on
//! that program's request, one the names of a watch's objects; they compare nothing themselves.
//!
//! | variable | meaning |
//! |---|---|
//! | `KUBE_FANOUT_TEST_URL` | the gateway; `in-cluster`: what a pod's environment names |
//! | `KUBE_FANOUT_TEST_CA_FILE`, `KUBE_FANOUT_TEST_TOKEN_FILE` | the CA certificates and the token for it, if set |
//!
//! Of the stores each line on standard input is a request: `whole` for whole objects, any other text for their ids. The response is one line
//! of JSON. The test ends when its input ends.
#![expect(
    clippy::disallowed_methods,
    reason = "a test runner passes variables, not settings"
)]

use std::env;
use std::io::stdin;
use std::thread;

use futures::{AsyncBufReadExt, StreamExt};
use http::Request;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DynamicObject, PartialObjectMeta};
use kube::runtime::watcher::Config;
use kube::{Api, Client};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use crate::kube_rs::stage::resource;
use crate::kube_rs::store_watcher::{Collection, StoreWatcher, WatchableKind};

fn variable(name: &str) -> Option<String> {
    env::var(format!("KUBE_FANOUT_TEST_{name}")).ok()
}

fn client() -> Client {
    let Some(url) = variable("URL") else {
        panic!("KUBE_FANOUT_TEST_URL must name a gateway");
    };
    if url == "in-cluster" {
        return Client::try_from(kube::Config::incluster().unwrap()).unwrap();
    }
    let mut config = kube::Config::new(url.parse().unwrap());
    config.root_cert = variable("CA_FILE").map(|path| {
        let certificates = CertificateDer::pem_file_iter(path).unwrap();
        let bytes = certificates.map(|certificate| certificate.unwrap().to_vec());
        bytes.collect()
    });
    config.auth_info.token_file = variable("TOKEN_FILE");
    Client::try_from(config).unwrap()
}

/// All watchers of one gateway.
struct WatcherSet {
    client: Client,
    watchers: Vec<StoreWatcher>,
}

impl WatcherSet {
    fn watch<K: WatchableKind>(
        &mut self,
        name: String,
        dynamic_type: K::DynamicType,
        config: Config,
    ) {
        // The requesting program compares the stores itself, so the watchers need no direct connection to the API server.
        let collection = Collection::<K> {
            watched: Api::all_with(self.client.clone(), &dynamic_type),
            reference: Api::all_with(self.client.clone(), &dynamic_type),
            dynamic_type,
        };
        self.watchers
            .push(StoreWatcher::start(name, collection, config));
    }

    /// Starts watchers of all kinds and representations, with one way of listing. The requesting program splits a watcher's name at `|`:
    /// representation and kind, the way of listing, label selector, field selector.
    fn watch_all(&mut self, method: &str, config: &Config) {
        let name =
            |what: &str, labels: &str, fields: &str| format!("{what}|{method}|{labels}|{fields}");
        for labels in ["", "app=demo"] {
            let selected = match labels {
                "" => config.clone(),
                labels => config.clone().labels(labels),
            };
            let [typed, metadata, dynamic] =
                ["typed pods", "metadata pods", "dynamic pods"].map(|what| name(what, labels, ""));
            self.watch::<Pod>(typed, (), selected.clone());
            self.watch::<PartialObjectMeta<Pod>>(metadata, (), selected.clone());
            self.watch::<DynamicObject>(dynamic, resource("", "Pod"), selected);
        }
        let fields = "spec.nodeName=node-1";
        let on_node = config.clone().fields(fields);
        self.watch::<Pod>(name("typed pods", "", fields), (), on_node);
        self.watch::<ConfigMap>(name("typed configmaps", "", ""), (), config.clone());
        let widget = resource("example.com", "Widget");
        self.watch::<DynamicObject>(name("dynamic widgets", "", ""), widget, config.clone());
    }

    /// The response to a request: for each watcher its statistics, the uid and the version of each object, and if `whole` the objects.
    fn contents(&self, whole: bool) -> Value {
        let contents_by_name = self.watchers.iter().map(|watcher| {
            let objects = watcher.objects_in_store();
            let ids: Map<_, _> = objects
                .iter()
                .map(|(key, object)| {
                    let meta = &object["metadata"];
                    (key.clone(), json!([meta["uid"], meta["resourceVersion"]]))
                })
                .collect();
            let stats = watcher.stats();
            let mut response = json!({
                "synced": stats.lists_done > 0,
                "objects": ids,
                "back": stats.went_back,
                "lists": stats.lists_started,
                "errors": stats.errors.len(),
                "last_error": stats.errors.last(),
            });
            if whole {
                response["whole"] = json!(objects);
            }
            (watcher.name().to_owned(), response)
        });
        json!({"event": "contents", "clients": contents_by_name.collect::<Map<_, _>>()})
    }
}

#[tokio::test]
#[ignore = "needs a gateway in KUBE_FANOUT_TEST_URL"]
async fn tells_what_its_stores_hold() {
    let mut watcher_set = WatcherSet {
        client: client(),
        watchers: Vec::new(),
    };
    watcher_set.watch_all("list-watch", &Config::default().page_size(5));
    let any = Config::default().any_semantic();
    watcher_set.watch::<Pod>(
        "typed pods|list-watch from any version||".to_owned(),
        (),
        any,
    );
    watcher_set.watch_all("streaming list", &Config::default().streaming_lists());
    // One request at a time: the requesting program waits for each response.
    let (request_sender, mut requests) = mpsc::channel(1);
    thread::spawn(move || {
        for request in stdin().lines() {
            if request_sender.blocking_send(request.unwrap()).is_err() {
                break;
            }
        }
    });
    while let Some(request) = requests.recv().await {
        println!("{}", watcher_set.contents(request == "whole"));
    }
}

/// kube-rs's own watches do not accept gzip, but what its client sends otherwise does: tower-http decodes it by async-compression, as for
/// other Rust clients.
#[tokio::test]
#[ignore = "needs a gateway in KUBE_FANOUT_TEST_URL"]
async fn prints_the_names_of_a_watch_that_accepts_gzip() {
    let request = Request::get("/api/v1/configmaps?watch=1").body(Vec::new());
    let body = client().request_stream(request.unwrap()).await;
    let mut lines = body.unwrap().lines();
    while let Some(line) = lines.next().await {
        let event: Value = serde_json::from_str(&line.unwrap()).unwrap();
        println!("{}", event["object"]["metadata"]["name"]);
    }
}
