//! A watch event with the name of its object, in either encoding.

use anyhow::{Context, Result};
use kube_fanout::resource::Encoding;
use memchr::memmem;

use super::event::{Event, EventKind, first_name};
use super::protobuf;

/// The annotation of the bookmark behind the initial events (KEP-3157).
const INITIAL_EVENTS_END: &[u8] = b"k8s.io/initial-events-end";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedEvent {
    pub event: Event,
    /// `namespace/name`; without meaning for bookmarks and errors.
    pub name: String,
    /// Whether it is the bookmark behind the initial events.
    pub ends_initial: bool,
}

/// Reads an event without its newline or length.
pub fn named_event(encoding: Encoding, frame: &[u8]) -> Result<NamedEvent> {
    let (event, name) = match encoding {
        Encoding::Protobuf => protobuf::named_event(frame)?,
        Encoding::Json => {
            let event = Event::parse(frame)?;
            let has_name = !matches!(event.kind, EventKind::Bookmark | EventKind::Error);
            let name = has_name.then(|| first_name(frame).context("an object without a name"));
            (event, name.transpose()?.unwrap_or_default())
        }
    };
    let ends_initial =
        event.kind == EventKind::Bookmark && memmem::find(frame, INITIAL_EVENTS_END).is_some();
    Ok(NamedEvent {
        event,
        name,
        ends_initial,
    })
}
