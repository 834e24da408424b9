//! Seeded steps of callers, rights and objects against a gateway: nobody sees an object that a fresh access review denies, beyond the
//! times that are stated for it.
//!
//! `KUBE_FANOUT_TEST_TRUST_STEPS` sets the number of steps of each test, `KUBE_FANOUT_TEST_TRUST_SEED` the seed of all.
//!
//! ```text
//! KUBE_FANOUT_TEST_TRUST_STEPS=25000 cargo test --test trust
//! ```
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]
#![expect(
    clippy::disallowed_methods,
    reason = "a test runner passes variables, not settings"
)]

#[allow(dead_code, reason = "not every binary of tests uses all of it")]
#[path = "staging/auth.rs"]
mod auth;
#[allow(dead_code, reason = "not every binary of tests uses all of it")]
#[path = "staging/gateway.rs"]
mod gateway;
#[path = "trust/model.rs"]
mod model;
#[path = "trust/run.rs"]
mod run;
#[path = "trust/streams.rs"]
mod streams;
#[path = "trust/transport.rs"]
mod transport;

use std::time::Duration;

use kube_fanout::config::AuthMode;
use serde_json::json;

use auth::{AuthStage, grant};
use run::{Run, Totals};

/// Decisions are not forgotten in the time of a run, unless somebody says that roles have changed.
const NEVER: Duration = Duration::from_secs(3_600);

fn number(name: &str, default: u64) -> u64 {
    let text = std::env::var(format!("KUBE_FANOUT_TEST_TRUST_{name}"));
    text.map_or(default, |text| text.parse().unwrap())
}

async fn check(stage: AuthStage, seed: u64) {
    let steps = number("STEPS", 800);
    let mut run = Run::new(&stage, number("SEED", seed)).await;
    for _ in 0..steps {
        run.step().await;
    }
    let totals = run.finish().await;
    stage.ended().await;
    #[allow(clippy::print_stdout, reason = "tells what was tried")]
    {
        println!("{steps} steps: {totals:?}");
    }
    let Totals {
        served,
        refused,
        watches,
        revoked,
        compressed,
        sockets,
        ..
    } = totals;
    if steps >= 800 {
        for count in [served, refused, watches, revoked, compressed, sockets] {
            assert!(count > 0, "too little was tried: {totals:?}");
        }
    }
}

async fn stage(mode: AuthMode) -> AuthStage {
    AuthStage::with(mode, |settings| {
        settings.auth.reauthorize_interval = Duration::from_secs(1);
        settings.auth.allow_ttl = NEVER;
        settings.auth.deny_ttl = NEVER;
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn asked_with_the_callers_own_credentials() {
    check(stage(AuthMode::SelfCheck).await, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn asked_in_the_gateways_name() {
    check(stage(AuthMode::Review).await, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decided_from_roles_and_bindings() {
    check(stage(AuthMode::Rbac).await, 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_hearing_of_changes() {
    let rule = json!({
        "verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["pods", "configmaps"],
    });
    let (role, binding) = grant("gateway-reading", "gateway", rule);
    let rights = vec![("/clusterroles", role), ("/clusterrolebindings", binding)];
    let stage = AuthStage::with_rights(AuthMode::SelfCheck, rights, |settings| {
        settings.auth.reauthorize_interval = Duration::from_secs(1);
        settings.auth.allow_ttl = Duration::from_millis(500);
        settings.auth.deny_ttl = Duration::from_millis(500);
    })
    .await;
    check(stage, 4).await;
}
