//! Why a request got no response. Says whose fault it is and whether anything may have happened upstream.

use std::error::Error;
use std::io;

use hyper_util::client::legacy;
use thiserror::Error;

/// Why a request got no response.
#[derive(Debug, Error)]
pub enum SendError {
    /// No connection; the request was not sent. May be tried again.
    #[error("cannot connect to the API server")]
    Unreachable(#[source] legacy::Error),
    /// The server's certificate does not verify; the request was not sent. Trying again helps only after a change of
    /// configuration.
    #[error("the API server's certificate is not trusted")]
    Untrusted(#[source] rustls::Error),
    /// The connection broke after the request may have reached the server.
    #[error("the connection to the API server broke before it answered")]
    Broken(#[source] legacy::Error),
    /// No response head in time; the server may have done the work.
    #[error("the API server did not answer in time")]
    Timeout,
    /// The gateway's token could not be read or fetched; the request was not sent.
    #[error("cannot get the gateway's credentials for the API server")]
    Credentials(#[source] tower::BoxError),
    /// All places on all connections are taken; the request was not sent. May be tried again.
    #[error("too many requests to the API server are in flight")]
    Saturated,
    /// Base path and request path do not make a URI.
    #[error("the request target cannot be joined to the API server's address")]
    Target(#[source] http::Error),
}

impl SendError {
    pub(super) fn from_transport(error: legacy::Error) -> Self {
        if let Some(tls) = certificate_fault(&error) {
            Self::Untrusted(tls)
        } else if error.is_connect() {
            Self::Unreachable(error)
        } else {
            Self::Broken(error)
        }
    }

    /// Whether the server certainly has not seen the request, so that repeating it cannot do anything twice.
    #[must_use]
    pub const fn is_unsent(&self) -> bool {
        match self {
            Self::Unreachable(_)
            | Self::Untrusted(_)
            | Self::Credentials(_)
            | Self::Saturated
            | Self::Target(_) => true,
            Self::Broken(_) | Self::Timeout => false,
        }
    }
}

/// Finds rustls' verdict on the peer's certificate in a chain of causes. An `io::Error` hides its content from
/// `source()`, so it is opened by hand.
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

/// Chains of causes are four or five long; the bound is against a cycle.
const CHAIN_LEN_MAX: usize = 16;
