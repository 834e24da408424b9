//! Clients that accept gzip, cannot read it, and leave.

use super::CONFIGMAPS;
use super::client::{Asked, Client};
use super::stage::Stage;
use crate::support::auth::until;
use crate::support::client::{HttpVersion, metric_sum};

const UNREAD: &str = "kube_fanout_watch_gzip_unread_total";
const LONGRUNNING: &str = "kube_fanout_longrunning_requests";

/// More watches than a client leaves late on any machine.
const LEFT_MAX: usize = 1_000;

/// Opens watches and leaves each after its first event, until one is not compressed; returns how many were.
///
/// The gateway notices that a client has left when it reads the connection's end. That it has, the count of watches says.
async fn left(stage: &Stage, http: HttpVersion, agent: &str, others: usize) -> usize {
    let asked = Asked {
        agent,
        ..Asked::default()
    };
    let mut left = 0;
    loop {
        let mut client = Client::open(http, stage.gateway.address, &asked).await;
        if !client.is_gzip() {
            return left;
        }
        let name = stage.create(CONFIGMAPS, 1_000).await;
        client.until(&name).await;
        drop(client);
        left += 1;
        assert!(left < LEFT_MAX, "no end of compressed watches");
        let watches =
            async || metric_sum(stage.gateway.admin, LONGRUNNING, "resource=\"configmaps\"").await;
        until("it has left", async || watches().await == others).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_leave_at_once_three_times_are_answered_uncompressed() {
    let stage = Stage::new().await;
    let mut stays = Client::open(HttpVersion::One, stage.gateway.address, &Asked::default()).await;
    for (unread, (http, agent)) in [(HttpVersion::One, "one/1"), (HttpVersion::Two, "two/1")]
        .into_iter()
        .enumerate()
    {
        // On a machine so slow that a client leaves late, it is not said to leave at once.
        assert!(left(&stage, http, agent, 1).await >= 3);
        assert_eq!(
            metric_sum(stage.gateway.admin, UNREAD, "").await,
            unread + 1
        );
    }
    // Others are not concerned: neither a client of another name nor those that are there.
    let mut other = Client::open(
        HttpVersion::One,
        stage.gateway.address,
        &Asked {
            agent: "three/1",
            ..Asked::default()
        },
    )
    .await;
    assert!(other.is_gzip());
    let name = stage.create(CONFIGMAPS, 1_000).await;
    other.until(&name).await;
    stays.until(&name).await;
    drop((stays, other));
    stage.end().await;
}
