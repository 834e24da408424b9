//! Shared streams and lists over a scripted upstream on loopback; the test answers each request.

mod lists;

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, WARNING};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::body::TableBody;
use super::*;
use crate::protocol::request::RequestInfo;
use crate::upstream::client::ConnectSource;

/// More than any test leaves unread.
const QUEUE: usize = 16;
const COLUMNS: &str = r#"[{"name":"Name"}]"#;
const EXPIRED: &str =
    "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410,\"reason\":\"Expired\"}}\n";

fn table_watch_request(request: &Request<()>) -> TableWatchRequest {
    TableWatchRequest::of(request, &RequestInfo::of(request), true).unwrap()
}

/// The body of a watch; it ends when the sender is dropped.
struct Played(mpsc::Receiver<String>);

impl Body for Played {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let line = self.0.poll_recv(context);
        line.map(|line| line.map(|line| Ok(Frame::data(line.into()))))
    }
}

/// A request that has reached upstream.
struct Asked {
    query: String,
    answer: oneshot::Sender<Response<Played>>,
}

impl Asked {
    fn after(&self) -> u64 {
        let version = self
            .query
            .split('&')
            .find_map(|pair| pair.strip_prefix("resourceVersion="));
        version.unwrap().parse().unwrap()
    }

    fn refuse(self, status: StatusCode) {
        let mut answer = Response::new(Played(mpsc::channel(QUEUE).1));
        *answer.status_mut() = status;
        self.answer.send(answer).taken();
    }

    fn grant(self) -> mpsc::Sender<String> {
        let (lines, receiver) = mpsc::channel(QUEUE);
        let mut answer = Response::new(Played(receiver));
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(WARNING, HeaderValue::from_static("299 - \"old\""));
        self.answer.send(answer).taken();
        lines
    }
}

trait Answered {
    fn taken(self);
}

impl<T> Answered for Result<(), T> {
    fn taken(self) {
        assert!(self.is_ok(), "the request was cancelled");
    }
}

struct Upstream {
    tables: Arc<Tables>,
    lists: Arc<TableLists>,
    is_local: Arc<AtomicBool>,
    request: mpsc::Receiver<Asked>,
    serving: JoinSet<()>,
}

impl Upstream {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (sender, request) = mpsc::channel(QUEUE);
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, sender));
        let source = ConnectSource::Url {
            url: url.parse().unwrap(),
            ca_file: None,
        };
        let client = Arc::new(Client::connect(source).await.unwrap());
        let metrics = Arc::new(Metrics::new().unwrap());
        let is_local = Arc::new(AtomicBool::new(true));
        let told = Arc::clone(&is_local);
        let origin_check: OriginCheck = Arc::new(move |_| {
            let is_local = told.load(Ordering::Relaxed);
            Box::pin(async move { is_local.then_some(()).ok_or_else(String::new) })
        });
        let lists = TableLists::new(Arc::clone(&client), Arc::clone(&metrics));
        Self {
            tables: Arc::new(Tables::new(client, metrics, 1 << 20, origin_check)),
            lists: Arc::new(lists),
            is_local,
            request,
            serving,
        }
    }

    async fn request(&mut self) -> Asked {
        self.request.recv().await.unwrap()
    }

    /// A client that knows everything up to `after`. Its response comes after upstream's.
    fn client(&self, after: u64, query: &str) -> tokio::task::JoinHandle<Option<Watcher>> {
        let uri = format!("/api/v1/pods?watch=1&resourceVersion={after}{query}");
        let request = Request::get(uri)
            .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
            .body(())
            .unwrap();
        let table_request = table_watch_request(&request);
        let tables = Arc::clone(&self.tables);
        tokio::spawn(async move {
            let answer = tables
                .watch(table_request, (&HeaderMap::new(), None), || Arc::new(()))
                .await?;
            assert_eq!(answer.headers()[WARNING], "299 - \"old\"");
            Some(Watcher(answer.into_body()))
        })
    }
}

async fn serve(listener: TcpListener, requests: mpsc::Sender<Asked>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let requests = requests.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let (sender, answer) = oneshot::channel();
            let query = request.uri().query().unwrap().to_owned();
            let sent = requests.try_send(Asked {
                query,
                answer: sender,
            });
            sent.unwrap();
            answer
        });
        connections.spawn(async move {
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            connection.await.unwrap_or_default();
        });
    }
}

struct Watcher(TableBody);

impl Watcher {
    async fn next(&mut self) -> Option<String> {
        let frame = self.0.frame().await?;
        let data = frame.unwrap().into_data().unwrap();
        Some(String::from_utf8(data.to_vec()).unwrap())
    }

