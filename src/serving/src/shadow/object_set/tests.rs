//! Tests of two states.

use super::*;
use crate::resource::ResourceVersion;

/// A state of these objects; the first digit is the version, the second one stands for the bytes.
fn set(words: &str) -> ObjectSet {
    let mut objects = ObjectSet::default();
    for word in words.split_whitespace() {
        let (key, digits) = word.split_at(1);
        let digits: u64 = digits.parse().unwrap();
        objects.push(ComparedObject {
            key: key.into(),
            version: ResourceVersion(digits / 10),
            digest: digits % 10,
        });
    }
    objects
}

#[track_caller]
fn check(upstream: &str, memory: &str, expected: &str) {
    let found = differences(&set(upstream), &set(memory));
    let word = |difference: &Difference| format!("{:?}:{}", difference.outcome, difference.key);
    let found: Vec<_> = found.iter().map(word).collect();
    assert_eq!(
        found.join(" ").to_lowercase(),
        expected,
        "{upstream} | {memory}"
    );
}

#[test]
fn the_first_difference_of_each_kind_is_found() {
    check("", "", "");
    check("a11 b21", "a11 b21", "");
    check("a11 b21", "a11", "missing:b");
    check("a11", "a11 b21 c31", "extra:b");
    check("a11", "a12", "content:a");
    check("a11", "a21", "content:a");
    check(
        "a11 b21 c31",
        "b22 c32 d41 e51",
        "missing:a extra:d content:b",
    );
    check("a11 a11", "a11", "missing:a");
    check("a11", "a11 a11", "content:");
    check("a11 b21", "b21 a11", "content:a");
}

#[test]
fn another_page_on_one_side_only_is_a_difference() {
    let page = ObjectSet {
        has_next: true,
        ..set("a11")
    };
    let found = differences(&page, &set("a11"));
    assert_eq!(found, [Difference::of_answer(ShadowOutcome::Content)]);
}
