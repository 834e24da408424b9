//! Tests of checkpoints: what is written is read again, and what is damaged is refused.

use std::io::Cursor;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use super::reader::check_history;
use super::*;
use crate::cache::samples::{Dice, Recorder, Sample, World, keep, kind};
use crate::cache::{CacheWriter, Epoch, Event, PastEvent, Sequence};
use crate::resource::{Layout, ResourceVersion};

const OBSERVED: fn() -> Arc<Recorder> = || Arc::new(Recorder::default());

fn clock() -> WriteClock {
    WriteClock::new(
        Instant::now(),
        SystemTime::UNIX_EPOCH + Duration::from_secs(2_000_000),
    )
}

fn key(byte: u8) -> StateKey {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode([byte; 32]);
    StateKey::parse(&format!("{text}\n")).unwrap()
}

fn written(capture: &Capture, key: Option<&StateKey>) -> CheckpointWriter<Vec<u8>> {
    let kind = kind(Layout::Typed);
    let header = CheckpointHeader::new(&kind, Some("c1".to_owned()), capture, (b"b", 5));
    CheckpointWriter::create(Vec::new(), key, &header, capture, clock()).unwrap()
}

fn read(bytes: &[u8], key: Option<&StateKey>) -> Result<CheckpointContent, CheckpointError> {
    let reader = CheckpointReader::open(Cursor::new(bytes), bytes.len() as u64, key)?;
    reader.restore(clock(), &|| 0)
}

fn restored(bytes: &[u8], key: Option<&StateKey>) -> CacheWriter {
    let restored = read(bytes, key).unwrap();
    assert!(restored.header.is_of(&kind(Layout::Typed)));
    let mut writer = CacheWriter::new(kind(Layout::Typed), keep(1_000), OBSERVED());
    writer.publish_restored(restored.state);
    writer.dispatch(Instant::now());
    writer
}

/// Appends what the world has published since `next`; returns the sequence that follows.
fn append_newest(file: &mut CheckpointWriter<Vec<u8>>, world: &World, next: Sequence) -> Sequence {
    let newest = Capture::of(world.writer.cache()).unwrap();
    let events = newest.events().iter();
    let events: Vec<_> = events
        .filter(|event| event.sequence() >= next)
        .cloned()
        .collect();
    let version = newest.snapshot().resource_version;
    let given = world.writer.cache().newest_given();
    file.append(&events, version, given, clock()).unwrap();
    newest.next_sequence()
}

/// What a client that resumes from `version` receives: each event's sequence-free text, or the floor of a refusal.
fn resumed(writer: &CacheWriter, version: u64) -> Result<Vec<String>, ResourceVersion> {
    let cache = writer.cache();
    let from = cache.resume_after(ResourceVersion(version));
    let from = from.map_err(|too_old| too_old.floor)?;
    let mut events = Vec::new();
    let read = cache.history().read(from, |_, event| {
        let frame = event.frame(event.kind());
        events.push(String::from_utf8(frame.to_vec()).unwrap());
        std::ops::ControlFlow::Continue(())
    });
    read.unwrap();
    Ok(events)
}

fn objects(writer: &CacheWriter) -> Vec<String> {
    let snapshot = writer.cache().snapshot().unwrap();
    let bytes = snapshot
        .objects
        .iter()
        .map(|object| object.bytes().to_vec());
    bytes
        .map(|bytes| String::from_utf8(bytes).unwrap())
        .collect()
}

#[track_caller]
fn assert_same(held: &CacheWriter, restored: &CacheWriter, newest: u64) {
    assert_eq!(objects(held), objects(restored));
    assert_eq!(held.objects_len(), restored.objects_len());
    let version = |writer: &CacheWriter| writer.cache().newest_given();
    assert_eq!(version(held), version(restored));
    for version in 0..=newest + 1 {
        let (held, restored) = (resumed(held, version), resumed(restored, version));
        assert_eq!(held, restored, "from version {version}");
    }
}

