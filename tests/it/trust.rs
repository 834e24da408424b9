//! Random requests and changes of rights, tokens and objects against a gateway, derived from a seed: no caller gets an object that a fresh
//! access review denies, except within the delays that `trust/run.rs` states.
//!
//! `KUBE_FANOUT_TEST_TRUST_STEPS` sets the number of steps of each test, `KUBE_FANOUT_TEST_TRUST_SEED` the seed of all tests.
//!
//! ```text
//! KUBE_FANOUT_TEST_TRUST_STEPS=25000 cargo nextest run --test it trust::
//! ```
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]
#![expect(
    clippy::disallowed_methods,
    reason = "a test runner passes variables, not settings"
)]

mod model;
mod run;
mod streams;
mod transport;

use std::time::Duration;

use kube_fanout::config::AuthMode;
use serde_json::json;

use crate::support::auth;
use auth::{AuthStage, grant};
use run::{Run, Totals};

/// A decision's lifetime that no run outlasts: the gateway forgets decisions only when it notices a change of roles.
const NEVER: Duration = Duration::from_secs(3_600);

fn setting(name: &str, default: u64) -> u64 {
    let text = std::env::var(format!("KUBE_FANOUT_TEST_TRUST_{name}"));
    text.map_or(default, |text| text.parse().unwrap())
}

async fn check(stage: AuthStage, seed: u64) {
    let steps = setting("STEPS", 800);
    let mut run = Run::new(&stage, setting("SEED", seed)).await;
    for _ in 0..steps {
        run.step().await;
    }
    let totals = run.finish().await;
    stage.ended().await;
    #[allow(clippy::print_stdout, reason = "shows what the run covered")]
    {
        println!("{steps} steps: {totals:?}");
    }
    let Totals {
        served,
        refused,
        watches,
        revoked,
        compressed,
        websockets,
        ..
    } = totals;
    if steps >= 800 {
        for count in [served, refused, watches, revoked, compressed, websockets] {
            assert!(count > 0, "the run did not cover everything: {totals:?}");
        }
    }
}

async fn stage(mode: AuthMode) -> AuthStage {
    AuthStage::with(mode, |settings| {
        settings.auth.reauthorize_interval = Duration::from_secs(1);
        settings.auth.review_budget = kube_fanout::config::ReviewBudget::Unlimited;
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
        settings.auth.review_budget = kube_fanout::config::ReviewBudget::Unlimited;
        settings.auth.allow_ttl = Duration::from_millis(500);
        settings.auth.deny_ttl = Duration::from_millis(500);
    })
    .await;
    check(stage, 4).await;
}
