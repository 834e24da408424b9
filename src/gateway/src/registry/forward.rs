//! Forwards a request, and counts it by resource and by client.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use http::Response;
use http::header::UPGRADE;

use super::Registry;
use crate::forwarded::{
    ForwardRecord, HoldingBody, begin_talk, deadlines, either, lifetime_of, or_pending,
};
use crate::metrics::{ForwardedAnswer, ForwardedLabels, ForwardedRequest};
use crate::passthrough::{OwnStatus, PassthroughRequest};
use crate::serve::ClientRequest;
use crate::serve::resources::{ForwardLifetime, ForwardRequest, ForwardedBody};

impl Registry {
    /// Has upstream answer a request, alone or together with others that want the same Tables.
    pub(super) async fn forward_upstream(
        &self,
        mut forward: ForwardRequest,
    ) -> Response<ForwardedBody> {
        if let Some(answer) = self.table(&mut forward).await {
            return answer;
        }
        let started = Instant::now();
        *self.permitted_forwards.lock() += u64::from(forward.caller.permission.is_some());
        let ForwardRequest {
            request, caller, ..
        } = forward;
        let talk = begin_talk(&self.talkers, &request, &caller);
        let record = ForwardRecord::begin(forward.trail, &caller);
        let ClientRequest {
            mut http,
            info,
            connection,
            ..
        } = *request;
        let labels = ForwardedLabels::of(&http, &info);
        // The other API server's caches may be behind what this client has read before.
        if self.client.has_moved()
            && let Some(uri) = info.at_latest(http.uri())
        {
            *http.uri_mut() = uri;
        }
        let lifetime = lifetime_of(&http, &info);
        // The connection of an upgraded request lasts longer than its response.
        let tunnel = http
            .headers()
            .contains_key(UPGRADE)
            .then(Arc::<OnceLock<ForwardedRequest>>::default);
        let deadlines = deadlines(&caller, lifetime, forward.permit).counted_by(tunnel.clone());
        let passthrough = self.passthrough_of(caller.peer);
        let request = PassthroughRequest {
            http,
            peer: caller.peer,
            address: connection.address,
            forwarding: caller.forwarding,
        };
        let answer = match lifetime {
            ForwardLifetime::Watch => {
                let (drained, side) = (
                    self.draining.end_of_watch(),
                    or_pending(forward.rule.and_then(|rule| rule.end)),
                );
                let deadlines = deadlines.drained_by(either(drained, side));
                passthrough.forward_watch(request, deadlines).await
            }
            ForwardLifetime::Long => passthrough.forward_long(request, deadlines).await,
            ForwardLifetime::Short => passthrough.forward(request, deadlines).await,
        };
        let counted = ForwardedAnswer {
            code: answer.status().as_u16(),
            is_own: answer.extensions().get::<OwnStatus>().is_some(),
            started,
            is_long_running: lifetime != ForwardLifetime::Short,
        };
        let counted = self.forwarded.answered(&labels, counted, |gvr| {
            self.discovery.load().resource(gvr).is_some()
        });
        let counted = match tunnel {
            Some(tunnel) if answer.status() == http::StatusCode::SWITCHING_PROTOCOLS => {
                let _ = tunnel.set(counted);
                None
            }
            Some(_) | None => Some(counted),
        };
        let trail = record.answered(&answer);
        let mut answer = answer.map(|body| HoldingBody::boxed(body, talk, (trail, counted)));
        answer.extensions_mut().insert(lifetime);
        answer
    }
}
