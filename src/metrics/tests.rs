//! Tests of the page that a scraper gets: series, their removal, the documentation, and Prometheus' own checker.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use super::*;

const PODS: ResourceLabels<'static> = ResourceLabels {
    group: "",
    version: "v1",
    resource: "pods",
    encoding: "json",
};

/// Metrics with a series in every family.
fn full() -> Metrics {
    let metrics = Metrics::new().unwrap();
    let _ = (
        metrics.upstream(PODS),
        metrics.endpoint("10.0.0.1:6443"),
        metrics.tables(PODS),
        metrics.cache(PODS),
        metrics.checkpoint(PODS),
        metrics.drift(PODS),
        metrics.taken_handover(PODS),
        metrics.listener(),
        metrics.passthrough(),
    );
    metrics.downstream(PODS).requests.inc(VerbLabel::List, 200);
    metrics
}

#[track_caller]
fn check_page(metrics: &Metrics, line: &str) {
    let page = metrics.page().unwrap();
    assert!(page.lines().any(|found| found == line), "{line}\n{page}");
}

#[test]
fn a_sharded_counter_sums_what_every_thread_added() {
    let metrics = full();
    let counter = metrics.downstream(PODS).watch_events;
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..1_000).for_each(|_| counter.add(2)));
        }
    });
    assert_eq!(counter.sum(), 16_000);
    check_page(
        &metrics,
        r#"kube_fanout_watch_events_total{encoding="json",group="",resource="pods",version="v1"} 16000"#,
    );
}