    async fn expect(&mut self, expected: Option<String>) {
        assert_eq!(self.next().await, expected);
    }
}

fn event(kind: &str, version: u64, columns: &str) -> String {
    format!(
        "{{\"type\":\"{kind}\",\"object\":{{\"kind\":\"Table\",\"metadata\":{{\"resourceVersion\":\"{version}\"}},\"columnDefinitions\":{columns},\"rows\":[]}}}}\n"
    )
}

fn added(version: u64, columns: &str) -> String {
    event("ADDED", version, columns)
}

async fn opened(client: tokio::task::JoinHandle<Option<Watcher>>) -> Watcher {
    client.await.unwrap().unwrap()
}

#[tokio::test]
async fn clients_that_ask_alike_share_one_upstream_watch() {
    let mut upstream = Upstream::new().await;
    let first = upstream.client(5, "");
    let request = upstream.request().await;
    assert_eq!(request.after(), 5);
    let second = upstream.client(5, "&timeoutSeconds=100");
    let lines = request.grant();
    let (mut first, mut second) = (opened(first).await, opened(second).await);
    lines.send(added(6, COLUMNS)).await.unwrap();
    lines.send(event("BOOKMARK", 7, "null")).await.unwrap();
    lines.send(added(8, "null")).await.unwrap();
    first.expect(Some(added(6, COLUMNS))).await;
    first.expect(Some(added(8, "null"))).await;
    second.expect(Some(added(6, COLUMNS))).await;
    second.expect(Some(added(8, "null"))).await;
    let mut third = opened(upstream.client(6, "")).await;
    third.expect(Some(added(8, COLUMNS))).await;
    lines.send(added(9, "null")).await.unwrap();
    for client in [&mut first, &mut second, &mut third] {
        client.expect(Some(added(9, "null"))).await;
    }
    assert!(
        upstream.request.try_recv().is_err(),
        "there is one upstream request"
    );
}

#[tokio::test]
async fn a_client_from_before_the_stream_gets_one_that_reaches_back() {
    let mut upstream = Upstream::new().await;
    let first = upstream.client(5, "");
    let _lines = upstream.request().await.grant();
    let _first = opened(first).await;
    let older = upstream.client(4, "");
    let request = upstream.request().await;
    assert_eq!(request.after(), 4);
    let lines = request.grant();
    let mut older = opened(older).await;
    lines.send(added(5, COLUMNS)).await.unwrap();
    older.expect(Some(added(5, COLUMNS))).await;
}

#[tokio::test]
async fn what_upstream_ends_goes_on_from_the_last_version() {
    let mut upstream = Upstream::new().await;
    let client = upstream.client(5, "");
    let lines = upstream.request().await.grant();
    let mut client = opened(client).await;
    lines.send(added(6, COLUMNS)).await.unwrap();
    lines.send(event("BOOKMARK", 8, "null")).await.unwrap();
    client.expect(Some(added(6, COLUMNS))).await;
    drop(lines);
    let request = upstream.request().await;
    assert_eq!(request.after(), 8);
    request.refuse(StatusCode::SERVICE_UNAVAILABLE);
    let request = upstream.request().await;
    assert_eq!(request.after(), 8);
    let lines = request.grant();
    lines.send(added(9, COLUMNS)).await.unwrap();
    client.expect(Some(added(9, "null"))).await;
}

