//! The map compared with a plain one; its clones and its positions.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::resource::{ByteSpan, KeyRef, ObjectParts, ResourceVersion};

fn object(namespace: &str, name: &str, version: u64) -> Object {
    let parts = ObjectParts {
        namespace: namespace.into(),
        name: name.into(),
        resource_version: ResourceVersion(version),
        ..ObjectParts::default()
    };
    Object::new(parts, b"{}")
}

fn contents(map: &ObjectMap) -> Vec<(String, u64)> {
    map.iter()
        .map(|object| (object.key().to_string(), object.resource_version().0))
        .collect()
}

#[test]
fn a_bulk_load_is_sorted_and_keeps_the_last_of_equals() {
    let map = ObjectMap::from_objects(vec![
        object("b", "x", 1),
        object("a", "x", 2),
        object("b", "x", 3),
    ]);
    assert_eq!(
        contents(&map),
        [("a/x".to_owned(), 2), ("b/x".to_owned(), 3)]
    );
    assert_eq!(map.len(), 2);
}

#[test]
fn a_clone_keeps_its_state_while_the_original_changes() {
    let mut map = ObjectMap::from_objects(
        (0..1000)
            .map(|i| object("ns", &format!("n{i:04}"), i))
            .collect(),
    );
    let before = map.clone();
    map.insert(object("ns", "n0500", 9999));
    map.remove(KeyRef::of_joined("ns/n0001"));
    assert_eq!(
        before.object("ns/n0500").map(|o| o.resource_version().0),
        Some(500)
    );
    assert!(before.object("ns/n0001").is_some() && map.object("ns/n0001").is_none());
    assert_eq!((before.len(), map.len()), (1000, 999));
}

#[test]
fn a_place_from_a_key_starts_at_the_first_key_not_below() {
    let map = ObjectMap::from_objects(
        (0..600)
            .map(|i| object("ns", &format!("n{i:04}"), i))
            .collect(),
    );
    for (from, first) in [
        ("", "ns/n0000"),
        ("ns/n0191", "ns/n0191"),
        ("ns/n0191\0", "ns/n0192"),
        ("ns/n0599", "ns/n0599"),
    ] {
        let mut position = map.place_from(from);
        assert_eq!(
            map.next(&mut position).map(|o| o.key().to_string()),
            Some(first.to_owned()),
            "{from:?}"
        );
    }
    let mut position = map.place_from("zz");
    assert!(map.next(&mut position).is_none());
    assert_eq!(map.count_prefixed(map.place_from("ns/n0590"), "ns/"), 10);
}

/// The key of the first object in each chunk, and the number of its objects.
fn outline(map: &ObjectMap) -> Vec<(String, usize)> {
    map.chunks
        .iter()
        .map(|chunk| {
            let objects = chunk.objects();
            (objects[0].key().to_string(), objects.len())
        })
        .collect()
}

fn numbered(count: u64) -> ObjectMap {
    ObjectMap::from_objects(
        (0..count)
            .map(|i| object("ns", &format!("n{i:04}"), i))
            .collect(),
    )
}

#[test]
fn small_chunks_are_merged_after_deletions() {
    let mut map = numbered(3 * 192);
    let remove = |map: &mut ObjectMap, numbers: std::ops::Range<usize>| {
        for number in numbers {
            let key = format!("ns/n{number:04}");
            assert!(map.remove(KeyRef::of_joined(&key)).is_some());
        }
    };
    let at = |number: usize, count| (format!("ns/n{number:04}"), count);
    // The last chunk has no next one, so it stays however small it is.
    remove(&mut map, 384..575);
    assert_eq!(outline(&map), [at(0, 192), at(192, 192), at(575, 1)]);
    // A small chunk joins the next one when both together are at most half full.
    remove(&mut map, 192..286);
    remove(&mut map, 0..161);
    assert_eq!(outline(&map), [at(161, 31), at(286, 98), at(575, 1)]);
    remove(&mut map, 161..162);
    assert_eq!(outline(&map), [at(162, 128), at(575, 1)]);
    // A chunk joins only when it is small itself, and a chunk without objects is removed.
    remove(&mut map, 162..192);
    remove(&mut map, 286..352);
    assert_eq!(outline(&map), [at(352, 32), at(575, 1)]);
    remove(&mut map, 575..576);
    remove(&mut map, 352..383);
    assert_eq!(outline(&map), [at(383, 1)]);
    assert!(!map.is_empty());
    remove(&mut map, 383..384);
    assert!(map.is_empty());
    assert_eq!(outline(&map), []);
}