#[test]
fn a_restored_cache_serves_what_the_first_one_served() {
    for seed in 0..30 {
        let mut world = World::new(seed, 40, OBSERVED());
        for _ in 0..seed * 3 {
            world.step();
        }
        let capture = Capture::of(world.writer.cache()).unwrap();
        let bytes = written(&capture, None).out().clone();
        assert_same(&world.writer, &restored(&bytes, None), world.version);
    }
}

#[test]
fn the_journal_continues_the_history() {
    for key in [None, Some(key(1))] {
        let mut world = World::new(7, 1_000, OBSERVED());
        (0..10).for_each(|_| world.step());
        let capture = Capture::of(world.writer.cache()).unwrap();
        let mut file = written(&capture, key.as_ref());
        let mut next = capture.next_sequence();
        for _ in 0..20 {
            world.step();
            next = append_newest(&mut file, &world, next);
        }
        let bytes = file.out().clone();
        assert_eq!(read(&bytes, key.as_ref()).unwrap().end, JournalEnd::Whole);
        assert_same(
            &world.writer,
            &restored(&bytes, key.as_ref()),
            world.version,
        );
    }
}

/// After a relist only the difference is known; versions inside the gap stay too old, and the gap's events stay.
#[test]
fn gaps_are_restored() {
    let mut world = World::new(3, 1_000, OBSERVED());
    (0..20).for_each(|_| world.step());
    let listed: Vec<_> = world.state.values().skip(1).map(Sample::object).collect();
    let version = ResourceVersion(world.version + 40);
    world.writer.replace(listed, version, world.now).unwrap();
    world.version += 40;
    world.state = world.state.into_iter().skip(1).collect();
    (0..5).for_each(|_| world.step());
    let capture = Capture::of(world.writer.cache()).unwrap();
    let bytes = written(&capture, None).out().clone();
    assert_same(&world.writer, &restored(&bytes, None), world.version);
}

/// Clients may still hold versions of a history that upstream lost before, whichever gateway they come to.
#[test]
fn a_lost_history_is_still_known() {
    let lost = |version, own| {
        let (kind, lost) = (kind(Layout::Typed), ResourceVersion(version));
        let mut writer = CacheWriter::after_loss(kind.clone(), keep(10), OBSERVED(), lost);
        let listed = vec![Sample::new("a/x", 20).object()];
        let version = ResourceVersion(30);
        writer.replace(listed, version, Instant::now()).unwrap();
        let capture = Capture::of(writer.cache()).unwrap();
        let state = read(&written(&capture, None).into_out(), None)
            .unwrap()
            .state;
        let mut next = CacheWriter::after_loss(kind, keep(10), OBSERVED(), ResourceVersion(own));
        next.publish_restored(state);
        let is_refused = |version| resumed(&next, version).is_err();
        assert!(!is_refused(30));
        (31..100).filter(|version| is_refused(*version)).max()
    };
    assert_eq!(lost(0, 0), None);
    assert_eq!(lost(50, 0), Some(50));
    assert_eq!(lost(50, 40), Some(50));
    assert_eq!(lost(50, 60), Some(60));
}

/// However far above the newest version a lost one is, what is written can be read; a reader takes no more.
#[test]
fn a_lost_history_has_a_bound() {
    let known = |version: u64| {
        let lost = ResourceVersion(version);
        let mut writer = CacheWriter::after_loss(kind(Layout::Typed), keep(10), OBSERVED(), lost);
        let version = ResourceVersion(30);
        writer.replace(Vec::new(), version, Instant::now()).unwrap();
        let capture = Capture::of(writer.cache()).unwrap();
        let content = read(&written(&capture, None).into_out(), None).unwrap();
        content.state
    };
    let max = 30 + (1 << 32);
    assert_eq!(known(max).lost.0, max);
    assert_eq!(known(max + 1).lost.0, max);
    let mut state = known(u64::MAX);
    assert_eq!(state.lost.0, max);
    assert!(check_history(&state).is_ok());
    state.lost.0 += 1;
    assert!(check_history(&state).is_err());
}

