//! Detects the end of a connection, so that no request waits for a response on a connection that is gone.
//!
//! hyper passes a request to the task of its connection through a tokio channel. If the task ends at that very moment, the
//! request can remain in the closed channel until the sender is dropped. The sender, however, is held by the caller, which
//! waits for the response and is never notified. This happened about once in 20,000 connections that a server closed at
//! once (hyper 1.12, tokio 1.54), without any code of this project.

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

/// Longest time to establish a connection, including the TLS handshake.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// After the end of a connection, its last response or hyper's error may take this long to reach the caller.
const RESPONSE_GRACE: Duration = Duration::from_secs(1);

/// The byte stream of a connection. hyper drops it when the connection has ended, which closes the `alive` channel.
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

/// Notifies of the end of a connection.
#[derive(Clone)]
struct ConnectionEnd {
    /// Closed when the connection has ended.
    alive: watch::Receiver<()>,
    /// Set once the connection has carried a request.
    used: Arc<OnceLock<()>>,
}

impl ConnectionEnd {
    fn of(captured: Option<&Connected>) -> Option<Self> {
        let mut extras = Extensions::new();
        captured?.get_extras(&mut extras);
        extras.remove()
    }

    /// Waits until a request that was given to this connection can no longer get a response, unless hyper has given it to
    /// another connection since. hyper retries by itself if the connection had been used before, which may take as long as
    /// connecting.
    async fn exhausted(&mut self) {
        let is_reused = self.used.set(()).is_err();
        while self.alive.changed().await.is_ok() {}
        let retry_time = if is_reused {
            CONNECT_TIMEOUT
        } else {
            Duration::ZERO
        };
        tokio::time::sleep(retry_time + RESPONSE_GRACE).await;
    }
}

/// Waits until the connection that last carried the request has ended without a response to it.
async fn connection_lost(mut captured: CaptureConnection) {
    loop {
        let end = ConnectionEnd::of(captured.wait_for_connection_metadata().await.as_ref());
        let Some(mut end) = end else {
            return pending().await;
        };
        end.exhausted().await;
        let latest = ConnectionEnd::of(captured.connection_metadata().as_ref());
        if latest.is_some_and(|latest| latest.alive.same_channel(&end.alive)) {
            return;
        }
    }
}

/// Sends a request and waits for its response, or for the end of its connection.
pub(super) async fn send<C: Connect + Clone + Send + Sync + 'static>(
    client: &legacy::Client<C, RequestBody>,
    mut request: Request<RequestBody>,
) -> Result<Response<Incoming>, SendError> {
    let captured = capture_connection(&mut request);
    let response = pin!(client.request(request));
    tokio::select! {
        biased;
        response = response => response.map_err(SendError::from_transport),
        () = connection_lost(captured) => Err(SendError::Lost),
    }
}

#[cfg(test)]
mod tests;
