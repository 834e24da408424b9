//! Whether an `Origin` header parses with Go's `url.ParseRequestURI`. Pure; builds no URL.

/// The API server's verdict on an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OriginVerdict {
    /// The origin parses and is accepted.
    Parses,
    /// The origin does not parse and is rejected.
    Fails,
    /// The origin has escapes, a user or a bracketed address; the rules for these differ between API server releases.
    Unclear,
}

pub(super) fn judge_origin(origin: &[u8]) -> OriginVerdict {
    let has_control = origin.iter().any(|byte| *byte < b' ' || *byte == 0x7f);
    if origin.is_empty() || origin == b"null" || has_control {
        return OriginVerdict::Fails;
    }
    if origin == b"*" {
        return OriginVerdict::Parses;
    }
    let Some((scheme, rest)) = split_scheme(origin) else {
        return OriginVerdict::Fails;
    };
    let rest = before(rest, b'?');
    match rest.strip_prefix(b"//") {
        _ if !rest.starts_with(b"/") && scheme.is_empty() => OriginVerdict::Fails,
        _ if !rest.starts_with(b"/") => OriginVerdict::Parses,
        _ if rest.contains(&b'%') => OriginVerdict::Unclear,
        Some(rest) if !scheme.is_empty() => authority(before(rest, b'/')),
        _ => OriginVerdict::Parses,
    }
}

/// The scheme, empty if there is none, and the rest after its colon; `None` if the text begins with a colon.
fn split_scheme(text: &[u8]) -> Option<(&[u8], &[u8])> {
    for (at, byte) in text.iter().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at > 0 => return Some((&text[..at], &text[at + 1..])),
            b':' => return None,
            _ => break,
        }
    }
    Some((b"", text))
}

fn before(text: &[u8], end: u8) -> &[u8] {
    &text[..memchr::memchr(end, text).unwrap_or(text.len())]
}

fn authority(text: &[u8]) -> OriginVerdict {
    if text.iter().any(|byte| matches!(byte, b'@' | b'[' | b']')) {
        return OriginVerdict::Unclear;
    }
    let port = memchr::memrchr(b':', text).map_or(&[][..], |at| &text[at + 1..]);
    let is_host = |byte: &u8| {
        byte.is_ascii_alphanumeric() || !byte.is_ascii() || b"-_.~!$&'()*+,;=:<>\"".contains(byte)
    };
    if port.iter().all(u8::is_ascii_digit) && text.iter().all(is_host) {
        OriginVerdict::Parses
    } else {
        OriginVerdict::Fails
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(expected: OriginVerdict, origins: &[&str]) {
        for origin in origins {
            assert_eq!(judge_origin(origin.as_bytes()), expected, "{origin}");
        }
    }

    #[test]
    fn origins_parse_as_the_server_has_it() {
        check(
            OriginVerdict::Parses,
            &[
                "http://127.0.0.1",
                "https://example.com:8443/a?b#c",
                "/x",
                "//x",
                "foo:bar",
                "*",
                "http://",
                "http://é",
                "chrome-extension://abc",
                "x:?y%zz",
            ],
        );
        check(
            OriginVerdict::Fails,
            &[
                "",
                "null",
                "example.com",
                "http://a b",
                "http://x:abc",
                "://x",
                "1a:b",
                "http://x\u{1}",
                "?x",
            ],
        );
        check(
            OriginVerdict::Unclear,
            &[
                "http://[::1",
                "http://[::1]:80",
                "http://%zz",
                "http://u@x:80",
            ],
        );
    }
}
