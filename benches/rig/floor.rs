//! The reference for memory: hyper with the listener's settings, and bodies of one chunk that never end.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// The same as the listener's.
const BUFFER_LEN: usize = 64 << 10;

struct OneChunk(Option<Bytes>);

impl Body for OneChunk {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        // Nothing wakes the body after its chunk: the client ends the stream.
        self.get_mut().0.take().map_or(Poll::Pending, |chunk| {
            Poll::Ready(Some(Ok(Frame::data(chunk))))
        })
    }
}

async fn answer(_: Request<Incoming>) -> Result<Response<OneChunk>, Infallible> {
    let line = crate::order::line(0);
    Ok(Response::new(OneChunk(Some(line.into()))))
}

/// Listens for HTTP/1.1 at the first address and for HTTP/2 at the second. TLS applies to the first only.
pub(crate) async fn serve(tls: Option<Arc<rustls::ServerConfig>>) -> io::Result<[SocketAddr; 2]> {
    let tls = tls.map(TlsAcceptor::from);
    let one = TcpListener::bind(("127.0.0.1", 0)).await?;
    let two = TcpListener::bind(("127.0.0.1", 0)).await?;
    let addresses = [one.local_addr()?, two.local_addr()?];
    // The runtime owns all tasks: they live as long as the process.
    tokio::spawn(async move {
        while let Ok((stream, _)) = one.accept().await {
            let mut builder = http1::Builder::new();
            builder
                .timer(TokioTimer::new())
                .header_read_timeout(Duration::from_secs(32))
                .max_buf_size(BUFFER_LEN);
            let Some(tls) = tls.clone() else {
                tokio::spawn(builder.serve_connection(TokioIo::new(stream), service_fn(answer)));
                continue;
            };
            tokio::spawn(async move {
                // The client is this program, so its handshake succeeds.
                if let Ok(stream) = tls.accept(stream).await {
                    let stream = TokioIo::new(stream);
                    let _ = builder.serve_connection(stream, service_fn(answer)).await;
                }
            });
        }
    });
    tokio::spawn(async move {
        while let Ok((stream, _)) = two.accept().await {
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder
                .timer(TokioTimer::new())
                .max_concurrent_streams(250)
                .max_send_buf_size(BUFFER_LEN);
            tokio::spawn(builder.serve_connection(TokioIo::new(stream), service_fn(answer)));
        }
    });
    Ok(addresses)
}
