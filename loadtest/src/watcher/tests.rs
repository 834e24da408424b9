//! A watcher resumes, lists again after 410, and has a fault if it does not converge.

use std::time::Duration;

use super::*;
use crate::results::Results;
use crate::scenario::watch_run::verdicts::WatchOutcome;
use crate::verify::reference::{Part, ReferenceEvent};
use crate::wire::protobuf::tests::frame;

const START: u64 = 10;
const STALLS: Behaviour = Behaviour::Slow(Slowness::STALLED);

fn line(kind: &str, name: &str, version: u64) -> String {
    format!(
        r#"{{"type":"{kind}","object":{{"metadata":{{"name":"{name}","namespace":"n","resourceVersion":"{version}"}}}}}}"#
    ) + "\n"
}

/// Versions 11 to 40, which modify a, b, c in turn; the watcher knows a and b from the start.
fn reference() -> Reference {
    let mut reference = Reference::begin(ObjectVersions::from([
        ("n/a".to_owned(), 1),
        ("n/b".to_owned(), 2),
    ]));
    for version in START + 1..=40 {
        let object = reference.object(&format!("n/{}", name(version)));
        let body = line("MODIFIED", name(version), version);
        assert!(reference.push(ReferenceEvent {
            version,
            kind: EventKind::Modified,
            body_hash: line_hash(body.trim_end().as_bytes()),
            object
        }));
    }
    reference
}

fn name(version: u64) -> &'static str {
    ["a", "b", "c"][(version % 3) as usize]
}

struct Bench {
    watcher: Watcher,
    recorder: Recorder,
    control: Control,
}

impl Bench {
    fn new(behaviour: Behaviour) -> Self {
        let plan = Arc::new(Plan::new("/p", START, 60));
        let state = Arc::new(reference().initial().clone());
        let watcher = Watcher::new(plan, behaviour, &state);
        Self {
            watcher,
            recorder: Recorder::default(),
            control: Control::default(),
        }
    }

    fn deliver(&mut self, versions: impl Iterator<Item = u64>) {
        for version in versions {
            self.watcher.body(
                200,
                line("MODIFIED", name(version), version).as_bytes(),
                &mut self.recorder,
            );
        }
    }

    fn body(&mut self, text: &str) {
        self.watcher.body(200, text.as_bytes(), &mut self.recorder);
    }

    fn end(&mut self, how: ResponseEnd<'_>) -> Next {
        self.watcher.response_ended(how, &mut self.recorder);
        self.watcher.next(&self.control)
    }

