//! The query of a request: its options, which of them fit together, and continue tokens (docs/PROTOCOL.md §2, §3.4).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};

use super::json;
use super::status::Status;

const TOKEN_LAYOUT: &str = "meta.k8s.io/v1";

/// The parameters of a query, decoded.
#[derive(Clone, Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    pub(super) fn parse(query: Option<&str>) -> Self {
        let pairs = query
            .unwrap_or_default()
            .split('&')
            .filter(|pair| !pair.is_empty());
        let decode = |text: &str| {
            let text = text.replace('+', " ");
            percent_decode_str(&text).decode_utf8_lossy().into_owned()
        };
        let pairs = pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(value))
        });
        Self(pairs.collect())
    }

    /// The first value; empty if there is none.
    pub(super) fn first(&self, name: &str) -> &str {
        self.all(name).next().unwrap_or_default()
    }

    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        let pairs = self.0.iter().filter(move |(key, _)| key == name);
        pairs.map(|(_, value)| value.as_str())
    }

    /// A boolean as kube-apiserver reads it; `None` if it is absent.
    pub(super) fn flag(&self, name: &str) -> Option<bool> {
        let value = self.all(name).next()?;
        Some(value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    fn integer(&self, name: &str) -> Result<i64, Status> {
        let text = self.first(name);
        if text.is_empty() {
            return Ok(0);
        }
        let invalid = |_| Status::bad_request(format!("{name} is no integer: {text:?}"));
        text.parse().map_err(invalid)
    }
}

/// The message for a version that is no unsigned number.
pub(super) fn unsigned_error(text: &str) -> String {
    format!("invalid resource version: {text:?}")
}

/// The options of a list or a watch.
#[derive(Clone, Debug, Default)]
pub(super) struct ListOptions {
    pub(super) label_selector: String,
    pub(super) field_selector: String,
    version: String,
    version_match: String,
    continue_token: String,
    limit: i64,
    pub(super) allows_bookmarks: bool,
    initial_events: Option<bool>,
    pub(super) timeout_seconds: i64,
}

/// The state that a list is read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Consistency {
    /// The newest.
    Latest,
    /// Whatever the server has.
    Cached,
    AtLeast(u64),
    Exactly(u64),
}

/// A list's state, and the part of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ListRange {
    pub(super) consistency: Consistency,
    /// The first key, relative to the namespace.
    pub(super) start: String,
    /// At most so many items.
    pub(super) limit: Option<usize>,
    /// Whether a continue token says where to start.
    pub(super) is_continued: bool,
}

/// Where a watch starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchStart {
    /// With the objects of this state; a marker follows them if `has_marker`.
    Initial {
        consistency: Consistency,
        has_marker: bool,
    },
    /// After the newest version.
    Now,
    After(u64),
}

impl ListOptions {
    /// Parses the options.
    ///
    /// # Errors
    /// 400 for an integer that is none.
    pub(super) fn parse(query: &Query) -> Result<Self, Status> {
        let text = |name| query.first(name).to_owned();
        Ok(Self {
            label_selector: text("labelSelector"),
            field_selector: text("fieldSelector"),
            version: text("resourceVersion"),
            version_match: text("resourceVersionMatch"),
            continue_token: text("continue"),
            limit: query.integer("limit")?,
            allows_bookmarks: query.flag("allowWatchBookmarks").unwrap_or(false),
            initial_events: query.flag("sendInitialEvents"),
            timeout_seconds: query.integer("timeoutSeconds")?,
        })
    }

    /// What a list reads. `is_single` tells that it can only have one object.
    ///
    /// # Errors
    /// 422 for options that do not fit together, 400 for a version or a token.
    pub(super) fn list(&self, is_single: bool) -> Result<ListRange, Status> {
        self.check_list()?;
        let limit = usize::try_from(self.limit).ok().filter(|limit| *limit > 0);
        let limit = limit.filter(|_| self.version != "0");
        if !self.continue_token.is_empty() {
            if !matches!(self.version.as_str(), "" | "0") {
                let message = "specifying resource version is not allowed when using continue";
                return Err(Status::bad_request(message));
            }
            let token = ContinueToken::parse(&self.continue_token);
            let token = token.ok_or_else(|| Status::bad_request("invalid continue token"))?;
            let consistency = match u64::try_from(token.rv) {
                Ok(version) => Consistency::Exactly(version),
                Err(_) => Consistency::Latest,
            };
            return Ok(ListRange {
                consistency,
                start: token.start,
                limit,
                is_continued: true,
            });
        }
        let version = self.version.parse::<u64>().ok();
        let consistency = match (version, self.version_match.as_str()) {
            (None, _) if self.version.is_empty() => Consistency::Latest,
            (None, _) => {
                return Err(Status::bad_request(unsigned_error(&self.version)));
            }
            (Some(0), _) => Consistency::Cached,
            (Some(version), "Exact") => Consistency::Exactly(version),
            (Some(version), "") if limit.is_some() && !is_single => Consistency::Exactly(version),
            (Some(version), _) => Consistency::AtLeast(version),
        };
        Ok(ListRange {
            consistency,
            start: String::new(),
            limit,
            is_continued: false,
        })
    }

