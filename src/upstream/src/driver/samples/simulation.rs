//! A model of the API server that breaks streams, refuses requests, compacts its history, and deletes and recreates objects, as a seed
//! says.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::{Body, Frame};

use super::scripted::{EXPIRED, bookmark, marker, sort_of};
use crate::cache::samples::{Dice, Sample};
use crate::driver::{Fetch, FetchError, RequestPurpose};
use crate::resource::Encoding;

const KEYS: u64 = 12;

/// One write: its version, its event, and the whole state after it.
struct Past {
    version: u64,
    line: String,
    state: BTreeMap<String, Sample>,
}

/// The API server with its whole history. Clients can watch only from `floor` on.
pub struct Model {
    pub dice: Dice,
    past: Vec<Past>,
    revision: u64,
    floor: u64,
    pub calm: bool,
    waiting: Vec<Waker>,
}

impl Model {
    pub fn new(seed: u64) -> Self {
        Self {
            dice: Dice(seed),
            past: Vec::new(),
            revision: 5,
            floor: 0,
            calm: false,
            waiting: Vec::new(),
        }
    }

    pub fn state_at(&self, version: u64) -> BTreeMap<String, Sample> {
        let after = self.past.partition_point(|past| past.version <= version);
        let last = after.checked_sub(1).map(|at| &self.past[at]);
        last.map_or_else(BTreeMap::new, |past| past.state.clone())
    }

    pub fn write(&mut self) {
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

pub type Shared = Arc<Mutex<Model>>;

pub struct Server(pub Shared);

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
pub struct Answer {
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
