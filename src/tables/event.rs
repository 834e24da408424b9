//! The events that a shared stream keeps, who may join it, and what each client gets of an event. Pure.

use bytes::{Bytes, BytesMut};

use crate::cache::Ring;
use crate::decode::TableEvent;
use crate::resource::ResourceVersion;

const NULL: &[u8] = b"null";

/// One event, its column definitions taken out.
#[derive(Clone, Debug)]
pub(super) struct StoredTableEvent {
    pub(super) version: ResourceVersion,
    pub(super) is_bookmark: bool,
    line: Bytes,
    /// Where `null` stands for the columns.
    columns_at: usize,
}

impl StoredTableEvent {
    /// Takes the columns out of a line, newline included; they are in the second place, unless there are none.
    pub(super) fn new(line: &Bytes, event: &TableEvent) -> (Self, Option<Bytes>) {
        let (start, end) = (event.columns.start as usize, event.columns.end as usize);
        let columns = line.slice(start..end);
        let kept = |line| Self {
            version: event.resource_version,
            is_bookmark: event.is_bookmark,
            line,
            columns_at: start,
        };
        if columns == NULL {
            return (kept(line.clone()), None);
        }
        let bare = [&line[..start], NULL, &line[end..]].concat();
        (kept(bare.into()), Some(columns))
    }

    /// As all events of a stream but the first look.
    pub(super) fn line(&self) -> Bytes {
        self.line.clone()
    }

    /// As the first event of a stream looks. Columns that upstream has not told yet are left as it left them.
    pub(super) fn first_line(&self, columns: Option<&Bytes>) -> Bytes {
        let Some(columns) = columns else {
            return self.line();
        };
        let (before, after) = (
            &self.line[..self.columns_at],
            &self.line[self.columns_at + NULL.len()..],
        );
        let mut line = BytesMut::with_capacity(self.line.len() + columns.len());
        line.extend_from_slice(before);
        line.extend_from_slice(columns);
        line.extend_from_slice(after);
        line.freeze()
    }

    /// Whether a client gets it that knows everything up to `after`.
    pub(super) fn is_for(&self, after: ResourceVersion) -> bool {
        self.version > after && !self.is_bookmark
    }

    /// What it weighs in the ring.
    pub(super) fn len(&self) -> usize {
        self.line.len() + size_of::<Self>()
    }
}

/// Whether a stream that began after `start` still has everything after `after`.
pub(super) fn covers(
    history: &Ring<StoredTableEvent>,
    start: ResourceVersion,
    after: ResourceVersion,
) -> bool {
    after >= floor(history, start)
}

/// What a client must know to join. What was dropped is older than the oldest that is kept.
fn floor(history: &Ring<StoredTableEvent>, start: ResourceVersion) -> ResourceVersion {
    if history.oldest() == 0 {
        return start;
    }
    let mut floor = None;
    let read = history.read(history.oldest(), |_, kept| {
        floor = Some(kept.version);
        std::ops::ControlFlow::Break(())
    });
    // Dropped between the two looks: newer ones are kept, and nobody can tell which.
    read.ok().and(floor).unwrap_or(ResourceVersion(u64::MAX))
}

/// What becomes of a client when upstream refuses to go on after a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RefusalEffect {
    /// It has what upstream was asked to go on from, and is told what upstream says.
    Told,
    /// It asked for less than that: upstream may grant it.
    MayAskAgain,
}

/// See [`RefusalEffect`].
pub(super) fn refused(client: ResourceVersion, stream: ResourceVersion) -> RefusalEffect {
    if client > stream {
        RefusalEffect::MayAskAgain
    } else {
        RefusalEffect::Told
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use crate::cache::{Retention, RingWriter};
    use crate::decode::{TableLine, scan_table};

    use super::*;

    fn kept(version: u64, columns: &str) -> (StoredTableEvent, Option<Bytes>) {
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
        let (first, columns) = kept(1, r#"[{"name":"A"}]"#);
        let (second, none) = kept(2, "null");
        assert_eq!(columns.as_deref(), Some(&br#"[{"name":"A"}]"#[..]));
        assert_eq!(none, None);
        let as_sent = |version, columns| {
            format!(
                "{{\"type\":\"ADDED\",\"object\":{{\"metadata\":{{\"resourceVersion\":\"{version}\"}},\"columnDefinitions\":{columns},\"rows\":[]}}}}\n"
            )
        };
        assert_eq!(first.line(), as_sent(1, "null"));
        assert_eq!(
            first.first_line(columns.as_ref()),
            as_sent(1, r#"[{"name":"A"}]"#)
        );
        assert_eq!(
            second.first_line(columns.as_ref()),
            as_sent(2, r#"[{"name":"A"}]"#)
        );
        assert_eq!(second.line(), as_sent(2, "null"));
        assert_eq!(second.first_line(None), as_sent(2, "null"));
    }

    fn ring(versions: &[u64]) -> RingWriter<StoredTableEvent> {
        // A segment of two, so that whole pairs leave.
        let mut writer = RingWriter::new(Retention {
            segment_slots: 2,
            events_min: 0,
            events_max: 4,
            bytes_max: usize::MAX,
            age_min: Duration::ZERO,
        });
        for version in versions {
            let kept = kept(*version, "null").0;
            writer.append(kept, 1, Instant::now());
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
        // Of seven the first have gone: whoever knows the oldest that is left may join.
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
        let mut event = kept(7, "null").0;
        assert!(event.is_for(ResourceVersion(6)));
        assert!(!event.is_for(ResourceVersion(7)));
        event.is_bookmark = true;
        assert!(!event.is_for(ResourceVersion(6)));
    }

    #[test]
    fn a_refusal_is_told_to_those_whom_it_concerns() {
        assert_eq!(
            refused(ResourceVersion(5), ResourceVersion(5)),
            RefusalEffect::Told
        );
        assert_eq!(
            refused(ResourceVersion(4), ResourceVersion(5)),
            RefusalEffect::Told
        );
        assert_eq!(
            refused(ResourceVersion(6), ResourceVersion(5)),
            RefusalEffect::MayAskAgain
        );
    }
}
