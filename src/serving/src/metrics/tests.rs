//! Tests of the page that a scraper gets: series, their removal, the documentation, and Prometheus' own checker.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use prometheus::proto::MetricFamily;
use strum::VariantArray;

use super::*;
use crate::protocol::request::RequestInfo;
use crate::resource::Gvr;
use crate::upstream::driver::{FrameRejection, UpstreamWatchEnd};
use crate::upstream::reflector::RelistReason;

const PODS: ResourceLabels<'static> = ResourceLabels {
    group: "",
    version: "v1",
    resource: "pods",
    encoding: "json",
};

/// Metrics with a series in every family.
fn full() -> Metrics {
    let metrics = Metrics::new().unwrap();
    let _ = metrics.serving().of_rule("nodes");
    let pods = Gvr::new("", "v1", "pods");
    let _ = metrics.shadow().of(&pods, VerbLabel::List);
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
    let watch = http::Request::get("/api/v1/pods?watch=1").body(()).unwrap();
    let info = RequestInfo::of(&watch);
    let answer = ForwardedAnswer {
        code: 200,
        is_own: false,
        started: std::time::Instant::now(),
        is_long_running: true,
    };
    let labels = ForwardedLabels::of(&watch, &info);
    drop(metrics.forwarded().answered(&labels, answer, |_| true));
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
        "cache_history_seconds{",
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
    for verb in VerbLabel::VARIANTS {
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
const SERIES_MAX: usize = 220;

#[test]
fn asking_twice_gives_the_same_series() {
    let metrics = full();
    metrics.upstream(PODS).events_received.add(1);
    metrics.upstream(PODS).events_received.add(1);
    metrics.upstream(PODS).relists.inc(RelistReason::Expired);
    metrics.upstream(PODS).relists.inc(RelistReason::Expired);
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
    let words: BTreeSet<&str> = L::VARIANTS.iter().map(|label| label.as_str()).collect();
    assert_eq!(words.len(), L::VARIANTS.len(), "{:?}", L::VARIANTS);
}

#[test]
fn the_values_of_a_label_differ() {
    check_label::<VerbLabel>();
    check_label::<AuthRefusal>();
    check_label::<RelistReason>();
    check_label::<Contradiction>();
    check_label::<UpstreamWatchEnd>();
    check_label::<FrameRejection>();
    check_label::<GiveUpReason>();
    check_label::<CacheState>();
    check_label::<TaskKind>();
    check_label::<WatchEnd>();
    check_label::<BadRequest>();
    check_label::<ConnectionFailure>();
    check_label::<PassthroughError>();
    check_label::<RebalanceOutcome>();
    check_label::<ReadinessLabel>();
    assert!(
        VerbLabel::VARIANTS
            .iter()
            .enumerate()
            .all(|(place, verb)| *verb as usize == place)
    );
}

/// A row of docs/METRICS.md, or a registered family as such a row.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    kind: String,
    labels: BTreeSet<String>,
    /// The meaning, or the help text with which it begins.
    meaning: String,
}

type Rows = BTreeMap<String, Row>;

/// The gateway's own families.
fn registered() -> Rows {
    let row = |family: &MetricFamily| Row {
        kind: format!("{:?}", family.get_field_type()).to_lowercase(),
        labels: family.get_metric()[0]
            .get_label()
            .iter()
            .map(|label| label.name().to_owned())
            .collect(),
        meaning: family.help().trim_end_matches('.').to_owned(),
    };
    full()
        .gather()
        .iter()
        .filter(|family| family.name().starts_with(PREFIX))
        .map(|family| (family.name().to_owned(), row(family)))
        .collect()
}

fn documented(page: &str) -> Rows {
    let rows = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `kube_fanout_"));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let labels = cells[2].split(',').map(|label| label.trim().to_owned());
        let name = format!("kube_fanout_{}", cells[0].trim_end_matches('`'));
        let row = Row {
            kind: cells[1].to_owned(),
            labels: labels.filter(|label| !label.is_empty()).collect(),
            meaning: cells[3].to_owned(),
        };
        (name, row)
    })
    .collect()
}

