//! The body of a forwarded response, what is counted of it, and how long a forwarded request may last.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};

use crate::audit::AuditTrail;
use crate::audit::event::ResponseStatus;
use crate::auth::guard::Forwarding;
use crate::passthrough::{ForwardDeadlines, OwnStatus};
use crate::protocol::request::{PathForm, RequestInfo, Verb};
use crate::resource::fraction;
use crate::serve::resources::{
    BoxError, ForwardCaller, ForwardLifetime, ForwardPermit, ForwardedBody, expiry,
};
use crate::serve::{ClientRequest, forwarded_client};
use crate::talkers::{Talk, TalkKind, Talkers};

/// A body with what is held until it has been sent: the request's entry in the audit log, its permit, its count.
pub(super) struct HoldingBody<B, T> {
    body: B,
    talk: Talk,
    _held: T,
}

impl<B, T> HoldingBody<B, T>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static,
    T: Send + Unpin + 'static,
{
    pub(super) fn boxed(body: B, talk: Talk, held: T) -> ForwardedBody {
        ForwardedBody::new(Self {
            body,
            talk,
            _held: held,
        })
    }
}

/// Begins to count a request for its client.
pub(super) fn begin_talk(
    talkers: &Arc<Talkers>,
    request: &ClientRequest,
    caller: &ForwardCaller,
) -> Talk {
    let headers = request.http.headers();
    let client = forwarded_client(headers, request.connection.address, caller);
    let kind = match request.info.verb {
        Verb::List => TalkKind::List,
        Verb::Watch => TalkKind::OpenWatch,
        Verb::Get
        | Verb::Create
        | Verb::Update
        | Verb::Patch
        | Verb::Delete
        | Verb::DeleteCollection
        | Verb::Other => TalkKind::Other,
    };
    talkers.begin(client.talker(), kind)
}

/// The audit entry of a forwarded request. Upstream records a request that carries its caller's own credential, if it answers it. The others
/// are recorded here: what the gateway refuses, and what travels as impersonation, of which upstream does not see who sent it.
pub(super) struct ForwardRecord {
    trail: Option<AuditTrail>,
    is_impersonating: bool,
}

impl ForwardRecord {
    pub(super) fn begin(trail: Option<AuditTrail>, caller: &ForwardCaller) -> Self {
        let is_impersonating = matches!(caller.forwarding, Some(Forwarding::Impersonating { .. }));
        if let Some(trail) = trail.as_ref().filter(|_| !is_impersonating) {
            trail.forget();
        }
        Self {
            trail,
            is_impersonating,
        }
    }

    /// Records the response; returns the entry if it has to stay open until the response's end.
    pub(super) fn answered<B>(self, response: &Response<B>) -> Option<AuditTrail> {
        let trail = self.trail?;
        let code = response.status().as_u16();
        if let Some(OwnStatus { reason, message }) = response.extensions().get() {
            let status = ResponseStatus::failure(code, reason, message.clone());
            trail.respond(status);
            return None;
        }
        if !self.is_impersonating {
            return None;
        }
        trail.respond(ResponseStatus::of_code(code));
        Some(trail)
    }
}

impl<B, T> Body for HoldingBody<B, T>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
    T: Unpin,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            this.talk.sent(frame.data_ref().map_or(0, Bytes::len));
        }
        polled.map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// When a forwarded request must end, by its caller and its kind.
pub(super) fn deadlines(
    caller: &ForwardCaller,
    lifetime: ForwardLifetime,
    permit: Option<ForwardPermit>,
) -> ForwardDeadlines {
    let revocation = revocation(caller, lifetime);
    let deadlines = match (lifetime, permit.is_some()) {
        (ForwardLifetime::Watch, true) => ForwardDeadlines::default().limited_by(async move {
            either(or_pending(revocation), fallback_end()).await;
        }),
        (ForwardLifetime::Watch | ForwardLifetime::Long | ForwardLifetime::Short, _) => {
            match revocation {
                Some(revocation) => ForwardDeadlines::default().limited_by(revocation),
                None => ForwardDeadlines::default(),
            }
        }
    };
    deadlines.holding(permit.map(ForwardPermit::into_inner))
}

/// Completes when a forwarded request must end although upstream would continue it. A caller that the gateway impersonates is unknown to
/// upstream: its requests end when its certificate expires or its authority is removed. A watch that the gateway has authorized also ends
/// when the permission is revoked. `None` if upstream alone decides.
pub(super) fn revocation(
    caller: &ForwardCaller,
    lifetime: ForwardLifetime,
) -> Option<impl Future<Output = ()> + Send + use<>> {
    let (lease, expires_at) = match (&caller.forwarding, &caller.permission) {
        (Some(Forwarding::Impersonating { caller, lease }), _) => (lease, expiry(caller)),
        (Some(Forwarding::AsCaller) | None, Some(permission))
            if lifetime == ForwardLifetime::Watch =>
        {
            (&permission.lease, permission.expires_at)
        }
        (Some(Forwarding::AsCaller) | None, _) => return None,
    };
    let revoked = lease.revoked();
    let expired = expires_at.map(tokio::time::sleep_until);
    Some(async move { either(revoked, or_pending(expired)).await })
}

/// Completes when a watch that was forwarded only because memory did not have its events should end. Its client continues in memory, from
/// its last event or bookmark.
async fn fallback_end() {
    tokio::time::sleep(FALLBACK_MIN.mul_f64(1.0 + FALLBACK_SPREAD * fraction())).await;
}

/// Pending forever without a future.
pub(super) async fn or_pending(future: Option<impl Future<Output = ()>>) {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

/// Completes with the first of two futures.
pub(super) async fn either(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    // Both only wait; cancelling them loses nothing.
    tokio::select! {
        () = one => {}
        () = other => {}
    }
}

/// Upstream sends a bookmark within 75 s to clients that allow bookmarks, so even a quiet watch continues from a later version.
const FALLBACK_MIN: Duration = Duration::from_secs(80);
/// Random extension, as a fraction: watches that started together do not end together.
const FALLBACK_SPREAD: f64 = 0.25;

/// The subresources whose duration kube-apiserver does not limit either.
const LONG_SUBRESOURCES: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];

/// How long a request may last, by its kind.
pub(super) fn lifetime_of<B>(request: &Request<B>, info: &RequestInfo) -> ForwardLifetime {
    let Some(path) = info.resource() else {
        // The client chooses the duration of a profile.
        return if request.uri().path().starts_with("/debug/pprof/") {
            ForwardLifetime::Long
        } else {
            ForwardLifetime::Short
        };
    };
    let subresource = path.subresource.as_deref().unwrap_or_default();
    if info.verb == Verb::Watch {
        ForwardLifetime::Watch
    } else if path.form == PathForm::ProxyPrefix || LONG_SUBRESOURCES.contains(&subresource) {
        ForwardLifetime::Long
    } else {
        ForwardLifetime::Short
    }
}
