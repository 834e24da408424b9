//! Detects which of upstream's feature gates are on, from its responses to two small requests.

use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt, Limited};

use super::client::{Client, RequestBody, ResponseBody};
use crate::resource::Gates;

/// Longest response that is read: a list of at most one namespace, or a Status.
const RESPONSE_LEN_MAX: usize = 1 << 20;
/// The server answers both requests within a few milliseconds. The caller waits for them before it does anything else.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// A shard that contains every object. A server with the feature gate repeats the shard in the list's metadata
/// (docs/PROTOCOL.md §2.7).
const SHARDED: &str = "/api/v1/namespaces?limit=1&shardSelector=shardRange%28object.metadata.uid%2C%270x0000000000000000%27%2C%270x10000000000000000%27%29";
const ONE: &str = "/api/v1/namespaces?limit=1";
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const CBOR: HeaderValue = HeaderValue::from_static("application/cbor");

/// Asks upstream. A gate that cannot be determined keeps its value in `known`.
pub async fn gates(client: &Client, known: Gates) -> Gates {
    let shards = tokio::time::timeout(RESPONSE_TIMEOUT, supports_shards(client));
    let cbor = tokio::time::timeout(RESPONSE_TIMEOUT, supports_cbor(client));
    let (shards, cbor) = tokio::join!(shards, cbor);
    Gates {
        shards: shards.ok().flatten().unwrap_or(known.shards),
        cbor: cbor.ok().flatten().unwrap_or(known.cbor),
    }
}

async fn supports_shards(client: &Client) -> Option<bool> {
    let response = get(client, SHARDED, JSON).await?;
    if response.status().as_u16() != 200 {
        return None;
    }
    let body = Limited::new(response.into_body(), RESPONSE_LEN_MAX);
    let body = body.collect().await.ok()?.to_bytes();
    Some(memchr::memmem::find(&body, b"\"shardInfo\"").is_some())
}

/// A server that knows CBOR writes error responses in it as well, so the status does not matter.
async fn supports_cbor(client: &Client) -> Option<bool> {
    let response = get(client, ONE, CBOR).await?;
    Some(response.headers().get(CONTENT_TYPE) == Some(&CBOR))
}

async fn get(client: &Client, path: &str, accept: HeaderValue) -> Option<Response<ResponseBody>> {
    let request = Request::get(path).header(ACCEPT, accept);
    client
        .send(request.body(RequestBody::Empty).ok()?)
        .await
        .ok()
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::client::ConnectSource;

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_stalls_does_not_delay_the_start() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let mut open = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.read(&mut [0; 4096]).await;
                let head = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{";
                let _ = stream.write_all(head).await;
                open.push(stream);
            }
        });
        let client = Client::connect(ConnectSource::url(&url).unwrap()).await;
        let known = Gates {
            shards: true,
            cbor: false,
        };
        let client = client.unwrap();
        let detected = gates(&client, known);
        let detected = tokio::time::timeout(Duration::from_secs(600), detected).await;
        assert_eq!(detected.expect("the detection ends"), known);
    }
}
