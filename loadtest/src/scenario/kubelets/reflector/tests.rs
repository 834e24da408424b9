//! The requests of a reflector, what follows each way in which one ends, and what it finds wrong.

use super::*;
use crate::scenario::kubelets::selection::Collection;
use crate::verify::reference::{ObjectVersions, Part, ReferenceEvent};

fn reflector() -> Reflector {
    let target = WatchTarget {
        path: "/api/v1/pods".to_owned(),
        selector: "fieldSelector=spec.nodeName%3Dnode-00001".to_owned(),
        selection: Selection {
            collection: Collection::Pods,
            part: Part::Number(1),
        },
        timeout_min: Duration::from_secs(300),
        lists_first: false,
        is_staggered: false,
        new_pods: Some(Arc::default()),
        goal: Arc::default(),
        synced: Arc::default(),
    };
    Reflector::new(target, Encoding::Json)
}

fn line(kind: &str, name: &str, version: u64) -> String {
    format!(
        "{{\"type\":\"{kind}\",\"object\":{{\"kind\":\"Pod\",\"metadata\":{{\"name\":\"{name}\",\"namespace\":\"n\",\"resourceVersion\":\"{version}\"}}}}}}\n"
    )
}

fn marker(version: u64) -> String {
    format!(
        "{{\"type\":\"BOOKMARK\",\"object\":{{\"kind\":\"Pod\",\"metadata\":{{\"resourceVersion\":\"{version}\",\"annotations\":{{\"k8s.io/initial-events-end\":\"true\"}}}}}}}}\n"
    )
}

fn feed(reflector: &mut Reflector, lines: &[String]) {
    reflector.begin_response(Duration::ZERO);
    reflector.read(lines.concat().as_bytes(), &mut Recorder::default());
}

/// A reflector with the pods `a` at version 3 and `b` at version 7, at version 9.
fn synced() -> Reflector {
    let mut reflector = reflector();
    let lines = [line("ADDED", "a", 3), line("ADDED", "b", 7), marker(9)];
    feed(&mut reflector, &lines);
    reflector
}

fn reference(events: &[(u64, EventKind, &str)]) -> Reference {
    let initial = ObjectVersions::from([("n/a".to_owned(), 3), ("n/b".to_owned(), 7)]);
    let mut reference = Reference::begin(initial);
    for (version, kind, name) in events {
        let object = reference.object(&format!("n/{name}"));
        reference.push(ReferenceEvent {
            version: *version,
            kind: *kind,
            body_hash: 0,
            object,
        });
    }
    reference
}

fn verdict(reflector: &Reflector, events: &[(u64, EventKind, &str)]) -> Option<Fault> {
    let reference = reference(events);
    reflector.verdict(&reference, &reference.fingerprints())
}

const LATER: Duration = Duration::from_secs(60);

#[test]
fn it_begins_with_a_stream_of_the_objects_and_continues_from_the_last_version() {
    let mut reflector = reflector();
    assert_eq!(
        reflector.request(0.5),
        "/api/v1/pods?allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&timeoutSeconds=450&watch=true&fieldSelector=spec.nodeName%3Dnode-00001"
    );
    assert!(reflector.track.is_none());
    let lines = [line("ADDED", "a", 3), marker(9), line("ADDED", "c", 12)];
    feed(&mut reflector, &lines);
    assert!(reflector.track.is_some());
    let new_pods = reflector.target.new_pods.clone().unwrap();
    assert_eq!(
        [new_pods.pop(), new_pods.pop()],
        ["n/a", "n/c"].map(|name| Some(name.to_owned()))
    );
    let end = RequestEnd::Complete(200);
    assert_eq!(reflector.ended(end, LATER, 0.0), Duration::ZERO);
    let next = reflector.request(0.0);
    assert!(next.contains("&resourceVersion=12&timeoutSeconds=300&watch=true"));
    assert!(!next.contains("sendInitialEvents"), "{next}");
}

