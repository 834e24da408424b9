//! A seeded run against a model of the API server that breaks streams, refuses requests, compacts its history, and deletes
//! and recreates objects.
//!
//! A failure names its seed, and the seed replays it, because only seeded random numbers and a paused clock decide.

use std::collections::BTreeMap;
use std::task::Waker;

use bytes::Buf;
use http::{Response, StatusCode};
use http_body::Body;
use tokio::time::Instant as Moment;

use super::*;
use crate::cache::samples::{Dice, told};
use crate::resource::Encoding;
use crate::selector::Selector;
use crate::view::{Marker, ServedResource};
use crate::watch::{Start, Timing, Watch};

const KEYS: u64 = 12;
/// Number of writes. During the last fifth of them there are no faults.
const WRITES: usize = 250;

/// One write: its version, its event, and the whole state after it.
struct Past {
    version: u64,
    line: String,
    state: BTreeMap<String, Sample>,
}

/// The API server with its whole history. Clients can watch only from `floor` on.
pub(crate) struct Model {
    pub(crate) dice: Dice,
    past: Vec<Past>,
    revision: u64,
    floor: u64,
    pub(crate) calm: bool,
    waiting: Vec<Waker>,
}

impl Model {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            dice: Dice(seed),
            past: Vec::new(),
            revision: 5,
            floor: 0,
            calm: false,
            waiting: Vec::new(),
        }
    }

    pub(crate) fn state_at(&self, version: u64) -> BTreeMap<String, Sample> {
        let after = self.past.partition_point(|past| past.version <= version);
        let last = after.checked_sub(1).map(|at| &self.past[at]);
        last.map_or_else(BTreeMap::new, |past| past.state.clone())
    }

    pub(crate) fn write(&mut self) {
        self.revision += 1 + self.dice.below(2);
        let version = self.revision;
        let key = format!("a/{:02}", self.dice.below(KEYS));
        let mut state = self
            .past
            .last()
            .map_or_else(BTreeMap::new, |past| past.state.clone());
        let held = state.get(&key).cloned();
        let (word, sample) = match held {
            Some(mut last) if self.dice.once_in(3) => {
                state.remove(&key);
                last.version = version;
                ("DELETED", last)
            }
            held => {
                let mut sample = Sample::new(&key, version);
                sample.uid = held.as_ref().map_or(version, |held| held.uid);
                state.insert(key.clone(), sample.clone());
                (if held.is_some() { "MODIFIED" } else { "ADDED" }, sample)
            }
        };
        let line = event(word, &sample);
        self.past.push(Past {
            version,
            line,
            state,
        });
        if !self.calm && self.dice.once_in(25) {
            self.floor = self.revision - self.dice.below(6).min(self.revision);
        }
        self.waiting.drain(..).for_each(Waker::wake);
    }

    /// True with probability 1/n, except while the model is calm.
    fn has_fault(&mut self, n: u64) -> bool {
        !self.calm && self.dice.once_in(n)
    }
}

fn event(word: &str, sample: &Sample) -> String {
    format!("{{\"type\":\"{word}\",\"object\":{}}}\n", sample.json().0)
}

pub(crate) type Shared = Arc<Mutex<Model>>;

pub(crate) struct Server(pub(crate) Shared);

impl Fetch for Server {
    type Body = Answer;

    async fn get(
        &self,
        path: String,
        _: RequestPurpose,
        _: Encoding,
    ) -> Result<Response<Answer>, FetchError> {
        let mut model = self.0.lock().unwrap();
        if model.has_fault(6) {
            let code = [429, 500, 503, 504, 0][usize::try_from(model.dice.below(5)).unwrap()];
            if code == 0 {
                return Err(FetchError("no route".into()));
            }
            return Ok(refused(code));
        }
        let sort = sort_of(&path);
        let (sort, argument) = sort.split_once(' ').unwrap();
        Ok(match sort {
            "stream" => {
                let version = model.revision;
                let state = model.state_at(version);
                let mut lines: String = state
                    .values()
                    .map(|sample| event("ADDED", sample))
                    .collect();
                lines.push_str(&marker(version));
                Response::new(Answer::watching(&self.0, lines, version))
            }
            "watch" => {
                let after: u64 = argument.parse().unwrap();
                if after < model.floor {
                    if model.dice.once_in(2) {
                        return Ok(refused(410));
                    }
                    return Ok(Response::new(Answer::whole(EXPIRED.into())));
                }
                Response::new(Answer::watching(&self.0, String::new(), after))
            }
            "list" => pages(&model, model.revision, ""),
            "page" => {
                let (version, start) = argument.split_once('.').unwrap();
                pages(&model, version.parse().unwrap(), start)
            }
            _ => unreachable!("{path}"),
        })
    }
}

