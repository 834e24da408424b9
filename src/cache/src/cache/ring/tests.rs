//! The ring on one thread: order, lag and bounds, also against a plain queue.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

fn retention(segment_slots: usize, events_max: usize) -> Retention {
    Retention {
        segment_slots,
        events_min: 0,
        events_max,
        bytes_max: usize::MAX,
        age_max: Duration::MAX,
    }
}

fn read_all(ring: &Ring<u64>, from: Sequence) -> Result<(Vec<u64>, Sequence), Lagged> {
    let mut seen = Vec::new();
    let next = ring.read(from, |_, value| {
        seen.push(*value);
        ControlFlow::Continue(())
    })?;
    Ok((seen, next))
}

#[test]
fn a_reader_sees_every_value_once_and_in_order() {
    let mut writer = RingWriter::new(retention(4, 100));
    let ring = Arc::clone(writer.ring());
    let now = Instant::now();
    (0..10).for_each(|value| assert_eq!(writer.append(value, 1, now), value));
    assert_eq!(read_all(&ring, 3), Ok((vec![3, 4, 5, 6, 7, 8, 9], 10)));
    assert_eq!(read_all(&ring, 10), Ok((vec![], 10)));
}

#[test]
fn a_break_stops_after_the_value_it_was_given_for() {
    let mut writer = RingWriter::new(retention(2, 100));
    let ring = Arc::clone(writer.ring());
    (0..6).for_each(|value| {
        writer.append(value, 1, Instant::now());
    });
    assert_eq!(
        ring.read(1, |_, value| if *value == 3 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }),
        Ok(4)
    );
}

#[test]
fn a_lagging_reader_gets_the_oldest_remaining_sequence() {
    let mut writer = RingWriter::new(retention(2, 4));
    let ring = Arc::clone(writer.ring());
    // A nanosecond apart, so that age keeps no event.
    let start = Instant::now();
    (0..9).for_each(|value| {
        writer.append(value, 1, start + Duration::from_nanos(value));
    });
    let Err(Lagged { oldest }) = read_all(&ring, 0) else {
        panic!("the first values are gone")
    };
    assert_eq!(oldest, ring.oldest());
    assert_eq!(read_all(&ring, oldest), Ok(((oldest..9).collect(), 9)));
}

#[test]
fn young_events_stay_until_memory_or_count_says_otherwise() {
    let keep = Retention {
        segment_slots: 2,
        events_min: 2,
        events_max: 100,
        bytes_max: 1000,
        age_max: Duration::from_secs(75),
    };
    let mut writer = RingWriter::new(keep);
    let ring = Arc::clone(writer.ring());
    let start = Instant::now();
    (0..8).for_each(|value| {
        writer.append(value, 10, start);
    });
    assert_eq!(ring.oldest(), 0, "all are young");
    writer.expire(start + Duration::from_secs(76));
    assert_eq!(
        (ring.oldest(), writer.events()),
        (6, 2),
        "the minimum stays"
    );
}

#[test]
fn values_exactly_at_a_bound_are_kept() {
    let now = Instant::now();
    let mut writer = RingWriter::new(retention(2, 4));
    let ring = Arc::clone(writer.ring());
    (0..5).for_each(|value| _ = writer.append(value, 1, now));
    assert_eq!(ring.oldest(), 0);
    (5..7).for_each(|value| _ = writer.append(value, 1, now));
    assert_eq!(ring.oldest(), 2);

    let keep = Retention {
        bytes_max: 800,
        ..retention(2, 100)
    };
    let mut writer = RingWriter::new(keep);
    let ring = Arc::clone(writer.ring());
    (0..16).for_each(|value| _ = writer.append(value, 50, now));
    writer.expire(now);
    assert_eq!((ring.oldest(), writer.bytes()), (0, 800));

    let keep = Retention {
        events_min: 4,
        age_max: Duration::from_secs(75),
        ..retention(2, 100)
    };
    let mut writer = RingWriter::new(keep);
    let ring = Arc::clone(writer.ring());
    (0..7).for_each(|value| _ = writer.append(value, 1, now));
    writer.expire(now + Duration::from_secs(75));
    assert_eq!(ring.oldest(), 0, "not old yet");
    writer.expire(now + Duration::from_secs(76));
    assert_eq!((ring.oldest(), writer.events()), (2, 5));
}

