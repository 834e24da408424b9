//! The events that a shared stream stores, which clients can join it, and what each client gets of an event. Pure.

use bytes::{Bytes, BytesMut};

use crate::cache::Ring;
use crate::decode::TableEvent;
use crate::resource::ResourceVersion;

const NULL: &[u8] = b"null";

/// One event without its column definitions.
#[derive(Clone, Debug)]
pub(super) struct StoredTableEvent {
    pub(super) version: ResourceVersion,
    pub(super) is_bookmark: bool,
    line: Bytes,
    /// The offset of the `null` that replaces the column definitions; `None` if upstream sent another object than a Table.
    columns_at: Option<usize>,
}

impl StoredTableEvent {
    /// Takes the column definitions out of a line (with its newline) and returns them separately, if it has any.
    pub(super) fn new(line: &Bytes, event: &TableEvent) -> (Self, Option<Bytes>) {
        let (start, end) = (event.columns.start as usize, event.columns.end as usize);
        let columns = line.slice(start..end);
        let stored = |line| Self {
            version: event.resource_version,
            is_bookmark: event.is_bookmark,
            line,
            columns_at: Some(start),
        };
        if columns == NULL {
            return (stored(line.clone()), None);
        }
        let bare = [&line[..start], NULL, &line[end..]].concat();
        (stored(bare.into()), Some(columns))
    }

    /// An event of a server that renders no Tables: a client gets it as it is, as if its request had been forwarded.
    pub(super) fn plain(line: &Bytes, version: ResourceVersion, is_bookmark: bool) -> Self {
        Self {
            version,
            is_bookmark,
            line: line.clone(),
            columns_at: None,
        }
    }

    /// The line for every event after a client's first one.
    pub(super) fn line(&self) -> Bytes {
        self.line.clone()
    }

    /// The line for a client's first event. Without known columns the line is unchanged.
    pub(super) fn first_line(&self, columns: Option<&Bytes>) -> Bytes {
        let (Some(columns), Some(at)) = (columns, self.columns_at) else {
            return self.line();
        };
        let (before, after) = (&self.line[..at], &self.line[at + NULL.len()..]);
        let mut line = BytesMut::with_capacity(self.line.len() + columns.len());
        line.extend_from_slice(before);
        line.extend_from_slice(columns);
        line.extend_from_slice(after);
        line.freeze()
    }

    /// Whether a client that knows everything up to `after` gets this event.
    pub(super) fn is_for(&self, after: ResourceVersion) -> bool {
        self.version > after && !self.is_bookmark
    }

    /// Its size in the ring, in bytes.
    pub(super) fn len(&self) -> usize {
        self.line.len() + size_of::<Self>()
    }
}

/// Whether a stream that started after `start` still has all events after `after`.
pub(super) fn covers(
    history: &Ring<StoredTableEvent>,
    start: ResourceVersion,
    after: ResourceVersion,
) -> bool {
    after >= floor(history, start)
}

/// The oldest version that a client must know to join: everything that was dropped is older than the oldest stored event.
fn floor(history: &Ring<StoredTableEvent>, start: ResourceVersion) -> ResourceVersion {
    if history.oldest() == 0 {
        return start;
    }
    let mut floor = None;
    let read = history.read(history.oldest(), |_, stored| {
        floor = Some(stored.version);
        std::ops::ControlFlow::Break(())
    });
    // The oldest event was dropped between the two reads; then no client can join.
    read.ok().and(floor).unwrap_or(ResourceVersion(u64::MAX))
}

/// What happens to a client when upstream refuses to continue its stream's watch after a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RefusalEffect {
    /// Upstream would refuse the client's own version, too: the client gets upstream's error.
    Final,
    /// The client's version is newer than the refused one: upstream may accept it.
    MayRetry,
}

