//! One reflector as client-go has it since 1.35: a streaming list, or a list where the server has none, then watches from the last version.
//! Pure: it chooses requests, reads what comes and decides what follows; time and chance are arguments.

mod objects;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kube_fanout::resource::Encoding;

use super::backoff::Backoff;
use super::node::NewPods;
use super::selection::Selection;
use crate::recorder::{Control, Recorder};
use crate::swarm::{Member, Next, ResponseEnd, TOO_MANY};
use crate::verify::reference::{Fingerprints, Reference};
use crate::verify::{Fault, Track};
use crate::watcher::Goal;
use crate::wire::event::EventKind;
use crate::wire::frames::Frames;
use crate::wire::list::json_list;
use crate::wire::named::{NamedEvent, named_event};
use crate::wire::protobuf;
use objects::Objects;

/// client-go takes a shorter watch without events for a failure.
const SHORTEST_WATCH: Duration = Duration::from_secs(1);
/// The shortest timeout of a first watch that is staggered, of the shortest timeout of a watch.
const STAGGERED_MIN: f64 = 0.1;
/// Longest list that is kept while it arrives: a hundred thousand small objects.
const LIST_LEN_MAX: usize = 256 << 20;
/// Initial states of one reflector that are compared; more prove nothing new.
const INITIAL_STATES_MAX: usize = 16;

#[derive(Debug, Clone)]
pub struct WatchTarget {
    pub path: String,
    /// Selectors as they stand in the query, such as `fieldSelector=metadata.name%3Da`; may be empty.
    pub selector: String,
    /// Which objects these are, for the comparison with the reference.
    pub selection: Selection,
    /// Shortest timeout of a watch; each has up to twice as much.
    pub timeout_min: Duration,
    /// Whether it lists before it watches, as clients do that do not stream lists.
    pub lists_first: bool,
    /// Whether its first watch ends early, as if it had been open for some time.
    pub is_staggered: bool,
    /// Where names of new objects go, if someone wants them.
    pub new_pods: Option<Arc<NewPods>>,
    pub goal: Arc<Goal>,
    /// Counts the reflectors that have had a complete state.
    pub synced: Arc<AtomicUsize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// A watch that begins with the objects and a bookmark behind them.
    StreamingList,
    /// A list, because the server refused that.
    List,
    Watch,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestEnd {
    Complete(u16),
    /// The connection failed before a response.
    Unanswered,
    /// The connection failed within the response.
    Cut,
}

/// A reflector with its store.
#[derive(Debug)]
pub struct Reflector {
    target: WatchTarget,
    phase: Phase,
    backoff: Backoff,
    encoding: Encoding,
    frames: Frames,
    list: Vec<u8>,
    objects: Objects,
    /// The objects of an initial state that is arriving.
    arriving: Objects,
    /// Every event since the first state; none before it.
    track: Option<Track>,
    /// Version and fingerprint of each initial state.
    initial_states: Vec<(u64, u64)>,
    /// Whether the next list must not continue from the last version, because the server has lost it.
    is_version_lost: bool,
    /// The code of the ERROR event that ends the stream.
    stream_error: Option<u64>,
    events_of_request: u64,
    /// Whether a watch has come to its end.
    has_watched: bool,
    is_open: bool,
    began_at: Duration,
    /// When it was made; its times count from here.
    made_at: Instant,
    /// Time until the next request.
    wait: Duration,
    fault: Option<Fault>,
}

impl Reflector {
    pub fn new(target: WatchTarget, encoding: Encoding) -> Self {
        Self {
            phase: match target.lists_first {
                true => Phase::List,
                false => Phase::StreamingList,
            },
            target,
            backoff: Backoff::default(),
            encoding,
            frames: Frames::new(encoding, None),
            list: Vec::new(),
            objects: Objects::default(),
            arriving: Objects::default(),
            track: None,
            initial_states: Vec::new(),
            is_version_lost: false,
            stream_error: None,
            events_of_request: 0,
            has_watched: false,
            is_open: false,
            began_at: Duration::ZERO,
            made_at: Instant::now(),
            wait: Duration::ZERO,
            fault: None,
        }
    }

    /// The objects that it holds, for the comparison.
    pub fn selection(&self) -> Selection {
        self.target.selection
    }

    /// The newest version that it has seen.
    fn version(&self) -> u64 {
        self.track.as_ref().map_or(0, Track::resume_version)
    }

