//! Clients change sides between memory and upstream while objects are written, by percentage and all at once: none misses an event, gets
//! one twice, or has to list.

use std::net::SocketAddr;
use std::time::Duration;

use kube_fanout::config::{AuthMode, ServeSettings, ServingChange, ServingRequest};
use kube_fanout::serving_command;
use kube_fanout::shutdown::Drain;
use kube_fanout_testkit::apiserver::{self, Apiserver, Options};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::support::PATIENCE;
use crate::support::auth::AuthStage;
use crate::support::client::{listed, metric_sum, put_rules, text};
use crate::support::gateway::Running;
use crate::support::resuming::{Balancer, Store, http1_client, http2_client};

/// Clients with a watch over HTTP/1.1, and clients with two watches on one connection of HTTP/2; a tenth of each is `first`.
const HTTP1_CLIENTS: usize = 60;
const HTTP2_CLIENTS: usize = 20;
const WATCHES: usize = HTTP1_CLIENTS + 2 * HTTP2_CLIENTS;
const FIRST: usize = WATCHES / 10;

const ALL: &str = "{mode: rules, switchOver: 1s}";
const NONE: &str = "{mode: passthrough, switchOver: 1s}";
/// Only a few are answered from memory.
const SOME: &str =
    "{switchOver: 1s, rules: [{name: first, agents: ['first/*']}, {name: rest, percent: 0}]}";

fn agent(client: usize) -> &'static str {
    match client.is_multiple_of(10) {
        true => "first/1.0",
        false => "later/1.0",
    }
}

/// Waits until memory has this many watches, and upstream the others.
async fn divided(gateway: &Running, from_memory: usize) {
    let give_up_at = Instant::now() + 3 * PATIENCE;
    loop {
        let memory = metric_sum(gateway.admin, "kube_fanout_longrunning_requests", "").await;
        let forwarded = "kube_fanout_passthrough_requests_active";
        let forwarded = metric_sum(gateway.admin, forwarded, "").await;
        if memory == from_memory && forwarded == WATCHES - from_memory {
            return;
        }
        let shown = format!("{memory} from memory, {forwarded} forwarded");
        assert!(Instant::now() < give_up_at, "{shown}, not {from_memory}");
        sleep(Duration::from_millis(20)).await;
    }
}

