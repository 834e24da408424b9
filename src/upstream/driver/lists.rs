//! Lists: one page after the other into the side buffer, and one ahead.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Response;
use http::header::RETRY_AFTER;
use http_body::Body;
use http_body_util::BodyExt;

use super::fault::check_content_type;
use super::scan::{APART_LEN_MIN, ScannedPage, apart};
use super::{
    AttemptFailure, Driver, Fetch, FrameRejection, RequestKind, RequestPurpose, Sink, StopResult,
    request,
};
use crate::decode::{UpstreamStatus, scan_protobuf_status, scan_status};
use crate::resource::wire::MAGIC;
use crate::resource::{Encoding, EventKind, Object};
use crate::upstream::reflector::{Action, Effect, Input, ListVersion};

/// A page of 500 of the largest objects that etcd takes by default (1.5 MiB each) stays below.
const PAGE_LEN_MAX: usize = 1 << 30;
/// The same of metadata, most of which are a few kilobytes.
const VERSIONS_LEN_MAX: usize = 16 << 20;
/// A Status is a few hundred bytes; what an unknown proxy sends is cut here.
const STATUS_LEN_MAX: usize = 64 << 10;

/// The API server ends its lists after 60 s; one that is silent for so long will not go on, streamed or not. Connections
/// that are alive below do not tell.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(60);

/// One page, as the reflector asks for it.
#[derive(Debug)]
pub(super) struct UpstreamPageRequest {
    pub(super) version: ListVersion,
    pub(super) continue_token: Option<String>,
    pub(super) limit: Option<u32>,
}

impl UpstreamPageRequest {
    /// The request that an action names, if it is for a page.
    fn of(action: &Action) -> Option<Self> {
        match action {
            Action::List {
                resource_version,
                continue_token,
                limit,
                ..
            } => Some(Self {
                version: *resource_version,
                continue_token: continue_token.clone(),
                limit: *limit,
            }),
            Action::WatchList { .. }
            | Action::Watch { .. }
            | Action::WaitUntil(_)
            | Action::Stop(_) => None,
        }
    }
}

/// A page that was asked for while the one before it was read. It counts only if the reflector then asks for just this.
#[derive(Debug)]
pub(super) struct PageAhead {
    pub(super) action: Action,
    pub(super) answer: Result<Bytes, AttemptFailure>,
}

impl<F: Fetch, S: Sink> Driver<F, S> {
    pub(super) async fn list(
        &mut self,
        request: UpstreamPageRequest,
        ahead: Option<PageAhead>,
    ) -> Result<(), StopResult> {
        if request.continue_token.is_none() {
            self.sink.restart();
        }
        let answer = match ahead {
            Some(ahead) => ahead.answer,
            None => self.ask(request).await,
        };
        match answer {
            Ok(body) => {
                self.tally.received(body.len());
                self.take_page(body).await
            }
            Err(fault) => {
                self.failed(RequestKind::List, fault);
                Ok(())
            }
        }
    }

    async fn ask(&self, request: UpstreamPageRequest) -> Result<Bytes, AttemptFailure> {
        let path = request::list(
            &self.reading.collection,
            request.version,
            request.continue_token.as_deref(),
            request.limit,
        );
        let purpose = self.reading.list_purpose();
        page(&*self.fetch, path, purpose, self.reading.encoding).await
    }

    async fn take_page(&mut self, body: Bytes) -> Result<(), StopResult> {
        let (page, objects) = match self.read_page(body).await {
            Ok(read) => read,
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
            | Effect::Progress { .. }
            | Effect::Ignored
            | Effect::Relisting { .. } => {}
        }
        Ok(())
    }

    /// Reads a page, and meanwhile fetches the one that will be asked for next: upstream and this side work at the same time, on
    /// one page each, and at most two are in memory. A page that turns out to be bad leaves nothing.
    async fn read_page(&mut self, body: Bytes) -> Result<(Input, Vec<Object>), AttemptFailure> {
        let scanned = ScannedPage::new(&self.reading, body)?;
        let (version, token) = (
            scanned.page.resource_version,
            scanned.page.continue_token.clone(),
        );
        let ahead = self.reflector.ahead(version, &token);
        let fetched = async {
            let action = ahead?;
            let request = UpstreamPageRequest::of(&action)?;
            let answer = self.ask(request).await;
            Some(PageAhead { action, answer })
        };
        let read = async {
            if scanned.body.len() < APART_LEN_MIN {
                return scanned.objects();
            }
            apart(move || scanned.objects()).await
        };
        // The request leaves before the first item is looked at; a bad item ends both.
        let (fetched, objects) = tokio::try_join!(biased; async { Ok(fetched.await) }, read)?;
        self.ahead = fetched;
        let page = Input::ListPage {
            resource_version: version,
            continue_token: token,
        };
        Ok((page, objects))
    }
}

/// Fetches one whole answer.
pub(super) async fn page<F: Fetch>(
    fetch: &F,
    path: String,
    purpose: RequestPurpose,
    encoding: Encoding,
) -> Result<Bytes, AttemptFailure> {
    let answer = whole(fetch, path, purpose, encoding).await?;
    Ok(answer.into_body())
}

/// The same with its headers.
pub(super) async fn whole<F: Fetch>(
    fetch: &F,
    path: String,
    purpose: RequestPurpose,
    encoding: Encoding,
) -> Result<Response<Bytes>, AttemptFailure> {
    let response = fetch.get(path, purpose, encoding).await?;
    if response.status().as_u16() != 200 {
        return Err(AttemptFailure::refused(refusal(response).await));
    }
    check_content_type(&response, encoding)?;
    let (head, body) = response.into_parts();
    let len_max = match purpose {
        RequestPurpose::ReadVersions => VERSIONS_LEN_MAX,
        RequestPurpose::Read
        | RequestPurpose::ReadMetadata
        | RequestPurpose::Watch
        | RequestPurpose::WatchMetadata => PAGE_LEN_MAX,
    };
    let body = limited(body, len_max).await;
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

struct TruncatedBody {
    so_far: Bytes,
    fault: AttemptFailure,
}

async fn limited<B: Body<Data = Bytes, Error: std::fmt::Display> + Unpin>(
    mut body: B,
    len_max: usize,
) -> Result<Bytes, TruncatedBody> {
    let mut whole = BytesMut::new();
    let fault = loop {
        let frame = match tokio::time::timeout(SILENCE_MAX, body.frame()).await {
            Ok(None) => return Ok(whole.freeze()),
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(error))) => break AttemptFailure::cut(error.to_string()),
            Err(_) => break AttemptFailure::cut("the answer stopped half way"),
        };
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if whole.len() + data.len() > len_max {
            let cause = format!("longer than {len_max} bytes");
            break AttemptFailure::rejected(FrameRejection::TooLong, cause);
        }
        whole.extend_from_slice(&data);
    };
    Err(TruncatedBody {
        so_far: whole.freeze(),
        fault,
    })
}
