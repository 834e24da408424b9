//! A gateway that authenticates and authorizes callers, in front of an embedded API server that does the same.

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
use kube_fanout::config::{AuthMode, AuthSettings, ServeSettings, UpstreamSource};
use kube_fanout::shutdown::Drain;
use kube_fanout_testkit::apiserver::auth::{AuthOptions, TokenUser, Tokens};
use kube_fanout_testkit::apiserver::{self, Apiserver, Options};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::support::PATIENCE;
use crate::support::gateway::Running;

const POLL_PERIOD: Duration = Duration::from_millis(10);
/// How often the gateway checks the permission of open streams again.
const REAUTHORIZE_INTERVAL: Duration = Duration::from_millis(200);
/// The token of a user who may do everything.
pub(crate) const ROOT: &str = "root-token";
/// The gateway's own token. Unless a test sets other rights, its user may read everything, create reviews and impersonate.
const GATEWAY_TOKEN: &str = "gateway-token";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// The API server and the gateway of a test, with clients for both.
pub(crate) struct AuthStage {
    pub(crate) apiserver: Apiserver,
    /// The address at which the gateway serves clients.
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
    http1: Client<HttpConnector, Full<Bytes>>,
    http2: Client<HttpConnector, Full<Bytes>>,
    gateway: Running,
}

impl AuthStage {
    pub(crate) async fn new(mode: AuthMode) -> Self {
        Self::with(mode, |_| {}).await
    }

    /// A stage whose gateway settings are adjusted by the test.
    pub(crate) async fn with(mode: AuthMode, adjust: impl FnOnce(&mut ServeSettings)) -> Self {
        Self::with_rights(mode, gateways_rights(), adjust).await
    }

