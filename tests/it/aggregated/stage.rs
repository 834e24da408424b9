//! The embedded API server with its callers, the aggregated server in front of it, and gateways in front of that.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube_fanout::config::{
    AuthMode, AuthSettings, HandoverSettings, ServeSettings, StateSettings, UpstreamSource,
};
use kube_fanout::resource::Gvr;
use kube_fanout::shutdown::Drain;
use kube_fanout_testkit::apiserver::auth::{AuthOptions, TokenUser, Tokens};
use kube_fanout_testkit::apiserver::{self, Apiserver, Options};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::server::{FilteringServer, ServerMode};
use crate::support::PATIENCE;
use crate::support::auth::{ROOT, bearer, gateways_rights, grant};
use crate::support::gateway::Running;

pub(super) const POLICIES: &str = "/apis/projectcalico.org/v3/networkpolicies";
pub(super) const ADMIN: &str = "admin";
pub(super) const GATEWAY: &str = "gateway";
/// The callers' tokens, which are their names, and what the aggregated server shows to each of them, as a label selector: everything, a
/// tier, what they own, their tenant's, or nothing. The gateway's own identity is one of them.
pub(super) const CALLERS: [(&str, Option<&str>); 6] = [
    (ADMIN, Some("")),
    ("bob", Some("tier%3Ddefault")),
    ("alice", Some("owner%3Dalice")),
    ("dave", Some("tenant%3Dblue")),
    ("carol", None),
    (GATEWAY, Some("tier%3Ddefault")),
];
const API_SERVICE: &str = "/apis/apiregistration.k8s.io/v1/apiservices/v3.projectcalico.org";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const POLICY_COUNT: usize = 40;

pub(super) fn policies() -> Gvr {
    Gvr::new("projectcalico.org", "v3", "networkpolicies")
}

/// A folder for checkpoints, and the settings that use it.
pub(super) fn state_in(test: &str) -> (PathBuf, StateSettings) {
    let folder = format!("aggregated-{}-{test}", std::process::id());
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(folder);
    let settings = StateSettings {
        directory: directory.clone(),
        key_file: None,
        len_max: 1 << 30,
        interval: Duration::from_millis(20),
        excluded: Vec::new(),
    };
    (directory, settings)
}