/// What differs between the page and the registered families.
fn differences(page: &Rows, families: &Rows) -> Vec<String> {
    let mut found = Vec::new();
    for name in page.keys().filter(|name| !families.contains_key(*name)) {
        found.push(format!("{name}: no such metric"));
    }
    for (name, family) in families {
        let Some(row) = page.get(name) else {
            found.push(format!("{name}: no row; its help is {:?}", family.meaning));
            continue;
        };
        if row.kind != family.kind {
            found.push(format!("{name}: the type is {}", family.kind));
        }
        if row.labels != family.labels {
            found.push(format!("{name}: the labels are {:?}", family.labels));
        }
        let plain = row.meaning.replace('`', "");
        let rest = plain.strip_prefix(&family.meaning.replace('`', ""));
        let ends = |rest: &str| rest.is_empty() || rest.starts_with(['.', ',', ';', ':', ' ']);
        if !rest.is_some_and(ends) {
            found.push(format!("{name}: begin with {:?}", family.meaning));
        }
    }
    found
}

#[test]
fn the_documentation_lists_every_metric_with_type_labels_and_help() {
    let page = documented(include_str!("../../../../docs/METRICS.md"));
    assert_eq!(differences(&page, &registered()), Vec::<String>::new());
}

#[test]
fn a_wrong_row_of_the_documentation_is_found() {
    let right = "| `kube_fanout_bad_requests_total` | counter | reason | Requests refused because of an error in them, by reason; more |";
    let found = |row: &str| {
        let mut families = registered();
        families.retain(|name, _| name == "kube_fanout_bad_requests_total");
        differences(&documented(row), &families)
    };
    assert_eq!(found(right), Vec::<String>::new());
    for (from, to, said) in [
        (
            "bad_requests",
            "worse_requests",
            "worse_requests_total: no such metric",
        ),
        (
            "bad_requests",
            "worse_requests",
            "bad_requests_total: no row",
        ),
        ("counter", "gauge", "the type is counter"),
        ("reason |", "reason, code |", "the labels are {\"reason\"}"),
        ("refused", "accepted", "begin with \"Requests refused"),
        ("by reason", "by reasons", "begin with \"Requests refused"),
    ] {
        let found = found(&right.replacen(from, to, 1));
        assert!(found.iter().any(|line| line.contains(said)), "{found:?}");
    }
}

/// Labels whose values are not a closed set of words, or are verbs and codes of HTTP.
const OPEN_LABELS: &[&str] = &[
    "group",
    "version",
    "resource",
    "subresource",
    "encoding",
    "endpoint",
    "rule",
    "commit",
    "verb",
    "code",
];

/// The words in backticks of a metric's rows: its own, and those that list the values of its labels.
fn words_of(page: &str, name: &str) -> BTreeSet<String> {
    let short = format!("`{}`", name.trim_start_matches("kube_fanout_"));
    let full = format!("`{name}`");
    let names = |row: &str| {
        row.split('|')
            .nth(1)
            .is_some_and(|cell| cell.contains(&short) || cell.contains(&full))
    };
    let rows = page
        .lines()
        .filter(|line| line.starts_with('|') && names(line));
    rows.flat_map(|row| row.split('`').skip(1).step_by(2))
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_documentation_lists_every_value_of_a_closed_label() {
    let page = include_str!("../../../../docs/METRICS.md");
    let mut missing = Vec::new();
    let families = full().gather();
    for family in families
        .iter()
        .filter(|family| family.name().starts_with(PREFIX))
    {
        let words = words_of(page, family.name());
        let labels = family
            .get_metric()
            .iter()
            .flat_map(|metric| metric.get_label());
        let closed = labels.filter(|label| !OPEN_LABELS.contains(&label.name()));
        for label in closed.filter(|label| !words.contains(label.value())) {
            missing.push(format!(
                "{}: {}={}",
                family.name(),
                label.name(),
                label.value()
            ));
        }
    }
    missing.dedup();
    assert_eq!(missing, Vec::<String>::new());
    assert!(!words_of(page, "kube_fanout_bad_requests_total").contains("nonsense"));
}

#[test]
fn the_page_is_what_prometheus_expects() {
    let page = full().page().unwrap();
    let installed = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../target/tools/bin/promtool"
    );
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
