//! A gateway with a low limit of open files, and clients that open as many connections and forwarded watches as they can.

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::HOST;
use hyper_util::rt::TokioIo;
use kube_fanout_testkit::apiserver::Apiserver;
use kube_fanout_testkit::apiserver::faults::{Fault, FaultOrder};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::hostile::fairness::connect;
use crate::hostile::stage::{apiserver, until};
use crate::hostile::wire::{code, read_to_end, read_until, send};
use crate::hostile::witness::Witness;

/// The limit of open files of the gateway.
const FILES_MAX: usize = 256;
/// More clients than files, each with an address of its own, so that none is refused because of its share.
const CLIENT_COUNT: u16 = 400;
/// Clients that connect again and again while the gateway has too many connections.
const RECONNECTING_COUNT: u16 = 40;
const RECONNECT_PERIOD: Duration = Duration::from_millis(100);
/// Answered from memory.
const SHORT_LIST: &str = "/api/v1/configmaps?limit=1&resourceVersion=0";
const FORWARDED_WATCH: &str = "/api/v1/nodes?watch=1";
const FORWARDED: &str = "/api/v1/nodes/nobody";

/// A gateway in a process of its own, which is killed when this is dropped.
struct GatewayProcess {
    child: Child,
    address: SocketAddr,
    admin: SocketAddr,
    log: Arc<Mutex<Vec<String>>>,
}

impl GatewayProcess {
    /// Starts a gateway in front of this API server. It uses HTTP/1.1 upstream, where each forwarded request needs a connection, and so
    /// a file, of its own.
    async fn start(upstream: SocketAddr) -> Self {
        let mut child = Command::new("sh")
            .args([
                "-c",
                "ulimit -n \"$0\" && exec \"$@\"",
                &FILES_MAX.to_string(),
            ])
            .args([env!("CARGO_BIN_EXE_kube-fanout"), "serve"])
            .args(["--upstream", &format!("http://{upstream}")])
            .args(["--plain-http", "--auth", "none", "--log-format", "json"])
            .args(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"])
            .args(["--passthrough-resources", "nodes"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = Arc::<Mutex<Vec<String>>>::default();
        let (lines, stderr) = (Arc::clone(&log), child.stderr.take().unwrap());
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines() {
                lines.lock().unwrap().push(line.unwrap());
            }
        });
        let serving_fields = || {
            let log = log.lock().unwrap();
            let mut fields = log
                .iter()
                .filter_map(|line| serde_json::from_str::<Value>(line).ok());
            fields.find(|fields| fields["message"] == "serving")
        };
        until("the gateway serves", async || serving_fields().is_some()).await;
        let fields = serving_fields().unwrap();
        let address = |name: &str| fields[name].as_str().unwrap().parse().unwrap();
        Self {
            child,
            address: address("address"),
            admin: address("admin"),
            log: Arc::clone(&log),
        }
    }

    fn open_files(&self) -> usize {
        let folder = format!("/proc/{}/fd", self.child.id());
        std::fs::read_dir(folder).unwrap().count()
    }

    /// Sends a request on a connection of its own; returns the status code, or 0 if the connection was closed.
    async fn get(&self, server: SocketAddr, target: &str) -> u16 {
        let mut stream = TcpStream::connect(server).await.unwrap();
        let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        send(&mut stream, request.as_bytes()).await;
        code(&read_to_end(&mut stream).await)
    }

    /// Sends a request on a connection from this client; returns the connection and the status code, or 0 if it was closed.
    async fn fetch_as(&self, client: u16, target: &str) -> (TcpStream, u16) {
        let mut stream = connect(address_of(client), self.address).await;
        let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        send(&mut stream, request.as_bytes()).await;
        let head = read_until(&mut stream, |read| read.contains(&b'\n')).await;
        (stream, code(&String::from_utf8_lossy(&head)))
    }
}

impl Drop for GatewayProcess {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn address_of(client: u16) -> IpAddr {
    let [high, low] = client.to_be_bytes();
    IpAddr::V4(Ipv4Addr::new(127, 1, high, low))
}

/// A client that keeps its only connection. A pool of connections would sometimes open another one, which is refused.
struct KeepAliveClient {
    sender: SendRequest<Empty<Bytes>>,
}

impl KeepAliveClient {
    async fn connect(gateway: &GatewayProcess) -> Self {
        // Alone at its address, so that it has no more than the others.
        let own = IpAddr::V4(Ipv4Addr::new(127, 2, 0, 1));
        let stream = connect(own, gateway.address).await;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self { sender }
    }

