//! What each path of the admin port answers.

use std::fmt::Write;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;

use super::{AdminState, CheckOutcome, ReadinessCheck};
use crate::build_info;
use crate::metrics::PAGE_CONTENT_TYPE;

type AdminResponse = Response<Full<Bytes>>;

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

/// Answers one request. Takes no body and reads none.
pub(super) async fn answer<B>(request: &Request<B>, shown: AdminState) -> AdminResponse {
    let path = request.uri().path();
    if !matches!(
        path,
        "/metrics" | "/livez" | "/healthz" | "/readyz" | "/version"
    ) {
        return text(StatusCode::NOT_FOUND, "404 page not found\n".to_owned());
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refusal = text(
            StatusCode::METHOD_NOT_ALLOWED,
            "only GET and HEAD\n".to_owned(),
        );
        refusal
            .headers_mut()
            .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refusal;
    }
    let verbose = is_verbose(request.uri().query());
    match path {
        "/metrics" => metrics(shown).await,
        "/readyz" => readiness(&shown, verbose),
        "/version" => version(),
        _ => liveness(path, verbose),
    }
}

/// `?verbose`, also as `?verbose=` and `?verbose=true`; the API server looks at its presence alone.
fn is_verbose(query: Option<&str>) -> bool {
    query.is_some_and(|query| {
        query
            .split('&')
            .any(|pair| pair.split('=').next() == Some("verbose"))
    })
}

async fn metrics(shown: AdminState) -> AdminResponse {
    // Thousands of series take milliseconds, which no thread that serves clients has.
    let page = tokio::task::spawn_blocking(move || shown.metrics.page()).await;
    match page {
        Ok(Ok(page)) => reply(StatusCode::OK, PAGE_CONTENT_TYPE, page),
        Ok(Err(error)) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
        Err(error) => text(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("metrics page: {error}\n"),
        ),
    }
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

/// One line a check, as the API server writes them; a failure is explained whether asked for or not.
fn readiness(shown: &AdminState, verbose: bool) -> AdminResponse {
    let drain = if shown.drain.is_begun() {
        CheckOutcome::Failed("drain has begun".to_owned())
    } else {
        CheckOutcome::Passed(String::new())
    };
    let mut checks = shown.readiness.checks();
    checks.insert(
        0,
        ReadinessCheck {
            name: "drain".to_owned(),
            outcome: drain,
        },
    );

    let passed = |check: &ReadinessCheck| matches!(check.outcome, CheckOutcome::Passed(_));
    let ready = checks.iter().all(passed);
    if ready && !verbose {
        return text(StatusCode::OK, "ok".to_owned());
    }
    let mut body = String::new();
    for ReadinessCheck { name, outcome } in &checks {
        // Writing to a string cannot fail.
        let _ = match outcome {
            CheckOutcome::Passed(words) if words.is_empty() => writeln!(body, "[+]{name} ok"),
            CheckOutcome::Passed(words) => writeln!(body, "[+]{name} ok: {words}"),
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
        "name": env!("CARGO_PKG_NAME"),
        "version": build_info::VERSION,
        "commit": build_info::commit(),
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    });
    reply(StatusCode::OK, JSON, format!("{facts}\n"))
}

fn text(status: StatusCode, body: String) -> AdminResponse {
    reply(status, TEXT, body)
}

fn reply(status: StatusCode, content_type: &'static str, body: String) -> AdminResponse {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
