//! A watcher of the swarm: watches from a version, resumes after a clean end, lists again after 410, and tracks all events.

mod behaviour;
mod polls;

use std::sync::Arc;

pub use behaviour::{Behaviour, Goal, Plan};
pub use polls::Polling;

use kube_fanout::resource::Encoding;

use crate::recorder::{Control, LEFT, Recorder, now_ns};
use crate::recording::RecordedWrite;
use crate::swarm::pace::Slowness;
use crate::swarm::{Member, Next, ResponseEnd};
use crate::verify::reference::{Fingerprints, ObjectVersions, Reference, fingerprint, line_hash};
use crate::verify::{Fault, Track};
use crate::wire::event::{Event, EventKind, object_name};
use crate::wire::frames::Frames;
use crate::wire::gunzip::Gunzip;
use crate::wire::list::{ListReader, json_list};
use crate::wire::protobuf;
use behaviour::{Return, Visits};
use polls::{PollClock, ReceivedList, known_ns};

/// Lists of one watcher that are compared: more than it may need, unless it comes and goes.
const LISTS_MAX: usize = 4_096;
/// Largest list that a relisting watcher accepts.
const LIST_LEN_MAX: usize = 256 << 20;
/// A sampled watcher parses one in this many events fully and compares its bytes; all events, if the others read only heads.
const SAMPLE_EVERY: u64 = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    WatchFlags,
    ListReader,
}

#[derive(Debug)]
pub struct Watcher {
    plan: Arc<Plan>,
    gunzip: Gunzip,
    frames: Frames,
    /// The list that is being received, if its objects are kept.
    list: Vec<u8>,
    /// The list that is being received, if only its fingerprint is kept.
    listing: ListReader,
    mode: Mode,
    pause_due: bool,
    /// Whether the newest watch has a response.
    is_streaming: bool,
    /// Whether the connection has brought a whole response, so that the server may have closed it before the next request.
    is_reused: bool,
    streams_ended: u64,
    inner: Inner,
}

#[derive(Debug)]
struct Inner {
    behaviour: Behaviour,
    track: Track,
    mirror: Option<Mirror>,
    visits: Option<Visits>,
    polls: Option<PollClock>,
    lists: Vec<ReceivedList>,
    /// Whether the newest watch has brought an event.
    has_events: bool,
    encoding: Encoding,
    /// Offset of the sampled events.
    sampled_from: u64,
    /// Whether all events are sampled, because the others read only heads.
    samples_all: bool,
    expired: u32,
    stream_error: Option<u64>,
}

/// The objects of a watcher whose state is compared.
#[derive(Debug)]
struct Mirror {
    initial: Arc<ObjectVersions>,
    now: ObjectVersions,
}

impl Watcher {
    /// A watcher that holds `state` at the plan's start version; the state is used only if the behaviour compares it.
    pub fn new(plan: Arc<Plan>, behaviour: Behaviour, state: &Arc<ObjectVersions>) -> Self {
        let mirrors = behaviour.is_compared();
        let mirror = mirrors.then(|| Mirror {
            initial: state.clone(),
            now: ObjectVersions::clone(state),
        });
        let (mut visits, mut polls) = (None, None);
        match behaviour {
            Behaviour::Visits { seed } => visits = Some(Visits::begin(seed)),
            Behaviour::Polls(polling) => polls = Some(PollClock::begin(polling, now_ns())),
            Behaviour::Reads
            | Behaviour::Sampled
            | Behaviour::Excluded
            | Behaviour::LongPolls
            | Behaviour::Slow(_) => {}
        }
        // Sampled watchers compare every byte.
        let head_len_max = plan
            .line_len_max
            .filter(|_| behaviour != Behaviour::Sampled);
        let frames = Frames::new(plan.encoding, head_len_max);
        let mode = match polls {
            Some(_) => Mode::ListReader,
            None => Mode::WatchFlags,
        };
        let inner = Inner {
            behaviour,
            track: Track::begin(plan.start),
            mirror,
            visits,
            polls,
            lists: Vec::new(),
            has_events: false,
            encoding: plan.encoding,
            sampled_from: 0,
            samples_all: plan.line_len_max.is_some(),
            expired: 0,
            stream_error: None,
        };
        Self {
            plan,
            gunzip: Gunzip::default(),
            frames,
            list: Vec::new(),
            listing: ListReader::default(),
            mode,
            pause_due: false,
            is_streaming: false,
            is_reused: false,
            streams_ended: 0,
            inner,
        }
    }

