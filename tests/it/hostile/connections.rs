//! HTTP/1.1 connections with garbage, with requests or TLS handshakes that never end, or with clients that vanish.

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::hostile::stage::{Stage, until};
use crate::hostile::tls::{Bridge, Serving};
use crate::hostile::wire::{code, exchange, read_to_end, send};
use crate::hostile::witness::Witness;

const LIST: &str = "GET /api/v1/namespaces/default/pods HTTP/1.1\r\nHost: a\r\n";
const CREATE: &str = "POST /api/v1/namespaces/default/pods HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n";
/// The number of requests whose bodies never end.
const SLOW_COUNT: usize = 100;
/// The number of TLS handshakes that are not completed.
const HALF_COUNT: usize = 300;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_instead_of_http_is_refused() {
    let stage = Stage::new().await;
    let witness = stage.witness().await;
    let tls_hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03garbage".as_slice();
    let zeros = [0; 4_096];
    let cases: &[(&[u8], &[u16])] = &[
        (b"garbage\r\n\r\n", &[400]),
        (tls_hello, &[400]),
        (&zeros, &[400]),
        (b"GET /\xff\xfe HTTP/1.1\r\n\r\n", &[400, 404]),
        (b"GET / HTTP/9.9\r\n\r\n", &[400, 505]),
        (b"GET / HTTP/1.1\r\nno colon here\r\n\r\n", &[400]),
        (
            b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
            &[400],
        ),
        (
            b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            &[400],
        ),
        (b"G", &[0, 400]),
        (b"", &[0]),
        (b"PRI * HTTP/1.1\r\n\r\n", &[0, 400]),
    ];
    for (sent, expected) in cases {
        let answer = exchange(stage.address, sent).await;
        let shown = String::from_utf8_lossy(sent);
        assert!(expected.contains(&code(&answer)), "{shown:?}: {answer}");
    }
    stage.end(witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heads_that_are_too_large_are_refused_and_large_ones_are_not() {
    let stage = Stage::new().await;
    let witness = stage.witness().await;
    let line = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(1 << 20));
    let answer = exchange(stage.address, line.as_bytes()).await;
    assert!([0, 414, 431].contains(&code(&answer)), "{answer}");

    let header = format!("{LIST}X-Large: {}\r\n\r\n", "a".repeat(1 << 20));
    let answer = exchange(stage.address, header.as_bytes()).await;
    assert!([0, 431].contains(&code(&answer)), "{answer}");

    let many = (0..600).fold(LIST.to_owned(), |head, n| format!("{head}X-{n}: {n}\r\n"));
    let answer = exchange(stage.address, format!("{many}\r\n").as_bytes()).await;
    assert!([0, 431].contains(&code(&answer)), "{answer}");

    // Long tokens are allowed.
    let token = format!("{LIST}Authorization: Bearer {}\r\n", "a".repeat(16 << 10));
    let mut stream = TcpStream::connect(stage.address).await.unwrap();
    send(
        &mut stream,
        format!("{token}Connection: close\r\n\r\n").as_bytes(),
    )
    .await;
    let answer = read_to_end(&mut stream).await;
    assert_eq!(code(&answer), 200, "{answer}");
    stage.end(witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_with_wrong_sizes_are_refused() {
    let stage = Stage::new().await;
    let witness = stage.witness().await;
    let chunked = "Transfer-Encoding: chunked\r\n\r\n";
    for body in [
        "zz\r\n{}\r\n0\r\n\r\n",
        "ffffffffffffffffff\r\n{}\r\n",
        "-1\r\n{}\r\n",
        "2\r\n{}garbage\r\n0\r\n\r\n",
        "5\r\n{}",
    ] {
        let sent = format!("{CREATE}{chunked}{body}");
        let answer = exchange(stage.address, sent.as_bytes()).await;
        let code = code(&answer);
        assert!(code == 0 || (400..=503).contains(&code), "{body}: {answer}");
        assert_ne!(code, 500, "{body}: {answer}");
    }
    let both = format!("{CREATE}Content-Length: 2\r\n{chunked}0\r\n\r\n");
    let answer = exchange(stage.address, both.as_bytes()).await;
    let code = code(&answer);
    assert!(code == 0 || (400..500).contains(&code), "{answer}");
    stage.end(witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_bodies_that_never_end_hold_up_nobody() {
    let stage = Stage::new().await;
    let witness = stage.witness().await;
    let mut slow = Vec::new();
    for _ in 0..SLOW_COUNT {
        let mut stream = TcpStream::connect(stage.address).await.unwrap();
        let head = format!("{CREATE}Content-Length: 1000000\r\n\r\n{{");
        send(&mut stream, head.as_bytes()).await;
        slow.push(stream);
    }
    for _ in 0..5 {
        for stream in &mut slow {
            send(stream, b" ").await;
        }
        let path = "/api/v1/namespaces/default/pods";
        assert_eq!(stage.get(path).await.status(), 200);
        // Forwarded, as the slow requests are: they leave a permit for it.
        assert_eq!(stage.get(&format!("{path}/nobody")).await.status(), 404);
    }
    drop(slow);
    assert_eq!(
        stage
            .send("POST", "/api/v1/namespaces/default/pods")
            .await
            .status(),
        400
    );
    stage.end(witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_and_half_open_connections_hold_up_nobody() {
    let stage = Stage::new().await;
    let witness = stage.witness().await;
    let mut silent = Vec::new();
    for first in [&b""[..], b"G", b"P", b"PRI ", b"GET / HT", LIST.as_bytes()] {
        for _ in 0..20 {
            let mut stream = TcpStream::connect(stage.address).await.unwrap();
            send(&mut stream, first).await;
            silent.push(stream);
        }
    }
    assert_eq!(stage.get("/api/v1/pods").await.status(), 200);
    // Most clients end their side: the gateway closes the connection, too, long before the time limit for a head.
    for mut stream in silent.drain(..100) {
        stream.shutdown().await.unwrap();
        read_to_end(&mut stream).await;
    }
    drop(silent);
    assert_eq!(stage.get("/api/v1/pods").await.status(), 200);
    stage.end(witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_handshakes_hold_up_nobody() {
    let tls = Serving::new("handshakes");
    let stage = Stage::with(|settings| settings.transport = tls.transport()).await;
    let bridge = Bridge::to(stage.address, tls.connector()).await;
    let witness = Witness::begin(bridge.address, stage.apiserver.address()).await;
    let hello = tls.hello();
    let half = hello.len() / 2;
    let beginnings = [&[], &hello[..1], &hello[..half], &hello];
    let mut slow = Vec::new();
    for first in beginnings.into_iter().cycle().take(HALF_COUNT) {
        let mut stream = TcpStream::connect(stage.address).await.unwrap();
        send(&mut stream, first).await;
        slow.push(stream);
    }
    let accepted = "kube_fanout_connections_accepted_total";
    stage.metric_reaches(accepted, &[], HALF_COUNT as f64).await;
    for byte in &hello[half..half + 5] {
        for stream in slow.iter_mut().skip(2).step_by(beginnings.len()) {
            send(stream, &[*byte]).await;
        }
        // A request on a new connection, whose handshake competes with theirs.
        let mut stream = TcpStream::connect(bridge.address).await.unwrap();
        let list = format!("{LIST}Connection: close\r\n\r\n");
        send(&mut stream, list.as_bytes()).await;
        assert_eq!(code(&read_to_end(&mut stream).await), 200);
    }
    drop(slow);
    until("their connections are closed", async || {
        stage.metric("kube_fanout_connections", &[]).await < 10.0
    })
    .await;
    stage.end(witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watchers_that_read_nothing_or_vanish_are_let_go() {
    const WATCHES: &str = "kube_fanout_longrunning_requests";
    const NODES: &[&str] = &["resource=\"nodes\"", "verb=\"WATCH\""];
    let stage = Stage::new().await;
    let witness = stage.witness().await;
    let watch = b"GET /api/v1/nodes?watch=1 HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut watchers = Vec::new();
    for _ in 0..10 {
        let mut stream = TcpStream::connect(stage.address).await.unwrap();
        send(&mut stream, watch).await;
        watchers.push(stream);
    }
    stage.metric_reaches(WATCHES, NODES, 10.0).await;
    for (number, stream) in watchers.into_iter().enumerate() {
        if number % 2 == 0 {
            // With a linger time of 0, dropping the socket resets the connection.
            let socket = socket2::SockRef::from(&stream);
            socket.set_linger(Some(std::time::Duration::ZERO)).unwrap();
        }
    }
    until("the watches end", async || {
        stage.metric(WATCHES, NODES).await == 0.0
    })
    .await;
    stage.end(witness).await;
}
