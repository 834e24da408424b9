//! Renewal of the gateway's credentials: when upstream refuses them, when their files change, and before they expire.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use super::secrets::PluginUse;
use super::{Client, ClientStack, ConnectError};

/// What [`Client::rebuild`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RebuildOutcome {
    /// Configuration and credentials were read again. New requests use new connections if the old ones no longer fit.
    Done,
    /// The last attempt is too recent, or another one is running; nothing was done.
    TooSoon,
}

/// Shortest time between two attempts to read credentials, so that a server that refuses every request does not cause a
/// storm of exec plugins.
pub const REBUILD_INTERVAL_MIN: Duration = Duration::from_secs(30);

impl Client {
    /// Reads configuration and credentials again. Open streams continue on their connections. At most one attempt is made
    /// per [`REBUILD_INTERVAL_MIN`]. The client also does this by itself when the server refuses its credentials (401).
    ///
    /// # Errors
    /// As [`Client::connect`]. The previous credentials stay in use then.
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

    /// Like [`Client::rebuild`], but waits until an attempt is allowed. Without an exec plugin, no wait is necessary.
    ///
    /// # Errors
    /// As [`Client::connect`]. The previous credentials stay in use then.
    pub async fn rebuild_in_time(&self) -> Result<(), ConnectError> {
        loop {
            let rebuilt_at = Arc::clone(&self.shared.rebuilt_at).lock_owned().await;
            let is_costly = self.shared.stack.load().expiry.is_by_plugin();
            let next = rebuilt_at.map(|at| at + REBUILD_INTERVAL_MIN);
            match next.filter(|next| is_costly && Instant::now() < *next) {
                None => return self.rebuild_now(rebuilt_at).await,
                // The lock is released while waiting, so that an attempt of another task counts.
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

    /// When the gateway's credentials expire, in seconds since 1970; `None` if that is unknown.
    #[must_use]
    pub fn expires_at(&self) -> Option<i64> {
        self.shared.stack.load().expiry.at()
    }

    /// Time until credentials that only an exec plugin can renew have to be read again; `None` for never.
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
        // A task of its own holds the lock even if the caller is dropped, so that at most one plugin hangs at a time.
        let loading = tokio::spawn(async move {
            let previous = client.shared.stack.load_full();
            let (source, servers) = (client.shared.source.clone(), client.shared.servers.clone());
            let stack = ClientStack::load(source, servers, Some(previous), PluginUse::Run).await;
            drop(rebuilt_at);
            client.shared.stack.store(Arc::new(stack?));
            tracing::debug!("read the upstream credentials again");
            Ok::<_, ConnectError>(())
        });
        loading.await.map_err(|_| ConnectError::Interrupted)?
    }

    /// Called when the server has refused the gateway's own credentials: they may have been replaced on disk. The response
    /// with the refusal still goes to the caller.
    pub(super) async fn renew(&self) {
        match self.rebuild().await {
            Ok(RebuildOutcome::Done) if self.shared.refusals.lock().is_due(()) => {
                tracing::warn!(
                    "the API server refused the gateway's credentials; they are read again while it does"
                );
            }
            Ok(RebuildOutcome::Done | RebuildOutcome::TooSoon) => {}
            Err(error) if self.shared.refusals.lock().is_due(()) => {
                tracing::warn!(%error, "the API server refused the gateway's credentials, and they cannot be read again");
            }
            Err(_) => {}
        }
    }

    /// Called when the server's certificate is not trusted: the file with the authorities may have been replaced. The request has failed
    /// all the same. A plugin is not run for this.
    pub(super) async fn trust_again(&self, stack: &ClientStack) {
        if stack.expiry.is_by_plugin() {
            return;
        }
        if let Err(error) = self.rebuild().await {
            tracing::debug!(%error, "cannot read the authorities of the API server again");
        }
    }

    /// Called when the server has accepted the gateway's own credentials.
    pub(super) fn accepted(&self) {
        if self.shared.refusals.lock().end() {
            tracing::info!("the API server accepts the gateway's credentials again");
        }
    }
}
