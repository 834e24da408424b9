//! The options of lists and watches in the query (docs/PROTOCOL.md §2.1), and which combinations are allowed.

use super::query::Query;

pub(super) const EXACT: &str = "Exact";
pub(super) const NOT_OLDER: &str = "NotOlderThan";

/// The options as the client gave them, without defaults. Selectors are not parsed yet: that needs the resource's field table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// `labelSelector`; empty when absent.
    pub label_selector: String,
    /// `fieldSelector`; empty when absent.
    pub field_selector: String,
    /// `watch` in the query; the `/watch/` prefix does not set it (docs/PROTOCOL.md §1.4).
    pub watch: bool,
    /// `allowWatchBookmarks`.
    pub allow_watch_bookmarks: bool,
    /// `sendInitialEvents`; absent and false mean different things.
    pub send_initial_events: Option<bool>,
    /// `resourceVersion`; empty when absent.
    pub resource_version: String,
    /// `resourceVersionMatch`; empty when absent.
    pub resource_version_match: String,
    /// `limit`; 0 or less means no limit.
    pub limit: i64,
    /// `continue`; empty when absent.
    pub continue_token: String,
    /// `timeoutSeconds`.
    pub timeout_seconds: Option<i64>,
    /// `shardSelector`; empty when absent.
    pub shard_selector: String,
}

impl ListOptions {
    /// Reads the options from decoded parameters; `None` if a number among them is not one. Other parameters are ignored.
    #[must_use]
    pub fn from_query(query: &Query) -> Option<Self> {
        let text = |name| query.first(name).unwrap_or_default().to_owned();
        let number = |name| query.first(name).map(str::parse).transpose().ok();
        let initial_events = query.first("sendInitialEvents");
        Some(Self {
            label_selector: text("labelSelector"),
            field_selector: text("fieldSelector"),
            watch: is_true(query.first("watch")),
            allow_watch_bookmarks: is_true(query.first("allowWatchBookmarks")),
            send_initial_events: initial_events.map(|value| is_true(Some(value))),
            resource_version: text("resourceVersion"),
            resource_version_match: text("resourceVersionMatch"),
            limit: number("limit")?.unwrap_or(0),
            continue_token: text("continue"),
            timeout_seconds: number("timeoutSeconds")?,
            shard_selector: text("shardSelector"),
        })
    }

    /// Length of all selectors together, in bytes.
    pub fn selectors_len(&self) -> usize {
        self.label_selector.len() + self.field_selector.len() + self.shard_selector.len()
    }

    /// Whether a watch from `""` or `"0"` leaves `sendInitialEvents` out: it gets initial events (docs/PROTOCOL.md §2.3).
    pub(super) fn defaults_to_initial_events(&self) -> bool {
        self.watch
            && self.send_initial_events.is_none()
            && self.resource_version_match.is_empty()
            && matches!(&*self.resource_version, "" | "0")
    }

    /// Whether the combination of options is allowed (docs/PROTOCOL.md §2.2, §2.3).
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        if self.watch {
            self.is_allowed_watch()
        } else {
            self.is_allowed_list()
        }
    }

    fn is_allowed_list(&self) -> bool {
        let is_match_allowed = match &*self.resource_version_match {
            "" => true,
            EXACT => !matches!(&*self.resource_version, "" | "0") && self.continue_token.is_empty(),
            NOT_OLDER => !self.resource_version.is_empty() && self.continue_token.is_empty(),
            _ => false,
        };
        is_match_allowed && self.send_initial_events.is_none()
    }

    fn is_allowed_watch(&self) -> bool {
        match (&*self.resource_version_match, self.send_initial_events) {
            // The default is validated as if the client had sent it.
            ("", None) => !self.defaults_to_initial_events() || self.continue_token.is_empty(),
            (NOT_OLDER, Some(_)) => self.continue_token.is_empty(),
            _ => false,
        }
    }
}

/// The API server's rule for booleans: present, and neither `0` nor `false` in any case (docs/PROTOCOL.md §1.3).
#[must_use]
pub fn is_true(value: Option<&str>) -> bool {
    value.is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
}