    /// Sets the offset of sampled events, so that sampled watchers sample different events.
    pub fn sampling_from(mut self, number: usize) -> Self {
        self.inner.sampled_from = number as u64;
        self
    }

    /// The track of its events.
    pub fn track(&self) -> &Track {
        &self.inner.track
    }

    pub fn behaviour(&self) -> Behaviour {
        self.inner.behaviour
    }

    /// Whether it is a slow watcher.
    pub fn is_slow(&self) -> bool {
        matches!(self.inner.behaviour, Behaviour::Slow(_))
    }

    /// Number of lists that are compared with the reference.
    pub fn list_count(&self) -> usize {
        self.inner.lists.len()
    }

    /// Records the latencies of these writes, if it polls: one that watches has recorded that of each event.
    pub fn record_latencies(&self, writes: &[RecordedWrite], recorder: &mut Recorder) {
        if self.inner.polls.is_none() {
            return;
        }
        for one in writes {
            if let Some(known_ns) = known_ns(&self.inner.lists, one.version) {
                recorder.record_latency_at(one.write, known_ns);
            }
        }
    }

    /// Number of started streams that the server or a broken connection has ended.
    pub fn streams_ended(&self) -> u64 {
        self.streams_ended
    }

    /// How often it received 410.
    pub fn expired(&self) -> u32 {
        self.inner.expired
    }

    /// The first error up to `until`; `states` are the reference's.
    pub fn verdict(
        &self,
        reference: &Reference,
        states: &Fingerprints,
        until: u64,
    ) -> Option<Fault> {
        let fault = self.inner.track.verdict(reference, until);
        if fault.is_some() {
            return fault;
        }
        let wrong_list = self
            .inner
            .lists
            .iter()
            .find(|list| states.at(list.version) != list.print);
        if let Some(list) = wrong_list {
            let why = format!("the list of version {} holds other objects", list.version);
            return Some(Fault::NotConverged(why));
        }
        let mirror = self.inner.mirror.as_ref()?;
        let version = self.inner.track.resume_version();
        if fingerprint(&mirror.now) == states.at(version) {
            return None;
        }
        let (now, expected) = (&mirror.now, reference.state_at(version));
        let differs = expected
            .iter()
            .find(|(name, version)| now.get(*name) != Some(version))
            .map(|(name, _)| name);
        let name = differs.or_else(|| now.keys().find(|name| !expected.contains_key(*name)));
        Some(Fault::NotConverged(format!(
            "{} objects instead of {}, first difference {name:?}",
            now.len(),
            expected.len()
        )))
    }

    /// Plans the next visit of a watcher that has left.
    fn come_back(&mut self) {
        let Some(visits) = &mut self.inner.visits else {
            return;
        };
        match visits.come_back() {
            Return::Resumes => self.pause_due = true,
            Return::ListClient => self.mode = Mode::ListReader,
            Return::FromStart => {
                self.inner.track.relist(self.plan.start);
                if let Some(mirror) = &mut self.inner.mirror {
                    mirror.now = ObjectVersions::clone(&mirror.initial);
                }
            }
        }
    }

    fn list_complete(&mut self) {
        let list = std::mem::take(&mut self.list);
        let listing = std::mem::take(&mut self.listing);
        if !self.keeps_lists() {
            return match listing.finish() {
                Some((version, print)) => self.list_of(version, print),
                None => self
                    .inner
                    .track
                    .note(Fault::Unreadable("a list without version".to_owned())),
            };
        }
        let read = match self.inner.encoding {
            Encoding::Json => serde_json::from_slice(&list)
                .map_err(anyhow::Error::from)
                .and_then(|list| json_list(&list)),
            Encoding::Protobuf => protobuf::list(&list),
        };
        let (version, objects) = match read {
            Ok((version, objects)) => (version, ObjectVersions::from_iter(objects)),
            Err(error) => {
                let why = format!("a list: {error:#}");
                return self.inner.track.note(Fault::Unreadable(why));
            }
        };
        self.list_of(version, fingerprint(&objects));
        if let Some(mirror) = &mut self.inner.mirror {
            mirror.now = objects;
        }
    }