    fn check_list(&self) -> Result<(), Status> {
        let version_match = self.version_match.as_str();
        if self.initial_events.is_some() {
            return Err(Status::invalid("sendInitialEvents is forbidden for list"));
        }
        if version_match.is_empty() {
            return Ok(());
        }
        self.check_match(&["Exact", "NotOlderThan"])?;
        if self.version.is_empty() || (version_match == "Exact" && self.version == "0") {
            return Err(Status::invalid(
                "resourceVersionMatch needs a resourceVersion",
            ));
        }
        Ok(())
    }

    fn check_match(&self, supported: &[&str]) -> Result<(), Status> {
        if !supported.contains(&self.version_match.as_str()) {
            let message = format!("resourceVersionMatch must be one of {supported:?}");
            return Err(Status::invalid(message));
        }
        if !self.continue_token.is_empty() {
            let message = "resourceVersionMatch is forbidden when continue is provided";
            return Err(Status::invalid(message));
        }
        Ok(())
    }

    /// Where a watch starts. `is_prefixed` tells that the path has the deprecated `watch` segment.
    ///
    /// # Errors
    /// 422 for options that do not fit together, 500 for a version that cannot be parsed.
    pub(super) fn watch(&self, is_prefixed: bool) -> Result<WatchStart, Status> {
        let is_from_start = matches!(self.version.as_str(), "" | "0");
        if is_prefixed {
            self.check_list()?;
        }
        let is_default = self.initial_events.is_none() && self.version_match.is_empty();
        if !is_prefixed && !is_default {
            self.check_watch()?;
        }
        let version: u64 = match self.version.as_str() {
            "" => 0,
            text => text
                .parse()
                .map_err(|_| Status::untyped(unsigned_error(text)))?,
        };
        let has_initial = match self.initial_events {
            Some(has_initial) => has_initial,
            None => is_default && is_from_start,
        };
        Ok(match (has_initial, self.version.as_str()) {
            (true, text) => WatchStart::Initial {
                consistency: match (text, version) {
                    ("", _) if !is_prefixed => Consistency::Latest,
                    (_, 0) => Consistency::Cached,
                    _ => Consistency::AtLeast(version),
                },
                has_marker: self.allows_bookmarks && !is_prefixed,
            },
            (false, _) if version == 0 => WatchStart::Now,
            (false, _) => WatchStart::After(version),
        })
    }

    fn check_watch(&self) -> Result<(), Status> {
        self.check_match(&["NotOlderThan"])?;
        if self.initial_events.is_none() {
            let message = "resourceVersionMatch is forbidden for watch without sendInitialEvents";
            return Err(Status::invalid(message));
        }
        Ok(())
    }
}

/// Where a paged list goes on.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ContinueToken {
    v: String,
    /// The version of all pages; negative for the latest.
    #[serde(default)]
    pub(super) rv: i64,
    /// The first key that is left, relative to the list's namespace.
    #[serde(default)]
    pub(super) start: String,
}

impl ContinueToken {
    /// The text of the token after a key. With `version` `None` the list goes on at the latest version.
    pub(super) fn text(start: &str, version: Option<u64>) -> String {
        let token = Self {
            v: TOKEN_LAYOUT.to_owned(),
            rv: version.map_or(-1, |version| i64::try_from(version).unwrap_or(i64::MAX)),
            start: format!("/{start}"),
        };
        URL_SAFE_NO_PAD.encode(json::compact(&token))
    }

