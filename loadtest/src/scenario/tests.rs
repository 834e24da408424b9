//! Each scenario, at the smallest size that proves something: it finds no fault in the embedded API server, and finds the faults that a
//! relay or the server injects.

mod drain;
mod kubelets;
mod relay;
mod spoiler;

use std::net::SocketAddr;
use std::time::Duration;

use clap::Parser;
use kube_fanout_testkit::apiserver::{Apiserver, Options, start};
use tokio::net::TcpListener;

use crate::results::Results;
use crate::scenario::Scenario;
use crate::scenario::forwarded::Forwarded;
use crate::scenario::herd::RelistHerd;
use crate::scenario::herd::watch_list::WatchListHerd;
use crate::scenario::hostile::witness::{Operation, OperationRecord, Witness};
use crate::scenario::joiners::Joiners;
use crate::scenario::node_selectors::NodeSelectors;
use crate::scenario::overload::Overload;
use crate::scenario::quiet_end::QuietEnd;
use crate::scenario::slow::Slow;
use crate::scenario::steady::Steady;
use crate::scenario::transports::Transports;
use crate::target::Target;
use crate::writer::Churn;
use relay::{HoldBack, Relay};

/// The limit of one scenario, far more than a busy machine needs, so that a scenario that hangs fails its own test and not the whole run.
const DEADLINE: Duration = Duration::from_secs(600);

async fn server(options: Options) -> Apiserver {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    start(listener, options).unwrap()
}

async fn play<S: Scenario>(server: &Apiserver, arguments: &str) -> Results {
    play_at::<S>(server.address(), arguments).await
}

/// Plays a scenario against this server. The first of the arguments is the scenario's name.
async fn play_at<S: Scenario>(server: SocketAddr, arguments: &str) -> Results {
    let line = format!("{arguments} --target http://{server}");
    let scenario = S::try_parse_from(line.split_whitespace()).unwrap();
    let playing = tokio::time::timeout(DEADLINE, crate::scenario::play(&scenario));
    playing.await.unwrap().unwrap()
}

/// Fails if the results contain a fault, or the value of this row is less than `minimum`.
#[track_caller]
fn proves(results: &Results, row: &str, minimum: f64) {
    assert!(results.is_clean(), "{results}");
    let value = results.value(row, 0).unwrap_or(0.0);
    assert!(
        value >= minimum,
        "{row} is {value}, less than {minimum}\n{results}"
    );
}

/// Fails if the results contain a fault, or all watchers together had fewer events than there were. How many a run of a second has depends on
/// how busy the machine is.
#[track_caller]
fn at_least_the_reference(results: &Results) {
    let events = results.value("reference events", 0).unwrap_or(0.0);
    proves(results, "events verified", events.max(1.0));
}

#[tokio::test]
async fn bursts_of_every_size_arrive_whole_in_every_form() {
    for form in ["", "--http2", "--metadata"] {
        let server = server(Options::default()).await;
        let arguments = "quiet-end --watchers 4 --rounds 2 --writes 1,3 --sizes 100,70000";
        let results = play::<QuietEnd>(&server, &format!("{arguments} {form}")).await;
        proves(&results, "rounds", 8.0);
        proves(&results, "events verified", 4.0 * 16.0);
    }
}

#[tokio::test]
async fn each_nodes_watcher_sees_its_pods() {
    let server = server(Options::default()).await;
    let arguments = "node-selectors --watchers 20 --reference-watchers 2 --objects 40 --write-rate 200 --duration 0.4 --warm-up 0.05";
    let results = play::<NodeSelectors>(&server, arguments).await;
    proves(&results, "events verified", 2.0);
    // Each write of the second run is an event of one watcher.
    let value = |row: &str| results.value(row, 1).unwrap_or(0.0);
    assert!(value("writes") >= 1.0, "{results}");
    assert!(value("events verified") >= value("writes"), "{results}");
}

#[tokio::test]
async fn streamed_lists_are_complete_over_both_protocols() {
    for protocol in ["", "--streams-per-connection 4"] {
        let server = server(Options::default()).await;
        let arguments = "watch-list-herd --clients 8 --rounds 2 --objects 50 --object-size 600";
        let results = play::<WatchListHerd>(&server, &format!("{arguments} {protocol}")).await;
        proves(&results, "lists", 8.0);
        proves(&results, "items a list", 50.0);
    }
}

