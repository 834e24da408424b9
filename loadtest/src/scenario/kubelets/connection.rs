//! The one HTTP/2 connection of a kubelet or kube-proxy, which all its reflectors and writes share; opened again when it is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::{Method, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use kube_fanout::resource::Encoding;
use kube_fanout::resource::wire::MAGIC;
use parking_lot::Mutex;
use rustls::ClientConfig;
use tokio::sync::Semaphore;

use super::reflector::{Reflector, RequestEnd};
use super::selection::Collection;
use crate::http2::{self, Http2Client};
use crate::recorder::{Control, Recorder};
use crate::swarm::SwarmConfig;
use crate::target::Target;

/// Connections that are opened at the same time: servers give up on slow handshakes.
const CONNECTING_MAX: usize = 32;
/// Longest time until a response begins; client-go's kubelets wait as long for a write.
const ANSWER_WAIT: Duration = Duration::from_secs(60);
/// Go's HTTP/2 client: windows of a stream and of a connection, and pings on a silent connection.
const STREAM_WINDOW_LEN: u32 = 4 << 20;
const CONNECTION_WINDOW_LEN: u32 = 1 << 30;
const PING_AFTER: Duration = Duration::from_secs(30);
const PING_WAIT: Duration = Duration::from_secs(15);
/// What kubelets and kube-proxies ask for.
const ACCEPT: &str = "application/vnd.kubernetes.protobuf,application/json";
/// What they ask a server for that has no protobuf. A gateway would forward the other, because built-in kinds of real API servers have it.
const ACCEPT_JSON: &str = "application/json";
/// Names the encoding in the type of a response.
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// What all clients of a run share.
#[derive(Debug)]
pub struct Fleet {
    swarm_config: SwarmConfig,
    accept: &'static str,
    tls: Option<Arc<ClientConfig>>,
    connecting: Semaphore,
    started: Instant,
    pub control: Control,
    pub recorder: Mutex<Recorder>,
    pub requests: RequestCounts,
}

/// Requests that clients have sent.
#[derive(Debug, Default)]
pub struct RequestCounts {
    pub lists: AtomicU64,
    pub watches: AtomicU64,
    pub writes: AtomicU64,
    pub connections: AtomicU64,
    /// Bytes of the bodies of responses to writes.
    pub write_bytes: AtomicU64,
}

impl Fleet {
    /// Clients of the server in `swarm_config`, behind which the API server has protobuf or not.
    pub fn new(swarm_config: SwarmConfig, has_protobuf: bool) -> Self {
        let tls = swarm_config.target.tls.as_ref();
        Self {
            accept: if has_protobuf { ACCEPT } else { ACCEPT_JSON },
            tls: tls.map(|tls| tls.config("h2")),
            swarm_config,
            connecting: Semaphore::new(CONNECTING_MAX),
            started: Instant::now(),
            control: Control::default(),
            recorder: Mutex::default(),
            requests: RequestCounts::default(),
        }
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }
}

/// Whether an API server has its built-in kinds in protobuf.
pub async fn has_protobuf(server: &Target) -> Result<bool> {
    let client = Http2Client::connect(server).await?;
    let path = format!("{}?limit=1", Collection::Pods.path());
    let list = client.demand(http2::Call::get(&path, ACCEPT), &[]).await?;
    Ok(list.starts_with(MAGIC))
}

/// A connection and its number among all.
#[derive(Debug)]
pub struct Connection {
    pub fleet: Arc<Fleet>,
    number: usize,
    user_agent: &'static str,
    sender: tokio::sync::Mutex<Option<SendRequest<Full<Bytes>>>>,
}

impl Connection {
    pub fn new(fleet: Arc<Fleet>, number: usize, user_agent: &'static str) -> Self {
        Self {
            fleet,
            number,
            user_agent,
            sender: tokio::sync::Mutex::default(),
        }
    }

