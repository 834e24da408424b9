//! The model's answers: lists, pages and streams, and everything that can be wrong with them.

use std::fmt::Write;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::{Body, Frame};
use kube_fanout::resource::Encoding;
use kube_fanout::upstream::driver::{Fetch, FetchError, RequestPurpose};

use crate::model::{Cut, Model, Mood, bookmark, event};

const JSON: &str = "application/json";
const PAGE_LEN: usize = 3;

pub(crate) type Shared = Arc<Mutex<Model>>;

/// The way to the model.
pub(crate) struct Server(pub(crate) Shared);

/// What a request asks for.
struct Asked<'a> {
    watch: bool,
    initial_events: bool,
    version: Option<&'a str>,
    token: Option<&'a str>,
    limit: Option<usize>,
    cut: Cut,
}

impl<'a> Asked<'a> {
    fn of(path: &'a str, purpose: RequestPurpose) -> Self {
        let query = path.split_once('?').map_or("", |(_, query)| query);
        let value = |name: &str| {
            let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs
                .into_iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| value)
        };
        Self {
            watch: value("watch").is_some(),
            initial_events: value("sendInitialEvents").is_some(),
            version: value("resourceVersion"),
            token: value("continue"),
            limit: value("limit").map(|limit| limit.parse().unwrap()),
            cut: match purpose {
                RequestPurpose::Read | RequestPurpose::Watch => Cut::Whole,
                RequestPurpose::ReadMetadata
                | RequestPurpose::ReadVersions
                | RequestPurpose::WatchMetadata => Cut::Metadata,
            },
        }
    }
}

impl Fetch for Server {
    type Body = Answer;

    async fn get(
        &self,
        path: String,
        purpose: RequestPurpose,
        _: Encoding,
    ) -> Result<Response<Answer>, FetchError> {
        let asked = Asked::of(&path, purpose);
        let mut model = self.0.lock().unwrap();
        model.requests.push(path.clone());
        // While it reads a page it asks for the next one.
        model.list_is_read &= asked.token.is_some();
        if model.mood == Mood::Away {
            return Err(FetchError("connection refused".into()));
        }
        match failure(&mut model) {
            Some(failed) => failed,
            None => Ok(match (asked.watch, asked.initial_events) {
                (true, true) => self.initial_stream(&mut model, &asked),
                (true, false) => self.stream(&mut model, &asked),
                (false, _) => list(&self.0, &mut model, &asked),
            }),
        }
    }
}

/// An answer that has nothing to do with what was asked.
fn failure(model: &mut Model) -> Option<Result<Response<Answer>, FetchError>> {
    if !model.trouble(5, "failed request") {
        return None;
    }
    let choice = model.dice.one_of(&[429, 429, 500, 503, 504, 0, 1, 2]);
    let floor = 1 + model.dice.below(3);
    let bare = model.dice.once_in(2);
    Some(match choice {
        0 => {
            model.strike("GOAWAY");
            Err(FetchError("GOAWAY: the server is shutting down".into()))
        }
        1 => Err(FetchError("no route".into())),
        2 => {
            model.strike("wrong content type");
            let mut answer = Response::new(Answer::whole("<html>sign in</html>".into()));
            let html = "text/html".parse().unwrap();
            answer.headers_mut().insert("content-type", html);
            Ok(answer)
        }
        code => {
            model.strike(if code == 429 { "429" } else { "5xx" });
            let mut answer = refused(code, "Sorry");
            if code == 429 || !bare {
                answer.headers_mut().insert("retry-after", floor.into());
            }
            Ok(answer)
        }
    })
}

fn json(answer: Answer) -> Response<Answer> {
    let mut response = Response::new(answer);
    response
        .headers_mut()
        .insert("content-type", JSON.parse().unwrap());
    response
}

fn status(code: u16, reason: &str, details: &str) -> String {
    format!(
        "{{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{{}},\"status\":\"Failure\",\"message\":\"as the dice fell\",\"reason\":\"{reason}\"{details},\"code\":{code}}}"
    )
}

fn refused(code: u16, reason: &str) -> Response<Answer> {
    let mut response = json(Answer::whole(status(code, reason, "")));
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}

