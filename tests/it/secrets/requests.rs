//! Requests of all kinds, each with a credential.

use std::net::SocketAddr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::secrets::credentials::Credentials;
use crate::secrets::process::{Serving, connect, exchange};

pub(crate) const PODS: &str = "/api/v1/namespaces/ns-01/pods?resourceVersion=0";
const WATCH: &str = "/api/v1/pods?watch=1&resourceVersion=0";
const WEBSOCKET: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
/// Where the answer's head ends.
const HEAD: &[u8] = b"\r\n\r\n";

pub(crate) fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

pub(crate) fn get(target: &str, headers: &str) -> Vec<u8> {
    request("GET", target, headers, "")
}

fn request(method: &str, target: &str, headers: &str, body: &str) -> Vec<u8> {
    let len = match body.len() {
        0 => String::new(),
        len => format!("Content-Type: application/json\r\nContent-Length: {len}\r\n"),
    };
    let is_upgrade = headers.contains("Upgrade");
    let close = if is_upgrade {
        ""
    } else {
        "Connection: close\r\n"
    };
    format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n{close}{len}{headers}\r\n{body}")
        .into_bytes()
}

/// Sends them all; gives back what was answered.
pub(crate) async fn all(
    serving: &Serving,
    server: SocketAddr,
    credentials: &Credentials,
) -> Vec<Vec<u8>> {
    let plain = serving.client(None);
    let mut answers = Vec::new();
    for (sent, enough) in ordinary(credentials).into_iter().chain(odd(credentials)) {
        answers.push(exchange(&plain, server, &sent, enough).await);
    }
    let remote = "X-Remote-User: ann\r\nX-Remote-Group: system:masters\r\n";
    let bad = bearer(&credentials.bad);
    let good = bearer(&credentials.good);
    for (pair, headers) in [
        (&credentials.client, ""),
        (&credentials.client, good.as_str()),
        (&credentials.proxy, remote),
        (&credentials.proxy, bad.as_str()),
        (&credentials.stranger, ""),
        (&credentials.stranger, good.as_str()),
    ] {
        let client = serving.client(Some(pair));
        for target in [PODS, "/api/v1/nodes/nobody"] {
            let sent = get(target, headers);
            answers.push(exchange(&client, server, &sent, b"").await);
        }
    }
    without_tls(server, &good).await;
    for token in [&credentials.good, &credentials.bad, &credentials.expiring] {
        answers.extend(over_http2(serving, server, token).await);
    }
    answers
}

