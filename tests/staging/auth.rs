//! A gateway that tells callers apart, before an embedded API server that does so too.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube_fanout::apiserver::auth::{AuthOptions, TokenUser, Tokens};
use kube_fanout::apiserver::{self, Apiserver, Options};
use kube_fanout::config::{AuthMode, AuthSettings, ServeSettings, UpstreamSource};
use kube_fanout::shutdown::Drain;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::gateway::Running;

/// So long anything may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_PERIOD: Duration = Duration::from_millis(10);
/// How often open streams are asked about.
const INTERVAL: Duration = Duration::from_millis(200);
/// The token of somebody who may do everything.
pub(crate) const ROOT: &str = "root-token";
/// The gateway's own token. It may list and watch everything, ask for reviews, and impersonate.
const GATEWAY: &str = "gateway-token";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Everything that runs in a test.
pub(crate) struct AuthStage {
    pub(crate) apiserver: Apiserver,
    /// Where the gateway serves clients.
    pub(crate) address: SocketAddr,
    admin: SocketAddr,
    http1: Client<HttpConnector, Full<Bytes>>,
    http2: Client<HttpConnector, Full<Bytes>>,
    gateway: Running,
}

impl AuthStage {
    pub(crate) async fn new(mode: AuthMode) -> Self {
        Self::with(mode, |_| {}).await
    }

    /// A stage whose gateway has other settings than usual.
    pub(crate) async fn with(mode: AuthMode, adjust: impl FnOnce(&mut ServeSettings)) -> Self {
        Self::with_rights(mode, gateways_rights(), adjust).await
    }

