//! Partial writes of slices and of runs of items: nothing is lost or repeated, and every slice that is offered gets filled.

use std::sync::Arc;

use super::*;
use crate::cache::samples::Sample;
use crate::cache::{Chunk, ObjectMap};
use crate::resource::{Layout, Object};

fn of_parts(parts: &[&'static str]) -> BufList {
    let mut list = BufList::default();
    parts
        .iter()
        .for_each(|part| list.push(Bytes::from_static(part.as_bytes())));
    list
}

#[track_caller]
fn check(mut list: BufList, whole: &str, step: usize, slots: usize) {
    assert_eq!(list.len(), whole.len());
    let mut written = Vec::new();
    while list.has_remaining() {
        assert!(!list.chunk().is_empty());
        let mut slices = vec![IoSlice::new(&[]); slots];
        let filled = list.chunks_vectored(&mut slices);
        let seen: Vec<u8> = slices[..filled]
            .iter()
            .flat_map(|slice| slice.to_vec())
            .collect();
        assert!(seen.starts_with(list.chunk()));
        assert!(slices[..filled].iter().all(|slice| !slice.is_empty()));
        assert!(
            filled == slots || seen.len() == list.remaining(),
            "slices were left unfilled although there was more data"
        );
        let take = seen.len().min(step);
        written.extend_from_slice(&seen[..take]);
        list.advance(take);
    }
    assert_eq!(String::from_utf8_lossy(&written), whole);
}

#[test]
fn every_partial_write_goes_on_where_it_stopped() {
    for step in 1..=12 {
        for slots in 1..=4 {
            let parts = ["abc", "", "d", "efgh", "ij"];
            check(of_parts(&parts), &parts.concat(), step, slots);
        }
    }
}

fn chunk(count: u64) -> Arc<Chunk> {
    let object = |at| Sample::new(&format!("a/o{at}"), 10 + at).object();
    let map = ObjectMap::from_objects((0..count).map(object).collect());
    let chunk = map.next_chunk(&mut map.place_from(""), "");
    Arc::clone(chunk.unwrap())
}

fn item(object: &Object) -> String {
    String::from_utf8(object.list_item(Layout::Typed).to_vec()).unwrap()
}

#[test]
fn items_are_written_as_if_each_were_pushed() {
    let chunk = chunk(4);
    let items: Vec<_> = chunk.objects().iter().map(item).collect();
    for separator in ["", ",{"] {
        let separator_bytes = Bytes::from_static(separator.as_bytes());
        for (start, has_items) in [(0, false), (0, true), (2, true)] {
            let lead = if has_items { separator } else { "" };
            let whole = format!("head{lead}{}tail", items[start..].join(separator));
            for step in [1, 7, 100, 1 << 20] {
                for slots in 1..=9 {
                    let mut list = of_parts(&["head"]);
                    let range = ItemRange {
                        chunk: &chunk,
                        layout: Layout::Typed,
                        start,
                        separator: &separator_bytes,
                        has_items,
                    };
                    list.push_items(range, 1 << 20);
                    list.push(Bytes::from_static(b"tail"));
                    let joined: Vec<_> = list.clone().into_parts().collect();
                    assert_eq!(joined.concat(), whole.as_bytes());
                    check(list, &whole, step, slots);
                }
            }
        }
    }
}

#[test]
fn items_are_taken_until_there_are_enough_bytes() {
    let chunk = chunk(4);
    let separator_bytes = Bytes::from_static(b",{");
    let len = chunk.objects()[0].list_item(Layout::Typed).len();
    for (len_max, expected) in [(0, 1), (1, 1), (len, 1), (len + 1, 2), (1 << 20, 4)] {
        let mut list = BufList::default();
        let range = ItemRange {
            chunk: &chunk,
            layout: Layout::Typed,
            start: 0,
            separator: &separator_bytes,
            has_items: false,
        };
        let count = list.push_items(range, len_max);
        assert_eq!(count, expected, "{len_max}");
    }
}

#[test]
fn the_last_byte_is_taken_off_wherever_it_stands() {
    let mut parts = of_parts(&["abc", "d"]);
    assert_eq!(parts.split_last(), Some(b'd'));
    check(parts, "abc", 2, 2);
    let chunk = chunk(2);
    let mut items = BufList::default();
    items.push_added(&chunk, 0, usize::MAX);
    let whole = items.clone().into_parts().collect::<Vec<_>>().concat();
    let whole = String::from_utf8(whole).unwrap();
    let (start, end) = whole.split_at(whole.len() - 1);
    for written in [0, 1, whole.len() - 2] {
        let mut rest = items.clone();
        rest.advance(written);
        assert_eq!(rest.split_last(), end.bytes().next());
        check(rest, &start[written..], 3, 2);
    }
    let mut one = of_parts(&["a"]);
    assert_eq!(one.split_last(), Some(b'a'));
    assert_eq!((one.is_empty(), one.split_last()), (true, None));
}
