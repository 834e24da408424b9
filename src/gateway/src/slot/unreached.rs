//! Versions that clients have and upstream has not reached: whether they come from a history that upstream has lost.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::history_loss::LOSS_AGE_MAX;
use crate::checkpoint::LOST_AHEAD_MAX;
use crate::resource::ResourceVersion;
use crate::serve::resources::VersionReach;

/// How long a version stays unreached before it counts as lost, although this process has seen no loss. kube-apiserver would wait for it
/// without end.
const PATIENCE: Duration = Duration::from_secs(10);

/// Whether a lost history may have had this version, if upstream's newest one is `newest`. No server has given out a version that is further
/// ahead.
fn may_have_been_ahead(newest: ResourceVersion, version: ResourceVersion) -> bool {
    version > newest && version.0 - newest.0 <= LOST_AHEAD_MAX
}

/// The oldest version that clients came with and that upstream has not reached since.
#[derive(Debug, Default)]
pub(super) struct UnreachedVersions(Mutex<Option<UnreachedVersion>>);

#[derive(Clone, Copy, Debug)]
struct UnreachedVersion {
    version: ResourceVersion,
    /// When a client first came with it, and when one came last.
    first_at: Instant,
    last_at: Instant,
}

impl UnreachedVersions {
    /// The reach of `version` while upstream is at `newest`; `is_loss_recent` says that upstream has just lost a history.
    pub(super) fn reach(
        &self,
        newest: ResourceVersion,
        version: ResourceVersion,
        is_loss_recent: bool,
    ) -> VersionReach {
        if !may_have_been_ahead(newest, version) {
            VersionReach::Reached
        } else if self.is_overdue(newest, version) || is_loss_recent {
            VersionReach::Lost
        } else {
            VersionReach::Pending
        }
    }

    /// Records that a client has `version` while upstream is at `newest`, which is lower. Returns whether upstream has had enough time to
    /// reach it.
    fn is_overdue(&self, newest: ResourceVersion, version: ResourceVersion) -> bool {
        let now = Instant::now();
        let mut oldest = self.0.lock();
        let known = oldest.filter(|known| {
            let is_unreached = known.version > newest && known.version <= version;
            is_unreached && now.duration_since(known.last_at) < LOSS_AGE_MAX
        });
        let first_at = known.map_or(now, |known| known.first_at);
        *oldest = Some(UnreachedVersion {
            version: known.map_or(version, |known| known.version),
            first_at,
            last_at: now,
        });
        now.duration_since(first_at) >= PATIENCE
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[test]
    fn a_version_that_no_server_can_have_given_out_is_not_lost() {
        let is_lost = |version| may_have_been_ahead(ResourceVersion(20), ResourceVersion(version));
        assert!(!is_lost(20) && is_lost(21) && is_lost(20 + LOST_AHEAD_MAX));
        assert!(!is_lost(21 + LOST_AHEAD_MAX) && !is_lost(19));
    }

    #[tokio::test(start_paused = true)]
    async fn a_version_is_lost_at_once_after_a_loss_and_later_without_one() {
        let unreached = UnreachedVersions::default();
        let reach = |version, is_loss_recent| {
            unreached.reach(
                ResourceVersion(20),
                ResourceVersion(version),
                is_loss_recent,
            )
        };
        assert_eq!(reach(20, true), VersionReach::Reached);
        assert_eq!(reach(21, true), VersionReach::Lost);
        assert_eq!(reach(21, false), VersionReach::Pending);
        advance(PATIENCE).await;
        assert_eq!(reach(21, false), VersionReach::Lost);
    }

    #[tokio::test(start_paused = true)]
    async fn a_version_is_overdue_once_upstream_had_time_to_reach_it() {
        let unreached = UnreachedVersions::default();
        let is_overdue = |newest, version| {
            unreached.is_overdue(ResourceVersion(newest), ResourceVersion(version))
        };
        assert!(!is_overdue(20, 30));
        advance(PATIENCE).await;
        assert!(is_overdue(21, 30) && is_overdue(21, 31));
        assert!(!is_overdue(21, 29), "upstream may have gone back since 30");
        advance(PATIENCE).await;
        assert!(!is_overdue(29, 30), "29 was reached");
        advance(LOSS_AGE_MAX).await;
        assert!(!is_overdue(29, 30), "nobody came with it for so long");
    }
}
