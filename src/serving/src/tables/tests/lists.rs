//! Lists of Tables that clients share.

use std::future::{pending, poll_fn, ready};
use std::pin::pin;
use std::time::Duration;

use tokio::time;

use super::super::list::{TableList, TableListRequest};
use super::*;

fn list_request(uri: &str) -> TableListRequest {
    let request = Request::get(uri)
        .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(())
        .unwrap();
    TableListRequest::of(&request, &RequestInfo::of(&request), Peer::UNKNOWN).unwrap()
}

fn table(version: u64) -> String {
    format!(
        r#"{{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{{"resourceVersion":"{version}"}},"columnDefinitions":[],"rows":[]}}"#
    )
}

/// A client whose cache can prove nothing.
fn client(upstream: &Upstream) -> impl Future<Output = Option<Arc<TableList>>> + use<> {
    let lists = Arc::clone(&upstream.lists);
    async move {
        let request = list_request("/api/v1/pods?limit=500");
        lists.list(&request, |_| ready(false)).await
    }
}

/// A client that believes `is_unchanged` of a version.
fn checked_client<T: Fn(u64) -> bool>(
    upstream: &Upstream,
    is_unchanged: T,
) -> impl Future<Output = Option<Arc<TableList>>> + use<T> {
    let lists = Arc::clone(&upstream.lists);
    async move {
        let request = list_request("/api/v1/pods?limit=500");
        lists
            .list(&request, |version| ready(is_unchanged(version.0)))
            .await
    }
}

