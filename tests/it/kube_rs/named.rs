//! kube-rs as a client of a gateway that runs elsewhere, while another program writes. Environment variables name the gateway:
//!
//! | variable | meaning |
//! |---|---|
//! | `KUBE_FANOUT_TEST_URL` | the gateway |
//! | `KUBE_FANOUT_TEST_DIRECT_URL` | the API server, for the lists that stores are compared with; the gateway if not set |
//! | `KUBE_FANOUT_TEST_CA_FILE`, `KUBE_FANOUT_TEST_TOKEN_FILE` | the CA certificates and the token for both, if set |
//! | `KUBE_FANOUT_TEST_SECONDS` | the seconds of watching before stores are compared; 10 if not set |
//!
//! ```text
//! KUBE_FANOUT_TEST_URL=http://127.0.0.1:8001 cargo test --test it -- --ignored --nocapture kube_rs::named::
//! ```
#![expect(
    clippy::disallowed_methods,
    reason = "a test runner passes variables, not settings"
)]
#![expect(
    clippy::print_stdout,
    reason = "the program that writes waits for these lines"
)]

use std::env;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DynamicObject, PartialObjectMeta};
use kube::runtime::watcher::Config;
use kube::{Api, Client};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use crate::kube_rs::stage::resource;
use crate::kube_rs::store_watcher::{Collection, StoreWatcher};

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

/// Watches pods for a while; then the stores must become equal to the server's objects.
async fn watch_pods(config: Config) {
    let Some(url) = variable("URL") else {
        panic!("KUBE_FANOUT_TEST_URL must name a gateway");
    };
    let reference_client = variable("DIRECT_URL").unwrap_or_else(|| url.clone());
    let seconds = variable("SECONDS").map_or(10, |text| text.parse().unwrap());
    let (gateway_client, reference_client) = (client(&url), client(&reference_client));
    let mut watchers = Vec::new();
    for selector in [None, Some("n"), Some("n notin (0, 1)")] {
        let mut config = config.clone();
        config.label_selector = selector.map(str::to_owned);
        let typed: Collection<Pod> = Collection {
            watched: Api::all(gateway_client.clone()),
            reference: Api::all(reference_client.clone()),
            dynamic_type: (),
        };
        let metadata: Collection<PartialObjectMeta<Pod>> = Collection {
            watched: Api::all(gateway_client.clone()),
            reference: Api::all(reference_client.clone()),
            dynamic_type: (),
        };
        let resource = resource("", "Pod");
        let dynamic: Collection<DynamicObject> = Collection {
            watched: Api::all_with(gateway_client.clone(), &resource),
            reference: Api::all_with(reference_client.clone(), &resource),
            dynamic_type: resource,
        };
        let name = |what: &str| format!("{what}, selector {selector:?}");
        watchers.extend([
            StoreWatcher::start(name("typed pods"), typed, config.clone()),
            StoreWatcher::start(name("metadata of pods"), metadata, config.clone()),
            StoreWatcher::start(name("dynamic pods"), dynamic, config),
        ]);
    }
    for watcher in &mut watchers {
        watcher.filled().await;
    }
    println!("watching");
    // This is the requested time of watching, not a synchronisation.
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    for watcher in &mut watchers {
        watcher.converged().await;
        watcher.check_undisturbed();
    }
    let changes = watchers.iter().map(|watcher| watcher.stats().changes);
    println!("changes: {}", changes.sum::<u64>());
}

#[tokio::test]
#[ignore = "needs a gateway in KUBE_FANOUT_TEST_URL"]
async fn list_watch_converges() {
    watch_pods(Config::default().page_size(5)).await;
}

#[tokio::test]
#[ignore = "needs a gateway in KUBE_FANOUT_TEST_URL"]
async fn streaming_list_converges() {
    watch_pods(Config::default().streaming_lists()).await;
}