/// The version is one that the server does not have yet.
fn too_large() -> String {
    let details = ",\"details\":{\"causes\":[{\"reason\":\"ResourceVersionTooLarge\",\"message\":\"Too large resource version\"}],\"retryAfterSeconds\":1}";
    status(504, "Timeout", details)
}

/// The version of the state that answers a read of this one; none if it lies ahead.
fn version_for(model: &mut Model, version: Option<&str>) -> Option<u64> {
    let Some(version) = version.map(|version| version.parse::<u64>().unwrap()) else {
        return Some(model.revision);
    };
    if version > model.revision {
        return None;
    }
    if model.mood == Mood::Calm {
        return Some(model.revision);
    }
    // Another replica answers, whose cache is behind. It may be long compacted where any version will do.
    let least = if version == 0 {
        model.revision.saturating_sub(12).max(5)
    } else {
        version
    };
    let version = least + model.dice.below(model.revision - least + 1);
    if version < model.revision {
        model.strike("stale answer");
    }
    Some(version)
}

fn list(shared: &Shared, model: &mut Model, asked: &Asked<'_>) -> Response<Answer> {
    let (version, start) = match asked.token {
        Some(token) => {
            let mut parts = token.split('.');
            let mut number = || parts.next().unwrap().parse::<u64>().unwrap();
            let (timeline, version, start) = (number(), number(), number());
            let of_now = timeline == u64::from(model.timeline) && version >= model.floor;
            if !of_now || model.trouble(5, "expired page") {
                return refused(410, "Expired");
            }
            (version, usize::try_from(start).unwrap())
        }
        None => match version_for(model, asked.version) {
            Some(version) => (version, 0),
            None => {
                model.strike("version ahead");
                let mut response = json(Answer::whole(too_large()));
                *response.status_mut() = StatusCode::GATEWAY_TIMEOUT;
                return response;
            }
        },
    };
    let state = model.state_at(version);
    let limit = asked.limit.map_or(state.len(), |limit| limit.min(PAGE_LEN));
    let items: Vec<String> = state
        .iter()
        .skip(start)
        .take(limit)
        .map(|(key, item)| item.listed(key, asked.cut))
        .collect();
    let mut metadata = format!("\"resourceVersion\":\"{version}\"");
    if start + limit < state.len() {
        let timeline = model.timeline;
        write!(
            metadata,
            ",\"continue\":\"{timeline}.{version}.{}\"",
            start + limit
        )
        .unwrap();
    }
    let (kind, api_version) = match asked.cut {
        Cut::Whole => ("ConfigMapList", "v1"),
        Cut::Metadata => ("PartialObjectMetadataList", "meta.k8s.io/v1"),
    };
    let mut text = format!(
        "{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{{{metadata}}},\"items\":[{}]}}\n",
        items.join(",")
    );
    let mut answer = Answer::whole(String::new());
    answer.list_of = Some(Arc::clone(shared));
    if model.trouble(10, "list cut short") {
        let len = model.dice.below(text.len() as u64 - 2);
        text.truncate(usize::try_from(len).unwrap());
        answer.last = model.dice.once_in(2).then_some("reset in a list");
    }
    answer.text = text.into();
    json(answer)
}

impl Server {
    fn initial_stream(&self, model: &mut Model, asked: &Asked<'_>) -> Response<Answer> {
        let Some(version) = version_for(model, asked.version) else {
            model.strike("version ahead");
            return json(Answer::whole(event("ERROR", &too_large())));
        };
        let mut lines: String = model
            .state_at(version)
            .iter()
            .map(|(key, item)| event("ADDED", &item.object(key, asked.cut)))
            .collect();
        let annotation = ",\"annotations\":{\"k8s.io/initial-events-end\":\"true\"}";
        lines.push_str(&bookmark(version, annotation));
        let is_cut = model.trouble(3, "initial stream cut");
        if is_cut {
            let kept = model.dice.below(lines.len() as u64);
            lines.truncate(usize::try_from(kept).unwrap());
        }
        let mut answer = Answer::watching(&self.0, model, lines, version, asked.cut);
        answer.over = is_cut;
        answer.last = (is_cut && model.dice.once_in(2)).then_some("reset in a stream");
        json(answer)
    }