#[tokio::test]
async fn slow_watchers_catch_up_and_the_others_are_compared() {
    for protocol in ["", "--http2 --streams-per-connection 4"] {
        let server = server(Options::default()).await;
        let arguments = "slow --kind renews,never-reads,stalled-reconnecting --renews-every 0.3s --watchers 6 --write-rate 200 --objects 10 --duration 1.2 --warm-up 0.1";
        let results = play::<Slow>(&server, &format!("{arguments} {protocol}")).await;
        proves(&results, "events verified", 1.0);
        let of = |row: &str, column: usize| results.value(row, column).unwrap_or(0.0);
        let all = of("reference events", 0) * 6.0;
        assert_eq!(of("events verified", 0), all, "{results}");
        for column in [1, 3, 5] {
            let compared = results.value("p99 of the others / without the slow", column);
            assert!(compared.is_some(), "{results}");
        }
        for column in [1, 5] {
            assert!(of("streams begun anew", column) >= 1.0, "{results}");
        }
        assert!(of("streams begun anew", 3) < 1.0, "{results}");
    }
}

#[tokio::test]
async fn clients_that_come_and_go_end_with_the_servers_state() {
    let server = server(Options::default()).await;
    let arguments =
        "joiners --watchers 10 --write-rate 400 --objects 20 --duration 1 --warm-up 0.05";
    at_least_the_reference(&play::<Joiners>(&server, arguments).await);
}

#[tokio::test]
async fn clients_learn_of_every_write_by_each_transport() {
    let arguments = "transports --watchers 4 --write-rate 100 --objects 10 --duration 0.6 --warm-up 0.05 --every 0.1s";
    for (by, verified, leaves) in [
        ("watch", "events verified", false),
        ("watch --http2", "events verified", false),
        ("long-poll", "events verified", true),
        ("long-poll --http2", "events verified", true),
        ("poll", "lists verified", false),
        ("poll --http2", "lists verified", false),
    ] {
        let server = server(Options::default()).await;
        let results = play::<Transports>(&server, &format!("{arguments} --by {by}")).await;
        proves(&results, verified, 4.0);
        proves(&results, "latencies counted", 1.0);
        for row in ["bytes a client and second", "requests a client and second"] {
            assert!(results.value(row, 0).is_some(), "{by}: {row}: {results}");
        }
        let has_left = results.to_string().contains("clients: left: ");
        assert_eq!(has_left, leaves, "{by}: {results}");
    }
}

#[tokio::test]
async fn transports_that_do_not_exist_are_refused() {
    let server = server(Options::default()).await;
    for flags in [
        "--by websocket --http2",
        "--by websocket --gzip",
        "--by poll --every 0s",
    ] {
        let line = format!("transports --target http://{} {flags}", server.address());
        let scenario = Transports::try_parse_from(line.split_whitespace()).unwrap();
        assert!(crate::scenario::play(&scenario).await.is_err(), "{flags}");
    }
}

#[tokio::test]
async fn the_servers_own_churn_is_followed() {
    let options = Options {
        objects: vec!["configmaps=50".parse().unwrap()],
        object_len: 600,
        churn_per_second: 500,
        ..Options::default()
    };
    let server = server(options).await;
    let arguments = "steady --write-rate 0 --watchers 3 --path /api/v1/configmaps --duration 0.5 --warm-up 0.05";
    at_least_the_reference(&play::<Steady>(&server, arguments).await);
}

#[tokio::test]
async fn long_lists_are_complete() {
    let server = server(Options::default()).await;
    let arguments = "relist-herd --clients 2 --rounds 1 --objects 20 --object-size 50000";
    let results = play::<RelistHerd>(&server, arguments).await;
    proves(&results, "items a list", 20.0);
    proves(&results, "MiB received", 1.8);
}

#[tokio::test]
async fn both_ways_to_a_server_are_measured_alone_and_under_load() {
    let server = server(Options::default()).await;
    let results = play::<Forwarded>(&server, "forwarded --samples 3 --load 50").await;
    for column in [0, 1] {
        for figure in ["GET, direct, p50, ms", "watch, forwarded, p99, ms"] {
            assert!(results.value(figure, column) > Some(0.0), "{figure}");
        }
    }
    assert!(results.value("requests a second beside", 1).is_some());
}

#[tokio::test]
async fn a_server_within_its_capacity_is_not_overloaded() {
    let server = server(Options::default()).await;
    let arguments = "overload --watchers 10 --listers 4 --late-watchers 3 --ballast-objects 50 --write-rate 50 --objects 10 --duration 1";
    let results = play::<Overload>(&server, arguments).await;
    proves(&results, "lists complete", 1.0);
    proves(&results, "watchers that got events", 1.0);
}