    /// Sends a request and reads the whole response; returns the status code.
    async fn get(&mut self, target: &str) -> u16 {
        self.sender.ready().await.unwrap();
        let request = Request::get(target).header(HOST, "a");
        let request = request.body(Empty::new()).unwrap();
        let response = self.sender.send_request(request).await.unwrap();
        let code = response.status().as_u16();
        response.into_body().collect().await.unwrap();
        code
    }
}

/// Opens as many forwarded watches as possible, each of which uses two files of the gateway, then as many connections as possible.
async fn open_all(gateway: &GatewayProcess) -> Vec<TcpStream> {
    let mut streams = Vec::new();
    for target in [FORWARDED_WATCH, SHORT_LIST] {
        let mut refused = 0;
        for client in 0..CLIENT_COUNT {
            match gateway.fetch_as(client, target).await {
                (stream, 200) => streams.push(stream),
                (_, code) => {
                    assert!([0, 429].contains(&code), "{code}");
                    refused += 1;
                }
            }
            if refused == 10 {
                break;
            }
        }
        assert_eq!(refused, 10, "{target}: no limit was reached");
    }
    streams
}

/// Starts clients that connect although there are too many, send nothing, and connect again when their connection is closed.
fn start_reconnecting_clients(gateway: &GatewayProcess) -> JoinSet<()> {
    let mut clients = JoinSet::new();
    for client in 0..RECONNECTING_COUNT {
        let to = gateway.address;
        clients.spawn(async move {
            loop {
                let mut stream = connect(address_of(CLIENT_COUNT + client), to).await;
                read_to_end(&mut stream).await;
                tokio::time::sleep(RECONNECT_PERIOD).await;
            }
        });
    }
    clients
}

fn end_watches(apiserver: &Apiserver) {
    let order = FaultOrder {
        fault: Fault::EndWatches,
        verb: None,
        resource: Some("configmaps".to_owned()),
        count: 1,
    };
    apiserver.order(order).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_take_all_files_leave_the_gateway_its_own_and_upstream_its_part() {
    let apiserver = apiserver().await;
    let gateway = GatewayProcess::start(apiserver.address()).await;
    // Two well-behaved clients: one watches, the other sends requests on a connection that is already open.
    let witness = Witness::start(gateway.address, apiserver.address()).await;
    let mut client = KeepAliveClient::connect(&gateway).await;
    assert_eq!(client.get(SHORT_LIST).await, 200);
    let before = gateway.open_files();

    let streams = open_all(&gateway).await;
    let reconnecting = start_reconnecting_clients(&gateway);
    let kinds = ["pods", "services", "endpoints", "secrets"];
    for (round, kind) in kinds.into_iter().enumerate() {
        assert_eq!(gateway.get(gateway.admin, "/readyz").await, 200, "{round}");
        assert_eq!(gateway.get(gateway.admin, "/metrics").await, 200, "{round}");
        assert_eq!(client.get(FORWARDED).await, 404, "{round}");
        // Either fills a cache, or is forwarded.
        let target = format!("/api/v1/{kind}?limit=1");
        let code = client.get(&target).await;
        assert!([200, 404].contains(&code), "{target}: {code}");
        // The gateway must open its watch of the witness's resource again.
        end_watches(&apiserver);
        let new = gateway.get(gateway.address, SHORT_LIST).await;
        assert!([0, 429].contains(&new), "{round}: {new}");
        let open = gateway.open_files();
        assert!(open < FILES_MAX, "{round}: {open} files are open");
    }
    drop(reconnecting);
    drop(streams);
    until("new clients are served", async || {
        gateway.fetch_as(0, SHORT_LIST).await.1 == 200
    })
    .await;
    // Idle connections to upstream are kept for a while, for later requests.
    until("files are closed", async || {
        gateway.open_files() < before + FILES_MAX / 4
    })
    .await;
    witness.check().await;
    let log = gateway.log.lock().unwrap();
    let failed: Vec<_> = log.iter().filter(|line| line.contains("accept")).collect();
    assert!(failed.is_empty(), "{failed:?}");
}
