//! What decides at the API server besides roles, and which mode of `--auth` fits.

use serde::Deserialize;
use serde_json::json;

use super::requests::review;
use super::verdict::CheckVerdict;
use crate::config::{AuthMode, CheckSettings, UpstreamAuthorizers};
use crate::upstream::client::Client;
use crate::upstream::discovery::api_groups;

const RULES: &str = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";

#[derive(Deserialize)]
struct AuthorizerReview {
    status: AuthorizerReviewStatus,
}

#[derive(Deserialize)]
struct AuthorizerReviewStatus {
    incomplete: bool,
}

/// What the gateway will find out each minute (decision 60).
pub(super) async fn authorizers(client: &Client, settings: &CheckSettings) -> CheckVerdict {
    let auth = &settings.serve.auth;
    if auth.mode == AuthMode::None {
        return CheckVerdict::skipped("callers are not authorized (--auth none)");
    }
    if auth.upstream_authorizers == UpstreamAuthorizers::Opaque {
        return CheckVerdict::ok(format!(
            "--upstream-authorizers opaque: {}",
            each_token(auth.mode)
        ));
    }
    let body = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": "default"},
    });
    let rules = review::<AuthorizerReview>(client, RULES, &body).await;
    let groups = api_groups(client).await;
    let (Ok(rules), Ok(groups)) = (rules, groups) else {
        return CheckVerdict::warning(
            format!(
                "the API server does not say what decides: {}",
                each_token(auth.mode)
            ),
            "let the gateway create selfsubjectrulesreviews: bind its identity to the ClusterRole system:basic-user",
        );
    };
    let fork = groups.iter().any(|group| group.ends_with(".openshift.io"));
    match rules.status.incomplete || fork {
        false => CheckVerdict::ok(
            "only RBAC and the node authorizer decide: tokens of one account share answers, each asked about once in an hour or when roles change",
        ),
        true => CheckVerdict::ok(format!(
            "something else than RBAC and the node authorizer decides, too: {}",
            each_token(auth.mode)
        )),
    }
}

/// What that costs, and what costs less.
const fn each_token(mode: AuthMode) -> &'static str {
    match mode {
        AuthMode::SelfCheck => {
            "each token is asked about; above a thousand tokens --auth review saves a TLS handshake for each"
        }
        AuthMode::Review => "each token is asked about",
        AuthMode::Rbac | AuthMode::None => {
            "--auth rbac does not see what denies what roles allow; --auth review does"
        }
    }
}