#[test]
fn a_server_without_streaming_lists_is_listed() {
    let mut reflector = reflector();
    let end = RequestEnd::Complete(422);
    assert_eq!(reflector.ended(end, LATER, 0.0), Duration::ZERO);
    assert!(
        reflector
            .request(0.0)
            .starts_with("/api/v1/pods?limit=500&resourceVersion=0&")
    );
    reflector.begin_response(LATER);
    let list = br#"{"metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"a","namespace":"n","resourceVersion":"3"}},{"metadata":{"name":"b","namespace":"n","resourceVersion":"7"}}]}"#;
    reflector.read(list, &mut Recorder::default());
    assert_eq!(
        reflector.ended(RequestEnd::Complete(200), LATER, 0.0),
        Duration::ZERO
    );
    assert!(reflector.request(0.0).contains("resourceVersion=9"));
    assert_eq!(verdict(&reflector, &[]), None);
}

#[test]
fn a_lost_version_is_waited_for_and_read_anew() {
    let mut reflector = synced();
    let error = "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410}}\n".to_owned();
    feed(&mut reflector, &[error]);
    let wait = reflector.ended(RequestEnd::Complete(200), LATER, 0.0);
    assert_eq!(wait, Duration::from_millis(800));
    let next = reflector.request(0.0);
    assert!(next.contains("sendInitialEvents=true"), "{next}");
    assert!(!next.contains("resourceVersion="), "{next}");
}

#[test]
fn a_refused_watch_is_repeated_after_a_while_and_a_broken_one_at_once() {
    let mut reflector = synced();
    let before = reflector.request(0.0);
    let refused = reflector.ended(RequestEnd::Complete(429), LATER, 0.0);
    assert_eq!(refused, Duration::from_millis(800));
    assert_eq!(reflector.request(0.0), before);
    reflector.begin_response(LATER);
    assert_eq!(reflector.ended(RequestEnd::Cut, LATER, 0.0), Duration::ZERO);
    assert_eq!(reflector.request(0.0), before);
}

#[test]
fn a_watch_that_ends_at_once_without_events_is_a_failure() {
    let mut reflector = synced();
    reflector.ended(RequestEnd::Complete(200), LATER, 0.0);
    reflector.begin_response(LATER);
    let wait = reflector.ended(
        RequestEnd::Complete(200),
        LATER + Duration::from_millis(1),
        0.0,
    );
    assert_eq!(wait, Duration::from_millis(800));
}

#[test]
fn the_verdict_finds_what_is_missing_and_what_is_wrong() {
    let events = [
        (11, EventKind::Modified, "a"),
        (12, EventKind::Deleted, "b"),
    ];
    let mut whole = synced();
    feed(
        &mut whole,
        &[line("MODIFIED", "a", 11), line("DELETED", "b", 12)],
    );
    assert_eq!(verdict(&whole, &events), None);
    assert_eq!(whole.event_count(), 2);

    let mut behind = synced();
    feed(&mut behind, &[line("MODIFIED", "a", 11)]);
    assert_eq!(verdict(&behind, &events), Some(Fault::Behind));

    let mut lost = synced();
    feed(&mut lost, &[line("DELETED", "b", 12)]);
    let fault = verdict(&lost, &events);
    assert!(
        matches!(fault, Some(Fault::Lost { version: 11, .. })),
        "{fault:?}"
    );

    // The stream of the objects was incomplete: no later event shows that.
    let mut incomplete = reflector();
    feed(&mut incomplete, &[line("ADDED", "a", 3), marker(9)]);
    let fault = verdict(&incomplete, &[]);
    assert!(matches!(fault, Some(Fault::NotConverged(_))), "{fault:?}");
    assert!(verdict(&reflector(), &[]).is_some());
}

#[test]
fn a_change_of_the_status_has_no_latency_of_its_own() {
    let mut recorder = Recorder::default();
    let control = crate::recorder::Control::default();
    control.measure_from_now();
    recorder.tick(&control);
    let now = crate::recorder::now_ns();
    let written = |version: u64, sent_ns: u64| {
        format!(
            "{{\"type\":\"MODIFIED\",\"object\":{{\"metadata\":{{\"name\":\"a\",\"namespace\":\"n\",\"resourceVersion\":\"{version}\",\"annotations\":{{\"kube-fanout.dev/written-at\":\"{sent_ns}\"}}}}}}}}\n"
        )
    };
    let mut reflector = synced();
    reflector.ended(RequestEnd::Complete(200), LATER, 0.0);
    reflector.begin_response(LATER);
    let lines = [written(11, now), written(12, now), written(13, now + 1)].concat();
    reflector.read(lines.as_bytes(), &mut recorder);
    assert_eq!(recorder.latency.len(), 2);
}
