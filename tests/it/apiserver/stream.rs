//! A client's end of a watch: reads lines, and reports how the stream ended.

use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;

use crate::support::PATIENCE;

/// What [`Stream::next`] read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// A complete line, without its newline.
    Line(Vec<u8>),
    /// The stream ended cleanly, after this many bytes of an incomplete line.
    End(usize),
    /// The connection broke, after this many bytes of an incomplete line.
    Broken(usize),
}

/// An open watch.
pub(crate) struct Stream {
    body: Incoming,
    buffer: Vec<u8>,
}

impl Stream {
    pub(crate) fn new(body: Incoming) -> Self {
        let buffer = Vec::new();
        Self { body, buffer }
    }

    pub(crate) async fn next(&mut self) -> Next {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let mut line: Vec<u8> = self.buffer.drain(..=end).collect();
                line.pop();
                return Next::Line(line);
            }
            let pending_len = self.buffer.len();
            match tokio::time::timeout(PATIENCE, self.body.frame()).await {
                Ok(Some(Ok(frame))) => self.buffer.extend(frame.into_data().unwrap()),
                Ok(Some(Err(_))) => return Next::Broken(pending_len),
                Ok(None) => return Next::End(pending_len),
                Err(_) => panic!("no data on the watch within {PATIENCE:?}"),
            }
        }
    }

    /// The next event's type and object.
    pub(crate) async fn event(&mut self) -> (String, Value) {
        match self.next().await {
            Next::Line(line) => {
                let mut event: Value = serde_json::from_slice(&line).unwrap();
                let kind = event["type"].as_str().unwrap().to_owned();
                (kind, event["object"].take())
            }
            ended @ (Next::End(_) | Next::Broken(_)) => {
                panic!("expected an event, but the stream ended: {ended:?}")
            }
        }
    }

    /// The next event as `TYPE name version`.
    pub(crate) async fn event_text(&mut self) -> String {
        let (kind, object) = self.event().await;
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or("-").to_owned();
        format!("{kind} {} {}", text("name"), text("resourceVersion"))
    }
}
