//! Loom models of the ring. Each model fails if the head is stored or loaded `Relaxed` instead of `Release` or `Acquire`: the
//! expectation that slots below the head are filled breaks at once. Both were tried.

use loom::thread;

use super::*;

fn retention() -> Retention {
    Retention {
        segment_slots: 2,
        events_min: 0,
        events_max: 2,
        bytes_max: usize::MAX,
        age_max: Duration::MAX,
    }
}

fn read(ring: &Ring<u64>, from: Sequence) -> Result<(Vec<u64>, Sequence), Lagged> {
    let mut seen = Vec::new();
    let next = ring.read(from, |sequence, value| {
        assert_eq!(
            *value,
            sequence * 10,
            "a slot holds the value of its sequence"
        );
        seen.push(*value);
        ControlFlow::Continue(())
    })?;
    Ok((seen, next))
}

#[test]
fn a_reader_sees_whole_values_up_to_the_head() {
    loom::model(|| {
        let mut writer = RingWriter::new(retention());
        let ring = Arc::clone(writer.ring());
        let now = Instant::now();
        let reader = thread::spawn(move || {
            let mut cursor = 0;
            for _ in 0..2 {
                if let Ok((seen, next)) = read(&ring, cursor) {
                    assert_eq!(seen.len() as u64, next - cursor, "each value is seen once");
                    cursor = next;
                }
            }
        });
        writer.append(0, 1, now);
        writer.append(10, 1, now);
        reader.join().unwrap();
    });
}

#[test]
fn a_reader_overtaken_by_eviction_is_told_and_finds_the_rest() {
    loom::model(|| {
        let mut writer = RingWriter::new(retention());
        let ring = Arc::clone(writer.ring());
        let now = Instant::now();
        writer.append(0, 1, now);
        writer.append(10, 1, now);
        let reader = thread::spawn(move || match read(&ring, 0) {
            Ok((seen, next)) => assert_eq!((seen.first(), next), (Some(&0), seen.len() as u64)),
            Err(Lagged { oldest }) => {
                let (seen, next) =
                    read(&ring, oldest).expect("nothing more is evicted in this model");
                assert_eq!(seen.len() as u64, next - oldest);
            }
        });
        // Opens a second and a third segment; opening the third evicts the first.
        for value in 2..5 {
            writer.append(value * 10, 1, now + Duration::from_nanos(value));
        }
        reader.join().unwrap();
    });
}

#[test]
fn a_reader_is_told_or_reads_whole_values_while_the_ring_gives_memory_back() {
    loom::model(|| {
        let mut writer = RingWriter::new(Retention {
            events_max: 8,
            ..retention()
        });
        let ring = Arc::clone(writer.ring());
        let now = Instant::now();
        for value in 0..3 {
            writer.append(value * 10, 1, now);
        }
        let reader = thread::spawn(move || match read(&ring, 0) {
            Ok((seen, next)) => assert_eq!((seen.len(), next), (3, 3)),
            Err(Lagged { oldest }) => {
                let (seen, next) = read(&ring, oldest).expect("the newest segment stays");
                assert_eq!((oldest, seen.len(), next), (2, 1, 3));
            }
        });
        writer.set_bytes_max(1, now);
        reader.join().unwrap();
    });
}

#[test]
fn two_readers_do_not_disturb_each_other() {
    loom::model(|| {
        let mut writer = RingWriter::new(retention());
        let rings = [Arc::clone(writer.ring()), Arc::clone(writer.ring())];
        let readers = rings.map(|ring| {
            thread::spawn(move || {
                let (seen, next) = read(&ring, 0).expect("nothing is evicted in this model");
                assert_eq!(seen.len() as u64, next);
            })
        });
        writer.append(0, 1, Instant::now());
        for reader in readers {
            reader.join().unwrap();
        }
    });
}
