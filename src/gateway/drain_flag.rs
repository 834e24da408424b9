//! Tells all parts of the gateway that its drain has started. The drain's deadline is in `shutdown`.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::watch;

/// Set when the gateway starts to drain: watches that end afterwards end because of the drain.
#[derive(Clone, Debug, Default)]
pub(super) struct DrainFlag(Arc<watch::Sender<bool>>);

impl DrainFlag {
    pub(super) fn begin(&self) {
        self.0.send_replace(true);
    }

    pub(super) fn is_begun(&self) -> bool {
        *self.0.borrow()
    }

    /// Completes once the flag is set.
    pub(super) fn begun(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut begun = self.0.subscribe();
        async move {
            // An error means that the sender is gone; then nothing waits for the result.
            let _ = begun.wait_for(|begun| *begun).await;
        }
    }
}