    fn stream(&self, model: &mut Model, asked: &Asked<'_>) -> Response<Answer> {
        let after: u64 = asked.version.unwrap().parse().unwrap();
        if after > model.revision && model.dice.once_in(2) {
            model.strike("version ahead");
            return json(Answer::whole(event("ERROR", &too_large())));
        }
        if after < model.floor || after > model.revision {
            model.strike("410");
            return if model.dice.once_in(2) {
                refused(410, "Expired")
            } else {
                json(Answer::whole(event("ERROR", &status(410, "Expired", ""))))
            };
        }
        json(Answer::watching(
            &self.0,
            model,
            String::new(),
            after,
            asked.cut,
        ))
    }
}

/// A body as the model gives it: what is written, then, of a watch, what happens.
pub(crate) struct Answer {
    text: Vec<u8>,
    watching: Option<Watching>,
    /// The model, if this is a list.
    list_of: Option<Shared>,
    over: bool,
    /// The error that ends it, if it does not end well.
    last: Option<&'static str>,
}

struct Watching {
    model: Shared,
    /// The version that the client came with, or that its initial state had.
    since: u64,
    /// The version up to which the text tells.
    after: u64,
    epoch: u32,
    cut: Cut,
}

impl Answer {
    fn whole(text: String) -> Self {
        Self {
            text: text.into(),
            watching: None,
            list_of: None,
            over: false,
            last: None,
        }
    }

    fn watching(shared: &Shared, model: &Model, text: String, after: u64, cut: Cut) -> Self {
        Self {
            watching: Some(Watching {
                model: Arc::clone(shared),
                since: after,
                after,
                epoch: model.epoch,
                cut,
            }),
            ..Self::whole(text)
        }
    }

    /// What a watch has to say now; true if it says no more.
    fn gather(watching: &mut Watching, text: &mut Vec<u8>, model: &mut Model) -> bool {
        let (lines, reached) = model.events_after(watching.after, watching.cut);
        watching.after = reached;
        text.extend_from_slice(lines.as_bytes());
        if text.is_empty() && watching.after < model.revision && model.dice.once_in(2) {
            watching.after = model.revision;
            text.extend_from_slice(bookmark(watching.after, "").as_bytes());
        }
        if model.trouble(40, "repeated event")
            && let Some(line) = model.repetition(watching.since..watching.after, watching.cut)
        {
            text.extend_from_slice(line.as_bytes());
        }
        if model.trouble(40, "garbage frame") {
            text.extend_from_slice(b"<html>\n");
        }
        if model.trouble(60, "410 in a stream") {
            text.extend_from_slice(event("ERROR", &status(410, "Expired", "")).as_bytes());
            return true;
        }
        if model.trouble(60, "500 in a stream") {
            text.extend_from_slice(event("ERROR", &status(500, "InternalError", "")).as_bytes());
            return true;
        }
        false
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        let this = &mut *self;
        if this.text.is_empty() && this.over {
            let last = this.last.take();
            if let (None, Some(shared)) = (last, this.list_of.take()) {
                shared.lock().unwrap().list_is_read = true;
            }
            return Poll::Ready(last.map(Err));
        }
        let Some(watching) = &mut this.watching else {
            this.over = true;
            let text = std::mem::take(&mut this.text);
            return Poll::Ready(Some(Ok(Frame::data(text.into()))));
        };
        let shared = Arc::clone(&watching.model);
        let mut model = shared.lock().unwrap();
        if watching.epoch != model.epoch || model.mood == Mood::Away {
            // What was sent and did not arrive is lost with the connection.
            this.over = true;
            this.text.clear();
            this.last = None;
            return Poll::Ready(Some(Err("the connection is gone")));
        }
        if !this.over {
            this.over = Self::gather(watching, &mut this.text, &mut model);
        }
        if !this.over && model.trouble(12, "stream cut") {
            // Within a frame, or between two; in the middle of something, or in an orderly way.
            this.over = true;
            let len = this.text.len() as u64;
            let kept = usize::try_from(model.dice.below(len + 1)).unwrap();
            this.text.truncate(kept);
            this.last = model.dice.once_in(2).then_some("reset in a stream");
        }
        if this.text.is_empty() {
            if this.over {
                return Poll::Ready(this.last.take().map(Err));
            }
            model.wait(context.waker());
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
        Poll::Ready(Some(Ok(Frame::data(piece.into()))))
    }
}