#[test]
fn a_sharded_histogram_counts_each_duration_up_to_its_bound() {
    let metrics = full();
    let lag = metrics.downstream(PODS).lag;
    for nanos in [0, 100_000, 100_001, 10_000_000_000, 10_000_000_001] {
        lag.observe_many(Duration::from_nanos(nanos), 1);
    }
    let line = |series: &str, value: &str| {
        format!("kube_fanout_watch_events_lag_seconds_{series} {value}")
    };
    let labels = r#"encoding="json",group="",resource="pods",version="v1""#;
    for (bound, count) in [
        ("0.0001", "2"),
        ("0.00025", "3"),
        ("10", "4"),
        ("+Inf", "5"),
    ] {
        let series = format!(r#"bucket{{{labels},le="{bound}"}}"#);
        check_page(&metrics, &line(&series, count));
    }
    check_page(&metrics, &line(&format!("count{{{labels}}}"), "5"));
    check_page(&metrics, &line(&format!("sum{{{labels}}}"), "20.000200002"));
}

#[test]
fn what_an_ended_cache_said_last_is_not_shown() {
    let metrics = full();
    metrics.upstream(PODS).connected.set(1);
    metrics.cache(PODS).objects.set(7);
    metrics.forget(PODS);
    let page = metrics.page().unwrap();
    for gone in [
        "upstream_connected{",
        "cache_objects{",
        "ring_oldest_age_seconds{",
        "checkpoint_bytes{",
    ] {
        assert!(!page.contains(gone), "{gone}");
    }
    assert!(page.contains("upstream_events_received_total{"));
}

/// Number of lines of the page about a resource.
fn lines_of(metrics: &Metrics, resource: &str) -> usize {
    let label = format!("resource=\"{resource}\"");
    let page = metrics.page().unwrap();
    page.lines().filter(|line| line.contains(&label)).count()
}

/// Creates every series that a resource can have.
fn use_everything(metrics: &Metrics, labels: ResourceLabels<'_>) -> DownstreamMetrics {
    let _ = (metrics.upstream(labels), metrics.tables(labels));
    let _ = (
        metrics.cache(labels),
        metrics.checkpoint(labels),
        metrics.drift(labels),
    );
    let _ = metrics.taken_handover(labels);
    let downstream = metrics.downstream(labels);
    for verb in VerbLabel::ALL {
        for code in 200..600 {
            downstream.requests.inc(*verb, code);
        }
    }
    downstream
}

#[tokio::test(start_paused = true)]
async fn nothing_is_left_of_a_resource_that_was_not_used_for_ten_minutes() {
    let metrics = Metrics::new().unwrap();
    let minutes = |count: u64| Duration::from_secs(count * 60);
    let [kept, gone, watched, tabled] = ["kept", "gone", "watched", "tabled"];
    let labels = |resource| ResourceLabels { resource, ..PODS };
    for resource in [kept, gone] {
        let protobuf = ResourceLabels {
            encoding: "protobuf",
            ..labels(resource)
        };
        let _ = use_everything(&metrics, labels(resource));
        let _ = use_everything(&metrics, protobuf);
    }
    let watches = use_everything(&metrics, labels(watched)).watches;
    watches.inc();
    let _ = use_everything(&metrics, labels(tabled));
    metrics.tables(labels(tabled)).watches.inc();
    let whole = lines_of(&metrics, kept);
    assert!(whole < 2 * SERIES_MAX, "{whole} lines of a resource");

    let forget_unused = || metrics.forget_unused(|labels| labels.resource == kept);
    let remaining = || [kept, gone, watched, tabled].map(|resource| lines_of(&metrics, resource));
    let one = lines_of(&metrics, watched);
    forget_unused();
    tokio::time::advance(minutes(10) - Duration::from_millis(1)).await;
    forget_unused();
    assert_eq!(remaining(), [whole, whole, one, one]);
    tokio::time::advance(Duration::from_millis(1)).await;
    forget_unused();
    assert_eq!(remaining(), [whole, 0, one, one]);

    // The ten minutes begin when the last watch ends, and begin again when the resource is used.
    watches.dec();
    metrics.tables(labels(tabled)).watches.dec();
    forget_unused();
    tokio::time::advance(minutes(9)).await;
    let _ = metrics.cache(labels(watched));
    tokio::time::advance(minutes(1)).await;
    forget_unused();
    assert_eq!(remaining(), [whole, 0, one, 0]);
    // A resource that is used again has new series that start at zero.
    metrics.downstream(labels(gone)).watch_events.add(7);
    check_page(
        &metrics,
        r#"kube_fanout_watch_events_total{encoding="json",group="",resource="gone",version="v1"} 7"#,
    );
}

#[tokio::test(start_paused = true)]
async fn to_look_for_unused_resources_adds_nothing_to_the_page() {
    let metrics = Metrics::new().unwrap();
    let labels = |resource| ResourceLabels { resource, ..PODS };
    let _ = metrics.upstream(labels("cached"));
    let _ = metrics.tables(labels("tabled"));
    let lines = || ["cached", "tabled"].map(|resource| lines_of(&metrics, resource));
    let before = lines();
    metrics.forget_unused(|_| false);
    assert_eq!(lines(), before);
}

/// Maximum number of lines of the page for one resource in one encoding; docs/METRICS.md states it.
const SERIES_MAX: usize = 200;

#[test]
fn asking_twice_gives_the_same_series() {
    let metrics = full();
    metrics.upstream(PODS).events_received.add(1);
    metrics.upstream(PODS).events_received.add(1);
    metrics.upstream(PODS).relists.inc(RelistLabel::Expired);
    metrics.upstream(PODS).relists.inc(RelistLabel::Expired);
    check_page(
        &metrics,
        r#"kube_fanout_upstream_events_received_total{encoding="json",group="",resource="pods",version="v1"} 2"#,
    );
    check_page(
        &metrics,
        r#"kube_fanout_upstream_relists_total{encoding="json",group="",reason="expired",resource="pods",version="v1"} 2"#,
    );
}

#[test]
fn codes_outside_the_closed_set_are_counted_together() {
    let metrics = full();
    let requests = metrics.downstream(PODS).requests;
    requests.inc(VerbLabel::Watch, 200);
    requests.inc(VerbLabel::Watch, 418);
    requests.inc(VerbLabel::Watch, 599);
    let line = |code: &str, count: u8| {
        format!(
            r#"kube_fanout_request_total{{code="{code}",encoding="json",group="",resource="pods",verb="WATCH",version="v1"}} {count}"#
        )
    };
    check_page(&metrics, &line("200", 1));
    check_page(&metrics, &line("other", 2));
}

#[test]
fn the_build_is_named() {
    let line = format!(
        r#"kube_fanout_build_info{{commit="unknown",version="{}"}} 1"#,
        env!("CARGO_PKG_VERSION")
    );
    check_page(&full(), &line);
}

#[track_caller]
fn check_label<L: Label + std::fmt::Debug>() {
    let words: BTreeSet<&str> = L::ALL.iter().map(|label| label.as_str()).collect();
    assert_eq!(words.len(), L::ALL.len(), "{:?}", L::ALL);
}

#[test]
fn the_values_of_a_label_differ() {
    check_label::<VerbLabel>();
    check_label::<AuthRefusal>();
    check_label::<RelistLabel>();
    check_label::<Contradiction>();
    check_label::<UpstreamWatchEnd>();
    check_label::<FrameRejectionLabel>();
    check_label::<GiveUpReason>();
    check_label::<CacheState>();
    check_label::<TaskKind>();
    check_label::<ClientWatchEnd>();
    check_label::<BadRequest>();
    check_label::<ConnectionFailure>();
    check_label::<PassthroughError>();
    check_label::<RebalanceOutcome>();
    assert!(
        VerbLabel::ALL
            .iter()
            .enumerate()
            .all(|(place, verb)| *verb as usize == place)
    );
}

/// `name → (type, labels)` of the gateway's own families.
fn registered() -> BTreeMap<String, (String, String)> {
    full()
        .gather()
        .iter()
        .filter(|family| family.name().starts_with(PREFIX))
        .map(|family| {
            let kind = format!("{:?}", family.get_field_type()).to_lowercase();
            let labels: Vec<String> = family.get_metric()[0]
                .get_label()
                .iter()
                .map(|label| label.name().to_owned())
                .collect();
            (family.name().to_owned(), (kind, labels.join(", ")))
        })
        .collect()
}

#[test]
fn the_documentation_lists_every_metric_with_type_and_labels() {
    let text = include_str!("../../docs/METRICS.md");
    let documented: BTreeMap<String, (String, String)> = text
        .lines()
        .filter_map(|line| line.strip_prefix("| `kube_fanout_"))
        .map(|row| {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let mut labels: Vec<&str> = cells[2].split(',').map(str::trim).collect();
            labels.sort_unstable();
            let name = format!("kube_fanout_{}", cells[0].trim_end_matches('`'));
            (name, (cells[1].to_owned(), labels.join(", ")))
        })
        .collect();
    assert_eq!(documented, registered());
}

#[test]
fn the_page_is_what_prometheus_expects() {
    let page = full().page().unwrap();
    let installed = concat!(env!("CARGO_MANIFEST_DIR"), "/target/tools/bin/promtool");
    let program = if Path::new(installed).exists() {
        installed
    } else {
        "promtool"
    };
    let mut checker = Command::new(program)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool is missing: install Prometheus, or run .ci/setup.sh test");
    checker
        .stdin
        .take()
        .unwrap()
        .write_all(page.as_bytes())
        .unwrap();
    let output = checker.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
