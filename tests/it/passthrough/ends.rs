//! Requests that the gateway must end, because neither the client nor upstream ends them.

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_util::client::legacy;
use hyper_util::rt::TokioIo;
use kube_fanout::metrics::PassthroughError;
use kube_fanout::upstream::client::ForwardIdentity;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;

use crate::passthrough::front::{Fixture, Http, empty};
use crate::passthrough::{ALL, next_data, peer};

fn cuts(fixture: &Fixture) -> u64 {
    fixture.metrics.errors.count(PassthroughError::Ended)
}

#[tokio::test]
async fn an_answer_that_goes_on_is_cut_at_its_limit() {
    for (down, up) in ALL {
        for target in [
            "/silent?limited&long",
            "/silent?limited&watch",
            "/silent?limited",
        ] {
            let mut fixture = Fixture::new(down, up, ForwardIdentity::Caller).await;
            let request = Request::get(fixture.uri(target)).body(empty()).unwrap();
            let mut body = fixture.send(request).await.into_body();
            assert_eq!(next_data(&mut body).await, "first");
            fixture.limit = None;
            let end = body.frame().await;
            let is_cut = end.is_some_and(|frame| frame.is_err());
            assert!(is_cut, "{down:?} {up:?} {target}");
            assert_eq!(fixture.peer.seen.recv().await, Some("silent dropped"));
            assert_eq!(cuts(&fixture), 1);
            assert_eq!(fixture.metrics.requests_active.get(), 0);
        }
    }
}

/// The request upstream ends and its permit is released even if the client reads nothing.
#[tokio::test]
async fn it_is_given_up_though_its_client_reads_nothing() {
    for (down, up) in ALL {
        let mut fixture = Fixture::new(down, up, ForwardIdentity::Caller).await;
        let target = fixture.uri("/endless?limited&long");
        let request = Request::get(target).body(empty()).unwrap();
        let unread = fixture.send(request).await;
        fixture.limit = None;
        let event = fixture.peer.seen.recv().await;
        assert_eq!(event, Some("endless dropped"), "{down:?} {up:?}");
        assert_eq!(fixture.metrics.requests_active.get(), 0);
        drop(unread);
    }
}

#[tokio::test]
async fn a_request_that_is_not_answered_yet_is_answered_401() {
    for (down, up) in ALL {
        let mut fixture = Fixture::new(down, up, ForwardIdentity::Caller).await;
        let request = Request::get(fixture.uri("/hang?limited&long"));
        let response = tokio::spawn(fixture.client.request(request.body(empty()).unwrap()));
        assert_eq!(fixture.peer.seen.recv().await, Some("hanging"));
        fixture.limit = None;
        let status = response.await.unwrap().unwrap().status();
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{down:?} {up:?}");
        assert_eq!(fixture.peer.seen.recv().await, Some("hang dropped"));
    }
}

#[tokio::test]
async fn an_upload_goes_on_no_longer_than_its_request() {
    for (down, up) in ALL {
        let mut fixture = Fixture::new(down, up, ForwardIdentity::Caller).await;
        let (pieces, body) = peer::fed();
        pieces.send(Bytes::from_static(b"first")).await.unwrap();
        let request = Request::post(fixture.uri("/swallow?limited&long"));
        let response = tokio::spawn(fixture.client.request(request.body(body).unwrap()));
        assert_eq!(fixture.peer.seen.recv().await, Some("upload began"));
        fixture.limit = None;
        let event = fixture.peer.seen.recv().await;
        assert_eq!(event, Some("upload broke off"), "{down:?} {up:?}");
        drop(pieces);
        response.abort();
    }
}

#[tokio::test]
async fn a_tunnel_is_closed_at_its_limit() {
    for up in [Http::One, Http::Two] {
        let mut fixture = Fixture::new(Http::One, up, ForwardIdentity::Caller).await;
        let request = Request::post(fixture.uri("/upgrade?limited"))
            .header("connection", "Upgrade")
            .header("upgrade", "SPDY/3.1");
        let mut response = fixture.send(request.body(empty()).unwrap()).await;
        let mut stream = TokioIo::new(hyper::upgrade::on(&mut response).await.unwrap());
        stream.write_all(b"world").await.unwrap();
        let mut greeting = [0; 11];
        stream.read_exact(&mut greeting).await.unwrap();
        assert_eq!(&greeting, b"hello WORLD", "{up:?}");
        fixture.limit = None;
        let read = stream.read(&mut greeting).await;
        assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
        assert_eq!(cuts(&fixture), 1);
        assert_eq!(fixture.metrics.requests_active.get(), 0);
    }
}

/// Whether the response is a refusal or breaks off.
async fn has_ended(request: JoinHandle<Result<Response<Incoming>, legacy::Error>>) -> bool {
    match request.await.unwrap() {
        Ok(response) if response.status() == StatusCode::OK => {
            response.into_body().collect().await.is_err()
        }
        Ok(response) => response.status() == StatusCode::TOO_MANY_REQUESTS,
        Err(_) => true,
    }
}

/// One address holds all permits. The permit that came last is taken back for a newcomer, whatever its request is doing.
#[tokio::test]
async fn a_newcomer_gets_the_permit_of_who_has_more() {
    for up in [Http::One, Http::Two] {
        for target in [
            "/silent?",
            "/silent?watch&",
            "/silent?long&",
            "/hang?",
            "/hang?long&",
        ] {
            let fixture = Fixture::with_limit(up, 2).await;
            let send = |target: String| {
                let request = Request::get(fixture.uri(&target));
                tokio::spawn(fixture.client.request(request.body(empty()).unwrap()))
            };
            let (first, last) = (send(target.to_owned()), send(target.to_owned()));
            while fixture.metrics.requests_active.get() < 2 {
                tokio::task::yield_now().await;
            }
            let newcomer = send(format!("{}newcomer", target.replace("/hang", "/silent")));
            let newcomer = newcomer.await.unwrap().unwrap();
            assert_eq!(newcomer.status(), StatusCode::OK, "{up:?} {target}");
            // One of the two has ended, the other one goes on.
            let first = std::pin::pin!(has_ended(first));
            let last = std::pin::pin!(has_ended(last));
            tokio::select! {
                ended = first => assert!(ended, "{up:?} {target}"),
                ended = last => assert!(ended, "{up:?} {target}"),
            }
        }
    }
}

#[tokio::test]
async fn a_tunnel_ends_when_its_permit_is_taken_back() {
    for up in [Http::One, Http::Two] {
        let fixture = Fixture::with_limit(up, 2).await;
        let mut tunnels = Vec::new();
        for target in ["/upgrade", "/upgrade", "/upgrade?newcomer"] {
            let request = Request::post(fixture.uri(target))
                .header("connection", "Upgrade")
                .header("upgrade", "SPDY/3.1");
            let mut response = fixture.send(request.body(empty()).unwrap()).await;
            assert_eq!(
                response.status(),
                StatusCode::SWITCHING_PROTOCOLS,
                "{target}"
            );
            tunnels.push(TokioIo::new(
                hyper::upgrade::on(&mut response).await.unwrap(),
            ));
        }
        // The second one came last.
        let mut rest = Vec::new();
        let _ = tunnels[1].read_to_end(&mut rest).await;
        for open in [0, 2] {
            let stream = &mut tunnels[open];
            stream.write_all(b"world").await.unwrap();
            let mut greeting = [0; 11];
            stream.read_exact(&mut greeting).await.unwrap();
            assert_eq!(&greeting, b"hello WORLD", "{up:?}");
        }
    }
}
