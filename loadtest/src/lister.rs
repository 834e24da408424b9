//! Clients that list, and check what they get without keeping it: once in each round of a herd, or again and again.

use std::hash::{DefaultHasher, Hasher};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use flate2::write::GzDecoder;
use http_body_util::BodyExt;
use hyper::{Method, StatusCode};
use memchr::memmem;

use crate::client::Client;
use crate::recorder::{Control, Recorder};
use crate::swarm::{Member, Next, ResponseEnd, TOO_MANY};
use crate::target::Target;
use crate::verify::reference::object_print;
use crate::wire::event::{Event, EventKind, first_name, first_version};
use crate::wire::lines::Lines;
use crate::wire::search::StreamSearch;

/// End of a complete list.
pub const LIST_COMPLETE: &str = "list complete";
/// Every object has exactly one such field, and no ConfigMap of the load test has another.
const UID_FIELD: &[u8] = b"\"uid\":\"";
/// The annotation of the bookmark behind the initial events (KEP-3157).
const MARKER: &[u8] = b"\"k8s.io/initial-events-end\":\"true\"";
/// Length of a body's beginning that holds the list's version: typed lists write it first.
const BEGINNING_LEN: usize = 512;
/// Length of a body's end that shows that the list is complete.
const END_LEN: usize = 2;

/// What was found in one list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListResult {
    pub version: Option<u64>,
    pub items: u64,
    /// Length of the body, decompressed.
    pub bytes: u64,
    /// Length of the body on the wire.
    pub wire_bytes: u64,
    /// Hash of a sample of the body's bytes; of a stream the fingerprint of its objects.
    pub digest: u64,
    /// When the list was complete, nanoseconds since the epoch.
    pub ended_at_ns: u64,
    /// Why the list is not complete.
    pub failure: Option<String>,
}

/// The form of a client's lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Plain,
    /// Each body is one gzip member.
    Gzip,
    /// One ADDED event an object, then the bookmark that ends them. The client leaves after that.
    Stream,
}

/// A client that lists once a round, or all the time.
#[derive(Debug)]
pub struct Lister {
    path: Arc<str>,
    form: Form,
    listed: Vec<ListResult>,
    current: ListProgress,
    repeats: Option<Repeats>,
}

/// A client that lists again and again, whatever the server answers; after a refusal it waits.
#[derive(Debug)]
struct Repeats {
    items_min: u64,
    pause_due: bool,
    wrong: Option<String>,
}

/// The list that is being received.
#[derive(Debug)]
struct ListProgress {
    listed: ListResult,
    hasher: DefaultHasher,
    items: StreamSearch,
    beginning: Vec<u8>,
    last: Vec<u8>,
    /// Decoded bytes are taken out after each piece.
    decoder: Option<GzDecoder<Vec<u8>>>,
    lines: Lines,
    /// Whether the bookmark behind the objects has come.
    is_marked: bool,
}

/// Lists once, and checks the body without keeping it.
pub async fn list_once(target: &Target, path: &str, wait: Duration) -> Result<ListResult> {
    let mut lister = Lister::new(path.into());
    let mut recorder = Recorder::default();
    let listing = async {
        let mut client = Client::new(target.clone());
        let response = client.open(Method::GET, path, Vec::new()).await?;
        let status = response.status();
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            if let Ok(data) = frame?.into_data() {
                lister.body(status.as_u16(), &data, &mut recorder);
            }
        }
        Ok::<_, anyhow::Error>(status)
    };
    let status: StatusCode = tokio::time::timeout(wait, listing)
        .await
        .with_context(|| format!("{path}: no list within {wait:?}"))??;
    lister.response_ended(ResponseEnd::Complete(status.as_u16()), &mut recorder);
    let listed = lister.listed.pop().unwrap_or_default();
    match &listed.failure {
        Some(failure) => bail!("{path}: {failure}"),
        None => Ok(listed),
    }
}

impl Lister {
    /// A client that lists `path` once a round.
    pub fn new(path: Arc<str>) -> Self {
        Self::of(path, Form::Plain)
    }

    /// Like [`Self::new`], for bodies that must be compressed.
    pub fn gzip(path: Arc<str>) -> Self {
        Self::of(path, Form::Gzip)
    }

