//! A watch as a client reads it: line by line, and how it ended.

use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;

/// Nothing here takes long; a test that waits for so long has failed.
const PATIENCE: Duration = Duration::from_secs(20);

/// How a stream went on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// A whole line, without its end.
    Line(Vec<u8>),
    /// It ended in an orderly way, with so many bytes of an unfinished line.
    End(usize),
    /// It broke off, with so many bytes of an unfinished line.
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
            let left = self.buffer.len();
            match tokio::time::timeout(PATIENCE, self.body.frame()).await {
                Ok(Some(Ok(frame))) => self.buffer.extend(frame.into_data().unwrap()),
                Ok(Some(Err(_))) => return Next::Broken(left),
                Ok(None) => return Next::End(left),
                Err(_) => panic!("the watch says nothing"),
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
            ended @ (Next::End(_) | Next::Broken(_)) => panic!("no event but {ended:?}"),
        }
    }

    /// The next event as `TYPE name version`.
    pub(crate) async fn told(&mut self) -> String {
        let (kind, object) = self.event().await;
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or("-").to_owned();
        format!("{kind} {} {}", text("name"), text("resourceVersion"))
    }
}
