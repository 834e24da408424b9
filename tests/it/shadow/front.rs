//! A front before an API server that falsifies the answers to requests with the header `x-lie`. A gateway's own requests have none.

use std::net::SocketAddr;

use futures::stream;
use http::{Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use kube_fanout::decode::scan_list;

use crate::support::http_server::{HttpServer, RelayBody, Upstream, whole};

/// Starts a front before this server.
pub(crate) async fn start(upstream: SocketAddr) -> HttpServer {
    let upstream = Upstream::new(upstream);
    HttpServer::start(move |request| {
        let upstream = upstream.clone();
        async move { respond(request, &upstream).await }
    })
    .await
}

async fn respond(request: Request<Incoming>, upstream: &Upstream) -> Response<RelayBody> {
    let lie = request.headers().get("x-lie").cloned();
    let query = request.uri().query().unwrap_or_default();
    let is_watch = query.contains("watch=");
    let response = upstream.forward(request).await;
    let Some(lie) = lie else {
        return response.map(BodyExt::boxed);
    };
    let lie = lie.to_str().unwrap().to_owned();
    if let Ok(code) = lie.parse::<u16>() {
        return Response::builder().status(code).body(whole("")).unwrap();
    }
    let (mut head, body) = response.into_parts();
    head.headers.remove("content-length");
    let body = match is_watch {
        true => falsified_events(body, lie),
        false => {
            let list = body.collect().await.unwrap().to_bytes();
            whole(falsified_list(&list, &lie))
        }
    };
    Response::from_parts(head, body)
}

fn replaced(text: &[u8], from: &str, to: &str) -> Vec<u8> {
    let text = std::str::from_utf8(text).unwrap();
    assert!(text.contains(from), "{text} has no {from}");
    text.replacen(from, to, 1).into_bytes()
}

/// A list of at least three objects, falsified at the second one.
fn falsified_list(list: &[u8], lie: &str) -> Vec<u8> {
    let spans = scan_list(list).unwrap().items;
    let mut items: Vec<Vec<u8>> = spans.iter().map(|span| span.of(list).to_vec()).collect();
    let second = items[1].clone();
    match lie {
        "drop" => drop(items.remove(1)),
        "add" => items.push(replaced(&second, "\"name\":\"", "\"name\":\"zz-")),
        "duplicate" => items.push(second),
        "bytes" => items[1] = replaced(&second, "\"k\":", "\"K\":"),
        "version" => {
            items[1] = replaced(&second, "\"resourceVersion\":\"", "\"resourceVersion\":\"1");
        }
        "reorder" => items.swap(0, 1),
        "cut" => return list[..list.len() / 2].to_vec(),
        other => panic!("{other} is no lie about lists"),
    }
    let (first, last) = (spans.first().unwrap(), spans.last().unwrap());
    let (head, end) = (&list[..first.start as usize], &list[last.end as usize..]);
    [head, &items.join(&b","[..]), end].concat()
}

struct FalsifiedEvents {
    body: Incoming,
    rest: Vec<u8>,
    lie: String,
    count: usize,
    kept: Vec<u8>,
    is_over: bool,
}

impl FalsifiedEvents {
    /// What is sent instead of an event.
    fn falsified(&mut self, line: Vec<u8>) -> Vec<u8> {
        self.count += 1;
        match (&*self.lie, self.count) {
            ("drop", 2) => Vec::new(),
            ("duplicate", 2) => [&*line, &*line].concat(),
            ("type", 2) => replaced(&line, "\"ADDED\"", "\"MODIFIED\""),
            ("bytes", 2) => replaced(&line, "\"k\":", "\"K\":"),
            ("reorder", 2) => {
                self.kept = line;
                Vec::new()
            }
            ("reorder", 3) => [line, std::mem::take(&mut self.kept)].concat(),
            ("cut", 2) => {
                self.is_over = true;
                line[..line.len() / 2].to_vec()
            }
            ("gone", _) => {
                self.is_over = true;
                let status = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old","reason":"Expired","code":410}"#;
                format!("{{\"type\":\"ERROR\",\"object\":{status}}}\n").into_bytes()
            }
            _ => line,
        }
    }
}

fn falsified_events(body: Incoming, lie: String) -> RelayBody {
    let events = FalsifiedEvents {
        body,
        rest: Vec::new(),
        lie,
        count: 0,
        kept: Vec::new(),
        is_over: false,
    };
    let frames = stream::unfold(events, |mut events| async move {
        while !events.is_over {
            let chunk = match events.body.frame().await? {
                Ok(chunk) => chunk.into_data().unwrap_or_default(),
                Err(error) => return Some((Err(error), events)),
            };
            events.rest.extend_from_slice(&chunk);
            let mut sent = Vec::new();
            while let Some(end) = events.rest.iter().position(|byte| *byte == b'\n') {
                let line = events.rest.drain(..=end).collect();
                if !events.is_over {
                    sent.extend(events.falsified(line));
                }
            }
            if !sent.is_empty() {
                return Some((Ok(Frame::data(Bytes::from(sent))), events));
            }
        }
        None
    });
    BodyExt::boxed(StreamBody::new(Box::pin(frames)))
}
