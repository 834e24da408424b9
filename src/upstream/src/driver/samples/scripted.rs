//! An upstream that responds as a test says, one request at a time.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http::header::CONTENT_TYPE;
use http_body::{Body, Frame};
use tokio::sync::{mpsc, oneshot};

use crate::cache::samples::Sample;
use crate::driver::{Fetch, FetchError, RequestPurpose};
use crate::resource::Encoding;

/// A body that a test feeds. It ends when the test drops the feed.
#[derive(Debug)]
pub struct Piped(mpsc::Receiver<Result<Bytes, String>>);

impl Piped {
    pub const fn of(feed: mpsc::Receiver<Result<Bytes, String>>) -> Self {
        Self(feed)
    }
}

impl Body for Piped {
    type Data = Bytes;
    type Error = String;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, String>>> {
        self.0
            .poll_recv(context)
            .map(|chunk| chunk.map(|chunk| chunk.map(Frame::data)))
    }
}

pub type Reply = Result<Response<Piped>, FetchError>;

/// One request of the driver.
#[derive(Debug)]
pub struct Asked {
    pub path: String,
    pub purpose: RequestPurpose,
    reply: oneshot::Sender<Reply>,
}

pub type Feed = mpsc::Sender<Result<Bytes, String>>;

impl Asked {
    /// Responds 200 with a body that the test feeds.
    pub fn open(self) -> Feed {
        self.answer(200, "application/json")
    }

    /// Responds with a body that the test feeds.
    pub fn answer(self, code: u16, content_type: &str) -> Feed {
        let (feed, body) = mpsc::channel(64);
        let response = Response::builder().status(code);
        let response = response.header(CONTENT_TYPE, content_type);
        let _ = self.reply.send(Ok(response.body(Piped(body)).unwrap()));
        feed
    }

    /// Responds with a whole body.
    pub async fn whole(self, code: u16, text: &str) {
        let feed = self.answer(code, "application/json");
        let _ = feed.send(Ok(Bytes::copy_from_slice(text.as_bytes()))).await;
    }

    /// Does not respond at all.
    pub fn fail(self) {
        let _ = self.reply.send(Err(FetchError("no route".into())));
    }

    pub async fn refuse(self, code: u16) {
        let text = format!("{{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"code\":{code}}}");
        self.whole(code, &text).await;
    }
}

pub struct Script(mpsc::Sender<Asked>);

impl Script {
    /// The upstream, and the requests that it gets.
    pub fn new() -> (Self, mpsc::Receiver<Asked>) {
        let (send, requests) = mpsc::channel(4);
        (Self(send), requests)
    }
}

impl Fetch for Script {
    type Body = Piped;

    async fn get(&self, path: String, purpose: RequestPurpose, _: Encoding) -> Reply {
        let (reply, response) = oneshot::channel();
        let request = Asked {
            path,
            purpose,
            reply,
        };
        self.0.send(request).await.unwrap();
        response.await.unwrap()
    }
}

/// The sort of a request, without its random parts.
pub fn sort_of(path: &str) -> String {
    let query = path.split_once('?').map_or("", |(_, query)| query);
    let value = |name: &str| {
        query.split('&').find_map(|pair| {
            let (key, value) = pair.split_once('=')?;
            (key == name).then_some(value)
        })
    };
    let version = value("resourceVersion").unwrap_or("latest");
    if value("sendInitialEvents").is_some() {
        format!("stream {version}")
    } else if value("watch").is_some() {
        format!("watch {version}")
    } else if let Some(token) = value("continue") {
        format!("page {token}")
    } else {
        format!("list {version}")
    }
}

pub fn bookmark(version: u64) -> String {
    format!(
        "{{\"type\":\"BOOKMARK\",\"object\":{{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\"{version}\"}}}}}}\n"
    )
}

pub fn marker(version: u64) -> String {
    let annotation = ",\"annotations\":{\"k8s.io/initial-events-end\":\"true\"}}";
    bookmark(version).replacen("\"}", &format!("\"{annotation}"), 1)
}

pub const EXPIRED: &str = "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\",\"message\":\"too old\",\"reason\":\"Expired\",\"code\":410}}\n";

/// Sends lines and lets the driver process them: the paused clock moves on only when all tasks wait.
pub async fn push(feed: &Feed, lines: &[String]) {
    feed.send(Ok(Bytes::from(lines.concat()))).await.unwrap();
    settled().await;
}

pub async fn settled() {
    tokio::time::sleep(Duration::from_millis(10)).await;
}

/// An object that was never deleted and created again.
pub fn sample(key: &str, version: u64) -> Sample {
    let mut sample = Sample::new(key, version);
    sample.uid = 1;
    sample
}

pub fn line(word: &str, key: &str, version: u64) -> String {
    let (json, _) = sample(key, version).json();
    format!("{{\"type\":\"{word}\",\"object\":{json}}}\n")
}

pub fn list(items: &[(&str, u64)], version: u64, token: &str) -> String {
    let items: Vec<_> = items
        .iter()
        .map(|(key, version)| {
            let (json, prefix_len) = sample(key, *version).json();
            format!("{{{}", &json[prefix_len + 1..])
        })
        .collect();
    format!(
        "{{\"kind\":\"ConfigMapList\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\"{version}\",\"continue\":\"{token}\"}},\"items\":[{}]}}\n",
        items.join(",")
    )
}
