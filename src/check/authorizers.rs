//! What decides at the API server besides roles, and which mode of `--auth` fits.

use super::verdict::CheckVerdict;
use crate::config::{AuthMode, CheckSettings, UpstreamAuthorizers};
use crate::gateway::is_transparent;
use crate::upstream::client::Client;

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
    match is_transparent(client).await {
        Err(error) => CheckVerdict::warning(
            format!(
                "the API server does not say what decides: {error}; {}",
                each_token(auth.mode)
            ),
            "let the gateway create selfsubjectrulesreviews: bind its identity to the ClusterRole system:basic-user",
        ),
        Ok(true) => CheckVerdict::ok(
            "only RBAC and the node authorizer decide: tokens of one account share answers, each asked about once in an hour or when roles change",
        ),
        Ok(false) => CheckVerdict::ok(format!(
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