#[test]
fn a_checkpoint_without_history_begins_with_the_newest_state() {
    let mut world = World::new(3, 1_000, OBSERVED());
    (0..20).for_each(|_| world.step());
    let mut capture = Capture::of(world.writer.cache()).unwrap();
    capture.shorten_to(0);
    let bytes = written(&capture, None).out().clone();
    let restored = restored(&bytes, None);
    assert_eq!(objects(&world.writer), objects(&restored));
    assert_eq!(resumed(&restored, world.version), Ok(Vec::new()));
    let base_version = capture.base_version().0;
    assert_eq!(resumed(&restored, base_version), Ok(Vec::new()));
    let too_old = resumed(&restored, base_version - 1);
    assert_eq!(too_old, Err(ResourceVersion(base_version)));
}

/// A file with a journal of several blocks, and the state of each moment that it holds.
fn sample_file(key: Option<&StateKey>) -> (Vec<u8>, Vec<Vec<String>>) {
    let mut world = World::new(11, 1_000, OBSERVED());
    (0..6).for_each(|_| world.step());
    let capture = Capture::of(world.writer.cache()).unwrap();
    let mut file = written(&capture, key);
    let mut states = vec![objects(&world.writer)];
    let mut next = capture.next_sequence();
    for _ in 0..4 {
        world.step();
        next = append_newest(&mut file, &world, next);
        states.push(objects(&world.writer));
    }
    (file.out().clone(), states)
}

/// Whatever byte is wrong, the file is refused or gives the state of a moment that there was.
#[test]
fn any_changed_byte_is_noticed() {
    for key in [None, Some(key(1))] {
        let (bytes, states) = sample_file(key.as_ref());
        let newest = states.last().unwrap();
        for at in 0..bytes.len() {
            for flip in [1, 0x80] {
                let mut changed = bytes.clone();
                changed[at] ^= flip;
                let Ok(restored) = read(&changed, key.as_ref()) else {
                    continue;
                };
                assert_ne!(restored.end, JournalEnd::Whole, "byte {at}");
                let mut writer = CacheWriter::new(kind(Layout::Typed), keep(1_000), OBSERVED());
                writer.publish_restored(restored.state);
                let objects = objects(&writer);
                assert!(states.contains(&objects), "byte {at}");
                assert!(&objects != newest || states.iter().filter(|s| *s == newest).count() > 1);
            }
        }
    }
}

/// The checksums of a state from another gateway say nothing about what it claims.
#[test]
fn a_header_with_an_impossible_history_is_refused() {
    let mut world = World::new(11, 1_000, OBSERVED());
    (0..20).for_each(|_| world.step());
    let capture = Capture::of(world.writer.cache()).unwrap();
    let newest = world.version;
    let claim = |change: &dyn Fn(&mut CheckpointHeader)| {
        let kind = kind(Layout::Typed);
        let mut header = CheckpointHeader::new(&kind, None, &capture, (b"b", 5));
        change(&mut header);
        let written = CheckpointWriter::create(Vec::new(), None, &header, &capture, clock());
        let reader = CheckpointReader::open_stream(Cursor::new(written.unwrap().into_out()));
        reader.unwrap().restore(clock(), &|| 0)
    };
    let accepted: [&dyn Fn(&mut CheckpointHeader); 3] = [
        &|header| header.forgotten = newest,
        &|header| header.gaps = vec![(newest - 2, newest)],
        &|header| header.gaps = vec![(1, 3); 16],
    ];
    for change in accepted {
        claim(change).unwrap();
    }
    let refused: [&dyn Fn(&mut CheckpointHeader); 6] = [
        &|header| header.base_version = 0,
        &|header| header.forgotten = newest + 1,
        &|header| header.gaps = vec![(5, 5)],
        &|header| header.gaps = vec![(6, 5)],
        &|header| header.gaps = vec![(newest - 2, newest + 1)],
        &|header| header.gaps = vec![(1, 3); 17],
    ];
    for (index, change) in refused.into_iter().enumerate() {
        let refused = claim(change);
        let is_damaged = matches!(refused, Err(CheckpointError::Damaged(_)));
        assert!(is_damaged, "{index}");
    }
}

