//! Why a request got no response, whose fault that is, and whether the server may have processed the request.

use std::error::Error;
use std::io;

use hyper_util::client::legacy;
use thiserror::Error;

/// Why a request got no response.
#[derive(Debug, Error)]
pub enum SendError {
    /// No connection. The request was not sent and may be tried again.
    #[error("cannot connect to the API server")]
    Unreachable(#[source] legacy::Error),
    /// The server's certificate cannot be verified. The request was not sent. Trying again helps only after a change of
    /// configuration.
    #[error("the API server's certificate is not trusted{}", why(.0))]
    Untrusted(#[source] rustls::Error),
    /// The connection broke after the request may have reached the server.
    #[error("the connection to the API server broke before it answered")]
    Broken(#[source] legacy::Error),
    /// The connection ended, and hyper did not report it to the request, which may have reached the server.
    #[error("the connection to the API server ended before it answered")]
    Lost,
    /// The server closed the connection without processing the request, which may be tried again.
    #[error("the API server closed the connection before it processed the request")]
    Unprocessed(#[source] legacy::Error),
    /// No response head came in time. The server may have done the work.
    #[error("the API server did not answer in time")]
    Timeout,
    /// The gateway's token could not be read or fetched. The request was not sent.
    #[error("cannot get the gateway's credentials for the API server")]
    Credentials(#[source] Box<dyn Error + Send + Sync>),
    /// All permits of all connections are taken. The request was not sent and may be tried again.
    #[error("too many requests to the API server are in flight")]
    Saturated,
    /// The API server was found to be gone while the request waited for it. The server may have done the work.
    #[error("the API server was given up before it answered")]
    Abandoned,
    /// None of several API servers is ready. The request was not sent and may be tried again.
    #[error("no API server is ready")]
    NoEndpoint,
    /// The API server's base path and the request path do not form a URI.
    #[error("the request target cannot be joined to the API server's address")]
    Target(#[source] http::Error),
}

impl SendError {
    pub(super) fn from_transport(error: legacy::Error) -> Self {
        if let Some(tls) = certificate_fault(&error) {
            Self::Untrusted(tls)
        } else if error.is_connect() {
            Self::Unreachable(error)
        } else if is_unprocessed(&error) {
            Self::Unprocessed(error)
        } else {
            Self::Broken(error)
        }
    }

    /// Whether the server has certainly not processed the request, so that repeating it cannot do anything twice.
    #[must_use]
    pub const fn is_unsent(&self) -> bool {
        match self {
            Self::Unreachable(_)
            | Self::Untrusted(_)
            | Self::Credentials(_)
            | Self::Saturated
            | Self::Unprocessed(_)
            | Self::NoEndpoint
            | Self::Target(_) => true,
            Self::Broken(_) | Self::Lost | Self::Timeout | Self::Abandoned => false,
        }
    }

    /// Whether the server or the way to it is the cause, so that another server may answer.
    pub(super) const fn is_of_server(&self) -> bool {
        match self {
            Self::Unreachable(_)
            | Self::Untrusted(_)
            | Self::Broken(_)
            | Self::Lost
            | Self::Unprocessed(_)
            | Self::Timeout
            | Self::Abandoned => true,
            Self::Credentials(_) | Self::Saturated | Self::NoEndpoint | Self::Target(_) => false,
        }
    }
}

/// The cause, if an operator can act on it, as the end of a sentence; otherwise empty.
fn why(error: &rustls::Error) -> &'static str {
    use rustls::CertificateError as Fault;
    let rustls::Error::InvalidCertificate(fault) = error else {
        return "";
    };
    if matches!(fault, Fault::Expired | Fault::ExpiredContext { .. }) {
        ": it has expired"
    } else if matches!(fault, Fault::NotValidYet | Fault::NotValidYetContext { .. }) {
        ": it is not valid yet"
    } else if matches!(
        fault,
        Fault::NotValidForName | Fault::NotValidForNameContext { .. }
    ) {
        ": it is for another name"
    } else {
        ""
    }
}

/// Whether the server stated that it has not processed the request: its GOAWAY includes only older requests, or it refused
/// the stream. API servers close an HTTP/2 connection in this way after each request with invalid credentials, while other
/// requests may be on their way.
fn is_unprocessed(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    for _ in 0..CHAIN_LEN_MAX {
        let Some(error) = next else { return false };
        if let Some(fault) = error.downcast_ref::<h2::Error>() {
            let is_refused = fault.reason() == Some(h2::Reason::REFUSED_STREAM);
            let is_closed = fault.is_go_away() && fault.reason() == Some(h2::Reason::NO_ERROR);
            return fault.is_remote() && (is_closed || is_refused);
        }
        next = error.source();
    }
    false
}

/// Finds rustls' error about the peer's certificate in a chain of causes. `source()` skips the error that an `io::Error`
/// wraps, so that one is taken from it directly.
fn certificate_fault(error: &(dyn Error + 'static)) -> Option<rustls::Error> {
    let mut next = Some(error);
    for _ in 0..CHAIN_LEN_MAX {
        let error = next?;
        if let Some(fault @ rustls::Error::InvalidCertificate(_)) = error.downcast_ref() {
            return Some(fault.clone());
        }
        next = match error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref)
        {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
}

/// Chains of causes have four or five links. The bound protects against a cycle.
const CHAIN_LEN_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    use super::*;

    const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];

    /// Reads frames until the HEADERS frame of the request.
    async fn until_headers(peer: &mut DuplexStream) {
        let mut preface = [0; 24];
        peer.read_exact(&mut preface).await.unwrap();
        loop {
            let mut head = [0; 9];
            peer.read_exact(&mut head).await.unwrap();
            let mut payload = vec![0; (usize::from(head[1]) << 8) | usize::from(head[2])];
            peer.read_exact(&mut payload).await.unwrap();
            if head[3] == 1 {
                return;
            }
        }
    }

    /// The error of a request on stream 1 when the server sends `frame` instead of a response and then closes the
    /// connection.
    async fn fault(frame: &[u8]) -> h2::Error {
        let (near, mut peer) = tokio::io::duplex(1 << 16);
        let (mut requests, connection) = h2::client::handshake(near).await.unwrap();
        let running = tokio::spawn(connection);
        peer.write_all(&SETTINGS).await.unwrap();
        let request = http::Request::get("https://h/").body(()).unwrap();
        let (response, _) = requests.send_request(request, true).unwrap();
        until_headers(&mut peer).await;
        peer.write_all(frame).await.unwrap();
        drop(peer);
        let fault = response.await.unwrap_err();
        drop(running.await);
        fault
    }

    #[tokio::test]
    async fn unprocessed_requests_are_distinguished_from_possibly_processed_ones() {
        let goaway = |last: u8, code: u8| {
            let head = [0, 0, 8, 7, 0, 0, 0, 0, 0];
            [&head[..], &[0, 0, 0, last, 0, 0, 0, code]].concat()
        };
        let reset = |code: u8| [&[0, 0, 4, 3, 0, 0, 0, 0, 1][..], &[0, 0, 0, code]].concat();
        let rows = [
            ("GOAWAY before the request", goaway(0, 0), true),
            (
                "GOAWAY after the request, then the end",
                goaway(1, 0),
                false,
            ),
            ("GOAWAY for a fault", goaway(0, 1), false),
            ("a refused stream", reset(7), true),
            ("a cancelled stream", reset(8), false),
            ("the end", Vec::new(), false),
        ];
        for (name, frame, expected) in rows {
            let fault = fault(&frame).await;
            assert_eq!(is_unprocessed(&fault), expected, "{name}: {fault:?}");
        }
    }
}
