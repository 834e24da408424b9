//! The simulated API server's responses: lists, pages and streams, with injected faults.

use std::fmt::Write;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::{Body, Frame};
use kube_fanout::resource::Encoding;
use kube_fanout::upstream::driver::{Fetch, FetchError, RequestPurpose};

use crate::informer_chaos::model::{Model, Projection, ServerMode, bookmark, event};

const JSON: &str = "application/json";
const PAGE_LEN: usize = 3;

pub(crate) type SharedModel = Arc<Mutex<Model>>;

/// A client of the model, without a network.
pub(crate) struct Server(pub(crate) SharedModel);

/// The parameters of a request.
struct RequestParameters<'a> {
    watch: bool,
    initial_events: bool,
    version: Option<&'a str>,
    token: Option<&'a str>,
    limit: Option<usize>,
    projection: Projection,
    is_comparison: bool,
}

impl<'a> RequestParameters<'a> {
    fn of(path: &'a str, purpose: RequestPurpose) -> Self {
        let query = path.split_once('?').map_or("", |(_, query)| query);
        let value = |name: &str| {
            let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs
                .into_iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| value)
        };
        Self {
            watch: value("watch").is_some(),
            initial_events: value("sendInitialEvents").is_some(),
            version: value("resourceVersion"),
            token: value("continue"),
            limit: value("limit").map(|limit| limit.parse().unwrap()),
            is_comparison: purpose == RequestPurpose::ReadVersions,
            projection: match purpose {
                RequestPurpose::Read | RequestPurpose::ReadShort | RequestPurpose::Watch => {
                    Projection::Whole
                }
                RequestPurpose::ReadMetadata
                | RequestPurpose::ReadVersions
                | RequestPurpose::WatchMetadata => Projection::Metadata,
            },
        }
    }
}

impl Fetch for Server {
    type Body = ResponseBody;

    async fn get(
        &self,
        path: String,
        purpose: RequestPurpose,
        _: Encoding,
    ) -> Result<Response<ResponseBody>, FetchError> {
        let parameters = RequestParameters::of(&path, purpose);
        let mut model = self.0.lock().unwrap();
        model.requests.push(path.clone());
        // The client requests the next page while it decodes the last one; any other request shows that the list is done.
        model.list_in_progress &= parameters.token.is_some();
        if model.mode == ServerMode::Unreachable {
            return Err(FetchError("connection refused".into()));
        }
        match failure(&mut model) {
            Some(failed) => failed,
            None => Ok(match (parameters.watch, parameters.initial_events) {
                (true, true) => self.initial_stream(&mut model, &parameters),
                (true, false) => self.stream(&mut model, &parameters),
                (false, _) => list(&self.0, &mut model, &parameters),
            }),
        }
    }
}

/// A failure that does not depend on the request, or `None`.
fn failure(model: &mut Model) -> Option<Result<Response<ResponseBody>, FetchError>> {
    if !model.should_inject(5, "failed request") {
        return None;
    }
    let choice = model.random.one_of(&[429, 429, 500, 503, 504, 0, 1, 2]);
    let retry_after_seconds = 1 + model.random.below(3);
    let omit_retry_after = model.random.one_in(2);
    Some(match choice {
        0 => {
            model.count_fault("GOAWAY");
            Err(FetchError("GOAWAY: the server is shutting down".into()))
        }
        1 => Err(FetchError("no route".into())),
        2 => {
            model.count_fault("wrong content type");
            let mut response = Response::new(ResponseBody::whole("<html>sign in</html>".into()));
            let html = "text/html".parse().unwrap();
            response.headers_mut().insert("content-type", html);
            Ok(response)
        }
        code => {
            model.count_fault(if code == 429 { "429" } else { "5xx" });
            let mut response = refused(code, "Sorry");
            if code == 429 || !omit_retry_after {
                response
                    .headers_mut()
                    .insert("retry-after", retry_after_seconds.into());
            }
            Ok(response)
        }
    })
}

fn json(body: ResponseBody) -> Response<ResponseBody> {
    let mut response = Response::new(body);
    response
        .headers_mut()
        .insert("content-type", JSON.parse().unwrap());
    response
}

fn status(code: u16, reason: &str, details: &str) -> String {
    format!(
        "{{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{{}},\"status\":\"Failure\",\"message\":\"injected failure\",\"reason\":\"{reason}\"{details},\"code\":{code}}}"
    )
}

fn refused(code: u16, reason: &str) -> Response<ResponseBody> {
    let mut response = json(ResponseBody::whole(status(code, reason, "")));
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}

/// The Status for a version that the server has not reached yet.
fn too_large() -> String {
    let details = ",\"details\":{\"causes\":[{\"reason\":\"ResourceVersionTooLarge\",\"message\":\"Too large resource version\"}],\"retryAfterSeconds\":1}";
    status(504, "Timeout", details)
}

