//! Decides what probes say about upstream's authorizers, and when to probe next. Pure: it sends nothing, and time is an argument.
//!
//! ```text
//!                       ┌────── complete, and no group of OpenShift ──────┐
//!                       │                                                 ▼
//! start ─▶ Unasked ─▶ Opaque: Incomplete, HiddenAuthorizers, Unanswered   Transparent
//!                       ▲                                                 │
//!                       └── any other answer at once, none for 3 min ─────┘
//! ```

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

use crate::auth::followed::AuthorizerState;

/// The rate at which kube-apiserver reads its authorizers' configuration again. A webhook that is added is noticed within two minutes.
const PROBE_INTERVAL: Duration = Duration::from_secs(60);
/// The pause after the first failure; it doubles up to the interval.
const RETRY_MIN: Duration = Duration::from_secs(5);
/// How long the last answer is relied on while no other comes. A check that could not be made is not passed.
const ANSWER_AGE_MAX: Duration = Duration::from_secs(180);
/// Gateways that start together must not probe together: each pause is shorter by up to one part of this many.
const JITTER_PARTS: u32 = 5;
/// Groups of OpenShift's API, whose authorizers for scopes and kubelets' versions deny without naming rules.
const OPENSHIFT: &str = ".openshift.io";

/// What a probe was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AuthorizerAnswer {
    /// All authorizers have named their rules.
    Complete,
    /// An authorizer, such as a webhook, has not named its rules.
    Incomplete,
    /// An API of this group is served, and its server has authorizers that do not say that they exist.
    HiddenAuthorizers(String),
}

impl AuthorizerAnswer {
    /// The answer of a server whose review of rules is complete, and which serves these API groups.
    pub(super) fn of_groups(groups: BTreeSet<String>) -> Self {
        let hidden = groups.into_iter().find(|group| group.ends_with(OPENSHIFT));
        hidden.map_or(Self::Complete, Self::HiddenAuthorizers)
    }
}

/// What is known of upstream's authorizers, and why. `Display` shows the reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum AuthorizerVerdict {
    /// No probe has been answered yet.
    #[default]
    Unasked,
    /// The setting says so.
    Declared,
    /// The last answer.
    Answered(AuthorizerAnswer),
    /// No answer for too long; the last error.
    Unanswered(String),
}

impl AuthorizerVerdict {
    pub(super) const fn state(&self) -> AuthorizerState {
        match self {
            Self::Answered(AuthorizerAnswer::Complete) => AuthorizerState::Transparent,
            Self::Answered(
                AuthorizerAnswer::Incomplete | AuthorizerAnswer::HiddenAuthorizers(_),
            )
            | Self::Unasked
            | Self::Declared
            | Self::Unanswered(_) => AuthorizerState::Opaque,
        }
    }

    /// Whether `next` is worth a line in the log: another error of the same kind is not.
    pub(super) fn is_news(&self, next: &Self) -> bool {
        match (self, next) {
            (_, Self::Unasked) | (Self::Unanswered(_), Self::Unanswered(_)) => false,
            (last, next) => last != next,
        }
    }
}

impl fmt::Display for AuthorizerVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unasked => f.write_str("upstream has not been asked yet"),
            Self::Declared => f.write_str("--upstream-authorizers opaque"),
            Self::Answered(AuthorizerAnswer::Complete) => {
                f.write_str("all authorizers of upstream have named their rules")
            }
            Self::Answered(AuthorizerAnswer::Incomplete) => {
                f.write_str("an authorizer of upstream, such as a webhook, does not name its rules")
            }
            Self::Answered(AuthorizerAnswer::HiddenAuthorizers(group)) => {
                write!(
                    f,
                    "upstream serves {group}: OpenShift has authorizers that name no rules"
                )
            }
            Self::Unanswered(error) => {
                write!(f, "upstream does not say which rules it has: {error}")
            }
        }
    }
}

/// The verdict over time, and when to probe.
#[derive(Debug, Default)]
pub(super) struct ProbeSchedule {
    verdict: AuthorizerVerdict,
    /// When the verdict was last answered.
    answered_at: Option<Instant>,
    /// Failures since then.
    failures: u32,
    /// The last of them.
    error: String,
}

impl ProbeSchedule {
    pub(super) const fn verdict(&self) -> &AuthorizerVerdict {
        &self.verdict
    }

    /// Takes in the outcome of a probe. A failure says nothing against the last answer, until that is too old.
    pub(super) fn observe(&mut self, outcome: Result<AuthorizerAnswer, String>, now: Instant) {
        match outcome {
            Ok(answer) => {
                self.verdict = AuthorizerVerdict::Answered(answer);
                self.answered_at = Some(now);
                self.failures = 0;
            }
            Err(error) => {
                self.failures = self.failures.saturating_add(1);
                self.error = error;
                self.expire(now);
            }
        }
    }

    /// Gives up an answer that is too old.
    pub(super) fn expire(&mut self, now: Instant) {
        let is_answered = self.expires_at().is_some_and(|at| now < at);
        if self.failures > 0 && !is_answered {
            self.verdict = AuthorizerVerdict::Unanswered(self.error.clone());
        }
    }

    /// When to [`Self::expire`] the answer and to probe again. `random` is in [0, 1).
    pub(super) fn next_wake(&self, now: Instant, random: f64) -> Instant {
        let wait = match self.failures {
            0 => PROBE_INTERVAL,
            failures => RETRY_MIN
                .saturating_mul(1_u32.checked_shl(failures - 1).unwrap_or(u32::MAX))
                .min(PROBE_INTERVAL),
        };
        let next = now + wait - (wait / JITTER_PARTS).mul_f64(random);
        let expires_at = self.expires_at().filter(|at| now < *at);
        expires_at.map_or(next, |at| at.min(next))
    }

    fn expires_at(&self) -> Option<Instant> {
        Some(self.answered_at? + ANSWER_AGE_MAX)
    }
}

#[cfg(test)]
mod tests;
