//! What counts for how long, and what the bounds leave out.

use super::super::client::CredentialKind;
use super::*;

fn read(id: &str, progress: ReadProgress, is_watch: bool, received_at: f64) -> AuditedRead {
    AuditedRead {
        id: id.into(),
        progress,
        is_watch,
        client: AuditedClient::new("alice", CredentialKind::Token, "informer/v1"),
        token: Some("JTI=1".into()),
        node: Some("n1".into()),
        is_in_pod: true,
        resource: GroupResource::new("", "pods").unwrap(),
        scope: WatchScope::Cluster,
        namespace: "".into(),
        name: "".into(),
        is_consistent: false,
        is_forwarded: false,
        is_refused: false,
        received_at,
        stage_at: received_at,
    }
}

fn started(id: &str, at: f64) -> AuditedRead {
    read(id, ReadProgress::Started, true, at)
}

fn ended(id: &str, received_at: f64, at: f64) -> AuditedRead {
    AuditedRead {
        stage_at: at,
        ..read(id, ReadProgress::Complete, true, received_at)
    }
}

fn sums(reads: &[AuditedRead]) -> UsageSums {
    let mut usage = AuditUsage::new(1_000.0);
    for read in reads {
        usage.reach(read.stage_at);
        usage.add(read);
    }
    usage.reach(1_600.0);
    usage.finish()
}

#[test]
fn a_watch_counts_for_the_time_that_it_was_open_within_the_log() {
    let only = |reads: &[AuditedRead]| {
        let sums = sums(reads);
        assert_eq!((sums.window_seconds, sums.rows.len()), (600.0, 1));
        let usage = sums.rows[0].1;
        (
            usage.watch_seconds[WatchScope::Cluster as usize],
            usage.watch_requests,
        )
    };
    // Begun and ended within.
    assert_eq!(
        only(&[started("a", 1_100.0), ended("a", 1_100.0, 1_400.0)]),
        (300.0, 1)
    );
    // Begun before the log, so its start is not counted.
    assert_eq!(only(&[ended("a", 500.0, 1_400.0)]), (400.0, 0));
    // Still open at the end.
    assert_eq!(only(&[started("a", 1_100.0)]), (500.0, 1));
    // The policy omits the stage ResponseStarted.
    assert_eq!(only(&[ended("a", 1_100.0, 1_400.0)]), (300.0, 1));
    // Refused: a request, and no watch.
    let refused = AuditedRead {
        is_refused: true,
        ..ended("a", 1_100.0, 1_100.5)
    };
    assert_eq!(only(&[refused]), (0.0, 1));
}

#[test]
fn lists_tokens_nodes_and_questions_are_counted_once() {
    let list = read("a", ReadProgress::Complete, false, 1_001.0);
    let other = AuditedRead {
        id: "b".into(),
        token: Some("JTI=2".into()),
        namespace: "a".into(),
        is_consistent: true,
        ..list.clone()
    };
    let sums = sums(&[
        list.clone(),
        list,
        other.clone(),
        other,
        started("c", 1_002.0),
    ]);
    let expected = ReadUsage {
        watch_seconds: [598.0, 0.0, 0.0, 0.0, 0.0],
        watch_requests: 1,
        list_requests: 4,
        consistent: 2,
        forwarded: 0,
        // Lists of all and of one namespace, and a watch.
        questions: 3,
    };
    assert_eq!(sums.rows[0].1, expected);
    let facts = ClientFacts {
        is_in_pod: true,
        tokens: 2,
        nodes: 1,
    };
    assert_eq!(sums.facts.values().collect::<Vec<_>>(), [&facts]);
    assert!(sums.notes.is_empty());
}

#[test]
fn what_was_before_the_scrapes_says_whose_the_open_watches_are() {
    // The log begins 500 s before the scrapes.
    let list = read("b", ReadProgress::Complete, false, 600.0);
    let sums = sums(&[
        started("a", 500.0),
        list,
        started("c", 550.0),
        ended("c", 550.0, 900.0),
    ]);
    let usage = sums.rows[0].1;
    // Both watches began before, and one of them ended; the other one is open all the time.
    assert_eq!(usage.watch_seconds[WatchScope::Cluster as usize], 600.0);
    assert_eq!((usage.watch_requests, usage.list_requests), (0, 0));
    assert!(
        sums.facts
            .values()
            .all(|facts| facts.is_in_pod && facts.tokens == 1)
    );
}

#[test]
fn clients_beyond_the_bound_share_a_row() {
    let mut usage = AuditUsage::new(1_000.0);
    for number in 0..ROWS_MAX + 5 {
        let agent = format!("agent-{number}");
        usage.add(&AuditedRead {
            client: AuditedClient::new("mallory", CredentialKind::Token, &agent),
            ..read("a", ReadProgress::Complete, false, 1_001.0)
        });
    }
    let sums = usage.finish();
    assert_eq!(sums.rows.len(), ROWS_MAX + 1);
    let ((client, resource), others) = sums.rows.last().unwrap();
    assert_eq!((&*client.user, resource), ("all others", &None));
    assert_eq!(others.list_requests, 5);
    assert!(sums.notes[0].contains("5 stages"), "{:?}", sums.notes);
}