    /// Path and query of the next request, in the order in which Go writes parameters.
    fn request(&self, chance: f64) -> String {
        let WatchTarget {
            path,
            selector,
            timeout_min,
            is_staggered,
            ..
        } = &self.target;
        let selector = match selector.as_str() {
            "" => String::new(),
            selector => format!("&{selector}"),
        };
        // Shorter watches would be failures for this reflector.
        let (factor, shortest_s) = match *is_staggered && !self.has_watched {
            true => (STAGGERED_MIN + chance, 2),
            false => (1.0 + chance, 1),
        };
        let timeout_s = timeout_min.mul_f64(factor).as_secs().max(shortest_s);
        let version = self.version();
        match self.phase {
            Phase::List => format!("{path}?limit=500&resourceVersion=0{selector}"),
            Phase::Watch => format!(
                "{path}?allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds={timeout_s}&watch=true{selector}"
            ),
            Phase::StreamingList => {
                let from = match version {
                    0 => String::new(),
                    _ if self.is_version_lost => String::new(),
                    version => format!("&resourceVersion={version}"),
                };
                format!(
                    "{path}?allowWatchBookmarks=true{from}&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&timeoutSeconds={timeout_s}&watch=true{selector}"
                )
            }
        }
    }

    /// A response with status 200 has begun.
    fn begin_response(&mut self, now: Duration) {
        self.frames = Frames::new(self.encoding, None);
        self.list = Vec::new();
        self.arriving = Objects::default();
        self.stream_error = None;
        self.events_of_request = 0;
        self.began_at = now;
        self.is_open = true;
    }

    /// Reads a piece of its body.
    fn read(&mut self, data: &[u8], recorder: &mut Recorder) {
        if self.phase == Phase::List {
            if self.list.len() + data.len() > LIST_LEN_MAX {
                let why = format!("a list of more than {LIST_LEN_MAX} bytes");
                return self.note(Fault::Unreadable(why));
            }
            return self.list.extend_from_slice(data);
        }
        let mut frames = std::mem::replace(&mut self.frames, Frames::new(self.encoding, None));
        let encoding = self.encoding;
        let fed = frames.feed(data, |frame| match named_event(encoding, frame) {
            Ok(event) => self.event(event, recorder),
            Err(error) => self.note(Fault::Unreadable(format!("{error:#}"))),
        });
        self.frames = frames;
        if let Err(error) = fed {
            self.note(Fault::Unreadable(format!("{error:#}")));
        }
    }

    fn event(&mut self, named: NamedEvent, recorder: &mut Recorder) {
        let NamedEvent { event, name, .. } = &named;
        match event.kind {
            EventKind::Error => self.stream_error = Some(event.version),
            EventKind::Bookmark if self.phase == Phase::StreamingList => {
                if named.ends_initial {
                    let arrived = std::mem::take(&mut self.arriving);
                    self.begin_state(event.version, arrived);
                    self.phase = Phase::Watch;
                }
            }
            EventKind::Bookmark => {
                recorder.bookmarks += 1;
                self.tracked(event.kind, event.version);
            }
            EventKind::Added | EventKind::Modified | EventKind::Deleted => {
                self.events_of_request += 1;
                if self.phase == Phase::StreamingList {
                    self.arriving.put(name, event);
                    return self.announce(event.kind, name);
                }
                recorder.event(event.version);
                if let Some(write) = self.objects.apply(name, event) {
                    recorder.record_latency(write);
                }
                self.announce(event.kind, name);
                self.tracked(event.kind, event.version);
            }
        }
    }

    fn announce(&self, kind: EventKind, name: &str) {
        let new_pods = self.target.new_pods.as_ref();
        if let Some(new_pods) = new_pods.filter(|_| kind == EventKind::Added) {
            new_pods.push(name);
        }
    }

    fn tracked(&mut self, kind: EventKind, version: u64) {
        if let Some(track) = &mut self.track {
            track.event(kind, version);
        }
    }

