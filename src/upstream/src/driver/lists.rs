//! Reads lists page by page, and fetches the next page while one is read.

use bytes::Bytes;
use tracing::{Instrument, trace_span};

use super::fault::{AttemptFailure, RequestKind};
use super::fetch::Fetch;
use super::page::{PageAhead, UpstreamPageRequest};
use super::response::fetch_body;
use super::scan::{BLOCKING_LEN_MIN, ScannedPage, run_blocking};
use super::{Driver, SPAN_TARGET, StopResult, request};
use crate::reflector::{Effect, Input};
use crate::resource::{EventKind, Object};
use crate::sink::Sink;

impl<F: Fetch, S: Sink> Driver<F, S> {
    pub(super) async fn list(
        &mut self,
        request: UpstreamPageRequest,
        ahead: Option<PageAhead>,
    ) -> Result<(), StopResult> {
        if request.continue_token.is_none() {
            self.sink.restart();
        }
        let response = match ahead {
            Some(ahead) => ahead.response,
            None => self.fetch_page(request).await,
        };
        match response {
            Ok(body) => {
                self.recorder.received(body.len());
                self.apply_page(body).await
            }
            Err(fault) => {
                self.failed(RequestKind::List, fault);
                Ok(())
            }
        }
    }

    async fn fetch_page(&self, request: UpstreamPageRequest) -> Result<Bytes, AttemptFailure> {
        let path = request::list(
            &self.spec.collection,
            request.version,
            request.continue_token.as_deref(),
            request.limit,
        );
        let purpose = self.spec.list_purpose();
        let span = trace_span!(
            target: SPAN_TARGET,
            "list",
            otel.kind = "client",
            resource = %self.spec.collection.gvr,
            outcome = tracing::field::Empty
        );
        let body = fetch_body(&*self.fetch, path, purpose, self.spec.encoding)
            .instrument(span.clone())
            .await;
        span.record("outcome", if body.is_ok() { "read" } else { "failed" });
        body
    }

    async fn apply_page(&mut self, body: Bytes) -> Result<(), StopResult> {
        let (page, objects) = match self.read_page(body).await {
            Ok(page) => page,
            Err(fault) => {
                self.sink.restart();
                self.failed(RequestKind::List, fault);
                return Ok(());
            }
        };
        for object in objects {
            self.sink.initial(EventKind::Added, object);
        }
        match self.observe(page) {
            Effect::InitialDone { resource_version } => self.sink.replace(resource_version)?,
            Effect::Restarted => self.sink.restart(),
            Effect::InitialItem
            | Effect::None
            | Effect::Live
            | Effect::Late
            | Effect::EndWatch
            | Effect::Proven
            | Effect::Progress { .. }
            | Effect::Ignored
            | Effect::Relisting { .. } => {}
        }
        Ok(())
    }

    /// Reads a page and meanwhile fetches the one that will probably be needed next, so that upstream and the driver work
    /// at the same time. At most two pages are in memory. If the page is invalid, none of its objects is used.
    async fn read_page(&mut self, body: Bytes) -> Result<(Input, Vec<Object>), AttemptFailure> {
        let scanned = ScannedPage::new(&self.spec, body)?;
        if !self.reflector.may_follow(scanned.page.resource_version) {
            return Err(AttemptFailure::far_ahead(scanned.page.resource_version));
        }
        let (version, token) = (
            scanned.page.resource_version,
            scanned.page.continue_token.clone(),
        );
        let next_action = self.reflector.next_page(version, &token);
        let fetched = async {
            let action = next_action?;
            let request = UpstreamPageRequest::of(&action)?;
            let response = self.fetch_page(request).await;
            Some(PageAhead { action, response })
        };
        let read = async {
            if scanned.body.len() < BLOCKING_LEN_MIN {
                return scanned.objects();
            }
            run_blocking(move || scanned.objects()).await
        };
        // The request is sent before the first item is read. An invalid item cancels it.
        let (fetched, objects) = tokio::try_join!(biased; async { Ok(fetched.await) }, read)?;
        self.page_ahead = fetched;
        let page = Input::ListPage {
            resource_version: version,
            continue_token: token,
        };
        Ok((page, objects))
    }
}
