//! How an event looks through a selector: entering, staying, leaving (docs/PROTOCOL.md §4.6).

use super::selector::Selector;
use crate::cache::Event;
use crate::resource::EventKind;

/// What the event is to watchers with this selector; `None` when they must not hear of it.
///
/// The previous state is the server's, not what the watcher was sent.
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
