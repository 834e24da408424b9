//! The status page, the document behind it, and its live events.
//!
//! All viewers share one document, which is collected at most once a second and only if somebody asks for it. Nothing is queued: a viewer
//! that does not keep up misses documents, and one that takes nothing for a while is disconnected.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{BufMut, Bytes, BytesMut};
use http_body::{Body, Frame};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Interval, MissedTickBehavior};

use crate::blocking::spawn_blocking;
use crate::status::StatusSource;

/// How long a document is shared. It is a little less than the period of events, so that each event has a new one.
const DOCUMENT_AGE_MAX: Duration = Duration::from_millis(900);
/// The period of events.
const EVENT_PERIOD: Duration = Duration::from_secs(1);
/// People with an open page.
const VIEWERS_MAX: usize = 8;
/// A viewer whose connection has taken no event for so long is disconnected.
const STALL_MAX: Duration = Duration::from_secs(15);

/// The page. It loads nothing else: its style and its script are in it.
pub(super) const PAGE: &str = include_str!("status/page.html");

/// Allows the page its own style and script, its own events, and nothing else. A user agent with markup in it is text in any case; this
/// is the second lock.
pub(super) static PAGE_POLICY: LazyLock<String> = LazyLock::new(|| {
    let hash = |tag: &str| {
        let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
        let inside = PAGE
            .split_once(&open)
            .and_then(|(_, rest)| rest.split_once(&close));
        let text = inside.map_or("", |(text, _)| text);
        STANDARD.encode(digest(&SHA256, text.as_bytes()))
    };
    format!(
        "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; connect-src 'self'; \
         img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        hash("style"),
        hash("script"),
    )
});

/// The document, shared by all who look.
#[derive(Clone)]
pub struct StatusFeed(Arc<FeedState>);

struct FeedState {
    source: Arc<dyn StatusSource>,
    /// Locked while a document is collected, so that the others wait for it.
    latest: Arc<tokio::sync::Mutex<Option<(Instant, Bytes)>>>,
    viewers: Arc<Semaphore>,
}

impl StatusFeed {
    /// A feed of this source.
    #[must_use]
    pub fn new(source: Arc<dyn StatusSource>) -> Self {
        Self(Arc::new(FeedState {
            source,
            latest: Arc::default(),
            viewers: Arc::new(Semaphore::new(VIEWERS_MAX)),
        }))
    }

    /// The document as JSON, in one line. Empty if it cannot be made, which does not happen.
    pub(super) async fn document(&self) -> Bytes {
        let mut latest = Arc::clone(&self.0.latest).lock_owned().await;
        if let Some((at, document)) = &*latest
            && at.elapsed() < DOCUMENT_AGE_MAX
        {
            return document.clone();
        }
        let source = Arc::clone(&self.0.source);
        let began = Instant::now();
        // The work keeps the lock, also if its client leaves: clients that come and go do not collect documents side by side.
        let made = spawn_blocking(move || {
            let made = serde_json::to_vec(&source.collect());
            let document = Bytes::from(made.unwrap_or_default());
            *latest = Some((began, document.clone()));
            document
        });
        made.await.unwrap_or_default()
    }

    /// Live events for one more viewer; `None` if there are too many.
    pub(super) fn events(&self, viewer: Arc<StatusViewer>) -> Option<StatusEvents> {
        let permit = Arc::clone(&self.0.viewers).try_acquire_owned().ok()?;
        viewer.take(Instant::now());
        let mut period = tokio::time::interval(EVENT_PERIOD);
        period.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Some(StatusEvents {
            feed: self.clone(),
            viewer,
            period,
            making: None,
            _permit: permit,
        })
    }
}

/// When the connection of a viewer has last taken an event; nothing for other connections.
#[derive(Debug, Default)]
pub(super) struct StatusViewer(Mutex<Option<Instant>>);

impl StatusViewer {
    fn take(&self, now: Instant) {
        *self.0.lock() = Some(now);
    }

    /// Returns once the connection takes no events any more.
    pub(super) async fn stalled(&self) {
        loop {
            let taken_at = *self.0.lock();
            // Before the first event there is nothing to wait for.
            let at = taken_at.unwrap_or_else(Instant::now) + STALL_MAX;
            if at <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(at).await;
        }
    }
}

type Making = Pin<Box<dyn Future<Output = Bytes> + Send + Sync>>;

/// Server-sent events: a document each second.
pub(super) struct StatusEvents {
    feed: StatusFeed,
    viewer: Arc<StatusViewer>,
    period: Interval,
    /// The document that is being made.
    making: Option<Making>,
    _permit: OwnedSemaphorePermit,
}

impl Body for StatusEvents {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        // The connection asks for more only when it has room.
        this.viewer.take(Instant::now());
        loop {
            if let Some(making) = &mut this.making {
                let document = std::task::ready!(making.as_mut().poll(context));
                this.making = None;
                return Poll::Ready(Some(Ok(Frame::data(event(&document)))));
            }
            std::task::ready!(this.period.poll_tick(context));
            let feed = this.feed.clone();
            this.making = Some(Box::pin(async move { feed.document().await }));
        }
    }
}

/// A document as an event. JSON has no line breaks inside.
fn event(document: &Bytes) -> Bytes {
    let mut event = BytesMut::with_capacity(document.len() + 8);
    event.put_slice(b"data: ");
    event.put_slice(document);
    event.put_slice(b"\n\n");
    event.freeze()
}

#[cfg(test)]
mod tests;
