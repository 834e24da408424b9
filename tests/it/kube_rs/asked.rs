//! kube-rs against a gateway that may be restarted meanwhile: tells what its stores hold whenever it is asked.
//!
//! Variables as in `named.rs`. A line on standard input is a question: `ids` or `whole`; the answer is one line of JSON. Ends with its input.

use std::io::stdin;
use std::thread;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DynamicObject, PartialObjectMeta};
use kube::runtime::watcher::Config;
use kube::{Api, Client};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use crate::kube_rs::follower::{Collection, Followed, Follower};
use crate::kube_rs::named::{client, variable};
use crate::kube_rs::stage::resource;

/// Followers of one gateway.
struct Crowd {
    through: Client,
    followers: Vec<Follower>,
}

impl Crowd {
    fn follow<K: Followed>(&mut self, name: String, dynamic_type: K::DynamicType, config: Config) {
        // The truth is the asker's to know.
        let collection = Collection::<K> {
            watched: Api::all_with(self.through.clone(), &dynamic_type),
            truth: Api::all_with(self.through.clone(), &dynamic_type),
            dynamic_type,
        };
        self.followers
            .push(Follower::start(name, collection, config));
    }

    /// All kinds and forms, in one way of getting the first state.
    fn follow_all(&mut self, way: &str, config: &Config) {
        let name = |what: &str, selectors: &str| format!("{what}|{way}|{selectors}");
        for labels in ["", "app=demo"] {
            let selected = match labels {
                "" => config.clone(),
                labels => config.clone().labels(labels),
            };
            let name = |what: &str| name(what, &format!("{labels}|"));
            self.follow::<Pod>(name("typed pods"), (), selected.clone());
            self.follow::<PartialObjectMeta<Pod>>(name("metadata pods"), (), selected.clone());
            self.follow::<DynamicObject>(name("dynamic pods"), resource("", "Pod"), selected);
        }
        let on_node = config.clone().fields("spec.nodeName=node-1");
        self.follow::<Pod>(name("typed pods", "|spec.nodeName=node-1"), (), on_node);
        self.follow::<ConfigMap>(name("typed configmaps", "|"), (), config.clone());
        let widget = resource("example.com", "Widget");
        self.follow::<DynamicObject>(name("dynamic widgets", "|"), widget, config.clone());
    }

    fn contents(&self, whole: bool) -> Value {
        let told = self.followers.iter().map(|follower| {
            let held = follower.held();
            let ids: Map<_, _> = held
                .iter()
                .map(|(key, object)| {
                    let meta = &object["metadata"];
                    (key.clone(), json!([meta["uid"], meta["resourceVersion"]]))
                })
                .collect();
            let course = follower.course();
            let mut answer = json!({
                "synced": course.lists_done > 0,
                "objects": ids,
                "back": course.went_back,
                "lists": course.lists_begun,
                "errors": course.errors.len(),
                "last_error": course.errors.last(),
            });
            if whole {
                answer["whole"] = json!(held);
            }
            (follower.name().to_owned(), answer)
        });
        json!({"event": "contents", "clients": told.collect::<Map<_, _>>()})
    }
}

#[tokio::test]
#[ignore = "needs a gateway in KUBE_FANOUT_TEST_URL"]
async fn tells_what_its_stores_hold() {
    let Some(url) = variable("URL") else {
        panic!("KUBE_FANOUT_TEST_URL must name a gateway");
    };
    let mut crowd = Crowd {
        through: client(&url),
        followers: Vec::new(),
    };
    crowd.follow_all("list-watch", &Config::default().page_size(5));
    let any = Config::default().any_semantic();
    crowd.follow::<Pod>(
        "typed pods|list-watch from any version||".to_owned(),
        (),
        any,
    );
    crowd.follow_all("streaming list", &Config::default().streaming_lists());
    let (ask, mut questions) = mpsc::channel(1);
    thread::spawn(move || {
        for question in stdin().lines() {
            if ask.blocking_send(question.unwrap()).is_err() {
                break;
            }
        }
    });
    while let Some(question) = questions.recv().await {
        println!("{}", crowd.contents(question == "whole"));
    }
}
