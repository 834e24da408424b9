//! A gateway that may open few files, and clients that take all they can get of them.

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
use kube_fanout::apiserver::Apiserver;
use kube_fanout::apiserver::faults::{Fault, FaultOrder};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::hostile::fairness::connect;
use crate::hostile::stage::{apiserver, until};
use crate::hostile::wire::{code, read_to_end, read_until, send};
use crate::hostile::witness::Witness;

const FILES: usize = 256;
/// More clients than files, each with an address of its own: no share keeps one of them out.
const CLIENTS: u16 = 400;
/// Clients that come again and again while there are too many.
const KNOCKING: u16 = 40;
const KNOCK_PERIOD: Duration = Duration::from_millis(100);
/// From memory.
const SHORT_LIST: &str = "/api/v1/configmaps?limit=1&resourceVersion=0";
const FORWARDED_WATCH: &str = "/api/v1/nodes?watch=1";
const FORWARDED: &str = "/api/v1/nodes/nobody";

/// A gateway in a process of its own. Ends with this.
struct Gateway {
    child: Child,
    address: SocketAddr,
    admin: SocketAddr,
    log: Arc<Mutex<Vec<String>>>,
}

impl Gateway {
    /// Over HTTP/1.1, where each forwarded request needs a file of its own.
    async fn before(upstream: SocketAddr) -> Self {
        let mut child = Command::new("sh")
            .args(["-c", "ulimit -n \"$0\" && exec \"$@\"", &FILES.to_string()])
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
        let serving = || {
            let log = log.lock().unwrap();
            let mut fields = log.iter().filter_map(|line| {
                let line: Value = serde_json::from_str(line).ok()?;
                Some(line["fields"].clone())
            });
            fields.find(|fields| fields["message"] == "serving")
        };
        until("the gateway serves", async || serving().is_some()).await;
        let fields = serving().unwrap();
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

    /// The code of an answer over a connection of its own; 0 if that was closed.
    async fn get(&self, server: SocketAddr, target: &str) -> u16 {
        let mut stream = TcpStream::connect(server).await.unwrap();
        let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        send(&mut stream, request.as_bytes()).await;
        code(&read_to_end(&mut stream).await)
    }

    /// A connection from this client that has been answered, and the code; 0 if it was closed.
    async fn ask(&self, client: u16, target: &str) -> (TcpStream, u16) {
        let mut stream = connect(address_of(client), self.address).await;
        let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        send(&mut stream, request.as_bytes()).await;
        let head = read_until(&mut stream, |read| read.contains(&b'\n')).await;
        (stream, code(&String::from_utf8_lossy(&head)))
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn address_of(client: u16) -> IpAddr {
    let [high, low] = client.to_be_bytes();
    IpAddr::V4(Ipv4Addr::new(127, 1, high, low))
}

/// A client that keeps its one connection. A pool of connections would sometimes open another, which is refused.
struct Honest {
    sender: SendRequest<Empty<Bytes>>,
}

impl Honest {
    async fn connect(gateway: &Gateway) -> Self {
        let stream = TcpStream::connect(gateway.address).await.unwrap();
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self { sender }
    }

    /// The code of an answer, which is read to its end.
    async fn get(&mut self, target: &str) -> u16 {
        self.sender.ready().await.unwrap();
        let request = Request::get(target).header(HOST, "a");
        let request = request.body(Empty::new()).unwrap();
        let answer = self.sender.send_request(request).await.unwrap();
        let code = answer.status().as_u16();
        answer.into_body().collect().await.unwrap();
        code
    }
}

/// Everything that clients can get: forwarded watches, which take files at both ends, then connections.
async fn take_all(gateway: &Gateway) -> Vec<TcpStream> {
    let mut taken = Vec::new();
    for target in [FORWARDED_WATCH, SHORT_LIST] {
        let mut refused = 0;
        for client in 0..CLIENTS {
            match gateway.ask(client, target).await {
                (stream, 200) => taken.push(stream),
                (_, code) => {
                    assert!([0, 429].contains(&code), "{code}");
                    refused += 1;
                }
            }
            if refused == 10 {
                break;
            }
        }
        assert_eq!(refused, 10, "{target}: nothing is bounded");
    }
    taken
}

/// Clients that come although there are too many, say nothing, and come again when they are closed.
fn knock(gateway: &Gateway) -> JoinSet<()> {
    let mut knocking = JoinSet::new();
    for client in 0..KNOCKING {
        let to = gateway.address;
        knocking.spawn(async move {
            loop {
                let mut stream = connect(address_of(CLIENTS + client), to).await;
                read_to_end(&mut stream).await;
                tokio::time::sleep(KNOCK_PERIOD).await;
            }
        });
    }
    knocking
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
    let gateway = Gateway::before(apiserver.address()).await;
    // The well-behaved: one watches, one asks, over a connection that it has.
    let witness = Witness::begin(gateway.address, apiserver.address()).await;
    let mut honest = Honest::connect(&gateway).await;
    assert_eq!(honest.get(SHORT_LIST).await, 200);
    let before = gateway.open_files();

    let taken = take_all(&gateway).await;
    let knocking = knock(&gateway);
    let kinds = ["pods", "services", "endpoints", "secrets"];
    for (round, kind) in kinds.into_iter().enumerate() {
        assert_eq!(gateway.get(gateway.admin, "/readyz").await, 200, "{round}");
        assert_eq!(gateway.get(gateway.admin, "/metrics").await, 200, "{round}");
        assert_eq!(honest.get(FORWARDED).await, 404, "{round}");
        // A cache that has to be filled, or a forwarded list.
        let target = format!("/api/v1/{kind}?limit=1");
        let code = honest.get(&target).await;
        assert!([200, 404].contains(&code), "{target}: {code}");
        // The witness's events come over a watch that has to be opened anew.
        end_watches(&apiserver);
        let new = gateway.get(gateway.address, SHORT_LIST).await;
        assert!([0, 429].contains(&new), "{round}: {new}");
        let open = gateway.open_files();
        assert!(open < FILES, "{round}: {open} files are open");
    }
    drop(knocking);
    drop(taken);
    until("new clients are served", async || {
        gateway.ask(0, SHORT_LIST).await.1 == 200
    })
    .await;
    // Upstream's are kept for a while, for whoever asks next.
    until("files are given back", async || {
        gateway.open_files() < before + FILES / 4
    })
    .await;
    witness.check().await;
    let log = gateway.log.lock().unwrap();
    let failed: Vec<_> = log.iter().filter(|line| line.contains("accept")).collect();
    assert!(failed.is_empty(), "{failed:?}");
}
