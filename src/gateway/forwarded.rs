//! The body of an answer that no cache gives, and how long what is forwarded may last.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Extensions, Request};
use http_body::{Body, Frame, SizeHint};
use http_body_util::Either;

use crate::auth::guard::Forwarding;
use crate::passthrough::{ForwardDeadlines, PassthroughBody};
use crate::protocol::request::{PathForm, Query, RequestTarget, Verb, verb};
use crate::resource::fraction;
use crate::serve::resources::{ForwardLifetime, ForwardPermit, Permission, expiry};
use crate::tables::TableBody;

/// Upstream's own answer to this request, or a watch of Tables that others have too. The latter is boxed: it is much larger.
pub(super) type ForwardedSource = Either<PassthroughBody, Box<TableBody>>;

/// An answer that is not from memory.
pub(super) struct ForwardedBody {
    source: ForwardedSource,
    _permit: Option<ForwardPermit>,
}

impl ForwardedBody {
    pub(super) fn new(source: ForwardedSource, permit: Option<ForwardPermit>) -> Self {
        Self {
            source,
            _permit: permit,
        }
    }
}

impl Body for ForwardedBody {
    type Data = Bytes;
    type Error = <ForwardedSource as Body>::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.get_mut().source).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.source.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.source.size_hint()
    }
}

/// When a request ends that is forwarded, by who sends it and what it is.
pub(super) fn ends<B>(
    request: &Request<B>,
    lasting: ForwardLifetime,
    permit: Option<ForwardPermit>,
) -> ForwardDeadlines {
    let forbidden = forbidden(request.extensions(), lasting);
    let ends = match (lasting, permit.is_some()) {
        (ForwardLifetime::Watch, true) => ForwardDeadlines::default().limited_by(async move {
            first_of(if_any(forbidden), handed_over()).await;
        }),
        (ForwardLifetime::Watch | ForwardLifetime::Long | ForwardLifetime::Short, _) => {
            match forbidden {
                Some(forbidden) => ForwardDeadlines::default().limited_by(forbidden),
                None => ForwardDeadlines::default(),
            }
        }
    };
    ends.holding(permit.map(ForwardPermit::into_inner))
}

/// Done when a forwarded request must end though upstream goes on with it. Whom the gateway impersonates, upstream does not know: for
/// whatever such a caller has open, when its certificate expires or its authority is removed. For a watch that was authorized here,
/// also when the permission is revoked. `None` if upstream alone decides.
pub(super) fn forbidden(
    extensions: &Extensions,
    lasting: ForwardLifetime,
) -> Option<impl Future<Output = ()> + Send + use<>> {
    let (lease, expires_at) = match (extensions.get(), extensions.get::<Permission>()) {
        (Some(Forwarding::Impersonating { caller, lease }), _) => (lease, expiry(caller)),
        (Some(Forwarding::AsCaller) | None, Some(permission))
            if lasting == ForwardLifetime::Watch =>
        {
            (&permission.lease, permission.expires_at)
        }
        (Some(Forwarding::AsCaller) | None, _) => return None,
    };
    let revoked = lease.revoked();
    let expired = expires_at.map(tokio::time::sleep_until);
    Some(async move { first_of(revoked, if_any(expired)).await })
}

/// Done when a watch has been forwarded long enough that was only forwarded for want of its events in memory. Its client goes on in
/// memory, from its last event or bookmark.
async fn handed_over() {
    tokio::time::sleep(FALLBACK_MIN.mul_f64(1.0 + FALLBACK_SPREAD * fraction())).await;
}

/// Never done if there is nothing to wait for.
async fn if_any(waiting: Option<impl Future<Output = ()>>) {
    match waiting {
        Some(waiting) => waiting.await,
        None => std::future::pending().await,
    }
}

/// Done when either is.
async fn first_of(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    // Both only wait, and are safe to cancel.
    tokio::select! {
        () = one => {}
        () = other => {}
    }
}

/// Upstream sends a bookmark within 75 s to who takes bookmarks, so that even a quiet watch goes on from a later version.
const FALLBACK_MIN: Duration = Duration::from_secs(80);
/// Those that began together do not come back together.
const FALLBACK_SPREAD: f64 = 0.25;

/// The subresources that kube-apiserver, too, lets last as long as they like.
const LONG_SUBRESOURCES: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];

/// How long a request may last, by what it asks for.
pub(super) fn lasting<B>(request: &Request<B>) -> ForwardLifetime {
    let path = match RequestTarget::parse(request.uri()) {
        Ok(RequestTarget::Resource(path)) => path,
        // Profiles are taken for as long as is asked.
        _ if request.uri().path().starts_with("/debug/pprof/") => return ForwardLifetime::Long,
        _ => return ForwardLifetime::Short,
    };
    let query = Query::parse(request.uri().query());
    let subresource = path.subresource.as_deref().unwrap_or_default();
    if verb(request.method(), &path, &query) == Verb::Watch {
        ForwardLifetime::Watch
    } else if path.form == PathForm::ProxyPrefix || LONG_SUBRESOURCES.contains(&subresource) {
        ForwardLifetime::Long
    } else {
        ForwardLifetime::Short
    }
}