/// An object of `len` bytes.
fn sized(name: &str, len: usize) -> Object {
    let parts = ObjectParts {
        namespace: "ns".into(),
        name: name.into(),
        ..ObjectParts::default()
    };
    Object::new(parts, &vec![b' '; len])
}

/// Objects whose frames have the given lengths.
fn framed(objects: &[(&str, usize)]) -> Vec<Object> {
    objects
        .iter()
        .map(|(name, frame_len)| {
            let rest = sized(name, 0).frame_len();
            sized(name, frame_len - rest)
        })
        .collect()
}

/// A map into which the objects were inserted one after the other.
fn grown(objects: &[(&str, usize)]) -> ObjectMap {
    let mut map = ObjectMap::default();
    for object in framed(objects) {
        map.insert(object);
    }
    map
}

/// A map that was loaded with all objects at once.
fn loaded(objects: &[(&str, usize)]) -> ObjectMap {
    ObjectMap::from_objects(framed(objects))
}

/// A chunk in an outline: its first object's name and its number of objects.
fn at(name: &str, count: usize) -> (String, usize) {
    (format!("ns/{name}"), count)
}

#[test]
fn a_chunk_grows_until_it_is_over_full() {
    let mut map = numbered(0);
    for number in 0..256 {
        map.insert(object("ns", &format!("n{number:04}"), number));
    }
    assert_eq!(outline(&map), [("ns/n0000".into(), 256)]);
    map.insert(object("ns", "n9999", 1));
    assert_eq!(
        outline(&map),
        [("ns/n0000".into(), 129), ("ns/n0129".into(), 128)]
    );

    let half = chunk::FRAMES_LEN_MAX / 2;
    assert_eq!(grown(&[("a", half), ("b", half)]).chunks.len(), 1);
    assert_eq!(grown(&[("a", half), ("b", half + 1)]).chunks.len(), 2);
    assert_eq!(grown(&[("a", 3 * half)]).chunks.len(), 1);
    // The parts of a split are filled to a half, loaded chunks to three quarters.
    let [a, b, c, d] = [("a", half / 2), ("b", half / 2), ("c", half), ("d", 200)];
    let split = outline(&grown(&[a, b, c, d]));
    assert_eq!(split, [at("a", 2), at("c", 1), at("d", 1)]);
    assert_eq!(outline(&loaded(&[a, b, c])), [at("a", 2), at("c", 1)]);
    assert_eq!(outline(&loaded(&[a, c, d])), [at("a", 2), at("d", 1)]);
}

#[test]
fn small_chunks_join_if_their_bytes_allow() {
    let half = chunk::FRAMES_LEN_MAX / 2;
    for (next_len, chunks) in [(half - 200, 1), (half - 199, 2)] {
        let mut map = loaded(&[("a", 200), ("b", half), ("z", next_len)]);
        assert_eq!(outline(&map), [at("a", 2), at("z", 1)]);
        map.remove(KeyRef::of_joined("ns/b"));
        assert_eq!(map.chunks.len(), chunks, "{:?}", outline(&map));
        assert_eq!(map.frames_len(), 200 + next_len);
    }
}

#[test]
fn derived_values_of_a_chunk_are_computed_once_until_it_changes() {
    let mut map = numbered(2);
    let calls = std::cell::Cell::new(0_u32);
    let span = |object: &Object| {
        calls.set(calls.get() + 1);
        let start = u32::try_from(object.resource_version().0).unwrap();
        Some(ByteSpan { start, end: 9 })
    };
    let len = |_: &Object| {
        calls.set(calls.get() + 1);
        Some(7)
    };
    for _ in 0..2 {
        let chunk = &map.chunks[0];
        assert!(!chunk.has_metadata() && !chunk.is_measured(LengthForm::Metadata));
        for _ in 0..2 {
            let starts = chunk.metadata(span).unwrap().iter().map(|span| span.start);
            assert_eq!(starts.collect::<Vec<_>>(), [0, 1]);
            assert_eq!(chunk.lens(LengthForm::Metadata, len), Some(&[7, 7][..]));
        }
        assert_eq!(calls.replace(0), 4);
        assert!(chunk.has_metadata() && chunk.is_measured(LengthForm::Metadata));
        assert!(!chunk.is_measured(LengthForm::Whole));
        map.insert(object("ns", "n0001", 1));
    }
    let chunk = &map.chunks[0];
    assert_eq!(chunk.metadata(|_| None), None);
    assert_eq!(chunk.lens(LengthForm::Whole, |_| None), None);
    assert!(chunk.has_metadata(), "a negative result is kept, too");
}