/// Lets a client begin; it must wait.
async fn begin<F: Future>(mut client: Pin<&mut F>) {
    poll_fn(|context| {
        assert!(client.as_mut().poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
}

async fn answer(asked: Asked, text: String) {
    asked.grant().send(text).await.unwrap();
}

/// A first client has read version 5.
async fn read_first(upstream: &mut Upstream) {
    let mut first = pin!(client(upstream));
    begin(first.as_mut()).await;
    answer(upstream.request().await, table(5)).await;
    assert_eq!(body(first.await).await, table(5));
}

async fn body(list: Option<Arc<TableList>>) -> String {
    let response = list.unwrap().response(&HeaderMap::new());
    assert_eq!(response.headers()[WARNING], "299 - \"old\"");
    assert!(response.headers().contains_key("audit-id"));
    let body = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

fn assert_quiet(upstream: &mut Upstream) {
    assert!(
        upstream.request.try_recv().is_err(),
        "upstream is asked again"
    );
}

#[tokio::test]
async fn who_comes_while_a_list_is_read_shares_the_next_one() {
    let mut upstream = Upstream::new().await;
    let mut first = pin!(client(&upstream));
    begin(first.as_mut()).await;
    let asked = upstream.request().await;
    let mut others = [
        Box::pin(client(&upstream)),
        Box::pin(client(&upstream)),
        Box::pin(client(&upstream)),
    ];
    for other in &mut others {
        begin(other.as_mut()).await;
    }
    answer(asked, table(5)).await;
    assert_eq!(body(first.await).await, table(5));
    for other in &mut others {
        begin(other.as_mut()).await;
    }
    answer(upstream.request().await, table(6)).await;
    for other in others {
        assert_eq!(body(other.await).await, table(6));
    }
    assert_quiet(&mut upstream);
}

#[tokio::test]
async fn a_list_is_given_again_as_long_as_its_collection_has_not_changed() {
    let mut upstream = Upstream::new().await;
    let mut first = pin!(client(&upstream));
    begin(first.as_mut()).await;
    let asked = upstream.request().await;
    let mut beside = pin!(checked_client(&upstream, |version| version == 5));
    begin(beside.as_mut()).await;
    answer(asked, table(5)).await;
    assert_eq!(body(first.await).await, table(5));
    assert_eq!(body(beside.await).await, table(5));
    let after = checked_client(&upstream, |version| version == 5);
    assert_eq!(body(after.await).await, table(5));
    assert_quiet(&mut upstream);
    let mut changed = pin!(checked_client(&upstream, |version| version == 6));
    begin(changed.as_mut()).await;
    answer(upstream.request().await, table(7)).await;
    assert_eq!(body(changed.await).await, table(7));
}

#[tokio::test]
async fn a_list_is_not_given_again_when_the_ages_in_it_are_wrong() {
    let mut upstream = Upstream::new().await;
    read_first(&mut upstream).await;
    time::pause();
    time::advance(Duration::from_secs(2)).await;
    tokio::task::yield_now().await;
    time::resume();
    let mut later = pin!(checked_client(&upstream, |_| true));
    begin(later.as_mut()).await;
    answer(upstream.request().await, table(5)).await;
    later.await.unwrap();
}

/// Its ages are those of the time when upstream wrote it.
#[tokio::test]
async fn who_waits_for_a_list_that_takes_long_gets_another_one() {
    let mut upstream = Upstream::new().await;
    let mut first = pin!(client(&upstream));
    begin(first.as_mut()).await;
    let asked = upstream.request().await;
    let mut second = pin!(checked_client(&upstream, |_| true));
    begin(second.as_mut()).await;
    time::pause();
    time::advance(Duration::from_secs(2)).await;
    time::resume();
    answer(asked, table(5)).await;
    assert_eq!(body(first.await).await, table(5));
    begin(second.as_mut()).await;
    answer(upstream.request().await, table(6)).await;
    assert_eq!(body(second.await).await, table(6));
}

#[tokio::test]
async fn a_check_that_does_not_end_is_not_passed() {
    let mut upstream = Upstream::new().await;
    read_first(&mut upstream).await;
    let lists = Arc::clone(&upstream.lists);
    let waiting = tokio::spawn(async move {
        let request = list_request("/api/v1/pods?limit=500");
        lists.list(&request, |_| pending()).await
    });
    answer(upstream.request().await, table(6)).await;
    assert_eq!(body(waiting.await.unwrap()).await, table(6));
}

#[tokio::test]
async fn who_leaves_takes_the_list_from_nobody() {
    let mut upstream = Upstream::new().await;
    let mut first = Box::pin(client(&upstream));
    begin(first.as_mut()).await;
    let asked = upstream.request().await;
    let mut second = pin!(checked_client(&upstream, |_| true));
    begin(second.as_mut()).await;
    drop(first);
    answer(asked, table(5)).await;
    assert_eq!(body(second.await).await, table(5));
}

#[tokio::test]
async fn what_upstream_refuses_is_forwarded_one_by_one() {
    for (status, is_asked_again) in [
        (StatusCode::TOO_MANY_REQUESTS, true),
        (StatusCode::SERVICE_UNAVAILABLE, true),
        (StatusCode::FORBIDDEN, false),
        (StatusCode::NOT_ACCEPTABLE, false),
    ] {
        let mut upstream = Upstream::new().await;
        let mut clients = [Box::pin(client(&upstream)), Box::pin(client(&upstream))];
        for client in &mut clients {
            begin(client.as_mut()).await;
        }
        upstream.request().await.refuse(status);
        for client in clients {
            assert!(client.await.is_none(), "{status}");
        }
        if is_asked_again {
            let mut again = pin!(client(&upstream));
            begin(again.as_mut()).await;
            answer(upstream.request().await, table(5)).await;
            assert!(again.await.is_some());
        } else {
            assert!(client(&upstream).await.is_none(), "{status}");
        }
        assert_quiet(&mut upstream);
    }
}

#[tokio::test]
async fn a_list_that_is_too_long_is_forwarded_and_not_tried_again() {
    let mut upstream = Upstream::new().await;
    let first = tokio::spawn(client(&upstream));
    let lines = upstream.request().await.grant();
    // The reader leaves before it has everything.
    while lines.send("x".repeat(1 << 18)).await.is_ok() {}
    assert!(first.await.unwrap().is_none());
    assert!(client(&upstream).await.is_none());
    assert_quiet(&mut upstream);
    let other = list_request("/api/v1/pods?limit=50");
    let lists = Arc::clone(&upstream.lists);
    let mut other = pin!(lists.list(&other, |_| ready(false)));
    begin(other.as_mut()).await;
    answer(upstream.request.recv().await.unwrap(), table(5)).await;
    assert!(other.await.is_some());
}

#[tokio::test]
async fn a_list_that_breaks_off_is_given_to_nobody() {
    let mut upstream = Upstream::new().await;
    let mut first = pin!(client(&upstream));
    begin(first.as_mut()).await;
    let lines = upstream.request().await.grant();
    lines.send(table(5)).await.unwrap();
    upstream.serving.abort_all();
    assert!(first.await.is_none());
}

#[tokio::test]
async fn nothing_is_shared_once_another_server_may_have_answered() {
    let mut upstream = Upstream::new().await;
    let mut waiting = pin!(client(&upstream));
    begin(waiting.as_mut()).await;
    let asked = upstream.request().await;
    upstream.lists.expire(|_| true);
    answer(asked, table(5)).await;
    assert!(waiting.await.is_none());

    upstream.lists.close();
    assert!(client(&upstream).await.is_none());
    assert_quiet(&mut upstream);
}

#[tokio::test]
async fn a_client_has_a_share_of_the_lists() {
    let mut upstream = Upstream::new().await;
    let mut asked = Vec::new();
    let mut clients = Vec::new();
    let refused = loop {
        let lists = Arc::clone(&upstream.lists);
        let request = list_request(&format!("/api/v1/pods?limit={}", clients.len()));
        let mut client = Box::pin(async move { lists.list(&request, |_| ready(false)).await });
        let polled = poll_fn(|context| Poll::Ready(client.as_mut().poll(context))).await;
        match polled {
            Poll::Ready(list) => break list,
            Poll::Pending => {
                asked.push(upstream.request().await);
                clients.push(client);
            }
        }
    };
    assert!(refused.is_none());
    assert!(!clients.is_empty() && clients.len() <= 64);
    drop(asked);
}
