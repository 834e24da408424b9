//! No token, key or value of an `Authorization` header stands in what the gateway logs (all of it, at `trace`), counts, audits,
//! answers to those it refuses, or leaves behind when it is killed.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

#[path = "secrets/forms.rs"]
mod forms;
#[path = "secrets/process.rs"]
mod process;
#[path = "secrets/requests.rs"]
mod requests;

use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use forms::Secret;
use kube_fanout::apiserver::auth::{AuthOptions, TokenUser};
use kube_fanout::apiserver::faults::nonsense::Nonsense;
use kube_fanout::apiserver::faults::{Fault, Order};
use kube_fanout::apiserver::route::Verb;
use kube_fanout::apiserver::{self, Apiserver, Options};
use process::{Authority, Folder, Pair, Process, Serving, exchange, kubeconfig};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

/// All credentials that a test uses.
struct Credentials {
    /// The gateway's own.
    gateway: String,
    /// Of a user who may read everything.
    good: String,
    /// Of the same user, but one that tells when it expires.
    expiring: String,
    /// Of nobody.
    bad: String,
    /// Of the same user, one for each way in which reviews fail.
    unlucky: Vec<String>,
    /// Behind `Basic`.
    basic: String,
    client: Pair,
    proxy: Pair,
    stranger: Pair,
}

/// Letters and digits that stand nowhere else.
fn random_text() -> String {
    let mut bytes = [0; 48];
    aws_lc_rs::rand::fill(&mut bytes).unwrap();
    let letters = b"abcdefghijklmnopqrstuvwxyz012345";
    bytes
        .iter()
        .map(|byte| char::from(letters[usize::from(byte % 32)]))
        .collect()
}

impl Credentials {
    fn new(clients: &Authority, proxies: &Authority) -> Self {
        let claims = json!({"exp": 4_102_444_800_u32, "jti": random_text()}).to_string();
        let head = URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#);
        let claims = URL_SAFE_NO_PAD.encode(claims);
        Self {
            gateway: random_text(),
            good: random_text(),
            expiring: format!("{head}.{claims}.{}", random_text()),
            bad: random_text(),
            unlucky: failures().iter().map(|_| random_text()).collect(),
            basic: STANDARD.encode(format!("user:{}", random_text())),
            client: clients.sign("carl"),
            proxy: proxies.sign("aggregator"),
            stranger: Authority::new("strangers").sign("carl"),
        }
    }

    /// All of them, as what nobody else may read.
    fn secrets(&self, serving: &Serving) -> Vec<Secret> {
        // What begins like every token of its kind is no secret.
        let (_, expiring) = self.expiring.split_once('.').unwrap();
        let (claims, signature) = expiring.split_once('.').unwrap();
        let mut secrets = vec![
            Secret::new("the gateway's token", self.gateway.as_bytes()),
            Secret::new("the good token", self.good.as_bytes()),
            Secret::new("a token's claims", &claims.as_bytes()[16..]),
            Secret::new("a token's signature", signature.as_bytes()),
            Secret::new("the bad token", self.bad.as_bytes()),
            Secret::new("the password", &self.basic.as_bytes()[8..]),
        ];
        for (failure, token) in failures().iter().zip(&self.unlucky) {
            let name = format!("the token of {failure:?}");
            secrets.push(Secret::new(&name, token.as_bytes()));
        }
        for (name, pair) in [
            ("the gateway's key", &serving.pair),
            ("the client's key", &self.client),
            ("the proxy's key", &self.proxy),
        ] {
            // PKCS#8 of a P-256 key: the secret number, without the public one.
            let key = pair.key.serialize_der();
            secrets.push(Secret::new(name, &key[36..68]));
        }
        secrets
    }
}

/// Ways in which reviews fail.
fn failures() -> Vec<Fault> {
    let refuse = |code| Fault::Refuse {
        code,
        retry_after_seconds: 1,
    };
    let mut failures = vec![refuse(401), refuse(403), refuse(429), refuse(500)];
    failures.extend([Fault::BreakOff, Fault::Delay { delay_ms: 1 }]);
    let nonsense = [
        Nonsense::NotJson,
        Nonsense::Truncated,
        Nonsense::WrongKind,
        Nonsense::StatusText,
        Nonsense::Text,
        Nonsense::Contradiction,
        Nonsense::NoName,
        Nonsense::Oversized { len: 4 << 20 },
    ];
    failures.extend(nonsense.map(Fault::Nonsense));
    failures
}

