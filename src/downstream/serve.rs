//! One request, one answer: from memory if it is a list or a watch of a cached resource in JSON, else from upstream.

mod body;
mod fresh;
mod state;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, HeaderName, UPGRADE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use hyper::body::Incoming;
use tokio::time::Instant;

use super::list::{ListBody, Page, PageRequest, StreamedList};
use super::request::{
    Bookmarks, Fault, ListOptions, ListPlan, PathForm, Plan, Purpose, Query, Read, Refusal,
    Representation, ResourcePath, Spelling, Target, Verb, WatchPlan, WatchTimeout, negotiate, verb,
    wants_pretty,
};
use super::resources::{Answered, Availability, Resources};
use super::status::{NO_CACHE, Status};
use super::watch::{CutWatch, Timing, WatchBody};
use crate::metrics::BadRequest;
use crate::resource::Gvr;
use crate::view::selector::Selector;
use crate::view::{Form, Partial, Served};
pub use body::{AnswerBody, MeasuredList};
pub use fresh::wait_until;

/// kube-apiserver's range when the client names no timeout: 30 to 60 minutes (protocol.md §4.8).
const WATCH_TIMEOUT_MIN: Duration = Duration::from_secs(1800);
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// Answers requests with what `R` has in memory.
#[derive(Debug)]
pub struct Service<R> {
    resources: Arc<R>,
}

impl<R> Clone for Service<R> {
    fn clone(&self) -> Self {
        Self {
            resources: Arc::clone(&self.resources),
        }
    }
}

type Answer<R> = Response<AnswerBody<<R as Resources>::Forwarded>>;

/// A list or a watch that memory may answer.
struct Asked {
    path: ResourcePath,
    verb: Verb,
    options: ListOptions,
    /// Whole until the client's wish is known.
    form: Form,
    started: Instant,
}

/// A request that cannot be taken apart, and its answer.
struct Mistake {
    fault: BadRequest,
    answer: Response<Bytes>,
}

impl Mistake {
    fn new(fault: BadRequest, answer: Response<Bytes>) -> Box<Self> {
        Box::new(Self { fault, answer })
    }
}

impl<R: Resources> Service<R> {
    /// A service over these resources.
    #[must_use]
    pub fn new(resources: Arc<R>) -> Self {
        Self { resources }
    }

    /// The resources.
    #[must_use]
    pub fn resources(&self) -> &Arc<R> {
        &self.resources
    }

    /// Answers one request. Never fails: what goes wrong is an answer too.
    pub async fn answer(&self, request: Request<Incoming>) -> Answer<R> {
        let audit_id = audit_id(request.headers());
        let mut asked = match asked(&request) {
            Ok(Some(asked)) => asked,
            Ok(None) => return self.forwarded(request).await,
            Err(mistake) => {
                self.refused(mistake.fault);
                return stamped(mistake.answer.map(AnswerBody::whole), &audit_id);
            }
        };
        let served = match self.resources.availability(&asked.path.gvr).await {
            Availability::Ready(served) => served,
            Availability::Forwarded => return self.forwarded(request).await,
            Availability::Filling {
                retry_after_seconds,
            } => {
                let status = Status::initializing(retry_after_seconds);
                return self.finished(
                    &asked,
                    status.to_response().map(AnswerBody::whole),
                    &audit_id,
                );
            }
        };
        let answer = match read(&asked, &request, &served) {
            Ok((Form::Metadata(_), _)) if !R::CUTS_METADATA => Err(Refusal::Forward),
            Ok((form, read)) => {
                asked.form = form;
                self.answer_read(&asked, read, &served).await
            }
            Err(refusal) => Err(refusal),
        };
        match answer {
            Ok(answer) => self.finished(&asked, answer, &audit_id),
            Err(refusal) => match self.refusal(refusal) {
                Some(answer) => self.finished(&asked, answer, &audit_id),
                None => {
                    let answer = self.forwarded(request).await;
                    self.count(&asked, &answer);
                    answer
                }
            },
        }
    }

