//! Who reads, how such a client is moved behind a gateway, and what is at stake.

use serde::Serialize;

use crate::printable::clean;

/// Longer names are cut: a client chooses its agent, and may choose its user.
const NAME_LEN_MAX: usize = 120;
const NODE_PREFIX: &str = "system:node:";
const ACCOUNT_PREFIX: &str = "system:serviceaccount:";
/// A pod on at least this share of the nodes, and on at least this many, belongs to an agent of every node.
const AGENT_NODES_SHARE: f64 = 0.5;
const AGENT_NODES_MIN: f64 = 3.0;

/// Clients that differ in none of these are one. All nodes are one user.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct AuditedClient {
    pub(super) user: Box<str>,
    pub(super) credential: CredentialKind,
    /// The program, without its version.
    pub(super) agent: Box<str>,
}

/// What a client shows to be authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum CredentialKind {
    /// Of a service account.
    Token,
    Certificate,
    Unknown,
}

/// How a client gets to the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum MoveMethod {
    /// The environment of its pod.
    Inject,
    /// A relay on its node, because it is there before pods are.
    Relay,
    /// Its kubeconfig.
    Kubeconfig,
    /// It stays where it is.
    None,
    /// Metrics name no client.
    Unknown,
}

/// Clients that are moved alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientClass {
    Pod,
    External,
    NodeAgent,
    ControlPlane,
    KubeProxy,
    Kubelet,
    ApiServer,
    Gateway,
    /// Its tables are forwarded.
    Kubectl,
    /// All clients of a resource, which metrics do not tell apart.
    Everybody,
    /// Everybody whom the bounds of this program leave without a name, or the audit log without a line.
    Unknown,
}

impl AuditedClient {
    pub(super) fn new(user: &str, credential: CredentialKind, agent: &str) -> Self {
        let user = match user.strip_prefix(NODE_PREFIX) {
            Some(_) => "system:node:*",
            None => user,
        };
        let program = agent.split(['/', ' ']).next().unwrap_or_default();
        Self {
            user: shortened(user),
            credential,
            agent: shortened(program),
        }
    }

    /// All that could not be told apart.
    pub(super) fn others(name: &str) -> Self {
        Self {
            user: name.into(),
            credential: CredentialKind::Unknown,
            agent: Box::default(),
        }
    }

    /// `nodes` are those that it reads from, `node_count` all of the cluster.
    pub(super) fn class(&self, is_in_pod: bool, nodes: f64, node_count: f64) -> ClientClass {
        let is_agent = nodes >= AGENT_NODES_MIN && nodes >= AGENT_NODES_SHARE * node_count;
        let account = self.user.strip_prefix(ACCOUNT_PREFIX);
        match (&*self.user, &*self.agent) {
            ("system:apiserver", _) => ClientClass::ApiServer,
            (_, "kube-fanout") => ClientClass::Gateway,
            ("system:kube-proxy", _) | (_, "kube-proxy") => ClientClass::KubeProxy,
            ("system:node:*", _) => ClientClass::Kubelet,
            (_, "kubectl") => ClientClass::Kubectl,
            ("system:kube-controller-manager" | "system:kube-scheduler", _)
            | (_, "kube-controller-manager" | "kube-scheduler" | "cloud-controller-manager") => {
                ClientClass::ControlPlane
            }
            _ if account.is_some() && is_agent => ClientClass::NodeAgent,
            // Servers before 1.32 do not tell the pod of a token.
            _ if account.is_some() && (is_in_pod || self.credential == CredentialKind::Unknown) => {
                ClientClass::Pod
            }
            _ => ClientClass::External,
        }
    }
}

impl CredentialKind {
    /// By the prefix of a credential's id.
    pub(super) fn of(id: Option<&str>) -> Self {
        match id {
            Some(id) if id.starts_with("JTI=") => Self::Token,
            Some(id) if id.starts_with("X509SHA256=") => Self::Certificate,
            Some(_) | None => Self::Unknown,
        }
    }

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Certificate => "certificate",
            Self::Unknown => "",
        }
    }
}

impl MoveMethod {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Inject => "inject",
            Self::Relay => "relay",
            Self::Kubeconfig => "kubeconfig",
            Self::None => "none",
            Self::Unknown => "",
        }
    }
}

impl ClientClass {
    pub(super) const fn method(self) -> MoveMethod {
        match self {
            Self::Pod => MoveMethod::Inject,
            Self::NodeAgent | Self::KubeProxy | Self::Kubelet => MoveMethod::Relay,
            Self::External | Self::ControlPlane => MoveMethod::Kubeconfig,
            Self::ApiServer | Self::Gateway | Self::Kubectl | Self::Unknown => MoveMethod::None,
            Self::Everybody => MoveMethod::Unknown,
        }
    }

    pub(super) fn is_moved(self) -> bool {
        self.method() != MoveMethod::None
    }

