//! Watches that are open, and everything that has come on them.

use std::sync::{Arc, Mutex};

use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::model::Question;

/// An open watch.
pub(crate) struct Stream {
    pub(crate) question: Question,
    received: Arc<Mutex<Received>>,
    reading: AbortHandle,
    /// Since when its caller may not have it any more.
    pub(crate) denied_at: Option<Instant>,
    /// Until then it may end, because its caller was denied for a while.
    pub(crate) may_end_until: Option<Instant>,
}

#[derive(Default)]
struct Received {
    bytes: Vec<u8>,
    has_ended: bool,
}

impl Stream {
    pub(crate) fn new(question: Question, mut body: Incoming) -> Self {
        let received = Arc::<Mutex<Received>>::default();
        let writer = Arc::clone(&received);
        let reading = tokio::spawn(async move {
            while let Some(Ok(frame)) = body.frame().await {
                if let Ok(data) = frame.into_data() {
                    writer.lock().unwrap().bytes.extend_from_slice(&data);
                }
            }
            writer.lock().unwrap().has_ended = true;
        });
        Self {
            question,
            received,
            reading: reading.abort_handle(),
            denied_at: None,
            may_end_until: None,
        }
    }

    /// Whole lines that have come since the last time.
    pub(crate) fn lines(&self) -> Vec<u8> {
        let mut received = self.received.lock().unwrap();
        let end = received.bytes.iter().rposition(|byte| *byte == b'\n');
        let rest = received.bytes.split_off(end.map_or(0, |end| end + 1));
        std::mem::replace(&mut received.bytes, rest)
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.received.lock().unwrap().has_ended
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.reading.abort();
    }
}
