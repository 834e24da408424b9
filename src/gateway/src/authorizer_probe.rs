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

/// Finds out whether upstream's authorizers are transparent.
pub(super) struct AuthorizerProbe {
    client: Client,
    followed: Arc<Followed>,
    /// What was last found out.
    verdict: Mutex<AuthorizerVerdict>,
    configured: UpstreamAuthorizers,
}

impl AuthorizerProbe {
    /// A probe that writes what it finds out to `followed`.
    pub(super) fn new(
        client: Client,
        followed: Arc<Followed>,
        configured: UpstreamAuthorizers,
    ) -> Self {
        Self {
            client,
            followed,
            verdict: Mutex::default(),
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
            let answer = timeout(PROBE_TIMEOUT, probe(&self.client)).await;
            let answer = answer.unwrap_or_else(|_elapsed| Err("no answer in time".to_owned()));
            schedule.observe(answer, Instant::now());
            self.publish(schedule.verdict());
            sleep_until(schedule.next_wake(Instant::now(), crate::resource::fraction())).await;
            schedule.expire(Instant::now());
            self.publish(schedule.verdict());
        }
    }

    /// Logs a change, and tells those who rely on the state.
    fn publish(&self, verdict: &AuthorizerVerdict) {
        let mut last = self.verdict.lock();
        let is_news = last.is_news(verdict);
        last.clone_from(verdict);
        drop(last);
        let state = verdict.state();
        if state != self.followed.authorizers() {
            self.followed.set_authorizers(state);
        }
        let reason = verdict.to_string();
        match state {
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

/// Asks upstream whether all of its authorizers name their rules.
async fn probe(client: &Client) -> Result<AuthorizerAnswer, String> {
    let question = RulesReview::of_namespace("default");
    let (purpose, identity) = (ReviewPurpose::Authorization, ReviewIdentity::Gateway);
    let review = Reviewer::new(client.clone())
        .create(purpose, identity, &question)
        .await
        .map_err(|error| one_line(&error))?;
    if !review.is_complete() {
        return Ok(AuthorizerAnswer::Incomplete);
    }
    let groups = api_groups(client).await.map_err(|error| one_line(&error))?;
    Ok(AuthorizerAnswer::of_groups(groups))
}

/// Whether only RBAC and the node authorizer decide upstream, as the gateway finds out each minute.
///
/// # Errors
/// Why upstream does not say, in one line.
pub async fn is_transparent(client: &Client) -> Result<bool, String> {
    let answer = probe(client).await?;
    Ok(AuthorizerVerdict::Answered(answer).state() == AuthorizerState::Transparent)
}

/// Time for both requests of a probe. The review alone may take as long.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests;