    /// Like [`Self::new`], for a path that streams the objects.
    pub fn streaming(path: Arc<str>) -> Self {
        Self::of(path, Form::Stream)
    }

    /// A client that lists all the time; its lists must have at least this many objects.
    pub fn repeating(path: Arc<str>, items_min: u64) -> Self {
        let repeats = Repeats {
            items_min,
            pause_due: false,
            wrong: None,
        };
        Self {
            repeats: Some(repeats),
            ..Self::new(path)
        }
    }

    fn of(path: Arc<str>, form: Form) -> Self {
        Self {
            path,
            form,
            listed: Vec::new(),
            current: ListProgress::begin(form),
            repeats: None,
        }
    }

    /// The lists, one a round.
    pub fn into_lists(self) -> Vec<ListResult> {
        self.listed
    }

    /// The first list that looked complete and was not, of a client that repeats. A list that breaks off does not count: the client notices.
    pub fn wrong(&self) -> Option<&str> {
        self.repeats.as_ref()?.wrong.as_deref()
    }
}

impl Member for Lister {
    fn next(&mut self, control: &Control) -> Next {
        let is_due = match &mut self.repeats {
            Some(repeats) => {
                if std::mem::take(&mut repeats.pause_due) {
                    return Next::Pause;
                }
                true
            }
            None => self.listed.len() < control.round.load(Ordering::Relaxed),
        };
        if is_due {
            Next::Send(self.path.to_string())
        } else {
            Next::Rest
        }
    }

    fn body(&mut self, status: u16, data: &[u8], recorder: &mut Recorder) {
        match status {
            200 => recorder.events += 1,
            TOO_MANY if self.repeats.is_some() => return,
            status => return recorder.refusal(status, data),
        }
        self.current.listed.wire_bytes += data.len() as u64;
        match self.form {
            Form::Plain => self.current.look(data),
            Form::Gzip => self.current.decode(data),
            Form::Stream => self.current.stream(data),
        }
    }

    fn response_ended(&mut self, how: ResponseEnd<'_>, recorder: &mut Recorder) {
        let current = std::mem::replace(&mut self.current, ListProgress::begin(self.form));
        let mut listed = match self.form {
            Form::Plain | Form::Gzip => current.finish(how),
            Form::Stream => current.finish_stream(how),
        };
        listed.ended_at_ns = recorder.now_ns();
        match &mut self.repeats {
            None => self.listed.push(listed),
            Some(repeats) => repeats.add(listed, how, recorder),
        }
    }

    fn progress(&self, _: &Control) -> usize {
        self.listed.len()
    }

    fn wants_to_leave(&self, _: &Control) -> bool {
        self.form == Form::Stream
            && (self.current.is_marked || self.current.listed.failure.is_some())
    }
}

impl Repeats {
    fn add(&mut self, listed: ListResult, how: ResponseEnd<'_>, recorder: &mut Recorder) {
        self.pause_due = how != ResponseEnd::Complete(200);
        match how {
            ResponseEnd::Complete(200) => {
                recorder.end(LIST_COMPLETE);
                let few = listed.items < self.items_min;
                let short = few.then(|| format!("a list of {} objects", listed.items));
                if let Some(why) = listed.failure.or(short) {
                    self.wrong.get_or_insert(why);
                }
            }
            // Counted where the head of the response is known.
            ResponseEnd::Complete(TOO_MANY) => {}
            ResponseEnd::Complete(status) => recorder.end(&format!("HTTP {status}")),
            ResponseEnd::Broken(_) | ResponseEnd::Left => {}
        }
    }
}

impl ListProgress {
    fn begin(form: Form) -> Self {
        Self {
            listed: ListResult::default(),
            hasher: DefaultHasher::new(),
            items: StreamSearch::new(UID_FIELD),
            beginning: Vec::new(),
            last: Vec::new(),
            decoder: (form == Form::Gzip).then(|| GzDecoder::new(Vec::new())),
            lines: Lines::default(),
            is_marked: false,
        }
    }

    fn fail(&mut self, why: impl FnOnce() -> String) {
        self.listed.failure.get_or_insert_with(why);
    }