#[tokio::test]
async fn a_stream_ends_when_its_columns_change_or_its_resource_goes() {
    let mut upstream = Upstream::new().await;
    let client = upstream.client(5, "");
    let lines = upstream.request().await.grant();
    let mut client = opened(client).await;
    lines.send(added(6, COLUMNS)).await.unwrap();
    lines.send(added(7, r#"[{"name":"Other"}]"#)).await.unwrap();
    client.expect(Some(added(6, COLUMNS))).await;
    client.expect(None).await;

    let client = upstream.client(5, "");
    let lines = upstream.request().await.grant();
    let mut client = opened(client).await;
    drop(lines);
    upstream.request().await.refuse(StatusCode::NOT_FOUND);
    client.expect(None).await;
}

/// Two clients of one stream, of which upstream no longer has the older one's version, as that one was told.
async fn old_and_new(upstream: &mut Upstream) -> (Watcher, Watcher, mpsc::Sender<String>) {
    let old = upstream.client(5, "");
    let request = upstream.request().await;
    let new = upstream.client(9, "");
    let lines = request.grant();
    let (mut old, new) = (opened(old).await, opened(new).await);
    lines.send(EXPIRED.to_owned()).await.unwrap();
    old.expect(Some(EXPIRED.to_owned())).await;
    (old, new, lines)
}

#[tokio::test]
async fn a_refusal_within_the_stream_is_told_to_whom_it_concerns() {
    let mut upstream = Upstream::new().await;
    let (mut old, mut new, _lines) = old_and_new(&mut upstream).await;
    old.expect(None).await;
    let moved = tokio::spawn(async move { new.next().await });
    let request = upstream.request().await;
    assert_eq!(request.after(), 9);
    let lines = request.grant();
    lines.send(added(10, COLUMNS)).await.unwrap();
    assert_eq!(moved.await.unwrap(), Some(added(10, COLUMNS)));
}

#[tokio::test]
async fn a_client_does_not_move_to_another_stream_once_another_server_may_serve_the_resource() {
    let mut upstream = Upstream::new().await;
    let (_old, mut new, _lines) = old_and_new(&mut upstream).await;
    // Its stream has ended, so it is not among those that are ended now.
    upstream.tables.expire(|_| true);
    let refused = tokio::select! {
        refused = new.next() => refused,
        request = upstream.request() => unreachable!("{} is read from the other server", request.query),
    };
    assert_eq!(refused, Some(EXPIRED.to_owned()));
    new.expect(None).await;
}

#[tokio::test]
async fn nothing_is_shared_that_another_server_sends() {
    let mut upstream = Upstream::new().await;
    let client = upstream.client(5, "");
    let lines = upstream.request().await.grant();
    let mut client = opened(client).await;
    upstream.is_local.store(false, Ordering::Relaxed);
    drop(lines);
    // A watch that continues is tried again: the group may have moved back.
    let lines = upstream.request().await.grant();
    lines.send(added(6, COLUMNS)).await.unwrap();
    tokio::select! {
        () = lines.closed() => {}
        line = client.next() => unreachable!("{line:?} came from the other server"),
    }
    upstream.is_local.store(true, Ordering::Relaxed);
    let lines = upstream.request().await.grant();
    lines.send(added(7, COLUMNS)).await.unwrap();
    client.expect(Some(added(7, COLUMNS))).await;
    // A first one is forwarded.
    upstream.is_local.store(false, Ordering::Relaxed);
    let other = upstream.client(5, "&labelSelector=a");
    let _lines = upstream.request().await.grant();
    assert!(other.await.unwrap().is_none());
}

/// kubectl accepts plain objects, too.
#[tokio::test]
async fn what_upstream_sends_instead_of_tables_reaches_the_client_as_it_is() {
    let mut upstream = Upstream::new().await;
    let client = upstream.client(5, "");
    let lines = upstream.request().await.grant();
    let mut client = opened(client).await;
    let plain = |version| {
        format!(
            "{{\"type\":\"ADDED\",\"object\":{{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{{\"name\":\"a\",\"namespace\":\"b\",\"uid\":\"u\",\"resourceVersion\":\"{version}\"}}}}}}\n"
        )
    };
    lines.send(plain(6)).await.unwrap();
    client.expect(Some(plain(6))).await;
    let mut second = opened(upstream.client(5, "")).await;
    second.expect(Some(plain(6))).await;
    lines.send(plain(7)).await.unwrap();
    client.expect(Some(plain(7))).await;
    second.expect(Some(plain(7))).await;
}

#[tokio::test]
async fn watches_whose_events_cannot_be_read_end_with_410_and_are_forwarded_from_then_on() {
    let mut upstream = Upstream::new().await;
    let client = upstream.client(5, "");
    let lines = upstream.request().await.grant();
    let mut client = opened(client).await;
    lines
        .send("{\"kind\":\"PodList\",\"items\":[]}\n".to_owned())
        .await
        .unwrap();
    let end = client.next().await.unwrap();
    assert!(end.contains("\"code\":410"), "{end}");
    client.expect(None).await;
    // The stream's task removes it after its clients have seen the end.
    while upstream
        .tables
        .stream_map
        .lock()
        .streams
        .values()
        .flatten()
        .count()
        > 0
    {
        tokio::task::yield_now().await;
    }
    assert!(upstream.client(5, "").await.unwrap().is_none());
    let other = upstream.client(5, "&labelSelector=a");
    let _lines = upstream.request().await.grant();
    opened(other).await;
}

#[tokio::test]
async fn what_upstream_does_not_grant_is_left_to_each_client() {
    let mut upstream = Upstream::new().await;
    let client = upstream.client(5, "");
    upstream.request().await.refuse(StatusCode::FORBIDDEN);
    assert!(client.await.unwrap().is_none());
}

#[tokio::test]
async fn a_client_that_falls_out_of_the_ring_is_ended() {
    let mut upstream = Upstream::new().await;
    let (slow, fast) = (upstream.client(5, ""), upstream.client(5, ""));
    let lines = upstream.request().await.grant();
    let (mut slow, mut fast) = (opened(slow).await, opened(fast).await);
    let last = 5 + 2000;
    for version in 6..=last {
        lines.send(added(version, "null")).await.unwrap();
        fast.expect(Some(added(version, "null"))).await;
    }
    slow.expect(None).await;
}

#[tokio::test]
async fn a_panic_ends_the_clients_of_its_stream_and_the_next_one_begins_another() {
    let mut upstream = Upstream::new().await;
    let client = upstream.client(5, "");
    let lines = upstream.request().await.grant();
    let mut client = opened(client).await;
    lines.send(added(6, COLUMNS)).await.unwrap();
    client.expect(Some(added(6, COLUMNS))).await;
    let (stream, tables) = (Arc::clone(client.0.stream()), Arc::clone(&upstream.tables));
    let ends = Metrics::new().unwrap().task_ends();
    let work = async {
        tokio::task::yield_now().await;
        panic!("planted")
    };
    run(work, (&stream, &tables.stream_map), &ends).await;
    assert_eq!(ends.count(TaskKind::TableWatch), 1);
    client.expect(None).await;
    let next = upstream.client(6, "");
    let request = upstream.request().await;
    assert_eq!(request.after(), 6);
    let lines = request.grant();
    let mut next = opened(next).await;
    lines.send(added(7, COLUMNS)).await.unwrap();
    next.expect(Some(added(7, COLUMNS))).await;
}

#[tokio::test]
async fn closing_ends_all_and_starts_no_more() {
    let mut upstream = Upstream::new().await;
    let client = upstream.client(5, "");
    let lines = upstream.request().await.grant();
    let mut client = opened(client).await;
    upstream.tables.close();
    client.expect(None).await;
    lines.closed().await;
    assert!(upstream.client(5, "").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_stream_waits_a_while_for_another_client() {
    let request = Request::get("/api/v1/pods?watch=1&resourceVersion=5")
        .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(());
    let table_request = table_watch_request(&request.unwrap());
    let (stream, _writer) = TableStream::new(table_request.key, table_request.after);
    let start = Instant::now();
    let member = StreamMember::of(&stream);
    let comes_again = Arc::clone(&stream);
    tokio::spawn(async move {
        drop(member);
        tokio::time::sleep(IDLE / 2).await;
        let again = StreamMember::of(&comes_again);
        tokio::time::sleep(IDLE * 3).await;
        drop(again);
    });
    tokio::task::yield_now().await;
    stream.unwatched_for(IDLE).await;
    assert_eq!(start.elapsed(), IDLE / 2 + IDLE * 3 + IDLE);
}

#[tokio::test]
async fn a_watch_holds_its_place_until_it_is_gone() {
    let mut upstream = Upstream::new().await;
    let client = upstream.client(5, "");
    let _lines = upstream.request().await.grant();
    let body = client.await.unwrap().unwrap().0;
    let limits = crate::config::AdmissionLimits {
        watches_max: 1,
        ..crate::config::ServeSettings::embedded("http://a".parse().unwrap()).admission
    };
    let admission = crate::admission::Admission::new(limits, None);
    let peer = Peer::UNKNOWN;
    let body = body.holding(admission.watch(peer).unwrap());
    assert!(admission.watch(peer).is_err());
    drop(body);
    assert!(admission.watch(peer).is_ok());
}

#[tokio::test]
async fn a_revoked_client_ends_and_the_others_of_its_stream_go_on() {
    let mut upstream = Upstream::new().await;
    let (leaves, stays) = (upstream.client(5, ""), upstream.client(5, ""));
    let lines = upstream.request().await.grant();
    let (mut leaves, mut stays) = (opened(leaves).await, opened(stays).await);
    let lease = crate::auth::lease::Lease::new();
    leaves.0 = leaves.0.leased(Some(lease.hold()));
    lines.send(added(6, COLUMNS)).await.unwrap();
    for client in [&mut leaves, &mut stays] {
        client.expect(Some(added(6, COLUMNS))).await;
    }
    let ended = tokio::spawn(async move { leaves.expect(None).await });
    // The task waits for the next line now.
    tokio::task::yield_now().await;
    lease.revoke();
    ended.await.unwrap();
    lines.send(added(7, "null")).await.unwrap();
    stays.expect(Some(added(7, "null"))).await;
}
