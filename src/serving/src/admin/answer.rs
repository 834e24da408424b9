//! The responses of the admin port, by path.

use std::error::Error;
use std::fmt::Write;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, REFERRER_POLICY, RETRY_AFTER,
};
use http::{Method, Request, StatusCode};
use http_body::Body;
use http_body_util::BodyExt;
use tokio::time::Instant;

use super::access::{self, AccessRight};
use super::filter;
use super::places::PlaceKey;
#[cfg(feature = "profile")]
use super::profile;
use super::readiness::{CheckOutcome, Readiness, ReadinessCheck};
use super::response::{AdminResponse, refused, reply, text, wrong_method};
use super::serving;
use super::status::{PAGE, PAGE_POLICY, StatusFeed, StatusViewer};
use super::visit::Visit;
use crate::audit::Audit;
use crate::auth::guard::Guard;
use crate::blocking::spawn_blocking;
use crate::build_info;
use crate::log_filter::LogControl;
use crate::metrics::{Metrics, PAGE_CONTENT_TYPE, ReadinessLabel};
use crate::serving_control::ServingControl;
use crate::shutdown::Drain;

const JSON: &str = "application/json";
const HTML: &str = "text/html; charset=utf-8";
const EVENTS: &str = "text/event-stream";

/// Other sites may not embed the responses.
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// The right to the status, which names users.
const STATUS_RIGHT: AccessRight = AccessRight {
    verb: "get",
    path: "/kube-fanout/status",
    subject: "the status",
};

/// Answers one request. The body is read only where a path takes one.
pub(super) async fn answer<B>(
    request: Request<B>,
    state: AdminState,
    client: AdminClient,
) -> AdminResponse
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let path = request.uri().path();
    let visit = || {
        let (guard, audit) = (state.guard.as_ref(), state.audit.as_ref());
        Visit::of(&request, client.address, guard, audit)
    };
    if path == "/log-filter"
        && let Some(log) = &state.log
    {
        let mut visit = visit();
        let response = filter::answer(request, log, &mut visit).await;
        return visit.answered(response);
    }
    if path == "/serving" {
        let mut visit = visit();
        let response = serving::answer(request, &state.serving, &mut visit).await;
        return visit.answered(response);
    }
    #[cfg(feature = "profile")]
    if path == "/debug/profile" {
        let mut visit = visit();
        let response = profile::answer(&request, &mut visit).await;
        return visit.answered(response);
    }
    if !matches!(
        path,
        "/metrics"
            | "/livez"
            | "/healthz"
            | "/readyz"
            | "/version"
            | "/status"
            | "/status.json"
            | "/status/events"
    ) {
        return text(StatusCode::NOT_FOUND, "404 page not found\n".to_owned());
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return wrong_method("GET, HEAD");
    }
    let verbose = is_verbose(request.uri().query());
    match path {
        "/metrics" if client.place.begin_page(Instant::now()) => metrics(state).await,
        "/metrics" => too_many_pages(),
        "/readyz" => readiness(&state, verbose),
        "/version" => version(),
        "/status" | "/status.json" | "/status/events" => {
            let mut visit = visit();
            let response = status(&request, &state, client.viewer, &mut visit).await;
            visit.answered(response)
        }
        _ => liveness(path, verbose),
    }
}

/// Whether the query has the parameter `verbose`, with any value. The API server also checks only its presence.
fn is_verbose(query: Option<&str>) -> bool {
    query.is_some_and(|query| {
        query
            .split('&')
            .any(|pair| pair.split('=').next() == Some("verbose"))
    })
}

async fn metrics(state: AdminState) -> AdminResponse {
    // Thousands of series take milliseconds, which would block a worker thread.
    let page = spawn_blocking(move || {
        state.show_readiness();
        state.metrics.page()
    })
    .await;
    match page {
        Ok(Ok(page)) => reply(StatusCode::OK, PAGE_CONTENT_TYPE, page),
        Ok(Err(error)) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
        Err(error) => text(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("cannot write the metrics page: {error}\n"),
        ),
    }
}

