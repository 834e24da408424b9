//! Faults that make clients of an embedded API server miss events, and a wait for their recovery.

use std::time::Duration;

use kube_fanout_testkit::apiserver::Apiserver;
use kube_fanout_testkit::apiserver::faults::{Fault, FaultOrder};
use kube_fanout_testkit::apiserver::request::Verb;
use tokio::time::Instant;

use crate::support::PATIENCE;

const POLL_PERIOD: Duration = Duration::from_millis(5);

/// Makes the next `count` requests with this verb (any verb if `None`) fail in this way.
pub(crate) fn order(server: &Apiserver, fault: Fault, verb: Option<Verb>, count: u32) {
    let order = FaultOrder {
        fault,
        verb,
        resource: None,
        count,
    };
    server.order(order).unwrap();
}

/// Runs `writes` while all watches are ended and new ones are refused, then compacts the history: clients that watch again from their
/// last version get 410, and have to list.
pub(crate) async fn unseen(server: &Apiserver, writes: impl Future<Output = ()>) {
    let refuse = Fault::Refuse {
        code: 503,
        retry_after_seconds: 1,
    };
    order(server, refuse, Some(Verb::Watch), 1000);
    order(server, Fault::EndWatches, None, 1);
    let refused = server.fault_counts().refused;
    until("a watch is refused", || {
        server.fault_counts().refused > refused
    })
    .await;
    writes.await;
    order(server, Fault::Compact, None, 1);
    order(server, Fault::Clear, None, 1);
}

/// Waits until `holds` returns true; panics with `what` if it does not in time.
pub(crate) async fn until(what: &str, holds: impl Fn() -> bool) {
    let give_up_at = Instant::now() + PATIENCE;
    while !holds() {
        assert!(
            Instant::now() < give_up_at,
            "timed out waiting until {what}"
        );
        tokio::time::sleep(POLL_PERIOD).await;
    }
}
