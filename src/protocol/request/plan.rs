//! What follows from the options: from which state a list is read, where a watch starts (docs/PROTOCOL.md §11).

use std::time::Duration;

use super::options::{EXACT, ListOptions, NOT_OLDER};
use crate::protocol::continue_token::{ContinueToken, TokenVersion};
use crate::protocol::status::Status;
use crate::resource::ResourceVersion;
use crate::view::selector::quoted;

/// How a list is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListPlan {
    /// From which state.
    pub read: ListRead,
    /// Items of a page; `None` for all. Never set for [`ListRead::Cached`].
    pub limit: Option<u64>,
    /// First key that may be in the answer, relative to the range and with no leading slash. It ends in a NUL, which
    /// puts it behind the last key of the page before.
    pub start: Option<String>,
}

/// The state that a list is read from (§3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListRead {
    /// The newest there is, proven.
    Latest,
    /// Whatever the cache holds, at once.
    Cached,
    /// The cache once it has reached this version.
    AtLeast(ResourceVersion),
    /// The cache if it has reached this version, else upstream, which reads this from its store and does not wait.
    AtLeastNow(ResourceVersion),
    /// The state at this version.
    Exact(ResourceVersion),
}

/// How a watch starts and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchPlan {
    /// Where it starts.
    pub start: WatchStart,
    /// Whether bookmarks are sent.
    pub bookmarks: Bookmarks,
    /// When it ends.
    pub timeout: WatchTimeout,
}

/// Where a watch starts (§4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchStart {
    /// With the whole matching state as ADDED events, then what follows it.
    Initial {
        /// How fresh that state must be.
        freshness: Freshness,
        /// Whether a bookmark closes it.
        marker: EndMarker,
    },
    /// With what happens from now on.
    FromNow {
        /// Which now: upstream's ([`Freshness::Latest`]) or the cache's ([`Freshness::Any`]). Nothing is waited for.
        freshness: Freshness,
    },
    /// With the first event after this version.
    After(ResourceVersion),
}

/// How fresh a state must be before it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// As new as upstream (`""`).
    Latest,
    /// Any state will do (`"0"`).
    Any,
    /// Not older than this version.
    AtLeast(ResourceVersion),
}

/// Whether the bookmark that closes the initial events is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndMarker {
    /// Sent once, after the last initial event.
    Sent,
    /// Not asked for: no bookmarks allowed, or no initial events requested.
    Omitted,
}

/// Whether a watch gets bookmarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bookmarks {
    /// Yes.
    On,
    /// No.
    Off,
}

/// When a watch ends by itself (§4.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchTimeout {
    /// After 30 to 60 minutes, as is drawn.
    Default,
    /// After this many seconds.
    Seconds(u64),
    /// At once.
    Ended,
}

/// kube-apiserver's range when the client names no timeout: 30 to 60 minutes.
const TIMEOUT_MIN: Duration = Duration::from_secs(1800);
/// A century: what Go's clock would take as well, and ours without overflow.
const TIMEOUT_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

impl WatchTimeout {
    /// How long the watch lasts; `fraction`, below 1, is drawn for those that name no time.
    #[must_use]
    pub fn lasts(self, fraction: f64) -> Duration {
        match self {
            Self::Default => TIMEOUT_MIN + TIMEOUT_MIN.mul_f64(fraction),
            Self::Seconds(seconds) => Duration::from_secs(seconds).min(TIMEOUT_MAX),
            Self::Ended => Duration::ZERO,
        }
    }
}

