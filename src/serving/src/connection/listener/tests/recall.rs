//! Connections that are recalled because another replica has fewer watches.

use super::*;
use crate::serve::ConnectionTable;

/// The longest time until a recalled watch ends.
const WATCH_TIME_MAX: Duration = Duration::from_millis(3_501);

/// A connection that is in the table, to a server with one cache.
fn tracked(served: ServedResource, table: &ConnectionTable) -> ClientConnection {
    let metrics = Metrics::new().unwrap().listener();
    let service = Service::new(Arc::new(caching(served)), unlimited(), metrics);
    let service = service.tracked(Some(table.clone()));
    ClientConnection {
        entry: service.track(),
        ..connection_of(service)
    }
}

/// Recalls the only connection with a watch.
fn recall(table: &ConnectionTable) {
    assert_eq!(table.watch_count(), 1);
    assert_eq!(table.oldest().recall_next(5), Some(1));
    assert_eq!(table.oldest().recall_next(5), None);
    assert_eq!(table.watch_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_recalled_connection_of_http1_closes_after_its_watch() {
    let (_world, served) = world();
    let table = ConnectionTable::default();
    let (mut client, server) = tokio::io::duplex(1 << 16);
    let run = tokio::spawn(tracked(served, &table).http1(server.into()));
    let watch = WATCH.replace("watch=1", "watch=1&allowWatchBookmarks=true");
    client.write_all(watch.as_bytes()).await.unwrap();
    read_to(&mut client, "ADDED").await;
    recall(&table);
    // Long before the watch and the connection end by themselves.
    let recalled_at = Instant::now();
    let mut read = String::new();
    client.read_to_string(&mut read).await.unwrap();
    assert_within(recalled_at, Duration::ZERO, WATCH_TIME_MAX);
    assert!(read.ends_with("0\r\n\r\n"), "{read}");
    assert_eq!(run.await.unwrap(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn an_idle_recalled_connection_of_http1_closes() {
    let (_world, served) = world();
    let table = ConnectionTable::default();
    let (mut client, server) = tokio::io::duplex(1 << 16);
    let connection = tracked(served, &table);
    let recall = connection.recall().cloned().unwrap();
    let run = tokio::spawn(connection.http1(server.into()));
    let request = b"GET /version HTTP/1.1\r\nHost: a\r\n\r\n";
    client.write_all(request).await.unwrap();
    let read = read_to(&mut client, "whole").await;
    assert!(!read.contains("close"), "{read}");
    recall.begin();
    let recalled_at = Instant::now();
    let mut read = String::new();
    client.read_to_string(&mut read).await.unwrap();
    assert_within(recalled_at, Duration::ZERO, Duration::ZERO);
    assert_eq!((read.as_str(), run.await.unwrap()), ("", Ok(())));
}

#[tokio::test(start_paused = true)]
async fn a_recalled_connection_of_http2_gets_goaway_before_its_watch_ends() {
    let (_world, served) = world();
    let table = ConnectionTable::default();
    let (client, server) = tokio::io::duplex(1 << 16);
    let run = tokio::spawn(tracked(served, &table).http2(server.into()));
    let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    let (mut sender, connection) = builder.handshake(TokioIo::new(client)).await.unwrap();
    let connection = tokio::spawn(connection);
    let target = WATCH.split(' ').nth(1).unwrap();
    let target = format!("http://a{target}&allowWatchBookmarks=true");
    let request = Request::get(target).body(Empty::<Bytes>::new()).unwrap();
    let mut watch = sender.send_request(request).await.unwrap().into_body();
    let first = http_body_util::BodyExt::frame(&mut watch).await;
    assert!(first.unwrap().is_ok());
    recall(&table);
    let recalled_at = Instant::now();
    // No request is sent any more while the watch is still open.
    let request = || Request::get("http://a/version").body(Empty::<Bytes>::new());
    while sender.send_request(request().unwrap()).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // Before even the earliest end of a watch.
    assert_within(recalled_at, Duration::ZERO, Duration::from_secs(1));
    assert!(!Body::is_end_stream(&watch));
    let rest = http_body_util::BodyExt::collect(watch).await;
    assert!(rest.is_ok());
    assert_within(recalled_at, Duration::ZERO, WATCH_TIME_MAX);
    connection.await.unwrap().unwrap();
    run.await.unwrap().unwrap();
}
