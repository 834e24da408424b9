//! Every way in which upstream can fail for long: how long it takes until clients have the truth, or are told that they may not have it. The
//! rows are those of docs/RELIABILITY.md.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use tokio::sync::mpsc;

use super::scripted::{Feed, Piped, Reply, bookmark, line, list, marker, sort_of};
use crate::driver::{Fetch, FetchError, RequestPurpose};
use crate::resource::Encoding;

/// How an upstream fails from one moment on.
#[derive(Clone, Debug, Default)]
pub struct Failing {
    pub watch: WatchFault,
    pub list: ListFault,
}

/// What happens to watches. Those that are open end, unless they fall silent.
#[derive(Clone, Debug, Default)]
pub enum WatchFault {
    #[default]
    None,
    /// Refused with this code, and this `Retry-After`.
    Refused(u16, Option<u32>),
    /// Refused with 410, and streamed lists with this code.
    Expired(u16),
    /// Accepted; this is sent, and the watch ends.
    Answers(String),
    /// The same, and the connection breaks.
    Breaks(String),
    /// Accepted for three seconds, in which nothing is sent.
    Short,
    /// Open, and silent but for bookmarks of the version that the watch began with.
    Silent(SilentBookmarks),
    /// Open, and all but the first of these changes are sent.
    Lossy,
    /// No answer at all.
    NoHead,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SilentBookmarks {
    None,
    Equal,
    Lower,
}

#[derive(Clone, Copy, Debug, Default)]
pub enum ListFault {
    #[default]
    None,
    Refused(u16),
    NoHead,
}

/// How long the client waits for the head of a response.
const HEAD_WAIT: Duration = Duration::from_secs(75);

/// The rows are played with this many sequences of random back-off.
pub const SEED_COUNT: u64 = 8;

/// The default of `--staleness-bound`, in seconds.
pub const STALE_AFTER: u64 = 75;

/// What is to be expected of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Clients have the truth before the cache counts as stale, or after a warning within two minutes.
    Truth,
    /// Nobody can know the truth before upstream answers again: clients are warned.
    Warning,
}

pub struct Row {
    pub name: String,
    pub failing: Failing,
    pub expected: Expected,
}

fn error_event(status: &str) -> String {
    format!(
        "{{\"type\":\"ERROR\",\"object\":{{\"kind\":\"Status\",\"apiVersion\":\"v1\"{status}}}}}\n"
    )
}

