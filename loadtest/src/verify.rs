//! Proof that no event was lost, duplicated or reordered: what each watcher keeps, and how it is compared with the reference.
//!
//! A watcher keeps its last version, a count, a rolling hash, and the steps between versions (one or two bytes an event). The hash decides
//! in one comparison; if it differs, the steps show the first difference.

pub mod reference;
pub mod steps;

use thiserror::Error;

use crate::wire::event::EventKind;
use reference::Reference;
use steps::Steps;

/// Segments of one watcher (each relist starts one) before it counts as not converging.
const SEGMENTS_MAX: usize = 64;
/// The same for a watcher that renews its stream a few times a second: enough for any run.
const RENEWALS_MAX: usize = 4_096;

/// An error that a watcher has found. `after` is the version that the watcher received before.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Fault {
    #[error("doubled: version {version} again after {after}")]
    Doubled { version: u64, after: u64 },
    /// This version came after a newer one.
    #[error("out of order: version {version} after {after}")]
    OutOfOrder { version: u64, after: u64 },
    /// A bookmark passed this version before it was delivered.
    #[error("bookmark {bookmark} ran ahead of version {version}")]
    BookmarkAhead { version: u64, bookmark: u64 },
    /// A bookmark was older than what had been delivered.
    #[error("bookmark {bookmark} after version {after}")]
    BookmarkBehind { bookmark: u64, after: u64 },
    /// The reference has this version, the watcher does not.
    #[error("lost: version {version} is missing after {after}")]
    Lost { version: u64, after: u64 },
    /// The reference has newer events than the watcher's last; it has all up to there. Watchers that are behind differ in their last
    /// version, so none is named.
    #[error("behind: the newest events are missing")]
    Behind,
    /// The watcher has this version, the reference does not.
    #[error("version {version} is unknown to the reference")]
    Foreign { version: u64 },
    /// The versions agree, the event types do not.
    #[error("same versions, other event types")]
    KindsDiffer,
    /// A sampled event's bytes differ from the reference's.
    #[error("the body of version {version} differs from the reference's")]
    BodyDiffers { version: u64 },
    /// The sequences differ after the recorded steps.
    #[error("the sequence differs after the recorded part")]
    Unexplained,
    /// The watcher started again too often.
    #[error("started again too often")]
    TooManyRelists,
    /// Search and parser disagree about a line, or it could not be read.
    #[error("unreadable: {0}")]
    Unreadable(String),
    /// The watcher's state differs from the server's at the end.
    #[error("not converged: {0}")]
    NotConverged(String),
}

/// A sequence of events without gaps, after a start version.
#[derive(Debug)]
pub struct Segment {
    start: u64,
    last: u64,
    count: u64,
    hash: u64,
    steps: Steps,
}

/// Everything that one watcher keeps for the proof.
#[derive(Debug)]
pub struct Track {
    current: Segment,
    closed: Vec<Segment>,
    bookmark: u64,
    fault: Option<Fault>,
    body_hashes: Vec<(u64, u64)>,
}

