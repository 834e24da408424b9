//! The modes of impersonation, and the mode by which each user last succeeded.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::auth::user::User;

/// Number of users whose last mode is remembered; kube-apiserver's number.
const REMEMBERED_MAX: usize = 10_000;

/// A mode of impersonation. Modes differ in the verbs that are checked and in the users that they apply to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ImpersonationMode {
    /// The node that the sender's service account token is bound to.
    AssociatedNode,
    ArbitraryNode,
    ServiceAccount,
    /// A user that is neither a node nor a service account.
    UserInfo,
    /// Any user. The permission is not limited to certain requests.
    Legacy,
}

/// The mode by which each user last succeeded. It is tried first, so its refusal is the one that the client sees.
#[derive(Debug, Default)]
pub(super) struct LastModes(Mutex<HashMap<String, ImpersonationMode>>);

impl LastModes {
    pub(super) fn of(&self, user: &User) -> Option<ImpersonationMode> {
        let last = self.0.lock();
        last.get(&user.name).copied()
    }

    pub(super) fn put(&self, user: &User, mode: ImpersonationMode) {
        let mut last = self.0.lock();
        if last.len() >= REMEMBERED_MAX {
            last.clear();
        }
        last.insert(user.name.clone(), mode);
    }
}
