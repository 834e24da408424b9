//! A gateway that compares its cache with an API server that is written to all the time: equal states are equal.

use std::time::Duration;

use kube_fanout::apiserver::{self, Options};
use kube_fanout::config::ServeSettings;
use kube_fanout::shutdown::Drain;
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};

use crate::support::client::text;
use crate::support::gateway::Running;
use crate::support::history::PATIENCE;

/// The value of a metric of the configmaps' cache, summed over its other labels.
fn value(page: &str, name: &str) -> f64 {
    let lines = page.lines().filter(|line| {
        line.starts_with(&format!("{name}{{")) && line.contains("resource=\"configmaps\"")
    });
    lines
        .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
        .sum()
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
    let give_up_at = Instant::now() + PATIENCE;
    let page = loop {
        let page = text(gateway.admin, "/metrics").await;
        if value(&page, "kube_fanout_drift_comparisons_total") >= 5.0 {
            break page;
        }
        assert!(Instant::now() < give_up_at, "{page}");
        sleep(Duration::from_millis(20)).await;
    };
    assert!(value(&page, "kube_fanout_drift_objects_compared_total") > 3000.0);
    assert!(value(&page, "kube_fanout_upstream_events_received_total") > 0.0);
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
