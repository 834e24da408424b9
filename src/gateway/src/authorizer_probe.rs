//! Asks upstream each minute whether only RBAC and the node authorizer decide there. Decides nothing: see `verdict`.

mod rules_review;
mod verdict;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{info, warn};

use crate::auth::followed::{AuthorizerState, Followed};
use crate::auth::upstream::{ReviewIdentity, ReviewPurpose, Reviewer};
use crate::config::UpstreamAuthorizers;
use crate::error_chain::one_line;
use crate::upstream::client::Client;
use crate::upstream::discovery::api_groups;
use rules_review::RulesReview;
use verdict::{AuthorizerAnswer, AuthorizerVerdict, ProbeSchedule};

/// What the probe last found out, for people.
#[derive(Clone, Debug, Default)]
pub(super) struct AuthorizersStatus(Arc<Mutex<AuthorizerVerdict>>);

impl AuthorizersStatus {
    pub(super) fn state(&self) -> AuthorizerState {
        self.0.lock().state()
    }

    /// Why the state is what it is.
    pub(super) fn reason(&self) -> String {
        self.0.lock().to_string()
    }
}

/// Finds out whether upstream's authorizers are transparent.
pub(super) struct AuthorizerProbe {
    client: Client,
    reviewer: Reviewer,
    followed: Arc<Followed>,
    status: AuthorizersStatus,
    configured: UpstreamAuthorizers,
}

impl AuthorizerProbe {
    /// A probe that writes what it finds out to `followed`, and with its reason to `status`.
    pub(super) fn new(
        client: Client,
        followed: Arc<Followed>,
        configured: UpstreamAuthorizers,
        status: AuthorizersStatus,
    ) -> Self {
        Self {
            reviewer: Reviewer::new(client.clone()),
            client,
            followed,
            status,
            configured,
        }
    }

    /// Probes upstream. Never returns.
    pub(super) async fn run(&self) -> Infallible {
        match self.configured {
            UpstreamAuthorizers::Opaque => {
                self.publish(&AuthorizerVerdict::Declared);
                std::future::pending().await
            }
            UpstreamAuthorizers::Auto => self.probe_each_minute().await,
        }
    }

    async fn probe_each_minute(&self) -> Infallible {
        let mut schedule = ProbeSchedule::default();
        // A task before this one may have ended.
        self.publish(schedule.verdict());
        loop {
            let answer = timeout(PROBE_TIMEOUT, self.probe()).await;
            let answer = answer.unwrap_or_else(|_elapsed| Err("no answer in time".to_owned()));
            schedule.observe(answer, Instant::now());
            self.publish(schedule.verdict());
            sleep_until(schedule.next_wake(Instant::now(), crate::resource::fraction())).await;
            schedule.expire(Instant::now());
            self.publish(schedule.verdict());
        }
    }

    async fn probe(&self) -> Result<AuthorizerAnswer, String> {
        let question = RulesReview::of_namespace("default");
        let review = self
            .reviewer
            .create(
                ReviewPurpose::Authorization,
                ReviewIdentity::Gateway,
                &question,
            )
            .await
            .map_err(|error| one_line(&error))?;
        if !review.is_complete() {
            return Ok(AuthorizerAnswer::Incomplete);
        }
        let groups = api_groups(&self.client)
            .await
            .map_err(|error| one_line(&error))?;
        Ok(AuthorizerAnswer::of_groups(groups))
    }

    /// Logs a change, and tells those who rely on the state.
    fn publish(&self, verdict: &AuthorizerVerdict) {
        let mut last = self.status.0.lock();
        let is_news = last.is_news(verdict);
        last.clone_from(verdict);
        drop(last);
        let state = verdict.state();
        if state != self.followed.authorizers() {
            self.followed.set_authorizers(state);
        }
        let reason = self.status.reason();
        match self.status.state() {
            _ if !is_news => {}
            AuthorizerState::Transparent => {
                info!(
                    reason,
                    "upstream's decisions follow from roles: tokens of one account share them"
                );
            }
            AuthorizerState::Opaque if *verdict == AuthorizerVerdict::Declared => {
                info!(
                    reason,
                    "upstream's decisions hold for one token each, as configured"
                );
            }
            AuthorizerState::Opaque => {
                warn!(
                    reason,
                    "upstream's decisions may not follow from roles: each holds for one token"
                );
            }
        }
    }
}

/// Time for both requests of a probe. The review alone may take as long.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests;
