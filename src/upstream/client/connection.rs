//! Connections that tell when they end, so that no request waits for an answer on one that is gone.
//!
//! hyper passes a request to the task of its connection through a tokio channel. If the task ends at that very moment, the request can
//! remain in the closed channel until the sender is dropped; but the sender is held by the caller, who waits for the answer and is never
//! told. Seen about once in 20,000 connections that a server closed at once (hyper 1.12, tokio 1.54), without code of this project.

use std::future::pending;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Extensions, Request, Response};
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::{
    CaptureConnection, Connect, Connected, capture_connection,
};
use tokio::sync::watch;

use super::{RequestBody, SendError};

/// A connection that takes longer to make, the TLS handshake included, is none.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// So long after the end of a connection its last answer, or the reason why there is none, may be on its way.
const LAST_WORD_TIMEOUT: Duration = Duration::from_secs(1);

/// What carries a connection's bytes. hyper drops it when the connection has ended.
pub(super) struct UpstreamConnection<T> {
    bytes: T,
    end: ConnectionEnd,
    _alive: watch::Sender<()>,
}

impl<T> UpstreamConnection<T> {
    pub(super) fn new(bytes: T) -> Self {
        let alive = watch::Sender::new(());
        let end = ConnectionEnd {
            alive: alive.subscribe(),
            used: Arc::default(),
        };
        Self {
            bytes,
            end,
            _alive: alive,
        }
    }

    #[cfg(test)]
    pub(super) const fn bytes(&self) -> &T {
        &self.bytes
    }
}

impl<T: legacy::connect::Connection> legacy::connect::Connection for UpstreamConnection<T> {
    fn connected(&self) -> Connected {
        self.bytes.connected().extra(self.end.clone())
    }
}

impl<T: Read + Unpin> Read for UpstreamConnection<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().bytes).poll_read(context, buffer)
    }
}

impl<T: Write + Unpin> Write for UpstreamConnection<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().bytes).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().bytes).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().bytes).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.bytes.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().bytes).poll_write_vectored(context, slices)
    }
}

/// Tells when a connection is gone.
#[derive(Clone)]
struct ConnectionEnd {
    /// Closed when it is.
    alive: watch::Receiver<()>,
    /// Set once a request was given to it.
    used: Arc<OnceLock<()>>,
}

impl ConnectionEnd {
    fn of(captured: Option<&Connected>) -> Option<Self> {
        let mut extras = Extensions::new();
        captured?.get_extras(&mut extras);
        extras.remove()
    }

    /// Waits until nothing can come of a request that was given to this connection, unless it was given to another one since. On one
    /// that was used before hyper tries again by itself, which may take as long as connecting does.
    async fn passed(&mut self) {
        let is_reused = self.used.set(()).is_err();
        while self.alive.changed().await.is_ok() {}
        let again = if is_reused {
            CONNECT_TIMEOUT
        } else {
            Duration::ZERO
        };
        tokio::time::sleep(again + LAST_WORD_TIMEOUT).await;
    }
}

/// Waits until the connection that a request was last given to has ended without a word to it.
async fn lost(mut captured: CaptureConnection) {
    loop {
        let end = ConnectionEnd::of(captured.wait_for_connection_metadata().await.as_ref());
        let Some(mut end) = end else {
            return pending().await;
        };
        end.passed().await;
        let now = ConnectionEnd::of(captured.connection_metadata().as_ref());
        if now.is_some_and(|now| now.alive.same_channel(&end.alive)) {
            return;
        }
    }
}

/// Sends a request and waits for its answer, or for the end of its connection.
pub(super) async fn answer<C: Connect + Clone + Send + Sync + 'static>(
    client: &legacy::Client<C, RequestBody>,
    mut request: Request<RequestBody>,
) -> Result<Response<Incoming>, SendError> {
    let captured = capture_connection(&mut request);
    let answer = pin!(client.request(request));
    tokio::select! {
        biased;
        answer = answer => answer.map_err(SendError::from_transport),
        () = lost(captured) => Err(SendError::Lost),
    }
}

#[cfg(test)]
mod tests;
