//! Permissions that change while streams are open, in every mode.

use std::time::Duration;

use kube_fanout::config::AuthMode;
use serde_json::{Value, json};

use crate::support::auth::{AuthStage, grant, next_piece, read_to_end, until};

const ALL: [AuthMode; 3] = [AuthMode::SelfCheck, AuthMode::Review, AuthMode::Rbac];
const PODS: &str = "/api/v1/namespaces/default/pods";
const WATCH: &str = "/api/v1/namespaces/default/pods?watch=1&resourceVersion=0";
const NEVER: Duration = Duration::from_secs(3_600);

fn reading_pods() -> Value {
    json!({"verbs": ["list", "watch"], "apiGroups": [""], "resources": ["pods"]})
}

/// A gateway with two users who may read pods in one namespace; returns once the gateway has seen their bindings.
async fn stage(mode: AuthMode, interval: Duration) -> AuthStage {
    let stage = AuthStage::with(mode, |settings| {
        settings.auth.reauthorize_interval = interval;
        settings.auth.review_budget = kube_fanout::config::ReviewBudget::Unlimited;
        settings.auth.allow_ttl = NEVER;
        settings.auth.deny_ttl = NEVER;
    })
    .await;
    stage.user("janes-token", "jane", &[]);
    stage.user("joes-token", "joe", &[]);
    stage.allow("jane", "jane", reading_pods(), "default").await;
    stage.allow("joe", "joe", reading_pods(), "default").await;
    for token in ["janes-token", "joes-token"] {
        until("the user may read pods", async || {
            stage.get(token, PODS).await.status() == 200
        })
        .await;
    }
    stage
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_binding_that_is_deleted_ends_its_streams_at_once_and_others_go_on() {
    for mode in ALL {
        // The reauthorization interval never elapses, so only the change itself can end the streams.
        let stage = stage(mode, NEVER).await;
        let watch = stage.watch("janes-token", WATCH, false).await;
        let second = stage.watch("janes-token", WATCH, true).await;
        let mut joes = stage.watch("joes-token", WATCH, false).await;
        assert_eq!(
            (watch.status(), joes.status()),
            (200.try_into().unwrap(), 200.try_into().unwrap())
        );
        stage.forbid("jane", "default").await;
        read_to_end(watch.into_body()).await;
        read_to_end(second.into_body()).await;
        for target in [PODS, WATCH] {
            let refused = stage.get("janes-token", target).await;
            let direct = stage.ask_apiserver("janes-token", "GET", target).await;
            assert_eq!(refused.status(), 403, "{mode:?}");
            assert_eq!(refused.body(), direct.body(), "{mode:?}");
        }
        let pod = json!({"metadata": {"name": "late"}, "spec": {"containers": []}});
        stage.create(PODS, &pod).await;
        loop {
            let piece = next_piece(joes.body_mut())
                .await
                .expect("the stream continues");
            if piece.contains("\"late\"") {
                break;
            }
        }
        stage.ended().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_that_changes_counts_at_once_though_decisions_are_remembered() {
    for mode in ALL {
        let stage = stage(mode, NEVER).await;
        let secrets = "/api/v1/namespaces/default/configmaps";
        assert_eq!(
            stage.get("janes-token", secrets).await.status(),
            403,
            "{mode:?}"
        );
        let rule = json!({"verbs": ["list"], "apiGroups": [""], "resources": ["configmaps"]});
        stage.allow("more", "jane", rule, "default").await;
        until("the grant takes effect", async || {
            stage.get("janes-token", secrets).await.status() == 200
        })
        .await;
        stage.forbid("more", "default").await;
        until("the grant is revoked", async || {
            stage.get("janes-token", secrets).await.status() == 403
        })
        .await;
        stage.ended().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_is_deleted_ends_its_streams_and_no_others_of_its_user() {
    for mode in ALL {
        let stage = stage(mode, Duration::from_millis(200)).await;
        stage.user("janes-other-token", "jane", &[]);
        let watch = stage.watch("janes-token", WATCH, false).await;
        let mut other = stage.watch("janes-other-token", WATCH, false).await;
        stage.apiserver.tokens().remove("janes-token");
        read_to_end(watch.into_body()).await;
        assert_eq!(
            stage.get("janes-token", PODS).await.status(),
            401,
            "{mode:?}"
        );
        let pod = json!({"metadata": {"name": "late"}, "spec": {"containers": []}});
        stage.create(PODS, &pod).await;
        loop {
            let piece = next_piece(other.body_mut())
                .await
                .expect("the stream continues");
            if piece.contains("\"late\"") {
                break;
            }
        }
        stage.ended().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_right_to_watch_roles_changes_are_noticed_at_the_interval() {
    // The gateway may read pods, and nothing else.
    let rule = json!({"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["pods"]});
    let (role, binding) = grant("gateway-pods", "gateway", rule);
    let rights = vec![("/clusterroles", role), ("/clusterrolebindings", binding)];
    let stage = AuthStage::with_rights(AuthMode::SelfCheck, rights, |settings| {
        settings.auth.reauthorize_interval = Duration::from_millis(200);
        settings.auth.review_budget = kube_fanout::config::ReviewBudget::Unlimited;
        settings.auth.allow_ttl = Duration::ZERO;
        settings.auth.deny_ttl = Duration::ZERO;
    })
    .await;
    stage.user("janes-token", "jane", &[]);
    stage.allow("jane", "jane", reading_pods(), "default").await;
    until("the user may read pods", async || {
        stage.get("janes-token", PODS).await.status() == 200
    })
    .await;
    let watch = stage.watch("janes-token", WATCH, false).await;
    stage.forbid("jane", "default").await;
    read_to_end(watch.into_body()).await;
    until("the user may no longer read pods", async || {
        stage.get("janes-token", PODS).await.status() == 403
    })
    .await;
    stage.ended().await;
}