/// Waits for two watches, so that the lists before them do not meet the fault, and then injects it. Bounded by the scenario's own deadline.
async fn inject_when_watched(server: &Apiserver, order: &str) {
    while server.watch_count() < 2 {
        tokio::task::yield_now().await;
    }
    server.order(serde_json::from_str(order).unwrap()).unwrap();
}

#[tokio::test]
async fn shed_requests_are_counted_and_sent_again() {
    let server = server(Options::default()).await;
    let arguments = "overload --watchers 5 --listers 4 --late-watchers 3 --ballast-objects 20 --write-rate 50 --objects 10 --duration 1";
    let order =
        r#"{"fault":{"refuse":{"code":429}},"verb":"list","resource":"configmaps","count":3}"#;
    let (results, ()) = tokio::join!(
        play::<Overload>(&server, arguments),
        inject_when_watched(&server, order)
    );
    proves(&results, "lists shed with 429", 3.0);
}

#[tokio::test]
async fn a_streamed_list_that_is_cut_or_garbled_is_a_fault() {
    for fault in ["\"garbageFrame\"", r#"{"cutWatch":{"afterBytes":900}}"#] {
        let server = server(Options::default()).await;
        let order = format!(r#"{{"fault":{fault},"resource":"configmaps"}}"#);
        server.order(serde_json::from_str(&order).unwrap()).unwrap();
        let arguments = "watch-list-herd --clients 4 --rounds 1 --objects 20 --object-size 600";
        let results = play::<WatchListHerd>(&server, arguments).await;
        assert!(!results.is_clean(), "{fault}\n{results}");
    }
}

/// Plays a scenario through a relay that holds back the end of streams; its reference is the server itself.
async fn play_behind<S: Scenario>(held: HoldBack, arguments: &str) -> Results {
    let server = server(Options::default()).await;
    let relay = Relay::before(server.address(), held).await;
    let reference = format!("--reference http://{}", server.address());
    play_at::<S>(relay.address, &format!("{arguments} {reference}")).await
}

/// Fails unless the results contain a fault with this text.
#[track_caller]
fn finds(results: &Results, fault: &str) {
    let text = results.to_string();
    let mut faults = text.lines().filter(|line| line.starts_with("FAULT"));
    assert!(faults.any(|line| line.contains(fault)), "{text}");
}

const ONE_WRITE: &str = "quiet-end --watchers 3 --rounds 1 --writes 1 --sizes 1000";

#[tokio::test]
async fn a_missing_last_event_is_found_in_every_form() {
    for form in ["", "--http2", "--metadata"] {
        let arguments = format!("{ONE_WRITE} {form}");
        let results = play_behind::<QuietEnd>(HoldBack::UntilNext, &arguments).await;
        finds(&results, "behind at the end: 1 × 1000 B: in 1 of 1 rounds");
        assert_eq!(results.value("rounds with watchers behind", 0), Some(1.0));
    }
}

#[tokio::test]
async fn one_byte_of_a_long_event_that_is_changed_is_found() {
    let server = server(Options::default()).await;
    let relay = Relay::that_garbles(server.address()).await;
    let arguments = "quiet-end --watchers 3 --rounds 1 --writes 3 --sizes 70000";
    let reference = format!("--reference http://{}", server.address());
    let results = play_at::<QuietEnd>(relay.address, &format!("{arguments} {reference}")).await;
    finds(&results, "differs from the reference's");
}

#[tokio::test]
async fn watchers_that_start_at_different_times_get_all_later_events() {
    for protocol in ["", "--http2 --streams-per-connection 8"] {
        let server = server(Options::default()).await;
        let arguments = "steady --mixed --watchers 30 --write-rate 200 --objects 10 --duration 0.4 --warm-up 0.05";
        let results = play::<Steady>(&server, &format!("{arguments} {protocol}")).await;
        let events = |row: &str| results.value(row, 0).unwrap_or(0.0);
        proves(&results, "events verified", 1.0);
        // Watchers that start later have fewer events: the sum is less than if all started at the first version.
        assert!(
            events("events verified") < events("reference events") * 30.0,
            "{results}"
        );
    }
}

#[tokio::test]
async fn one_write_in_ten_goes_through_the_other_server() {
    let server = server(Options::default()).await;
    let target = Target::new(&format!("http://{}", server.address()), None, None).unwrap();
    // This server closes every connection.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closing_address = listener.local_addr().unwrap();
    let closing = tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    let churn = Churn {
        object_len: 600,
        lanes: 1,
        also: Some(Target::new(&format!("http://{closing_address}"), None, None).unwrap()),
        ..Churn::new(&target, "/api/v1/namespaces/default/configmaps", "cm")
    };
    churn.prepare().await.unwrap();
    let written = churn.burst(40).await;
    assert_eq!((written.versions.len(), written.failed), (36, 4));
    closing.abort();
}

#[tokio::test]
async fn an_event_that_only_a_timer_flushes_counts_as_behind() {
    let later = HoldBack::For(Duration::from_millis(1_500));
    let results = play_behind::<QuietEnd>(later, ONE_WRITE).await;
    finds(&results, "behind at the end: 1 × 1000 B");
}

#[tokio::test]
async fn an_event_that_needs_a_new_stream_is_a_lost_stream() {
    let cut = HoldBack::ThenCut(Duration::from_millis(50));
    let results = play_behind::<QuietEnd>(cut, ONE_WRITE).await;
    finds(&results, "1 streams of readers were ended");
}

#[tokio::test]
async fn a_missing_last_event_of_steady_churn_is_found() {
    let arguments = "steady --watchers 3 --write-rate 50 --objects 5 --duration 0.3 --warm-up 0.05";
    let results = play_behind::<Steady>(HoldBack::UntilNext, arguments).await;
    finds(&results, "behind at the end: 3 watchers");
}

#[tokio::test]
async fn a_server_that_ends_its_watches_does_not_pass() {
    let server = server(Options::default()).await;
    let arguments =
        "steady --watchers 4 --write-rate 100 --objects 10 --duration 0.5 --warm-up 0.05";
    let order = r#"{"fault":"endWatches","resource":"configmaps"}"#;
    let (results, ()) = tokio::join!(
        play::<Steady>(&server, arguments),
        inject_when_watched(&server, order)
    );
    finds(&results, "streams of readers were ended");
    assert_eq!(results.value("faulty watchers", 0), Some(0.0), "{results}");
}

#[tokio::test]
async fn a_run_below_its_rate_is_invalid() {
    let server = server(Options::default()).await;
    let arguments =
        "steady --watchers 1 --write-rate 1000000 --objects 10 --duration 0.3 --warm-up 0.05";
    let results = play::<Steady>(&server, arguments).await;
    let text = results.to_string();
    assert!(results.is_clean(), "{text}");
    assert!(text.contains("\nINVALID: target: "), "{text}");
    // Nearly all writes were sent later than they were due.
    let p99 = |row: &str| results.value(row, 0).unwrap();
    assert!(
        p99("latency from due p99, ms") > p99("latency p99, ms"),
        "{text}"
    );
}

#[tokio::test]
async fn a_witness_records_missing_events_and_ended_streams() {
    for (held, missing, ended) in [
        (HoldBack::UntilNext, 1, 0),
        (HoldBack::ThenCut(Duration::from_millis(10)), 0, 1),
    ] {
        let server = server(Options::default()).await;
        let relay = Relay::before(server.address(), held).await;
        let target = Target::new(&format!("http://{}", relay.address), None, None).unwrap();
        let path = "/api/v1/namespaces/default/configmaps";
        let witness = Witness::begin(&target, path).await.unwrap();
        let is_ended_stream = |record: &&OperationRecord| {
            record.operation == Operation::Event && record.duration.is_none()
        };
        // Two writes, so that an event was held back, and the end of the stream if it is cut. Bounded by the test's runner.
        let has_happened = |records: &[OperationRecord]| {
            let writes = records
                .iter()
                .filter(|one| one.operation == Operation::Write);
            writes.count() >= 2 && records.iter().filter(is_ended_stream).count() >= ended
        };
        while !has_happened(&witness.records()) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let seen = witness.finish().await;
        assert_eq!(seen.missing, missing, "{seen:?}");
        let streams = seen.done.iter().filter(is_ended_stream).count();
        assert_eq!(streams, ended, "{seen:?}");
        let late = seen
            .done
            .iter()
            .filter(|record| record.operation == Operation::Event);
        let late = late.filter(|record| record.duration.is_some() && record.failure.is_some());
        assert_eq!(late.count(), missing, "{seen:?}");
    }
}
