//! Sends requests to the API server that is in use, and to another one if that fails.

use http::header::{AUTHORIZATION, HOST};
use http::{Method, Request, Response, StatusCode, Uri, Version, uri};

use super::hops::{self, may_reach_workload};
use super::transport::{ConnectionLane, LanePurpose};
use super::{Client, ClientStack, ForwardIdentity, RequestBody, ResponseBody, SendError};
use crate::resource::LOOP_HEADER;

/// Maximum number of times that a request is sent if the server does not process it.
const SENDS_MAX: usize = 4;

impl Client {
    pub(super) async fn send_on_lane(
        &self,
        purpose: LanePurpose,
        identity: ForwardIdentity,
        request: Request<RequestBody>,
    ) -> Result<Response<ResponseBody>, SendError> {
        let stack = self.shared.stack.load_full();
        let mut request = prepared(&stack, identity, request)?;
        let is_marked = self.mark(&mut request);
        let sent = self.send_to_any(&stack, purpose, identity, request).await;
        if matches!(sent, Err(SendError::Untrusted(_))) {
            self.trust_again(&stack).await;
        }
        let response = sent?;
        if is_marked {
            self.note_loop(purpose, &response);
        }
        match (identity, response.status()) {
            (ForwardIdentity::Gateway, StatusCode::UNAUTHORIZED) => self.renew().await,
            // Something in front of the API server has its own errors.
            (ForwardIdentity::Gateway, status)
                if status.is_success() || status == StatusCode::FORBIDDEN =>
            {
                self.accepted();
            }
            (ForwardIdentity::Gateway | ForwardIdentity::Caller, _) => {}
        }
        Ok(response)
    }

    /// Marks a gateway's request, unless a workload might see the mark. Returns whether it is marked.
    fn mark(&self, request: &mut Request<RequestBody>) -> bool {
        let Some(hop) = self.shared.hop.get() else {
            return false;
        };
        let is_marked = !may_reach_workload(request.uri().path());
        match is_marked {
            true => hop.append(request.headers_mut()),
            false => hops::clear(request.headers_mut()),
        }
        is_marked
    }

    /// Notes and logs when the gateway, or one behind it, has found itself among those that a request has passed.
    fn note_loop<B>(&self, purpose: LanePurpose, response: &Response<B>) {
        let is_loop = response.status() == StatusCode::LOOP_DETECTED
            && response.headers().contains_key(LOOP_HEADER);
        if let LanePurpose::Call | LanePurpose::Check | LanePurpose::Watch = purpose {
            *self.shared.is_in_loop.lock() = is_loop;
        }
        if is_loop && self.shared.loops.lock().is_due(()) {
            tracing::error!(
                "a request to the API server came back: the address of the API server leads to this gateway"
            );
        }
    }

    /// Sends the request of a check to one server, whatever its state.
    pub(super) async fn send_check(
        &self,
        index: usize,
        request: Request<RequestBody>,
    ) -> Result<Response<ResponseBody>, SendError> {
        let stack = self.shared.stack.load_full();
        let identity = ForwardIdentity::Gateway;
        let mut request = prepared(&stack, identity, request)?;
        let server = &stack.servers[index];
        *request.uri_mut() = join(&server.base, request.uri())?;
        let is_repeatable = is_repeatable(&request);
        let lane = server.lane(identity, LanePurpose::Check);
        send_with_retry(lane, request, is_repeatable).await
    }

    /// Has the next check of a server open a connection: the one of the last check may be silent although the server is not.
    pub(super) fn renew_check(&self, index: usize) {
        let stack = self.shared.stack.load();
        let server = &stack.servers[index];
        server
            .lane(ForwardIdentity::Gateway, LanePurpose::Check)
            .renew();
    }

    /// Sends a request to the server that is in use. If that fails without an effect that a second request would repeat, the
    /// request is sent to each other server that is ready, once.
    async fn send_to_any(
        &self,
        stack: &ClientStack,
        purpose: LanePurpose,
        identity: ForwardIdentity,
        mut request: Request<RequestBody>,
    ) -> Result<Response<ResponseBody>, SendError> {
        let endpoints = &self.shared.endpoints;
        // An upgrade may have started a process in a container.
        let is_repeatable = is_repeatable(&request) && purpose != LanePurpose::Upgrade;
        // A caller's read of any version is repeated by the caller, who may have read a newer one from the first server. Then it
        // is forwarded as a read of the latest version.
        let is_own = matches!(purpose, LanePurpose::Call | LanePurpose::Watch);
        let may_be_older = !is_own && has_version(request.uri());
        let mut failed = Vec::new();
        let mut failure = SendError::NoEndpoint;
        while let Some(index) = endpoints.next(&failed) {
            let server = &stack.servers[index];
            let copy = endpoints
                .are_several()
                .then(|| try_clone(&request))
                .flatten();
            *request.uri_mut() = join(&server.base, request.uri())?;
            let sending = send_with_retry(server.lane(identity, purpose), request, is_repeatable);
            // Callers bound the time for an answer by dropping this future.
            let sent = match endpoints.are_several() && is_repeatable {
                false => sending.await,
                true => tokio::select! {
                    sent = sending => sent,
                    () = endpoints.abandoned(index) => Err(SendError::Abandoned),
                },
            };
            let error = match sent {
                Ok(response) => return Ok(self.received(response, index, purpose, identity)),
                Err(error) => error,
            };
            endpoints.request_failed(index, &error);
            failed.push(index);
            let may_move =
                error.is_of_server() && (error.is_unsent() || is_repeatable) && !may_be_older;
            match copy.filter(|_| may_move) {
                Some(copy) => request = copy,
                None => return Err(error),
            }
            tracing::debug!(%error, "the API server failed, sending the request to another one");
            failure = error;
        }
        Err(failure)
    }

