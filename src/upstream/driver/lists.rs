//! Lists: one page after the other into the side buffer.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Response;
use http::header::RETRY_AFTER;
use http_body::Body;
use http_body_util::BodyExt;

use super::{Driver, Fetch, FrameRejection, Purpose, Sink, Stopped, ask};
use crate::decode::{
    ListPage, ScanError, UpstreamStatus, scan_list, scan_object, scan_status, watch_form,
};
use crate::resource::{EventKind, Object, Span};
use crate::upstream::reflector::{Effect, Failure, Input, ListVersion};

/// A page of 500 of the largest objects that etcd takes by default (1.5 MiB each) stays below.
const PAGE_LEN_MAX: usize = 1 << 30;
/// A Status is a few hundred bytes; what an unknown proxy sends is cut here.
const STATUS_LEN_MAX: usize = 64 << 10;

/// The API server ends its lists after 60 s; one that is silent for so long will not go on. Connections that are
/// alive below do not tell.
const SILENCE_MAX: Duration = Duration::from_secs(60);

impl<F: Fetch, S: Sink> Driver<F, S> {
    pub(super) async fn list(
        &mut self,
        version: ListVersion,
        continue_token: Option<String>,
        limit: Option<u32>,
    ) -> Result<(), Stopped> {
        if continue_token.is_none() {
            self.sink.restart();
        }
        let path = ask::list(
            &self.reading.collection,
            version,
            continue_token.as_deref(),
            limit,
        );
        match page(&*self.fetch, path, self.reading.list_purpose()).await {
            Ok(body) => {
                self.tally.received(body.len());
                self.take_page(&body)
            }
            Err(failure) => {
                self.observe(Input::ListFailed(failure));
                Ok(())
            }
        }
    }

    fn take_page(&mut self, body: &Bytes) -> Result<(), Stopped> {
        let Ok((page, objects)) = self.scan_page(body) else {
            self.tally.rejected(FrameRejection::Unparsable);
            self.observe(Input::ListFailed(Failure::Protocol));
            return Ok(());
        };
        let input = Input::ListPage {
            resource_version: page.resource_version,
            continue_token: page.continue_token,
        };
        match self.observe(input) {
            Effect::InitialItem => self.take_items(objects),
            Effect::InitialDone { resource_version } => {
                self.take_items(objects);
                self.sink.replace(resource_version)?;
            }
            Effect::Restarted => self.sink.restart(),
            Effect::None
            | Effect::Live
            | Effect::Progress { .. }
            | Effect::Ignored
            | Effect::Relisting { .. } => {}
        }
        Ok(())
    }

    fn take_items(&mut self, objects: Vec<Object>) {
        for object in objects {
            self.sink.initial(EventKind::Added, object);
        }
    }

    fn scan_page(&self, body: &Bytes) -> Result<(ListPage, Vec<Object>), ScanError> {
        let page = scan_list(body)?;
        // Only compiled-in kinds leave out what their items are, and they name their lists so.
        let kind = page.kind.strip_suffix("List").unwrap_or(&page.kind);
        let object = |span: &Span| {
            let bytes = watch_form(span.of(body), kind, &page.api_version, page.layout);
            let parts = scan_object(&bytes, self.reading.fields)?;
            Ok(Object::new(parts, &bytes))
        };
        let objects = page.items.iter().map(object).collect::<Result<_, _>>()?;
        Ok((page, objects))
    }
}

/// Fetches one whole answer.
pub(super) async fn page<F: Fetch>(
    fetch: &F,
    path: String,
    purpose: Purpose,
) -> Result<Bytes, Failure> {
    let response = fetch
        .get(path, purpose)
        .await
        .map_err(|_| Failure::Transport)?;
    if response.status().as_u16() != 200 {
        return Err(Failure::Status(refusal(response).await));
    }
    let body = limited(response.into_body(), PAGE_LEN_MAX).await;
    body.map_err(|cut| {
        if cut.too_long {
            Failure::Protocol
        } else {
            Failure::Transport
        }
    })
}

/// Reads why upstream refused.
pub(super) async fn refusal<B: Body<Data = Bytes> + Unpin>(
    response: Response<B>,
) -> UpstreamStatus {
    let code = response.status().as_u16();
    let retry_after = response
        .headers()
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok()?.parse().ok());
    let body = match limited(response.into_body(), STATUS_LEN_MAX).await {
        Ok(body) => body,
        Err(cut) => cut.so_far,
    };
    let status = if body.is_empty() {
        UpstreamStatus::of_code(code)
    } else {
        scan_status(&body)
    };
    status.over_http(code, retry_after)
}

struct Cut {
    so_far: Bytes,
    too_long: bool,
}

async fn limited<B: Body<Data = Bytes> + Unpin>(mut body: B, len_max: usize) -> Result<Bytes, Cut> {
    let mut whole = BytesMut::new();
    loop {
        let frame = match tokio::time::timeout(SILENCE_MAX, body.frame()).await {
            Ok(None) => break,
            Ok(Some(frame)) => frame.ok(),
            Err(_) => None,
        };
        let Some(frame) = frame else {
            return Err(Cut {
                so_far: whole.freeze(),
                too_long: false,
            });
        };
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if whole.len() + data.len() > len_max {
            return Err(Cut {
                so_far: whole.freeze(),
                too_long: true,
            });
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole.freeze())
}
