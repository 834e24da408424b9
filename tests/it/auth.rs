//! Authentication and authorization of clients, with a gateway in front of an embedded API server that has users and RBAC.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod audit;
mod authorities;
mod certificates;
mod forwarded;
mod manifests;
mod outages;
mod permission;
mod reads;
mod review_failures;
mod revocation;
mod rotation;
mod shares;
mod storm;
mod upstream_tls;

use crate::support::auth;
use auth::AuthStage;
use kube_fanout::config::AuthMode;

/// The modes in which the gateway asks the API server to review each request.
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