/// The rows of the matrix.
#[expect(clippy::too_many_lines, reason = "a table")]
pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    let mut row = |name: String, watch: WatchFault, list: ListFault, expected: Expected| {
        let failing = Failing { watch, list };
        rows.push(Row {
            name,
            failing,
            expected,
        });
    };
    let refused = |code| WatchFault::Refused(code, None);
    let codes = [
        400, 401, 403, 404, 405, 406, 408, 409, 410, 422, 429, 500, 502, 503, 504,
    ];
    for code in codes {
        let none = ListFault::None;
        row(
            format!("watch {code}"),
            refused(code),
            none,
            Expected::Truth,
        );
        let event = error_event(&format!(",\"code\":{code}"));
        let watch = WatchFault::Answers(event);
        row(format!("ERROR {code}"), watch, none, Expected::Truth);
    }
    for reason in [
        "Expired",
        "Gone",
        "InternalError",
        "Timeout",
        "ServerTimeout",
        "TooManyRequests",
        "Forbidden",
        "Unauthorized",
        "ServiceUnavailable",
        "Unheard",
    ] {
        let watch = WatchFault::Answers(error_event(&format!(",\"reason\":\"{reason}\"")));
        row(
            format!("ERROR {reason} without a code"),
            watch,
            ListFault::None,
            Expected::Truth,
        );
    }
    for code in [429, 500, 503] {
        let list = ListFault::Refused(code);
        row(
            format!("both {code}"),
            refused(code),
            list,
            Expected::Warning,
        );
        row(
            format!("list {code}"),
            WatchFault::None,
            list,
            Expected::Truth,
        );
    }
    let sort_of_truth =
        |name: &str, watch| (name.to_owned(), watch, ListFault::None, Expected::Truth);
    for (name, watch, list, expected) in [
        sort_of_truth("watch 410, streamed list 503", WatchFault::Expired(503)),
        sort_of_truth("watch 410, streamed list 422", WatchFault::Expired(422)),
        sort_of_truth(
            "watch 429, Retry-After 300",
            WatchFault::Refused(429, Some(300)),
        ),
        sort_of_truth(
            "ERROR without anything",
            WatchFault::Answers(error_event("")),
        ),
        sort_of_truth("clean end", WatchFault::Answers(String::new())),
        sort_of_truth("cut", WatchFault::Breaks(String::new())),
        sort_of_truth(
            "cut within a frame",
            WatchFault::Breaks("{\"type\":".into()),
        ),
        sort_of_truth(
            "end within a frame",
            WatchFault::Answers("{\"type\":".into()),
        ),
        sort_of_truth("nonsense", WatchFault::Answers("<html>\n".into())),
        sort_of_truth("short quiet watches", WatchFault::Short),
        sort_of_truth("no answer", WatchFault::NoHead),
        sort_of_truth("silence", WatchFault::Silent(SilentBookmarks::None)),
        sort_of_truth(
            "equal bookmarks",
            WatchFault::Silent(SilentBookmarks::Equal),
        ),
        sort_of_truth(
            "lower bookmarks",
            WatchFault::Silent(SilentBookmarks::Lower),
        ),
        sort_of_truth("missing changes", WatchFault::Lossy),
        sort_of_truth("bookmark far ahead", WatchFault::Answers(bookmark(1 << 60))),
        sort_of_truth(
            "bookmark without a version",
            WatchFault::Answers(bookmark(0).replace("\"0\"", "\"\"")),
        ),
        sort_of_truth(
            "bookmark without a number",
            WatchFault::Answers(bookmark(0).replace("\"0\"", "\"abc\"")),
        ),
        sort_of_truth(
            "event far ahead",
            WatchFault::Answers(line("ADDED", "z/z", 1 << 60)),
        ),
        (
            "no answer to both".into(),
            WatchFault::NoHead,
            ListFault::NoHead,
            Expected::Warning,
        ),
        (
            "silence, and no lists".into(),
            WatchFault::Silent(SilentBookmarks::None),
            ListFault::Refused(503),
            Expected::Warning,
        ),
    ] {
        row(name, watch, list, expected);
    }
    rows
}

/// An API server that can fail.
#[derive(Default)]
pub struct Upstream(Mutex<UpstreamModel>);

#[derive(Default)]
struct UpstreamModel {
    revision: u64,
    objects: BTreeMap<String, u64>,
    history: Vec<(u64, String)>,
    /// The open watches that work, and those that do not, with their versions.
    watches: Vec<Feed>,
    broken: Vec<(u64, Feed)>,
    failing: Failing,
    requests: usize,
}

impl Upstream {
    pub fn put(&self, key: &str) {
        let mut model = self.0.lock().unwrap();
        model.revision += 3;
        let version = model.revision;
        let kind = match model.objects.insert(key.to_owned(), version) {
            Some(_) => "MODIFIED",
            None => "ADDED",
        };
        model.send(line(kind, key, version));
    }

    pub fn delete(&self, key: &str) {
        let mut model = self.0.lock().unwrap();
        model.revision += 3;
        model.objects.remove(key);
        let version = model.revision;
        model.send(line("DELETED", key, version));
    }

    pub fn fail(&self, failing: Failing) {
        let mut model = self.0.lock().unwrap();
        let is_kept = matches!(failing.watch, WatchFault::None | WatchFault::Lossy);
        let open = std::mem::take(&mut model.watches);
        if matches!(failing.watch, WatchFault::Silent(_)) {
            let version = model.revision;
            model.broken = open.into_iter().map(|feed| (version, feed)).collect();
        } else if is_kept {
            model.watches = open;
        }
        model.failing = failing;
    }