/// The status page and what belongs to it, for those who may see it.
async fn status<B>(
    request: &Request<B>,
    state: &AdminState,
    viewer: Arc<StatusViewer>,
    visit: &mut Visit,
) -> AdminResponse {
    if let Err(refusal) = access::check(visit, &STATUS_RIGHT).await {
        return refused(refusal);
    }
    let mut response = match request.uri().path() {
        "/status" => reply(StatusCode::OK, HTML, PAGE),
        "/status.json" => reply(StatusCode::OK, JSON, state.status.document().await),
        // A response to HEAD has no body, so nobody would take its events.
        _ if request.method() == Method::HEAD => reply(StatusCode::OK, EVENTS, ""),
        _ => match state.status.events(viewer) {
            Some(events) => reply(StatusCode::OK, EVENTS, "").map(|_| events.boxed()),
            None => text(
                StatusCode::TOO_MANY_REQUESTS,
                "too many people look at the status\n".to_owned(),
            ),
        },
    };
    let headers = response.headers_mut();
    if let Ok(policy) = HeaderValue::from_str(&PAGE_POLICY) {
        headers.insert(CONTENT_SECURITY_POLICY, policy);
    }
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    let same_origin = HeaderValue::from_static("same-origin");
    headers.insert(RESOURCE_POLICY, same_origin);
    response
}

fn too_many_pages() -> AdminResponse {
    let mut refusal = text(
        StatusCode::SERVICE_UNAVAILABLE,
        "too many clients are reading metrics\n".to_owned(),
    );
    refusal
        .headers_mut()
        .insert(RETRY_AFTER, HeaderValue::from_static("1"));
    refusal
}

fn liveness(path: &str, verbose: bool) -> AdminResponse {
    let body = if verbose {
        format!(
            "[+]ping ok\n{} check passed\n",
            path.trim_start_matches('/')
        )
    } else {
        "ok".to_owned()
    };
    text(StatusCode::OK, body)
}

/// One line per check, in the API server's format. If a check failed, all checks are listed even without `verbose`.
fn readiness(state: &AdminState, verbose: bool) -> AdminResponse {
    let checks = state.checks();
    let ready = checks.iter().all(ReadinessCheck::has_passed);
    if ready && !verbose {
        return text(StatusCode::OK, "ok".to_owned());
    }
    let mut body = String::new();
    for ReadinessCheck { name, outcome, .. } in &checks {
        // Writing to a string cannot fail.
        let _ = match outcome {
            CheckOutcome::Passed(note) if note.is_empty() => writeln!(body, "[+]{name} ok"),
            CheckOutcome::Passed(note) => writeln!(body, "[+]{name} ok: {note}"),
            CheckOutcome::Failed(reason) => writeln!(body, "[-]{name} not ready: {reason}"),
        };
    }
    let (status, verdict) = if ready {
        (StatusCode::OK, "readyz check passed\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "readyz check failed\n")
    };
    body.push_str(verdict);
    text(status, body)
}

fn version() -> AdminResponse {
    let facts = serde_json::json!({
        "name": build_info::PROGRAM,
        "version": build_info::VERSION,
        "commit": build_info::commit(),
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    });
    reply(StatusCode::OK, JSON, format!("{facts}\n"))
}

/// The sources of the admin port's responses.
#[derive(Clone)]
pub struct AdminState {
    /// The metrics of `/metrics`.
    pub metrics: Arc<Metrics>,
    /// The checks of `/readyz`.
    pub readiness: Arc<dyn Readiness>,
    /// `/readyz` fails once this drain has begun, so that load balancers send no new clients.
    pub drain: Drain,
    /// The document of `/status`.
    pub status: StatusFeed,
    /// Decides who may see the status from elsewhere; `None` if the gateway does not authenticate callers.
    pub guard: Option<Guard>,
    /// The audit log, if there is one.
    pub audit: Option<Audit>,
    /// The serving rules of `/serving`.
    pub serving: ServingControl,
    /// The log filter of `/log-filter`; without it there is no such path.
    pub log: Option<LogControl>,
}

impl AdminState {
    /// All readiness checks, that of the drain first.
    fn checks(&self) -> Vec<ReadinessCheck> {
        let drain = if self.drain.is_begun() {
            CheckOutcome::Failed("drain has begun".to_owned())
        } else {
            CheckOutcome::Passed(String::new())
        };
        let mut checks = self.readiness.checks();
        checks.insert(
            0,
            ReadinessCheck {
                name: "drain".to_owned(),
                kind: Some(ReadinessLabel::Drain),
                outcome: drain,
            },
        );
        checks
    }

    /// Shows the checks as they are now in the metrics.
    fn show_readiness(&self) {
        let checks = self.checks();
        let failed = checks.iter().filter(|check| !check.has_passed());
        let failed: Vec<_> = failed.filter_map(|check| check.kind).collect();
        self.metrics.readiness().set(&failed);
    }
}

/// The client of an admin connection.
#[derive(Clone)]
pub(super) struct AdminClient {
    pub(super) address: IpAddr,
    /// What the connection watches to find out that the client takes no more events.
    pub(super) viewer: Arc<StatusViewer>,
    pub(super) place: Arc<PlaceKey>,
}
