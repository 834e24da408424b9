//! Which of upstream's feature gates are open, told by how it answers two small requests.

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt, Limited};

use super::client::{Client, RequestBody, ResponseBody};
use crate::resource::Gates;

/// A list of at most one namespace, or a Status.
const ANSWER_LEN_MAX: usize = 1 << 20;
/// A shard that holds everything: upstream repeats it if it heeds shards (protocol.md §2.7).
const SHARDED: &str = "/api/v1/namespaces?limit=1&shardSelector=shardRange%28object.metadata.uid%2C%270x0000000000000000%27%2C%270x10000000000000000%27%29";
const ONE: &str = "/api/v1/namespaces?limit=1";
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const CBOR: HeaderValue = HeaderValue::from_static("application/cbor");

/// Asks; what cannot be told stays as `known`.
pub async fn gates(client: &Client, known: Gates) -> Gates {
    Gates {
        shards: heeds_shards(client).await.unwrap_or(known.shards),
        cbor: serves_cbor(client).await.unwrap_or(known.cbor),
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