    pub fn heal(&self) {
        let mut model = self.0.lock().unwrap();
        model.failing = Failing::default();
        model.broken.clear();
    }

    /// Sends the bookmarks of watches that bring nothing else. Called each second.
    pub fn tick(&self, second: u64) {
        let model = self.0.lock().unwrap();
        let WatchFault::Silent(bookmarks) = model.failing.watch else {
            return;
        };
        for (version, feed) in &model.broken {
            let version = match bookmarks {
                SilentBookmarks::None => continue,
                SilentBookmarks::Equal => *version,
                SilentBookmarks::Lower => version - 1,
            };
            if second.is_multiple_of(20) {
                let _ = feed.try_send(Ok(Bytes::from(bookmark(version))));
            }
        }
    }

    /// Keys and versions of all objects.
    pub fn objects(&self) -> BTreeMap<String, u64> {
        self.0.lock().unwrap().objects.clone()
    }

    pub fn requests(&self) -> usize {
        self.0.lock().unwrap().requests
    }
}

impl UpstreamModel {
    fn send(&mut self, line: String) {
        if matches!(self.failing.watch, WatchFault::Lossy) && !self.history.len().is_multiple_of(3)
        {
            return self.history.push((self.revision, line));
        }
        for feed in &self.watches {
            let _ = feed.try_send(Ok(Bytes::from(line.clone())));
        }
        self.history.push((self.revision, line));
    }

    fn list(&self) -> String {
        let items: Vec<_> = self
            .objects
            .iter()
            .map(|(key, version)| (key.as_str(), *version))
            .collect();
        list(&items, self.revision, "")
    }
}

fn answer(code: u16, retry_after: Option<u32>, text: String) -> Response<Piped> {
    let (feed, body) = mpsc::channel(64);
    let _ = feed.try_send(Ok(Bytes::from(text)));
    let response = Response::builder()
        .status(code)
        .header(CONTENT_TYPE, "application/json");
    let response = match retry_after {
        Some(seconds) => response.header(RETRY_AFTER, seconds),
        None => response,
    };
    response.body(Piped::of(body)).unwrap()
}

fn refusal(code: u16, retry_after: Option<u32>) -> Response<Piped> {
    let status = format!("{{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"code\":{code}}}");
    answer(code, retry_after, status)
}

fn opened() -> (Feed, Response<Piped>) {
    let (feed, body) = mpsc::channel(256);
    let response = Response::builder().header(CONTENT_TYPE, "application/json");
    (feed, response.body(Piped::of(body)).unwrap())
}

impl Fetch for Arc<Upstream> {
    type Body = Piped;

