//! The plan that follows from the options: the state that a list reads, and where a watch starts (docs/PROTOCOL.md §3.1, §4.2).

use std::time::Duration;

use super::options::{EXACT, ListOptions, NOT_OLDER};
use crate::continue_token::{ContinueToken, TokenVersion};
use crate::resource::ResourceVersion;

/// How a list is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListPlan {
    /// The state to read.
    pub read: ListRead,
    /// Page size in items; `None` for all. Always `None` for [`ListRead::Cached`].
    pub limit: Option<u64>,
    /// First key that may be in the response, relative to the range and without a leading slash. It ends in a NUL, which sorts it
    /// right after the last key of the previous page.
    pub start: Option<String>,
}

/// The state that a list reads (docs/PROTOCOL.md §3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListRead {
    /// The latest state, proven to be as new as upstream's.
    Latest,
    /// Whatever the cache holds, without waiting.
    Cached,
    /// The cache's state, once it has reached this version.
    AtLeast(ResourceVersion),
    /// The cache's state if it has reached this version; else upstream answers, which reads a single key from its store without
    /// waiting.
    AtLeastNow(ResourceVersion),
    /// The state at this version.
    Exact(ResourceVersion),
}

/// How a watch starts and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchPlan {
    /// The state or event that it starts with.
    pub start: WatchStart,
    /// Whether bookmarks are sent.
    pub bookmarks: Bookmarks,
    /// When it times out.
    pub timeout: WatchTimeout,
}

/// Where a watch starts (docs/PROTOCOL.md §4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchStart {
    /// With all matching objects as ADDED events, then the changes that follow.
    Initial {
        /// How fresh that state must be.
        freshness: Freshness,
        /// Whether a bookmark marks the end of the initial events.
        marker: EndMarker,
    },
    /// With the next event.
    FromNow {
        /// What counts as now: upstream's newest version ([`Freshness::Latest`]) or the cache's ([`Freshness::Any`]). The watch
        /// does not wait.
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

/// Whether the bookmark that marks the end of the initial events is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndMarker {
    /// Sent once, after the last initial event.
    Sent,
    /// Not sent: the client did not allow bookmarks or did not request initial events.
    Omitted,
}

/// Whether a watch gets bookmarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bookmarks {
    /// Bookmarks are sent.
    On,
    /// No bookmarks.
    Off,
}

/// When a watch times out (docs/PROTOCOL.md §4.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchTimeout {
    /// After a random time of 30 to 60 minutes.
    Default,
    /// After this many seconds.
    Seconds(u64),
    /// Immediately.
    Ended,
}

/// kube-apiserver's timeout is random between this and twice this if the client requests none.
const TIMEOUT_MIN: Duration = Duration::from_secs(1800);
/// A century: Go's clock accepts as much, and the gateway's clock does not overflow.
const TIMEOUT_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

impl WatchTimeout {
    /// How long the watch lasts; `fraction`, a random number in 0..1, sets the time for a watch without a timeout.
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
    /// Derives the plan for a list of a range of keys; `None` if the options are not certain to be valid.
    #[must_use]
    pub fn decide(options: &ListOptions) -> Option<Self> {
        if !options.is_allowed() {
            return None;
        }
        let limit = limit(options);
        if !options.continue_token.is_empty() {
            if !matches!(&*options.resource_version, "" | "0") {
                return None;
            }
            let token = ContinueToken::decode(&options.continue_token)?;
            return Some(Self {
                read: match token.at {
                    TokenVersion::Exact(version) => ListRead::Exact(version),
                    TokenVersion::Latest => ListRead::Latest,
                },
                limit,
                start: Some(token.start),
            });
        }
        let read = match (&*options.resource_version, &*options.resource_version_match) {
            ("", _) => ListRead::Latest,
            ("0", _) => ListRead::Cached,
            (version, EXACT) => ListRead::Exact(version.parse().ok()?),
            (version, NOT_OLDER) => ListRead::AtLeast(version.parse().ok()?),
            // The legacy rule: `limit` with a resource version reads exactly that version.
            (version, _) => match version.parse().ok()? {
                version if limit.is_some() && version > ResourceVersion(0) => {
                    ListRead::Exact(version)
                }
                version => ListRead::AtLeast(version),
            },
        };
        Some(Self {
            read,
            limit,
            start: None,
        })
    }

    /// Derives the plan for a list of a single key: for it, a limit does not make the version exact.
    #[must_use]
    pub fn decide_single(options: &ListOptions) -> Option<Self> {
        let mut plan = Self::decide(options)?;
        if let ListRead::Exact(version) = plan.read
            && options.resource_version_match.is_empty()
            && options.continue_token.is_empty()
        {
            plan.read = ListRead::AtLeastNow(version);
        }
        Some(plan)
    }
}

/// The page size. Reads of whatever is cached (`"0"`) are never paged.
fn limit(options: &ListOptions) -> Option<u64> {
    u64::try_from(options.limit)
        .ok()
        .filter(|limit| *limit > 0 && options.resource_version != "0")
}

impl WatchPlan {
    /// Derives the plan for a watch; `None` if the options are not certain to be valid. `options.watch` says whether the query or the
    /// `/watch/` prefix requested it (docs/PROTOCOL.md §1.4).
    #[must_use]
    pub fn decide(options: &ListOptions) -> Option<Self> {
        if !options.is_allowed() {
            return None;
        }
        let bookmarks = if options.allow_watch_bookmarks {
            Bookmarks::On
        } else {
            Bookmarks::Off
        };
        Some(Self {
            start: start(options, bookmarks)?,
            bookmarks,
            timeout: timeout(options.timeout_seconds.unwrap_or(0)),
        })
    }

    /// Whether a bookmark ends its initial events, so that the version of these is known.
    #[must_use]
    pub const fn has_end_marker(&self) -> bool {
        matches!(
            self.start,
            WatchStart::Initial {
                marker: EndMarker::Sent,
                ..
            }
        )
    }
}

fn start(options: &ListOptions, bookmarks: Bookmarks) -> Option<WatchStart> {
    let version: Option<ResourceVersion> = match &*options.resource_version {
        "" => None,
        text => Some(text.parse().ok()?),
    };
    let nonzero = version.filter(|version| version.0 > 0);
    let initial = if options.defaults_to_initial_events() {
        Some(true)
    } else {
        options.send_initial_events
    };
    let freshness = match (version, nonzero) {
        (None, _) => Freshness::Latest,
        (_, None) => Freshness::Any,
        (_, Some(version)) => Freshness::AtLeast(version),
    };
    Some(match (initial, nonzero) {
        (Some(true), _) => WatchStart::Initial {
            freshness,
            marker: match bookmarks {
                Bookmarks::On => EndMarker::Sent,
                Bookmarks::Off => EndMarker::Omitted,
            },
        },
        (_, Some(version)) => WatchStart::After(version),
        (Some(false), None) => WatchStart::FromNow { freshness },
        // Only the `/watch/` prefix gets here: the cached state, with no promise of freshness.
        (None, None) => WatchStart::Initial {
            freshness: Freshness::Any,
            marker: EndMarker::Omitted,
        },
    })
}

/// The API server counts in signed 64-bit nanoseconds, which wrap around for absurd values; so does this.
fn timeout(seconds: i64) -> WatchTimeout {
    const NANOS: i64 = 1_000_000_000;
    match seconds.wrapping_mul(NANOS) {
        0 => WatchTimeout::Default,
        nanos => u64::try_from(nanos).map_or(WatchTimeout::Ended, |nanos| {
            WatchTimeout::Seconds(nanos.div_ceil(NANOS.unsigned_abs()))
        }),
    }
}