    fn received(
        &self,
        response: Response<ResponseBody>,
        index: usize,
        purpose: LanePurpose,
        identity: ForwardIdentity,
    ) -> Response<ResponseBody> {
        let endpoints = &self.shared.endpoints;
        let is_own = identity == ForwardIdentity::Gateway
            && matches!(purpose, LanePurpose::Call | LanePurpose::Watch);
        match (endpoints.are_several(), is_own) {
            (false, _) => response,
            (true, true) => response.map(|body| body.ending_with(endpoints.abandoned(index))),
            // A caller's watch stays where it is while its server is only not ready: to open it again is up to the caller.
            (true, false) => response.map(|body| body.ending_with(endpoints.foreign(index))),
        }
    }
}

/// A request as it is sent, but for its address.
fn prepared(
    stack: &ClientStack,
    identity: ForwardIdentity,
    mut request: Request<RequestBody>,
) -> Result<Request<RequestBody>, SendError> {
    // ALPN decides the version of HTTP. A request with the version of the caller's connection would be refused.
    *request.version_mut() = Version::HTTP_11;
    // hyper derives Host and :authority from the URI.
    request.headers_mut().remove(HOST);
    if identity == ForwardIdentity::Gateway {
        request.headers_mut().remove(AUTHORIZATION);
        stack.credentials.attach(request.headers_mut())?;
    }
    Ok(request)
}

/// Whether a request may name a resource version. A request that hides the name in escapes gets what it asked for.
fn has_version(uri: &Uri) -> bool {
    uri.query()
        .is_some_and(|query| query.contains("resourceVersion="))
}

/// Whether a request changes nothing, so that it may be sent twice.
fn is_repeatable(request: &Request<RequestBody>) -> bool {
    // Only the gateway's own reviews have their body in memory, and a review changes nothing.
    let is_review = matches!(request.body(), RequestBody::Full(_));
    is_review || matches!(*request.method(), Method::GET | Method::HEAD)
}

/// Sends a request, and sends it again if the connection fails, because a GOAWAY or an idle timeout may race with the
/// request. A request that the server did not process is sent up to [`SENDS_MAX`] times. A request that the server may have
/// processed is repeated once if it is repeatable. In all other cases the caller gets the error and decides.
async fn send_with_retry(
    lane: &ConnectionLane,
    mut request: Request<RequestBody>,
    is_repeatable: bool,
) -> Result<Response<ResponseBody>, SendError> {
    let mut repeat_count = 0;
    for _ in 1..SENDS_MAX {
        let copy = try_clone(&request);
        let error = match lane.send(request).await {
            Err(error @ SendError::Unprocessed(_)) => error,
            Err(error @ (SendError::Broken(_) | SendError::Lost))
                if is_repeatable && repeat_count == 0 =>
            {
                repeat_count += 1;
                error
            }
            outcome => return outcome,
        };
        let Some(copy) = copy else { return Err(error) };
        tracing::debug!(%error, "the connection to the API server failed, sending the request again");
        request = copy;
    }
    lane.send(request).await
}

/// Copies a request, without its extensions. `None` if its body is a stream, which cannot be sent twice.
fn try_clone(request: &Request<RequestBody>) -> Option<Request<RequestBody>> {
    let mut copy = Request::new(request.body().try_clone()?);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    Some(copy)
}

/// Prepends scheme, authority and path prefix of `base` to the path and query of `target`, whose bytes stay unchanged.
pub(super) fn join(base: &Uri, target: &Uri) -> Result<Uri, SendError> {
    let prefix = base.path().trim_end_matches('/');
    let target_path = target
        .path_and_query()
        .map_or("/", uri::PathAndQuery::as_str);
    let path = if prefix.is_empty() {
        target
            .path_and_query()
            .cloned()
            .unwrap_or(uri::PathAndQuery::from_static("/"))
    } else {
        format!("{prefix}{target_path}")
            .parse()
            .map_err(|error: uri::InvalidUri| SendError::Target(error.into()))?
    };
    let mut parts = base.clone().into_parts();
    parts.path_and_query = Some(path);
    Uri::from_parts(parts).map_err(|error| SendError::Target(error.into()))
}
