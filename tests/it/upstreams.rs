//! A gateway in front of several API servers of one cluster: each of them may be killed, hang, lag behind, belong to another cluster, or
//! be gone together with all others. Watches go on without a gap, a repetition or a version that goes back, and nothing is listed again.

use std::net::SocketAddr;

use http_body_util::Full;
use hyper::body::Bytes;
use kube_fanout_testkit::apiserver::{self, Apiserver, Options};
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::support::PATIENCE;
use crate::support::client::{
    CONFIGMAPS, HttpVersion, Watch, create_kube_system, get, listed, send, text, version_of,
};
use crate::support::process::GatewayProcess;
use crate::support::wire::Wire;

const OBJECTS: usize = 100;
const CLIENTS: usize = 5;

/// A cluster: a server that the gateway does not know, which makes the changes, and two replicas of it.
struct Cluster {
    control: Apiserver,
    replicas: [Option<Apiserver>; 2],
}

impl Cluster {
    async fn new() -> Self {
        let options = Options {
            objects: vec![format!("configmaps={OBJECTS}").parse().unwrap()],
            object_len: 500,
            ..Options::default()
        };
        let control = apiserver::start(listener().await, options).unwrap();
        create_kube_system(control.address()).await;
        let replicas = [
            control.replica(listener().await).ok(),
            control.replica(listener().await).ok(),
        ];
        Self { control, replicas }
    }

    fn addresses(&self) -> [SocketAddr; 2] {
        [0, 1].map(|index| self.replica(index).address())
    }

    fn replica(&self, index: usize) -> &Apiserver {
        self.replicas[index].as_ref().unwrap()
    }

    async fn wires(&self) -> [Wire; 2] {
        let [first, second] = self.addresses();
        [Wire::to(first).await, Wire::to(second).await]
    }

    /// Ends the changes, and returns the version of the newest.
    async fn quiet(&self) -> u64 {
        self.control.set_churn(0);
        listed(self.control.address()).await.0
    }
}

async fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.unwrap()
}

/// A gateway in front of these API servers.
struct Stage {
    gateway: GatewayProcess,
    endpoints: Vec<SocketAddr>,
}

impl Stage {
    async fn new(endpoints: &[SocketAddr]) -> Self {
        Self::with(endpoints, &[]).await
    }

    async fn with(endpoints: &[SocketAddr], more: &[&str]) -> Self {
        let urls: Vec<String> = endpoints
            .iter()
            .map(|one| format!("http://{one}"))
            .collect();
        let mut flags = vec!["--upstream".to_owned(), urls.join(",")];
        flags.extend(more.iter().map(|flag| (*flag).to_owned()));
        Self {
            gateway: GatewayProcess::start(&flags).await,
            endpoints: endpoints.to_vec(),
        }
    }

    /// The sum of the samples of a metric whose labels contain these.
    async fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let page = text(self.gateway.admin, "/metrics").await;
        let samples = page.lines().filter(|line| {
            line.starts_with(name) && labels.iter().all(|label| line.contains(label))
        });
        let values = samples.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap());
        values.sum()
    }

    /// The index of the API server that requests go to.
    async fn active(&self) -> usize {
        let mut active = Vec::new();
        for (index, endpoint) in self.endpoints.iter().enumerate() {
            let name = "kube_fanout_upstream_endpoint_active";
            if self.metric(name, &[&endpoint.to_string()]).await == 1.0 {
                active.push(index);
            }
        }
        assert_eq!(active.len(), 1);
        active[0]
    }

    async fn until_state(&self, index: usize, state: &str) {
        let (endpoint, state) = (
            self.endpoints[index].to_string(),
            format!("state=\"{state}\""),
        );
        let give_up_at = Instant::now() + PATIENCE;
        let name = "kube_fanout_upstream_endpoint_state";
        while self.metric(name, &[&endpoint, &state]).await != 1.0 {
            assert!(Instant::now() < give_up_at, "{endpoint} is not {state}");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }

    /// Lists of config maps that reached upstream.
    async fn lists(&self) -> f64 {
        let name = "kube_fanout_upstream_lists_total";
        self.metric(name, &["\"configmaps\""]).await
    }

    /// Several watches from the current version, and one at the server itself.
    async fn watches(&self, cluster: &Cluster) -> (Watch, Vec<Watch>) {
        let (version, _) = listed(self.gateway.address).await;
        let direct = Watch::start(cluster.control.address(), version).await;
        let mut clients = Vec::new();
        for number in 0..CLIENTS {
            let http = match number % 2 {
                0 => HttpVersion::One,
                _ => HttpVersion::Two,
            };
            clients.push(Watch::start_with(http, self.gateway.address, version).await);
        }
        (direct, clients)
    }

    /// After the last change, every client has seen what the API server's own client has, and one list was enough.
    async fn check_end(&self, cluster: &Cluster, mut direct: Watch, clients: Vec<Watch>) {
        let newest = cluster.quiet().await;
        direct.read_to(newest).await;
        for mut client in clients {
            client.read_to(newest).await;
            assert_eq!(client.events, direct.events);
        }
        let expected = listed(cluster.control.address()).await;
        assert_eq!(listed(self.gateway.address).await, expected);
        assert_eq!(self.lists().await, 1.0);
    }
}

