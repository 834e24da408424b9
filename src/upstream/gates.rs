//! Which of upstream's feature gates are open, told by how it answers two small requests.

use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt, Limited};

use super::client::{Client, RequestBody, ResponseBody};
use crate::resource::Gates;

/// A list of at most one namespace, or a Status.
const ANSWER_LEN_MAX: usize = 1 << 20;
/// Both answers take the server a few milliseconds. Whoever waits for them waits for nothing else meanwhile.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// A shard that holds everything: upstream repeats it if it heeds shards (docs/PROTOCOL.md §2.7).
const SHARDED: &str = "/api/v1/namespaces?limit=1&shardSelector=shardRange%28object.metadata.uid%2C%270x0000000000000000%27%2C%270x10000000000000000%27%29";
const ONE: &str = "/api/v1/namespaces?limit=1";
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const CBOR: HeaderValue = HeaderValue::from_static("application/cbor");

/// Asks; what cannot be told stays as `known`.
pub async fn gates(client: &Client, known: Gates) -> Gates {
    let shards = tokio::time::timeout(ANSWER_TIMEOUT, heeds_shards(client));
    let cbor = tokio::time::timeout(ANSWER_TIMEOUT, serves_cbor(client));
    let (shards, cbor) = tokio::join!(shards, cbor);
    Gates {
        shards: shards.ok().flatten().unwrap_or(known.shards),
        cbor: cbor.ok().flatten().unwrap_or(known.cbor),
    }
}

async fn heeds_shards(client: &Client) -> Option<bool> {
    let response = ask(client, SHARDED, JSON).await?;
    if response.status().as_u16() != 200 {
        return None;
    }
    let body = Limited::new(response.into_body(), ANSWER_LEN_MAX);
    let body = body.collect().await.ok()?.to_bytes();
    Some(memchr::memmem::find(&body, b"\"shardInfo\"").is_some())
}

/// Refusals are written in it as well.
async fn serves_cbor(client: &Client) -> Option<bool> {
    let response = ask(client, ONE, CBOR).await?;
    Some(response.headers().get(CONTENT_TYPE) == Some(&CBOR))
}

async fn ask(client: &Client, path: &str, accept: HeaderValue) -> Option<Response<ResponseBody>> {
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
    use crate::upstream::client::ConnectSource;

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_stops_half_way_holds_up_nobody() {
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
        let asked = gates(&client, known);
        let told = tokio::time::timeout(Duration::from_secs(600), asked).await;
        assert_eq!(told.expect("an end"), known);
    }
}