/// Requests that clients make, with good credentials and bad ones.
fn ordinary(credentials: &Credentials) -> Vec<(Vec<u8>, &'static [u8])> {
    let mut requests: Vec<(Vec<u8>, &'static [u8])> = Vec::new();
    for token in [&credentials.good, &credentials.expiring, &credentials.bad] {
        let header = bearer(token);
        let impersonating = format!("{header}Impersonate-User: eve\r\nImpersonate-Group: dev\r\n");
        let group_only = format!("{header}Impersonate-Group: dev\r\n");
        let encoded = URL_SAFE_NO_PAD.encode(token);
        let protocol = format!("base64url.bearer.authorization.k8s.io.{encoded}");
        let websocket =
            format!("{WEBSOCKET}Sec-WebSocket-Protocol: {protocol}, v4.channel.k8s.io\r\n");
        let alone = format!("{WEBSOCKET}Sec-WebSocket-Protocol: {protocol}\r\n");
        let exec = format!("{header}Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n");
        let review = format!(r#"{{"spec":{{"token":"{token}"}}}}"#);
        let object = r#"{"metadata":{"generateName":"c"}}"#;
        requests.extend([
            (get(PODS, &header), b"".as_slice()),
            (get(WATCH, &header), b"ADDED".as_slice()),
            (get("/api/v1/nodes/nobody", &header), b""),
            (get("/api/v1/watch", &header), b""),
            (get("/api/v1/pods?limit=x&resourceVersion=0", &header), b""),
            (get("/api/v1/pods?fieldSelector=a%3Db", &header), b""),
            (get(PODS, &impersonating), b""),
            (get("/api/v1/nodes/nobody", &impersonating), b""),
            (get(PODS, &group_only), b""),
            (get(WATCH, &websocket), HEAD),
            (get(WATCH, &alone), HEAD),
            (
                request(
                    "POST",
                    "/api/v1/namespaces/ns-01/configmaps",
                    &header,
                    object,
                ),
                b"",
            ),
            (
                request(
                    "POST",
                    "/apis/authentication.k8s.io/v1/tokenreviews",
                    &header,
                    &review,
                ),
                b"",
            ),
            (
                request("POST", "/api/v1/namespaces/ns-01/pods/p/exec", &exec, ""),
                HEAD,
            ),
        ]);
    }
    requests
}

/// Requests that only attackers make.
fn odd(credentials: &Credentials) -> Vec<(Vec<u8>, &'static [u8])> {
    let (good, bad) = (&credentials.good, &credentials.bad);
    let both = format!("{}{}", bearer(good), bearer(bad));
    let long = format!("Authorization: Bearer {bad}{}\r\n", "a".repeat(300_000));
    let many = bearer(bad).repeat(500);
    let mut unreadable = get(PODS, &bearer(bad));
    let at = memchr::memmem::find(&unreadable, bad.as_bytes()).unwrap() + bad.len();
    unreadable.insert(at, 0xff);
    let mut control = unreadable.clone();
    control[at] = 1;
    let header = |value: &str| format!("Authorization: {value}\r\n");
    let mut requests: Vec<(Vec<u8>, &'static [u8])> = [
        String::new(),
        header(&format!("Basic {}", credentials.basic)),
        header(&format!("Bearer  {good}")),
        header(&format!("bearer {good} more")),
        header(good),
        both,
        long,
        many,
        format!("{}no header\r\n", bearer(good)),
        format!("{}Host: other\r\n", bearer(good)),
        format!(
            "{}Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
            bearer(good)
        ),
        format!("{}Expect: wonders\r\n", bearer(good)),
        format!("{}Connection: Authorization\r\n", bearer(good)),
        format!(
            "{}Impersonate-Extra-%zz: x\r\nImpersonate-User: \r\n",
            bearer(good)
        ),
        format!("X-Remote-User: root\r\nX-Remote-Group: {good}\r\n"),
        format!("Proxy-Authorization: Basic {}\r\n", credentials.basic),
        format!("Cookie: {good}\r\n"),
    ]
    .into_iter()
    .map(|headers| (get(PODS, &headers), b"".as_slice()))
    .collect();
    requests.extend([
        (unreadable, b"".as_slice()),
        (control, b"".as_slice()),
        (
            get(&format!("https://user:{good}@localhost/api/v1/pods"), ""),
            b"".as_slice(),
        ),
        (
            format!("{} HTTP/1.1\r\n\r\n", bearer(good)).into_bytes(),
            b"".as_slice(),
        ),
    ]);
    requests
}

/// HTTP in clear where TLS is spoken.
async fn without_tls(server: SocketAddr, header: &str) {
    let mut stream = TcpStream::connect(server).await.unwrap();
    // It may be refused before it is read.
    let _ = stream.write_all(&get(PODS, header)).await;
    let _ = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut Vec::new()).await;
}

/// Answers are written down as HTTP/1.1 has them; of what goes on, the first piece.
async fn over_http2(serving: &Serving, server: SocketAddr, token: &str) -> Vec<Vec<u8>> {
    let mut answers = Vec::new();
    let stream = connect(&serving.http2_client(), server).await;
    let (mut requests, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    let connection = tokio::spawn(connection);
    for target in [PODS, "/api/v1/nodes/nobody", WATCH] {
        let request = http::Request::get(format!("https://localhost{target}"))
            .header("authorization", format!("Bearer {token}"))
            .body(Full::<Bytes>::default())
            .unwrap();
        // Who is refused may find the connection closed.
        let Ok(answer) = requests.send_request(request).await else {
            break;
        };
        let mut written = format!("HTTP/2 {}\r\n", answer.status().as_str()).into_bytes();
        for (name, value) in answer.headers() {
            written.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
        }
        if let Some(Ok(frame)) = answer.into_body().frame().await {
            written.extend(frame.into_data().unwrap_or_default());
        }
        answers.push(written);
    }
    connection.abort();
    answers
}
