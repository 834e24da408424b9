//! A client of the herd that takes its list as a stream: one ADDED event an object, then the bookmark that ends them. It leaves
//! after that, and returns for the next round.

use std::sync::Arc;

use memchr::memmem;

use super::{ListClient, ListResult, next_round};
use crate::recorder::{Control, Recorder};
use crate::swarm::{Member, Next, ResponseEnd};
use crate::verify::reference::object_print;
use crate::wire::event::{Event, EventKind, first_name};
use crate::wire::lines::Lines;

/// The annotation of the bookmark behind the initial events (KEP-3157).
const MARKER: &[u8] = b"\"k8s.io/initial-events-end\":\"true\"";

#[derive(Debug)]
pub struct WatchLister {
    path: Arc<str>,
    listed: Vec<ListResult>,
    current: ListProgress,
}

/// The list that is being received.
#[derive(Debug, Default)]
struct ListProgress {
    lines: Lines,
    listed: ListResult,
    is_marked: bool,
}

impl WatchLister {
    /// A client that watches `path` once a round.
    pub fn new(path: Arc<str>) -> Self {
        Self {
            path,
            listed: Vec::new(),
            current: ListProgress::default(),
        }
    }
}

impl ListClient for WatchLister {
    fn into_lists(self) -> Vec<ListResult> {
        self.listed
    }
}

impl ListProgress {
    fn line(listed: &mut ListResult, is_marked: &mut bool, line: &[u8]) -> Result<(), String> {
        let event = Event::parse(line).map_err(|error| format!("{error:#}"))?;
        if *is_marked {
            // Events behind the marker in the same piece are not part of the list.
            return Ok(());
        }
        match event.kind {
            EventKind::Added => {
                let name = first_name(line).ok_or("an object without a name")?;
                listed.items += 1;
                listed.bytes += line.len() as u64 + 1;
                listed.digest ^= object_print(&name, event.version);
                Ok(())
            }
            EventKind::Bookmark if memmem::find(line, MARKER).is_some() => {
                *is_marked = true;
                listed.version = Some(event.version);
                Ok(())
            }
            EventKind::Bookmark => Err("a bookmark before the initial events' end".to_owned()),
            EventKind::Error => Err(format!("ERROR {}", event.version)),
            EventKind::Modified | EventKind::Deleted => {
                Err(format!("{:?} among the initial events", event.kind))
            }
        }
    }
}

impl Member for WatchLister {
    fn next(&mut self, control: &Control) -> Next {
        next_round(self.listed.len(), control, &self.path)
    }

    fn body(&mut self, status: u16, data: &[u8], recorder: &mut Recorder) {
        if status != 200 {
            return recorder.refusal(status, data);
        }
        recorder.events += 1;
        let ListProgress {
            lines,
            listed,
            is_marked,
        } = &mut self.current;
        listed.wire_bytes += data.len() as u64;
        let mut wrong = None;
        let fed = lines.feed(data, |line| {
            if let Err(why) = ListProgress::line(listed, is_marked, line) {
                wrong.get_or_insert(why);
            }
        });
        let why = fed.err().map(|error| format!("{error:#}")).or(wrong);
        if listed.failure.is_none() {
            listed.failure = why;
        }
    }

    fn response_ended(&mut self, how: ResponseEnd<'_>, recorder: &mut Recorder) {
        let ListProgress {
            mut listed,
            is_marked,
            ..
        } = std::mem::take(&mut self.current);
        listed.ended_at_ns = recorder.now_ns();
        let ending = match how {
            ResponseEnd::Left if is_marked => None,
            ResponseEnd::Left => Some("left before the marker".to_owned()),
            ResponseEnd::Complete(status) => {
                Some(format!("ended with HTTP {status} before the marker"))
            }
            ResponseEnd::Broken(why) => Some(why.to_owned()),
        };
        listed.failure = listed.failure.or(ending);
        self.listed.push(listed);
    }

    fn progress(&self, _: &Control) -> usize {
        self.listed.len()
    }

    fn wants_to_leave(&self, _: &Control) -> bool {
        self.current.is_marked || self.current.listed.failure.is_some()
    }
}

#[cfg(test)]
mod tests {
    //! A list is complete when its marker has arrived, and its objects are known.

    use super::*;
    use crate::verify::reference::{ObjectVersions, fingerprint};

    fn added(name: &str, version: u64) -> String {
        format!(
            r#"{{"type":"ADDED","object":{{"kind":"ConfigMap","metadata":{{"name":"{name}","namespace":"n","resourceVersion":"{version}"}}}}}}"#
        ) + "\n"
    }

    const MARKED: &str = concat!(
        r#"{"type":"BOOKMARK","object":{"kind":"ConfigMap","metadata":{"resourceVersion":"9","#,
        r#""annotations":{"k8s.io/initial-events-end":"true"}}}}"#,
        "\n"
    );

    #[track_caller]
    fn check(text: &str, leaves: bool, failure: Option<&str>) -> ListResult {
        let control = Control::default();
        let mut recorder = Recorder::default();
        let mut client = WatchLister::new("/p".into());
        for piece in text.as_bytes().chunks(40) {
            client.body(200, piece, &mut recorder);
        }
        assert_eq!(client.wants_to_leave(&control), leaves);
        let how = if leaves {
            ResponseEnd::Left
        } else {
            ResponseEnd::Complete(200)
        };
        client.response_ended(how, &mut recorder);
        let listed = client.into_lists().pop().unwrap();
        let found = listed.failure.as_deref();
        assert_eq!(found.is_some(), failure.is_some(), "{found:?}");
        assert!(
            found
                .unwrap_or_default()
                .contains(failure.unwrap_or_default())
        );
        listed
    }

    #[test]
    fn a_list_ends_with_its_marker() {
        let text = [&added("a", 3), &added("b", 7), MARKED].concat();
        let listed = check(&text, true, None);
        assert_eq!((listed.items, listed.version), (2, Some(9)));
        let state = ObjectVersions::from([("n/b".to_owned(), 7), ("n/a".to_owned(), 3)]);
        assert_eq!(listed.digest, fingerprint(&state));
    }

    #[test]
    fn incomplete_lists_are_refused() {
        check(&added("a", 3), false, Some("before the marker"));
        let early = MARKED.replace("\"true\"", "\"false\"");
        check(
            &[&added("a", 3), early.as_str()].concat(),
            true,
            Some("a bookmark before"),
        );
        let modified = added("a", 3).replace("ADDED", "MODIFIED");
        check(&modified, true, Some("among the initial"));
    }
}