    /// A stage whose gateway has other rights than usual: paths below that of roles, and objects.
    pub(crate) async fn with_rights(
        mode: AuthMode,
        rights: Vec<(&'static str, Value)>,
        adjust: impl FnOnce(&mut ServeSettings),
    ) -> Self {
        let apiserver = apiserver().await;
        let address = apiserver.address();
        let http1 = Client::builder(TokioExecutor::new()).build_http();
        for (path, object) in rights {
            create_at(&http1, address, &format!("{RBAC}{path}"), &object).await;
        }
        let upstream = format!("http://{address}/").parse().unwrap();
        let mut settings = ServeSettings::embedded(upstream);
        settings.upstream = UpstreamSource::Kubeconfig {
            path: kubeconfig(address),
            context: None,
        };
        settings.auth = AuthSettings {
            reauthorize_interval: INTERVAL,
            ..AuthSettings::of_mode(mode)
        };
        adjust(&mut settings);
        let drain = Drain::with_timeout(Duration::from_millis(100));
        let gateway = Running::start(settings, drain).await;
        Self {
            apiserver,
            address: gateway.address,
            admin: gateway.admin,
            http1,
            http2: Client::builder(TokioExecutor::new())
                .http2_only(true)
                .build_http(),
            gateway,
        }
    }

    pub(crate) async fn ended(self) {
        self.gateway.ended().await;
    }

    /// Makes a token good for a user.
    pub(crate) fn user(&self, token: &str, name: &str, groups: &[&str]) {
        let user = TokenUser::new(name, groups);
        self.apiserver.tokens().put(token, user);
    }

    /// Lets a user do something, under this name; in all namespaces if none is given.
    pub(crate) async fn allow(&self, name: &str, user: &str, rule: Value, namespace: &str) {
        let (role, binding) = grant(name, user, rule);
        self.create(&format!("{RBAC}/clusterroles"), &role).await;
        let collection = bindings(namespace);
        self.create(&collection, &binding).await;
    }

    /// Takes that away.
    pub(crate) async fn forbid(&self, name: &str, namespace: &str) {
        let target = format!("{}/{name}", bindings(namespace));
        let answer = self.ask_apiserver(ROOT, "DELETE", &target).await;
        assert_eq!(answer.status(), StatusCode::OK);
    }

    /// Writes an object at the API server.
    pub(crate) async fn create(&self, collection: &str, object: &Value) {
        create_at(&self.http1, self.apiserver.address(), collection, object).await;
    }

    /// Asks the gateway with a token, none if it is empty, and reads the whole answer.
    pub(crate) async fn ask(&self, token: &str, method: &str, target: &str) -> Response<Bytes> {
        self.ask_with(
            self.address,
            method,
            target,
            &[("authorization", &bearer(token))],
        )
        .await
    }

    pub(crate) async fn get(&self, token: &str, target: &str) -> Response<Bytes> {
        self.ask(token, "GET", target).await
    }

    /// The same without the gateway.
    pub(crate) async fn ask_apiserver(
        &self,
        token: &str,
        method: &str,
        target: &str,
    ) -> Response<Bytes> {
        let server = self.apiserver.address();
        self.ask_with(server, method, target, &[("authorization", &bearer(token))])
            .await
    }

    /// The same with any headers; those without a value are left out.
    pub(crate) async fn ask_with(
        &self,
        server: SocketAddr,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
    ) -> Response<Bytes> {
        let request = request(server, (method, target), headers);
        let answer = tokio::time::timeout(PATIENCE, self.http1.request(request));
        whole(answer.await.unwrap().unwrap()).await
    }

    /// Begins a watch, over HTTP/2 if `is_http2`.
    pub(crate) async fn watch(
        &self,
        token: &str,
        target: &str,
        is_http2: bool,
    ) -> Response<Incoming> {
        self.watch_as((token, ""), target, is_http2).await
    }

    /// The same, acting as somebody else unless that is empty.
    pub(crate) async fn watch_as(
        &self,
        (token, as_user): (&str, &str),
        target: &str,
        is_http2: bool,
    ) -> Response<Incoming> {
        let client = if is_http2 { &self.http2 } else { &self.http1 };
        let headers = [
            ("authorization", &*bearer(token)),
            ("impersonate-user", as_user),
        ];
        let request = request(self.address, ("GET", target), &headers);
        let answer = tokio::time::timeout(PATIENCE, client.request(request));
        answer.await.unwrap().unwrap()
    }

    /// The sum of a metric's samples whose labels contain all of `labels`.
    pub(crate) async fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        // The gateway ends connections to this port after five minutes, also those that are about to be used again.
        let close = [("connection", "close")];
        let page = self.ask_with(self.admin, "GET", "/metrics", &close).await;
        let page = std::str::from_utf8(page.body()).unwrap();
        let samples = page.lines().filter(|line| {
            let named = line.strip_prefix(name);
            named.is_some_and(|rest| rest.starts_with(['{', ' ']))
                && labels.iter().all(|label| line.contains(label))
        });
        samples
            .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
            .sum()
    }
}

/// The value of `Authorization`; empty without a token.
pub(crate) fn bearer(token: &str) -> String {
    if token.is_empty() {
        return String::new();
    }
    format!("Bearer {token}")
}

/// Reads until the stream ends, which it must do by itself and cleanly.
pub(crate) async fn read_to_end(body: Incoming) -> String {
    let read = tokio::time::timeout(PATIENCE, body.collect()).await;
    let bytes = read.unwrap().unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Waits for the next piece of a stream.
pub(crate) async fn next_piece(body: &mut Incoming) -> Option<String> {
    let frame = tokio::time::timeout(PATIENCE, body.frame()).await;
    let frame = frame.unwrap()?.unwrap();
    let data = frame.into_data().unwrap_or_default();
    Some(String::from_utf8(data.to_vec()).unwrap())
}

/// Waits until something holds.
#[track_caller]
pub(crate) fn until<F: AsyncFn() -> bool>(
    what: &str,
    holds: F,
) -> impl Future<Output = ()> + use<'_, F> {
    let caller = std::panic::Location::caller();
    async move {
        let give_up_at = Instant::now() + PATIENCE;
        while !holds().await {
            assert!(Instant::now() < give_up_at, "never: {what}, for {caller}");
            tokio::time::sleep(LOOK_PERIOD).await;
        }
    }
}

