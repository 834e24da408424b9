//! The options of lists and watches in the query (docs/PROTOCOL.md §2.1), and which combinations are allowed.

use crate::protocol::status::{Status, StatusCause, StatusDetails, go_json};
use crate::selector::quoted;

use super::query::Query;

const MATCH: &str = "resourceVersionMatch";
const INITIAL: &str = "sendInitialEvents";
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
    /// Parses the part of a URL after `?`. Unknown parameters are ignored.
    ///
    /// # Errors
    /// 400 for a value that is not a number.
    pub fn parse(query: Option<&str>) -> Result<Self, Status> {
        Self::from_query(&Query::parse(query))
    }

    /// Reads the options from decoded parameters.
    ///
    /// # Errors
    /// 400 for a value that is not a number.
    pub fn from_query(query: &Query) -> Result<Self, Status> {
        let text = |name| query.first(name).unwrap_or_default().to_owned();
        // In the API server's order, so that the error names the same number.
        let timeout_seconds = query.first("timeoutSeconds").map(integer).transpose()?;
        let limit = query.first("limit").map(integer).transpose()?;
        Ok(Self {
            label_selector: text("labelSelector"),
            field_selector: text("fieldSelector"),
            watch: is_true(query.first("watch")),
            allow_watch_bookmarks: is_true(query.first("allowWatchBookmarks")),
            send_initial_events: query.first(INITIAL).map(|value| is_true(Some(value))),
            resource_version: text("resourceVersion"),
            resource_version_match: text(MATCH),
            limit: limit.unwrap_or(0),
            continue_token: text("continue"),
            timeout_seconds,
            shard_selector: text("shardSelector"),
        })
    }

    /// Length of all selectors together, in bytes.
    pub(crate) fn selectors_len(&self) -> usize {
        self.label_selector.len() + self.field_selector.len() + self.shard_selector.len()
    }

    /// Whether a watch from `""` or `"0"` leaves `sendInitialEvents` out: it gets initial events (docs/PROTOCOL.md §2.3).
    pub(super) fn defaults_to_initial_events(&self) -> bool {
        self.watch
            && self.send_initial_events.is_none()
            && self.resource_version_match.is_empty()
            && matches!(&*self.resource_version, "" | "0")
    }

    /// Checks the combination of options (docs/PROTOCOL.md §2.2, §2.3).
    ///
    /// # Errors
    /// 422 with all faults (docs/PROTOCOL.md §2.4).
    pub fn validate(&self) -> Result<(), Status> {
        let causes = if self.watch {
            self.watch_faults()
        } else {
            self.list_faults()
        };
        if causes.is_empty() {
            return Ok(());
        }
        let details = StatusDetails {
            group: "meta.k8s.io".to_owned(),
            kind: "ListOptions".to_owned(),
            causes,
            ..StatusDetails::default()
        };
        Err(Status::invalid("ListOptions.meta.k8s.io", details))
    }

    fn list_faults(&self) -> Vec<StatusCause> {
        let mut faults = Vec::new();
        let version_match = &*self.resource_version_match;
        if !version_match.is_empty() {
            if self.resource_version.is_empty() {
                faults.push(StatusCause::forbidden(
                    MATCH,
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                ));
            }
            if !self.continue_token.is_empty() {
                faults.push(match_with_continue());
            }
            if version_match != EXACT && version_match != NOT_OLDER {
                faults.push(unsupported(version_match, r#""Exact", "NotOlderThan", """#));
            }
            if version_match == EXACT && self.resource_version == "0" {
                faults.push(StatusCause::forbidden(
                    MATCH,
                    "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
                ));
            }
        }
        if self.send_initial_events.is_some() {
            faults.push(StatusCause::forbidden(
                INITIAL,
                "sendInitialEvents is forbidden for list",
            ));
        }
        faults
    }

    fn watch_faults(&self) -> Vec<StatusCause> {
        let mut faults = Vec::new();
        // Defaults are validated as if the client had sent them.
        let (version_match, initial_events) = if self.defaults_to_initial_events() {
            (NOT_OLDER, Some(true))
        } else {
            (&*self.resource_version_match, self.send_initial_events)
        };
        if initial_events.is_some() && version_match != NOT_OLDER {
            faults.push(StatusCause::forbidden(
                MATCH,
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ));
        }
        if version_match.is_empty() {
            return faults;
        }
        if initial_events.is_none() {
            faults.push(StatusCause::forbidden(
                MATCH,
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ));
        }
        if version_match != NOT_OLDER {
            faults.push(unsupported(version_match, r#""NotOlderThan""#));
        }
        if !self.continue_token.is_empty() {
            faults.push(match_with_continue());
        }
        faults
    }
}

/// The API server's rule for booleans: present, and neither `0` nor `false` in any case (docs/PROTOCOL.md §1.3).
#[must_use]
pub fn is_true(value: Option<&str>) -> bool {
    value.is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
}

/// Parses a signed number; the error is Go's message.
fn integer(text: &str) -> Result<i64, Status> {
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    text.parse().map_err(|fault: std::num::ParseIntError| {
        let fault = if matches!(fault.kind(), PosOverflow | NegOverflow) {
            "value out of range"
        } else {
            "invalid syntax"
        };
        Status::bad_request(format!(
            "strconv.ParseInt: parsing {}: {fault}",
            quoted(text)
        ))
    })
}

fn match_with_continue() -> StatusCause {
    StatusCause::forbidden(
        MATCH,
        "resourceVersionMatch is forbidden when continue is provided",
    )
}

/// The API server prints values of named string types as JSON, with `<`, `>` and `&` escaped.
fn unsupported(value: &str, supported: &str) -> StatusCause {
    let value = String::from_utf8_lossy(&go_json(value)).into_owned();
    StatusCause::unsupported(MATCH, &value, supported)
}