/// The servers of a test, and a client of theirs and of gateways.
pub(super) struct AggregatedStage {
    apiserver: Apiserver,
    server: FilteringServer,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl AggregatedStage {
    pub(super) async fn new() -> Self {
        Self::with_rights(gateways_rights()).await
    }

    /// A stage whose gateways may read all groups but the one of APIServices.
    pub(super) async fn without_api_services() -> Self {
        let reads = json!({"verbs": ["get", "list", "watch"], "apiGroups": ["", "projectcalico.org", "rbac.authorization.k8s.io"], "resources": ["*"]});
        let (role, binding) = grant("gateway-reading", "gateway", reads);
        let mut rights = gateways_rights();
        rights.retain(|(_, object)| {
            !object["metadata"]["name"]
                .as_str()
                .unwrap()
                .contains("reading")
        });
        rights.push(("/clusterroles", role));
        rights.push(("/clusterrolebindings", binding));
        Self::with_rights(rights).await
    }

    async fn with_rights(rights: Vec<(&'static str, Value)>) -> Self {
        let mut tokens = vec![(ROOT, TokenUser::new("root", &["system:masters"]))];
        tokens.extend(CALLERS.map(|(name, _)| (name, TokenUser::new(name, &[]))));
        let tokens: Tokens = tokens.into_iter().collect();
        let options = Options {
            extra_kinds: vec![
                "networkpolicies.v3.projectcalico.org=NetworkPolicy"
                    .parse()
                    .unwrap(),
            ],
            objects: vec!["configmaps=3".parse().unwrap()],
            auth: Some(AuthOptions {
                tokens,
                ..AuthOptions::default()
            }),
            ..Options::default()
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let apiserver = apiserver::start(listener, options).unwrap();
        let stage = Self {
            server: FilteringServer::start(apiserver.address()).await,
            apiserver,
            client: Client::builder(TokioExecutor::new()).build_http(),
        };
        for (path, object) in rights {
            stage.write("POST", &format!("{RBAC}{path}"), &object).await;
        }
        let reads = json!({"verbs": ["get", "list", "watch"], "apiGroups": ["projectcalico.org", ""], "resources": ["networkpolicies", "configmaps"]});
        let handovers = json!({"verbs": ["get"], "nonResourceURLs": ["/kube-fanout/handover", "/kube-fanout/handover/*"]});
        for (name, _) in CALLERS {
            for (what, rule) in [("reads", &reads), ("hands-over", &handovers)] {
                let (role, binding) = grant(&format!("{name}-{what}"), name, rule.clone());
                stage
                    .write("POST", &format!("{RBAC}/clusterroles"), &role)
                    .await;
                let path = format!("{RBAC}/clusterrolebindings");
                stage.write("POST", &path, &binding).await;
            }
        }
        for index in 0..POLICY_COUNT {
            let namespace = ["a", "b", "c"][index % 3];
            let tier = ["default", "security", "platform"][index % 5 % 3];
            let owner = ["alice", "bob"][index / 2 % 2];
            let tenant = ["blue", "green", "red"][index / 3 % 3];
            let labels = json!({"tier": tier, "owner": owner, "tenant": tenant});
            let policy = json!({"kind": "NetworkPolicy", "apiVersion": "projectcalico.org/v3", "metadata": {"name": format!("p{index}"), "labels": labels}, "spec": {"order": index}});
            let path = format!("/apis/projectcalico.org/v3/namespaces/{namespace}/networkpolicies");
            stage.write("POST", &path, &policy).await;
        }
        stage
    }

    pub(super) fn mode(&self) -> &ServerMode {
        &self.server.mode
    }

    pub(super) const fn server_address(&self) -> SocketAddr {
        self.server.address
    }

    /// Moves the group to the service, which filters.
    pub(super) async fn serve_by_service(&self) {
        self.mode().is_filtering.store(true, Ordering::Relaxed);
        let service = json!({"namespace": "calico-apiserver", "name": "calico-api"});
        self.set_service(service).await;
    }

    /// Moves the group back to the API server's own storage.
    pub(super) async fn serve_locally(&self) {
        self.mode().is_filtering.store(false, Ordering::Relaxed);
        self.set_service(Value::Null).await;
    }

    async fn set_service(&self, service: Value) {
        let patch = json!({"spec": {"service": service}});
        self.write("PATCH", API_SERVICE, &patch).await;
    }

    /// Writes to a policy that everybody but carol sees.
    pub(super) async fn touch_policy(&self) {
        let path = "/apis/projectcalico.org/v3/namespaces/a/networkpolicies/p0";
        let patch = json!({"spec": {"order": 1_000}});
        self.write("PATCH", path, &patch).await;
    }

    async fn write(&self, method: &str, path: &str, object: &Value) {
        let media_type = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.apiserver.address()))
            .header("authorization", bearer(ROOT))
            .header("content-type", media_type)
            .body(Full::from(object.to_string()))
            .unwrap();
        let response = self.client.request(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert!(status.is_success(), "{path}: {body:?}");
    }

    /// A gateway in front of the aggregated server, with settings that are adjusted by the test.
    pub(super) async fn gateway(&self, adjust: impl FnOnce(&mut ServeSettings)) -> Running {
        let url = format!("http://{}/", self.server.address);
        let mut settings = ServeSettings::embedded(url.parse().unwrap());
        settings.upstream = UpstreamSource::Kubeconfig {
            path: kubeconfig(self.server.address),
            context: None,
        };
        settings.auth = AuthSettings::of_mode(AuthMode::SelfCheck);
        adjust(&mut settings);
        Running::start(settings, Drain::with_timeout(Duration::from_millis(100))).await
    }

    pub(super) fn handover_from(&self, other: SocketAddr) -> HandoverSettings {
        let token_file = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("aggregated-{}-token", std::process::id()));
        std::fs::write(&token_file, GATEWAY).unwrap();
        HandoverSettings {
            from: format!("http://{other}/").parse().unwrap(),
            ca_file: None,
            server_name: None,
            token_file: Some(token_file),
            timeout: PATIENCE,
            len_max: 1 << 30,
            rebalance_interval: None,
        }
    }

    /// The response to a caller, through a gateway and from the server itself.
    pub(super) async fn both(
        &self,
        gateway: SocketAddr,
        token: &str,
        target: &str,
    ) -> [Response<Bytes>; 2] {
        let through = self.get(gateway, token, target).await;
        [through, self.get(self.server.address, token, target).await]
    }

    pub(super) async fn get(&self, at: SocketAddr, token: &str, target: &str) -> Response<Bytes> {
        self.read(at, token, (target, "application/json")).await
    }

    /// Sends a request with this target and `Accept`, and reads the response: a streamed list to its marker, all else to the end.
    pub(super) async fn read(
        &self,
        at: SocketAddr,
        token: &str,
        (target, accept): (&str, &str),
    ) -> Response<Bytes> {
        let response = self.send(at, token, (target, accept)).await;
        let (head, mut body) = response.into_parts();
        let is_streamed_list = target.contains("sendInitialEvents");
        let mut read = Vec::new();
        while let Some(frame) = tokio::time::timeout(PATIENCE, body.frame()).await.unwrap() {
            read.extend_from_slice(frame.unwrap().data_ref().unwrap());
            let text = String::from_utf8_lossy(&read);
            if is_streamed_list && text.contains("initial-events-end") && text.ends_with('\n') {
                break;
            }
        }
        Response::from_parts(head, read.into())
    }

    pub(super) async fn watch(
        &self,
        at: SocketAddr,
        token: &str,
        target: &str,
    ) -> Response<Incoming> {
        let response = self.send(at, token, (target, "application/json")).await;
        assert_eq!(response.status(), StatusCode::OK);
        response
    }

    async fn send(
        &self,
        at: SocketAddr,
        token: &str,
        (target, accept): (&str, &str),
    ) -> Response<Incoming> {
        let request = Request::get(format!("http://{at}{target}"))
            .header("authorization", bearer(token))
            .header("accept", accept)
            .body(Full::default())
            .unwrap();
        let response = tokio::time::timeout(PATIENCE, self.client.request(request));
        response.await.unwrap().unwrap()
    }

    /// A page of a gateway's administration port.
    pub(super) async fn admin(&self, gateway: &Running, target: &str) -> String {
        let page = self.get(gateway.admin, "", target).await;
        String::from_utf8(page.into_body().to_vec()).unwrap()
    }

    pub(super) async fn is_ready(&self, gateway: &Running) -> bool {
        self.get(gateway.admin, "", "/readyz").await.status() == StatusCode::OK
    }

    /// The value of a metric without labels.
    pub(super) async fn metric(&self, gateway: &Running, name: &str) -> f64 {
        let page = self.admin(gateway, "/metrics").await;
        let value = page
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap().parse().unwrap()
    }

    /// How many policies the gateway's cache holds.
    pub(super) async fn cached_objects(&self, gateway: &Running) -> f64 {
        let page = self.admin(gateway, "/metrics").await;
        let of_policies = |line: &&str| {
            line.starts_with("kube_fanout_cache_objects{")
                && line.contains("group=\"projectcalico.org\"")
        };
        let counts = page.lines().filter(of_policies);
        counts
            .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
            .sum()
    }
}

/// Writes a kubeconfig with the gateway's token for this server.
fn kubeconfig(address: SocketAddr) -> PathBuf {
    let text = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "own",
        "contexts": [{"name": "own", "context": {"cluster": "own", "user": "own"}}],
        "users": [{"name": "own", "user": {"token": GATEWAY}}],
        "clusters": [{"name": "own", "cluster": {"server": format!("http://{address}")}}],
    });
    let name = format!("aggregated-{}.kubeconfig", address.port());
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text.to_string()).unwrap();
    path
}
