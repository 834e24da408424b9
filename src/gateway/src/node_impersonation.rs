//! Finds out by which right the gateway acts as nodes: `impersonate`, or constrained impersonation, which takes nothing but their name.

use std::convert::Infallible;
use std::time::Duration;

use tokio::time::sleep;
use tracing::info;

use crate::auth::access::{Access, ResourceAccess};
use crate::auth::access_review::{self_review_of, verdict};
use crate::auth::impersonation::{Impersonator, NodeForm};
use crate::auth::upstream::{ReviewError, ReviewIdentity, ReviewPurpose, Reviewer};
use crate::config::AuthSettings;
use crate::upstream::client::Client;

/// How often upstream is asked: a right that is granted or taken away counts a minute later.
const INTERVAL: Duration = Duration::from_secs(60);

/// Asks upstream about the gateway's own rights.
pub(super) struct NodeFormProbe {
    reviewer: Reviewer,
    /// Who is told; `None` if no callers have certificates.
    impersonator: Option<Impersonator>,
}

impl NodeFormProbe {
    pub(super) fn new(
        client: &Client,
        settings: &AuthSettings,
        impersonator: &Impersonator,
    ) -> Self {
        let is_needed = settings.wants_certificates();
        Self {
            reviewer: Reviewer::new(client.clone()),
            impersonator: is_needed.then(|| impersonator.clone()),
        }
    }

    /// Never returns.
    pub(super) async fn run(&self) -> Infallible {
        let Some(impersonator) = &self.impersonator else {
            return std::future::pending().await;
        };
        loop {
            // Without an answer, what is known stays.
            if let Ok(form) = self.form().await
                && impersonator.set_node_form(form)
            {
                info!(?form, "nodes are impersonated in another form");
            }
            sleep(INTERVAL).await;
        }
    }

    /// Whoever may impersonate the group may do so at each version of Kubernetes, so that comes first.
    async fn form(&self) -> Result<NodeForm, ReviewError> {
        if self
            .may("impersonate", "", "groups", "system:nodes")
            .await?
        {
            return Ok(NodeForm::Whole);
        }
        for verb in ["impersonate:arbitrary-node", "impersonate:associated-node"] {
            if self.may(verb, "authentication.k8s.io", "nodes", "").await? {
                return Ok(NodeForm::Name);
            }
        }
        Ok(NodeForm::Whole)
    }

    async fn may(
        &self,
        verb: &str,
        group: &str,
        resource: &str,
        name: &str,
    ) -> Result<bool, ReviewError> {
        let review = self_review_of(&Access::Resource(ResourceAccess {
            verb: verb.to_owned(),
            group: group.to_owned(),
            resource: resource.to_owned(),
            name: name.to_owned(),
            ..ResourceAccess::default()
        }));
        let (purpose, identity) = (ReviewPurpose::Authorization, ReviewIdentity::Gateway);
        let answer = self.reviewer.create(purpose, identity, &review).await?;
        Ok(verdict(answer.status)?.is_allowed)
    }
}