    fn parse(text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let mut token: Self = serde_json::from_slice(&bytes).ok()?;
        let start = token.start.strip_prefix('/')?.to_owned();
        let is_path = !start
            .split('/')
            .any(|segment| matches!(segment, "" | "." | ".."));
        token.start = start;
        (token.v == TOKEN_LAYOUT && token.rv != 0 && is_path).then_some(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(query: &str) -> ListOptions {
        ListOptions::parse(&Query::parse(Some(query))).unwrap()
    }

    #[test]
    fn a_list_reads_the_state_that_its_version_asks_for() {
        for (query, consistency, limit) in [
            ("", Consistency::Latest, None),
            ("limit=2", Consistency::Latest, Some(2)),
            ("resourceVersion=0&limit=2", Consistency::Cached, None),
            ("resourceVersion=7", Consistency::AtLeast(7), None),
            (
                "resourceVersion=7&limit=2",
                Consistency::Exactly(7),
                Some(2),
            ),
            (
                "resourceVersion=7&limit=2&resourceVersionMatch=NotOlderThan",
                Consistency::AtLeast(7),
                Some(2),
            ),
            (
                "resourceVersion=7&resourceVersionMatch=Exact",
                Consistency::Exactly(7),
                None,
            ),
        ] {
            let range = options(query).list(false).unwrap();
            assert_eq!(
                (range.consistency, range.limit),
                (consistency, limit),
                "{query}"
            );
        }
        let single = options("resourceVersion=7&limit=2").list(true).unwrap();
        assert_eq!(single.consistency, Consistency::AtLeast(7));
    }

    #[test]
    fn a_watch_starts_as_its_options_say() {
        let initial = |consistency, has_marker| WatchStart::Initial {
            consistency,
            has_marker,
        };
        let not_older = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
        for (query, expected) in [
            (String::new(), initial(Consistency::Latest, false)),
            (
                "allowWatchBookmarks=1".into(),
                initial(Consistency::Latest, true),
            ),
            (
                "resourceVersion=0".into(),
                initial(Consistency::Cached, false),
            ),
            ("resourceVersion=7".into(), WatchStart::After(7)),
            (
                format!("{not_older}&resourceVersion=7&allowWatchBookmarks"),
                initial(Consistency::AtLeast(7), true),
            ),
            (
                "sendInitialEvents=false&resourceVersionMatch=NotOlderThan".into(),
                WatchStart::Now,
            ),
        ] {
            assert_eq!(options(&query).watch(false).unwrap(), expected, "{query}");
        }
        let prefixed = options("allowWatchBookmarks=1").watch(true).unwrap();
        assert_eq!(prefixed, initial(Consistency::Cached, false));
    }

    #[test]
    fn options_that_do_not_fit_together_are_refused() {
        for (query, code) in [
            ("resourceVersionMatch=Exact", 422),
            ("resourceVersion=0&resourceVersionMatch=Exact", 422),
            ("resourceVersion=1&resourceVersionMatch=x", 422),
            ("sendInitialEvents=true", 422),
            ("resourceVersion=abc", 400),
            ("continue=!", 400),
            ("resourceVersion=1&continue=x", 400),
        ] {
            let refused = options(query).list(false).unwrap_err();
            assert_eq!(refused.code, code, "{query}");
        }
        for query in [
            "resourceVersionMatch=Exact&resourceVersion=1",
            "resourceVersionMatch=NotOlderThan",
            "sendInitialEvents=true",
        ] {
            let refused = options(query).watch(false).unwrap_err();
            assert_eq!(refused.code, 422, "{query}");
        }
        let limit = ListOptions::parse(&Query::parse(Some("limit=abc")));
        assert_eq!(limit.unwrap_err().code, 400);
    }

    #[test]
    fn a_token_names_the_version_and_the_key_where_a_list_goes_on() {
        let text = ContinueToken::text("ns/a\0", Some(14));
        let token = ContinueToken::parse(&text).unwrap();
        assert_eq!((token.rv, token.start.as_str()), (14, "ns/a\0"));
        assert_eq!(
            ContinueToken::parse(&ContinueToken::text("a", None))
                .unwrap()
                .rv,
            -1
        );
        let bad = URL_SAFE_NO_PAD.encode(r#"{"v":"meta.k8s.io/v1","rv":1,"start":"a/../b"}"#);
        assert_eq!(ContinueToken::parse(&bad), None);
    }
}