/// The version of the state that answers a read at this version; `None` if the server has not reached it.
fn version_for(model: &mut Model, version: Option<&str>) -> Option<u64> {
    let Some(version) = version.map(|version| version.parse::<u64>().unwrap()) else {
        return Some(model.revision);
    };
    if version > model.revision {
        return None;
    }
    if model.mode == ServerMode::Healthy {
        return Some(model.revision);
    }
    // Another replica with an older cache answers. For version 0 its state may even be older than the compacted history.
    let least = if version == 0 {
        model.revision.saturating_sub(12).max(5)
    } else {
        version
    };
    let version = least + model.random.below(model.revision - least + 1);
    if version < model.revision {
        model.count_fault("stale response");
    }
    Some(version)
}

fn list(
    shared: &SharedModel,
    model: &mut Model,
    parameters: &RequestParameters<'_>,
) -> Response<ResponseBody> {
    let (version, start) = match parameters.token {
        Some(token) => {
            let mut parts = token.split('.');
            let mut number = || parts.next().unwrap().parse::<u64>().unwrap();
            let (timeline, version, start) = (number(), number(), number());
            let is_valid =
                timeline == u64::from(model.timeline) && version >= model.compacted_version;
            if !is_valid || model.should_inject(5, "expired page") {
                return refused(410, "Expired");
            }
            (version, usize::try_from(start).unwrap())
        }
        None => match version_for(model, parameters.version) {
            Some(version) => (version, 0),
            None => {
                model.count_fault("version ahead");
                let mut response = json(ResponseBody::whole(too_large()));
                *response.status_mut() = StatusCode::GATEWAY_TIMEOUT;
                return response;
            }
        },
    };
    let state = model.state_at(version);
    let limit = parameters
        .limit
        .map_or(state.len(), |limit| limit.min(PAGE_LEN));
    let items: Vec<String> = state
        .iter()
        .skip(start)
        .take(limit)
        .map(|(key, item)| item.listed(key, parameters.projection))
        .collect();
    let mut metadata = format!("\"resourceVersion\":\"{version}\"");
    if start + limit < state.len() {
        let timeline = model.timeline;
        write!(
            metadata,
            ",\"continue\":\"{timeline}.{version}.{}\"",
            start + limit
        )
        .unwrap();
    }
    let (kind, api_version) = match parameters.projection {
        Projection::Whole => ("ConfigMapList", "v1"),
        Projection::Metadata => ("PartialObjectMetadataList", "meta.k8s.io/v1"),
    };
    let mut text = format!(
        "{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{{{metadata}}},\"items\":[{}]}}\n",
        items.join(",")
    );
    let mut body = ResponseBody::whole(String::new());
    // After a comparison the client makes no other request.
    body.list_of = (!parameters.is_comparison).then(|| Arc::clone(shared));
    if model.should_inject(10, "list cut short") {
        let len = model.random.below(text.len() as u64 - 2);
        text.truncate(usize::try_from(len).unwrap());
        body.final_error = model.random.one_in(2).then_some("reset in a list");
    }
    body.text = text.into();
    json(body)
}

impl Server {
    fn initial_stream(
        &self,
        model: &mut Model,
        parameters: &RequestParameters<'_>,
    ) -> Response<ResponseBody> {
        let Some(version) = version_for(model, parameters.version) else {
            model.count_fault("version ahead");
            return json(ResponseBody::whole(event("ERROR", &too_large())));
        };
        let mut lines: String = model
            .state_at(version)
            .iter()
            .map(|(key, item)| event("ADDED", &item.object(key, parameters.projection)))
            .collect();
        let annotation = ",\"annotations\":{\"k8s.io/initial-events-end\":\"true\"}";
        lines.push_str(&bookmark(version, annotation));
        let is_cut = model.should_inject(3, "initial stream cut");
        if is_cut {
            let kept = model.random.below(lines.len() as u64);
            lines.truncate(usize::try_from(kept).unwrap());
        }
        let mut body = ResponseBody::watch(&self.0, model, lines, version, parameters.projection);
        body.is_complete = is_cut;
        body.final_error = (is_cut && model.random.one_in(2)).then_some("reset in a stream");
        json(body)
    }

    fn stream(
        &self,
        model: &mut Model,
        parameters: &RequestParameters<'_>,
    ) -> Response<ResponseBody> {
        let after: u64 = parameters.version.unwrap().parse().unwrap();
        if after > model.revision && model.random.one_in(2) {
            model.count_fault("version ahead");
            return json(ResponseBody::whole(event("ERROR", &too_large())));
        }
        if after < model.compacted_version || after > model.revision {
            model.count_fault("410");
            return if model.random.one_in(2) {
                refused(410, "Expired")
            } else {
                json(ResponseBody::whole(event(
                    "ERROR",
                    &status(410, "Expired", ""),
                )))
            };
        }
        json(ResponseBody::watch(
            &self.0,
            model,
            String::new(),
            after,
            parameters.projection,
        ))
    }
}

