//! The pods and service accounts that are gone, and when upstream refuses the tokens that are bound to them.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use tokio::time::Instant;

use crate::auth::user::User;

/// Whether upstream has everything that a user's token is bound to, or may have it. Called with the lock of the leases.
pub type LivenessCheck = Arc<dyn Fn(&User) -> bool + Send + Sync>;

/// Deletions that were noticed, and the last list, which shows those that were not.
#[derive(Default)]
pub(super) struct GoneObjects {
    /// Uids of what was deleted, with the time from which upstream refuses their tokens.
    deleted: HashMap<Box<str>, Instant, RandomState>,
    listing: Option<SettledListing>,
}

/// A list of what upstream has. What came and went before it, unnoticed, is in no list and in no event.
struct SettledListing {
    is_live: LivenessCheck,
    /// When upstream refuses all tokens of what was gone before the list.
    settled_at: Instant,
}

impl GoneObjects {
    /// Records that objects are gone.
    pub(super) fn delete(&mut self, uids: Vec<Box<str>>, now: Instant) {
        for uid in uids {
            if self.deleted.len() < DELETED_MAX {
                self.deleted.insert(uid, now + REMEMBERED);
            }
        }
    }

    /// Records that all objects were listed; `is_live` follows them from now on.
    pub(super) fn list(&mut self, is_live: LivenessCheck, now: Instant) {
        self.listing = Some(SettledListing {
            is_live,
            settled_at: now + REMEMBERED,
        });
    }

    /// Drops what no token can depend on any more. Returns whether anything is left.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        let is_kept = |refused_at: Instant| now.saturating_duration_since(refused_at) < KEPT;
        self.deleted.retain(|_, refused_at| is_kept(*refused_at));
        self.listing.take_if(|listing| !is_kept(listing.settled_at));
        !self.deleted.is_empty() || self.listing.is_some()
    }

    /// When a token has to be reviewed whose last review was sent at `reviewed_at`; `None` if nothing that it is bound to is known to be gone,
    /// or the review was late enough to tell.
    pub(super) fn review_at(
        &self,
        user: &User,
        reviewed_at: Instant,
        now: Instant,
    ) -> Option<Instant> {
        let uids = [user.pod_uid(), Some(&user.uid)];
        let refused_at = uids
            .into_iter()
            .flatten()
            .filter_map(|uid| self.deleted.get(uid))
            .filter(|refused_at| reviewed_at < **refused_at)
            .min();
        if let Some(refused_at) = refused_at {
            return Some(*refused_at);
        }
        let listing = self.listing.as_ref()?;
        // A token that was reviewed just now may be bound to a pod of which the watch has not told yet.
        let may_be_missed = reviewed_at < listing.settled_at && reviewed_at + REMEMBERED <= now;
        (may_be_missed && !(listing.is_live)(user)).then_some(now)
    }
}

impl fmt::Debug for GoneObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settled_at = self.listing.as_ref().map(|listing| listing.settled_at);
        f.debug_struct("GoneObjects")
            .field("deleted", &self.deleted)
            .field("settled_at", &settled_at)
            .finish_non_exhaustive()
    }
}

/// From the deletion of a pod or a service account to the review of its tokens: the API server remembers tokens for 10 s.
const REMEMBERED: Duration = Duration::from_secs(11);
/// How long deletions and lists matter after that: longer than the review of a token counts for new requests, and those may take.
const KEPT: Duration = Duration::from_secs(300);
/// Maximum number of uids. Tokens of further objects are reviewed within the hour.
const DELETED_MAX: usize = 200_000;