    /// Whether lists are kept as a whole: if their objects are compared, and in protobuf.
    fn keeps_lists(&self) -> bool {
        self.inner.mirror.is_some() || self.inner.encoding == Encoding::Protobuf
    }

    /// Continues from a list with this version and fingerprint.
    fn list_of(&mut self, version: u64, print: u64) {
        if version < self.inner.track.resume_version() {
            return self.inner.track.note(Fault::OutOfOrder {
                version,
                after: self.inner.track.resume_version(),
            });
        }
        if self.inner.lists.len() < LISTS_MAX {
            self.inner.lists.push(ReceivedList {
                version,
                print,
                at_ns: now_ns(),
            });
        }
        if self.inner.polls.is_some() {
            return self.inner.track.renew(version);
        }
        self.inner.track.relist(version);
        self.mode = Mode::WatchFlags;
    }
}

impl Inner {
    fn line(&mut self, line: &[u8], recorder: &mut Recorder) {
        let event = match self.encoding {
            Encoding::Json => Event::parse(line),
            Encoding::Protobuf => protobuf::event(line),
        };
        let event = match event {
            Ok(event) => event,
            Err(error) => return self.track.note(Fault::Unreadable(format!("{error:#}"))),
        };
        match event.kind {
            EventKind::Error => {
                self.stream_error = Some(event.version);
                return;
            }
            EventKind::Bookmark => recorder.bookmarks += 1,
            EventKind::Added | EventKind::Modified | EventKind::Deleted => {
                recorder.event(event.version);
                self.has_events = true;
                match self.behaviour {
                    Behaviour::Reads
                    | Behaviour::Excluded
                    | Behaviour::LongPolls
                    | Behaviour::Polls(_) => {}
                    Behaviour::Sampled => self.sample(line, event),
                    Behaviour::Slow(_) | Behaviour::Visits { .. } => self.reflect(line, event),
                }
                self.visits.iter_mut().for_each(Visits::event);
                // A deleted object still carries the time of its last change.
                if let (Some(write), EventKind::Added | EventKind::Modified) =
                    (event.write, event.kind)
                    && matches!(
                        self.behaviour,
                        Behaviour::Reads | Behaviour::Sampled | Behaviour::LongPolls
                    )
                {
                    recorder.record_latency(write);
                }
            }
        }
        self.track.event(event.kind, event.version);
    }

    fn sample(&mut self, line: &[u8], event: Event) {
        let number = self.track.count() + self.sampled_from;
        if !self.samples_all && !number.is_multiple_of(SAMPLE_EVERY) {
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
            (Ok(name), EventKind::Deleted) => drop(mirror.now.remove(&name)),
            (Ok(name), _) => drop(mirror.now.insert(name, event.version)),
            (Err(error), _) => self.track.note(Fault::Unreadable(format!("{error:#}"))),
        }
    }
}

impl Member for Watcher {
    fn next(&mut self, _: &Control) -> Next {
        if std::mem::take(&mut self.pause_due) {
            return Next::Pause;
        }
        let polls = self.inner.polls.as_mut();
        if let Some(wait) = polls.and_then(|polls| polls.wait(now_ns())) {
            return Next::Wait(wait);
        }
        let Plan {
            path,
            selector,
            timeout_s,
            bookmarks,
            ..
        } = &*self.plan;
        let version = self.inner.track.resume_version();
        Next::Send(match self.mode {
            Mode::WatchFlags => {
                format!(
                    "{path}?watch=1&resourceVersion={version}&allowWatchBookmarks={bookmarks}&timeoutSeconds={timeout_s}{selector}"
                )
            }
            // Not older than the last received version, as client-go's reflector asks.
            Mode::ListReader => format!("{path}?resourceVersion={version}{selector}"),
        })
    }

    fn response_started(&mut self) {
        self.is_streaming |= self.mode == Mode::WatchFlags;
    }

