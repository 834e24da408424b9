//! An API server for tests: answers what it is told to, and keeps what it was asked.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::upstream::client::{Client, UpstreamSource};

/// Answers every request by a function of the request's head and body. One request a connection.
pub(crate) struct Stage {
    pub(crate) client: Client,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Stage {
    /// `answer` makes the whole response, head included, out of the request.
    pub(crate) async fn new<F>(answer: F) -> Self
    where
        F: Fn(&str) -> Option<String> + Send + Sync + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let (seen, answer) = (Arc::clone(&requests), Arc::new(answer));
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
                tokio::spawn(async move {
                    let request = read(&mut socket).await;
                    seen.lock().unwrap().push(request.clone());
                    match answer(&request) {
                        Some(text) => drop(socket.write_all(text.as_bytes()).await),
                        // No answer: until the client gives up.
                        None => drop(socket.read(&mut [0; 1]).await),
                    }
                });
            }
        });
        let client = Client::connect(UpstreamSource::url(&url).unwrap());
        Self {
            client: client.await.unwrap(),
            requests,
        }
    }

    /// What was asked: heads and bodies as they came.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

async fn read(socket: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let len = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= len.map_or(0, |len| len.parse().unwrap()) {
                return text.into_owned();
            }
        }
        if socket.read_buf(&mut bytes).await.unwrap() == 0 {
            return String::from_utf8_lossy(&bytes).into_owned();
        }
    }
}

/// A response with this status line and body.
pub(crate) fn response(status: &str, body: &str) -> Option<String> {
    Some(format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    ))
}
