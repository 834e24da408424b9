//! What is logged when upstream refuses to let the gateway watch something that it can do without.

use std::sync::{Arc, OnceLock};

use crate::informer::{OnFailure, WatchFailure};
use crate::resource::Gvr;

/// Logs once that the gateway may not watch a resource, with a message that says what follows from that. Other failures pass.
pub(super) fn log_refusal_once(gvr: &Gvr, message: &'static str) -> OnFailure {
    let (resource, is_logged) = (gvr.to_string(), OnceLock::new());
    Arc::new(move |failure: &WatchFailure| {
        let is_forbidden =
            matches!(failure, WatchFailure::Refused { status, .. } if status.code == 403);
        if is_forbidden && is_logged.set(()).is_ok() {
            tracing::warn!(%resource, "{message}");
        } else {
            tracing::debug!(%resource, %failure, "reading failed");
        }
    })
}
