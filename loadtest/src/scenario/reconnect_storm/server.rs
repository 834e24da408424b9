//! An API server in this process with users: the gateway, a writer, and users that may list and watch.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use kube_fanout_testkit::apiserver::auth::{AuthOptions, TokenUser, Tokens};
use kube_fanout_testkit::apiserver::{self, Apiserver, Options};
use serde_json::json;
use tokio::net::TcpListener;

use crate::client::Client;
use crate::runner::gateway;
use crate::target::{Target, user_token};

/// The token of the writer, which also creates roles.
pub const WRITER: &str = "token-of-writer";
const GATEWAY: &str = "token-of-gateway";
const MASTERS: &str = "system:masters";
const USERS: &str = "loadtest:users";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

pub struct ReviewServer {
    /// Stopped when dropped.
    pub running: Apiserver,
    pub url: String,
    pub kubeconfig: PathBuf,
}

impl ReviewServer {
    /// Starts a server with this many users.
    pub async fn start(users: usize, folder: &Path) -> Result<Self> {
        let tokens = Tokens::default();
        tokens.put(WRITER, TokenUser::new("writer", &[MASTERS]));
        tokens.put(GATEWAY, TokenUser::new("gateway", &[MASTERS]));
        for number in 0..users {
            let user = TokenUser::new(&format!("user-{number}"), &[USERS]);
            tokens.put(&user_token(number), user);
        }
        let options = Options {
            auth: Some(AuthOptions {
                tokens,
                ..AuthOptions::default()
            }),
            ..Options::default()
        };
        let running = apiserver::start(TcpListener::bind("127.0.0.1:0").await?, options)?;
        let url = format!("http://{}", running.address());
        allow(&url).await?;
        let kubeconfig = folder.join("kubeconfig");
        std::fs::write(&kubeconfig, gateway::kubeconfig(&url, None, Some(GATEWAY)))
            .context("kubeconfig")?;
        Ok(Self {
            running,
            url,
            kubeconfig,
        })
    }
}

/// Allows users to list and watch ConfigMaps.
async fn allow(url: &str) -> Result<()> {
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": USERS},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": USERS},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": USERS},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": USERS}],
    });
    let mut client = Client::new(Target::new(url, Some(WRITER), None)?);
    for (collection, object) in [("clusterroles", role), ("clusterrolebindings", binding)] {
        let path = format!("{RBAC}/{collection}");
        client
            .create(&path, object.to_string().into_bytes())
            .await?;
    }
    Ok(())
}
