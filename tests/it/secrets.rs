//! No token, private key or value of an `Authorization` header may appear in the gateway's log (at `trace`), metrics, audit log, error
//! responses or messages about files that it cannot use, and no core file may be left when it is killed.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod credentials;
mod files;
mod forms;
mod process;
mod requests;
mod upstream;

use std::net::SocketAddr;
use std::path::Path;

use kube_fanout_testkit::apiserver::Apiserver;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use credentials::{Credentials, random_text};
use forms::contains;
use process::{Authority, Folder, Process, Serving, exchange, kubeconfig};

/// A gateway in one `--auth` mode, its API server and the credentials of its clients.
struct Fixture {
    mode: &'static str,
    folder: Folder,
    credentials: Credentials,
    /// The certificate of the gateway.
    own: Serving,
    server: Apiserver,
    gateway: Process,
    /// A text that is not secret. It must be found in the output, which shows that the search works.
    marker: String,
}

/// All output of a gateway.
struct Output {
    log: Vec<u8>,
    /// The pages of the administration port.
    pages: Vec<u8>,
    /// The audit log.
    audit: Vec<u8>,
    responses: Vec<Vec<u8>>,
    /// The responses with an error code, one after the other.
    refusals: Vec<u8>,
}

fn text(path: impl AsRef<Path>) -> String {
    path.as_ref().to_str().unwrap().to_owned()
}

impl Fixture {
    async fn new(mode: &'static str) -> Self {
        let folder = Folder::new(mode);
        let (clients, proxies) = (Authority::new("clients"), Authority::new("proxies"));
        let credentials = Credentials::new(&clients, &proxies);
        let own = Serving::new(&folder, "own");
        let theirs = Serving::new(&folder, "theirs");
        let server = upstream::start(&theirs, &credentials).await;
        let token = &credentials.gateway;
        let config = kubeconfig(&folder, server.address(), theirs.cert(), token);
        let mut flags = own.flags();
        let mut flag = |name: &str, value: String| flags.extend([name.to_owned(), value]);
        flag("--kubeconfig", text(config));
        flag("--auth", mode.to_owned());
        if mode != "none" {
            let policy = json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]});
            let policy = folder.write("policy.yaml", &policy.to_string());
            flag("--audit-policy-file", text(policy));
            flag("--audit-log-path", text(folder.0.join("audit.log")));
            let authorities = folder.write("clients.crt", &clients.pem());
            flag("--client-ca-file", text(authorities));
            let authorities = folder.write("proxies.crt", &proxies.pem());
            flag("--requestheader-client-ca-file", text(authorities));
            flags.push("--anonymous".into());
        }
        let gateway = Process::start(&folder, &flags).await;
        Self {
            mode,
            folder,
            credentials,
            own,
            server,
            gateway,
            marker: random_text(),
        }
    }

    /// Whether the gateway authenticates callers in this mode.
    fn is_authenticating(&self) -> bool {
        self.mode != "none"
    }

    /// Sends the gateway all requests, makes reviews fail, and kills it while a request is open.
    async fn run(mut self) -> (Output, Self) {
        let address = self.gateway.address;
        let mut responses = requests::send_all(&self.own, address, &self.credentials).await;
        let client = self.own.client(None);
        let get = async |token: &str, target: &str| {
            let request = requests::get(target, &requests::bearer(token));
            exchange(&client, address, &request, b"").await
        };
        let marker = &self.marker;
        for target in [
            format!("{}&labelSelector=a%3D{marker}", requests::PODS),
            format!("/api/v1/nodes/{marker}"),
        ] {
            responses.push(get(&self.credentials.good, &target).await);
        }
        responses.extend(upstream::fail_reviews(&self.server, &self.credentials, get).await);
        let pages = ["/metrics", "/readyz?verbose", "/version"];
        let pages = pages.map(|target| page(self.gateway.admin, target));
        let pages = futures::future::join_all(pages).await.concat();
        let open_request =
            upstream::open_request(&self.server, &self.credentials, &client, address);
        let open_request = tokio::spawn(open_request.await);
        let log = self.gateway.abort().await;
        open_request.abort();
        let audit = std::fs::read(self.folder.0.join("audit.log")).unwrap_or_default();
        let refusals = responses.iter().filter(|response| is_refusal(response));
        let refusals = refusals.flatten().copied().collect();
        let output = Output {
            log,
            pages,
            audit,
            responses,
            refusals,
        };
        (output, self)
    }

    /// Checks that the output is complete: all kinds of responses, and the marker where it is expected.
    fn check_complete(&self, output: &Output) {
        let mode = self.mode;
        let has = |text: &[u8], part: &str| memchr::memmem::find(text, part.as_bytes()).is_some();
        for code in ["200", "400", "401", "403", "404", "500"] {
            let status_line = format!("HTTP/1.1 {code}");
            let mut responses = output.responses.iter();
            let is_there = responses.any(|response| response.starts_with(status_line.as_bytes()));
            let is_expected = match code {
                "200" | "404" => true,
                // Of reviews that fail.
                "500" => self.is_authenticating() && mode != "rbac",
                _ => self.is_authenticating(),
            };
            assert!(is_there || !is_expected, "{mode}: no response with {code}");
        }
        for target in ["\"TRACE\"", "\"target\":\"h2::", "\"target\":\"hyper"] {
            let is_there = has(&output.log, target);
            assert!(is_there, "{mode}: nothing of {target} was logged");
        }
        let address = format!("\"address\":\"{}\"", self.gateway.address);
        assert!(has(&output.log, &address), "{mode}: no log");
        assert!(has(&output.pages, "kube_fanout_"), "{mode}: no metrics");
        assert!(
            contains(&output.refusals, &self.marker),
            "{mode}: the marker is not in the refusals"
        );
        let is_audited = contains(&output.audit, &self.marker);
        assert!(is_audited || !self.is_authenticating(), "{mode}: no audit");
    }

    /// The core files, and the secrets in the output, each with its source.
    fn leaks(&self, output: &Output) -> Vec<String> {
        let files = std::fs::read_dir(&self.folder.0).unwrap().flatten();
        let is_core = |name: &std::ffi::OsStr| name.to_string_lossy().contains("core");
        let cores = files.filter(|file| is_core(&file.file_name()));
        let mut leaks: Vec<String> = cores
            .map(|file| format!("core file {:?}", file.path()))
            .collect();
        let search = self.credentials.search(&self.own);
        for (source, text) in [
            ("log", &output.log),
            ("pages", &output.pages),
            ("audit", &output.audit),
            ("refusals", &output.refusals),
        ] {
            let found = search.found_in(text).into_iter();
            leaks.extend(found.map(|secret| format!("{source}: {secret}")));
        }
        leaks
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

fn is_refusal(response: &[u8]) -> bool {
    let code = response.split(|byte| *byte == b' ').nth(1);
    code.is_some_and(|code| code.starts_with(b"4") || code.starts_with(b"5"))
}

/// Runs a gateway in this mode, sends it all requests, and looks for secrets in its output.
async fn check(mode: &'static str) {
    let (output, fixture) = Fixture::new(mode).await.run().await;
    fixture.check_complete(&output);
    let leaks = fixture.leaks(&output);
    assert!(leaks.is_empty(), "{mode}:\n{}", leaks.join("\n"));
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
