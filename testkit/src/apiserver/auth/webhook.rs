//! A webhook that denies access, as an authorizer between the group of administrators and the others.

use std::sync::Arc;

use parking_lot::RwLock;

use super::certificates::CREDENTIAL_ID;
use super::user::User;
use super::{Access, Decision};

/// A webhook authorizer, which tests configure and remove while the server runs. Clones share one. While it is configured, no review can
/// tell all the rules of a user.
#[derive(Clone, Debug, Default)]
pub struct Webhook(Arc<RwLock<Option<Vec<Denial>>>>);

/// Whom a webhook denies what. Empty fields do not restrict it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Denial {
    /// The user's name.
    pub user: String,
    /// The id of the user's credential, such as `JTI=…`.
    pub credential_id: String,
    /// The verb.
    pub verb: String,
    /// The resource's plural name.
    pub resource: String,
    /// The namespace.
    pub namespace: String,
}

impl Webhook {
    /// Configures a webhook that denies these; all else it leaves to other authorizers.
    pub fn configure(&self, denials: Vec<Denial>) {
        *self.0.write() = Some(denials);
    }

    /// Removes the webhook.
    pub fn remove(&self) {
        *self.0.write() = None;
    }

    /// Whether a webhook is configured.
    #[must_use]
    pub fn is_configured(&self) -> bool {
        self.0.read().is_some()
    }

    /// The denial of an access; `None` if the webhook has no opinion.
    pub(super) fn denies(&self, user: &User, access: &Access) -> Option<Decision> {
        let denials = self.0.read();
        let mut denials = denials.iter().flatten();
        denials.find(|denial| denial.covers(user, access))?;
        Some(Decision {
            is_allowed: false,
            reason: "denied by the webhook".to_owned(),
        })
    }
}

impl Denial {
    fn covers(&self, user: &User, access: &Access) -> bool {
        let Access::Resource(access) = access else {
            return false;
        };
        let is_credential = user
            .extra
            .get(CREDENTIAL_ID)
            .is_some_and(|ids| ids.contains(&self.credential_id));
        (self.credential_id.is_empty() || is_credential)
            && [
                (&self.user, &user.name),
                (&self.verb, &access.verb),
                (&self.resource, &access.resource),
                (&self.namespace, &access.namespace),
            ]
            .iter()
            .all(|(denied, value)| denied.is_empty() || denied == value)
    }
}
