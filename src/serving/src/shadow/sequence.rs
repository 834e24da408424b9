//! Compares two streams of events as they come. Pure: time is an argument.
//!
//! Both sides send events in the order of their versions, each at its own time. An event is compared with the other side's event of the same
//! version and object. If the other side has passed that version without it, only one side has it.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::object::ComparedObject;
use super::recorder::Difference;
use crate::resource::{EventKind, ResourceVersion};

/// Events of one side that may wait for the other side.
const WAITING_MAX: usize = 1_024;
/// An event that memory has had for this time, while upstream's client has waited and got nothing at all, is not waited for: perhaps
/// upstream lacks it, perhaps it is behind.
const SILENCE: Duration = Duration::from_secs(60);
/// A side that is behind for longer is not waited for: its watch may be broken, or its client does not read. Upstream may be silent for
/// 75 s between two bookmarks.
const BEHIND_MAX: Duration = Duration::from_secs(150);

/// One of the two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ComparedSide {
    Upstream,
    Memory,
}

/// Events that only one side has sent so far.
#[derive(Debug, Default)]
struct WaitingEvents {
    events: VecDeque<WaitingEvent>,
    /// No event up to this version is to come.
    passed: ResourceVersion,
    /// The newest version of a bookmark.
    marked: ResourceVersion,
    /// Version and key of the last event. Events of one transaction have the same version.
    last: Option<(ResourceVersion, Box<str>)>,
}

#[derive(Debug)]
struct WaitingEvent {
    kind: EventKind,
    object: ComparedObject,
    at: Instant,
}

/// The comparison of two watches.
#[derive(Debug)]
pub(crate) struct SequenceComparison {
    /// Events up to this version are not compared.
    start: ResourceVersion,
    upstream: WaitingEvents,
    memory: WaitingEvents,
    /// Events of memory that are behind what it has sent before: replayed, or out of order.
    misplaced: VecDeque<ComparedObject>,
}

impl SequenceComparison {
    /// Compares the events after this version.
    pub(crate) fn after(start: ResourceVersion) -> Self {
        Self {
            start,
            upstream: WaitingEvents::default(),
            memory: WaitingEvents::default(),
            misplaced: VecDeque::new(),
        }
    }

    const fn side(&mut self, side: ComparedSide) -> &mut WaitingEvents {
        match side {
            ComparedSide::Upstream => &mut self.upstream,
            ComparedSide::Memory => &mut self.memory,
        }
    }

    /// Adds an event of one side.
    pub(crate) fn push(
        &mut self,
        side: ComparedSide,
        kind: EventKind,
        object: ComparedObject,
        now: Instant,
    ) {
        let (version, start) = (object.version, self.start);
        let sent = self.side(side);
        let is_late = sent.last.as_ref().is_some_and(|(last, _)| version < *last);
        let is_misplaced = version <= start || is_late || version <= sent.marked;
        if is_misplaced && side == ComparedSide::Memory {
            self.misplaced.push_back(object);
            return;
        }
        if version <= start {
            return;
        }
        if !is_late {
            sent.last = Some((version, object.key.clone()));
        }
        let event = WaitingEvent {
            kind,
            object,
            at: now,
        };
        self.side(side).events.push_back(event);
    }

    /// Notes that a side has sent all events up to this version, whether or not there were any.
    pub(crate) fn pass(&mut self, side: ComparedSide, version: ResourceVersion) {
        let passed = &mut self.side(side).passed;
        *passed = version.max(*passed);
    }

    /// Notes a bookmark: no event up to its version may follow.
    pub(crate) fn mark(&mut self, side: ComparedSide, version: ResourceVersion) {
        self.pass(side, version);
        let marked = &mut self.side(side).marked;
        *marked = version.max(*marked);
    }

    /// Bytes that waiting events take, about.
    pub(crate) fn held_len(&self) -> usize {
        let sides = [&self.upstream, &self.memory];
        let events = sides.into_iter().flat_map(|side| &side.events);
        let waiting = events.map(|event| event.object.held_len()).sum::<usize>();
        let misplaced = self.misplaced.iter().map(ComparedObject::held_len);
        waiting + misplaced.sum::<usize>()
    }

    /// Whether upstream has sent an event that memory has not.
    pub(crate) fn waits_for_memory(&self) -> bool {
        !self.upstream.events.is_empty()
    }

    /// Whether one side is too far behind the other. `silent_since` is since when upstream has sent nothing although its client waits and
    /// gets no bookmarks.
    pub(crate) fn is_hopeless(&self, silent_since: Option<Instant>, now: Instant) -> bool {
        let is_silent = self.memory.events.front().is_some_and(|event| {
            silent_since.is_some_and(|since| now - since.max(event.at) >= SILENCE)
        });
        if is_silent {
            return true;
        }
        [&self.upstream, &self.memory].into_iter().any(|side| {
            let first = side.events.front();
            side.events.len() > WAITING_MAX
                || first.is_some_and(|event| now - event.at > BEHIND_MAX)
        })
    }

    /// The next event that is certain to be the same on both sides, or not: with its difference. Call it until it returns `None`.
    pub(crate) fn next(&mut self) -> Option<Result<(), Difference>> {
        if let Some(object) = self.misplaced.pop_front() {
            return Some(Err(Difference::extra(&object)));
        }
        let (upstream, memory) = (&mut self.upstream, &mut self.memory);
        let (first, other) = (upstream.events.front(), memory.events.front());
        let (is_missing, is_extra) = match (first, other) {
            (None, None) => return None,
            (Some(first), None) => (memory.has_passed(first), false),
            (None, Some(other)) => (false, upstream.has_passed(other)),
            (Some(first), Some(other)) => {
                (first.place() < other.place(), first.place() > other.place())
            }
        };
        if is_missing {
            let event = upstream.events.pop_front()?;
            return Some(Err(Difference::missing(&event.object)));
        }
        if is_extra {
            let event = memory.events.pop_front()?;
            return Some(Err(Difference::extra(&event.object)));
        }
        if first.is_none() || other.is_none() {
            return None;
        }
        let (first, other) = (upstream.events.pop_front()?, memory.events.pop_front()?);
        let is_equal = first.kind == other.kind && first.object == other.object;
        Some(match is_equal {
            true => Ok(()),
            false => Err(Difference::content(&first.object, &other.object)),
        })
    }
}

impl WaitingEvents {
    /// Whether this event of the other side is not to come from this one, which has no event left.
    fn has_passed(&self, event: &WaitingEvent) -> bool {
        let place = event.place();
        place.0 <= self.passed
            || self
                .last
                .as_ref()
                .is_some_and(|(version, key)| place.0 < *version || place == (*version, &**key))
    }
}

impl WaitingEvent {
    fn place(&self) -> (ResourceVersion, &str) {
        (self.object.version, &self.object.key)
    }
}

#[cfg(test)]
mod tests;