    /// Continues from a complete state.
    fn begin_state(&mut self, version: u64, objects: Objects) {
        if version < self.version() && !self.is_version_lost {
            return self.note(Fault::OutOfOrder {
                version,
                after: self.version(),
            });
        }
        self.objects = objects;
        self.is_version_lost = false;
        if self.initial_states.len() < INITIAL_STATES_MAX {
            self.initial_states
                .push((version, self.objects.fingerprint()));
        }
        match &mut self.track {
            Some(track) => track.relist(version),
            None => {
                self.track = Some(Track::begin(version));
                self.target.synced.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn list_complete(&mut self) {
        let list = std::mem::take(&mut self.list);
        let read = match self.encoding {
            Encoding::Json => serde_json::from_slice(&list)
                .map_err(anyhow::Error::from)
                .and_then(|list| json_list(&list)),
            Encoding::Protobuf => protobuf::list(&list),
        };
        match read {
            Ok((version, objects)) => {
                for (name, _) in &objects {
                    self.announce(EventKind::Added, name);
                }
                self.begin_state(version, Objects::from_list(objects));
                self.phase = Phase::Watch;
            }
            Err(error) => self.note(Fault::Unreadable(format!("a list: {error:#}"))),
        }
    }

    /// The request has ended: returns how long to wait before the next one, as client-go does.
    fn ended(&mut self, end: RequestEnd, now: Duration, chance: f64) -> Duration {
        self.is_open = false;
        let between = self.frames.is_between();
        self.frames.clear();
        let error = self.stream_error.take();
        match (end, self.phase) {
            // Refused for lack of capacity, or not reached: the same request again.
            (RequestEnd::Unanswered | RequestEnd::Complete(429), _) => {
                return self.backoff.delay(now, chance);
            }
            (RequestEnd::Complete(200), Phase::List) => {
                self.list_complete();
                return Duration::ZERO;
            }
            (RequestEnd::Complete(200), _) if error == Some(410) => self.lose_version(),
            (RequestEnd::Complete(200), _) if error == Some(429) => {}
            (RequestEnd::Complete(200), Phase::Watch) if error.is_none() => {
                if !between {
                    let why = "a stream that ended within an event".to_owned();
                    self.note(Fault::Unreadable(why));
                }
                self.has_watched = true;
                let lasted = now.saturating_sub(self.began_at);
                if lasted >= SHORTEST_WATCH || self.events_of_request > 0 {
                    return Duration::ZERO;
                }
                self.phase = Phase::StreamingList;
            }
            // client-go takes a broken stream for its end.
            (RequestEnd::Cut, Phase::Watch) => return Duration::ZERO,
            (RequestEnd::Complete(410), _) => self.lose_version(),
            (RequestEnd::Complete(_) | RequestEnd::Cut, Phase::StreamingList) => {
                self.phase = Phase::List;
                return Duration::ZERO;
            }
            (RequestEnd::Complete(_) | RequestEnd::Cut, _) => self.phase = Phase::StreamingList,
        }
        self.backoff.delay(now, chance)
    }

    fn lose_version(&mut self) {
        self.is_version_lost = true;
        self.phase = Phase::StreamingList;
    }

    fn note(&mut self, fault: Fault) {
        self.fault.get_or_insert(fault);
    }

    /// The first difference from what it must have: every event since its first state, and the state at the end.
    pub fn verdict(&self, reference: &Reference, prints: &Fingerprints) -> Option<Fault> {
        if let Some(fault) = &self.fault {
            return Some(fault.clone());
        }
        let Some(track) = &self.track else {
            return Some(Fault::NotConverged("it never had a state".to_owned()));
        };
        track.verdict(reference, reference.last()).or_else(|| {
            let wrong = |(version, print): &&(u64, u64)| prints.at(*version) != *print;
            if let Some((version, _)) = self.initial_states.iter().find(wrong) {
                let why = format!("the state that it got at version {version} is not the server's");
                return Some(Fault::NotConverged(why));
            }
            let differs = prints.at(u64::MAX) != self.objects.fingerprint();
            differs.then(|| Fault::NotConverged("its objects are not the server's".to_owned()))
        })
    }

    /// Number of events since its first state.
    pub fn event_count(&self) -> u64 {
        self.track.as_ref().map_or(0, Track::count)
    }
}

impl Member for Reflector {
    fn next(&mut self, _: &Control) -> Next {
        let wait = std::mem::take(&mut self.wait);
        if wait.is_zero() {
            Next::Send(self.request(fastrand::f64()))
        } else {
            Next::Wait(wait)
        }
    }

    fn response_started(&mut self) {
        self.begin_response(self.made_at.elapsed());
    }

    fn body(&mut self, status: u16, data: &[u8], recorder: &mut Recorder) {
        match status {
            200 => self.read(data, recorder),
            TOO_MANY => {}
            status => recorder.refusal(status, data),
        }
    }

    fn response_ended(&mut self, how: ResponseEnd<'_>, recorder: &mut Recorder) {
        let end = match how {
            ResponseEnd::Complete(200) => {
                recorder.end("clean end");
                RequestEnd::Complete(200)
            }
            ResponseEnd::Complete(status) => {
                recorder.end(&format!("HTTP {status}"));
                RequestEnd::Complete(status)
            }
            ResponseEnd::Broken(_) | ResponseEnd::Left if self.is_open => RequestEnd::Cut,
            ResponseEnd::Broken(_) | ResponseEnd::Left => RequestEnd::Unanswered,
        };
        self.wait = self.ended(end, self.made_at.elapsed(), fastrand::f64());
    }

    fn progress(&self, _: &Control) -> usize {
        let is_there = |goal| self.version() >= goal;
        usize::from(self.target.goal.get().is_some_and(is_there))
    }

    fn behind_by(&self) -> Option<u64> {
        let goal = self
            .target
            .goal
            .get()
            .filter(|_| self.phase != Phase::List)?;
        Some(goal.saturating_sub(self.version())).filter(|by| *by > 0)
    }
}

#[cfg(test)]
mod tests;
