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

use kube_fanout::apiserver::Apiserver;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use credentials::{Credentials, random_text};
use forms::is_told;
use process::{Authority, Folder, Process, Serving, exchange, kubeconfig};

/// A gateway in one mode, and those around it.
struct Scene {
    mode: &'static str,
    folder: Folder,
    credentials: Credentials,
    own: Serving,
    server: Apiserver,
    gateway: Process,
    /// What is no secret stands where it is expected: the search works.
    planted: String,
}

/// All that a gateway has left.
struct Traces {
    log: Vec<u8>,
    pages: Vec<u8>,
    audit: Vec<u8>,
    answers: Vec<Vec<u8>>,
    refusals: Vec<u8>,
}

fn text(path: impl AsRef<Path>) -> String {
    path.as_ref().to_str().unwrap().to_owned()
}

impl Scene {
    async fn new(mode: &'static str) -> Self {
        let folder = Folder::new(mode);
        let (clients, proxies) = (Authority::new("clients"), Authority::new("proxies"));
        let credentials = Credentials::new(&clients, &proxies);
        let own = Serving::new(&folder, "own");
        let theirs = Serving::new(&folder, "theirs");
        let server = upstream::upstream(&theirs, &credentials).await;
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
            planted: random_text(),
        }
    }

    fn is_checked(&self) -> bool {
        self.mode != "none"
    }

    /// Asks the gateway everything, lets reviews fail, and kills it in the end.
    async fn played(mut self) -> (Traces, Self) {
        let address = self.gateway.address;
        let mut answers = requests::all(&self.own, address, &self.credentials).await;
        let client = self.own.client(None);
        let ask = async |token: &str, target: &str| {
            let request = requests::get(target, &requests::bearer(token));
            exchange(&client, address, &request, b"").await
        };
        let planted = &self.planted;
        for target in [
            format!("{}&labelSelector=a%3D{planted}%25", requests::PODS),
            format!("/api/v1/nodes/{planted}"),
        ] {
            answers.push(ask(&self.credentials.good, &target).await);
        }
        answers.extend(upstream::trouble(&self.server, &self.credentials, ask).await);
        let pages = ["/metrics", "/readyz?verbose", "/version"];
        let pages = pages.map(|target| page(self.gateway.admin, target));
        let pages = futures::future::join_all(pages).await.concat();
        let stuck = upstream::stuck(&self.server, &self.credentials, &client, address);
        let stuck = tokio::spawn(stuck.await);
        let log = self.gateway.aborted().await;
        stuck.abort();
        let audit = std::fs::read(self.folder.0.join("audit.log")).unwrap_or_default();
        let refusals = answers.iter().filter(|one| is_refusal(one));
        let refusals = refusals.flatten().copied().collect();
        let traces = Traces {
            log,
            pages,
            audit,
            answers,
            refusals,
        };
        (traces, self)
    }

    /// Everything was tried, and is in what is searched.
    fn check_whole(&self, traces: &Traces) {
        let mode = self.mode;
        let tells = |text: &[u8], part: &str| memchr::memmem::find(text, part.as_bytes()).is_some();
        for code in ["200", "400", "401", "403", "404", "500"] {
            let said = format!("HTTP/1.1 {code}");
            let answers = &traces.answers;
            let is_there = answers.iter().any(|one| one.starts_with(said.as_bytes()));
            let is_expected = self.is_checked() || matches!(code, "200" | "404");
            assert!(is_there || !is_expected, "{mode}: no answer with {code}");
        }
        for target in ["\"TRACE\"", "\"target\":\"h2::", "\"target\":\"hyper"] {
            let is_there = tells(&traces.log, target);
            assert!(is_there, "{mode}: nothing of {target} was logged");
        }
        let served = format!("\"address\":\"{}\"", self.gateway.address);
        assert!(tells(&traces.log, &served), "{mode}: no log");
        assert!(tells(&traces.pages, "kube_fanout_"), "{mode}: no metrics");
        assert!(is_told(&self.planted, &traces.refusals), "{mode}: refusals");
        let is_audited = is_told(&self.planted, &traces.audit);
        assert!(is_audited || !self.is_checked(), "{mode}: no audit");
    }

    /// Secrets that anybody can read, and where.
    fn found(&self, traces: &Traces) -> Vec<String> {
        let left = std::fs::read_dir(&self.folder.0).unwrap().flatten();
        let is_core = |name: &std::ffi::OsStr| name.to_string_lossy().contains("core");
        let cores = left.filter(|file| is_core(&file.file_name()));
        let mut found: Vec<String> = cores
            .map(|file| format!("{:?} was left", file.path()))
            .collect();
        let search = self.credentials.search(&self.own);
        for (place, text) in [
            ("log", &traces.log),
            ("pages", &traces.pages),
            ("audit", &traces.audit),
            ("refusals", &traces.refusals),
        ] {
            let told = search.found_in(text).into_iter();
            found.extend(told.map(|told| format!("{place}: {told}")));
        }
        found
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
    let code = answer.split(|byte| *byte == b' ').nth(1);
    code.is_some_and(|code| code.starts_with(b"4") || code.starts_with(b"5"))
}

/// Runs a gateway in this mode, asks it everything, and looks for secrets in all that it leaves.
async fn check(mode: &'static str) {
    let (traces, scene) = Scene::new(mode).await.played().await;
    scene.check_whole(&traces);
    let found = scene.found(&traces);
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
