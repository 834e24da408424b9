//! Which scrapes belong together, and what their counters say.

use super::*;

const STARTED: f64 = 1_795_941_676.56;

/// A scrape of a server: 100 watches of pods, and counters that are `count` times those of one step.
fn file(name: &str, started_at: f64, time: f64, count: f64) -> ScrapeFile {
    let pods = ResourceSeries {
        watches: 100.0,
        watch_requests: 30.0 * count,
        list_requests: 6.0 * count,
        events: 6_000.0 * count,
        event_bytes: 600_000.0 * count,
        initial_events: 60.0 * count,
        list_bytes: 1_200.0 * count,
        changes: 600.0 * count,
        objects: Some(50.0),
    };
    let pods = (GroupResource::new("", "pods").unwrap(), pods);
    let mut scrape = Scrape::default();
    scrape.started_at = Some(started_at);
    scrape.cpu_seconds = Some(300.0 * count);
    scrape.collected_at = Some(time - 60.0);
    scrape.resources = [pods].into();
    ScrapeFile {
        name: name.to_owned(),
        modified_at: Some(time),
        scrape,
    }
}

#[test]
fn counters_become_rates_and_servers_are_summed() {
    let before = vec![file("a0", STARTED, 0.0, 1.0), file("b0", 7.0, 0.0, 1.0)];
    let after = vec![file("b1", 7.0, 600.0, 3.0), file("a1", STARTED, 600.0, 2.0)];
    let rates = ServerRates::new(before, after, None);
    assert_eq!(rates.notes, Vec::<String>::new());
    assert_eq!((rates.server_count, rates.window_seconds), (2, 600.0));
    // One server grew by one step in 600 s, the other one by two.
    assert_eq!(rates.cpu, 1.5);
    let pods = rates.resources[&GroupResource::new("", "pods").unwrap()];
    let expected = ResourceRates {
        watches: 200.0,
        watch_requests: 0.15,
        list_requests: 0.03,
        events: 30.0,
        event_bytes: 3_000.0,
        initial_events: 0.3,
        list_bytes: 6.0,
        // Each server has all changes: not their sum.
        changes: 2.0,
        objects: Some(50.0),
    };
    let close = |one: f64, other: f64| (one - other).abs() < 1e-9;
    assert!(close(pods.watch_requests, expected.watch_requests));
    assert!(close(pods.list_requests, expected.list_requests));
    assert!(close(pods.initial_events, expected.initial_events));
    let rounded = ResourceRates {
        watch_requests: expected.watch_requests,
        list_requests: expected.list_requests,
        initial_events: expected.initial_events,
        ..pods
    };
    assert_eq!(rounded, expected);
}

#[track_caller]
fn check_left_out(rates: &ServerRates, words: &[&str]) {
    assert_eq!(rates.server_count, 0);
    assert_eq!(rates.notes.len(), words.len(), "{:?}", rates.notes);
    for (note, words) in rates.notes.iter().zip(words) {
        assert!(note.contains(words), "{note}");
    }
}

#[test]
fn a_restarted_server_is_left_out_and_named() {
    let before = vec![file("a0", STARTED, 0.0, 1.0)];
    let after = vec![file("a1", STARTED + 300.0, 600.0, 2.0)];
    let rates = ServerRates::new(before, after, None);
    check_left_out(
        &rates,
        &[
            "a0 is left out: no file of --after",
            "a1 is left out: no file of --before",
        ],
    );
}

#[test]
fn scrapes_in_the_wrong_order_are_left_out() {
    let rates = ServerRates::new(
        vec![file("a1", STARTED, 600.0, 2.0)],
        vec![file("a0", STARTED, 0.0, 1.0)],
        None,
    );
    check_left_out(&rates, &["not later than the first"]);
    let rates = ServerRates::new(
        vec![file("a1", STARTED, 600.0, 2.0)],
        vec![file("a0", STARTED, 0.0, 1.0)],
        Some(Duration::from_secs(600)),
    );
    check_left_out(
        &rates,
        &["process_cpu_seconds_total went back from 600 to 300"],
    );
}

#[test]
fn a_counter_that_is_gone_leaves_the_pair_out() {
    let mut after = file("a1", STARTED, 600.0, 2.0);
    after.scrape.resources.clear();
    let rates = ServerRates::new(vec![file("a0", STARTED, 0.0, 1.0)], vec![after], None);
    check_left_out(&rates, &["apiserver_request_total went back from 30 to 0"]);
    assert!(rates.notes[0].ends_with("of pods"), "{:?}", rates.notes);
    assert!(rates.resources.is_empty());
}

#[test]
fn two_scrapes_of_one_server_on_one_side_are_named() {
    let before = vec![file("a0", STARTED, 0.0, 1.0), file("b0", STARTED, 1.0, 1.0)];
    let rates = ServerRates::new(before, vec![file("a1", STARTED, 600.0, 2.0)], None);
    assert_eq!(rates.server_count, 1);
    assert!(
        rates.notes[0].contains("same server as a0"),
        "{:?}",
        rates.notes
    );
}

#[test]
fn the_time_between_scrapes_is_found_where_it_can_be() {
    let span = |before: &ScrapeFile, after: &ScrapeFile, window| {
        let mut notes = Vec::new();
        let seconds = seconds_between(before, after, window, &mut notes);
        (seconds, notes.len())
    };
    let before = file("a0", STARTED, 0.0, 1.0);
    let mut after = file("a1", STARTED, 900.0, 2.0);
    assert_eq!(span(&before, &after, None), (Ok(900.0), 0));
    let given = Some(Duration::from_secs(1_200));
    assert_eq!(span(&before, &after, given), (Ok(1_200.0), 0));
    // Copies of the files were made at the same time.
    after.modified_at = Some(2.0);
    assert_eq!(span(&before, &after, None), (Ok(900.0), 1));
    after.scrape.collected_at = None;
    assert_eq!(span(&before, &after, None), (Ok(2.0), 1));
    after.modified_at = None;
    assert!(span(&before, &after, None).0.is_err());
}