    /// A list of this version, with the objects of another one.
    fn end_list(&mut self, objects_of: u64, version: u64) -> Next {
        let objects = reference().state_at(objects_of);
        let items: Vec<_> = objects
            .iter()
            .map(|(name, version)| {
                let name = name.trim_start_matches("n/");
                format!(r#"{{"metadata":{{"name":"{name}","namespace":"n","resourceVersion":"{version}"}}}}"#)
            })
            .collect();
        self.body(&format!(
            r#"{{"metadata":{{"resourceVersion":"{version}"}},"items":[{}]}}"#,
            items.join(",")
        ));
        self.end(ResponseEnd::Complete(200))
    }

    fn verdict_until(&self, until: u64) -> Option<Fault> {
        let reference = reference();
        self.watcher
            .verdict(&reference, &reference.fingerprints(), until)
    }

    fn verdict(&self) -> Option<Fault> {
        self.verdict_until(40)
    }
}

fn watch_from(version: u64) -> Next {
    Next::Send(format!(
        "/p?watch=1&resourceVersion={version}&allowWatchBookmarks=true&timeoutSeconds=60"
    ))
}

#[test]
fn a_request_that_meets_a_closed_connection_is_sent_again_once() {
    let mut bench = Bench::new(Behaviour::Reads);
    bench.deliver(11..=12);
    let resumed = bench.end(ResponseEnd::Complete(200));
    let Next::Send(path) = &resumed else {
        panic!("{resumed:?}");
    };
    assert!(path.contains("resourceVersion=12"), "{path}");
    assert_eq!(bench.end(ResponseEnd::Broken("closed")), resumed);
    assert_eq!(bench.end(ResponseEnd::Broken("closed")), Next::Pause);
}

#[test]
fn a_clean_end_is_resumed_at_once_and_a_broken_one_after_a_pause() {
    let mut bench = Bench::new(Behaviour::Sampled);
    assert_eq!(bench.watcher.next(&bench.control), watch_from(START));
    bench.deliver(11..=20);
    assert_eq!(bench.end(ResponseEnd::Complete(200)), watch_from(20));
    bench.deliver(21..=30);
    bench.body(&line("MODIFIED", name(31), 31)[..20]);
    assert_eq!(bench.end(ResponseEnd::Broken("reset")), Next::Pause);
    assert_eq!(bench.watcher.next(&bench.control), watch_from(30));
    bench.deliver(31..=40);
    assert_eq!(bench.verdict(), None);
    assert_eq!(bench.recorder.events, 30);
}

#[test]
fn after_410_it_lists_and_watches_on_from_there() {
    for (c_in_list, fault_expected) in [
        (
            r#"{"metadata":{"name":"c","namespace":"n","resourceVersion":"29"}}"#,
            false,
        ),
        ("", true),
    ] {
        let mut bench = Bench::new(STALLS);
        bench.deliver(11..=15);
        bench.body(r#"{"type":"ERROR","object":{"kind":"Status","reason":"Expired","code":410}}"#);
        bench.body("\n");
        assert_eq!(
            bench.end(ResponseEnd::Complete(200)),
            Next::Send("/p?resourceVersion=15".to_owned())
        );
        let others = r#"{"metadata":{"name":"a","namespace":"n","resourceVersion":"30"}},{"metadata":{"name":"b","namespace":"n","resourceVersion":"28"}}"#;
        let comma = if c_in_list.is_empty() { "" } else { "," };
        bench.body(&format!(
            r#"{{"metadata":{{"resourceVersion":"30"}},"items":[{others}{comma}{c_in_list}]}}"#
        ));
        assert_eq!(bench.end(ResponseEnd::Complete(200)), watch_from(30));
        // A list without c is not the server's state, even if later events bring c.
        assert!(bench.verdict_until(30).is_some() == fault_expected);
        bench.deliver(31..=40);
        assert_eq!(bench.verdict().is_some(), fault_expected);
        assert_eq!(bench.watcher.expired(), 1);
    }
}

#[test]
fn of_a_reader_too_the_list_must_hold_what_the_server_held() {
    for (second, is_faulty) in [("b", false), ("x", true)] {
        let mut bench = Bench::new(Behaviour::Reads);
        bench.deliver(11..=15);
        bench
            .body(&(r#"{"type":"ERROR","object":{"kind":"Status","code":410}}"#.to_owned() + "\n"));
        bench.end(ResponseEnd::Complete(200));
        let item = |name: &str, version: u64| {
            format!(
                r#"{{"metadata":{{"name":"{name}","namespace":"n","resourceVersion":"{version}"}}}}"#
            )
        };
        let items = [item("a", 30), item(second, 28), item("c", 29)].join(",");
        bench.body(&format!(
            r#"{{"metadata":{{"resourceVersion":"30"}},"items":[{items}]}}"#
        ));
        bench.end(ResponseEnd::Complete(200));
        bench.deliver(31..=40);
        assert_eq!(bench.verdict().is_some(), is_faulty);
        // For a reader even a correct list after 410 is a fault.
        let (mut results, plan) = (Results::new("steady"), bench.watcher.plan.clone());
        let parts = std::collections::HashMap::from([(Part::All, reference())]);
        let outcome = WatchOutcome::of(&[bench.watcher], &[plan], &parts);
        outcome.report_drops(&mut results, "target");
        let text = results.to_string();
        assert!(text.contains("1 streams of readers were ended"), "{text}");
        assert!(text.contains("1 readers received 410"), "{text}");
    }
}

#[test]
fn events_in_protobuf_are_held_to_the_reference() {
    for (left_out, fault) in [
        (0, None),
        (20, Some("lost: version 20")),
        (40, Some("behind")),
    ] {
        let mut plan = Plan::new("/p", START, 60);
        plan.encoding = Encoding::Protobuf;
        let mut watcher = Watcher::new(Arc::new(plan), Behaviour::Reads, &Arc::default());
        let mut recorder = Recorder::default();
        let mut stream = Vec::new();
        for version in (11..=40).filter(|version| *version != left_out) {
            let frame = frame("MODIFIED", version, None);
            stream.extend_from_slice(&(frame.len() as u32).to_be_bytes());
            stream.extend_from_slice(&frame);
        }
        for piece in stream.chunks(50) {
            watcher.body(200, piece, &mut recorder);
        }
        let reference = reference();
        let verdict = watcher.verdict(&reference, &reference.fingerprints(), 40);
        let said = verdict.map(|fault| fault.to_string()).unwrap_or_default();
        assert!(said.starts_with(fault.unwrap_or_default()), "{said}");
        assert_eq!(said.is_empty(), fault.is_none(), "{said}");
        assert_eq!(recorder.events, 30 - u64::from(left_out > 0));
    }
}

#[test]
fn a_renewed_watch_skips_to_the_newest_version_and_loses_nothing_after_it() {
    let renews = Behaviour::Slow(Slowness {
        renews_every: Some(Duration::from_millis(500)),
        ..Slowness::STALLED
    });
    for (lost, convicted) in [(0, false), (1, true)] {
        let mut bench = Bench::new(renews);
        bench.deliver(11..=15);
        bench.recorder.newest_version = 30;
        assert_eq!(bench.end(ResponseEnd::Left), watch_from(30));
        bench.deliver(31 + lost..=40);
        assert_eq!(bench.verdict().is_some(), convicted);
        // No watcher has a newer version: it continues from its own.
        assert_eq!(bench.end(ResponseEnd::Left), watch_from(40));
    }
}

#[test]
fn a_list_older_than_what_was_seen_is_a_fault() {
    let mut bench = Bench::new(STALLS);
    bench.deliver(11..=15);
    bench.body(&(r#"{"type":"ERROR","object":{"kind":"Status","code":410}}"#.to_owned() + "\n"));
    bench.end(ResponseEnd::Complete(200));
    bench.body(r#"{"metadata":{"resourceVersion":"12"},"items":[]}"#);
    bench.end(ResponseEnd::Complete(200));
    assert_eq!(
        bench.verdict(),
        Some(Fault::OutOfOrder {
            version: 12,
            after: 15
        })
    );
}

#[test]
fn a_sampled_body_that_differs_and_a_cut_event_before_a_clean_end_are_faults() {
    let mut bench = Bench::new(Behaviour::Sampled);
    bench.body(&line("MODIFIED", "other", 11));
    bench.deliver(12..=40);
    assert_eq!(bench.verdict(), Some(Fault::BodyDiffers { version: 11 }));

    let mut bench = Bench::new(Behaviour::Reads);
    bench.deliver(11..=40);
    bench.body(r#"{"type":"#);
    bench.end(ResponseEnd::Complete(200));
    assert!(matches!(bench.verdict(), Some(Fault::Unreadable(_))));
}

#[test]
fn refusals_are_tried_again_after_a_pause() {
    let mut bench = Bench::new(Behaviour::Reads);
    bench.watcher.body(429, b"{}", &mut bench.recorder);
    assert_eq!(bench.end(ResponseEnd::Complete(429)), Next::Pause);
    assert_eq!(bench.watcher.next(&bench.control), watch_from(START));
    assert_eq!(bench.recorder.ends.get("HTTP 429"), Some(&1));
}

#[test]
fn a_visitor_comes_back_in_each_way_and_ends_with_the_servers_state() {
    let mut bench = Bench::new(Behaviour::Visits { seed: 7 });
    let (mut resumed, mut listed, mut restarted) = (0, 0, 0);
    for _ in 0..40 {
        let next = bench.end(ResponseEnd::Left);
        match next {
            Next::Pause => {
                resumed += 1;
                bench.watcher.next(&bench.control);
            }
            Next::Send(path) if path.contains("watch=1") => {
                restarted += 1;
                assert_eq!(Next::Send(path), watch_from(START));
            }
            _ => {
                listed += 1;
                assert_eq!(bench.end_list(25, 25), watch_from(25));
            }
        }
        let from = bench.watcher.track().resume_version();
        bench.deliver(from + 1..=25);
    }
    assert!(resumed > 0 && listed > 0 && restarted > 0);
    bench.deliver(26..=40);
    assert_eq!(bench.verdict(), None);
}

#[test]
fn a_long_poll_ends_with_its_first_events_and_the_next_one_loses_none() {
    for (lost, is_faulty) in [(0, false), (1, true)] {
        let mut bench = Bench::new(Behaviour::LongPolls);
        bench.body(&line("BOOKMARK", "", START));
        assert!(!bench.watcher.wants_to_leave(&bench.control));
        bench.deliver(11..=12);
        bench.body(&line("MODIFIED", name(13), 13)[..20]);
        assert!(bench.watcher.wants_to_leave(&bench.control));
        assert_eq!(bench.end(ResponseEnd::Left), watch_from(12));
        assert!(!bench.watcher.wants_to_leave(&bench.control));
        bench.deliver(13 + lost..=40);
        assert_eq!(bench.verdict().is_some(), is_faulty);
        assert_eq!(bench.watcher.streams_ended(), 0);
    }
}

#[test]
fn polls_hold_what_the_server_held_and_never_go_back() {
    let polls = Behaviour::Polls(Polling {
        every: Duration::ZERO,
        first_after: Duration::ZERO,
    });
    let not_older_than = |version| Next::Send(format!("/p?resourceVersion={version}"));
    for (lists, fault) in [
        // The version of a list may be newer than its newest object.
        (&[(12, 12), (20, 20), (40, 45)][..], None),
        // The same list may come again and again.
        (&[&[(20, 20); 100][..], &[(40, 40)]].concat(), None),
        (&[(12, 12), (20, 20)], Some("behind")),
        (&[(20, 20), (12, 12), (40, 40)], Some("out of order")),
        (&[(20, 20), (19, 30), (40, 40)], Some("not converged")),
    ] {
        let mut bench = Bench::new(polls);
        bench.watcher.plan.goal.set(40);
        assert_eq!(bench.watcher.next(&bench.control), not_older_than(START));
        let mut newest = START;
        for (objects_of, version) in lists {
            assert_eq!(bench.watcher.progress(&bench.control), 0);
            newest = newest.max(*version);
            let next = bench.end_list(*objects_of, *version);
            assert_eq!(next, not_older_than(newest));
        }
        let verdict = bench.verdict().map(|fault| fault.to_string());
        assert_eq!(verdict.is_some(), fault.is_some(), "{verdict:?}");
        assert!(
            verdict
                .unwrap_or_default()
                .starts_with(fault.unwrap_or_default())
        );
        assert_eq!(
            bench.watcher.progress(&bench.control),
            usize::from(newest >= 40)
        );
    }
}
