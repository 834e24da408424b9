//! All checks, by category and in the order in which they are made.

use std::fmt::Write as _;

use crate::cli::choice_name;
use crate::config::{CheckCategory, OutputFormat};

/// The page that describes every check, under a heading with its name.
pub const PAGE: &str = "docs/CHECK.md";

/// A check. It may be wrong in several ways: its verdict says which.
#[derive(Debug, PartialEq, Eq)]
pub struct CheckSpec {
    /// Its name in reports, and its heading on the page.
    pub name: &'static str,
    /// Its category.
    pub category: CheckCategory,
    /// What is expected.
    pub title: &'static str,
}

impl CheckSpec {
    const fn new(category: CheckCategory, name: &'static str, title: &'static str) -> Self {
        Self {
            name,
            category,
            title,
        }
    }

    /// The page and section that describe it.
    #[must_use]
    pub fn section(&self) -> String {
        format!("{PAGE}#{}", self.name)
    }
}

macro_rules! checks {
    ($($constant:ident: $category:ident, $name:literal, $title:literal;)*) => {
        $(pub(super) const $constant: CheckSpec = CheckSpec::new(CheckCategory::$category, $name, $title);)*
        /// Every check, in the order of reports.
        pub const CATALOGUE: &[&CheckSpec] = &[$(&$constant),*];
    };
}

checks! {
    UPSTREAM_CONFIG: Upstream, "upstream-config", "kubeconfig, service account or URL can be used";
    UPSTREAM_READY: Upstream, "upstream-ready", "the API servers accept connections, are trusted and say that they are ready";
    UPSTREAM_CREDENTIALS: Upstream, "upstream-credentials", "the API server accepts the gateway's credentials";
    SERVING_NAMES: Certificates, "serving-names", "the certificate has the names that clients use";
    CERTIFICATE_EXPIRY: Certificates, "certificate-expiry", "certificates and credentials are valid for a while";
    RIGHTS_RESOURCES: Rights, "rights-resources", "the gateway may list and watch what it is to cache";
    RIGHTS_REVIEWS: Rights, "rights-reviews", "the gateway may create the reviews that --auth needs";
    RIGHTS_ROLES: Rights, "rights-roles", "the gateway may list and watch roles and bindings";
    RIGHTS_CREDENTIALS: Rights, "rights-credentials", "the gateway may list and watch what tokens are bound to";
    RIGHTS_IMPERSONATE: Rights, "rights-impersonate", "the gateway may impersonate callers with certificates";
    RIGHTS_SHARED: Rights, "rights-shared", "clients get no rights that they should not have";
    SERVER_VERSION: Features, "server-version", "the API server's version is supported";
    AGGREGATED_APIS: Features, "aggregated-apis", "who serves which group is known";
    UNFILTERED_LISTS: Features, "unfiltered-lists", "the API server refuses lists instead of filtering them";
    STREAMED_LISTS: Features, "streamed-lists", "a watch can begin with all objects, and says where they end";
    CONSISTENT_READS: Features, "consistent-reads", "lists state their version, and are never older than asked for";
    FLOW_CONTROL: Features, "flow-control", "the API server answers several requests at a time";
    AUTHORIZERS: Features, "authorizers", "what decides at the API server besides roles is known";
    SETTINGS: Limits, "settings", "files, directories and ports that the settings name can be used";
    OPEN_FILES: Limits, "open-files", "enough files may be open for the clients that are allowed";
    MEMORY: Limits, "memory", "--memory-max is below what the process may use";
    STATE_SPACE: Limits, "state-space", "the state directory has space for all checkpoints";
    CLOCK_SKEW: Clock, "clock-skew", "this clock agrees with the API server's";
    HANDOVER_RIGHTS: Handover, "handover-rights", "the gateway's identity may take caches over";
    HANDOVER_PEERS: Handover, "handover-peers", "the other gateways hand caches over";
    GATEWAY_READY: Gateway, "gateway-ready", "the gateway accepts connections, is trusted and answers /readyz on the clients' port";
    GATEWAY_IDENTITY: Gateway, "gateway-identity", "it is a kube-fanout gateway";
    GATEWAY_CLUSTER: Gateway, "gateway-cluster", "the gateway is in front of this cluster";
    LIVE_LIST: Live, "live-list", "gateway and API server have the same objects at a version";
    LIVE_WATCH: Live, "live-watch", "a watch through the gateway sends all objects, then a bookmark";
    LIVE_FRESH: Live, "live-fresh", "a list through the gateway is as new as the API server";
    ADMIN_READY: Admin, "admin-ready", "the gateway says that it is ready";
}

/// The names of all checks, for `--list`.
#[must_use]
pub fn list(output: OutputFormat) -> String {
    match output {
        OutputFormat::Text => {
            let mut text = String::new();
            let mut category = None;
            for spec in CATALOGUE {
                if category.replace(spec.category) != Some(spec.category) {
                    // Writing into memory cannot fail.
                    let _ = writeln!(text, "{}", choice_name(spec.category));
                }
                let _ = writeln!(text, "  {:<20}  {}", spec.name, spec.title);
            }
            text
        }
        OutputFormat::Json => {
            let checks = CATALOGUE.iter().map(|spec| {
                serde_json::json!({
                    "name": spec.name,
                    "category": choice_name(spec.category),
                    "title": spec.title,
                    "see": spec.section(),
                })
            });
            let checks: Vec<_> = checks.collect();
            format!(
                "{:#}\n",
                serde_json::json!({ "version": 1, "checks": checks })
            )
        }
    }
}
