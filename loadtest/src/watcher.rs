//! A watcher of the swarm: watches from a version, resumes after a clean end, lists again after 410, and keeps track of it all.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::recorder::{Control, Recorder};
use crate::swarm::{Ended, Member, Next};
use crate::verify::reference::{Reference, State, line_hash};
use crate::verify::{Fault, Track};
use crate::wire::event::{Event, Kind, name_of, object_name};
use crate::wire::lines::Lines;

/// Largest list that a relisting watcher takes.
const LIST_LEN_MAX: usize = 256 << 20;
/// One in so many events of a sampled watcher is parsed fully and its bytes are compared.
const SAMPLE_EVERY: u64 = 16;

/// What all watchers of a run have in common.
#[derive(Debug)]
pub struct Plan {
    /// Path of the collection, such as `/api/v1/namespaces/default/configmaps`.
    pub path: String,
    /// Version that all begin after.
    pub start: u64,
    /// How long the server is asked to keep the stream.
    pub timeout_s: u64,
}

/// How one watcher behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Habit {
    /// Reads, and its latencies count.
    Reads,
    /// As `Reads`, and a sample of its events is checked byte by byte.
    Sampled,
    /// Reads, but its latencies do not count: it stands for one that stalls in another run.
    SetApart,
    /// Stops reading when told to; its latencies do not count, its state is compared at the end.
    Stalls {
        /// Receive buffer of its socket.
        receive_buffer: usize,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Watching,
    Listing,
}

/// One watcher.
#[derive(Debug)]
pub struct Watcher {
    plan: Arc<Plan>,
    lines: Lines,
    list: Vec<u8>,
    mode: Mode,
    pause_due: bool,
    streams_ended: u64,
    inner: Inner,
}

/// What events change.
#[derive(Debug)]
struct Inner {
    habit: Habit,
    track: Track,
    mirror: Option<State>,
    expired: u32,
    stream_error: Option<u64>,
}

impl Watcher {
    /// A watcher that holds `state` at the plan's start version (looked at only if it stalls).
    pub fn new(plan: Arc<Plan>, habit: Habit, state: &State) -> Self {
        let mirror = matches!(habit, Habit::Stalls { .. }).then(|| state.clone());
        let inner = Inner {
            habit,
            track: Track::begin(plan.start),
            mirror,
            expired: 0,
            stream_error: None,
        };
        Self {
            plan,
            lines: Lines::default(),
            list: Vec::new(),
            mode: Mode::Watching,
            pause_due: false,
            streams_ended: 0,
            inner,
        }
    }

    /// Its proof.
    pub fn track(&self) -> &Track {
        &self.inner.track
    }

    /// How it behaved.
    pub fn habit(&self) -> Habit {
        self.inner.habit
    }

    /// Whether it is one of those that stop reading.
    pub fn stalls(&self) -> bool {
        matches!(self.inner.habit, Habit::Stalls { .. })
    }

    /// How many of its streams the server, or a broken connection, has ended.
    pub fn streams_ended(&self) -> u64 {
        self.streams_ended
    }

    /// How often it was told 410.
    pub fn expired(&self) -> u32 {
        self.inner.expired
    }

    /// The first thing it got wrong, up to `until`.
    pub fn verdict(&self, reference: &Reference, until: u64) -> Option<Fault> {
        let fault = self.inner.track.verdict(reference, until);
        if fault.is_some() {
            return fault;
        }
        let mirror = self.inner.mirror.as_ref()?;
        let expected = reference.state_at(self.inner.track.resume_version());
        if *mirror == expected {
            return None;
        }
        let differs = expected
            .iter()
            .find(|(name, version)| mirror.get(*name) != Some(version))
            .map(|(name, _)| name);
        let name = differs.or_else(|| mirror.keys().find(|name| !expected.contains_key(*name)));
        Some(Fault::NotConverged(format!(
            "{} objects instead of {}, first difference {name:?}",
            mirror.len(),
            expected.len()
        )))
    }

    fn list_complete(&mut self) {
        let list = std::mem::take(&mut self.list);
        let parsed: Result<serde_json::Value, _> = serde_json::from_slice(&list);
        let (version, items) = match &parsed {
            Ok(value) => (
                value["metadata"]["resourceVersion"]
                    .as_str()
                    .and_then(|text| text.parse().ok()),
                value["items"].as_array(),
            ),
            Err(error) => {
                return self
                    .inner
                    .track
                    .note(Fault::Unreadable(format!("a list: {error}")));
            }
        };
        let (Some(version), Some(items)) = (version, items) else {
            return self.inner.track.note(Fault::Unreadable(
                "a list without version or items".to_owned(),
            ));
        };
        if version < self.inner.track.resume_version() {
            return self.inner.track.note(Fault::OutOfOrder {
                version,
                after: self.inner.track.resume_version(),
            });
        }
        self.inner.track.relist(version);
        if let Some(mirror) = &mut self.inner.mirror {
            *mirror = items.iter().filter_map(state_entry).collect();
        }
        self.mode = Mode::Watching;
    }
}

/// Name and version of an object.
pub fn state_entry(object: &serde_json::Value) -> Option<(String, u64)> {
    Some((
        name_of(object)?,
        object["metadata"]["resourceVersion"]
            .as_str()?
            .parse()
            .ok()?,
    ))
}