/// The base of one cache with the history of another, older one.
#[test]
fn an_object_that_is_newer_than_the_history_is_refused() {
    let state = |version| {
        let mut writer = CacheWriter::new(kind(Layout::Typed), keep(10), OBSERVED());
        let object = Sample::new("a/x", 20).object();
        let version = ResourceVersion(version);
        writer
            .replace(vec![object], version, Instant::now())
            .unwrap();
        let capture = Capture::of(writer.cache()).unwrap();
        read(&written(&capture, None).into_out(), None)
    };
    assert!(state(20).is_ok());
    assert!(matches!(state(19), Err(CheckpointError::Damaged(_))));
}

/// A stream that ends with a whole block may be whole; wherever else it ends, it is not.
#[test]
fn a_stream_ends_with_a_whole_block() {
    let mut world = World::new(11, 1_000, OBSERVED());
    (0..40).for_each(|_| world.step());
    let capture = Capture::of(world.writer.cache()).unwrap();
    let bytes = written(&capture, None).into_out();
    let read = |bytes: &[u8]| {
        let reader = CheckpointReader::open_stream(Cursor::new(bytes.to_vec()))?;
        reader.restore(clock(), &|| 0)
    };
    let whole = read(&bytes).unwrap();
    assert_eq!(whole.end, JournalEnd::Whole);
    assert_eq!(whole.state.version.0, world.version);
    for len in 0..bytes.len() {
        let cut = read(&bytes[..len]);
        assert!(cut.is_err(), "{len} bytes of {}", bytes.len());
    }
    // What a block claims of its length is not believed.
    let mut endless = bytes[..writer::PREAMBLE_LEN].to_vec();
    endless.extend((1_u32 << 30).to_le_bytes());
    endless.extend([0; 100]);
    assert!(matches!(read(&endless), Err(CheckpointError::Damaged(_))));
    let sealed = written(&capture, Some(&key(1))).into_out();
    assert!(matches!(read(&sealed), Err(CheckpointError::NoKey)));
}

/// The other gateway's wall clock may be wrong, or this one's.
#[test]
fn events_from_another_machine_have_the_age_that_they_had_there() {
    let mut world = World::new(11, 1_000, OBSERVED());
    (0..40).for_each(|_| world.step());
    let capture = Capture::of(world.writer.cache()).unwrap();
    let hour = 3_600_000;
    let writing = WriteClock {
        instant: Instant::now() + Duration::from_secs(5),
        unix_ms: 100 * hour,
    };
    let now = (b"b".as_slice(), writing.unix_ms);
    let header = CheckpointHeader::new(&kind(Layout::Typed), None, &capture, now);
    let written = CheckpointWriter::create(Vec::new(), None, &header, &capture, writing);
    let bytes = written.unwrap().into_out();
    let age = |event: &Arc<Event>| writing.instant.duration_since(event.arrived_at());
    let written: Vec<_> = capture.events().iter().map(age).collect();
    assert!(!written.is_empty() && written.iter().all(|age| !age.is_zero()));
    for unix_ms in [99 * hour, 100 * hour, 101 * hour] {
        let reading = WriteClock { unix_ms, ..writing };
        let reader = CheckpointReader::open_stream(Cursor::new(bytes.clone())).unwrap();
        let events = reader.restore(reading, &|| 0).unwrap().state.events;
        let age = |event: &PastEvent| reading.instant.duration_since(event.arrived_at);
        for (read, written) in events.iter().map(age).zip(&written) {
            // The file has whole milliseconds.
            assert!(read.abs_diff(*written) <= Duration::from_millis(1));
        }
    }
}

#[test]
fn a_file_that_was_cut_gives_an_earlier_state_or_is_refused() {
    let (bytes, states) = sample_file(None);
    let mut seen = 0;
    for len in 0..bytes.len() {
        if let Ok(restored) = read(&bytes[..len], None) {
            let mut writer = CacheWriter::new(kind(Layout::Typed), keep(1_000), OBSERVED());
            writer.publish_restored(restored.state);
            assert!(states.contains(&objects(&writer)), "{len} bytes");
            seen += 1;
        }
    }
    assert!(seen > 0);
}

