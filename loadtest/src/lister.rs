//! A client of the herd: lists when a round begins, and checks the body without keeping it.

pub mod initial;
pub mod repeat;

use std::hash::{DefaultHasher, Hasher};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use flate2::write::GzDecoder;
use http_body_util::BodyExt;
use hyper::{Method, StatusCode};

use crate::client::Client;
use crate::recorder::{Control, Recorder};
use crate::swarm::{Member, Next, ResponseEnd};
use crate::target::Target;
use crate::wire::event::first_version;
use crate::wire::search::StreamSearch;

/// Every object has exactly one such field, and no ConfigMap of the load test has another.
const UID_FIELD: &[u8] = b"\"uid\":\"";
/// Length of a body's beginning that holds the list's version: typed lists write it first.
const BEGINNING_LEN: usize = 512;

/// Length of a body's end that shows that the list is complete.
const END_LEN: usize = 2;

/// What was found in one list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListResult {
    pub version: Option<u64>,
    /// Number of items, counted by a field that each has once.
    pub items: u64,
    /// Length of the body, decompressed.
    pub bytes: u64,
    /// Length of the body on the wire.
    pub wire_bytes: u64,
    /// Hash of a sample of the body's bytes.
    pub digest: u64,
    /// When the list was complete, nanoseconds since the epoch.
    pub ended_at_ns: u64,
    /// Why the list is not complete.
    pub failure: Option<String>,
}

/// One client of the herd.
#[derive(Debug)]
pub struct Lister {
    path: Arc<str>,
    listed: Vec<ListResult>,
    current: ListResult,
    hasher: DefaultHasher,
    items: StreamSearch,
    beginning: Vec<u8>,
    last: Vec<u8>,
    /// Each body is one gzip member. Decoded bytes are taken out after each piece.
    decoder: Option<GzDecoder<Vec<u8>>>,
}

/// A client that lists once a round.
pub trait ListClient: Member {
    /// The lists, one a round.
    fn into_lists(self) -> Vec<ListResult>;
}

impl ListClient for Lister {
    fn into_lists(self) -> Vec<ListResult> {
        self.listed
    }
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
        let hasher = DefaultHasher::new();
        Self {
            path,
            listed: Vec::new(),
            current: ListResult::default(),
            hasher,
            items: StreamSearch::new(UID_FIELD),
            beginning: Vec::new(),
            last: Vec::new(),
            decoder: None,
        }
    }

    /// Like [`Self::new`], for bodies that must be compressed.
    pub fn gzip(path: Arc<str>) -> Self {
        Self {
            decoder: Some(GzDecoder::new(Vec::new())),
            ..Self::new(path)
        }
    }
}

/// Sends one request a round.
fn next_round(listed: usize, control: &Control, path: &str) -> Next {
    if listed < control.round.load(Ordering::Relaxed) {
        Next::Send(path.to_owned())
    } else {
        Next::Rest
    }
}

impl Member for Lister {
    fn next(&mut self, control: &Control) -> Next {
        next_round(self.listed.len(), control, &self.path)
    }

    fn body(&mut self, status: u16, data: &[u8], recorder: &mut Recorder) {
        if status != 200 {
            return recorder.refusal(status, data);
        }
        recorder.events += 1;
        self.current.wire_bytes += data.len() as u64;
        let Some(mut decoder) = self.decoder.take() else {
            return self.look(data);
        };
        if let Err(error) = decoder.write_all(data) {
            self.fail(&error);
        }
        let decoded = std::mem::take(decoder.get_mut());
        self.look(&decoded);
        self.decoder = Some(decoder);
    }

    fn response_ended(&mut self, how: ResponseEnd<'_>, recorder: &mut Recorder) {
        if let Some(mut decoder) = self.decoder.take() {
            // This compares length and checksum.
            if let Err(error) = decoder.try_finish() {
                self.fail(&error);
            }
            self.look(&std::mem::take(decoder.get_mut()));
            self.decoder = Some(GzDecoder::new(Vec::new()));
        }
        self.close(how, recorder.now_ns());
    }

    fn progress(&self, _: &Control) -> usize {
        self.listed.len()
    }
}

impl Lister {
    fn fail(&mut self, error: &std::io::Error) {
        let failure = &mut self.current.failure;
        failure.get_or_insert_with(|| format!("not one gzip member: {error}"));
    }

    /// Checks a piece of the decompressed body.
    fn look(&mut self, data: &[u8]) {
        self.current.bytes += data.len() as u64;
        let room = BEGINNING_LEN
            .saturating_sub(self.beginning.len())
            .min(data.len());
        self.beginning.extend_from_slice(&data[..room]);
        self.items.feed(data);
        sample(
            &mut self.hasher,
            self.current.bytes - data.len() as u64,
            data,
        );
        self.last
            .extend_from_slice(&data[data.len().saturating_sub(END_LEN)..]);
        let from = self.last.len().saturating_sub(END_LEN);
        self.last.drain(..from);
    }

    fn close(&mut self, how: ResponseEnd<'_>, now_ns: u64) {
        let mut listed = std::mem::take(&mut self.current);
        let items = std::mem::replace(&mut self.items, StreamSearch::new(UID_FIELD));
        listed.items = items.count();
        listed.version = first_version(&self.beginning);
        listed.digest = std::mem::replace(&mut self.hasher, DefaultHasher::new()).finish();
        listed.ended_at_ns = now_ns;
        let ending = match how {
            ResponseEnd::Complete(200)
                if self.last.ends_with(b"}\n") || self.last.ends_with(b"}") =>
            {
                None
            }
            ResponseEnd::Complete(200) => Some("a list without its end".to_owned()),
            ResponseEnd::Complete(status) => Some(format!("HTTP {status}")),
            ResponseEnd::Broken(why) => Some(why.to_owned()),
            ResponseEnd::Left => Some("left before its end".to_owned()),
        };
        listed.failure = listed.failure.or(ending);
        self.listed.push(listed);
        self.beginning.clear();
        self.last.clear();
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
