//! One HTTP/2 connection over hyper for many calls at a time, where the writer must be fast. It is not reopened when it breaks.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::{Method, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;

use crate::client::excerpt;
use crate::target::{Target, USER_AGENT};

/// Longest time for one response, body included: it may be a page of a long list on a busy machine.
const ANSWER_WAIT: Duration = Duration::from_secs(60);
/// Receive window: pages of lists are megabytes long.
const WINDOW_LEN: u32 = 8 << 20;
/// Connections for many objects: a server handles each on a single thread.
const CONNECTIONS: usize = 2;
/// Objects that are being created at the same time.
const CREATING_MAX: usize = 64;

pub type Sender = SendRequest<Full<Bytes>>;

/// A connection; clones share it.
#[derive(Debug, Clone)]
pub struct Http2Client {
    target: Arc<Target>,
    sender: Sender,
}

#[derive(Debug)]
pub struct Call<'a> {
    pub method: Method,
    pub path: &'a str,
    pub accept: &'a str,
    /// `content-type` of the body.
    pub content: &'a str,
    pub body: Vec<u8>,
}

impl<'a> Call<'a> {
    pub const fn get(path: &'a str, accept: &'a str) -> Self {
        Self {
            method: Method::GET,
            path,
            accept,
            content: "application/json",
            body: Vec::new(),
        }
    }
}

impl Http2Client {
    pub async fn connect(target: &Target) -> Result<Self> {
        let stream = target.connect("h2").await?;
        let (sender, connection) = Builder::new(TokioExecutor::new())
            .initial_stream_window_size(WINDOW_LEN)
            .initial_connection_window_size(WINDOW_LEN)
            .handshake(TokioIo::new(stream))
            .await
            .context("HTTP/2")?;
        // Ends when the last sender is dropped or the peer closes.
        tokio::spawn(connection);
        Ok(Self {
            target: Arc::new(target.clone()),
            sender,
        })
    }

    /// Sends a request and reads the whole response.
    pub async fn call(&self, call: Call<'_>) -> Result<(StatusCode, Bytes)> {
        let path = call.path.to_owned();
        let calling = async {
            let url = self.target.url(call.path);
            let request = self.target.request(call.method, &url);
            let request = request
                .header("accept", call.accept)
                .header("content-type", call.content)
                .header("user-agent", USER_AGENT)
                .body(Full::new(Bytes::from(call.body)))?;
            let mut sender = self.sender.clone();
            sender.ready().await?;
            let response = sender.send_request(request).await?;
            let status = response.status();
            let body = response.into_body().collect().await?.to_bytes();
            Ok::<_, anyhow::Error>((status, body))
        };
        tokio::time::timeout(ANSWER_WAIT, calling)
            .await
            .with_context(|| format!("{path}: no answer within {ANSWER_WAIT:?}"))?
            .with_context(|| path.clone())
    }

    /// Like [`Http2Client::call`], but a status other than success and `accepted` is an error.
    pub async fn demand(&self, call: Call<'_>, accepted: &[StatusCode]) -> Result<Bytes> {
        let (method, path) = (call.method.clone(), call.path.to_owned());
        let (status, body) = self.call(call).await?;
        if !status.is_success() && !accepted.contains(&status) {
            bail!("{method} {path}: {status}: {}", excerpt(&body));
        }
        Ok(body)
    }
}

/// What was created.
#[derive(Debug, Default)]
pub struct Created {
    pub count: usize,
    /// Length of the last response, bytes: an object as the server returns it.
    pub len: usize,
}

/// Creates objects as fast as the server accepts them; those that exist stay as they are.
pub async fn create_all(
    target: &Target,
    objects: impl Iterator<Item = (String, Value)>,
) -> Result<Created> {
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        connections.push(Http2Client::connect(target).await?);
    }
    let objects = objects.zip(connections.iter().cycle());
    let creating = stream::iter(objects.map(|((path, object), client)| async move {
        let call = Call {
            method: Method::POST,
            body: object.to_string().into_bytes(),
            ..Call::get(&path, "application/json")
        };
        let (status, body) = client.call(call).await?;
        let exists = status == StatusCode::CONFLICT;
        ensure!(
            exists || status.is_success(),
            "POST {path}: {status}: {}",
            excerpt(&body)
        );
        Ok::<_, anyhow::Error>((!exists).then_some(body.len()))
    }));
    let add = |all: Created, len: Option<usize>| async move {
        Ok(Created {
            count: all.count + usize::from(len.is_some()),
            len: len.unwrap_or(all.len),
        })
    };
    let creating = creating.buffer_unordered(CREATING_MAX);
    creating.try_fold(Created::default(), add).await
}