    /// The answer to what is not read; `None` if upstream has it. Counts mistakes of clients.
    fn refusal(&self, refusal: Refusal) -> Option<Answer<R>> {
        let status = match refusal {
            Refusal::Forward => return None,
            Refusal::Answer(status) => status,
            Refusal::Bad(fault, status) => {
                self.refused(match fault {
                    Fault::Selector => BadRequest::Selector,
                    Fault::Options => BadRequest::Parameter,
                    Fault::ResourceVersion => BadRequest::ResourceVersion,
                    Fault::ContinueToken => BadRequest::ContinueToken,
                });
                status
            }
        };
        Some(status.to_response().map(AnswerBody::whole))
    }

    fn refused(&self, fault: BadRequest) {
        if let Some(metrics) = self.resources.listener_metrics() {
            metrics.bad_requests.inc(fault);
        }
    }

    async fn forwarded(&self, request: Request<Incoming>) -> Answer<R> {
        self.resources
            .forward(request)
            .await
            .map(AnswerBody::Forwarded)
    }

    fn finished(&self, asked: &Asked, answer: Answer<R>, audit_id: &HeaderValue) -> Answer<R> {
        self.count(asked, &answer);
        stamped(answer, audit_id)
    }

    fn count(&self, asked: &Asked, answer: &Answer<R>) {
        self.resources.answered(Answered {
            gvr: &asked.path.gvr,
            verb: asked.verb,
            code: answer.status().as_u16(),
        });
    }

    async fn answer_read(
        &self,
        asked: &Asked,
        read: Read,
        served: &Served,
    ) -> Result<Answer<R>, Refusal> {
        match read.plan {
            Plan::List(plan) => self.list(asked, &read.selector, &plan, served).await,
            Plan::Watch(plan) => Ok(self.watch(asked, &read.selector, plan, served).await),
        }
    }

    async fn list(
        &self,
        asked: &Asked,
        selector: &Selector,
        plan: &ListPlan,
        served: &Served,
    ) -> Result<Answer<R>, Refusal> {
        let snapshot = self.list_state(plan.read, served).await?;
        let start = plan.start.as_deref();
        let page = Page::of(
            snapshot,
            &PageRequest {
                kind: served.cache.kind(),
                selector,
                start,
                limit: plan.limit,
            },
        );
        let tally = self.resources.list_tally(&asked.path.gvr);
        let body = match ListBody::new(page, served.cache.kind(), asked.form).sized() {
            Ok((whole, items)) => {
                // So little is as good as sent.
                if let Some(tally) = tally {
                    tally.listed(items, asked.started.elapsed());
                }
                AnswerBody::Whole(Some(whole))
            }
            Err(streamed) => AnswerBody::List(Box::new(MeasuredList::new(
                StreamedList::from(streamed),
                asked.started,
                tally,
            ))),
        };
        Ok(json(body))
    }

    async fn watch(
        &self,
        asked: &Asked,
        selector: &Selector,
        plan: WatchPlan,
        served: &Served,
    ) -> Answer<R> {
        let timeout = match plan.timeout {
            WatchTimeout::Default => {
                WATCH_TIMEOUT_MIN + WATCH_TIMEOUT_MIN.mul_f64(crate::resource::fraction())
            }
            WatchTimeout::Seconds(seconds) => Duration::from_secs(seconds),
            WatchTimeout::Ended => return json(AnswerBody::whole(Bytes::new())),
        };
        let timing = Timing {
            started: asked.started,
            timeout: timeout.min(WATCH_TIMEOUT_LONGEST),
            bookmarks: plan.bookmarks == Bookmarks::On,
        };
        match self.watch_start(selector, plan.start, served).await {
            Ok((entry, start)) => {
                let tally = self.resources.tally(&asked.path.gvr);
                let watch = WatchBody::new(served.clone(), entry, start, timing, tally);
                let layout = served.cache.kind().layout;
                json(match asked.form {
                    Form::Whole => AnswerBody::Watch(Box::new(watch)),
                    Form::Metadata(version) => {
                        let partial = Partial { version, layout };
                        AnswerBody::CutWatch(Box::new(CutWatch::new(watch, partial)))
                    }
                })
            }
            // From here on failures are events of a stream that has begun (protocol.md §4.3).
            Err(status) => json(AnswerBody::whole(status.error_event())),
        }
    }
}

