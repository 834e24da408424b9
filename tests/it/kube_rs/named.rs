//! kube-rs against a gateway that runs elsewhere, named by environment variables. Somebody else writes meanwhile.
//!
//! | variable | meaning |
//! |---|---|
//! | `KUBE_FANOUT_TEST_URL` | the gateway |
//! | `KUBE_FANOUT_TEST_DIRECT_URL` | the API server, for the lists that stores are compared with; else the gateway is asked |
//! | `KUBE_FANOUT_TEST_CA_FILE`, `KUBE_FANOUT_TEST_TOKEN_FILE` | for both, if given |
//! | `KUBE_FANOUT_TEST_SECONDS` | so long it is watched before stores are compared; 10 if not given |
//!
//! ```text
//! KUBE_FANOUT_TEST_URL=http://127.0.0.1:8001 cargo test --test kube_rs -- --ignored --nocapture named::
//! ```
#![expect(
    clippy::disallowed_methods,
    reason = "a test runner passes variables, not settings"
)]
#![expect(clippy::print_stdout, reason = "whoever writes waits for these lines")]

use std::env;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DynamicObject, PartialObjectMeta};
use kube::runtime::watcher::Config;
use kube::{Api, Client};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use crate::kube_rs::follower::{Collection, Follower};
use crate::kube_rs::stage::resource;

pub(crate) fn variable(name: &str) -> Option<String> {
    env::var(format!("KUBE_FANOUT_TEST_{name}")).ok()
}

pub(crate) fn client(url: &str) -> Client {
    let mut config = kube::Config::new(url.parse().unwrap());
    config.root_cert = variable("CA_FILE").map(|path| {
        let certificates = CertificateDer::pem_file_iter(path).unwrap();
        let bytes = certificates.map(|certificate| certificate.unwrap().to_vec());
        bytes.collect()
    });
    config.auth_info.token_file = variable("TOKEN_FILE");
    Client::try_from(config).unwrap()
}

/// Watches pods for a while; then the stores must become what the server holds.
async fn follow_pods(config: Config) {
    let Some(url) = variable("URL") else {
        panic!("KUBE_FANOUT_TEST_URL must name a gateway");
    };
    let direct = variable("DIRECT_URL").unwrap_or_else(|| url.clone());
    let seconds = variable("SECONDS").map_or(10, |text| text.parse().unwrap());
    let (through, direct) = (client(&url), client(&direct));
    let mut followers = Vec::new();
    for selector in [None, Some("n"), Some("n notin (0, 1)")] {
        let mut config = config.clone();
        config.label_selector = selector.map(str::to_owned);
        let typed: Collection<Pod> = Collection {
            watched: Api::all(through.clone()),
            truth: Api::all(direct.clone()),
            dynamic_type: (),
        };
        let metadata: Collection<PartialObjectMeta<Pod>> = Collection {
            watched: Api::all(through.clone()),
            truth: Api::all(direct.clone()),
            dynamic_type: (),
        };
        let resource = resource("", "Pod");
        let dynamic: Collection<DynamicObject> = Collection {
            watched: Api::all_with(through.clone(), &resource),
            truth: Api::all_with(direct.clone(), &resource),
            dynamic_type: resource,
        };
        let name = |what: &str| format!("{what}, selector {selector:?}");
        followers.extend([
            Follower::start(name("typed pods"), typed, config.clone()),
            Follower::start(name("metadata of pods"), metadata, config.clone()),
            Follower::start(name("dynamic pods"), dynamic, config),
        ]);
    }
    for follower in &mut followers {
        follower.filled().await;
    }
    println!("watching");
    // Not to synchronise: it is the time of watching that was asked for.
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    for follower in &mut followers {
        follower.converged().await;
        follower.check_undisturbed();
    }
    let changes = followers.iter().map(|follower| follower.course().changes);
    println!("changes: {}", changes.sum::<u64>());
}

#[tokio::test]
#[ignore = "needs a gateway in KUBE_FANOUT_TEST_URL"]
async fn list_watch_converges() {
    follow_pods(Config::default().page_size(5)).await;
}

#[tokio::test]
#[ignore = "needs a gateway in KUBE_FANOUT_TEST_URL"]
async fn streaming_list_converges() {
    follow_pods(Config::default().streaming_lists()).await;
}
