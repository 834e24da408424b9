//! Streams from a channel, with paused time.

use tokio::sync::{mpsc, oneshot};

use super::*;
use crate::metrics::{Metrics, PassthroughMetrics};

const GRACE: Duration = Duration::from_secs(10);

struct Fed(mpsc::Receiver<Bytes>);

impl Body for Fed {
    type Data = Bytes;
    type Error = ResponseBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ResponseBodyError>>> {
        let polled = self.0.poll_recv(context);
        polled.map(|chunk| chunk.map(|chunk| Ok(Frame::data(chunk))))
    }
}

struct Scene {
    upstream: mpsc::Sender<Bytes>,
    client: GuardedStream<Fed>,
    end: Option<oneshot::Sender<()>>,
    metrics: Arc<PassthroughMetrics>,
}

/// What ends the stream.
#[derive(Clone, Copy, Debug, PartialEq)]
enum By {
    Drain,
    Limit,
}

impl Scene {
    fn new(content_type: &str, by: By) -> Self {
        let (upstream, fed) = mpsc::channel(8);
        let (end, ended) = oneshot::channel();
        let ended = async move {
            // Sending and dropping have the same effect.
            let _ = ended.await;
        };
        let deadlines = match by {
            By::Drain => ForwardDeadlines::default().drained_by(ended),
            By::Limit => ForwardDeadlines::default().limited_by(ended),
        };
        let metrics = Arc::new(Metrics::new().unwrap().passthrough());
        let active = ActiveRequest::begin(&metrics, None);
        let limits = StreamLimits {
            deadlines,
            boundary: Boundary::of(content_type),
            grace: GRACE,
            silence_max: None,
        };
        Self {
            upstream,
            client: GuardedStream::new(Fed(fed), active, limits),
            end: Some(end),
            metrics,
        }
    }

    async fn send_and_expect(&self, text: &'static str) {
        self.upstream
            .send(Bytes::from_static(text.as_bytes()))
            .await
            .unwrap();
        assert_eq!(self.next().await, text);
    }

    /// What the client reads next.
    async fn next(&self) -> String {
        let frame = std::future::poll_fn(|context| self.client.poll_frame(context)).await;
        match frame {
            None => "end".to_owned(),
            Some(Err(error)) => format!("{error:?}"),
            Some(Ok(frame)) => String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap(),
        }
    }

    /// Waits until the request upstream is cancelled, although the client reads nothing.
    async fn expect_cancelled(&self) {
        self.upstream.closed().await;
    }

    fn abort_count(&self) -> u64 {
        self.metrics.errors.count(PassthroughError::Ended)
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_between_two_events() {
    for by in [By::Drain, By::Limit] {
        let mut scene = Scene::new("application/json", by);
        scene.send_and_expect("{}\nha").await;
        scene.end.take();
        scene.send_and_expect("lf\n").await;
        assert_eq!(scene.next().await, "end", "{by:?}");
        scene.expect_cancelled().await;
        assert_eq!(scene.abort_count(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_that_is_never_over_is_cut_after_a_grace() {
    for by in [By::Drain, By::Limit] {
        let mut scene = Scene::new("application/json", by);
        scene.send_and_expect("{}\nha").await;
        let start = tokio::time::Instant::now();
        scene.end.take();
        assert_eq!(scene.next().await, "Ended", "{by:?}");
        assert_eq!(start.elapsed(), GRACE);
        assert_eq!(scene.next().await, "end", "the error is returned once");
        assert_eq!(scene.abort_count(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_without_events_is_cut_at_its_limit() {
    for content_type in ["application/cbor-seq", "text/plain"] {
        let mut scene = Scene::new(content_type, By::Limit);
        scene.send_and_expect("half").await;
        let start = tokio::time::Instant::now();
        scene.end.take();
        assert_eq!(scene.next().await, "Ended", "{content_type}");
        assert_eq!(start.elapsed(), Duration::ZERO);

        let mut scene = Scene::new(content_type, By::Drain);
        scene.send_and_expect("half").await;
        scene.end.take();
        tokio::time::sleep(2 * GRACE).await;
        scene.send_and_expect("more").await;
    }
}

/// A client that does not read keeps nothing open upstream.
#[tokio::test(start_paused = true)]
async fn a_limited_body_ends_although_its_client_reads_nothing() {
    for (content_type, last) in [("application/json", "end"), ("text/plain", "Ended")] {
        let mut scene = Scene::new(content_type, By::Limit);
        scene.send_and_expect("{}\n").await;
        scene
            .upstream
            .send(Bytes::from_static(b"{}\n"))
            .await
            .unwrap();
        scene.end.take();
        scene.expect_cancelled().await;
        assert_eq!(scene.next().await, last);
    }
}