fn refused(code: u16) -> Response<Answer> {
    let mut response = Response::new(Answer::whole(format!("{{\"code\":{code}}}")));
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}

/// Pages of two objects. Tokens contain the version and the last key.
fn pages(model: &Model, version: u64, after: &str) -> Response<Answer> {
    if version < model.floor {
        return refused(410);
    }
    let state = model.state_at(version);
    let is_after = |key: &str| key.strip_prefix("a/").is_some_and(|name| name > after);
    let rest: Vec<_> = state
        .values()
        .filter(|sample| is_after(&sample.key))
        .collect();
    let token = if rest.len() > 2 {
        format!("{version}.{}", &rest[1].key[2..])
    } else {
        String::new()
    };
    let items: Vec<_> = rest
        .iter()
        .take(2)
        .map(|sample| {
            let (json, prefix_len) = sample.json();
            format!("{{{}", &json[prefix_len + 1..])
        })
        .collect();
    let metadata = format!("{{\"resourceVersion\":\"{version}\",\"continue\":\"{token}\"}}");
    Response::new(Answer::whole(format!(
        "{{\"kind\":\"ConfigMapList\",\"apiVersion\":\"v1\",\"metadata\":{metadata},\"items\":[{}]}}",
        items.join(",")
    )))
}

/// The body of a response of the model: a text, followed by events if it is a watch.
pub(crate) struct Answer {
    text: Vec<u8>,
    /// For a watch, the model and the version of the last event in `text`.
    watching: Option<(Shared, u64)>,
    ended: bool,
}

impl Answer {
    fn whole(text: String) -> Self {
        Self {
            text: text.into(),
            watching: None,
            ended: false,
        }
    }

    fn watching(model: &Shared, text: String, after: u64) -> Self {
        Self {
            watching: Some((Arc::clone(model), after)),
            ..Self::whole(text)
        }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = String;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, String>>> {
        let this = &mut *self;
        if this.ended {
            return Poll::Ready(None);
        }
        let Some((model, after)) = &mut this.watching else {
            this.ended = true;
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut this.text).into()))));
        };
        let mut model = model.lock().unwrap();
        let from = model.past.partition_point(|past| past.version <= *after);
        for past in &model.past[from..] {
            this.text.extend_from_slice(past.line.as_bytes());
            *after = past.version;
        }
        if this.text.is_empty() && *after < model.revision && model.dice.once_in(2) {
            *after = model.revision;
            this.text.extend_from_slice(bookmark(*after).as_bytes());
        }
        if model.has_fault(50) {
            this.text.extend_from_slice(b"<html>\n");
        }
        if model.has_fault(12) {
            // The stream ends or breaks, perhaps within a frame.
            this.ended = true;
            let len = this.text.len() as u64;
            this.text
                .truncate(usize::try_from(model.dice.below(len + 1)).unwrap());
            if this.text.is_empty() {
                let cut = model.dice.once_in(2).then(|| Err("reset".to_owned()));
                return Poll::Ready(cut);
            }
        }
        if this.text.is_empty() {
            model.waiting.push(context.waker().clone());
            return Poll::Pending;
        }
        let len = this.text.len() as u64;
        let piece = if model.dice.once_in(2) {
            len
        } else {
            1 + model.dice.below(len)
        };
        let rest = this.text.split_off(usize::try_from(piece).unwrap());
        let piece = std::mem::replace(&mut this.text, rest);
        if this.ended {
            this.text.clear();
        }
        Poll::Ready(Some(Ok(Frame::data(piece.into()))))
    }
}

/// A client of the cache. It keeps the state that its watch has delivered, and never lists again.
struct Client {
    body: Watch,
    state: BTreeMap<String, u64>,
    version: u64,
}