impl Inner {
    fn line(&mut self, line: &[u8], recorder: &mut Recorder) {
        let event = match Event::parse(line) {
            Ok(event) => event,
            Err(error) => return self.track.note(Fault::Unreadable(format!("{error:#}"))),
        };
        match event.kind {
            Kind::Error => {
                self.stream_error = Some(event.version);
                return;
            }
            Kind::Bookmark => recorder.bookmarks += 1,
            Kind::Added | Kind::Modified | Kind::Deleted => {
                recorder.events += 1;
                match self.habit {
                    Habit::Reads | Habit::SetApart => {}
                    Habit::Sampled => self.sample(line, event),
                    Habit::Stalls { .. } => self.reflect(line, event),
                }
                // A deleted object still carries the moment of its last change.
                if let (Some(at), Kind::Added | Kind::Modified) = (event.written_at_ns, event.kind)
                    && matches!(self.habit, Habit::Reads | Habit::Sampled)
                {
                    recorder.written_at(at);
                }
            }
        }
        self.track.event(event.kind, event.version);
    }

    fn sample(&mut self, line: &[u8], event: Event) {
        if !self.track.count().is_multiple_of(SAMPLE_EVERY) {
            return;
        }
        match Event::parse_fully(line) {
            Ok(parsed) if parsed == event => self.track.body_hash(event.version, line_hash(line)),
            Ok(parsed) => self.track.note(Fault::Unreadable(format!(
                "searched {event:?}, parsed {parsed:?}"
            ))),
            Err(error) => self.track.note(Fault::Unreadable(format!("{error:#}"))),
        }
    }

    fn reflect(&mut self, line: &[u8], event: Event) {
        let Some(mirror) = &mut self.mirror else {
            return;
        };
        match (object_name(line), event.kind) {
            (Ok(name), Kind::Deleted) => drop(mirror.remove(&name)),
            (Ok(name), _) => drop(mirror.insert(name, event.version)),
            (Err(error), _) => self.track.note(Fault::Unreadable(format!("{error:#}"))),
        }
    }
}

impl Member for Watcher {
    fn next(&mut self, _: &Control) -> Next {
        if std::mem::take(&mut self.pause_due) {
            return Next::Pause;
        }
        let Plan {
            path, timeout_s, ..
        } = &*self.plan;
        let version = self.inner.track.resume_version();
        Next::Send(match self.mode {
            Mode::Watching => {
                format!(
                    "{path}?watch=1&resourceVersion={version}&allowWatchBookmarks=true&timeoutSeconds={timeout_s}"
                )
            }
            // Not older than what was seen, as client-go's reflector asks.
            Mode::Listing => format!("{path}?resourceVersion={version}"),
        })
    }

    fn body(&mut self, status: u16, data: &[u8], recorder: &mut Recorder) {
        if status != 200 {
            return recorder.message(|| {
                format!(
                    "HTTP {status}: {}",
                    String::from_utf8_lossy(&data[..data.len().min(200)])
                )
            });
        }
        match self.mode {
            Mode::Watching => {
                let inner = &mut self.inner;
                if let Err(error) = self.lines.feed(data, |line| inner.line(line, recorder)) {
                    self.inner
                        .track
                        .note(Fault::Unreadable(format!("{error:#}")));
                }
            }
            Mode::Listing if self.list.len() + data.len() <= LIST_LEN_MAX => {
                self.list.extend_from_slice(data)
            }
            Mode::Listing => self.inner.track.note(Fault::Unreadable(format!(
                "a list of more than {LIST_LEN_MAX} bytes"
            ))),
        }
    }

    fn ended(&mut self, how: Ended<'_>, recorder: &mut Recorder) {
        let between = self.lines.is_between();
        self.lines.clear();
        let stream_error = self.inner.stream_error.take();
        self.streams_ended += u64::from(self.mode == Mode::Watching);
        match (how, self.mode) {
            (Ended::Complete(200), Mode::Listing) => {
                recorder.end("relist done");
                self.list_complete();
            }
            (Ended::Complete(200), Mode::Watching) => {
                if !between {
                    self.inner.track.note(Fault::Unreadable(
                        "a stream that ended in good order within an event".to_owned(),
                    ));
                }
                match stream_error {
                    Some(410) => {
                        recorder.end("ERROR 410");
                        self.inner.expired += 1;
                        self.mode = Mode::Listing;
                    }
                    Some(code) => {
                        recorder.end(&format!("ERROR {code}"));
                        self.pause_due = true;
                    }
                    None => recorder.end("clean end"),
                }
            }
            (Ended::Complete(status), _) => {
                recorder.end(&format!("HTTP {status}"));
                self.pause_due = true;
            }
            (Ended::Broken(_), _) => self.pause_due = true,
        }
        if self.mode == Mode::Listing && !matches!(how, Ended::Complete(_)) {
            self.list = Vec::new();
        }
    }

    fn progress(&self, control: &Control) -> usize {
        let goal = control.goal.load(Ordering::Relaxed);
        usize::from(
            goal != 0 && self.mode == Mode::Watching && self.inner.track.resume_version() >= goal,
        )
    }

    fn stalls_with(&self) -> Option<usize> {
        match self.inner.habit {
            Habit::Stalls { receive_buffer } => Some(receive_buffer),
            Habit::Reads | Habit::Sampled | Habit::SetApart => None,
        }
    }
}

#[cfg(test)]
mod tests;