    /// From 1 to 6; 0 for what stays where it is.
    pub(super) const fn risk(self) -> u8 {
        match self {
            Self::Pod => 1,
            Self::External => 2,
            Self::NodeAgent => 3,
            Self::ControlPlane => 4,
            Self::KubeProxy => 5,
            Self::Kubelet => 6,
            Self::ApiServer | Self::Gateway | Self::Kubectl | Self::Everybody | Self::Unknown => 0,
        }
    }

    /// What the risk is, or why nothing is moved.
    pub(super) const fn reason(self) -> &'static str {
        match self {
            Self::Pod => "restarts alone; its token is sent on",
            Self::External => "its address is changed by hand",
            Self::NodeAgent => "on most nodes: the network or storage of their pods",
            Self::ControlPlane => "the whole cluster waits for it",
            Self::KubeProxy => "services of all nodes",
            Self::Kubelet => "all nodes become NotReady without it",
            Self::ApiServer => "the API server itself",
            Self::Gateway => "a gateway already",
            Self::Kubectl => "its tables are forwarded",
            Self::Everybody => "depends on the clients: give --audit",
            Self::Unknown => "nobody knows who this is",
        }
    }

    /// Token informers come first, the node's own clients last, whatever they save.
    pub(super) const fn turn(self) -> u8 {
        match self {
            Self::Pod => 0,
            Self::External | Self::NodeAgent | Self::ControlPlane => 1,
            Self::KubeProxy => 2,
            Self::Kubelet => 3,
            Self::ApiServer | Self::Gateway | Self::Kubectl | Self::Everybody | Self::Unknown => 4,
        }
    }
}

fn shortened(text: &str) -> Box<str> {
    let end = text
        .char_indices()
        .map(|(at, letter)| at + letter.len_utf8())
        .take_while(|end| *end <= NAME_LEN_MAX)
        .last();
    clean(&text[..end.unwrap_or_default()]).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: CredentialKind = CredentialKind::Token;
    const CERTIFICATE: CredentialKind = CredentialKind::Certificate;

    #[track_caller]
    fn check(user: &str, agent: &str, is_in_pod: bool, nodes: f64, class: ClientClass) {
        let client = AuditedClient::new(user, TOKEN, agent);
        assert_eq!(client.class(is_in_pod, nodes, 10.0), class, "{client:?}");
    }

    #[test]
    fn a_client_is_moved_by_what_it_is() {
        use ClientClass as Class;
        let account = "system:serviceaccount:a:b";
        check(account, "controller/v1 (linux)", true, 1.0, Class::Pod);
        check(account, "argocd", false, 1.0, Class::External);
        check(account, "cilium-agent", true, 10.0, Class::NodeAgent);
        check(account, "cilium-agent", true, 4.0, Class::Pod);
        let proxy = "system:serviceaccount:kube-system:kube-proxy";
        check(proxy, "kube-proxy/v1.36.0", true, 10.0, Class::KubeProxy);
        check(
            "system:node:n1",
            "kubelet/v1.36.0",
            false,
            10.0,
            Class::Kubelet,
        );
        check("alice", "kubectl/v1.36.0", false, 1.0, Class::Kubectl);
        check("alice", "k9s", false, 1.0, Class::External);
        check(
            "system:kube-scheduler",
            "kube-scheduler/v1",
            false,
            1.0,
            Class::ControlPlane,
        );
        check(
            account,
            "kube-controller-manager/v1.36.0",
            false,
            1.0,
            Class::ControlPlane,
        );
        check(
            "system:apiserver",
            "kube-apiserver/v1",
            false,
            1.0,
            Class::ApiServer,
        );
        check(account, "kube-fanout/0.1.0", true, 1.0, Class::Gateway);
        // Without the id of a credential, the audit log cannot say whether it is a pod's.
        let client = AuditedClient::new(account, CredentialKind::of(None), "a");
        assert_eq!(client.class(false, 1.0, 10.0), Class::Pod);
    }

    #[test]
    fn nodes_are_one_client_and_versions_are_left_out() {
        let one = AuditedClient::new(
            "system:node:a",
            CERTIFICATE,
            "kubelet/v1.36.0 (linux/amd64)",
        );
        let other = AuditedClient::new("system:node:b", CERTIFICATE, "kubelet/v1.35.2");
        assert_eq!(one, other);
        assert_eq!((&*one.user, &*one.agent), ("system:node:*", "kubelet"));
    }

    #[test]
    fn hostile_names_are_cleaned_and_cut() {
        let client = AuditedClient::new(&"ä".repeat(100), TOKEN, "\u{1b}[2J\u{202e}x");
        assert_eq!(client.user.len(), NAME_LEN_MAX);
        assert_eq!(&*client.agent, "\u{fffd}[2J\u{fffd}x");
        assert_eq!(&*AuditedClient::new("", TOKEN, "").agent, "");
    }
}
