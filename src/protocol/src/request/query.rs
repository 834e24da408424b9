//! Parses query strings as Go's `url.ParseQuery` does. Knows no parameter by name.

use std::borrow::Cow;

/// With more pairs Go rejects the whole query (its `urlmaxqueryparams` limit).
const PAIR_COUNT_MAX: usize = 10_000;

/// The decoded pairs in their order, without pairs that have an invalid escape or a `;`, as on the API server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    /// Parses the part of a URL after `?`. Bytes that are not UTF-8 become U+FFFD.
    #[must_use]
    pub fn parse(query: Option<&str>) -> Self {
        let query = query.unwrap_or_default();
        if query.bytes().filter(|byte| *byte == b'&').count() >= PAIR_COUNT_MAX {
            return Self::default();
        }
        let pairs = query
            .split('&')
            .filter(|pair| !pair.is_empty() && !pair.contains(';'))
            .filter_map(|pair| {
                let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                Some((
                    unescape(key, PlusSign::IsBlank)?,
                    unescape(value, PlusSign::IsBlank)?,
                ))
            })
            .collect();
        Self { pairs }
    }

    /// The names of the parameters, repeated ones included.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.pairs.iter().map(|(key, _)| &**key)
    }

    /// The first value of a parameter; later ones are ignored.
    #[must_use]
    pub fn first(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// All values of a parameter, for the few that may be repeated.
    pub fn all<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        let matching = self.pairs.iter().filter(move |(key, _)| key == name);
        matching.map(|(_, value)| &**value)
    }
}

/// How `+` is decoded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PlusSign {
    IsBlank,
    IsPlus,
}

/// Resolves `%XX`; `None` if an escape is invalid.
pub(super) fn unescape(text: &str, plus: PlusSign) -> Option<String> {
    if !text.bytes().any(|b| matches!(b, b'%' | b'+')) {
        return Some(text.to_owned());
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        match first {
            b'%' => {
                let [high, low, tail @ ..] = tail else {
                    return None;
                };
                out.push(hex(*high)? << 4 | hex(*low)?);
                rest = tail;
            }
            b'+' if plus == PlusSign::IsBlank => out.push(b' '),
            byte => out.push(*byte),
        }
    }
    Some(match String::from_utf8_lossy(&out) {
        Cow::Borrowed(text) => text.to_owned(),
        Cow::Owned(text) => text,
    })
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}
