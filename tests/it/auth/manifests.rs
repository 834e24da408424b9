//! The gateway with the configuration and the RBAC rules of `deploy/manifests`, and no other rights.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use kube_fanout::config::AuthMode;
use kube_fanout_testkit::apiserver::auth::TokenUser;
use rustls_pki_types::CertificateDer;
use serde_json::{Value, json};

use crate::auth::rotation::{connect, create_pod, made};
use crate::support::auth::{AuthStage, until};

const NAMESPACE: &str = "kube-fanout";
const SERVICE_ACCOUNT: &str = "system:serviceaccount:kube-fanout:kube-fanout";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// All objects in a YAML file below `deploy`.
fn objects(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("deploy")
        .join(file);
    let text = fs::read_to_string(path).unwrap();
    let documents = text.split("\n---\n");
    documents
        .map(|document| serde_saphyr::from_str(document).unwrap())
        .collect()
}

/// Creates the cluster roles and bindings of a manifest.
async fn grant(stage: &AuthStage, file: &str) {
    for object in objects(file) {
        let collection = match object["kind"].as_str().unwrap() {
            "ClusterRole" => "clusterroles",
            "ClusterRoleBinding" => "clusterrolebindings",
            // The test adds the service account's token itself.
            "ServiceAccount" => continue,
            kind => panic!("{file} contains an unexpected {kind}"),
        };
        for subject in object["subjects"].as_array().into_iter().flatten() {
            let names = [&subject["kind"], &subject["namespace"], &subject["name"]];
            assert_eq!(names, ["ServiceAccount", NAMESPACE, NAMESPACE], "{file}");
        }
        let collection = format!("/apis/rbac.authorization.k8s.io/v1/{collection}");
        stage.create(&collection, &object).await;
    }
}

/// The manifests' configuration, with the paths and ports of the test.
fn configuration(folder: &Path) -> String {
    let config_map = objects("manifests/20-configuration.yaml").remove(0);
    let mut text = config_map["data"]["gateway.yaml"]
        .as_str()
        .unwrap()
        .to_owned();
    let folder = folder.to_str().unwrap();
    for (original, replacement) in [
        (
            "inCluster: true",
            format!("kubeconfig: {folder}/kubeconfig"),
        ),
        ("/etc/kube-fanout/tls/tls.crt", format!("{folder}/tls.crt")),
        ("/etc/kube-fanout/tls/tls.key", format!("{folder}/tls.key")),
        ("0.0.0.0:8443", "127.0.0.1:0".to_owned()),
        ("0.0.0.0:9090", "127.0.0.1:0".to_owned()),
    ] {
        assert_eq!(text.matches(original).count(), 1, "{original}");
        text = text.replace(original, &replacement);
    }
    assert!(text.contains("auth: self-check"), "the default");
    text
}

/// The gateway program, running in its own process.
struct Process {
    child: Child,
    log: BufReader<ChildStderr>,
    log_text: String,
    certificate: CertificateDer<'static>,
    address: String,
    admin: String,
    folder: PathBuf,
}

impl Process {
    fn start(stage: &AuthStage, token: &str) -> Self {
        Self::start_with(stage, token, &[])
    }