/// Compares the client's version with the version that upstream has refused.
pub(super) fn refused(client: ResourceVersion, stream: ResourceVersion) -> RefusalEffect {
    if client > stream {
        RefusalEffect::MayRetry
    } else {
        RefusalEffect::Final
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use crate::cache::{Retention, RingWriter};
    use crate::decode::{TableLine, scan_table};

    use super::*;

    fn stored(version: u64, columns: &str) -> (StoredTableEvent, Option<Bytes>) {
        let line = format!(
            "{{\"type\":\"ADDED\",\"object\":{{\"metadata\":{{\"resourceVersion\":\"{version}\"}},\"columnDefinitions\":{columns},\"rows\":[]}}}}\n"
        );
        let Ok(TableLine::Event(event)) = scan_table(line.trim_end().as_bytes()) else {
            panic!("no event");
        };
        StoredTableEvent::new(&Bytes::from(line), &event)
    }

    #[test]
    fn columns_are_taken_out_once_and_put_into_each_clients_first_event() {
        let (first, columns) = stored(1, r#"[{"name":"A"}]"#);
        let (second, none) = stored(2, "null");
        assert_eq!(columns.as_deref(), Some(&br#"[{"name":"A"}]"#[..]));
        assert_eq!(none, None);
        let expected_line = |version, columns| {
            format!(
                "{{\"type\":\"ADDED\",\"object\":{{\"metadata\":{{\"resourceVersion\":\"{version}\"}},\"columnDefinitions\":{columns},\"rows\":[]}}}}\n"
            )
        };
        assert_eq!(first.line(), expected_line(1, "null"));
        assert_eq!(
            first.first_line(columns.as_ref()),
            expected_line(1, r#"[{"name":"A"}]"#)
        );
        assert_eq!(
            second.first_line(columns.as_ref()),
            expected_line(2, r#"[{"name":"A"}]"#)
        );
        assert_eq!(second.line(), expected_line(2, "null"));
        assert_eq!(second.first_line(None), expected_line(2, "null"));
    }

    fn ring(versions: &[u64]) -> RingWriter<StoredTableEvent> {
        // Two slots per segment: events are dropped in pairs.
        let mut writer = RingWriter::new(Retention {
            segment_slots: 2,
            events_min: 0,
            events_max: 4,
            bytes_max: usize::MAX,
            age_max: Duration::ZERO,
        });
        for version in versions {
            let stored = stored(*version, "null").0;
            writer.append(stored, 1, Instant::now());
        }
        writer
    }

    #[track_caller]
    fn check_covers(versions: &[u64], start: u64, after: u64, expected: bool) {
        let writer = ring(versions);
        let covers = covers(
            writer.ring(),
            ResourceVersion(start),
            ResourceVersion(after),
        );
        assert_eq!(covers, expected, "{versions:?} from {start}, after {after}");
    }

    #[test]
    fn a_client_joins_if_nothing_after_its_version_was_dropped() {
        check_covers(&[], 5, 4, false);
        check_covers(&[], 5, 5, true);
        check_covers(&[7, 9], 5, 5, true);
        check_covers(&[7, 9], 5, 100, true);
        // The first ones of seven were dropped: a client that knows the oldest stored event may join.
        let seven = [11, 12, 13, 14, 15, 16, 17];
        let oldest = {
            let writer = ring(&seven);
            assert!(writer.ring().oldest() > 0);
            11 + writer.ring().oldest()
        };
        check_covers(&seven, 5, 5, false);
        check_covers(&seven, 5, oldest - 1, false);
        check_covers(&seven, 5, oldest, true);
    }

    #[test]
    fn events_are_for_those_who_do_not_know_them() {
        let mut event = stored(7, "null").0;
        assert!(event.is_for(ResourceVersion(6)));
        assert!(!event.is_for(ResourceVersion(7)));
        event.is_bookmark = true;
        assert!(!event.is_for(ResourceVersion(6)));
    }

    #[test]
    fn a_refusal_is_told_to_those_whom_it_concerns() {
        assert_eq!(
            refused(ResourceVersion(5), ResourceVersion(5)),
            RefusalEffect::Final
        );
        assert_eq!(
            refused(ResourceVersion(4), ResourceVersion(5)),
            RefusalEffect::Final
        );
        assert_eq!(
            refused(ResourceVersion(6), ResourceVersion(5)),
            RefusalEffect::MayRetry
        );
    }
}
