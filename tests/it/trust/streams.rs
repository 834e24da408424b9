//! Open watches, and the data that they received.

use std::sync::{Arc, Mutex};

use http::{Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncReadExt;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::trust::model::TestRequest;
use crate::trust::transport;

/// An open watch.
pub(crate) struct Stream {
    pub(crate) request: TestRequest,
    received: Arc<Mutex<Received>>,
    reader_task: AbortHandle,
    /// When the caller lost the permission; `None` while it is allowed.
    pub(crate) denied_at: Option<Instant>,
    /// Until then the stream may end although the caller is allowed, because the caller was denied for a moment.
    pub(crate) may_end_until: Option<Instant>,
}

#[derive(Default)]
struct Received {
    bytes: Vec<u8>,
    has_ended: bool,
}

impl Stream {
    /// Reads the body of this response in a task, until the stream is dropped.
    pub(crate) fn new(request: TestRequest, answer: Response<Incoming>) -> Self {
        let received = Arc::<Mutex<Received>>::default();
        let writer = Arc::clone(&received);
        let reader_task = tokio::spawn(async move {
            match answer.status() {
                StatusCode::SWITCHING_PROTOCOLS => read_messages(answer, &writer).await,
                _ => read_body(answer.into_body(), &writer).await,
            }
            writer.lock().unwrap().has_ended = true;
        });
        Self {
            request,
            received,
            reader_task: reader_task.abort_handle(),
            denied_at: None,
            may_end_until: None,
        }
    }

    /// Takes the complete lines that were received since the last call.
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

async fn read_body(mut body: Incoming, received: &Mutex<Received>) {
    while let Some(Ok(frame)) = body.frame().await {
        if let Ok(data) = frame.into_data() {
            received.lock().unwrap().bytes.extend_from_slice(&data);
        }
    }
}

/// Appends each WebSocket message as a line.
async fn read_messages(answer: Response<Incoming>, received: &Mutex<Received>) {
    let mut socket = TokioIo::new(hyper::upgrade::on(answer).await.unwrap());
    let mut buffer = Vec::new();
    while let Some(messages) = transport::messages(&mut buffer) {
        for message in messages {
            let bytes = &mut received.lock().unwrap().bytes;
            bytes.extend_from_slice(&message);
            bytes.push(b'\n');
        }
        if !matches!(socket.read_buf(&mut buffer).await, Ok(1..)) {
            return;
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.reader_task.abort();
    }
}