    /// Checks a piece of the decompressed body.
    fn look(&mut self, data: &[u8]) {
        let room = BEGINNING_LEN.saturating_sub(self.beginning.len());
        self.beginning
            .extend_from_slice(&data[..room.min(data.len())]);
        self.items.feed(data);
        sample(&mut self.hasher, self.listed.bytes, data);
        self.listed.bytes += data.len() as u64;
        self.last
            .extend_from_slice(&data[data.len().saturating_sub(END_LEN)..]);
        let from = self.last.len().saturating_sub(END_LEN);
        self.last.drain(..from);
    }

    fn decode(&mut self, data: &[u8]) {
        let Some(decoder) = &mut self.decoder else {
            return;
        };
        let written = decoder.write_all(data);
        let decoded = std::mem::take(decoder.get_mut());
        if let Err(error) = written {
            self.fail(|| format!("not one gzip member: {error}"));
        }
        self.look(&decoded);
    }

    fn finish(mut self, how: ResponseEnd<'_>) -> ListResult {
        if let Some(decoder) = &mut self.decoder {
            // This compares length and checksum.
            let finished = decoder.try_finish();
            let decoded = std::mem::take(decoder.get_mut());
            if let Err(error) = finished {
                self.fail(|| format!("not one gzip member: {error}"));
            }
            self.look(&decoded);
        }
        let is_complete = self.last.ends_with(b"}\n") || self.last.ends_with(b"}");
        match how {
            ResponseEnd::Complete(200) if is_complete => {}
            ResponseEnd::Complete(200) => self.fail(|| "a list without its end".to_owned()),
            ResponseEnd::Complete(status) => self.fail(|| format!("HTTP {status}")),
            ResponseEnd::Broken(why) => self.fail(|| why.to_owned()),
            ResponseEnd::Left => self.fail(|| "left before its end".to_owned()),
        }
        ListResult {
            items: self.items.count(),
            version: first_version(&self.beginning),
            digest: self.hasher.finish(),
            ..self.listed
        }
    }

    fn stream(&mut self, data: &[u8]) {
        let mut lines = std::mem::take(&mut self.lines);
        let fed = lines.feed(data, |line| {
            if let Err(why) = self.event(line) {
                self.fail(|| why);
            }
        });
        self.lines = lines;
        if let Err(error) = fed {
            self.fail(|| format!("{error:#}"));
        }
    }

    fn event(&mut self, line: &[u8]) -> Result<(), String> {
        let event = Event::parse(line).map_err(|error| format!("{error:#}"))?;
        if self.is_marked {
            // Events behind the marker in the same piece are not part of the list.
            return Ok(());
        }
        let listed = &mut self.listed;
        match event.kind {
            EventKind::Added => {
                let name = first_name(line).ok_or("an object without a name")?;
                listed.items += 1;
                listed.bytes += line.len() as u64 + 1;
                listed.digest ^= object_print(&name, event.version);
                Ok(())
            }
            EventKind::Bookmark if memmem::find(line, MARKER).is_some() => {
                self.is_marked = true;
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

    fn finish_stream(mut self, how: ResponseEnd<'_>) -> ListResult {
        match how {
            ResponseEnd::Left if self.is_marked => {}
            ResponseEnd::Left => self.fail(|| "left before the marker".to_owned()),
            ResponseEnd::Complete(status) => {
                self.fail(|| format!("ended with HTTP {status} before the marker"));
            }
            ResponseEnd::Broken(why) => self.fail(|| why.to_owned()),
        }
        self.listed
    }
}

/// Hashes every 61st byte, counted from the body's beginning. Pieces differ in length from client to client, so whole pieces cannot be
/// hashed cheaply; together with length and item count a sample is enough.
fn sample(hasher: &mut DefaultHasher, offset: u64, data: &[u8]) {
    const STEP: usize = 61;
    let into = usize::try_from(offset % STEP as u64).unwrap_or(0);
    for byte in data.iter().skip((STEP - into) % STEP).step_by(STEP) {
        hasher.write_u8(*byte);
    }
}

#[cfg(test)]
mod tests;
