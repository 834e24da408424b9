//! Reads the status document over plain HTTP/1.1: once, or as server-sent events. Everything that is read is bounded.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, AUTHORIZATION, HOST, HeaderValue};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::fs::File;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::settings::TopSettings;
use crate::status::{STATUS_VERSION, StatusDocument};

use super::error::TopError;
use super::words::clean;

/// A document stays below 200 kB.
const DOCUMENT_LEN_MAX: usize = 1 << 20;
/// The text of a refusal is one line.
const REFUSAL_LEN_MAX: usize = 4_096;
const REFUSAL_SHOWN_MAX: usize = 200;
/// Tokens are shorter.
const TOKEN_LEN_MAX: u64 = 64 << 10;
const CONNECT_WAIT_MAX: Duration = Duration::from_secs(5);
/// The gateway gives a review of the right 10 s.
const RESPONSE_WAIT_MAX: Duration = Duration::from_secs(15);
/// Events come each second.
const EVENT_WAIT_MAX: Duration = Duration::from_secs(10);

/// A client of one admin port.
#[derive(Clone, Debug)]
pub(super) struct StatusClient {
    url: Uri,
    token_file: Option<PathBuf>,
    /// The token of a pipe, such as that of `<(command)`, which can be read once.
    piped_token: Arc<OnceCell<HeaderValue>>,
}

/// A response, with the task of its connection.
struct StatusResponse {
    response: Response<Incoming>,
    connection: JoinSet<()>,
}

/// Documents as they come.
pub(super) struct DocumentStream {
    client: StatusClient,
    body: Incoming,
    buffer: BytesMut,
    _connection: JoinSet<()>,
}

impl StatusClient {
    pub(super) fn new(settings: &TopSettings) -> Self {
        Self {
            url: settings.url.clone(),
            token_file: settings.token_file.clone(),
            piped_token: Arc::default(),
        }
    }

    /// Host and port.
    pub(super) fn address(&self) -> String {
        let host = self.url.host().unwrap_or_default();
        format!("{host}:{}", self.port())
    }

    fn port(&self) -> u16 {
        self.url.port_u16().unwrap_or(80)
    }

    /// One document.
    pub(super) async fn document(&self) -> Result<StatusDocument, TopError> {
        let reading = async {
            let StatusResponse {
                response,
                connection: _connection,
            } = self.get("/status.json").await?;
            let body = Limited::new(response.into_body(), DOCUMENT_LEN_MAX)
                .collect()
                .await;
            let body = body.map_err(|error| match error.downcast_ref() {
                Some(error) if is_disconnect(error) => TopError::Closed(self.address()),
                Some(_) | None => self.strange(format!("its response ends early: {error}")),
            })?;
            self.decode(&body.to_bytes())
        };
        timeout(RESPONSE_WAIT_MAX, reading)
            .await
            .map_err(|_| TopError::Silent(self.address()))?
    }

    /// A document each second.
    pub(super) async fn documents(&self) -> Result<DocumentStream, TopError> {
        let opened = timeout(RESPONSE_WAIT_MAX, self.get("/status/events")).await;
        let StatusResponse {
            response,
            connection,
        } = opened.map_err(|_| TopError::Silent(self.address()))??;
        Ok(DocumentStream {
            client: self.clone(),
            body: response.into_body(),
            buffer: BytesMut::new(),
            _connection: connection,
        })
    }

    async fn get(&self, path: &str) -> Result<StatusResponse, TopError> {
        let address = self.address();
        let host = self.url.host().unwrap_or_default().trim_matches(['[', ']']);
        let opening = TcpStream::connect((host, self.port()));
        let stream = timeout(CONNECT_WAIT_MAX, opening)
            .await
            .map_err(|_| TopError::Silent(address.clone()))?;
        let stream = stream.map_err(|source| TopError::Connect {
            address: address.clone(),
            source,
        })?;
        let failed = |error: hyper::Error| {
            if is_disconnect(&error) {
                return TopError::Closed(address.clone());
            }
            self.strange(format!("it does not speak HTTP: {error}"))
        };
        let (mut sender, driver) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(failed)?;
        let mut connection = JoinSet::new();
        // Its errors are those of the response.
        connection.spawn(async move { drop(driver.await) });
        let mut request = Request::new(Empty::<Bytes>::new());
        *request.uri_mut() = path.parse().unwrap_or_default();
        let headers = request.headers_mut();
        if let Ok(name) = HeaderValue::from_str(&address) {
            headers.insert(HOST, name);
        }
        headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
        if let Some(token) = self.token().await? {
            headers.insert(AUTHORIZATION, token);
        }
        let response = sender.send_request(request).await.map_err(failed)?;
        match response.status() {
            StatusCode::OK => Ok(StatusResponse {
                response,
                connection,
            }),
            code => Err(self.refusal(code, response).await),
        }
    }