impl ListPlan {
    /// Decides for a list of a range.
    ///
    /// # Errors
    /// 422 for options that do not go together, 400 for a bad token or resource version.
    pub fn decide(options: &ListOptions) -> Result<Self, Status> {
        options.validate()?;
        let limit = limit(options);
        if !options.continue_token.is_empty() {
            let token = ContinueToken::decode(&options.continue_token)?;
            if !matches!(&*options.resource_version, "" | "0") {
                return Err(Status::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            let read = match token.at {
                TokenVersion::Exact(version) => ListRead::Exact(version),
                TokenVersion::Latest => ListRead::Latest,
            };
            let start = Some(token.start);
            return Ok(Self { read, limit, start });
        }
        let read = match (version(options)?, &*options.resource_version_match) {
            (None, _) => ListRead::Latest,
            (Some(_), _) if options.resource_version == "0" => ListRead::Cached,
            (Some(version), EXACT) => ListRead::Exact(version),
            (Some(version), NOT_OLDER) => ListRead::AtLeast(version),
            // The legacy rule: a page at a version is a page of that version.
            (Some(version), _) if limit.is_some() && version.0 > 0 => ListRead::Exact(version),
            (Some(version), _) => ListRead::AtLeast(version),
        };
        let start = None;
        Ok(Self { read, limit, start })
    }

    /// Decides for a list of one key: there a limit does not make the version exact.
    ///
    /// # Errors
    /// As [`ListPlan::decide`].
    pub fn decide_single(options: &ListOptions) -> Result<Self, Status> {
        let mut plan = Self::decide(options)?;
        if let ListRead::Exact(version) = plan.read
            && options.resource_version_match.is_empty()
            && options.continue_token.is_empty()
        {
            plan.read = ListRead::AtLeastNow(version);
        }
        Ok(plan)
    }
}

/// The page size. A read of whatever is cached is never paged.
fn limit(options: &ListOptions) -> Option<u64> {
    u64::try_from(options.limit)
        .ok()
        .filter(|limit| *limit > 0 && options.resource_version != "0")
}

fn version(options: &ListOptions) -> Result<Option<ResourceVersion>, Status> {
    parsed(options)
        .map_err(|fault| Status::bad_request(format!("invalid resource version: {fault}")))
}

fn parsed(options: &ListOptions) -> Result<Option<ResourceVersion>, String> {
    let text = &*options.resource_version;
    if text.is_empty() {
        return Ok(None);
    }
    text.parse()
        .map(Some)
        .map_err(|fault: crate::resource::InvalidResourceVersion| {
            let text = quoted(text);
            let fault = fault.fault;
            format!(
                "resourceVersion: Invalid value: {text}: strconv.ParseUint: parsing {text}: {fault}"
            )
        })
}

impl WatchPlan {
    /// Decides for a watch. Whether the query or the `/watch/` prefix asked for it, `options.watch` tells (§1.4).
    ///
    /// # Errors
    /// 422 for options that do not go together; 500 without a reason for a bad resource version, as the server.
    pub fn decide(options: &ListOptions) -> Result<Self, Status> {
        options.validate()?;
        let bookmarks = if options.allow_watch_bookmarks {
            Bookmarks::On
        } else {
            Bookmarks::Off
        };
        Ok(Self {
            start: start(options, bookmarks)?,
            bookmarks,
            timeout: timeout(options.timeout_seconds.unwrap_or(0)),
        })
    }
}

fn start(options: &ListOptions, bookmarks: Bookmarks) -> Result<WatchStart, Status> {
    let version = parsed(options).map_err(Status::untyped)?;
    let given = version.filter(|version| version.0 > 0);
    let initial = if options.defaults_to_initial_events() {
        Some(true)
    } else {
        options.send_initial_events
    };
    let freshness = match (version, given) {
        (None, _) => Freshness::Latest,
        (_, None) => Freshness::Any,
        (_, Some(version)) => Freshness::AtLeast(version),
    };
    Ok(match (initial, given) {
        (Some(true), _) => WatchStart::Initial {
            freshness,
            marker: match bookmarks {
                Bookmarks::On => EndMarker::Sent,
                Bookmarks::Off => EndMarker::Omitted,
            },
        },
        (_, Some(version)) => WatchStart::After(version),
        (Some(false), None) => WatchStart::FromNow { freshness },
        // Only the prefix form gets here: what is cached, with no promise.
        (None, None) => WatchStart::Initial {
            freshness: Freshness::Any,
            marker: EndMarker::Omitted,
        },
    })
}

/// The server counts in signed nanoseconds and wraps around; so do absurd values here.
fn timeout(seconds: i64) -> WatchTimeout {
    const NANOS: i64 = 1_000_000_000;
    match seconds.wrapping_mul(NANOS) {
        0 => WatchTimeout::Default,
        nanos => u64::try_from(nanos).map_or(WatchTimeout::Ended, |nanos| {
            WatchTimeout::Seconds(nanos.div_ceil(NANOS.unsigned_abs()))
        }),
    }
}