/// A century: what Go's clock would take as well, and ours without overflow.
const WATCH_TIMEOUT_LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Takes the request apart; `None` when memory cannot answer it.
fn asked(request: &Request<Incoming>) -> Result<Option<Asked>, Box<Mistake>> {
    let path = match Target::parse(request.uri()) {
        Ok(Target::Resource(path)) => path,
        Ok(Target::NonResource) => return Ok(None),
        Err(text) => return Err(Mistake::new(BadRequest::Http, text.to_response())),
    };
    let query = Query::parse(request.uri().query());
    let verb = verb(request.method(), &path, &query);
    let reads = request.method() == Method::GET && matches!(verb, Verb::List | Verb::Watch);
    let plain = path.spelling == Spelling::Clean
        && path.subresource.is_none()
        && path.form != PathForm::ProxyPrefix;
    // A deadline that Go would not parse is upstream's to refuse.
    let deadline = query.first("timeout").is_none_or(is_go_duration) || verb == Verb::Watch;
    if !reads || !plain || !deadline || request.headers().contains_key(UPGRADE) {
        return Ok(None);
    }
    // Malformed options are upstream's to refuse only where it would refuse something else first.
    let options = ListOptions::from_query(&query)
        .map_err(|status| Mistake::new(BadRequest::Parameter, status.to_response()))?;
    Ok(Some(Asked {
        path,
        verb,
        options,
        form: Form::Whole,
        started: Instant::now(),
    }))
}

/// Whether Go's `time.ParseDuration` takes this, of the forms that clients write.
fn is_go_duration(text: &str) -> bool {
    // So many hours fit into Go's 64 bits of nanoseconds.
    const DIGIT_COUNT_MAX: usize = 6;
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let digits = text.len() - unit.len();
    text == "0"
        || ((1..=DIGIT_COUNT_MAX).contains(&digits)
            && matches!(unit, "ns" | "us" | "ms" | "s" | "m" | "h"))
}

/// Decides what is read, and in what form, or that upstream must answer.
fn read(
    asked: &Asked,
    request: &Request<Incoming>,
    served: &Served,
) -> Result<(Form, Read), Refusal> {
    let kind = served.cache.kind();
    let purpose = if asked.verb == Verb::Watch {
        Purpose::Watch
    } else {
        Purpose::List
    };
    let accept: Vec<&str> = request
        .headers()
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .collect();
    let form = match negotiate(&accept, kind.layout, purpose) {
        Representation::Json => Form::Whole,
        Representation::Metadata(version) => Form::Metadata(version),
        Representation::Forward => return Err(Refusal::Forward),
    };
    let agent = request
        .headers()
        .get(USER_AGENT)
        .and_then(|value| value.to_str().ok());
    if purpose == Purpose::List && wants_pretty(&Query::parse(request.uri().query()), agent) {
        return Err(Refusal::Forward);
    }
    if asked.path.namespace.is_some()
        && !kind.namespaced
        && asked.path.gvr != Gvr::new("", "v1", "namespaces")
    {
        return Err(Refusal::Forward);
    }
    Ok((form, Read::decide(&asked.path, &asked.options, kind)?))
}

fn json<B>(body: B) -> Response<B> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, NO_CACHE);
    response
}

/// The client's own audit id, or a random UUID (protocol.md §3.11).
fn audit_id(headers: &HeaderMap) -> HeaderValue {
    let given = headers.get(AUDIT_ID).filter(|value| !value.is_empty());
    given.cloned().unwrap_or_else(|| {
        let text = crate::resource::random_uuid();
        HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static("-"))
    })
}

fn stamped<B>(mut answer: Response<B>, audit_id: &HeaderValue) -> Response<B> {
    answer.headers_mut().insert(AUDIT_ID, audit_id.clone());
    answer
}

#[cfg(test)]
mod tests;
