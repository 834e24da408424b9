//! Lists: one page after the other into the side buffer.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Response;
use http::header::RETRY_AFTER;
use http_body::Body;
use http_body_util::BodyExt;

use super::fault::check_content_type;
use super::{Asked, Driver, Fault, Fetch, FrameRejection, Purpose, Sink, Stopped, ask};
use crate::decode::{
    ListPage, ScanError, UpstreamStatus, scan_list, scan_object, scan_protobuf_list,
    scan_protobuf_object, scan_protobuf_status, scan_status, watch_form,
};
use crate::resource::protobuf::type_meta;
use crate::resource::wire::MAGIC;
use crate::resource::{Encoding, EventKind, Object};
use crate::upstream::reflector::{Effect, Input, ListVersion};

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
        let purpose = self.reading.list_purpose();
        match page(&*self.fetch, path, purpose, self.reading.encoding).await {
            Ok(body) => {
                self.tally.received(body.len());
                self.take_page(&body)
            }
            Err(fault) => {
                self.failed(Asked::List, fault);
                Ok(())
            }
        }
    }

    fn take_page(&mut self, body: &Bytes) -> Result<(), Stopped> {
        let page = match self.read_page(body) {
            Ok(page) => page,
            Err(fault) => {
                self.sink.restart();
                self.failed(Asked::List, fault);
                return Ok(());
            }
        };
        let input = Input::ListPage {
            resource_version: page.resource_version,
            continue_token: page.continue_token,
        };
        match self.observe(input) {
            Effect::InitialDone { resource_version } => self.sink.replace(resource_version)?,
            Effect::Restarted => self.sink.restart(),
            Effect::InitialItem
            | Effect::None
            | Effect::Live
            | Effect::Progress { .. }
            | Effect::Ignored
            | Effect::Relisting { .. } => {}
        }
        Ok(())
    }

    /// Hands over the items one by one, so that a long list never lies twice in memory. A page that turns out to be bad is
    /// followed by a list from its beginning, so what was handed over of it is dropped.
    fn read_page(&mut self, body: &Bytes) -> Result<ListPage, Fault> {
        let page = match self.reading.encoding {
            Encoding::Json => scan_list(body),
            Encoding::Protobuf => scan_protobuf_list(body),
        };
        let page = page.map_err(|error| Fault::unparsable(&error))?;
        if page.kind == "Table" {
            let cause = "a Table came where a list was asked for";
            return Err(Fault::rejected(FrameRejection::WrongContentType, cause));
        }
        for span in &page.items {
            let object = self
                .read_item(&page, span.of(body))
                .map_err(|error| Fault::unparsable(&error))?;
            self.sink.initial(EventKind::Added, object);
        }
        Ok(page)
    }

    fn read_item(&self, page: &ListPage, item: &[u8]) -> Result<Object, ScanError> {
        // Only compiled-in kinds leave out what their items are, and they name their lists so.
        let kind = page.kind.strip_suffix("List").unwrap_or(&page.kind);
        if self.reading.encoding == Encoding::Protobuf {
            let parts = scan_protobuf_object(item, self.reading.fields)?;
            let type_meta = type_meta(&page.api_version, kind);
            return Ok(Object::in_protobuf(parts, &type_meta, item));
        }
        let bytes = watch_form(item, kind, &page.api_version, page.layout);
        let parts = scan_object(&bytes, self.reading.fields)?;
        Ok(Object::new(parts, &bytes))
    }
}

/// Fetches one whole answer.
pub(super) async fn page<F: Fetch>(
    fetch: &F,
    path: String,
    purpose: Purpose,
    encoding: Encoding,
) -> Result<Bytes, Fault> {
    let answer = whole(fetch, path, purpose, encoding).await?;
    Ok(answer.into_body())
}

/// The same with its headers.
pub(super) async fn whole<F: Fetch>(
    fetch: &F,
    path: String,
    purpose: Purpose,
    encoding: Encoding,
) -> Result<Response<Bytes>, Fault> {
    let response = fetch.get(path, purpose, encoding).await?;
    if response.status().as_u16() != 200 {
        return Err(Fault::refused(refusal(response).await));
    }
    check_content_type(&response, encoding)?;
    let (head, body) = response.into_parts();
    let body = limited(body, PAGE_LEN_MAX).await;
    let body = body.map_err(|cut| cut.fault)?;
    Ok(Response::from_parts(head, body))
}

/// Reads why upstream refused.
pub(super) async fn refusal<B: Body<Data = Bytes, Error: std::fmt::Display> + Unpin>(
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
        match body.starts_with(MAGIC) {
            true => scan_protobuf_status(&body),
            false => scan_status(&body),
        }
    };
    status.over_http(code, retry_after)
}

struct Cut {
    so_far: Bytes,
    fault: Fault,
}

async fn limited<B: Body<Data = Bytes, Error: std::fmt::Display> + Unpin>(
    mut body: B,
    len_max: usize,
) -> Result<Bytes, Cut> {
    let mut whole = BytesMut::new();
    let fault = loop {
        let frame = match tokio::time::timeout(SILENCE_MAX, body.frame()).await {
            Ok(None) => return Ok(whole.freeze()),
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(error))) => break Fault::cut(error.to_string()),
            Err(_) => break Fault::cut("the answer stopped half way"),
        };
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if whole.len() + data.len() > len_max {
            let cause = format!("longer than {len_max} bytes");
            break Fault::rejected(FrameRejection::TooLong, cause);
        }
        whole.extend_from_slice(&data);
    };
    Err(Cut {
        so_far: whole.freeze(),
        fault,
    })
}