    async fn refusal(&self, code: StatusCode, response: Response<Incoming>) -> TopError {
        let refusals = [
            StatusCode::UNAUTHORIZED,
            StatusCode::FORBIDDEN,
            StatusCode::TOO_MANY_REQUESTS,
            StatusCode::SERVICE_UNAVAILABLE,
        ];
        if !refusals.contains(&code) {
            return self.strange(format!("it answers {} with {code}", "/status.json"));
        }
        let body = Limited::new(response.into_body(), REFUSAL_LEN_MAX)
            .collect()
            .await;
        let text = body
            .map(http_body_util::Collected::to_bytes)
            .unwrap_or_default();
        let text: String = String::from_utf8_lossy(&text)
            .trim()
            .chars()
            .take(REFUSAL_SHOWN_MAX)
            .collect();
        TopError::Refused {
            address: self.address(),
            code,
            text: clean(&text),
        }
    }

    /// The token is read for each request: it may have been renewed.
    async fn token(&self) -> Result<Option<HeaderValue>, TopError> {
        let Some(path) = &self.token_file else {
            return Ok(None);
        };
        let token = match tokio::fs::metadata(path).await {
            Ok(metadata) if !metadata.is_file() => {
                let token = self.piped_token.get_or_try_init(|| read_token(path)).await;
                token.cloned()
            }
            Ok(_) | Err(_) => read_token(path).await,
        };
        token.map(Some).map_err(|reason| TopError::Token {
            path: path.clone(),
            reason,
        })
    }

    fn decode(&self, document: &[u8]) -> Result<StatusDocument, TopError> {
        #[derive(serde::Deserialize)]
        struct DocumentVersion {
            version: u32,
        }
        let strange = |error: serde_json::Error| {
            self.strange(format!("its status is not the document of one: {error}"))
        };
        let DocumentVersion { version } = serde_json::from_slice(document).map_err(strange)?;
        if version != STATUS_VERSION {
            return Err(TopError::Version(version));
        }
        serde_json::from_slice(document).map_err(strange)
    }

    fn strange(&self, reason: String) -> TopError {
        TopError::NotGateway {
            address: self.address(),
            reason: clean(&reason),
        }
    }
}

async fn read_token(path: &Path) -> Result<HeaderValue, String> {
    let file = File::open(path).await.map_err(|error| error.to_string())?;
    let mut token = String::new();
    file.take(TOKEN_LEN_MAX + 1)
        .read_to_string(&mut token)
        .await
        .map_err(|error| error.to_string())?;
    if token.len() as u64 > TOKEN_LEN_MAX {
        return Err("longer than a token".to_owned());
    }
    if token.trim().is_empty() {
        return Err("no token in it".to_owned());
    }
    let mut value = HeaderValue::from_str(&format!("Bearer {}", token.trim()))
        .map_err(|_| "not a token".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

/// Whether the connection ended before the response was complete.
fn is_disconnect(error: &hyper::Error) -> bool {
    let cause = error.source().and_then(<dyn Error>::downcast_ref);
    let is_cut = cause.is_some_and(|cause: &io::Error| {
        [
            io::ErrorKind::UnexpectedEof,
            io::ErrorKind::ConnectionReset,
            io::ErrorKind::BrokenPipe,
        ]
        .contains(&cause.kind())
    });
    is_cut || error.is_incomplete_message() || error.is_canceled()
}

impl DocumentStream {
    /// The next document; `None` once the gateway has closed the stream, which it does after a minute or so.
    pub(super) async fn next(&mut self) -> Result<Option<StatusDocument>, TopError> {
        let silent = |_| TopError::Silent(self.client.address());
        loop {
            if let Some(end) = memchr::memmem::find(&self.buffer, b"\n\n") {
                let event = self.buffer.split_to(end + 2);
                return match event.strip_prefix(b"data: ") {
                    Some(document) => self.client.decode(document).map(Some),
                    None => Err(self
                        .client
                        .strange("its events are not documents".to_owned())),
                };
            }
            if self.buffer.len() > DOCUMENT_LEN_MAX {
                return Err(self.client.strange("its document is too long".to_owned()));
            }
            match timeout(EVENT_WAIT_MAX, self.body.frame())
                .await
                .map_err(silent)?
            {
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.buffer.extend_from_slice(data);
                    }
                }
                Some(Err(_)) | None => return Ok(None),
            }
        }
    }
}
