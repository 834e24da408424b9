//! Tokens in headers, and the expiry of a token.

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderValue;

use super::*;

fn headers(pairs: &[(&'static str, &[u8])]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(*name, HeaderValue::from_bytes(value).unwrap());
    }
    headers
}

fn token(secret: &str) -> TokenHeader {
    TokenHeader::Token(BearerToken::new(secret).unwrap())
}

#[test]
fn the_authorization_header_is_read_as_the_api_server_reads_it() {
    use TokenHeader::{Absent, Invalid};
    let rows: [(&[&[u8]], TokenHeader); 26] = [
        (&[], Absent),
        (&[b""], Absent),
        (&[b"Bearer abc"], token("abc")),
        (&[b"bearer abc"], token("abc")),
        (&[b"BEARER abc"], token("abc")),
        (&[b"\tBearer abc \t"], token("abc")),
        (&["\u{a0}Bearer abc\u{85}".as_bytes()], token("abc")),
        (&[b"Bearer"], Absent),
        (&[b"Bearer "], Absent),
        (&[b"Bearer  abc"], Absent),
        (&[b"Bearer\tabc"], Absent),
        (&[b"Bearer abc def"], token("abc")),
        (&[b"Bearer abc,def"], token("abc,def")),
        (&[b"Bearer:abc"], Absent),
        (&[b"Basic YWxpY2U6cHc="], Absent),
        (&[b"Basic x, Bearer abc"], Absent),
        (&[b"Bearers abc"], Absent),
        (&[b"abc"], Absent),
        (&[b"Bearer abc", b"Bearer def"], token("abc")),
        (&[b"", b"Bearer def"], Absent),
        (&[b"Basic x", b"Bearer def"], Absent),
        (&["Bearer t\u{fc}r".as_bytes()], token("t\u{fc}r")),
        (&[b"Bearer \xff"], Invalid),
        (&[b" bearer \xff"], Invalid),
        (&[b"Basic \xff"], Absent),
        (&[b"Bearer \tabc"], Invalid),
    ];
    for (values, expected) in rows {
        let pairs: Vec<_> = values
            .iter()
            .map(|value| ("authorization", *value))
            .collect();
        assert_eq!(authorization(&headers(&pairs)), expected, "{values:?}");
    }
}

#[test]
fn a_websocket_client_may_send_its_token_as_a_subprotocol() {
    use TokenHeader::{Absent, Invalid};
    // The payloads decode to "abc", to a text with a space ("a b"), to bytes that are not UTF-8, and to nothing.
    let rows: [(&[&str], TokenHeader); 14] = [
        (
            &["base64url.bearer.authorization.k8s.io.YWJj, v1"],
            token("abc"),
        ),
        (
            &["v1,base64url.bearer.authorization.k8s.io.YWJj"],
            token("abc"),
        ),
        (
            &["v1", "base64url.bearer.authorization.k8s.io.YWJj"],
            token("abc"),
        ),
        (&["base64url.bearer.authorization.k8s.io.YWJj"], Invalid),
        (
            &["base64url.bearer.authorization.k8s.io.YWJj,"],
            token("abc"),
        ),
        (
            &["base64url.bearer.authorization.k8s.io.YWJj=, v1"],
            Invalid,
        ),
        (&["base64url.bearer.authorization.k8s.io.Y+, v1"], Invalid),
        (&["base64url.bearer.authorization.k8s.io._w, v1"], Invalid),
        (&["base64url.bearer.authorization.k8s.io.YSBi, v1"], Invalid),
        (&["base64url.bearer.authorization.k8s.io., v1"], Absent),
        (
            &[
                "base64url.bearer.authorization.k8s.io.YWJj, base64url.bearer.authorization.k8s.io.YWJj, v1",
            ],
            Invalid,
        ),
        (
            &[
                "base64url.bearer.authorization.k8s.io.YWJj, v1",
                "base64url.bearer.authorization.k8s.io.ZGVm",
            ],
            Invalid,
        ),
        (&["Base64url.bearer.authorization.k8s.io.YWJj, v1"], Absent),
        (&["v1"], Absent),
    ];
    for (values, expected) in rows {
        let protocols = values
            .iter()
            .map(|value| ("sec-websocket-protocol", value.as_bytes()));
        let protocols: Vec<_> = protocols.collect();
        let upgrade: [(&str, &[u8]); 2] =
            [("upgrade", b"WebSocket"), ("connection", b"x, Upgrade")];
        let all = [upgrade.as_slice(), &protocols].concat();
        assert_eq!(websocket(&headers(&all)), expected, "{values:?}");
        // In a request that is no WebSocket upgrade, the header is ignored.
        for some in [&upgrade[..1], &upgrade[1..], &[]] {
            let some = [some, &protocols].concat();
            assert_eq!(websocket(&headers(&some)), Absent, "{values:?}");
        }
    }
}

fn jwt(claims: &str) -> BearerToken {
    let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
    BearerToken::new(&format!("{}.{}.signature", part("{}"), part(claims))).unwrap()
}

#[test]
fn a_token_says_when_it_expires() {
    let at = |seconds: u64| Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
    let deep = format!(
        r#"{{"a":{}1{},"exp":5}}"#,
        "[".repeat(1000),
        "]".repeat(1000)
    );
    let long = format!(r#"{{"a":"{}","exp":5}}"#, "x".repeat(PAYLOAD_LEN_MAX));
    let rows = [
        (&*long, None),
        (r#"{"exp":1700000000}"#, at(1_700_000_000)),
        (r#"{"exp":1.7e9,"sub":"x"}"#, at(1_700_000_000)),
        (r#"{"exp":-1}"#, at(0)),
        (r#"{"exp":1e300}"#, None),
        (r#"{"exp":"1700000000"}"#, None),
        (r#"{"exp":null}"#, None),
        (r#"{"sub":"x"}"#, None),
        (r#"[1700000000]"#, at(1_700_000_000)),
        ("", None),
        ("null", None),
        (&deep, at(5)),
    ];
    for (claims, expected) in rows {
        assert_eq!(expiry(&jwt(claims)), expected, "{claims:.60}");
    }
    let exp = URL_SAFE_NO_PAD.encode(r#"{"exp":1700000000}"#);
    for secret in [
        exp.clone(),
        format!("a.{exp}"),
        format!("a.{exp}.c.d"),
        format!("a.{exp}=.c"),
    ] {
        assert_eq!(
            expiry(&BearerToken::new(&secret).unwrap()),
            None,
            "{secret:.60}"
        );
    }
}

#[test]
fn a_token_is_never_shown() {
    let token = BearerToken::new("very-secret").unwrap();
    assert_eq!(token.secret(), "very-secret");
    let shown = format!(
        "{token:?} {:?} {:?}",
        TokenHeader::Token(token.clone()),
        token.authorization()
    );
    assert!(!shown.contains("very-secret"), "{shown}");
}