/// Creates a config map, and returns the status code.
async fn create(server: SocketAddr, name: &str) -> u16 {
    let object =
        format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}}}}"#);
    let request = http::Request::post("/api/v1/namespaces/default/configmaps")
        .header("host", "gateway")
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(object)))
        .unwrap();
    send(server, request).await.status().as_u16()
}

/// A cluster, and a gateway that reaches its two API servers over wires.
async fn wired() -> (Cluster, [Wire; 2], Stage) {
    let cluster = Cluster::new().await;
    let wires = cluster.wires().await;
    let stage = Stage::new(&[wires[0].address, wires[1].address]).await;
    (cluster, wires, stage)
}

async fn read_events(clients: &mut [Watch], count: usize) {
    for client in clients {
        client.read_events(count).await;
    }
}

#[tokio::test]
async fn watches_continue_at_another_server_when_theirs_is_killed() {
    let mut cluster = Cluster::new().await;
    let stage = Stage::new(&cluster.addresses()).await;
    let (direct, mut clients) = stage.watches(&cluster).await;
    cluster.control.set_churn(400);
    read_events(&mut clients, 100).await;
    let active = stage.active().await;
    assert!(cluster.replica(active).watch_count() > 0);
    assert_eq!(cluster.replica(1 - active).watch_count(), 0, "one is used");
    cluster.replicas[active] = None;
    // A forwarded request does not fail even if it is the first to notice.
    let forwarded = get(stage.gateway.address, "/api/v1/namespaces/kube-system").await;
    assert_eq!(forwarded.status(), 200);
    read_events(&mut clients, 100).await;
    assert_eq!(stage.active().await, 1 - active);
    stage.until_state(active, "unreachable").await;
    stage.check_end(&cluster, direct, clients).await;
}

#[tokio::test]
async fn watches_leave_a_server_that_accepts_connections_and_never_answers() {
    let (cluster, wires, stage) = wired().await;
    let (direct, mut clients) = stage.watches(&cluster).await;
    cluster.control.set_churn(100);
    read_events(&mut clients, 20).await;
    let active = stage.active().await;
    wires[active].set_silent(true);
    let writing = tokio::spawn(create(stage.gateway.address, "once"));
    stage.until_state(active, "unreachable").await;
    read_events(&mut clients, 20).await;
    assert_eq!(stage.active().await, 1 - active);
    wires[active].set_silent(false);
    // The server may have done what a write asks for, so nobody else was asked.
    assert_eq!(writing.await.unwrap(), 201);
    stage.until_state(active, "ready").await;
    assert_eq!(stage.active().await, 1 - active, "nothing returns at once");
    stage.check_end(&cluster, direct, clients).await;
}

#[tokio::test]
async fn no_version_goes_back_when_the_next_server_lags_behind() {
    let mut cluster = Cluster::new().await;
    let stage = Stage::new(&cluster.addresses()).await;
    let (direct, mut clients) = stage.watches(&cluster).await;
    let active = stage.active().await;
    cluster.replica(1 - active).set_lagging(true);
    cluster.control.set_churn(200);
    read_events(&mut clients, 100).await;
    cluster.replicas[active] = None;
    stage.until_state(active, "unreachable").await;
    let newest = clients.iter().map(|client| client.version).max().unwrap();
    // From memory.
    let cached = text(
        stage.gateway.address,
        &format!("{CONFIGMAPS}?resourceVersion=0"),
    )
    .await;
    assert!(version_of(&serde_json::from_str(&cached).unwrap()) >= newest);
    let lagging = cluster.replica(1 - active);
    while lagging.watch_count() == 0 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    lagging.set_lagging(false);
    read_events(&mut clients, 100).await;
    stage.check_end(&cluster, direct, clients).await;
}

