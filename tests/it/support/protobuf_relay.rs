//! A relay before an API server that speaks only JSON. It writes lists and watches of config maps in protobuf for clients that ask for it,
//! and passes everything else on.

use std::net::SocketAddr;

use futures::stream;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use http::{Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use kube_fanout::resource::protobuf::{answer_end, answer_head, frame_around, type_meta};
use kube_fanout::resource::wire::put_bytes;
use serde_json::Value;

use crate::support::http_server::{HttpServer, RelayBody, Upstream, whole};

pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Starts a relay before this server.
pub(crate) async fn start(upstream: SocketAddr) -> HttpServer {
    let upstream = Upstream::new(upstream);
    HttpServer::start(move |request| {
        let upstream = upstream.clone();
        async move { respond(request, &upstream).await }
    })
    .await
}

async fn respond(mut request: Request<Incoming>, upstream: &Upstream) -> Response<RelayBody> {
    let accept = request.headers().get(ACCEPT);
    let accept = accept.and_then(|accept| accept.to_str().ok());
    let wants_protobuf = request.uri().path().ends_with("/configmaps")
        && accept.is_some_and(|accept| accept.starts_with(PROTOBUF) && !accept.contains("as="));
    let is_watch = request
        .uri()
        .query()
        .is_some_and(|query| query.contains("watch="));
    if wants_protobuf {
        let json = HeaderValue::from_static("application/json");
        request.headers_mut().insert(ACCEPT, json);
    }
    let response = upstream.forward(request).await;
    if !wants_protobuf || response.status() != 200 {
        return response.map(BodyExt::boxed);
    }
    let (media_type, body) = if is_watch {
        let media_type = format!("{PROTOBUF};stream=watch");
        (media_type, written_frames(response.into_body()))
    } else {
        let list = response.into_body().collect().await.unwrap().to_bytes();
        let list = written_list(&serde_json::from_slice(&list).unwrap());
        (PROTOBUF.to_owned(), whole(list))
    };
    let response = Response::builder().header(CONTENT_TYPE, media_type);
    response.body(body).unwrap()
}

/// The events of a watch in JSON, in protobuf.
fn written_frames(body: Incoming) -> RelayBody {
    let frames = stream::unfold((body, Vec::new()), |(mut body, mut rest)| async move {
        loop {
            let chunk = match body.frame().await? {
                Ok(chunk) => chunk.into_data().unwrap_or_default(),
                Err(error) => return Some((Err(error), (body, rest))),
            };
            rest.extend_from_slice(&chunk);
            let Some(end) = rest.iter().rposition(|byte| *byte == b'\n') else {
                continue;
            };
            let after = rest.split_off(end + 1);
            let lines = rest.split(|byte| *byte == b'\n');
            let lines = lines.filter(|line| !line.is_empty());
            let frames =
                lines.flat_map(|line| written_frame(&serde_json::from_slice(line).unwrap()));
            let frames = Bytes::from_iter(frames);
            return Some((Ok(Frame::data(frames)), (body, after)));
        }
    });
    BodyExt::boxed(StreamBody::new(Box::pin(frames)))
}

fn written_frame(event: &Value) -> Vec<u8> {
    let kind = event["type"].as_str().unwrap();
    assert_ne!(kind, "ERROR", "{event}");
    let object = written_object(&event["object"]);
    frame_around(kind, &type_meta("v1", "ConfigMap"), &object).0
}

fn written_list(list: &Value) -> Bytes {
    let (mut metadata, mut written) = (Vec::new(), Vec::new());
    put_text(&mut metadata, 2, &list["metadata"]["resourceVersion"]);
    put_text(&mut metadata, 3, &list["metadata"]["continue"]);
    put_bytes(&mut written, 1, &metadata);
    for item in list["items"].as_array().unwrap() {
        put_bytes(&mut written, 2, &written_object(item));
    }
    let head = answer_head(&type_meta("v1", "ConfigMapList"), written.len());
    [&*head, &written, answer_end()].concat().into()
}

/// The fields of a config map that these tests need.
fn written_object(object: &Value) -> Vec<u8> {
    let (from, mut metadata, mut written) = (&object["metadata"], Vec::new(), Vec::new());
    for (number, field) in [
        (1, "name"),
        (2, "generateName"),
        (3, "namespace"),
        (5, "uid"),
        (6, "resourceVersion"),
    ] {
        put_text(&mut metadata, number, &from[field]);
    }
    put_map(&mut metadata, 11, &from["labels"]);
    put_map(&mut metadata, 12, &from["annotations"]);
    put_bytes(&mut written, 1, &metadata);
    put_map(&mut written, 2, &object["data"]);
    written
}

/// As the API server does, it writes text that is missing as empty text.
fn put_text(out: &mut Vec<u8>, number: u32, text: &Value) {
    put_bytes(out, number, text.as_str().unwrap_or_default().as_bytes());
}

fn put_map(out: &mut Vec<u8>, number: u32, map: &Value) {
    for (key, value) in map.as_object().into_iter().flatten() {
        let mut entry = Vec::new();
        put_bytes(&mut entry, 1, key.as_bytes());
        put_text(&mut entry, 2, value);
        put_bytes(out, number, &entry);
    }
}