#[test]
fn positions_at_chunk_starts_are_recognized() {
    let map = numbered(193);
    let begins = |from: &str| map.is_at_chunk(map.place_from(from));
    assert!(begins("") && begins("ns/n0192") && begins("zz"));
    assert!(!begins("ns/n0001") && !begins("ns/n0191"));
    assert!(begins("ns/n0191\0"), "after the last object of a chunk");
    let position = MapPosition { chunk: 2, index: 1 };
    assert!(map.is_at_chunk(position), "at the end of the map");
}

fn block(len: u64) -> DeflateBlock {
    DeflateBlock {
        deflate: bytes::Bytes::new(),
        len,
        crc: 0,
    }
}

/// For each chunk, whether it has a block.
fn kept(map: &ObjectMap) -> Vec<bool> {
    map.chunks
        .iter()
        .map(|chunk| chunk.block(BlockFormat::Whole).is_some())
        .collect()
}

#[test]
fn a_change_forgets_the_block_of_its_chunk_only() {
    type Change = fn(&mut ObjectMap);
    let changes: [(Change, &[bool]); 4] = [
        (
            |map| drop(map.insert(object("ns", "n0000", 9))),
            &[false, true, true],
        ),
        (
            |map| drop(map.insert(object("ns", "n0500x", 9))),
            &[true, true, false],
        ),
        (
            |map| drop(map.remove(KeyRef::of_joined("ns/n0200"))),
            &[true, false, true],
        ),
        (
            |map| drop(map.remove(KeyRef::of_joined("ns/absent"))),
            &[true, true, true],
        ),
    ];
    for shared in [false, true] {
        for (change, expected) in changes {
            let mut map = numbered(500);
            for chunk in &map.chunks {
                chunk.keep(BlockFormat::Whole, block(1));
            }
            // Whether the chunk is changed in place or copied first, the map loses the block and the older clone keeps it.
            let before = shared.then(|| map.clone());
            change(&mut map);
            assert_eq!(kept(&map), expected);
            assert!(before.is_none_or(|before| kept(&before) == [true; 3]));
        }
    }
}

#[test]
fn blocks_are_kept_by_encoding_and_the_first_stays() {
    let map = numbered(1);
    let chunk = &map.chunks[0];
    assert_eq!(chunk.keep(BlockFormat::Metadata, block(1)).len, 1);
    assert_eq!(chunk.keep(BlockFormat::Metadata, block(2)).len, 1);
    assert_eq!(chunk.block(BlockFormat::Whole), None);
}

#[test]
fn blocks_that_are_dropped_are_made_again_and_counted_while_they_are_kept() {
    let map = numbered(500);
    let made = || DeflateBlock {
        deflate: vec![1; 1_000].into(),
        ..block(2_000)
    };
    let empty = map.memory();
    assert_eq!(empty.blocks, 0);
    assert!(empty.indexes >= 500 * size_of::<Object>());
    for _ in 0..2 {
        for chunk in &map.chunks {
            chunk.keep(BlockFormat::Whole, made());
        }
        assert_eq!(kept(&map), [true; 3]);
        assert_eq!(map.memory().blocks, 3 * 1_024);
        map.drop_blocks();
        assert_eq!(kept(&map), [false; 3]);
        assert_eq!(map.memory(), empty);
    }
    for chunk in &map.chunks {
        chunk.lens(LengthForm::Whole, |_| Some(1));
    }
    assert!(map.memory().indexes >= empty.indexes + 500 * size_of::<u32>());
}

#[test]
fn chunks_are_short_in_bytes_too() {
    let mut map = ObjectMap::from_objects(vec![
        sized("a", 10),
        sized("b", chunk::FRAMES_LEN_MAX * 2),
        sized("c", chunk::FRAMES_LEN_MAX / 2),
        sized("d", chunk::FRAMES_LEN_MAX / 2),
        sized("e", 10),
    ]);
    assert_eq!(
        outline(&map),
        [at("a", 1), at("b", 1), at("c", 1), at("d", 2)]
    );
    // Inserts split chunks as well, and a removal makes room again.
    map.insert(sized("e", chunk::FRAMES_LEN_MAX / 2));
    assert_eq!(outline(&map)[3..], [at("d", 1), at("e", 1)]);
    map.insert(sized("b", 10));
    map.remove(KeyRef::of_joined("ns/a"));
    for name in ["b", "bb", "bc"] {
        map.insert(sized(name, chunk::FRAMES_LEN_MAX / 4));
    }
    assert_eq!(outline(&map)[..2], [at("b", 3), at("c", 1)]);
}