/// Adds an event to the rolling hash; the same for watchers and the reference.
pub fn mix(hash: u64, version: u64, kind: EventKind) -> u64 {
    let item = version.wrapping_mul(8).wrapping_add(kind as u64);
    (hash.rotate_left(5) ^ item).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

impl Segment {
    fn begin(start: u64) -> Self {
        Self {
            start,
            last: start,
            count: 0,
            hash: 0,
            steps: Steps::default(),
        }
    }
}

impl Track {
    /// The track of a watch that starts after version `start`.
    pub fn begin(start: u64) -> Self {
        Self {
            current: Segment::begin(start),
            closed: Vec::new(),
            bookmark: start,
            fault: None,
            body_hashes: Vec::new(),
        }
    }

    /// The newest version that the watcher may resume from.
    pub fn resume_version(&self) -> u64 {
        self.current.last.max(self.bookmark)
    }

    /// The version of the newest event, or the start of the segment.
    pub fn last(&self) -> u64 {
        self.current.last
    }

    /// Number of events in all segments.
    pub fn count(&self) -> u64 {
        self.current.count + self.closed.iter().map(|segment| segment.count).sum::<u64>()
    }

    /// Adds an event; it must not be an `EventKind::Error`.
    pub fn event(&mut self, kind: EventKind, version: u64) {
        if kind == EventKind::Bookmark {
            if version < self.current.last {
                self.note(Fault::BookmarkBehind {
                    bookmark: version,
                    after: self.current.last,
                });
            }
            self.bookmark = self.bookmark.max(version);
            return;
        }
        let last = self.current.last;
        if version <= last {
            let seen = self
                .current
                .steps
                .versions(self.current.start)
                .any(|one| one == version);
            self.note(if seen {
                Fault::Doubled {
                    version,
                    after: last,
                }
            } else {
                Fault::OutOfOrder {
                    version,
                    after: last,
                }
            });
            return;
        }
        if version <= self.bookmark {
            self.note(Fault::BookmarkAhead {
                version,
                bookmark: self.bookmark,
            });
        }
        let segment = &mut self.current;
        segment.steps.push(version - last);
        segment.last = version;
        segment.count += 1;
        segment.hash = mix(segment.hash, version, kind);
    }

    /// Keeps the body hash of a sampled event for the comparison at the end.
    pub fn body_hash(&mut self, version: u64, hash: u64) {
        /// Sampled bodies per watcher; more prove nothing new.
        const BODIES_MAX: usize = 65_536;
        if self.body_hashes.len() < BODIES_MAX {
            self.body_hashes.push((version, hash));
        }
    }

    /// After a relist: the next events follow the list's version.
    pub fn relist(&mut self, version: u64) {
        self.begin_again(version, SEGMENTS_MAX);
    }

    /// After a voluntary new watch from this version, which is not older than the current one.
    pub fn renew(&mut self, version: u64) {
        self.begin_again(version.max(self.resume_version()), RENEWALS_MAX);
    }

    fn begin_again(&mut self, version: u64, segments_max: usize) {
        if self.closed.len() >= segments_max {
            self.note(Fault::TooManyRelists);
            return;
        }
        let closed = std::mem::replace(&mut self.current, Segment::begin(version));
        self.closed.push(closed);
        self.bookmark = version;
    }

    pub fn note(&mut self, fault: Fault) {
        self.fault.get_or_insert(fault);
    }

    /// The first difference from the reference, which must have reached `until`; so must the last segment.
    pub fn verdict(&self, reference: &Reference, until: u64) -> Option<Fault> {
        if let Some(fault) = &self.fault {
            return Some(fault.clone());
        }
        let unfinished = self
            .closed
            .iter()
            .find_map(|segment| compare(segment, reference, segment.last));
        unfinished
            .or_else(|| compare(&self.current, reference, until))
            .or_else(|| {
                let differs = self
                    .body_hashes
                    .iter()
                    .find(|(version, hash)| reference.body_hash(*version) != Some(*hash));
                differs.map(|(version, _)| Fault::BodyDiffers { version: *version })
            })
    }
}

/// Compares one segment with the reference: it must have all events after its start up to `until`, and up to its own last event.
fn compare(segment: &Segment, reference: &Reference, until: u64) -> Option<Fault> {
    let expected = reference.after(segment.start, segment.last.max(until));
    let whole = expected.len() as u64 == segment.count;
    if whole
        && expected
            .iter()
            .fold(0, |hash, entry| mix(hash, entry.version, entry.kind))
            == segment.hash
    {
        return None;
    }
    let mut got = segment.steps.versions(segment.start);
    let mut after = segment.start;
    for entry in expected {
        match got.next() {
            Some(version) if version == entry.version => after = version,
            Some(version) if version < entry.version => return Some(Fault::Foreign { version }),
            None if segment.steps.is_cut() => return Some(Fault::Unexplained),
            None => return Some(Fault::Behind),
            Some(_) => {
                return Some(Fault::Lost {
                    version: entry.version,
                    after,
                });
            }
        }
    }
    match got.next() {
        Some(version) => Some(Fault::Foreign { version }),
        None if segment.steps.is_cut() => Some(Fault::Unexplained),
        None => Some(Fault::KindsDiffer),
    }
}

#[cfg(test)]
mod tests;