#[test]
fn keys_are_told_apart() {
    let (plain, _) = sample_file(None);
    let (sealed, _) = sample_file(Some(&key(1)));
    let refused = |bytes: &[u8], key: Option<&StateKey>| read(bytes, key).unwrap_err().to_string();
    assert_eq!(
        refused(&plain, Some(&key(1))),
        "it is not encrypted, although there is a --state-key-file"
    );
    assert_eq!(
        refused(&sealed, None),
        "it is encrypted, and there is no --state-key-file"
    );
    assert_eq!(
        refused(&sealed, Some(&key(2))),
        "it was encrypted with another key"
    );
    let holds = |bytes: &[u8], text: &str| {
        bytes
            .windows(text.len())
            .any(|part| part == text.as_bytes())
    };
    assert!(holds(&plain, "resourceVersion"));
    assert!(!holds(&sealed, "resourceVersion"));
}

#[test]
fn other_files_are_refused_with_their_reason() {
    let (bytes, _) = sample_file(None);
    let refused = |bytes: &[u8]| read(bytes, None).unwrap_err().to_string();
    let no_checkpoint = "it is not a checkpoint, or its first bytes are damaged";
    assert_eq!(refused(b""), no_checkpoint);
    assert_eq!(refused(&[0; 4096]), no_checkpoint);
    let mut future = bytes.clone();
    future[8] = 2;
    let check = crc32fast::hash(&future[..28]).to_le_bytes();
    future[28..32].copy_from_slice(&check);
    assert_eq!(
        refused(&future),
        "it has format 2, and this build reads format 1"
    );
    let mut dice = Dice(1);
    for _ in 0..200 {
        let noise: Vec<u8> = (0..dice.below(2_000))
            .map(|_| u8::try_from(dice.below(256)).unwrap())
            .collect();
        assert!(read(&noise, None).is_err());
        let mut tail = bytes[..32].to_vec();
        tail.extend(noise);
        assert!(read(&tail, None).is_err());
    }
}

#[test]
fn keys_have_32_bytes_in_base64() {
    for text in ["", "secret", "c2hvcnQ="] {
        assert_eq!(StateKey::parse(text).unwrap_err(), SealError::Key);
    }
    assert_eq!(format!("{:?}", key(3)), "StateKey(…)");
}

/// A cut, a loss of the watch, a proof, a compaction, and ordinary changes.
fn shake(world: &mut World) {
    match world.dice.below(12) {
        0..3 => world.lose_and_relist(),
        3 => {
            let version = world.version + 1 + world.dice.below(5);
            let snapshot = world.writer.cache().snapshot().unwrap();
            assert!(
                world
                    .writer
                    .cache()
                    .prove(&snapshot, ResourceVersion(version))
            );
            world.version = version;
        }
        4 => {
            let cuts = u32::try_from(world.dice.below(5)).unwrap();
            world.writer.cut_history(cuts, 0, Duration::MAX, world.now);
            world.writer.expire(world.now);
        }
        5 => {
            let version = world.version.saturating_sub(world.dice.below(20));
            world.writer.forget(ResourceVersion(version));
        }
        _ => world.step(),
    }
}

/// A cache that was restored without the history before this version.
#[track_caller]
fn assert_resumes_alike(world: &World, restored: &CacheWriter, base_version: u64) {
    assert_eq!(objects(&world.writer), objects(restored));
    assert_eq!(world.writer.objects_len(), restored.objects_len());
    for version in 0..=world.version + 1 {
        let resumed_here = resumed(restored, version);
        match version < base_version {
            true => assert!(resumed_here.is_err(), "from version {version}"),
            false => assert_eq!(
                resumed_here,
                resumed(&world.writer, version),
                "from version {version}"
            ),
        }
    }
}

