//! `kube-fanout serving`: shows and changes the serving rules of running gateways, by their admin ports.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, HeaderValue};
use http::{Request, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::time::timeout;

use crate::config::{ServingChange, ServingRequest};
use crate::error_chain::one_line;

/// How long one gateway may take.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(15);
/// Two sets of rules of 64 KiB, and what JSON adds.
const ANSWER_LEN_MAX: usize = 1 << 20;
/// A token has some kilobytes.
const TOKEN_LEN_MAX: usize = 64 << 10;

/// Asks each gateway in turn; returns what they say, a line each, and whether all have done it.
///
/// # Errors
/// If the token's file cannot be read.
pub async fn run(request: &ServingRequest) -> Result<(String, bool), String> {
    let token = request.token_file.as_deref().map(token).transpose()?;
    let client = Client::builder(TokioExecutor::new()).build_http();
    let (mut lines, mut are_done) = (String::new(), true);
    for admin in &request.admin {
        let answer = timeout(
            ANSWER_WAIT_MAX,
            ask(&client, request, admin, token.as_ref()),
        )
        .await;
        let answer = answer.unwrap_or_else(|_| Err("no answer in 15 s".to_owned()));
        are_done &= answer.is_ok();
        let answer = answer.unwrap_or_else(|reason| format!("failed: {reason}"));
        // Writing to a string cannot fail.
        let _ = writeln!(lines, "{admin}: {}", answer.trim_end());
    }
    Ok((lines, are_done))
}

async fn ask(
    client: &Client<HttpConnector, Full<Bytes>>,
    request: &ServingRequest,
    admin: &Uri,
    token: Option<&HeaderValue>,
) -> Result<String, String> {
    let base = admin.to_string();
    let path = format!("{}/serving", base.trim_end_matches('/'));
    let (method, target, body) = match &request.change {
        ServingChange::Show => ("GET", path, String::new()),
        ServingChange::Reset => ("DELETE", path, String::new()),
        ServingChange::Put(rules, time) => {
            let target = format!("{path}?for={}ms", time.as_millis());
            ("PUT", target, rules.to_string())
        }
    };
    let mut built = Request::builder().method(method).uri(target);
    if let Some(token) = token {
        built = built.header(AUTHORIZATION, token);
    }
    let built = built.body(Full::new(Bytes::from(body)));
    let built = built.map_err(|error| error.to_string())?;
    let response = client.request(built).await;
    let response = response.map_err(|error| one_line(&error))?;
    let status = response.status();
    let body = Limited::new(response.into_body(), ANSWER_LEN_MAX).collect();
    let body = body.await.map_err(|error| error.to_string())?.to_bytes();
    let text = String::from_utf8_lossy(&body).into_owned();
    match status.is_success() {
        true => Ok(text),
        false => Err(format!("{status}: {}", text.trim_end())),
    }
}

/// The header with the token of a file.
fn token(path: &Path) -> Result<HeaderValue, String> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
    let text = text.trim();
    let header = HeaderValue::try_from(format!("Bearer {text}"));
    let mut header = header
        .ok()
        .filter(|_| !text.is_empty() && text.len() <= TOKEN_LEN_MAX)
        .ok_or_else(|| format!("{}: holds no token", path.display()))?;
    header.set_sensitive(true);
    Ok(header)
}