    fn body(&mut self, status: u16, data: &[u8], recorder: &mut Recorder) {
        if status != 200 {
            return recorder.refusal(status, data);
        }
        let data = match self.gunzip.feed(data) {
            Ok(data) => data,
            Err(error) => {
                return self
                    .inner
                    .track
                    .note(Fault::Unreadable(format!("{error:#}")));
            }
        };
        match self.mode {
            Mode::WatchFlags => {
                self.is_streaming = true;
                let inner = &mut self.inner;
                if let Err(error) = self.frames.feed(&data, |line| inner.line(line, recorder)) {
                    self.inner
                        .track
                        .note(Fault::Unreadable(format!("{error:#}")));
                }
            }
            Mode::ListReader if !self.keeps_lists() => self.listing.feed(&data),
            Mode::ListReader if self.list.len() + data.len() <= LIST_LEN_MAX => {
                self.list.extend_from_slice(&data)
            }
            Mode::ListReader => self.inner.track.note(Fault::Unreadable(format!(
                "a list of more than {LIST_LEN_MAX} bytes"
            ))),
        }
    }

    fn response_ended(&mut self, how: ResponseEnd<'_>, recorder: &mut Recorder) {
        if let Err(error) = self.gunzip.end(how == ResponseEnd::Complete(200)) {
            self.inner
                .track
                .note(Fault::Unreadable(format!("{error:#}")));
        }
        let between = self.frames.is_between();
        self.frames.clear();
        let stream_error = self.inner.stream_error.take();
        self.inner.has_events = false;
        let had_started =
            std::mem::take(&mut self.is_streaming) || how == ResponseEnd::Complete(200);
        let is_lost = self.mode == Mode::WatchFlags && had_started && how != ResponseEnd::Left;
        self.streams_ended += u64::from(is_lost);
        let was_reused =
            std::mem::replace(&mut self.is_reused, matches!(how, ResponseEnd::Complete(_)));
        match (how, self.mode) {
            (ResponseEnd::Complete(200), Mode::ListReader) => {
                recorder.end("relist done");
                self.list_complete();
            }
            (ResponseEnd::Complete(200), Mode::WatchFlags) => {
                if !between {
                    self.inner.track.note(Fault::Unreadable(
                        "a stream that ended cleanly within an event".to_owned(),
                    ));
                }
                match stream_error {
                    Some(410) => {
                        recorder.end("ERROR 410");
                        self.inner.expired += 1;
                        self.mode = Mode::ListReader;
                    }
                    Some(code) => {
                        recorder.end(&format!("ERROR {code}"));
                        self.pause_due = true;
                    }
                    None => recorder.end("clean end"),
                }
            }
            (ResponseEnd::Complete(status), _) => {
                recorder.end(&format!("HTTP {status}"));
                self.pause_due = true;
            }
            // Sent again at once over a new connection, as Go's client does.
            (ResponseEnd::Broken(_), _) if was_reused && !had_started => {}
            (ResponseEnd::Broken(_), _) => self.pause_due = true,
            (ResponseEnd::Left, _) => {
                recorder.end(LEFT);
                if self.is_slow() {
                    self.inner.track.renew(recorder.newest_version);
                    self.mode = Mode::WatchFlags;
                }
                self.come_back();
            }
        }
        if self.mode == Mode::ListReader && !matches!(how, ResponseEnd::Complete(_)) {
            self.list = Vec::new();
            self.listing = ListReader::default();
        }
    }

    fn progress(&self, _: &Control) -> usize {
        let is_there = |goal| self.inner.track.resume_version() >= goal;
        // Unless it polls, a watcher is not there before its watch continues the list.
        let follows = self.mode == Mode::WatchFlags || self.inner.polls.is_some();
        usize::from(follows && self.plan.goal.get().is_some_and(is_there))
    }

    fn behind_by(&self) -> Option<u64> {
        let goal = self
            .plan
            .goal
            .get()
            .filter(|_| self.mode == Mode::WatchFlags)?;
        let behind = goal.saturating_sub(self.inner.track.resume_version());
        Some(behind).filter(|by| *by > 0)
    }

    fn slowness(&self) -> Option<Slowness> {
        match self.inner.behaviour {
            Behaviour::Slow(slowness) => Some(slowness),
            Behaviour::Reads
            | Behaviour::Sampled
            | Behaviour::Excluded
            | Behaviour::LongPolls
            | Behaviour::Polls(_)
            | Behaviour::Visits { .. } => None,
        }
    }

    fn wants_to_leave(&self, _: &Control) -> bool {
        if self.inner.behaviour == Behaviour::LongPolls {
            return self.inner.has_events;
        }
        let is_over = self.inner.visits.as_ref().is_some_and(Visits::is_over);
        is_over && self.plan.goal.get().is_none()
    }
}

#[cfg(test)]
mod tests;