    /// A stage whose gateway has these rights. Each is a path below that of the RBAC API group, and the object to create there.
    pub(crate) async fn with_rights(
        mode: AuthMode,
        rights: Vec<(&'static str, Value)>,
        adjust: impl FnOnce(&mut ServeSettings),
    ) -> Self {
        let apiserver = apiserver().await;
        let upstream = apiserver.address();
        Self::assembled(apiserver, upstream, (mode, rights), adjust).await
    }

    /// A stage whose gateway reaches the API server by a server before it, which is started with its address.
    pub(crate) async fn behind(
        front: impl AsyncFnOnce(SocketAddr) -> SocketAddr,
        mode: AuthMode,
        adjust: impl FnOnce(&mut ServeSettings),
    ) -> Self {
        let apiserver = apiserver().await;
        let upstream = front(apiserver.address()).await;
        Self::assembled(apiserver, upstream, (mode, gateways_rights()), adjust).await
    }

    async fn assembled(
        apiserver: Apiserver,
        upstream: SocketAddr,
        (mode, rights): (AuthMode, Vec<(&'static str, Value)>),
        adjust: impl FnOnce(&mut ServeSettings),
    ) -> Self {
        let http1 = Client::builder(TokioExecutor::new()).build_http();
        for (path, object) in rights {
            let path = format!("{RBAC}{path}");
            create_at(&http1, apiserver.address(), &path, &object).await;
        }
        let mut settings = ServeSettings::embedded(format!("http://{upstream}/").parse().unwrap());
        settings.upstream = UpstreamSource::Kubeconfig {
            path: kubeconfig(upstream),
            context: None,
        };
        settings.auth = AuthSettings {
            reauthorize_interval: REAUTHORIZE_INTERVAL,
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

    /// Drains the gateway and waits for its end.
    pub(crate) async fn ended(self) {
        self.gateway.ended().await;
    }

    /// Makes the API server accept a token as this user's.
    pub(crate) fn user(&self, token: &str, name: &str, groups: &[&str]) {
        let user = TokenUser::new(name, groups);
        self.apiserver.tokens().put(token, user);
    }

    /// Lets bob and alice read the pods of the namespace default, and eve impersonate alice.
    pub(crate) async fn allow_bob_alice_and_eve(&self) {
        let pods =
            json!({"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["pods"]});
        self.allow("bob-reads", "bob", pods.clone(), "default")
            .await;
        self.allow("alice-reads", "alice", pods, "default").await;
        let alice = json!({"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"], "resourceNames": ["alice"]});
        self.allow("eve-as-alice", "eve", alice, "").await;
    }

    /// Grants a user what `rule` allows, by a role and a binding called `name`; in all namespaces if `namespace` is empty.
    pub(crate) async fn allow(&self, name: &str, user: &str, rule: Value, namespace: &str) {
        let (role, binding) = grant(name, user, rule);
        self.create(&format!("{RBAC}/clusterroles"), &role).await;
        let collection = bindings(namespace);
        self.create(&collection, &binding).await;
    }

    /// Deletes the binding that [`Self::allow`] created.
    pub(crate) async fn forbid(&self, name: &str, namespace: &str) {
        let target = format!("{}/{name}", bindings(namespace));
        let response = self.ask_apiserver(ROOT, "DELETE", &target).await;
        assert_eq!(response.status(), StatusCode::OK);
    }

    /// Creates an object at the API server, as a user who may do everything.
    pub(crate) async fn create(&self, collection: &str, object: &Value) {
        create_at(&self.http1, self.apiserver.address(), collection, object).await;
    }

    /// Sends a request to the gateway and reads the whole response. No token is sent if `token` is empty.
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

    /// Like [`Self::ask`], but sent to the API server directly.
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

    /// Like [`Self::ask`], to any server and with any headers. Headers with an empty value are not sent.
    pub(crate) async fn ask_with(
        &self,
        server: SocketAddr,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
    ) -> Response<Bytes> {
        let request = request(server, (method, target), headers);
        let response = tokio::time::timeout(PATIENCE, self.http1.request(request));
        whole(response.await.unwrap().unwrap()).await
    }

    /// Starts a watch through the gateway, over HTTP/2 if `is_http2`.
    pub(crate) async fn watch(
        &self,
        token: &str,
        target: &str,
        is_http2: bool,
    ) -> Response<Incoming> {
        self.watch_as((token, ""), target, is_http2).await
    }

    /// Like [`Self::watch`], impersonating `as_user` unless that is empty.
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
        let response = tokio::time::timeout(PATIENCE, client.request(request));
        response.await.unwrap().unwrap()
    }

    /// The sum of a metric's samples whose labels contain all of `labels`.
    pub(crate) async fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        // The gateway closes connections to this port after five minutes, which may hit one that the client is about to reuse.
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

/// The value of the `Authorization` header; empty if there is no token.
pub(crate) fn bearer(token: &str) -> String {
    if token.is_empty() {
        return String::new();
    }
    format!("Bearer {token}")
}

/// Reads a stream to its end. Panics if it is reset, or does not end in time.
pub(crate) async fn read_to_end(body: Incoming) -> String {
    let read = tokio::time::timeout(PATIENCE, body.collect()).await;
    let bytes = read.unwrap().unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Waits for the next frame of a body; `None` at its end.
pub(crate) async fn next_piece(body: &mut Incoming) -> Option<String> {
    let frame = tokio::time::timeout(PATIENCE, body.frame()).await;
    let frame = frame.unwrap()?.unwrap();
    let data = frame.into_data().unwrap_or_default();
    Some(String::from_utf8(data.to_vec()).unwrap())
}

/// Waits until `holds` returns true. Panics with `what` and the caller's location if it does not in time.
#[track_caller]
pub(crate) fn until<F: AsyncFn() -> bool>(
    what: &str,
    holds: F,
) -> impl Future<Output = ()> + use<'_, F> {
    let caller = std::panic::Location::caller();
    async move {
        let give_up_at = Instant::now() + PATIENCE;
        while !holds().await {
            assert!(
                Instant::now() < give_up_at,
                "timed out waiting until {what}, at {caller}"
            );
            tokio::time::sleep(POLL_PERIOD).await;
        }
    }
}

async fn apiserver() -> Apiserver {
    let tokens: Tokens = [
        (ROOT, TokenUser::new("root", &["system:masters"])),
        (GATEWAY_TOKEN, TokenUser::new("gateway", &[])),
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

/// Writes a kubeconfig with the gateway's token for this API server.
fn kubeconfig(address: SocketAddr) -> PathBuf {
    let text = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "own",
        "contexts": [{"name": "own", "context": {"cluster": "own", "user": "own"}}],
        "users": [{"name": "own", "user": {"token": GATEWAY_TOKEN}}],
        "clusters": [{"name": "own", "cluster": {"server": format!("http://{address}")}}],
    });
    let name = format!("gateway-{}.kubeconfig", address.port());
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text.to_string()).unwrap();
    path
}

/// The rights that suffice in all modes: to read everything, to create reviews, and to impersonate.
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

/// A cluster role with one rule, and its binding to a user.
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
    let response = whole(client.request(request).await.unwrap()).await;
    assert_eq!(
        response.status(),
        StatusCode::CREATED,
        "{:?}",
        response.body()
    );
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

async fn whole(response: Response<Incoming>) -> Response<Bytes> {
    let (head, body) = response.into_parts();
    let body = tokio::time::timeout(PATIENCE, body.collect()).await;
    Response::from_parts(head, body.unwrap().unwrap().to_bytes())
}
