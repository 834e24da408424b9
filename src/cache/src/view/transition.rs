//! How a watch with a selector sees an event: an object enters, stays in or leaves the selection (docs/PROTOCOL.md §4.6).

use crate::cache::Event;
use crate::resource::EventKind;
use crate::selector::Selector;

/// The kind of the event for watches with this selector; `None` if they must not receive it.
///
/// The previous state is the cache's, not the last one that a watch received.
#[must_use]
pub fn seen_as(event: &Event, selector: &Selector) -> Option<EventKind> {
    if selector.is_everything() {
        return Some(event.kind());
    }
    let before = event
        .previous()
        .is_some_and(|previous| selector.matches(previous));
    let after = event.kind() != EventKind::Deleted && selector.matches(event.object());
    match (before, after) {
        (false, true) => Some(EventKind::Added),
        (true, true) => Some(EventKind::Modified),
        (true, false) => Some(EventKind::Deleted),
        (false, false) => None,
    }
}
