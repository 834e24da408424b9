//! The API server of the scenario, in this process: accounts with their roles, pods with their tokens, and the objects that they watch.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use kube_fanout_testkit::apiserver::auth::{AuthOptions, PodBinding, TokenUser, Tokens};
use kube_fanout_testkit::apiserver::kinds::ObjectKey;
use kube_fanout_testkit::apiserver::store::Write;
use kube_fanout_testkit::apiserver::{self, Apiserver, Options};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::Instant;

use super::credential::PodIdentity;
use crate::runner::gateway;
use crate::scenario::kubelets::cluster::{self, NAMESPACE};
use crate::scenario::kubelets::selection::ROOT_CA;
use crate::wire::event::{WRITTEN_AT, WriteTime};
use crate::writer::shape::node_name;

/// The token of the writer.
pub const WRITER: &str = "token-of-writer";
const GATEWAY: &str = "token-of-gateway";
const MASTERS: &str = "system:masters";
/// The cluster role of all accounts.
const READER: &str = "loadtest-reader";
const PROXIER: &str = "loadtest-proxier";
const ACCOUNT: &str = "reader";
const KUBE_PROXY: &str = "kube-proxy";
const KUBE_SYSTEM: &str = "kube-system";
const RBAC: &str = "rbac.authorization.k8s.io";
/// Pods of accounts on each node.
pub const PODS_PER_NODE: usize = 8;
/// ConfigMaps and Secrets that the pods of each node use, besides the cluster's certificates.
pub const REFERENCES: usize = 2;
/// Names of ConfigMaps that accounts read have numbers from here on, which no other object has.
const CONFIG_NUMBERS: u32 = 1_000_000;
/// Kinds that the embedded API server lacks.
const EXTRA_KINDS: [&str; 3] = [
    "runtimeclasses.v1.node.k8s.io=RuntimeClass:cluster",
    "csidrivers.v1.storage.k8s.io=CSIDriver:cluster",
    "servicecidrs.v1.networking.k8s.io=ServiceCIDR:cluster",
];

pub struct IdentityServer {
    /// Stopped when dropped.
    pub running: Apiserver,
    pub url: String,
    /// The gateway's credentials.
    pub kubeconfig: PathBuf,
    accounts: usize,
}

/// What the pods of an account lose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// Their role.
    RoleBinding,
    /// Their service account.
    ServiceAccount,
    /// The first of them itself.
    Pod,
}

/// The identities of the pods of a node.
pub struct NodePods {
    pub proxy: PodIdentity,
    /// With their accounts.
    pub readers: Vec<(usize, PodIdentity)>,
}

/// The namespace of an account.
pub fn namespace(account: usize) -> String {
    format!("account-{account}")
}

/// The number of the ConfigMap that an account reads.
pub fn config_number(account: usize) -> u32 {
    CONFIG_NUMBERS.saturating_add(u32::try_from(account).unwrap_or(u32::MAX))
}

/// The account of a pod.
const fn account_of(pod: usize, accounts: usize) -> usize {
    pod % accounts
}

fn pod_name(pod: usize) -> String {
    format!("reader-{pod}")
}

fn config_name(account: usize) -> String {
    format!("settings-{}", config_number(account))
}

impl IdentityServer {
    /// Starts a server with these accounts, each with a namespace, a role binding and a ConfigMap.
    pub async fn start(accounts: usize, folder: &Path) -> Result<Self> {
        let tokens = Tokens::default();
        tokens.put(WRITER, TokenUser::new("writer", &[MASTERS]));
        tokens.put(GATEWAY, TokenUser::new("gateway", &[MASTERS]));
        let kinds = EXTRA_KINDS.iter().map(|kind| kind.parse());
        let options = Options {
            extra_kinds: kinds.collect::<Result<_, _>>()?,
            auth: Some(AuthOptions {
                tokens,
                ..AuthOptions::default()
            }),
            ..Options::default()
        };
        let running = apiserver::start(TcpListener::bind("127.0.0.1:0").await?, options)?;
        let url = format!("http://{}", running.address());
        let kubeconfig = folder.join("kubeconfig");
        std::fs::write(&kubeconfig, gateway::kubeconfig(&url, None, Some(GATEWAY)))
            .context("kubeconfig")?;
        let server = Self {
            running,
            url,
            kubeconfig,
            accounts,
        };
        server.create_roles()?;
        for account in 0..accounts {
            server.create_account(account)?;
        }
        Ok(server)
    }

    fn create_roles(&self) -> Result<()> {
        let read = |group: &str, resources: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": ["list", "watch"]});
        let proxier = json!([
            read("", &["services", "nodes"]),
            read("discovery.k8s.io", &["endpointslices"]),
            read("networking.k8s.io", &["servicecidrs"]),
        ]);
        for (name, rules) in [
            (READER, json!([read("", &["configmaps"])])),
            (PROXIER, proxier),
        ] {
            let role = json!({"metadata": {"name": name}, "rules": rules});
            self.create("clusterroles", "", role)?;
        }
        let account = json!({"metadata": {"name": KUBE_PROXY}});
        self.create("serviceaccounts", KUBE_SYSTEM, account)?;
        let binding = binding(PROXIER, KUBE_SYSTEM, KUBE_PROXY);
        self.create("clusterrolebindings", "", binding).map(drop)
    }

    fn create_account(&self, account: usize) -> Result<()> {
        let namespace = namespace(account);
        let name = json!({"metadata": {"name": ACCOUNT}});
        self.create("serviceaccounts", &namespace, name)?;
        let binding = binding(READER, &namespace, ACCOUNT);
        self.create("rolebindings", &namespace, binding)?;
        let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": config_name(account)}, "data": {"value": "x".repeat(1_024)}});
        self.create("configmaps", &namespace, config).map(drop)
    }