    /// Starts the program with further flags.
    fn start_with(stage: &AuthStage, token: &str, flags: &[&str]) -> Self {
        let name = format!("manifests-{}", uuid::Uuid::new_v4());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&folder).unwrap();
        let (certificate, cert, key) = made(2100);
        let server = format!("http://{}", stage.apiserver.address());
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "own",
            "contexts": [{"name": "own", "context": {"cluster": "own", "user": "own"}}],
            "users": [{"name": "own", "user": {"token": token}}],
            "clusters": [{"name": "own", "cluster": {"server": server}}],
        });
        for (name, text) in [
            ("tls.crt", cert),
            ("tls.key", key),
            ("token", token.to_owned()),
            ("kubeconfig", kubeconfig.to_string()),
            ("gateway.yaml", configuration(&folder)),
        ] {
            fs::write(folder.join(name), text).unwrap();
        }
        let mut child = Command::new(env!("CARGO_BIN_EXE_kube-fanout"))
            .arg("serve")
            .arg("--config")
            .arg(folder.join("gateway.yaml"))
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let mut process = Self {
            child,
            log,
            log_text: String::new(),
            certificate,
            address: String::new(),
            admin: String::new(),
            folder,
        };
        process.await_ports();
        process
    }

    /// Reads the log until the line with the listening addresses.
    fn await_ports(&mut self) {
        while self.address.is_empty() {
            let begin = self.log_text.len();
            let length = self.log.read_line(&mut self.log_text).unwrap();
            assert!(length > 0, "the gateway exited: {}", self.log_text);
            let line: Value = serde_json::from_str(&self.log_text[begin..]).unwrap();
            if line["message"] == "serving" {
                self.address = line["address"].as_str().unwrap().to_owned();
                self.admin = line["admin"].as_str().unwrap().to_owned();
            }
        }
    }

    /// Sends a request over TLS, with a bearer token unless it is empty.
    async fn get(&self, token: &str, target: &str) -> Response<Bytes> {
        let address = self.address.parse().unwrap();
        let version = &rustls::version::TLS13;
        let stream = connect(address, &self.certificate, version, b"http/1.1").await;
        let io = TokioIo::new(stream.unwrap());
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        let connection = tokio::spawn(connection);
        let mut request = Request::get(target)
            .header("host", "localhost")
            .header("audit-id", "mine");
        if !token.is_empty() {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request.body(Empty::<Bytes>::new()).unwrap();
        let (head, body) = sender.send_request(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        drop(sender);
        connection.await.unwrap().unwrap();
        Response::from_parts(head, body)
    }

    async fn is_ready(&self, stage: &AuthStage) -> bool {
        let admin = self.admin.parse().unwrap();
        let ready = stage.ask_with(admin, "GET", "/readyz", &[]).await;
        ready.status() == StatusCode::OK
    }

    /// The sum of a metric's samples whose labels contain `label`.
    async fn metric(&self, stage: &AuthStage, name: &str, label: &str) -> f64 {
        let admin = self.admin.parse().unwrap();
        let page = stage.ask_with(admin, "GET", "/metrics", &[]).await;
        let page = String::from_utf8(page.body().to_vec()).unwrap();
        let samples = page
            .lines()
            .filter(|line| line.starts_with(name) && line.contains(label));
        let values = samples.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap());
        values.sum()
    }

    /// The path of a file in the process's folder.
    fn file(&self, name: &str) -> String {
        self.folder.join(name).to_str().unwrap().to_owned()
    }

    /// Kills the process, and returns its whole log.
    fn end(mut self) -> String {
        self.child.kill().unwrap();
        while self.log.read_line(&mut self.log_text).unwrap() > 0 {}
        std::mem::take(&mut self.log_text)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn check_same(through: &Response<Bytes>, direct: &Response<Bytes>) {
    assert_eq!(through.status(), direct.status());
    assert_eq!(through.body(), direct.body());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_manifests_start_and_let_in_who_may_and_nobody_else() {
    let stage = AuthStage::new(AuthMode::None).await;
    let tokens = ["service-account-token", "alices-token", "bobs-token"];
    let [own, alice, bob] = tokens;
    let groups = [
        "system:serviceaccounts",
        "system:serviceaccounts:kube-fanout",
    ];
    stage
        .apiserver
        .tokens()
        .put(own, TokenUser::new(SERVICE_ACCOUNT, &groups));
    stage.user(alice, "alice", &[]);
    stage.user(bob, "bob", &[]);
    let rule = json!({"verbs": ["list", "watch"], "apiGroups": [""], "resources": ["pods"]});
    stage.allow("alice-pods", "alice", rule, "default").await;
    create_pod(&stage, "seen").await;
    grant(&stage, "manifests/10-rbac.yaml").await;

    let gateway = Process::start(&stage, own);
    until("the gateway is ready", async || {
        gateway.is_ready(&stage).await
    })
    .await;
    let forwarded = async || {
        let admin = gateway.admin.parse().unwrap();
        let page = stage.ask_with(admin, "GET", "/metrics", &[]).await;
        let page = String::from_utf8(page.body().to_vec()).unwrap();
        let name = "kube_fanout_passthrough_requests_total ";
        let line = page.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().to_owned()
    };
    let before = forwarded().await;
    let seen = gateway.get(alice, PODS).await;
    assert_eq!(seen.status(), StatusCode::OK, "{:?}", seen.body());
    let list: Value = serde_json::from_slice(seen.body()).unwrap();
    assert_eq!(list["items"][0]["metadata"]["name"], "seen");
    assert_eq!(forwarded().await, before, "the list must come from memory");

    // By default the gateway refuses clients without credentials, even if the API server accepts anonymous requests.
    let anonymous = gateway.get("", PODS).await;
    assert_eq!(anonymous.status(), StatusCode::UNAUTHORIZED);
    for token in [bob, "unknown"] {
        for target in [PODS, "/api/v1/pods", "/api/v1/namespaces/default/secrets"] {
            let direct = stage.ask_apiserver(token, "GET", target).await;
            check_same(&gateway.get(token, target).await, &direct);
            assert_ne!(direct.status(), StatusCode::OK, "{token} {target}");
        }
    }
    // Alice may list pods in one namespace, but not in all.
    let everywhere = gateway.get(alice, "/api/v1/pods").await;
    check_same(
        &everywhere,
        &stage.ask_apiserver(alice, "GET", "/api/v1/pods").await,
    );
    assert_eq!(everywhere.status(), StatusCode::FORBIDDEN);

    let log_text = gateway.end();
    assert!(
        tokens.iter().all(|token| !log_text.contains(token)),
        "{log_text}"
    );
    stage.ended().await;
}

/// Over TLS, with the service account's token, and only from a gateway whose certificate is trusted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_takes_its_caches_over_with_the_rights_of_the_manifests() {
    let stage = AuthStage::new(AuthMode::None).await;
    let own = "service-account-token";
    let account = TokenUser::new(SERVICE_ACCOUNT, &["system:serviceaccounts"]);
    stage.apiserver.tokens().put(own, account);
    create_pod(&stage, "seen").await;
    grant(&stage, "manifests/10-rbac.yaml").await;
    let first = Process::start(&stage, own);
    until("the first is ready", async || first.is_ready(&stage).await).await;

    let (_, other, _) = made(2100);
    fs::write(first.file("other.crt"), other).unwrap();
    let from = format!("https://{}", first.address);
    for (ca, token, taken, outcome) in [
        ("tls.crt", "token", 3.0, "\"taken\""),
        ("other.crt", "token", 0.0, "\"unreachable\""),
        ("tls.crt", "unknown", 0.0, "\"denied\""),
    ] {
        fs::write(first.file("unknown"), "unknown-token").unwrap();
        let (ca, token) = (first.file(ca), first.file(token));
        let flags = [
            ["--handover-from", &from],
            ["--handover-server-name", "localhost"],
            ["--handover-ca-file", &ca],
            ["--handover-token-file", &token],
        ];
        let next = Process::start_with(&stage, own, flags.as_flattened());
        until("the next is ready", async || next.is_ready(&stage).await).await;
        let takes = "kube_fanout_handovers_taken_total";
        assert_eq!(
            next.metric(&stage, takes, outcome).await,
            3.0,
            "{ca} {token}"
        );
        let lists = next.metric(&stage, "kube_fanout_upstream_lists_total", "");
        assert_eq!(lists.await, 3.0 - taken, "{ca} {token}");
        let log_text = next.end();
        assert!(!log_text.contains(own), "{log_text}");
    }
    assert!(!first.end().contains(own));
    stage.ended().await;
}

#[test]
fn optional_rights_are_for_the_gateways_service_account() {
    let files = ["optional/impersonation.yaml", "optional/review.yaml"];
    for object in files.into_iter().flat_map(objects) {
        if object["kind"] == "ClusterRoleBinding" {
            assert_eq!(object["subjects"][0]["name"], NAMESPACE);
            assert_eq!(object["subjects"][0]["namespace"], NAMESPACE);
        }
    }
}
