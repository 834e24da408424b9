//! Requests for Tables that clients share: watches (decision 11) and lists (decision 67).

use http::{HeaderMap, Response};
use http_body_util::{BodyExt, Full};

use super::Registry;
use crate::audit::event::ResponseStatus;
use crate::auth::impersonation::impersonates;
use crate::cache_rule::must_prove_origin;
use crate::forwarded::{HoldingBody, begin_talk};
use crate::protocol::request::Verb;
use crate::protocol::{audit_id, with_audit_id};
use crate::resource::{CacheKey, Gvr, ResourceVersion};
use crate::serve::resources::{
    ForwardLifetime, ForwardRequest, ForwardedBody, Latest, Permission, Resources as _,
};
use crate::serve::response_status;
use crate::tables::{self, TableListRequest, TableWatchRequest, is_unchanged};

impl Registry {
    /// Answers a list or a watch of Tables together with others; `None` for every other request, and if it must be forwarded.
    pub(super) async fn table(
        &self,
        forward: &mut ForwardRequest,
    ) -> Option<Response<ForwardedBody>> {
        let (http, info) = (&forward.request.http, &forward.request.info);
        let gvr = tables::candidate(http, info)?;
        let permission = forward.caller.permission.as_ref();
        // Operators have connections of their own, and clients that a rule forwards share nothing.
        if forward.caller.peer.is_operator()
            || forward.rule.is_some()
            || !self.is_for_memory(&gvr)
            || !may_share(self.settings.is_guarded, permission, http.headers())
        {
            return None;
        }
        if info.verb == Verb::Watch {
            self.table_watch(forward, &gvr).await.map(lasting)
        } else {
            self.table_list(forward, &gvr).await
        }
    }

    /// Answers a list with a response that other clients get, too.
    async fn table_list(
        &self,
        forward: &mut ForwardRequest,
        gvr: &Gvr,
    ) -> Option<Response<ForwardedBody>> {
        let (http, info, peer) = (
            &forward.request.http,
            &forward.request.info,
            forward.caller.peer,
        );
        self.discovery.load().resource(gvr)?;
        // For other groups upstream would have to be asked each time who serves them.
        if must_prove_origin(gvr, &self.settings.cached)
            || self.admission_of(peer).is_memory_short()
        {
            return None;
        }
        let request = TableListRequest::of(http, info, peer)?;
        let permit = self.passthrough_of(peer).shared_request(peer)?;
        let namespace = info.resource()?.namespace.as_deref();
        let is_unchanged = |version| self.is_table_unchanged(gvr, namespace, version);
        let list = self.table_lists.list(&request, is_unchanged).await?;
        // What allowed the request may have ended in the meantime.
        let permission = forward.caller.permission.as_ref();
        if !self.is_for_memory(gvr) || permission.is_some_and(|held| held.lease.is_revoked()) {
            return None;
        }
        let answer = list.response(http.headers());
        if let Some(trail) = &forward.trail {
            trail.respond(ResponseStatus::of_code(answer.status().as_u16()));
        }
        let talk = begin_talk(&self.talkers, &forward.request, &forward.caller);
        let held = (list, permit, forward.permit.take(), forward.trail.clone());
        Some(answer.map(|body| HoldingBody::boxed(body, talk, held)))
    }

    /// Whether a cache can prove that nothing in the namespace has changed from this version until now. Starts no cache, and compares nothing:
    /// that would cost upstream more than the list.
    async fn is_table_unchanged(
        &self,
        gvr: &Gvr,
        namespace: Option<&str>,
        version: ResourceVersion,
    ) -> bool {
        let Some((slot, served)) = self.ready_slot(gvr) else {
            return false;
        };
        match slot.latest_uncompared(&self.client, &served).await {
            Latest::Unknown => false,
            Latest::At(newest) if version >= newest => true,
            Latest::At(_) | Latest::Proven(..) => is_unchanged(&served.cache, namespace, version),
        }
    }

    /// Answers a watch from a shared stream. It needs a watch permit, as a watch from memory does.
    async fn table_watch(
        &self,
        forward: &mut ForwardRequest,
        gvr: &Gvr,
    ) -> Option<Response<ForwardedBody>> {
        let (http, info) = (&forward.request.http, &forward.request.info);
        let namespaced = self.discovery.load().resource(gvr)?.namespaced;
        let table_request = TableWatchRequest::of(http, info, namespaced)?;
        let permission = forward.caller.permission.as_ref();
        let (trail, peer) = (forward.trail.as_ref(), forward.caller.peer);
        let permit = match self.admission_of(peer).resuming_watch(peer) {
            Ok(permit) => permit,
            Err(refused) => {
                if let Some(trail) = trail {
                    trail.respond(response_status(&refused));
                }
                let answer = refused.to_response().map(|body| {
                    ForwardedBody::new(Full::from(body).map_err(|never| match never {}))
                });
                return Some(with_audit_id(answer, &audit_id(http.headers())));
            }
        };
        let caller = (http.headers(), permission);
        let table_request = table_request.of_peer(peer);
        let answer = self
            .tables
            .watch(table_request, caller, || self.tally(&CacheKey::json(gvr)))
            .await?;
        // It may have joined after the streams of its group were ended.
        if !self.is_for_memory(gvr) {
            return None;
        }
        if let Some(trail) = trail {
            trail.respond(ResponseStatus::of_code(answer.status().as_u16()));
        }
        let talk = begin_talk(&self.talkers, &forward.request, &forward.caller);
        Some(answer.map(|body| {
            let body = body.holding(permit).recorded(trail.cloned());
            HoldingBody::boxed(body, talk, forward.permit.take())
        }))
    }
}

/// Whether a request may share a stream with others. Unauthenticated and impersonating requests are left to upstream.
pub(super) fn may_share(
    is_guarded: bool,
    permission: Option<&Permission>,
    headers: &HeaderMap,
) -> bool {
    permission.is_some() || !is_guarded && !impersonates(headers)
}

/// The answer as one that lasts as long as a watch.
fn lasting(mut answer: Response<ForwardedBody>) -> Response<ForwardedBody> {
    answer.extensions_mut().insert(ForwardLifetime::Watch);
    answer
}
