//! Faults of an embedded API server whose clients are to lose track, and waiting for what follows.

use std::time::Duration;

use kube_fanout::apiserver::Apiserver;
use kube_fanout::apiserver::faults::{Fault, FaultOrder};
use kube_fanout::apiserver::route::ResourceVerb;
use tokio::time::Instant;

/// So long a condition may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_PERIOD: Duration = Duration::from_millis(5);

/// Orders a fault for the first `count` requests of a verb.
pub(crate) fn order(server: &Apiserver, fault: Fault, verb: Option<ResourceVerb>, count: u32) {
    let order = FaultOrder {
        fault,
        verb,
        resource: None,
        count,
    };
    server.order(order).unwrap();
}

/// Ends all watches and refuses new ones while something is written whose history is then forgotten.
pub(crate) async fn unseen(server: &Apiserver, writes: impl Future<Output = ()>) {
    let refuse = Fault::Refuse {
        code: 503,
        retry_after_seconds: 1,
    };
    order(server, refuse, Some(ResourceVerb::Watch), 1000);
    order(server, Fault::EndWatches, None, 1);
    let refused = server.fault_counts().refused;
    until("a watch refused", || {
        server.fault_counts().refused > refused
    })
    .await;
    writes.await;
    order(server, Fault::Compact, None, 1);
    order(server, Fault::Clear, None, 1);
}

/// Waits until something holds.
pub(crate) async fn until(what: &str, holds: impl Fn() -> bool) {
    let give_up_at = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < give_up_at, "not in time: {what}");
        tokio::time::sleep(LOOK_PERIOD).await;
    }
}