#[test]
fn a_segment_is_sealed_when_it_is_full_or_heavy() {
    let keep = Retention {
        bytes_max: 800,
        ..retention(4, 100)
    };
    let mut writer = RingWriter::new(keep);
    let start = Instant::now();
    assert_eq!(writer.oldest_at(), None);
    for (second, len) in (0..).zip([1, 1, 1, 1, 100, 1, 101, 1]) {
        writer.append(second, len, start + Duration::from_secs(second));
    }
    let counts: Vec<_> = writer.segments.iter().map(|record| record.events).collect();
    assert_eq!(counts, [4, 2, 1, 1]);
    assert_eq!(writer.oldest_at(), Some(start));
}

/// Whoever shortens the age until something is evicted relies on it.
#[test]
fn evictable_events_go_at_any_shorter_maximum_age() {
    let keep = Retention {
        events_min: 3,
        ..retention(2, 100)
    };
    let mut writer = RingWriter::new(keep);
    let start = Instant::now();
    let at = |second| start + Duration::from_secs(second);
    for second in [0, 100, 200, 300] {
        writer.append(0, 1, at(second));
    }
    assert_eq!(writer.evictable_since(), None, "too few would be left");
    writer.append(0, 1, at(400));
    // A slow resource's segment may have begun long ago: it stays until its newest value is old.
    assert_eq!(writer.oldest_at(), Some(start));
    let since = writer.evictable_since().unwrap();
    assert_eq!(since, at(100));
    let now = at(500);
    writer.set_age_max((now - since) / 4 * 3);
    writer.expire(now);
    assert_eq!(writer.events(), 3);
    assert_eq!(writer.evictable_since(), None);
}

#[test]
fn a_ring_of_hints_gives_up_even_its_newest_value_when_that_is_old() {
    let keep = Retention {
        age_max: Duration::from_secs(2),
        ..retention(4, 100)
    };
    let mut writer = RingWriter::new(keep);
    let ring = Arc::clone(writer.ring());
    let start = Instant::now();
    (0..6).for_each(|value| {
        writer.append(value, 1, start);
    });
    writer.expire_all(start + Duration::from_secs(2));
    assert_eq!((ring.oldest(), writer.events()), (0, 6), "not old yet");
    writer.append(6, 1, start + Duration::from_secs(1));
    writer.expire_all(start + Duration::from_secs(3));
    assert_eq!(
        (ring.oldest(), writer.events()),
        (4, 3),
        "one value is young"
    );
    writer.expire_all(start + Duration::from_secs(4));
    assert_eq!((ring.oldest(), writer.events(), writer.bytes()), (7, 0, 0));
    assert_eq!(read_all(&ring, 6), Err(Lagged { oldest: 7 }));
    assert_eq!(
        read_all(&ring, 7),
        Ok((vec![], 7)),
        "a reader at the head does not lag"
    );
    assert_eq!(ring.partition_point(|_| true), 7);
    writer.append(70, 1, start + Duration::from_secs(4));
    assert_eq!(read_all(&ring, 7), Ok((vec![70], 8)));
}

#[test]
fn a_place_far_behind_is_found_among_segments_of_any_length() {
    let keep = Retention {
        bytes_max: 800,
        ..retention(8, 1000)
    };
    let mut writer = RingWriter::new(keep);
    let ring = Arc::clone(writer.ring());
    // Large values seal their segment early; small ones fill it.
    (0..60).for_each(|value| {
        let len = if value % 7 == 3 { 101 } else { 1 };
        writer.append(value, len, Instant::now());
    });
    assert!(writer.events() > 40);
    for from in ring.oldest()..60 {
        assert_eq!(read_all(&ring, from), Ok(((from..60).collect(), 60)));
        assert_eq!(ring.partition_point(|value| *value < from), from);
    }
}

#[test]
fn bytes_bound_the_ring_however_young_its_events_are() {
    let keep = Retention {
        segment_slots: 64,
        events_min: 100,
        events_max: 1000,
        bytes_max: 800,
        age_max: Duration::from_secs(75),
    };
    let mut writer = RingWriter::new(keep);
    let ring = Arc::clone(writer.ring());
    let now = Instant::now();
    for value in 0..1000 {
        writer.append(value, 60, now);
        assert!(writer.bytes() <= 800, "{}", writer.bytes());
        assert_eq!(value + 1 - ring.oldest(), writer.events() as u64);
        assert_eq!(writer.bytes(), 60 * writer.events());
    }
    assert!(writer.events() > 5);
}

#[test]
fn one_value_over_the_bound_is_still_delivered() {
    let keep = Retention {
        segment_slots: 4,
        events_min: 0,
        events_max: 100,
        bytes_max: 10,
        age_max: Duration::MAX,
    };
    let mut writer = RingWriter::new(keep);
    let ring = Arc::clone(writer.ring());
    (0..3).for_each(|value| {
        writer.append(value, 1000, Instant::now());
    });
    assert_eq!(read_all(&ring, 2), Ok((vec![2], 3)));
}