/// Reads of any version, which each API server answers from its own cache.
#[tokio::test]
async fn a_forwarded_read_is_not_older_when_the_next_server_lags_behind() {
    let mut cluster = Cluster::new().await;
    let flags = ["--passthrough-resources", "configmaps"];
    let stage = Stage::with(&cluster.addresses(), &flags).await;
    let any = format!("{CONFIGMAPS}?resourceVersion=0");
    let active = stage.active().await;
    cluster.replica(1 - active).set_lagging(true);
    let (before, _) = listed(stage.gateway.address).await;
    cluster.control.set_churn(200);
    let mut direct = Watch::start(cluster.control.address(), before).await;
    direct.read_events(20).await;
    let newest = cluster.quiet().await;
    let read: serde_json::Value =
        serde_json::from_str(&text(stage.gateway.address, &any).await).unwrap();
    assert!(version_of(&read) >= newest);
    cluster.replicas[active] = None;
    stage.until_state(active, "unreachable").await;
    // The lagging server may only say that it is not there yet.
    let late = get(stage.gateway.address, &any).await;
    assert!(!late.status().is_success(), "{late:?}");
    cluster.replica(1 - active).set_lagging(false);
    let read: serde_json::Value =
        serde_json::from_str(&text(stage.gateway.address, &any).await).unwrap();
    assert!(version_of(&read) >= newest);
}

#[tokio::test]
async fn a_server_of_another_cluster_is_refused_and_the_others_are_used() {
    let mut cluster = Cluster::new().await;
    let foreign = Cluster::new().await;
    let addresses = [cluster.addresses()[0], foreign.addresses()[0]];
    let stage = Stage::new(&addresses).await;
    let message = "this API server belongs to another cluster and is not used";
    let fields = stage.gateway.logged(message).await;
    assert_eq!(fields["endpoint"], addresses[1].to_string());
    let reason = fields["reason"].as_str().unwrap();
    assert!(reason.starts_with("its namespace kube-system has the uid "));
    stage.until_state(1, "foreign").await;
    let (direct, mut clients) = stage.watches(&cluster).await;
    cluster.control.set_churn(100);
    read_events(&mut clients, 20).await;
    assert_eq!(stage.active().await, 0);
    // Without a server of its own cluster the gateway has none, but it goes on serving what it has.
    cluster.replicas[0] = None;
    stage.until_state(0, "unreachable").await;
    let forwarded = get(stage.gateway.address, "/api/v1/namespaces/kube-system").await;
    assert_eq!(forwarded.status(), 503);
    let cached = get(
        stage.gateway.address,
        &format!("{CONFIGMAPS}?resourceVersion=0"),
    )
    .await;
    assert_eq!(cached.status(), 200);
    assert_eq!(foreign.replica(0).watch_count(), 0);
    // It comes back at the same address, as a server that has just started and has no history. The last change is one that a list shows:
    // the deletion of an object that was created meanwhile would leave no event.
    cluster.control.set_churn(0);
    assert_eq!(create(cluster.control.address(), "last").await, 201);
    let (newest, _) = listed(cluster.control.address()).await;
    let again = TcpListener::bind(addresses[0]).await.unwrap();
    cluster.replicas[0] = cluster.control.replica(again).ok();
    stage.until_state(0, "ready").await;
    let mut direct = direct;
    direct.read_to(newest).await;
    for mut client in clients {
        client.read_to(newest).await;
        assert_eq!(client.version, newest);
    }
    assert_eq!(
        listed(stage.gateway.address).await,
        listed(addresses[0]).await
    );
}

#[tokio::test]
async fn watches_wait_while_all_servers_are_gone() {
    let (cluster, wires, stage) = wired().await;
    let (direct, mut clients) = stage.watches(&cluster).await;
    cluster.control.set_churn(100);
    read_events(&mut clients, 20).await;
    wires.iter().for_each(|wire| wire.set_refusing(true));
    for index in [0, 1] {
        stage.until_state(index, "unreachable").await;
    }
    let forwarded = get(stage.gateway.address, "/api/v1/namespaces/kube-system").await;
    assert_eq!(forwarded.status(), 503);
    assert!(forwarded.headers().contains_key("retry-after"));
    wires[1].set_refusing(false);
    read_events(&mut clients, 20).await;
    wires[0].set_refusing(false);
    stage.until_state(0, "ready").await;
    stage.check_end(&cluster, direct, clients).await;
}
