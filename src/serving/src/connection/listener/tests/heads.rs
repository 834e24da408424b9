//! Requests that are refused by their heads, before anything is done for them.

use super::*;

/// The status of a request over HTTP/2 with this number of header fields.
async fn status_with(fields: u16) -> StatusCode {
    let (client, server) = tokio::io::duplex(1 << 16);
    let run = tokio::spawn(connection().http2(server.into()));
    let (mut sender, driver) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(client))
            .await
            .unwrap();
    let driver = tokio::spawn(driver);
    let mut request = Request::get("http://a/")
        .body(Empty::<Bytes>::new())
        .unwrap();
    for number in 0..fields {
        let value = http::HeaderValue::from(number % 2);
        request.headers_mut().append("impersonate-group", value);
    }
    let response = sender.send_request(request).await.unwrap();
    let status = response.status();
    drop((response, sender));
    driver.await.unwrap().unwrap();
    run.await.unwrap().unwrap();
    status
}

#[tokio::test]
async fn over_http2_a_head_has_as_many_fields_as_over_http1() {
    assert_eq!(status_with(512).await, StatusCode::OK);
    let refused = status_with(513).await;
    assert_eq!(refused, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
}

#[tokio::test]
async fn a_target_with_a_fragment_or_without_a_path_is_refused() {
    for (target, expected) in [
        ("/a", 200),
        ("/%23", 200),
        ("http://b/a", 200),
        ("/é", 200),
        ("/#", 400),
        ("/a?b=c#d", 400),
        ("http://b/a#b", 400),
        ("a", 400),
        ("a:1", 400),
        ("/\t", 400),
        ("/a b", 400),
        ("/\x01", 400),
        ("/\x7f", 400),
        ("", 400),
    ] {
        let (mut client, server) = tokio::io::duplex(1 << 16);
        let run = tokio::spawn(connection().http1(server.into()));
        // The second request shows that the search goes on behind a body.
        let first = "POST /b HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n#\r\n\r\n";
        let second = format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        client
            .write_all((first.to_owned() + &second).as_bytes())
            .await
            .unwrap();
        let mut read = String::new();
        client.read_to_string(&mut read).await.unwrap();
        let codes: Vec<_> = read.matches("HTTP/1.1 ").collect();
        assert_eq!(codes.len(), 2, "{target:?}: {read}");
        let last = read.rsplit("HTTP/1.1 ").next().unwrap();
        assert!(
            last.starts_with(&format!("{expected} ")),
            "{target:?}: {read}"
        );
        let _ = run.await.unwrap();
    }
}
