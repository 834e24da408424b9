//! A gateway in this process that ends correctly, and behind relays that break its end.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use kube_fanout::config::{ListenTransport, ServeSettings};
use kube_fanout::gateway;
use kube_fanout::shutdown::Drain;
use kube_fanout_testkit::apiserver::{Apiserver, Options};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::spoiler::{Spoiler, Spoils};
use super::{DEADLINE, finds, proves, server};
use crate::results::Results;
use crate::scenario::drain;

/// Number of clients with these watchers of all kinds and four listers.
const WATCHERS: usize = 40;
const CLIENTS: f64 = 44.0;
/// A list of this many objects of 5,000 bytes is longer than what sockets buffer.
const FLAGS: &str = "--watchers 40 --listers 4 --ballast-objects 300 --objects 8 --write-rate 40 --object-size 1500 --duration 0.5";
/// For a gateway that ends in time.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(100);

/// A gateway in this process.
struct Gateway {
    address: SocketAddr,
    drain: Drain,
    running: JoinHandle<()>,
    /// Whether it was asked to end.
    ends: watch::Sender<bool>,
    /// Whether it ignores the request.
    goes_on: bool,
}

impl Gateway {
    async fn start(api: &Apiserver, transport: ListenTransport) -> Self {
        let upstream = format!("http://{}", api.address()).parse().unwrap();
        let settings = ServeSettings {
            transport,
            ..ServeSettings::embedded(upstream)
        };
        let built = gateway::Gateway::build(settings).await.unwrap();
        let drain = Drain::with_timeout(DRAIN_TIMEOUT);
        Self {
            address: built.address().unwrap(),
            running: tokio::spawn(built.run(drain.clone())),
            drain,
            ends: watch::Sender::new(false),
            goes_on: false,
        }
    }

    async fn spoiled(&self, spoils: Spoils) -> Spoiler {
        Spoiler::before(self.address, spoils, self.ends.subscribe()).await
    }
}

impl drain::gateway::GatewayControl for Gateway {
    fn terminate(&self) -> Result<()> {
        self.ends.send_replace(true);
        if !self.goes_on {
            self.drain.begin();
        }
        Ok(())
    }

    fn has_ended(&self) -> bool {
        self.running.is_finished()
    }
}

async fn play(api: &Apiserver, gateway: &Gateway, more: &str) -> Results {
    let reference = api.address();
    let line = format!("drain {FLAGS} --reference http://{reference} {more}");
    let flags = drain::Drain::try_parse_from(line.split_whitespace()).unwrap();
    let mut results = Results::new("drain");
    let playing = drain::play(&flags, gateway, &mut results);
    let playing = tokio::time::timeout(DEADLINE, playing);
    playing.await.unwrap().unwrap();
    results
}

/// TLS with a certificate for this machine, whose files are in the folder.
fn tls(folder: &TempDir) -> ListenTransport {
    let (cert, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    ListenTransport::Tls {
        cert,
        key,
        sni: Vec::new(),
    }
}

#[track_caller]
fn all_ended_in_order(results: &Results) {
    proves(results, "ended in order with all events", CLIENTS);
    assert_eq!(results.value("clients", 0), Some(CLIENTS), "{results}");
    proves(results, "events verified", WATCHERS as f64);
    proves(results, "new connections refused", 1.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_ends_as_it_should_passes() {
    let api = server(Options::default()).await;
    let gateway = Gateway::start(&api, ListenTransport::PlainHttp).await;
    let target = format!("--target http://{}", gateway.address);
    all_ended_in_order(&play(&api, &gateway, &target).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_tls_too_unless_the_end_of_tls_does_not_come() {
    let certificate = tempfile::tempdir().unwrap();
    let ca = certificate.path().join("tls.crt");
    let api = server(Options::default()).await;
    let flags = |address: SocketAddr| format!("--target https://{address} --ca {}", ca.display());

    let gateway = Gateway::start(&api, tls(&certificate)).await;
    all_ended_in_order(&play(&api, &gateway, &flags(gateway.address)).await);

    let gateway = Gateway::start(&api, tls(&certificate)).await;
    // The alert record of TLS 1.3 at the end.
    let spoiler = gateway.spoiled(Spoils::Shortens(24)).await;
    let results = play(&api, &gateway, &flags(spoiler.address)).await;
    finds(
        &results,
        "HTTP/1.1: its connection was reset, or closed without",
    );
    finds(
        &results,
        "WebSocket: closed by the server without closing TLS",
    );
}

async fn play_spoiled(spoils: Spoils, goes_on: bool, more: &str) -> Results {
    let api = server(Options::default()).await;
    let spoils = match spoils {
        Spoils::Serves(_) => Spoils::Serves(api.address()),
        spoils => spoils,
    };
    let mut gateway = Gateway::start(&api, ListenTransport::PlainHttp).await;
    gateway.goes_on = goes_on;
    let spoiler = gateway.spoiled(spoils).await;
    let more = format!("--target http://{} {more}", spoiler.address);
    play(&api, &gateway, &more).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_that_lacks_its_last_bytes_is_found() {
    let results = play_spoiled(Spoils::Shortens(4), false, "").await;
    for name in ["HTTP/1.1", "HTTP/1.1, slow", "HTTP/1.1, forwarded"] {
        finds(&results, &format!("{name}: closed by the server within"));
    }
    finds(&results, "WebSocket: a WebSocket that was closed without a");
    finds(
        &results,
        "list, HTTP/1.1: closed by the server within a response",
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_is_missing_before_the_end_is_found() {
    let results = play_spoiled(Spoils::Loses, false, "").await;
    for name in ["HTTP/1.1", "HTTP/1.1, metadata", "HTTP/1.1, forwarded"] {
        finds(&results, &format!("{name}: lost: version"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_falls_silent_is_found() {
    let results = play_spoiled(Spoils::FallsSilent, true, "--drain-timeout 1").await;
    finds(&results, "HTTP/1.1: did not end");
    finds(&results, "HTTP/2: did not end");
    finds(&results, "list, HTTP/2: did not end");
    finds(&results, "a new connection got no response");
    finds(&results, "has not ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_served_after_the_others_have_gone_is_found() {
    let other = SocketAddr::from(([127, 0, 0, 1], 0));
    let results = play_spoiled(Spoils::Serves(other), false, "").await;
    finds(&results, "a new connection was served although");
}
