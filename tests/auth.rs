//! Who may see what, through a gateway before an API server that tells callers apart.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

#[path = "auth/audit.rs"]
mod audit;
#[path = "staging/auth.rs"]
mod auth;
#[path = "auth/authorities.rs"]
mod authorities;
#[path = "auth/certificates.rs"]
mod certificates;
#[path = "auth/forwarded.rs"]
mod forwarded;
#[path = "staging/gateway.rs"]
mod gateway;
#[path = "auth/manifests.rs"]
mod manifests;
#[path = "auth/outages.rs"]
mod outages;
#[path = "auth/permission.rs"]
mod permission;
#[path = "auth/reads.rs"]
mod reads;
#[path = "auth/review_failures.rs"]
mod review_failures;
#[path = "auth/revocation.rs"]
mod revocation;
#[path = "auth/rotation.rs"]
mod rotation;
#[path = "auth/shares.rs"]
mod shares;
#[path = "auth/storm.rs"]
mod storm;
#[path = "auth/upstream_tls.rs"]
mod upstream_tls;
#[allow(dead_code, reason = "not every binary of tests uses all of it")]
#[path = "staging/wire.rs"]
mod wire;

use auth::AuthStage;
use kube_fanout::config::AuthMode;

/// Modes in which upstream decides.
const ASKING: [AuthMode; 2] = [AuthMode::SelfCheck, AuthMode::Review];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_nobody_knows_is_refused_in_the_servers_words() {
    for mode in [AuthMode::SelfCheck, AuthMode::Review, AuthMode::Rbac] {
        let stage = AuthStage::new(mode).await;
        let pods = "/api/v1/namespaces/default/pods";
        let direct = stage.ask_apiserver("unknown", "GET", pods).await;
        let through = stage.get("unknown", pods).await;
        assert_eq!(
            (through.status(), through.body()),
            (direct.status(), direct.body())
        );
        assert_eq!(through.status(), 401);
        stage.ended().await;
    }
}