impl Client {
    fn new(served: &ServedResource) -> Self {
        let entry = served.hub.join(&Selector::default());
        let snapshot = served.cache.snapshot().unwrap();
        let version = snapshot.resource_version;
        let start = Start::Initial {
            snapshot,
            version,
            marker: Marker::InitialEventsEnd,
        };
        let timing = Timing {
            started: Moment::now(),
            timeout: Duration::from_secs(1 << 30),
            bookmarks: true,
        };
        Self {
            body: Watch::new(served.clone(), entry, start, timing, Arc::new(())),
            state: BTreeMap::new(),
            version: 0,
        }
    }

    fn read(&mut self, seed: u64) {
        let mut context = Context::from_waker(Waker::noop());
        while let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(&mut context) {
            let mut pieces = frame
                .expect("the stream stays open")
                .unwrap()
                .into_data()
                .unwrap();
            for line in told(&pieces.copy_to_bytes(pieces.remaining())) {
                self.apply(&line, seed);
            }
        }
    }

    fn apply(&mut self, line: &str, seed: u64) {
        let words: Vec<_> = line.split(' ').collect();
        if let ["BOOKMARK" | "MARKER", version] = words[..] {
            let version = version.parse().unwrap();
            assert!(
                version >= self.version,
                "seed {seed}: {line} after {}",
                self.version
            );
            self.version = version;
            return;
        }
        let version: u64 = words[2].parse().unwrap();
        let held = match words[0] {
            "DELETED" => self.state.remove(words[1]).is_some(),
            _ => self.state.insert(words[1].into(), version).is_some(),
        };
        assert_eq!(held, words[0] != "ADDED", "seed {seed}: {line}");
        // Initial events come in key order.
        assert!(
            self.version == 0 || version > self.version,
            "seed {seed}: {line} after {}",
            self.version
        );
        if self.version > 0 {
            self.version = version;
        }
    }
}

/// Lets time pass: the paused clock moves on while all tasks wait, so that the driver's back-off ends.
async fn pass(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

async fn run(seed: u64, streaming: StreamingLists) -> usize {
    let model = Arc::new(Mutex::new(Model::new(seed)));
    let hub = Arc::new(Hub::new(&kind(Layout::Typed)));
    let writer = CacheWriter::new(kind(Layout::Typed), keep(1 << 16), Arc::clone(&hub) as _);
    let cache = Arc::clone(writer.cache());
    let served = ServedResource { cache, hub };
    let notes = Arc::new(Notes::default());
    let driver = driver(Server(Arc::clone(&model)), writer, streaming, &notes);
    let driver = tokio::spawn(driver.run());
    while served.cache.snapshot().is_none() {
        pass(500).await;
    }
    let mut clients = vec![Client::new(&served)];
    for at in 0..WRITES {
        let wait = {
            let mut model = model.lock().unwrap();
            model.write();
            model.calm = at >= WRITES * 4 / 5;
            if model.dice.once_in(10) { 20_000 } else { 300 }
        };
        pass(wait).await;
        if at % 50 == 20 {
            clients.push(Client::new(&served));
        }
        let reads = |client: &usize| (at + client).is_multiple_of(1 + client * 7);
        for client in (0..clients.len()).filter(reads) {
            clients[client].read(seed);
        }
    }
    // Longer than the longest back-off.
    pass(100_000).await;
    driver.abort();
    let expected = model.lock().unwrap().state_at(u64::MAX);
    let expected: BTreeMap<_, _> = expected
        .into_iter()
        .map(|(key, sample)| (key, sample.version))
        .collect();
    let snapshot = served.cache.snapshot().unwrap();
    let held: BTreeMap<_, _> = snapshot
        .objects
        .iter()
        .map(|object| (object.key().to_string(), object.resource_version().0))
        .collect();
    assert_eq!(held, expected, "seed {seed}: the cache");
    for (at, client) in clients.iter_mut().enumerate() {
        client.read(seed);
        assert_eq!(client.state, expected, "seed {seed}: client {at}");
    }
    let notes = notes.take();
    notes
        .iter()
        .filter(|note| *note == "relisted expired")
        .count()
}

#[tokio::test(start_paused = true)]
async fn after_quiet_the_cache_and_its_followers_equal_upstream() {
    let mut relists = 0;
    for seed in 0..60 {
        relists += run(seed, StreamingLists::Preferred).await;
        relists += run(seed + 1000, StreamingLists::Never).await;
    }
    assert!(relists > 100, "only {relists} relists");
}
