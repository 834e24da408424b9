//! Streams from a channel, under a clock that stands still.

use tokio::sync::{mpsc, oneshot};

use super::*;
use crate::metrics::Metrics;

const GRACE: Duration = Duration::from_secs(10);

struct Fed(mpsc::Receiver<Bytes>);

impl Body for Fed {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let polled = self.0.poll_recv(context);
        polled.map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}

struct Scene {
    upstream: mpsc::Sender<Bytes>,
    client: GuardedBody<Fed>,
    end: Option<oneshot::Sender<()>>,
    metrics: Arc<PassthroughMetrics>,
}

/// How the end comes about.
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
            // Sent or dropped, it is the end.
            let _ = ended.await;
        };
        let ends = match by {
            By::Drain => ForwardDeadlines::default().drained_by(ended),
            By::Limit => ForwardDeadlines::default().limited_by(ended),
        };
        let metrics = Arc::new(Metrics::new().unwrap().passthrough());
        let cut = AbortPolicy {
            grace: GRACE,
            metrics: Arc::clone(&metrics),
        };
        Self {
            upstream,
            client: GuardedBody::new(Fed(fed), Boundary::of(content_type), ends, cut),
            end: Some(end),
            metrics,
        }
    }

    async fn says(&self, text: &'static str) {
        self.upstream
            .send(Bytes::from_static(text.as_bytes()))
            .await
            .unwrap();
        assert_eq!(self.next().await, text);
    }

    /// What the client gets next.
    async fn next(&self) -> String {
        let frame = std::future::poll_fn(|context| self.client.poll_frame(context)).await;
        match frame {
            None => "end".to_owned(),
            Some(Err(error)) => format!("{error:?}"),
            Some(Ok(frame)) => String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap(),
        }
    }

    /// Upstream hears that it is no longer wanted, though the client reads nothing.
    async fn given_up(&self) {
        self.upstream.closed().await;
    }

    fn cuts(&self) -> u64 {
        self.metrics.errors.count(PassthroughError::Ended)
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_between_two_events() {
    for by in [By::Drain, By::Limit] {
        let mut scene = Scene::new("application/json", by);
        scene.says("{}\nha").await;
        scene.end.take();
        scene.says("lf\n").await;
        assert_eq!(scene.next().await, "end", "{by:?}");
        scene.given_up().await;
        assert_eq!(scene.cuts(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_that_is_never_over_is_cut_after_a_grace() {
    for by in [By::Drain, By::Limit] {
        let mut scene = Scene::new("application/json", by);
        scene.says("{}\nha").await;
        let begun = tokio::time::Instant::now();
        scene.end.take();
        assert_eq!(scene.next().await, "Ended", "{by:?}");
        assert_eq!(begun.elapsed(), GRACE);
        assert_eq!(scene.next().await, "end", "it is told once");
        assert_eq!(scene.cuts(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_has_no_events_is_cut_at_its_limit_and_left_to_the_drain() {
    for content_type in ["application/cbor-seq", "text/plain"] {
        let mut scene = Scene::new(content_type, By::Limit);
        scene.says("half").await;
        let begun = tokio::time::Instant::now();
        scene.end.take();
        assert_eq!(scene.next().await, "Ended", "{content_type}");
        assert_eq!(begun.elapsed(), Duration::ZERO);

        let mut scene = Scene::new(content_type, By::Drain);
        scene.says("half").await;
        scene.end.take();
        tokio::time::sleep(2 * GRACE).await;
        scene.says("more").await;
    }
}

/// A client that does not read keeps nothing open upstream.
#[tokio::test(start_paused = true)]
async fn it_ends_though_its_client_reads_nothing() {
    for (content_type, last) in [("application/json", "end"), ("text/plain", "Ended")] {
        let mut scene = Scene::new(content_type, By::Limit);
        scene.says("{}\n").await;
        scene
            .upstream
            .send(Bytes::from_static(b"{}\n"))
            .await
            .unwrap();
        scene.end.take();
        scene.given_up().await;
        assert_eq!(scene.next().await, last);
    }
}