/// The steps of a walk that takes whole chunks where possible: the number of objects, and whether they are a chunk.
fn strides(map: &ObjectMap, prefix: &str) -> Vec<(usize, bool)> {
    let mut position = map.place_from(prefix);
    let mut steps: Vec<(usize, bool)> = Vec::new();
    loop {
        if let Some(chunk) = map.next_chunk(&mut position, prefix) {
            steps.push((chunk.objects().len(), true));
            continue;
        }
        match map.next(&mut position) {
            Some(object) if object.key().starts_with(prefix) => match steps.last_mut() {
                Some((count, false)) => *count += 1,
                _ => steps.push((1, false)),
            },
            _ => return steps,
        }
    }
}

#[test]
fn chunks_are_taken_whole_only_inside_the_prefix() {
    let spaces = [("a", 100), ("b", 500), ("c", 10)];
    let objects = spaces.iter().flat_map(|(namespace, count)| {
        (0..*count).map(|i| object(namespace, &format!("n{i:04}"), i))
    });
    let map = ObjectMap::from_objects(objects.collect());
    assert_eq!(
        strides(&map, ""),
        [(192, true), (192, true), (192, true), (34, true)]
    );
    assert_eq!(strides(&map, "a/"), [(100, false)]);
    assert_eq!(
        strides(&map, "b/"),
        [(92, false), (192, true), (192, true), (24, false)]
    );
    assert_eq!(strides(&map, "c/"), [(10, false)]);
    assert_eq!(strides(&map, "d/"), []);
    for (prefix, count) in [("", 610), ("a/", 100), ("b/", 500), ("c/", 10), ("d/", 0)] {
        assert_eq!(map.count_prefixed(map.place_from(prefix), prefix), count);
    }
}

#[test]
fn objects_that_come_in_order_become_the_map_that_sorting_makes() {
    for count in [0, 1, 192, 193, 500] {
        let objects: Vec<_> = (0..count)
            .map(|i| object("n", &format!("o{i:04}"), i))
            .collect();
        let mut builder = SortedBuilder::default();
        for object in &objects {
            builder.push(object.clone()).unwrap();
            // The same object again, and an earlier one, are out of order.
            assert!(builder.push(object.clone()).is_err());
            assert!(builder.push(objects[0].clone()).is_err());
        }
        let (map, sorted) = (builder.finish(), ObjectMap::from_objects(objects));
        assert_eq!(strides(&map, ""), strides(&sorted, ""));
        assert_eq!(
            (map.len(), map.frames_len()),
            (sorted.len(), sorted.frames_len())
        );
        let keys = |map: &ObjectMap| {
            map.iter()
                .map(|one| one.key().to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(keys(&map), keys(&sorted));
    }
}

#[test]
fn chunks_of_large_objects_are_cut_by_their_bytes_however_they_come() {
    let json = format!("{{\"pad\":\"{}\"}}", "x".repeat(400_000));
    let objects: Vec<_> = (0..10)
        .map(|i| {
            let parts = ObjectParts {
                name: format!("o{i}").into(),
                resource_version: ResourceVersion(i),
                ..ObjectParts::default()
            };
            Object::new(parts, json.as_bytes())
        })
        .collect();
    let mut builder = SortedBuilder::default();
    objects
        .iter()
        .for_each(|object| builder.push(object.clone()).unwrap());
    let (map, sorted) = (builder.finish(), ObjectMap::from_objects(objects));
    assert_eq!(strides(&map, ""), strides(&sorted, ""));
    assert!(strides(&map, "").len() > 2);
}

proptest! {
    /// Compared with a plain map, with enough keys that chunks split, shrink and join.
    #[test]
    fn it_holds_what_a_plain_map_holds(steps in prop::collection::vec((any::<bool>(), 0_u32..700), 1..3000)) {
        let mut map = ObjectMap::default();
        let mut model = BTreeMap::new();
        for (version, (insert, name)) in steps.into_iter().enumerate() {
            let key = format!("ns/n{name:03}");
            if insert {
                let before = map.insert(object("ns", &format!("n{name:03}"), version as u64));
                prop_assert_eq!(before.map(|o| o.resource_version().0), model.insert(key, version as u64));
            } else {
                prop_assert_eq!(map.remove(KeyRef::of_joined(&key)).map(|o| o.resource_version().0), model.remove(&key));
            }
            prop_assert_eq!(map.len(), model.len());
        }
        let allocated: usize = map.iter().map(Object::allocated_len).sum();
        prop_assert_eq!(map.memory().objects, allocated);
        prop_assert_eq!(contents(&map), model.into_iter().collect::<Vec<_>>());
        let mut position = MapPosition::default();
        prop_assert_eq!(std::iter::from_fn(|| map.next(&mut position)).count(), map.len());
    }
}