async fn stage() -> (Apiserver, Running) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = Options {
        objects: vec!["configmaps=50".parse().unwrap()],
        object_len: 600,
        ..Options::default()
    };
    let apiserver = apiserver::start(listener, options).unwrap();
    let upstream = format!("http://{}", apiserver.address()).parse().unwrap();
    let gateway = Running::start(ServeSettings::embedded(upstream), Drain::new()).await;
    (apiserver, gateway)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_change_sides_and_miss_nothing() {
    let (apiserver, gateway) = stage().await;
    let (from, _) = listed(gateway.address).await;

    let (last_version, last) = watch::channel(u64::MAX);
    let balancer = Balancer::of(&[gateway.address]);
    let direct = Balancer::of(&[apiserver.address()]);
    let direct = http1_client(
        apiserver.address(),
        direct,
        last.clone(),
        Store::after(from, ""),
    );
    let direct = tokio::spawn(direct);
    let mut clients = JoinSet::new();
    for client in 0..HTTP1_CLIENTS {
        let store = Store::after(from, agent(client));
        let client = http1_client(gateway.address, balancer.clone(), last.clone(), store);
        clients.spawn(async move { vec![client.await] });
    }
    for client in 0..HTTP2_CLIENTS {
        let store = Store::after(from, agent(client));
        clients.spawn(http2_client(
            gateway.address,
            balancer.clone(),
            last.clone(),
            store,
        ));
    }
    divided(&gateway, WATCHES).await;
    apiserver.set_churn(50);
    for (rules, from_memory) in [
        (NONE, 0),
        (ALL, WATCHES),
        (SOME, FIRST),
        (ALL, WATCHES),
        (NONE, 0),
        (SOME, FIRST),
        (NONE, 0),
    ] {
        put_rules(gateway.admin, rules).await;
        divided(&gateway, from_memory).await;
    }
    // The last change meets watches that have only begun, and another change comes before it is over.
    put_rules(gateway.admin, SOME).await;
    put_rules(gateway.admin, ALL).await;
    divided(&gateway, WATCHES).await;
    apiserver.set_churn(0);
    let (newest, _) = listed(apiserver.address()).await;
    last_version.send(newest).unwrap();

    let direct = direct.await.unwrap().events_until(newest);
    assert!(!direct.is_empty());
    let (mut ends, mut count) = (0, 0);
    for store in clients.join_all().await.into_iter().flatten() {
        assert_eq!(store.events_until(newest), direct);
        ends += store.ends;
        count += 1;
    }
    assert_eq!(count, WATCHES);
    // Each of the first six changes ends those whose side it changes.
    assert!(ends >= 2 * WATCHES + 4 * (WATCHES - FIRST), "{ends}");
    let (name, reason) = ("kube_fanout_stream_ends_total", "reason=\"switch_over\"");
    let switched = metric_sum(gateway.admin, name, reason).await;
    assert!(switched >= 2 * WATCHES + (WATCHES - FIRST), "{switched}");
    // One list was the test's own.
    let lists = metric_sum(gateway.admin, "kube_fanout_request_total", "verb=\"LIST\"").await;
    assert_eq!(lists, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_rule_forwards_is_counted_by_rule_and_memory_is_left_alone() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let apiserver = apiserver::start(listener, Options::default()).unwrap();
    let upstream = format!("http://{}", apiserver.address()).parse().unwrap();
    let rules = "rules: [{name: pods, resources: [pods], percent: 0}, {name: rest}]";
    let settings = ServeSettings {
        serving: rules.parse().unwrap(),
        ..ServeSettings::embedded(upstream)
    };
    let gateway = Running::start(settings, Drain::new()).await;
    for _ in 0..3 {
        text(gateway.address, "/api/v1/pods").await;
    }
    text(gateway.address, "/api/v1/nodes").await;
    // An object is never answered from memory, so no rule decides about it.
    text(gateway.address, "/api/v1/nodes/none").await;
    let count = async |labels: &str| {
        metric_sum(
            gateway.admin,
            "kube_fanout_serving_rule_requests_total",
            labels,
        )
        .await
    };
    assert_eq!(count("answerer=\"upstream\",rule=\"pods\"").await, 3);
    assert_eq!(count("answerer=\"memory\",rule=\"rest\"").await, 1);
    assert_eq!(count("").await, 4);
    let caches = metric_sum(
        gateway.admin,
        "kube_fanout_cache_objects",
        "resource=\"pods\"",
    )
    .await;
    assert_eq!(caches, 0);
}

/// Reviews of tokens and of accesses that the gateway has asked for.
async fn reviews(stage: &AuthStage) -> usize {
    metric_sum(stage.admin, "kube_fanout_reviews_total", "").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_about_users_wait_for_authentication_and_upstream_authorizes_the_others() {
    let rules = "rules: [{name: bob, users: [bob]}, {name: ops, groups: ['ops-*'], percent: 0}]";
    let stage = AuthStage::with(AuthMode::Review, |settings| {
        settings.serving = rules.parse().unwrap();
    });
    let stage = stage.await;
    stage.allow_bob_alice_and_eve().await;
    stage.user("bobs-token", "bob", &[]);
    stage.user("alices-token", "alice", &["ops-a"]);
    stage.user("carols-token", "carol", &["ops-b"]);
    let pods = "/api/v1/namespaces/default/pods";
    for (token, code) in [
        ("bobs-token", 200),
        ("alices-token", 200),
        ("carols-token", 403),
        ("nobodys-token", 401),
    ] {
        let response = stage.ask(token, "GET", pods).await;
        assert_eq!(response.status().as_u16(), code, "{token}");
    }
    let count = async |labels: &str| {
        metric_sum(
            stage.admin,
            "kube_fanout_serving_rule_requests_total",
            labels,
        )
        .await
    };
    assert_eq!(count("answerer=\"memory\",rule=\"bob\"").await, 1);
    // Upstream has answered carol: she is asked about nowhere else.
    assert_eq!(count("answerer=\"upstream\",rule=\"ops\"").await, 2);

    put_rules(stage.admin, "passthrough").await;
    stage.user("daves-token", "dave", &[]);
    let before = reviews(&stage).await;
    let response = stage.ask("daves-token", "GET", pods).await;
    assert_eq!(response.status().as_u16(), 403);
    let response = stage.ask("nobodys-token", "GET", pods).await;
    assert_eq!(response.status().as_u16(), 401);
    assert_eq!(reviews(&stage).await, before, "nobody is asked about");
    stage.ended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_changes_the_rules_of_each_gateway_and_names_those_that_fail() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let apiserver = apiserver::start(listener, Options::default()).unwrap();
    let upstream = format!("http://{}", apiserver.address()).parse().unwrap();
    let gateway = Running::start(ServeSettings::embedded(upstream), Drain::new()).await;
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gone = nobody.local_addr().unwrap();
    drop(nobody);
    let run = async |change: ServingChange, others: &[SocketAddr]| {
        let admin = [&[gateway.admin][..], others].concat().into_iter();
        let admin = admin.map(|admin| format!("http://{admin}").parse().unwrap());
        let request = ServingRequest {
            admin: admin.collect(),
            change,
            token_file: None,
        };
        serving_command::run(&request).await.unwrap()
    };
    let passthrough = ServingChange::Put("passthrough".parse().unwrap(), 10 * PATIENCE);
    let (lines, are_done) = run(passthrough, &[gone]).await;
    assert!(!are_done && lines.lines().count() == 2, "{lines}");
    assert!(
        lines.lines().last().unwrap().contains("failed: "),
        "{lines}"
    );
    let (lines, are_done) = run(ServingChange::Show, &[]).await;
    assert!(
        are_done && lines.contains("\"mode\":\"passthrough\""),
        "{lines}"
    );
    let (lines, _) = run(ServingChange::Reset, &[]).await;
    assert!(!lines.contains("passthrough"), "{lines}");
}