    async fn sender(&self) -> Result<SendRequest<Full<Bytes>>> {
        let mut kept = self.sender.lock().await;
        if let Some(sender) = kept.as_ref().filter(|sender| !sender.is_closed()) {
            return Ok(sender.clone());
        }
        let _permit = self.fleet.connecting.acquire().await?;
        let SwarmConfig { target, .. } = &self.fleet.swarm_config;
        let source = self.fleet.swarm_config.source_of(self.number);
        let stream = target.connect_with(source, self.fleet.tls.clone()).await?;
        let (sender, connection) = Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW_LEN)
            .initial_connection_window_size(CONNECTION_WINDOW_LEN)
            .keep_alive_interval(PING_AFTER)
            .keep_alive_timeout(PING_WAIT)
            .handshake(TokioIo::new(stream))
            .await
            .context("HTTP/2")?;
        // Ends when the last sender is dropped or the peer closes.
        tokio::spawn(connection);
        count(&self.fleet.requests.connections, 1);
        Ok(kept.insert(sender).clone())
    }

    async fn send(&self, call: Call<'_>) -> Result<Response<Incoming>> {
        let sending = async {
            let mut sender = self.sender().await?;
            let target = self.fleet.swarm_config.target.of_client(self.number);
            let request = target.request(call.method, &target.url(call.path));
            let mut request = request
                .header("user-agent", self.user_agent)
                .header("accept", call.accept);
            if !call.content.is_empty() {
                request = request.header("content-type", call.content);
            }
            let request = request.body(Full::new(Bytes::from(call.body)))?;
            sender.ready().await?;
            Ok::<_, anyhow::Error>(sender.send_request(request).await?)
        };
        let response = tokio::time::timeout(ANSWER_WAIT, sending).await;
        response.with_context(|| format!("no response within {ANSWER_WAIT:?}"))?
    }

    /// Writes or reads one object in JSON; returns status and body.
    pub async fn call(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<(StatusCode, Bytes)> {
        count(&self.fleet.requests.writes, 1);
        let content = match method {
            Method::PATCH => "application/strategic-merge-patch+json",
            _ => "application/json",
        };
        let call = Call {
            method,
            path,
            accept: "application/json",
            content,
            body,
        };
        let response = self.send(call).await?;
        let status = response.status();
        let body = tokio::time::timeout(ANSWER_WAIT, response.into_body().collect()).await??;
        let body = body.to_bytes();
        count(&self.fleet.requests.write_bytes, body.len());
        Ok((status, body))
    }

    /// Lists and watches until the task is aborted; calls `new_objects` with names that the reflector wants to be known.
    pub async fn reflect(&self, reflector: &Mutex<Reflector>, new_objects: impl Fn(Vec<String>)) {
        loop {
            let path = reflector.lock().request(fastrand::f64());
            let requests = &self.fleet.requests;
            count(
                match reflector.lock().is_listing() {
                    true => &requests.lists,
                    false => &requests.watches,
                },
                1,
            );
            let end = self.exchange(reflector, &path, &new_objects).await;
            let wait = reflector
                .lock()
                .ended(end, self.fleet.now(), fastrand::f64());
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
        }
    }

    /// One request of a reflector and its whole response.
    async fn exchange(
        &self,
        reflector: &Mutex<Reflector>,
        path: &str,
        new_objects: &impl Fn(Vec<String>),
    ) -> RequestEnd {
        let call = Call {
            method: Method::GET,
            path,
            accept: self.fleet.accept,
            content: "",
            body: Vec::new(),
        };
        let response = match self.send(call).await {
            Ok(response) => response,
            Err(error) => {
                let mut recorder = self.fleet.recorder.lock();
                recorder.end("no response");
                recorder.message(&format!("{error:#}"));
                return RequestEnd::Unanswered;
            }
        };
        let status = response.status().as_u16();
        if status == 200 {
            let media = response.headers().get("content-type");
            let media = media.and_then(|value| value.to_str().ok());
            let encoding = match media.unwrap_or_default().starts_with(PROTOBUF) {
                true => Encoding::Protobuf,
                false => Encoding::Json,
            };
            reflector
                .lock()
                .response_started(encoding, self.fleet.now());
        }
        match self.read(reflector, response, status, new_objects).await {
            Ok(()) => {
                self.fleet.recorder.lock().end(&match status {
                    200 => "clean end".to_owned(),
                    status => format!("HTTP {status}"),
                });
                RequestEnd::Complete(status)
            }
            Err(error) => {
                let mut recorder = self.fleet.recorder.lock();
                recorder.end("stream broken");
                recorder.message(&format!("{error:#}"));
                RequestEnd::Cut
            }
        }
    }

    async fn read(
        &self,
        reflector: &Mutex<Reflector>,
        response: Response<Incoming>,
        status: u16,
        new_objects: &impl Fn(Vec<String>),
    ) -> Result<()> {
        let mut body = response.into_body();
        // No deadline: a watch may be silent for long, and the connection's pings find one that is dead.
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame?.into_data() else {
                continue;
            };
            let names = self.piece(reflector, status, &data);
            if !names.is_empty() {
                new_objects(names);
            }
        }
        // hyper takes a reset without an error for the end.
        ensure!(body.is_end_stream(), "reset by the server");
        Ok(())
    }

    /// Reads a piece of a response; returns the names of objects that are new.
    fn piece(&self, reflector: &Mutex<Reflector>, status: u16, data: &[u8]) -> Vec<String> {
        let Fleet {
            control, recorder, ..
        } = &*self.fleet;
        let mut recorder = recorder.lock();
        recorder.tick(control);
        let before = recorder.so_far();
        recorder.bytes += data.len() as u64;
        let mut names = Vec::new();
        if status == 200 {
            let mut reflector = reflector.lock();
            reflector.body(data, &mut recorder);
            names = reflector.take_new_names();
        } else {
            recorder.refusal(status, data);
        }
        control.add(&recorder.since(&before));
        names
    }
}

/// A request of a client.
struct Call<'a> {
    method: Method,
    path: &'a str,
    accept: &'a str,
    /// Type of the body; empty without one.
    content: &'a str,
    body: Vec<u8>,
}

/// Relaxed: every count stands alone.
fn count(counter: &AtomicU64, by: usize) {
    counter.fetch_add(by as u64, Ordering::Relaxed);
}
