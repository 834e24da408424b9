//! A small HTTP/1.1 client over hyper, for the few calls where speed does not matter: the reference, the writer, the first list.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::{Method, Response, StatusCode};
use hyper_util::rt::TokioIo;

use crate::target::Target;
use crate::wire::lines::Lines;

/// Longest time for one response, body included.
const ANSWER_WAIT: Duration = Duration::from_secs(30);

/// One connection, reopened when it is gone.
#[derive(Debug)]
pub struct Client {
    target: Target,
    sender: Option<SendRequest<Full<Bytes>>>,
}

impl Client {
    /// A client that connects at its first call.
    pub fn new(target: Target) -> Self {
        Self {
            target,
            sender: None,
        }
    }

    /// Sends a request and returns the response; the caller reads the body.
    pub async fn open(
        &mut self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<Response<Incoming>> {
        let content = if method == Method::PATCH {
            "application/merge-patch+json"
        } else {
            "application/json"
        };
        let request = self.target.request(method, path);
        let request = request
            .header("host", &self.target.authority)
            .header("accept", "application/json")
            .header("content-type", content)
            .body(Full::new(Bytes::from(body)))?;
        let sending = async {
            let mut sender = match self.sender.take() {
                Some(sender) if !sender.is_closed() => sender,
                _ => self.connect().await?,
            };
            sender.ready().await?;
            let response = sender.send_request(request).await?;
            self.sender = Some(sender);
            Ok::<_, anyhow::Error>(response)
        };
        tokio::time::timeout(ANSWER_WAIT, sending)
            .await
            .with_context(|| format!("{path}: no answer within {ANSWER_WAIT:?}"))?
    }

    /// Sends a request and reads the whole response.
    pub async fn call(
        &mut self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<(StatusCode, Bytes)> {
        let response = self.open(method, path, body).await?;
        let status = response.status();
        let body = tokio::time::timeout(ANSWER_WAIT, response.into_body().collect())
            .await??
            .to_bytes();
        Ok((status, body))
    }

    pub async fn json(&mut self, path: &str) -> Result<serde_json::Value> {
        let (status, body) = self.call(Method::GET, path, Vec::new()).await?;
        if status != StatusCode::OK {
            bail!("GET {path}: {status}: {}", excerpt(&body));
        }
        serde_json::from_slice(&body).with_context(|| format!("GET {path}"))
    }

    /// Creates an object, unless it exists already; returns the body of the response.
    pub async fn create(&mut self, collection: &str, object: Vec<u8>) -> Result<Bytes> {
        let (status, body) = self.call(Method::POST, collection, object).await?;
        ensure!(
            status.is_success() || status == StatusCode::CONFLICT,
            "POST {collection}: {status}: {}",
            excerpt(&body)
        );
        Ok(body)
    }

    /// Hands every line of a watch to `line` until the stream ends. An error of `line` ends the watch.
    pub async fn watch(
        &mut self,
        path: &str,
        mut line: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let response = self.open(Method::GET, path, Vec::new()).await?;
        ensure!(response.status() == StatusCode::OK, "{}", response.status());
        let (mut body, mut lines) = (response.into_body(), Lines::default());
        // No deadline: a stream may be quiet for long, and the deadline of the run ends its reader.
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame?.into_data() else {
                continue;
            };
            let mut outcome = Ok(());
            lines.feed(&data, |one| {
                if outcome.is_ok() {
                    outcome = line(one);
                }
            })?;
            outcome?;
        }
        Ok(())
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>> {
        let stream = self.target.connect("http/1.1").await?;
        let (sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        // Ends when the sender is dropped or the peer closes.
        tokio::spawn(connection);
        Ok(sender)
    }
}

/// The beginning of a body, for messages.
pub fn excerpt(body: &[u8]) -> String {
    String::from_utf8_lossy(&body[..body.len().min(300)]).into_owned()
}

/// The resource version of a list.
pub fn list_version(list: &serde_json::Value) -> Result<u64> {
    list["metadata"]["resourceVersion"]
        .as_str()
        .and_then(|text| text.parse().ok())
        .context("a list without a resource version")
}
