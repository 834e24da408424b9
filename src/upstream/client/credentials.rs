//! The gateway's own credentials as request headers. Token files and exec plugins have been resolved before (`secrets.rs`);
//! kube-client builds the headers and renews only the tokens of a legacy auth provider.

use std::future::{Ready, ready};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Request, Response};
use http_body_util::Empty;
use kube_client::Config;
use kube_client::client::ConfigExt;
use kube_client::client::middleware::{AuthLayer, ExtraHeaders};
use tower::{BoxError, Layer, Service, ServiceExt};

use super::{ConnectError, SendError};

/// Adds `Authorization` and, if the kubeconfig impersonates a user, the headers for that.
///
/// kube-client offers this only as a tower layer. The layer is put around a service that responds with the headers of its
/// request, so that the transport needs no type of that stack.
pub(super) struct Credentials {
    headers: Headers,
}

impl Credentials {
    /// Blocks: a legacy auth provider may run a command.
    pub(super) fn new(config: &Config) -> Result<Self, ConnectError> {
        let failed = |error: kube_client::Error| ConnectError::credentials(&error);
        let extra = config.extra_headers_layer().map_err(failed)?.layer(Echo);
        let headers = match config.auth_layer().map_err(failed)? {
            Some(layer) => Headers::Signed(layer.layer(extra)),
            None => Headers::Plain(extra),
        };
        Ok(Self { headers })
    }

    /// Sets the headers and replaces existing values of the same names. If the kubeconfig impersonates a user, callers
    /// cannot be impersonated as well: only some of their headers would be replaced, and the request would act as neither
    /// user.
    pub(super) async fn attach(&self, headers: &mut HeaderMap) -> Result<(), SendError> {
        let blank = Request::new(Empty::new());
        let signed = match &self.headers {
            Headers::Plain(service) => service.clone().oneshot(blank).await,
            Headers::Signed(service) => service.clone().oneshot(blank).await,
        }
        .map_err(SendError::Credentials)?;
        let own = signed.into_parts().0.headers;
        if own.keys().any(impersonates) && headers.keys().any(impersonates) {
            return Err(SendError::Credentials(NESTED.into()));
        }
        // `extend` keeps several values of one name, such as groups, and removes the older ones.
        headers.extend(own);
        Ok(())
    }
}

fn impersonates(name: &HeaderName) -> bool {
    name.as_str().starts_with("impersonate-")
}

const NESTED: &str = "the kubeconfig impersonates a user, so callers cannot be impersonated";

enum Headers {
    Plain(ExtraHeaders<Echo>),
    Signed(<AuthLayer as Layer<ExtraHeaders<Echo>>>::Service),
}

/// Responds to a request with its own headers.
#[derive(Clone, Copy)]
struct Echo;

impl Service<Request<Empty<Bytes>>> for Echo {
    type Response = Response<()>;
    type Error = BoxError;
    type Future = Ready<Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Empty<Bytes>>) -> Self::Future {
        let mut response = Response::new(());
        *response.headers_mut() = request.into_parts().0.headers;
        ready(Ok(response))
    }
}
