//! Requests that must end although neither their clients nor upstream end them.

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use kube_fanout::metrics::PassthroughError;
use kube_fanout::upstream::client::ForwardIdentity;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::front::{Http, Row, empty};
use crate::{ALL, next_data, peer};

fn cuts(row: &Row) -> u64 {
    row.metrics.errors.count(PassthroughError::Ended)
}

#[tokio::test]
async fn an_answer_that_goes_on_is_cut_at_its_limit() {
    for (down, up) in ALL {
        for target in [
            "/silent?limited&long",
            "/silent?limited&watch",
            "/silent?limited",
        ] {
            let mut row = Row::new(down, up, ForwardIdentity::Caller).await;
            let request = Request::get(row.uri(target)).body(empty()).unwrap();
            let mut body = row.send(request).await.into_body();
            assert_eq!(next_data(&mut body).await, "first");
            row.limit = None;
            let end = body.frame().await;
            let is_cut = end.is_some_and(|frame| frame.is_err());
            assert!(is_cut, "{down:?} {up:?} {target}");
            assert_eq!(row.peer.seen.recv().await, Some("silent dropped"));
            assert_eq!(cuts(&row), 1);
            assert_eq!(row.metrics.requests_active.get(), 0);
        }
    }
}

/// A client that reads nothing keeps neither the request upstream nor its place.
#[tokio::test]
async fn it_is_given_up_though_its_client_reads_nothing() {
    for (down, up) in ALL {
        let mut row = Row::new(down, up, ForwardIdentity::Caller).await;
        let target = row.uri("/endless?limited&long");
        let request = Request::get(target).body(empty()).unwrap();
        let unread = row.send(request).await;
        row.limit = None;
        let said = row.peer.seen.recv().await;
        assert_eq!(said, Some("endless dropped"), "{down:?} {up:?}");
        assert_eq!(row.metrics.requests_active.get(), 0);
        drop(unread);
    }
}

#[tokio::test]
async fn a_request_that_is_not_answered_yet_is_answered_401() {
    for (down, up) in ALL {
        let mut row = Row::new(down, up, ForwardIdentity::Caller).await;
        let request = Request::get(row.uri("/hang?limited&long"));
        let answer = tokio::spawn(row.client.request(request.body(empty()).unwrap()));
        assert_eq!(row.peer.seen.recv().await, Some("hanging"));
        row.limit = None;
        let status = answer.await.unwrap().unwrap().status();
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{down:?} {up:?}");
        assert_eq!(row.peer.seen.recv().await, Some("hang dropped"));
    }
}

#[tokio::test]
async fn an_upload_goes_on_no_longer_than_its_request() {
    for (down, up) in ALL {
        let mut row = Row::new(down, up, ForwardIdentity::Caller).await;
        let (pieces, body) = peer::fed();
        pieces.send(Bytes::from_static(b"first")).await.unwrap();
        let request = Request::post(row.uri("/swallow?limited&long"));
        let answer = tokio::spawn(row.client.request(request.body(body).unwrap()));
        assert_eq!(row.peer.seen.recv().await, Some("upload began"));
        row.limit = None;
        let said = row.peer.seen.recv().await;
        assert_eq!(said, Some("upload broke off"), "{down:?} {up:?}");
        drop(pieces);
        answer.abort();
    }
}

#[tokio::test]
async fn a_tunnel_is_closed_at_its_limit() {
    for up in [Http::One, Http::Two] {
        let mut row = Row::new(Http::One, up, ForwardIdentity::Caller).await;
        let request = Request::post(row.uri("/upgrade?limited"))
            .header("connection", "Upgrade")
            .header("upgrade", "SPDY/3.1");
        let mut response = row.send(request.body(empty()).unwrap()).await;
        let mut stream = TokioIo::new(hyper::upgrade::on(&mut response).await.unwrap());
        stream.write_all(b"world").await.unwrap();
        let mut greeting = [0; 11];
        stream.read_exact(&mut greeting).await.unwrap();
        assert_eq!(&greeting, b"hello WORLD", "{up:?}");
        row.limit = None;
        let read = stream.read(&mut greeting).await;
        assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
        assert_eq!(cuts(&row), 1);
        assert_eq!(row.metrics.requests_active.get(), 0);
    }
}