async fn apiserver() -> Apiserver {
    let tokens: Tokens = [
        (ROOT, TokenUser::new("root", &["system:masters"])),
        (GATEWAY, TokenUser::new("gateway", &[])),
    ]
    .into_iter()
    .collect();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = Options {
        objects: vec!["pods=20".parse().unwrap()],
        object_len: 1_024,
        seed: Some(1),
        auth: Some(AuthOptions {
            tokens,
            ..AuthOptions::default()
        }),
        ..Options::default()
    };
    apiserver::start(listener, options).unwrap()
}

/// A file with the gateway's credentials.
fn kubeconfig(address: SocketAddr) -> PathBuf {
    let text = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "own",
        "contexts": [{"name": "own", "context": {"cluster": "own", "user": "own"}}],
        "users": [{"name": "own", "user": {"token": GATEWAY}}],
        "clusters": [{"name": "own", "cluster": {"server": format!("http://{address}")}}],
    });
    let name = format!("gateway-{}.kubeconfig", address.port());
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text.to_string()).unwrap();
    path
}

/// What the gateway needs in all modes: to read everything, to ask for reviews, and to impersonate.
pub(crate) fn gateways_rights() -> Vec<(&'static str, Value)> {
    let rules = [
        (
            "reading",
            json!({"verbs": ["get", "list", "watch"], "apiGroups": ["*"], "resources": ["*"]}),
        ),
        (
            "impersonating",
            json!({"verbs": ["impersonate"], "apiGroups": ["", "authentication.k8s.io"], "resources": ["*"]}),
        ),
    ];
    let mut objects = Vec::new();
    for (name, rule) in rules {
        let (role, binding) = grant(&format!("gateway-{name}"), "gateway", rule);
        objects.push(("/clusterroles", role));
        objects.push(("/clusterrolebindings", binding));
    }
    objects.push((
        "/clusterrolebindings",
        binding("gateway-reviews", "gateway", "system:auth-delegator"),
    ));
    objects
}

/// A role with one rule, and its binding to a user.
pub(crate) fn grant(name: &str, user: &str, rule: Value) -> (Value, Value) {
    let role = json!({"metadata": {"name": name}, "rules": [rule]});
    (role, binding(name, user, name))
}

fn binding(name: &str, user: &str, role: &str) -> Value {
    let group = "rbac.authorization.k8s.io";
    json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    })
}

fn bindings(namespace: &str) -> String {
    match namespace {
        "" => format!("{RBAC}/clusterrolebindings"),
        namespace => format!("{RBAC}/namespaces/{namespace}/rolebindings"),
    }
}

async fn create_at(
    client: &Client<HttpConnector, Full<Bytes>>,
    server: SocketAddr,
    collection: &str,
    object: &Value,
) {
    let request = Request::post(format!("http://{server}{collection}"))
        .header("authorization", bearer(ROOT))
        .header("content-type", "application/json")
        .body(Full::from(object.to_string()))
        .unwrap();
    let answer = whole(client.request(request).await.unwrap()).await;
    assert_eq!(answer.status(), StatusCode::CREATED, "{:?}", answer.body());
}

fn request(
    server: SocketAddr,
    (method, target): (&str, &str),
    headers: &[(&str, &str)],
) -> Request<Full<Bytes>> {
    let mut request = Request::builder()
        .method(method)
        .uri(format!("http://{server}{target}"))
        .header("audit-id", "mine");
    for (name, value) in headers.iter().filter(|(_, value)| !value.is_empty()) {
        request = request.header(*name, *value);
    }
    request.body(Full::default()).unwrap()
}

async fn whole(answer: Response<Incoming>) -> Response<Bytes> {
    let (head, body) = answer.into_parts();
    let body = tokio::time::timeout(PATIENCE, body.collect()).await;
    Response::from_parts(head, body.unwrap().unwrap().to_bytes())
}