#[test]
fn a_partition_point_is_found_in_every_segment() {
    let mut writer = RingWriter::new(retention(3, 8));
    let ring = Arc::clone(writer.ring());
    let start = Instant::now();
    (0..20).for_each(|value| {
        writer.append(value * 10, 1, start + Duration::from_nanos(value));
    });
    for sequence in ring.oldest()..20 {
        assert_eq!(
            ring.partition_point(|value| *value < sequence * 10),
            sequence
        );
        assert_eq!(
            ring.partition_point(|value| *value <= sequence * 10),
            sequence + 1
        );
    }
    assert_eq!(ring.partition_point(|_| false), ring.oldest());
}

#[test]
fn a_ring_that_may_have_less_frees_what_it_evicts_at_once() {
    let mut writer = RingWriter::new(retention(4, 1_000));
    let now = Instant::now();
    let values: Vec<_> = (0..100).map(Arc::new).collect();
    for value in &values {
        writer.append(Arc::clone(value), 10, now);
    }
    let held = |values: &[Arc<u64>]| {
        let held = values.iter().filter(|value| Arc::strong_count(value) > 1);
        held.count()
    };
    assert_eq!(held(&values), 100);
    writer.set_bytes_max(200, now);
    assert_eq!((held(&values), writer.bytes()), (20, 200));
    assert_eq!(writer.ring().oldest(), 80);
    // The newest segment stays, so that a reader at the head loses nothing.
    writer.set_bytes_max(0, now);
    assert_eq!((held(&values), writer.ring().oldest()), (4, 96));
    writer.set_bytes_max(usize::MAX, now);
    for value in &values {
        writer.append(Arc::clone(value), 10, now);
    }
    assert_eq!(writer.events(), 104);
}

#[test]
fn recent_values_stay_beyond_the_bound_for_a_while_and_up_to_a_bound_of_their_own() {
    let mut writer = RingWriter::new(retention(4, 1_000));
    let start = Instant::now();
    let second = |count: u64| start + Duration::from_secs(count);
    (0..50).for_each(|value| {
        writer.append(value, 10, second(value / 4));
    });
    writer.bound_bytes(200, 400, second(12));
    assert_eq!(writer.bytes(), 380, "whole segments go");
    (50..100).for_each(|value| {
        writer.append(value, 10, second(13));
    });
    assert!(writer.bytes() <= 400, "{}", writer.bytes());
    writer.expire(second(13) + RECENT_AGE);
    assert!(writer.bytes() > 350, "{}", writer.bytes());
    writer.expire(second(14) + RECENT_AGE);
    assert!(writer.bytes() <= 200 && writer.bytes() > 150);
    assert!(writer.ring().partition_point(|value| *value < 99) == 99);
}

proptest! {
    /// Compared with a plain queue: any mix of appends, of reads by several readers and of changes of the bound.
    #[test]
    fn every_reader_sees_each_value_once_or_is_told_that_it_lagged(
        steps in prop::collection::vec((0_usize..6, 1_usize..40), 1..200),
        slots in 1_usize..5,
        events_max in 1_usize..12,
        bytes_max in 20_usize..400,
    ) {
        let keep = Retention { segment_slots: slots, events_min: 0, events_max, bytes_max, age_max: Duration::MAX };
        let mut writer = RingWriter::new(keep);
        let ring = Arc::clone(writer.ring());
        let mut model = VecDeque::new();
        let mut cursors = [0_u64; 4];
        let start = Instant::now();
        for (step, (actor, len)) in steps.into_iter().enumerate() {
            if actor == 0 {
                let value = step as u64;
                let sequence = writer.append(value, len, start + Duration::from_nanos(value));
                prop_assert_eq!(sequence, model.len() as u64);
                model.push_back(value);
                continue;
            }
            if actor == 5 {
                writer.set_bytes_max(len * 10, start);
                prop_assert!(writer.bytes() <= len * 10 || writer.segments.len() == 1);
                continue;
            }
            let cursor = &mut cursors[actor - 1];
            match read_all(&ring, *cursor) {
                Ok((seen, next)) => {
                    let expected: Vec<_> = model.iter().skip(usize::try_from(*cursor).unwrap()).copied().collect();
                    prop_assert_eq!(&seen, &expected);
                    prop_assert_eq!(next, model.len() as u64);
                    *cursor = next;
                }
                Err(Lagged { oldest }) => {
                    prop_assert!(oldest > *cursor);
                    prop_assert_eq!(oldest, ring.oldest());
                    *cursor = oldest;
                }
            }
        }
    }
}