async fn upstream(serving: &Serving, credentials: &Credentials) -> Apiserver {
    let user = || TokenUser::new("ann", &["system:masters"]);
    let tokens = [&credentials.good, &credentials.expiring]
        .into_iter()
        .chain(&credentials.unlucky)
        .map(|token| (token.as_str(), user()));
    let gateway = TokenUser::new("gateway", &["system:masters"]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = Options {
        objects: vec!["pods=20".parse().unwrap()],
        object_len: 1_024,
        seed: Some(1),
        tls: Some(serving.settings()),
        auth: Some(AuthOptions {
            tokens: tokens
                .chain([(credentials.gateway.as_str(), gateway)])
                .collect(),
            ..AuthOptions::default()
        }),
        ..Options::default()
    };
    apiserver::start(listener, options).unwrap()
}

/// Reviews fail in every way, and then the gateway's own token is not good any more.
async fn trouble(
    server: &Apiserver,
    credentials: &Credentials,
    ask: impl AsyncFn(&str) -> Vec<u8>,
) -> Vec<Vec<u8>> {
    let mut answers = Vec::new();
    for (fault, token) in failures().into_iter().zip(&credentials.unlucky) {
        let order = |fault, count| Order {
            fault,
            verb: None,
            resource: Some("reviews".into()),
            count,
        };
        server.order(order(fault, 8)).unwrap();
        answers.push(ask(token).await);
        server.order(order(Fault::Clear, 1)).unwrap();
        answers.push(ask(token).await);
    }
    server.tokens().remove(&credentials.gateway);
    let end = Order {
        fault: Fault::EndWatches,
        verb: None,
        resource: None,
        count: 1,
    };
    server.order(end).unwrap();
    answers.push(ask(&random_text()).await);
    answers.push(ask(&credentials.good).await);
    answers
}

/// A request that is under way for as long as a test lasts.
async fn stuck(
    server: &Apiserver,
    credentials: &Credentials,
    client: TlsConnector,
    address: SocketAddr,
) -> impl Future<Output = ()> + use<> {
    let gateway = TokenUser::new("gateway", &["system:masters"]);
    server.tokens().put(&credentials.gateway, gateway);
    let delay = Order {
        fault: Fault::Delay { delay_ms: 60_000 },
        verb: Some(Verb::Get),
        resource: Some("nodes".into()),
        count: 1,
    };
    server.order(delay).unwrap();
    let before = server.fault_counts().delayed;
    let header = requests::bearer(&credentials.good);
    let request = requests::get("/api/v1/nodes/stuck", &header);
    let mut stream = process::connect(&client, address).await;
    stream.write_all(&request).await.unwrap();
    let give_up_at = Instant::now() + process::PATIENCE;
    while server.fault_counts().delayed == before {
        assert!(Instant::now() < give_up_at, "the request is not forwarded");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    async move {
        // It ends with the gateway.
        let _ = stream.read_to_end(&mut Vec::new()).await;
    }
}

async fn page(admin: SocketAddr, target: &str) -> Vec<u8> {
    let mut stream = tokio::net::TcpStream::connect(admin).await.unwrap();
    let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut page = Vec::new();
    stream.read_to_end(&mut page).await.unwrap();
    page
}

fn is_refusal(answer: &[u8]) -> bool {
    answer.starts_with(b"HTTP/1.1 4") || answer.starts_with(b"HTTP/1.1 5")
}

/// Runs a gateway in this mode, asks it everything, and looks for secrets in all that it leaves.
#[expect(clippy::too_many_lines, reason = "one story")]
async fn check(mode: &str) {
    let folder = Folder::new(mode);
    let (clients, proxies) = (Authority::new("clients"), Authority::new("proxies"));
    let credentials = Credentials::new(&clients, &proxies);
    let own = Serving::new(&folder, "own");
    let theirs = Serving::new(&folder, "theirs");
    let server = upstream(&theirs, &credentials).await;
    let token = &credentials.gateway;
    let config = kubeconfig(&folder, server.address(), theirs.cert(), token);
    let path = |path: std::path::PathBuf| path.to_str().unwrap().to_owned();
    let mut flags = own.flags();
    flags.extend(["--kubeconfig".into(), path(config)]);
    flags.extend(["--auth".into(), mode.into()]);
    if mode != "none" {
        let policy = json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]});
        let policy = folder.write("policy.yaml", &policy.to_string());
        flags.extend(["--audit-policy-file".into(), path(policy)]);
        flags.extend(["--audit-log-path".into(), path(folder.0.join("audit.log"))]);
        flags.push("--anonymous".into());
        let authorities = folder.write("clients.crt", &clients.pem());
        flags.extend(["--client-ca-file".into(), path(authorities)]);
        let authorities = folder.write("proxies.crt", &proxies.pem());
        flags.extend(["--requestheader-client-ca-file".into(), path(authorities)]);
    }
    let gateway = Process::start(&folder, &flags).await;
    let address = gateway.address;

    let mut answers = requests::all(&own, address, &credentials).await;
    let plain = own.client(None);
    let ask = async |token: &str| {
        let request = requests::get(requests::PODS, &requests::bearer(token));
        exchange(&plain, address, &request, b"").await
    };
    // What is no secret is found where it is expected: the search works.
    let planted = random_text();
    let selecting = format!("{}&labelSelector=a%3D{planted}%25", requests::PODS);
    let target = requests::get(&selecting, &requests::bearer(&credentials.good));
    answers.push(exchange(&plain, address, &target, b"").await);
    let target = format!("/api/v1/nodes/{planted}");
    let target = requests::get(&target, &requests::bearer(&credentials.good));
    answers.push(exchange(&plain, address, &target, b"").await);
    answers.extend(trouble(&server, &credentials, ask).await);
    let pages = [
        page(gateway.admin, "/metrics"),
        page(gateway.admin, "/readyz"),
    ];
    let pages = futures::future::join_all(pages).await.concat();
    let stuck = tokio::spawn(stuck(&server, &credentials, plain.clone(), address).await);
    let log = gateway.aborted().await;
    stuck.abort();

    for code in ["200", "400", "401", "403", "404", "500"] {
        let said = format!("HTTP/1.1 {code}");
        let is_expected = mode != "none" || matches!(code, "200" | "404");
        let is_there = answers.iter().any(|one| one.starts_with(said.as_bytes()));
        assert!(
            is_there || !is_expected,
            "{mode}: nothing was answered {code}"
        );
    }
    let refusals: Vec<u8> = answers
        .into_iter()
        .filter(|one| is_refusal(one))
        .flatten()
        .collect();
    let audit = std::fs::read(folder.0.join("audit.log")).unwrap_or_default();
    assert!(mode == "none" || !audit.is_empty(), "nothing was audited");
    for target in ["\"TRACE\"", "\"target\":\"h2::", "\"target\":\"hyper"] {
        let is_there = memchr::memmem::find(&log, target.as_bytes()).is_some();
        assert!(is_there, "{mode}: nothing of {target} was logged");
    }
    let left: Vec<_> = std::fs::read_dir(&folder.0).unwrap().flatten().collect();
    let cores = left
        .iter()
        .filter(|file| file.file_name().to_string_lossy().contains("core"));
    let mut found: Vec<String> = cores
        .map(|file| format!("{:?} was left", file.path()))
        .collect();
    let places = [
        ("log", &log),
        ("pages", &pages),
        ("audit", &audit),
        ("refusals", &refusals),
    ];
    let planted = Secret::new("planted", planted.as_bytes());
    assert!(planted.found_in(&refusals).is_some(), "{mode}: no refusals");
    let is_audited = mode == "none" || planted.found_in(&audit).is_some();
    assert!(is_audited, "{mode}: not what was audited");
    let serving = format!("\"address\":\"{address}\"");
    let serving = Secret::new("planted", serving.as_bytes());
    assert!(serving.found_in(&log).is_some(), "{mode}: no log");
    for secret in credentials.secrets(&own) {
        for (place, text) in places {
            let seen = secret.found_in(text);
            found.extend(seen.map(|form| format!("{} in {place}: {form}", secret.name)));
        }
    }
    assert!(found.is_empty(), "{mode}:\n{}", found.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_told_where_callers_are_asked_about_with_their_own_credentials() {
    check("self-check").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_told_where_reviews_are_asked_for() {
    check("review").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_told_where_roles_are_read() {
    check("rbac").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_told_where_nobody_is_checked() {
    check("none").await;
}
