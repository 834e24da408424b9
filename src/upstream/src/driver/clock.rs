//! The driver's clock.

use std::time::Instant;

/// The runtime's clock, which timers use as well: a test that pauses it pauses the driver.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