/// A response body: `text`, and for a watch the events that follow.
pub(crate) struct ResponseBody {
    text: Vec<u8>,
    watch_state: Option<WatchState>,
    /// The model, if this is the response to a list.
    list_of: Option<SharedModel>,
    is_complete: bool,
    /// The error that ends the body, if it does not end cleanly.
    final_error: Option<&'static str>,
}

struct WatchState {
    model: SharedModel,
    /// The version that the watch started from, or that of its initial events.
    since: u64,
    /// The version of the last event in the text.
    after: u64,
    epoch: u32,
    projection: Projection,
}

impl ResponseBody {
    fn whole(text: String) -> Self {
        Self {
            text: text.into(),
            watch_state: None,
            list_of: None,
            is_complete: false,
            final_error: None,
        }
    }

    fn watch(
        shared: &SharedModel,
        model: &Model,
        text: String,
        after: u64,
        projection: Projection,
    ) -> Self {
        Self {
            watch_state: Some(WatchState {
                model: Arc::clone(shared),
                since: after,
                after,
                epoch: model.epoch,
                projection,
            }),
            ..Self::whole(text)
        }
    }

    /// Appends a watch's new events to the text; returns true if the stream ends with them.
    fn append_events(watch_state: &mut WatchState, text: &mut Vec<u8>, model: &mut Model) -> bool {
        let (lines, reached) = model.events_after(watch_state.after, watch_state.projection);
        watch_state.after = reached;
        text.extend_from_slice(lines.as_bytes());
        if text.is_empty() && watch_state.after < model.revision && model.random.one_in(2) {
            watch_state.after = model.revision;
            text.extend_from_slice(bookmark(watch_state.after, "").as_bytes());
        }
        if model.should_inject(40, "repeated event")
            && let Some(line) =
                model.repetition(watch_state.since..watch_state.after, watch_state.projection)
        {
            text.extend_from_slice(line.as_bytes());
        }
        if model.should_inject(40, "garbage frame") {
            text.extend_from_slice(b"<html>\n");
        }
        if model.should_inject(60, "410 in a stream") {
            text.extend_from_slice(event("ERROR", &status(410, "Expired", "")).as_bytes());
            return true;
        }
        if model.should_inject(60, "500 in a stream") {
            text.extend_from_slice(event("ERROR", &status(500, "InternalError", "")).as_bytes());
            return true;
        }
        false
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        let this = &mut *self;
        if this.text.is_empty() && this.is_complete {
            let final_error = this.final_error.take();
            if let (None, Some(shared)) = (final_error, this.list_of.take()) {
                shared.lock().unwrap().list_in_progress = true;
            }
            return Poll::Ready(final_error.map(Err));
        }
        let Some(watch_state) = &mut this.watch_state else {
            this.is_complete = true;
            let text = std::mem::take(&mut this.text);
            return Poll::Ready(Some(Ok(Frame::data(text.into()))));
        };
        let shared = Arc::clone(&watch_state.model);
        let mut model = shared.lock().unwrap();
        if watch_state.epoch != model.epoch || model.mode == ServerMode::Unreachable {
            // Data that was sent but not received is lost with the connection.
            this.is_complete = true;
            this.text.clear();
            this.final_error = None;
            return Poll::Ready(Some(Err("the connection is gone")));
        }
        if !this.is_complete {
            this.is_complete = Self::append_events(watch_state, &mut this.text, &mut model);
        }
        if !this.is_complete && model.should_inject(12, "stream cut") {
            // Cut within a line or between two lines, with an error or cleanly.
            this.is_complete = true;
            let len = this.text.len() as u64;
            let kept = usize::try_from(model.random.below(len + 1)).unwrap();
            this.text.truncate(kept);
            this.final_error = model.random.one_in(2).then_some("reset in a stream");
        }
        if this.text.is_empty() {
            if this.is_complete {
                return Poll::Ready(this.final_error.take().map(Err));
            }
            model.wait(context.waker());
            return Poll::Pending;
        }
        let len = this.text.len() as u64;
        let chunk = if model.random.one_in(2) {
            len
        } else {
            1 + model.random.below(len)
        };
        let rest = this.text.split_off(usize::try_from(chunk).unwrap());
        let chunk = std::mem::replace(&mut this.text, rest);
        Poll::Ready(Some(Ok(Frame::data(chunk.into()))))
    }
}
