//! Responses in pieces of every length, and with chunks of every length, read the same.

use super::*;

fn read(pieces: &[&[u8]]) -> Result<(Vec<u8>, bool)> {
    let mut response = Response::default();
    let mut body = Vec::new();
    let mut complete = false;
    for piece in pieces {
        assert!(!complete, "bytes after the end");
        complete = match response.feed(piece, |_, data| body.extend_from_slice(data))? {
            Progress::Partial => false,
            Progress::Complete(used) => {
                assert_eq!(used, piece.len());
                true
            }
        };
    }
    Ok((body, complete))
}

fn chunked(body: &[u8], chunk_len: usize) -> Vec<u8> {
    let mut text =
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
            .to_vec();
    for chunk in body.chunks(chunk_len) {
        text.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        text.extend_from_slice(chunk);
        text.extend_from_slice(b"\r\n");
    }
    text.extend_from_slice(b"0\r\n\r\n");
    text
}

#[test]
fn a_chunked_body_survives_every_chunk_length_and_every_single_cut() {
    let body: Vec<u8> = (0..97u8).chain(*b"\r\n0\r\n\r\n").collect();
    for chunk_len in 1..=body.len() {
        let text = chunked(&body, chunk_len);
        for cut in 0..=text.len() {
            let pieces: Vec<&[u8]> = [&text[..cut], &text[cut..]]
                .into_iter()
                .filter(|piece| !piece.is_empty())
                .collect();
            let (read_body, complete) = read(&pieces).unwrap();
            assert!(complete, "chunk length {chunk_len}, cut at {cut}");
            assert_eq!(read_body, body, "chunk length {chunk_len}, cut at {cut}");
        }
    }
}

#[test]
fn a_chunked_body_survives_arriving_byte_by_byte() {
    let body = b"{\"type\":\"ADDED\"}\n".repeat(9);
    for chunk_len in [1, 2, 15, 16, 17, 255, 4096] {
        let text = chunked(&body, chunk_len);
        let pieces: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(read(&pieces).unwrap(), (body.clone(), true));
    }
}

#[track_caller]
fn check(text: &str, expect: Option<(&str, bool)>) {
    let got = read(&[text.as_bytes()]).ok();
    assert_eq!(
        got,
        expect.map(|(body, complete)| (body.as_bytes().to_vec(), complete)),
        "{text:?}"
    );
}

#[test]
fn bodies_end_as_their_heads_say() {
    check(
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
        Some(("abc", true)),
    );
    check(
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        Some(("", true)),
    );
    check("HTTP/1.1 200 OK\r\n\r\nabc", Some(("abc", false)));
    check(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nTrailer: 1\r\n\r\n",
        Some(("abc", true)),
    );
    check(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nA\r\n0123456789\r\n",
        Some(("0123456789", false)),
    );
}

#[test]
fn retry_after_is_read_in_seconds_only() {
    for (value, expected) in [
        ("7", Some(Duration::from_secs(7))),
        ("Fri, 31 Dec 1999 23:59:59 GMT", None),
        ("-1", None),
    ] {
        let mut response = Response::default();
        let text = format!("HTTP/1.1 429 x\r\nRetry-After: {value}\r\nContent-Length: 0\r\n\r\n");
        response.feed(text.as_bytes(), |_, _| {}).unwrap();
        assert_eq!(response.head().unwrap().retry_after, expected, "{value}");
    }
}

#[test]
fn broken_framing_is_an_error_and_not_a_panic() {
    check("SSH-2.0-OpenSSH\r\n\r\n", None);
    check("HTTP/1.1 xx\r\n\r\n", None);
    check(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        None,
    );
    check(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n\r\n",
        None,
    );
    check(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabcX\r\n",
        None,
    );
    check(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
        None,
    );
}

#[test]
fn a_second_response_follows_on_the_same_connection() {
    let mut response = Response::default();
    for _ in 0..2 {
        let text = chunked(b"abc", 2);
        let mut body = Vec::new();
        let progress = response.feed(&text, |head, data| {
            assert_eq!(head.status, 200);
            body.extend_from_slice(data);
        });
        assert_eq!(progress.unwrap(), Progress::Complete(text.len()));
        assert_eq!(body, b"abc");
    }
}
