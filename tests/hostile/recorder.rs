//! What goes between a gateway and its API server, as bytes: the heads of requests are kept, and some may get other answers.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// The recorder, running.
pub(crate) struct Recorder {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
    _serving: JoinSet<()>,
}

#[derive(Default)]
struct State {
    heads: Mutex<Vec<String>>,
    /// Whole answers by a part of the request line.
    answers: Mutex<Vec<(String, String)>>,
}

impl Recorder {
    /// A recorder before this server. Must be called where tasks can be spawned.
    pub(crate) fn before(upstream: SocketAddr) -> Self {
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

    /// Gives requests whose first line contains `part` this answer, head and body; they do not reach the server.
    pub(crate) fn answer(&self, part: &str, answer: &str) {
        let answer = (part.to_owned(), answer.to_owned());
        self.state.answers.lock().unwrap().push(answer);
    }

    /// The heads of all requests whose first line contains `part`, as they came.
    pub(crate) fn heads(&self, part: &str) -> Vec<String> {
        let heads = self.state.heads.lock().unwrap();
        let is_meant = |head: &&String| head.lines().next().unwrap().contains(part);
        heads.iter().filter(is_meant).cloned().collect()
    }

    pub(crate) fn forget(&self) {
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
            let answers = copy(from_server, Arc::clone(&to_client));
            let requests = state.requests(from_client, to_server, to_client);
            tokio::join!(answers, requests);
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
    /// Passes requests on until either side ends. Bodies have a length, or are all that follows.
    async fn requests(
        &self,
        mut from: OwnedReadHalf,
        mut to: OwnedWriteHalf,
        back: Arc<tokio::sync::Mutex<OwnedWriteHalf>>,
    ) {
        let mut gathered = Vec::new();
        loop {
            let Some(head_len) = head_len(&gathered) else {
                match from.read_buf(&mut gathered).await {
                    Ok(1..) => continue,
                    Ok(0) | Err(_) => break,
                }
            };
            let rest = gathered.split_off(head_len);
            let head = String::from_utf8_lossy(&gathered).into_owned();
            self.heads.lock().unwrap().push(head.clone());
            if let Some(answer) = self.answer_to(&head) {
                let _ = back.lock().await.write_all(answer.as_bytes()).await;
                gathered = rest;
                continue;
            }
            let sent = to.write_all(&gathered).await;
            gathered = rest;
            match body_len(&head) {
                _ if sent.is_err() => break,
                Some(len) => {
                    while gathered.len() < len {
                        if !matches!(from.read_buf(&mut gathered).await, Ok(1..)) {
                            return;
                        }
                    }
                    let rest = gathered.split_off(len);
                    if to.write_all(&gathered).await.is_err() {
                        return;
                    }
                    gathered = rest;
                }
                None => {
                    let _ = to.write_all(&gathered).await;
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                    break;
                }
            }
        }
        let _ = to.shutdown().await;
    }

    fn answer_to(&self, head: &str) -> Option<String> {
        let answers = self.answers.lock().unwrap();
        let line = head.lines().next().unwrap();
        let mut meant = answers.iter().filter(|(part, _)| line.contains(part));
        meant.next().map(|(_, answer)| answer.clone())
    }
}

fn head_len(bytes: &[u8]) -> Option<usize> {
    let end = bytes.windows(4).position(|end| end == b"\r\n\r\n")?;
    Some(end + 4)
}

/// `None` if what follows is not a body of known length: chunks, or another protocol.
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
