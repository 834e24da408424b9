//! Keys of a user's extra attributes as parts of header names. They are percent-encoded, because header names allow few characters.

use percent_encoding::{AsciiSet, utf8_percent_encode};

/// Decodes a key from a header name without its prefix, in lower case. Like the API server, it returns the input unchanged if a percent
/// sequence is invalid. `None` if the decoded bytes are not UTF-8.
#[must_use]
pub(super) fn decode(encoded: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(encoded.len());
    let mut rest = encoded.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        if byte != b'%' {
            decoded.push(byte);
            rest = tail;
            continue;
        }
        let digits = tail.split_first_chunk();
        let Some((value, tail)) = digits.and_then(|(digits, tail)| Some((hex(*digits)?, tail)))
        else {
            return Some(encoded.to_owned());
        };
        decoded.push(value);
        rest = tail;
    }
    String::from_utf8(decoded).ok()
}

/// What a header name may contain (RFC 9110 §5.6.2), without `%`, and without upper-case letters: the API server lower-cases header names
/// before it decodes them.
const KEPT: &[u8] = b"!#$&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz";
const ENCODED: &AsciiSet = &{
    let mut kept = AsciiSet::EMPTY;
    let mut at = 0;
    while at < KEPT.len() {
        kept = kept.add(KEPT[at]);
        at += 1;
    }
    kept.complement()
};

/// Encodes a key for use in a header name.
#[must_use]
pub(super) fn encode(key: &str) -> String {
    let mut encoded = utf8_percent_encode(key, ENCODED).to_string();
    encoded.make_ascii_lowercase();
    encoded
}

fn hex([high, low]: [u8; 2]) -> Option<u8> {
    let high = char::from(high).to_digit(16)?;
    let low = char::from(low).to_digit(16)?;
    u8::try_from(high * 16 + low).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_decoded_as_the_api_server_does() {
        let rows = [
            ("scopes", Some("scopes")),
            ("", Some("")),
            ("example.org%2fpath", Some("example.org/path")),
            ("%25", Some("%")),
            ("%2525", Some("%25")),
            ("a+b", Some("a+b")),
            ("%", Some("%")),
            ("a%2", Some("a%2")),
            ("%zz%41", Some("%zz%41")),
            ("%+1", Some("%+1")),
            ("%c3%bc", Some("ü")),
            ("%ff", None),
            ("%00", Some("\0")),
        ];
        for (encoded, expected) in rows {
            assert_eq!(decode(encoded).as_deref(), expected, "{encoded}");
        }
    }

    #[test]
    fn only_what_a_header_name_may_have_is_not_encoded() {
        let ascii: String = (0..=127_u8).map(char::from).collect();
        let kept: String = encode(&ascii)
            .split('%')
            .map(|part| part.get(2..).unwrap_or(""))
            .collect();
        assert_eq!(kept, "!#$&'*+-.0123456789^_`abcdefghijklmnopqrstuvwxyz|~");
        assert_eq!(encode("Kö/%"), "%4b%c3%b6%2f%25");
    }

    #[test]
    fn every_key_comes_back() {
        for key in ["scopes", "", "Example.org/Path%2f", "ü \0", "a_b", "%"] {
            let encoded = encode(key);
            assert_eq!(encoded, encoded.to_lowercase());
            assert_eq!(decode(&encoded).as_deref(), Some(key), "{encoded}");
        }
    }
}