#[test]
fn whatever_a_cache_went_through_what_is_captured_of_it_can_be_read() {
    for seed in 0..12 {
        let mut world = World::after_loss(
            seed,
            20 + usize::try_from(seed).unwrap(),
            OBSERVED(),
            seed % 3 * 40,
        );
        let mut file: Option<(CheckpointWriter<Vec<u8>>, Epoch, Sequence)> = None;
        for _ in 0..60 {
            shake(&mut world);
            let cache = Arc::clone(world.writer.cache());
            let mut capture = Capture::of(&cache).unwrap();
            let bytes = written(&capture, None).into_out();
            assert_eq!(
                read(&bytes, None).unwrap().end,
                JournalEnd::Whole,
                "seed {seed}"
            );
            assert_same(&world.writer, &restored(&bytes, None), world.version);
            // With a part of the history only, down to none.
            capture.shorten_to(capture.frames_len() * world.dice.below(4) / 4);
            let bytes = written(&capture, None).into_out();
            assert_eq!(
                read(&bytes, None).unwrap().end,
                JournalEnd::Whole,
                "seed {seed}"
            );
            assert_resumes_alike(&world, &restored(&bytes, None), capture.base_version().0);
            // A file that was written before, and continued.
            let epoch = cache.snapshot().unwrap().epoch;
            file = file.filter(|(_, of, _)| *of == epoch);
            let Some((journal, _, next)) = &mut file else {
                let capture = Capture::of(&cache).unwrap();
                let next = capture.next_sequence();
                file = Some((written(&capture, None), epoch, next));
                continue;
            };
            *next = append_newest(journal, &world, *next);
            let bytes = journal.out().clone();
            assert_eq!(read(&bytes, None).unwrap().end, JournalEnd::Whole);
            assert_eq!(objects(&world.writer), objects(&restored(&bytes, None)));
        }
    }
}

/// A capture that claimed a version from after its state would be restored as a state that lacks what upstream then sends.
#[test]
fn a_capture_claims_no_version_that_its_state_does_not_have() {
    let mut world = World::new(7, 10_000, OBSERVED());
    (0..2_000).for_each(|_| world.step());
    let cache = Arc::clone(world.writer.cache());
    let writing = std::thread::spawn(move || (0..4_000).for_each(|_| world.step()));
    while !writing.is_finished() {
        let capture = Capture::of(&cache).unwrap();
        assert_eq!(capture.proven(), capture.snapshot().resource_version);
    }
    writing.join().unwrap();
}

#[test]
fn only_as_much_history_is_read_as_there_is_memory_for() {
    let mut world = World::new(5, 1_000, OBSERVED());
    (0..10).for_each(|_| world.step());
    let capture = Capture::of(world.writer.cache()).unwrap();
    let mut file = written(&capture, None);
    let mut next = capture.next_sequence();
    for _ in 0..40 {
        world.step();
        next = append_newest(&mut file, &world, next);
    }
    let bytes = file.into_out();
    let with_excess = |excess: usize| {
        let reader = CheckpointReader::open(Cursor::new(&bytes), bytes.len() as u64, None);
        let content = reader.unwrap().restore(clock(), &|| excess).unwrap();
        assert_eq!(content.end, JournalEnd::Whole);
        let mut writer = CacheWriter::new(kind(Layout::Typed), keep(1_000), OBSERVED());
        let (base_version, count) = (content.state.base_version.0, content.state.events.len());
        writer.publish_restored(content.state);
        writer.dispatch(Instant::now());
        assert_eq!(objects(&world.writer), objects(&writer));
        assert_eq!(world.writer.objects_len(), writer.objects_len());
        for version in 0..=world.version + 1 {
            let expected = match version < base_version {
                true => Err(ResourceVersion(base_version)),
                false => resumed(&world.writer, version),
            };
            assert_eq!(
                resumed(&writer, version),
                expected,
                "from version {version}"
            );
        }
        count
    };
    let [all, some, none] = [0, 1, usize::MAX].map(with_excess);
    assert!(all > some && some > none, "{all} {some} {none}");
    assert!(none <= 3, "the last block's end may be missing");
}
