//! An upstream that responds as a test says, one request at a time.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http::header::CONTENT_TYPE;
use http_body::{Body, Frame};
use tokio::sync::{mpsc, oneshot};

use crate::resource::Encoding;
use crate::upstream::driver::{Fetch, FetchError, RequestPurpose};

/// A body that a test feeds. It ends when the test drops the feed.
#[derive(Debug)]
pub(crate) struct Piped(mpsc::Receiver<Result<Bytes, String>>);

impl Piped {
    pub(crate) const fn of(feed: mpsc::Receiver<Result<Bytes, String>>) -> Self {
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

pub(crate) type Reply = Result<Response<Piped>, FetchError>;

/// One request of the driver.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) path: String,
    pub(crate) purpose: RequestPurpose,
    reply: oneshot::Sender<Reply>,
}

pub(crate) type Feed = mpsc::Sender<Result<Bytes, String>>;

impl Asked {
    /// Responds 200 with a body that the test feeds.
    pub(crate) fn open(self) -> Feed {
        self.answer(200, "application/json")
    }

    /// Responds with a body that the test feeds.
    pub(crate) fn answer(self, code: u16, content_type: &str) -> Feed {
        let (feed, body) = mpsc::channel(64);
        let response = Response::builder().status(code);
        let response = response.header(CONTENT_TYPE, content_type);
        let _ = self.reply.send(Ok(response.body(Piped(body)).unwrap()));
        feed
    }

    /// Responds with a whole body.
    pub(crate) async fn whole(self, code: u16, text: &str) {
        let feed = self.answer(code, "application/json");
        let _ = feed.send(Ok(Bytes::copy_from_slice(text.as_bytes()))).await;
    }

    /// Does not respond at all.
    pub(crate) fn fail(self) {
        let _ = self.reply.send(Err(FetchError("no route".into())));
    }

    pub(crate) async fn refuse(self, code: u16) {
        let text = format!("{{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"code\":{code}}}");
        self.whole(code, &text).await;
    }
}

pub(crate) struct Script(mpsc::Sender<Asked>);

impl Script {
    /// The upstream, and the requests that it gets.
    pub(crate) fn new() -> (Self, mpsc::Receiver<Asked>) {
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
pub(crate) fn sort_of(path: &str) -> String {
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

pub(crate) fn bookmark(version: u64) -> String {
    format!(
        "{{\"type\":\"BOOKMARK\",\"object\":{{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\"{version}\"}}}}}}\n"
    )
}

pub(crate) fn marker(version: u64) -> String {
    let annotation = ",\"annotations\":{\"k8s.io/initial-events-end\":\"true\"}}";
    bookmark(version).replacen("\"}", &format!("\"{annotation}"), 1)
}

pub(crate) const EXPIRED: &str = "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\",\"message\":\"too old\",\"reason\":\"Expired\",\"code\":410}}\n";

/// Sends lines and lets the driver process them: the paused clock moves on only when all tasks wait.
pub(crate) async fn push(feed: &Feed, lines: &[String]) {
    feed.send(Ok(Bytes::from(lines.concat()))).await.unwrap();
    settled().await;
}

pub(crate) async fn settled() {
    tokio::time::sleep(Duration::from_millis(10)).await;
}
