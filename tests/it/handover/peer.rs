//! A server in the place of another gateway, which answers for config maps as the test says.

use std::time::Duration;

use futures::stream;
use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};

use crate::support::http_server::HttpServer;

type PeerBody = BoxBody<Bytes, std::io::Error>;

/// What the server answers for config maps.
#[derive(Clone)]
pub(super) enum Answer {
    /// These bytes, as the state of a cache.
    State(Bytes),
    /// A page of another kind.
    Page(&'static str),
    /// This code.
    Status(u16),
    /// The beginning of a state; then the connection breaks.
    Cut,
    /// The beginning of a state that never ends.
    Endless,
    /// A byte now and then, and never an end.
    Drops,
    /// No response.
    Silence,
}

/// Starts a server with this index, and this state of services.
pub(super) async fn start(index: &'static str, services: Bytes, answer: Answer) -> HttpServer {
    HttpServer::start(move |request| respond(request, index, services.clone(), answer.clone()))
        .await
}

async fn respond(
    request: Request<Incoming>,
    index: &'static str,
    services: Bytes,
    answer: Answer,
) -> Response<PeerBody> {
    match request.uri().path() {
        "/kube-fanout/handover" => Response::new(whole(Bytes::from(index))),
        "/kube-fanout/handover/services.v1.json" => state(whole(services)),
        "/kube-fanout/handover/configmaps.v1.json" => match answer {
            Answer::State(bytes) => state(whole(bytes)),
            Answer::Page(page) => Response::new(whole(Bytes::from(page))),
            Answer::Status(code) => {
                let mut response = Response::new(whole(Bytes::new()));
                *response.status_mut() = code.try_into().unwrap();
                response
            }
            Answer::Cut => state(parts(vec![], Duration::ZERO, End::Cut)),
            Answer::Endless => state(parts(vec![0; 64 << 10], Duration::ZERO, End::Never)),
            Answer::Drops => state(parts(vec![0], Duration::from_millis(100), End::Never)),
            Answer::Silence => std::future::pending().await,
        },
        _ => {
            let mut response = Response::new(whole(Bytes::new()));
            *response.status_mut() = 404.try_into().unwrap();
            response
        }
    }
}

fn state(body: PeerBody) -> Response<PeerBody> {
    let mut response = Response::new(body);
    let media_type = "application/vnd.kube-fanout.checkpoint".try_into().unwrap();
    response.headers_mut().insert("content-type", media_type);
    response
}

fn whole(bytes: Bytes) -> PeerBody {
    Full::new(bytes).map_err(|never| match never {}).boxed()
}

#[derive(Clone, Copy, PartialEq)]
enum End {
    Cut,
    Never,
}

/// The first bytes of a valid state, and the head of a block of a gigabyte; then `part` again and again.
fn parts(part: Vec<u8>, pause: Duration, end: End) -> PeerBody {
    let mut first = b"kfstate\n\x01\0\0\0".to_vec();
    first.extend([0; 16]);
    first.extend(crc32fast::hash(&first).to_le_bytes());
    first.extend((1_u32 << 30).to_le_bytes());
    first.extend([0; 4]);
    let part = Bytes::from(part);
    let parts = stream::unfold(Some(Bytes::from(first)), move |chunk| {
        let part = part.clone();
        async move {
            let frame = |bytes| Ok(Frame::data(bytes));
            match (chunk, end) {
                (Some(first), _) => Some((frame(first), None)),
                (None, End::Cut) => {
                    // What was sent before is flushed meanwhile.
                    tokio::task::yield_now().await;
                    Some((Err(std::io::Error::other("cut")), None))
                }
                (None, End::Never) => {
                    tokio::time::sleep(pause).await;
                    Some((frame(part), None))
                }
            }
        }
    });
    BodyExt::boxed(StreamBody::new(parts))
}
