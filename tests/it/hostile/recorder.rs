//! A recorder between a gateway and its API server: it keeps the heads of all requests, and can answer some of them itself.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// A running recorder. Dropping it closes its connections.
pub(crate) struct Recorder {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
    _serving: JoinSet<()>,
}

#[derive(Default)]
struct State {
    heads: Mutex<Vec<String>>,
    /// A part of a request line, and the whole response to requests whose first line contains it.
    responses: Mutex<Vec<(String, String)>>,
}

impl Recorder {
    /// Starts a recorder in front of this server. Must be called within a Tokio runtime.
    pub(crate) fn start(upstream: SocketAddr) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let listener = TcpListener::from_std(listener).unwrap();
        let state = Arc::<State>::default();
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, upstream, Arc::clone(&state)));
        Self {
            address,
            state,
            _serving: serving,
        }
    }

    /// Answers requests whose first line contains `part` with this response, head and body; they do not reach the server.
    pub(crate) fn respond(&self, part: &str, response: &str) {
        let response = (part.to_owned(), response.to_owned());
        self.state.responses.lock().unwrap().push(response);
    }

    /// The heads of all requests whose first line contains `part`, in order of arrival.
    pub(crate) fn heads(&self, part: &str) -> Vec<String> {
        let heads = self.state.heads.lock().unwrap();
        let matches = |head: &&String| head.lines().next().unwrap().contains(part);
        heads.iter().filter(matches).cloned().collect()
    }

    /// Forgets the heads recorded so far.
    pub(crate) fn clear(&self) {
        self.state.heads.lock().unwrap().clear();
    }
}

async fn serve(listener: TcpListener, upstream: SocketAddr, state: Arc<State>) {
    let mut connections = JoinSet::new();
    loop {
        let (client, _) = listener.accept().await.unwrap();
        let state = Arc::clone(&state);
        connections.spawn(async move {
            let Ok(server) = TcpStream::connect(upstream).await else {
                return;
            };
            let (from_client, to_client) = client.into_split();
            let (from_server, to_server) = server.into_split();
            let to_client = Arc::new(tokio::sync::Mutex::new(to_client));
            let responses = copy(from_server, Arc::clone(&to_client));
            let requests = state.copy_requests(from_client, to_server, to_client);
            tokio::join!(responses, requests);
        });
    }
}

async fn copy(mut from: OwnedReadHalf, to: Arc<tokio::sync::Mutex<OwnedWriteHalf>>) {
    let mut chunk = vec![0; 16 << 10];
    while let Ok(len @ 1..) = from.read(&mut chunk).await {
        if to.lock().await.write_all(&chunk[..len]).await.is_err() {
            return;
        }
    }
    let _ = to.lock().await.shutdown().await;
}

impl State {
    /// Passes requests on until either side ends. A body without a known length is taken to be the rest of the connection.
    async fn copy_requests(
        &self,
        mut from: OwnedReadHalf,
        mut to: OwnedWriteHalf,
        back: Arc<tokio::sync::Mutex<OwnedWriteHalf>>,
    ) {
        let mut buffer = Vec::new();
        loop {
            let Some(head_len) = head_len(&buffer) else {
                match from.read_buf(&mut buffer).await {
                    Ok(1..) => continue,
                    Ok(0) | Err(_) => break,
                }
            };
            let rest = buffer.split_off(head_len);
            let head = String::from_utf8_lossy(&buffer).into_owned();
            self.heads.lock().unwrap().push(head.clone());
            if let Some(response) = self.response_to(&head) {
                let _ = back.lock().await.write_all(response.as_bytes()).await;
                buffer = rest;
                continue;
            }
            let sent = to.write_all(&buffer).await;
            buffer = rest;
            match body_len(&head) {
                _ if sent.is_err() => break,
                Some(len) => {
                    while buffer.len() < len {
                        if !matches!(from.read_buf(&mut buffer).await, Ok(1..)) {
                            return;
                        }
                    }
                    let rest = buffer.split_off(len);
                    if to.write_all(&buffer).await.is_err() {
                        return;
                    }
                    buffer = rest;
                }
                None => {
                    let _ = to.write_all(&buffer).await;
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                    break;
                }
            }
        }
        let _ = to.shutdown().await;
    }

    fn response_to(&self, head: &str) -> Option<String> {
        let responses = self.responses.lock().unwrap();
        let line = head.lines().next().unwrap();
        let mut matching = responses.iter().filter(|(part, _)| line.contains(part));
        matching.next().map(|(_, response)| response.clone())
    }
}

fn head_len(bytes: &[u8]) -> Option<usize> {
    let end = bytes.windows(4).position(|end| end == b"\r\n\r\n")?;
    Some(end + 4)
}

/// The length of the request's body; `None` if it is chunked, or if another protocol follows.
fn body_len(head: &str) -> Option<usize> {
    let head = head.to_lowercase();
    if head.contains("\r\ntransfer-encoding:") || head.contains("\r\nupgrade:") {
        return None;
    }
    let line = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"));
    Some(line.map_or(0, |len| len.trim().parse().unwrap()))
}
