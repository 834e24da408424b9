//! Credentials that are read again: when upstream refuses them, when their files change, and before they expire.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use super::{Client, ClientStack, ConnectError};

/// What [`Client::rebuild`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RebuildOutcome {
    /// Configuration and credentials were read again. New requests use new connections if the old ones no longer fit.
    Done,
    /// The last attempt is too recent, or another one is running; nothing was done.
    TooSoon,
}

/// At most one reading of credentials in this time: a server that refuses everybody must not turn into a storm of exec
/// plugins.
pub const REBUILD_INTERVAL_MIN: Duration = Duration::from_secs(30);

impl Client {
    /// Reads configuration and credentials again; running streams go on over their connections. At most one attempt per
    /// [`REBUILD_INTERVAL_MIN`]. Happens by itself when the server refuses the gateway (401).
    ///
    /// # Errors
    /// As [`Client::connect`]; what was in use stays so then.
    pub async fn rebuild(&self) -> Result<RebuildOutcome, ConnectError> {
        let Ok(rebuilt_at) = Arc::clone(&self.shared.rebuilt_at).try_lock_owned() else {
            return Ok(RebuildOutcome::TooSoon);
        };
        if rebuilt_at.is_some_and(|at| at.elapsed() < REBUILD_INTERVAL_MIN) {
            return Ok(RebuildOutcome::TooSoon);
        }
        self.rebuild_now(rebuilt_at).await?;
        Ok(RebuildOutcome::Done)
    }

    /// The same, but waits until it may be done. Without an exec plugin that is at once.
    ///
    /// # Errors
    /// As [`Client::connect`]; what was in use stays so then.
    pub async fn rebuild_in_time(&self) -> Result<(), ConnectError> {
        loop {
            let rebuilt_at = Arc::clone(&self.shared.rebuilt_at).lock_owned().await;
            let is_costly = self.shared.stack.load().expiry.is_by_plugin();
            let next = rebuilt_at.map(|at| at + REBUILD_INTERVAL_MIN);
            match next.filter(|next| is_costly && Instant::now() < *next) {
                None => return self.rebuild_now(rebuilt_at).await,
                // Without the lock: an attempt of somebody else counts.
                Some(next) => {
                    drop(rebuilt_at);
                    tokio::time::sleep_until(next).await;
                }
            }
        }
    }

    /// The files that configuration and credentials were read from.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        self.shared.stack.load().files.clone()
    }

    /// When the gateway's credentials expire, in seconds since 1970, if they say so.
    #[must_use]
    pub fn expires_at(&self) -> Option<i64> {
        self.shared.stack.load().expiry.at()
    }

    /// How long until credentials that only an exec plugin can renew are to be read again; `None` for never.
    #[must_use]
    pub fn renewal_in(&self) -> Option<Duration> {
        self.shared
            .stack
            .load()
            .expiry
            .renewal_in(jiff::Timestamp::now())
    }

    async fn rebuild_now(
        &self,
        mut rebuilt_at: OwnedMutexGuard<Option<Instant>>,
    ) -> Result<(), ConnectError> {
        *rebuilt_at = Some(Instant::now());
        let client = self.clone();
        // A plugin that hangs keeps the lock, also when whoever waits for it has left: one hangs at a time.
        let loading = tokio::spawn(async move {
            let before = client.shared.stack.load_full();
            let stack = ClientStack::load(client.shared.source.clone(), Some(before)).await;
            drop(rebuilt_at);
            client.shared.stack.store(Arc::new(stack?));
            tracing::info!("upstream credentials read again");
            Ok::<_, ConnectError>(())
        });
        loading.await.map_err(|_| ConnectError::Interrupted)?
    }

    /// After a refusal of the gateway's own credentials: they may have been replaced on disk. The refusal itself still
    /// goes to whoever asked.
    pub(super) async fn renew(&self) {
        if let Err(error) = self.rebuild().await {
            tracing::warn!(%error, "credentials were refused and cannot be read again");
        }
    }
}
