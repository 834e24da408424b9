//! The API server of the model: what is true there, and what it answers.

use std::collections::{HashMap, HashSet};

use super::*;

/// Uids of pods stay in the API server's memory for this long after their deletion, with the tokens that are bound to them.
const REMEMBERED: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct Truth {
    pub(super) users: HashMap<&'static str, Arc<User>>,
    /// Tokens that are not valid, and since when.
    pub(super) gone: HashMap<&'static str, Instant>,
    /// Names of users with a role.
    pub(super) bound: HashSet<String>,
    /// Whether a webhook denies the token whose `credential-id` is `DENIED`.
    pub(super) has_webhook: bool,
    pub(super) is_down: bool,
    /// From a question to its answer, which is as old as the question.
    pub(super) delay: Duration,
    /// Whether roles alone are compared: `--auth rbac` does not see what denies what they allow.
    pub(super) decides_by_roles: bool,
    /// Questions and reviews of tokens that were answered.
    pub(super) asked: usize,
}

/// Why a token may not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Cause {
    Token,
    Roles,
    /// An authorizer whose rules nobody can see.
    Unseen,
}

/// The token that the webhook denies.
pub(super) const DENIED: &str = "sa-1";
/// The user whom an authorizer denies that nobody knows of. Roles allow another user of the same name.
pub(super) const OTHER: &str = "joe-other";

impl Truth {
    /// Whether the API server itself would answer a list of this token.
    pub(super) fn allows(&self, secret: &'static str) -> bool {
        let Some(user) = self.users.get(secret) else {
            return false;
        };
        !self.gone.contains_key(secret) && self.may(user)
    }

    /// Whether the API server still accepts a token.
    fn accepts(&self, secret: &str) -> bool {
        let gone_at = self.gone.get(secret);
        gone_at.is_none_or(|gone_at| gone_at.elapsed() < REMEMBERED)
    }

    fn may(&self, user: &User) -> bool {
        self.bound.contains(&user.name) && !self.is_denied(user)
    }

    /// Whether an authorizer denies what roles allow.
    fn is_denied(&self, user: &User) -> bool {
        let id = user
            .extra
            .get("authentication.kubernetes.io/credential-id")
            .and_then(|ids| ids.first());
        let by_webhook = self.has_webhook && id.is_some_and(|id| id == DENIED);
        !self.decides_by_roles && (by_webhook || user.extra.contains_key("other"))
    }

    /// Each reason why a token may not read.
    pub(super) fn causes(&self, secret: &'static str) -> Vec<Cause> {
        let Some(user) = self.users.get(secret) else {
            return Vec::new();
        };
        let causes = [
            (Cause::Token, self.gone.contains_key(secret)),
            (Cause::Roles, !self.bound.contains(&user.name)),
            (Cause::Unseen, self.is_denied(user)),
        ];
        let holding = causes.into_iter().filter(|(_, holds)| *holds);
        holding.map(|(cause, _)| cause).collect()
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Upstream(pub(super) Arc<Mutex<Truth>>);

fn down() -> ReviewError {
    ReviewError::Unavailable {
        reason: "down".to_owned(),
    }
}

impl Authorizer for Upstream {
    fn decide<'a>(
        &'a self,
        question: &'a AccessQuestion,
        _purpose: ReviewPurpose,
    ) -> Pin<Box<dyn Future<Output = Result<AccessVerdict, ReviewError>> + Send + 'a>> {
        let mut truth = self.0.lock().unwrap();
        let delay = truth.delay;
        let is_rejected = match &question.identity {
            QuestionIdentity::Caller { token, .. } => !truth.accepts(token.secret()),
            QuestionIdentity::Gateway | QuestionIdentity::Impersonated => false,
        };
        let outcome = match truth.is_down {
            true => Err(down()),
            false if is_rejected => Err(ReviewError::Unauthorized),
            false => {
                truth.asked += 1;
                Ok(AccessVerdict {
                    is_allowed: truth.may(&question.subject),
                    reason: String::new(),
                })
            }
        };
        Box::pin(after(delay, outcome))
    }
}

async fn after<T>(delay: Duration, outcome: T) -> T {
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
    outcome
}

impl TokenAuthenticator for Upstream {
    fn authenticate<'a>(
        &'a self,
        token: &'a BearerToken,
        _purpose: ReviewPurpose,
    ) -> Pin<Box<dyn Future<Output = TokenVerdict> + Send + 'a>> {
        let mut truth = self.0.lock().unwrap();
        let delay = truth.delay;
        if truth.is_down {
            return Box::pin(after(delay, Err(down())));
        }
        truth.asked += 1;
        let is_accepted = truth.accepts(token.secret());
        let user = truth.users.get(token.secret()).filter(|_| is_accepted);
        Box::pin(after(delay, Ok(user.cloned())))
    }
}
