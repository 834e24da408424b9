//! Answers a watch from a shared stream.

use std::sync::Arc;

use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, WARNING};
use http::{HeaderMap, Response};
use tokio::time::Instant;

use super::Tables;
use super::body::TableBody;
use super::request::TableWatchRequest;
use super::stream::TableStreamPhase;
use crate::protocol::status::NO_CACHE;
use crate::protocol::{audit_id, with_audit_id};
use crate::serve::resources::Permission;
use crate::watch::WatchRecorder;

impl Tables {
    /// Answers a watch from a shared stream; `None` if the watch must be forwarded. `recorder` is called if the watch is answered.
    pub async fn watch(
        self: &Arc<Self>,
        request: TableWatchRequest,
        (headers, permission): (&HeaderMap, Option<&Permission>),
        recorder: impl FnOnce() -> Arc<dyn WatchRecorder>,
    ) -> Option<Response<TableBody>> {
        let started = Instant::now();
        let member = self.join(&request.key, request.after, request.peer)?;
        let TableStreamPhase::Open(warnings) = member.stream().settled().await else {
            return None;
        };
        let timeout = request.timeout.lasts(crate::resource::fraction());
        let timeout = permission.map_or(timeout, |permission| permission.limit(started, timeout));
        let body = TableBody::new(
            Arc::clone(self),
            member,
            &request,
            started + timeout,
            recorder(),
        );
        let body = body.leased(permission.map(|permission| permission.lease.hold()));
        let mut answer = Response::new(body);
        let response_headers = answer.headers_mut();
        response_headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response_headers.insert(CACHE_CONTROL, NO_CACHE);
        for warning in warnings.iter() {
            response_headers.append(WARNING, warning.clone());
        }
        Some(with_audit_id(answer, &audit_id(headers)))
    }
}
