//! A gateway that compares its cache with an API server that is written to all the time: equal states are equal.

use std::net::SocketAddr;
use std::time::Duration;

use kube_fanout::config::ServeSettings;
use kube_fanout::shutdown::Drain;
use kube_fanout_testkit::apiserver::{self, Options};
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};

use crate::support::PATIENCE;
use crate::support::client::{listed, text};
use crate::support::gateway::Running;

const COMPARISONS: &str = "kube_fanout_drift_comparisons_total";

/// The value of a metric of the configmaps' cache, summed over its other labels.
fn value(page: &str, name: &str) -> f64 {
    let lines = page.lines().filter(|line| {
        line.starts_with(&format!("{name}{{")) && line.contains("resource=\"configmaps\"")
    });
    lines
        .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
        .sum()
}

/// The metrics once the cache was compared this often.
async fn compared(admin: SocketAddr, times: f64) -> String {
    let give_up_at = Instant::now() + PATIENCE;
    loop {
        let page = text(admin, "/metrics").await;
        if value(&page, COMPARISONS) >= times {
            return page;
        }
        assert!(Instant::now() < give_up_at, "{page}");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_cache_under_constant_writes_never_differs_from_upstream() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = Options {
        // Three pages.
        objects: vec!["configmaps=1200".parse().unwrap()],
        churn_per_second: 500,
        ..Options::default()
    };
    let apiserver = apiserver::start(listener, options).unwrap();
    let upstream = format!("http://{}", apiserver.address()).parse().unwrap();
    let settings = ServeSettings {
        drift_interval: Duration::from_millis(20),
        ..ServeSettings::embedded(upstream)
    };
    let gateway = Running::start(settings, Drain::new()).await;
    text(gateway.address, "/api/v1/configmaps?limit=1").await;
    let page = compared(gateway.admin, 5.0).await;
    assert!(value(&page, "kube_fanout_drift_objects_compared_total") > 3000.0);
    assert!(value(&page, "kube_fanout_upstream_events_received_total") > 0.0);
    // After the last write everybody has everything, and the cache is compared as a whole once more.
    apiserver.set_churn(0);
    let expected = listed(apiserver.address()).await;
    assert_eq!(listed(gateway.address).await, expected);
    let before = value(&page, COMPARISONS);
    let page = compared(gateway.admin, before + 2.0).await;
    assert_eq!(listed(gateway.address).await, expected);
    assert_eq!(
        value(&page, "kube_fanout_upstream_contradictions_total"),
        0.0,
        "{page}"
    );
    assert_eq!(
        value(&page, "kube_fanout_upstream_lists_total"),
        1.0,
        "{page}"
    );
}
