//! The body of a response that may have come as gzip: one gateway compresses for the next (decision 66).

use std::io::{self, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use flate2::write::GzDecoder;
use http::Response;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http_body::{Body, Frame};
use tokio::task::coop;

use crate::resource::GATEWAY_GZIP;

/// Why a body ended before its end.
#[derive(Debug, thiserror::Error)]
pub enum InflateError<E> {
    /// The response broke off.
    #[error(transparent)]
    Body(E),
    /// It is not the gzip that its head promises, or ends within it.
    #[error("the response's gzip: {0}")]
    Gzip(#[source] io::Error),
}

/// A body without its gzip, if it had one.
#[derive(Debug)]
pub struct InflatedBody<B> {
    body: B,
    gzip: Option<Box<GzipStream>>,
}

impl<B> InflatedBody<B> {
    /// Decides by the response's head.
    pub fn of(mut response: Response<B>) -> Response<Self> {
        let headers = response.headers_mut();
        let coding = headers.get(CONTENT_ENCODING);
        let is_gzip = coding.is_some_and(|coding| coding == "gzip" || coding == GATEWAY_GZIP);
        if is_gzip {
            headers.remove(CONTENT_ENCODING);
            headers.remove(CONTENT_LENGTH);
        }
        response.map(|body| Self {
            body,
            gzip: is_gzip.then(Box::default),
        })
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for InflatedBody<B> {
    type Data = Bytes;
    type Error = InflateError<B::Error>;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Self { body, gzip } = self.get_mut();
        let Some(gzip) = gzip else {
            let frame = ready!(Pin::new(body).poll_frame(cx));
            return Poll::Ready(frame.map(|frame| frame.map_err(InflateError::Body)));
        };
        loop {
            // What was received can inflate to a thousand times its length, and others wait for their turn.
            let turn = ready!(coop::poll_proceed(cx));
            if let Some(inflated) = gzip.next().map_err(InflateError::Gzip)? {
                turn.made_progress();
                return Poll::Ready(Some(Ok(Frame::data(inflated))));
            }
            let frame = ready!(Pin::new(&mut *body).poll_frame(cx));
            turn.made_progress();
            let Some(frame) = frame.transpose().map_err(InflateError::Body)? else {
                gzip.finish().map_err(InflateError::Gzip)?;
                return Poll::Ready(None);
            };
            match frame.into_data() {
                Ok(data) => gzip.received = data,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
    }
}

/// One gzip member, as it comes. Of what was received, it gives out some 64 KiB at a time, whatever that inflates to.
#[derive(Debug)]
struct GzipStream {
    decoder: GzDecoder<Vec<u8>>,
    received: Bytes,
}

impl Default for GzipStream {
    fn default() -> Self {
        Self {
            decoder: GzDecoder::new(Vec::new()),
            received: Bytes::new(),
        }
    }
}

impl GzipStream {
    /// The next bytes of what was received; `None` if more has to be received first.
    fn next(&mut self) -> io::Result<Option<Bytes>> {
        while !self.received.is_empty() {
            let read = self.decoder.write(&self.received)?;
            self.received.advance(read);
            if self.received.is_empty() {
                self.decoder.flush()?;
            }
            if let Some(inflated) = self.take() {
                return Ok(Some(inflated));
            }
            if read == 0 {
                return Err(invalid("bytes after its end"));
            }
        }
        Ok(None)
    }

    /// Checks that the member has ended when the body has.
    fn finish(&mut self) -> io::Result<()> {
        self.decoder.try_finish()
    }

    fn take(&mut self) -> Option<Bytes> {
        let inflated = std::mem::take(self.decoder.get_mut());
        (!inflated.is_empty()).then(|| inflated.into())
    }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests;