    async fn get(&self, path: String, _: RequestPurpose, _: Encoding) -> Reply {
        let sort = sort_of(&path);
        let failing = {
            let mut model = self.0.lock().unwrap();
            model.requests += 1;
            model.failing.clone()
        };
        let (word, version) = sort.split_once(' ').unwrap();
        if word == "list" || word == "page" {
            return match failing.list {
                ListFault::None => Ok(answer(200, None, self.0.lock().unwrap().list())),
                ListFault::Refused(code) => Ok(refusal(code, None)),
                ListFault::NoHead => {
                    tokio::time::sleep(HEAD_WAIT).await;
                    Err(FetchError("no answer".into()))
                }
            };
        }
        let (feed, response) = opened();
        match failing.watch {
            WatchFault::Refused(code, retry_after) => return Ok(refusal(code, retry_after)),
            WatchFault::Expired(_) if word == "watch" => return Ok(refusal(410, None)),
            WatchFault::Expired(code) => return Ok(refusal(code, None)),
            WatchFault::NoHead => std::future::pending().await,
            WatchFault::Answers(text) => {
                let _ = feed.try_send(Ok(Bytes::from(text)));
                return Ok(response);
            }
            WatchFault::Breaks(text) => {
                let _ = feed.try_send(Ok(Bytes::from(text)));
                let _ = feed.try_send(Err("reset".into()));
                return Ok(response);
            }
            WatchFault::Short => {
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_secs(3)).await;
                    drop(feed);
                });
                return Ok(response);
            }
            WatchFault::Silent(_) => {
                let mut model = self.0.lock().unwrap();
                let begun = version.parse().unwrap_or(model.revision);
                model.broken.push((begun, feed));
                return Ok(response);
            }
            WatchFault::None | WatchFault::Lossy => {}
        }
        let mut model = self.0.lock().unwrap();
        if word == "stream" {
            for (key, version) in &model.objects {
                let _ = feed.try_send(Ok(Bytes::from(line("ADDED", key, *version))));
            }
            let _ = feed.try_send(Ok(Bytes::from(marker(model.revision))));
        } else {
            let from: u64 = version.parse().unwrap();
            for (_, line) in model.history.iter().filter(|(at, _)| *at > from) {
                let _ = feed.try_send(Ok(Bytes::from(line.clone())));
            }
        }
        model.watches.push(feed);
        Ok(response)
    }
}

/// The reader of an upstream, as the rows see it.
pub trait Reader {
    /// Keys and versions of what clients get; `None` if they get everything from upstream itself.
    fn objects(&self) -> Option<BTreeMap<String, u64>>;

    /// How long ago the reader had proof that this is upstream's state; `None` if it tells nobody.
    fn age(&self) -> Option<Duration>;
}

/// The seconds until clients have the truth.
#[track_caller]
fn check_time(name: &str, expected: Expected, second: u64, age: Option<Duration>) {
    assert!(
        match expected {
            Expected::Truth => second <= 120,
            Expected::Warning => true,
        },
        "{name}: old for {second} s"
    );
    if second > STALE_AFTER
        && let Some(age) = age
    {
        assert!(
            age >= Duration::from_secs(STALE_AFTER),
            "{name}: no warning after {second} s, age {age:?}"
        );
    }
}

/// Lets upstream fail, and changes objects at three times meanwhile. Returns the seconds until clients had each of the changes.
pub async fn fail(upstream: &Upstream, reader: &impl Reader, row: &Row) -> Vec<u64> {
    upstream.fail(row.failing.clone());
    let mut seconds = Vec::new();
    for round in 0..3 {
        upstream.put("a/x");
        upstream.put(&format!("b/{round}"));
        upstream.delete("c/gone");
        let mut second = 0;
        loop {
            // What clients get is read between two ticks, not at the same moment as timers of whole seconds.
            tokio::time::sleep(Duration::from_millis(1_001)).await;
            second += 1;
            upstream.tick(second);
            if reader
                .objects()
                .is_none_or(|objects| objects == upstream.objects())
            {
                break;
            }
            check_time(&row.name, row.expected, second, reader.age());
            if row.expected == Expected::Warning && second == 150 {
                upstream.heal();
            }
            assert!(
                second < 270,
                "{}: old 120 s after upstream is back",
                row.name
            );
        }
        seconds.push(second);
        if row.expected == Expected::Warning {
            break;
        }
        tokio::time::sleep(Duration::from_secs(47)).await;
    }
    // However upstream fails, it is asked no more than once in a few seconds.
    let before = upstream.requests();
    tokio::time::sleep(Duration::from_secs(600)).await;
    let requests = upstream.requests() - before;
    assert!(
        requests < 600,
        "{}: {requests} requests in ten minutes",
        row.name
    );
    seconds
}

/// An upstream with a few objects.
pub fn upstream() -> Arc<Upstream> {
    let upstream = Arc::new(Upstream::default());
    for key in ["a/x", "a/y", "c/gone"] {
        upstream.put(key);
    }
    upstream
}
