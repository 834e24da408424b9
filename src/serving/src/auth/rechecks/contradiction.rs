//! Looks for authorizers that tell tokens of one user apart, although upstream's seem not to.

use std::time::Duration;

use tracing::warn;

use super::Rechecks;
use crate::auth::followed::AuthorizerState;
use crate::auth::leases::RequirementKey;
use crate::metrics::Revocation;

/// How often a shared answer is compared.
pub(super) const COMPARISON_PERIOD: Duration = Duration::from_secs(60);

/// Two answers may differ while a right is being taken or given; then they agree after this time.
const AGREEMENT_DELAY: Duration = Duration::from_secs(15);

impl Rechecks {
    /// Asks the same for two tokens that share an answer. If upstream tells them apart, no answer is shared any more.
    pub(super) async fn compare_shared(&self) {
        if self.followed.authorizers() != AuthorizerState::Transparent {
            return;
        }
        let Some([first, second]) = self.leases().shared_question(crate::resource::fraction())
        else {
            return;
        };
        let are_told_apart = async || {
            let first = self.decisions.ask_apart(&first).await;
            let second = self.decisions.ask_apart(&second).await;
            matches!((first, second), (Some(first), Some(second)) if first != second)
        };
        let changed_at = self.decisions.last_change(&first.key);
        if !are_told_apart().await {
            return;
        }
        tokio::time::sleep(AGREEMENT_DELAY).await;
        let are_roles_settled = self.decisions.last_change(&first.key) == changed_at;
        if are_told_apart().await && are_roles_settled {
            // One of these streams may stand on an answer to another token: each asks for itself when it comes back.
            let key = RequirementKey::Access(first.key.clone());
            let count = self.leases().refuse(&key);
            self.record_revocations(Revocation::Denied, count);
            self.followed.contradict();
            self.metrics.contradictions.inc();
            warn!(
                user = &*first.key.user.name,
                "the API server allows one token of this user what it denies another: each token is asked about by itself from now on"
            );
        }
    }
}