    /// Creates the pods of a node, one of which uses the objects that its kubelet watches.
    pub fn create_pods(&self, node: usize) -> Result<NodePods> {
        let config = |name: String| json!({"name": name, "configMap": {"name": name}});
        let secret = |name: String| json!({"name": name, "secret": {"secretName": name}});
        let shared = cluster::references(node, REFERENCES);
        let volumes = shared.flat_map(|number| {
            let config_name = cluster::config_name(number);
            [config(config_name), secret(cluster::secret_name(number))]
        });
        let volumes: Vec<Value> = volumes.chain([config(ROOT_CA.to_owned())]).collect();
        let mut app = pod(&format!("app-{node}"), node, "default");
        app["spec"]["volumes"] = volumes.into();
        self.create("pods", NAMESPACE, app)?;
        let numbers = node * PODS_PER_NODE..(node + 1) * PODS_PER_NODE;
        let readers = numbers.map(|number| {
            let account = account_of(number, self.accounts);
            let name = pod_name(number);
            let identity = self.create_pod(node, &namespace(account), ACCOUNT, &name)?;
            Ok((account, identity))
        });
        Ok(NodePods {
            proxy: self.create_pod(node, KUBE_SYSTEM, KUBE_PROXY, &format!("proxy-{node}"))?,
            readers: readers.collect::<Result<_>>()?,
        })
    }

    fn create_pod(
        &self,
        node: usize,
        namespace: &str,
        account: &str,
        name: &str,
    ) -> Result<PodIdentity> {
        let created = self.create("pods", namespace, pod(name, node, account))?;
        let of_account = self.get("serviceaccounts", namespace, account)?;
        Ok(PodIdentity {
            tokens: self.running.tokens().clone(),
            namespace: namespace.to_owned(),
            account: account.to_owned(),
            account_uid: uid(&of_account),
            pod: PodBinding {
                pod_name: name.to_owned(),
                pod_uid: uid(&created),
                node_name: node_name(node),
                node_uid: format!("uid-of-{}", node_name(node)),
                credential_id: String::new(),
            },
        })
    }

    /// Configures a webhook that denies nobody anything: what is allowed cannot be known from roles any more.
    pub fn add_webhook(&self) {
        self.running.webhook().configure(Vec::new());
    }

    /// Changes the ConfigMap of an account, so that all its pods get an event.
    pub fn change_config(&self, account: usize) -> Result<()> {
        let at = WriteTime::now(Instant::now()).to_string();
        let patch = json!({"metadata": {"annotations": {WRITTEN_AT: at}}});
        let key = ObjectKey::new(&namespace(account), &config_name(account));
        self.write(Write::merge(self.kind("configmaps")?, key, patch))
            .map(drop)
    }

    /// Changes a label of the accounts' cluster role.
    pub fn label_role(&self) -> Result<()> {
        self.change_role(json!({"metadata": {"labels": {"loadtest": "edited"}}}))
    }

    /// Changes the rules of the accounts' cluster role: what the accounts use stays allowed.
    pub fn edit_role(&self, number: usize) -> Result<()> {
        let verbs = ["get", "list", "watch"];
        let configs = json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs[(number + 1) % 2..]});
        self.change_role(json!({"rules": [configs]}))
    }

    fn change_role(&self, patch: Value) -> Result<()> {
        let key = ObjectKey::new("", READER);
        self.write(Write::merge(self.kind("clusterroles")?, key, patch))
            .map(drop)
    }

    /// Takes the right of an account's pods away.
    pub fn revoke(&self, account: usize, loss: Loss) -> Result<()> {
        let namespace = namespace(account);
        let (plural, name) = match loss {
            Loss::RoleBinding => ("rolebindings", READER.to_owned()),
            Loss::ServiceAccount => ("serviceaccounts", ACCOUNT.to_owned()),
            // The account's first pod.
            Loss::Pod => ("pods", pod_name(account)),
        };
        let key = ObjectKey::new(&namespace, &name);
        self.write(Write::delete(self.kind(plural)?, key)).map(drop)
    }

    fn kind(&self, plural: &str) -> Result<usize> {
        let index = self.running.catalogue().index_of_plural(plural);
        index.with_context(|| format!("{plural} are not served"))
    }

    fn create(&self, plural: &str, namespace: &str, object: Value) -> Result<Value> {
        self.write(Write::create(self.kind(plural)?, namespace, object))
    }

    fn get(&self, plural: &str, namespace: &str, name: &str) -> Result<Value> {
        let key = ObjectKey::new(namespace, name);
        let object = self.running.store().object(self.kind(plural)?, &key);
        Ok(serde_json::from_slice(
            &object.map_err(|status| anyhow!("{status:?}"))?,
        )?)
    }

    fn write(&self, write: Write) -> Result<Value> {
        let written = self.running.store().write(write);
        Ok(serde_json::from_slice(
            &written.map_err(|status| anyhow!("{status:?}"))?,
        )?)
    }
}

fn pod(name: &str, node: usize, account: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"nodeName": node_name(node), "serviceAccountName": account, "containers": [{"name": "main", "image": "registry.example.com/team/image-1:v1"}]},
        "status": {"phase": "Running"},
    })
}

/// A binding of a service account to a cluster role of the same name.
fn binding(role: &str, namespace: &str, account: &str) -> Value {
    json!({
        "metadata": {"name": role},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": account}],
    })
}

fn uid(object: &Value) -> String {
    let uid = object["metadata"]["uid"].as_str();
    uid.unwrap_or_default().to_owned()
}
