//! Sizes, first lines and names of files.

use crate::source::{Source, is_word, sources};
use crate::{assert_no_violations, assert_violation};

/// The hard limit; most files should have at most 250 lines, and beyond 400 a split should be considered.
const CODE_LINES_MAX: usize = 500;

/// Names that do not describe their contents.
const EMPTY_STEMS: &[&str] = &[
    "mod", "util", "utils", "common", "misc", "helper", "helpers", "manager", "handler", "types",
    "traits",
];
const EMPTY_WORDS: &[&str] = &[
    "Manager", "Handler", "Helper", "Util", "Utils", "Common", "Misc",
];

/// Allowed because it is Kubernetes' own name for what informers call.
const GRANTED_NAMES: &[&str] = &["EventHandler"];

const DECLARATIONS: &[&str] = &["struct", "enum", "trait", "type", "union"];

fn all() -> Vec<Source> {
    let folders = ["src", "tests", "benches", "docs", "loadtest", "fuzz"];
    folders.into_iter().flat_map(sources).collect()
}

fn size_violation(source: &Source) -> Option<String> {
    let count = source
        .lines()
        .filter(|(_, line)| !line.trim().is_empty())
        .count();
    let too_long = !source.is_test() && count > CODE_LINES_MAX;
    too_long.then(|| {
        format!(
            "{}: {count} lines of code, at most {CODE_LINES_MAX}",
            source.path
        )
    })
}

fn opening_violation(source: &Source) -> Option<String> {
    let first = source.text.lines().next().unwrap_or_default();
    let says_something = first
        .strip_prefix("//! ")
        .is_some_and(|line| line.trim().len() > 3);
    (!says_something).then(|| format!("{}:1: does not open with a //! line", source.path))
}

fn name_violations(source: &Source) -> Vec<String> {
    let mut found = Vec::new();
    let stem = source
        .path
        .rsplit('/')
        .next()
        .and_then(|name| name.strip_suffix(".rs"))
        .unwrap_or_default();
    if EMPTY_STEMS.contains(&stem) {
        found.push(format!("{}: the file's name says nothing", source.path));
    }
    for (number, line) in source.lines() {
        let words: Vec<&str> = line
            .split(|c: char| !c.is_ascii() || !is_word(c as u8))
            .filter(|word| !word.is_empty())
            .collect();
        for pair in words.windows(2) {
            let empty = DECLARATIONS.contains(&pair[0])
                && !GRANTED_NAMES.contains(&pair[1])
                && EMPTY_WORDS.iter().any(|word| pair[1].ends_with(word));
            let getter = pair[0] == "fn" && pair[1].starts_with("get_");
            if empty || getter {
                found.push(format!(
                    "{}:{number}: the name {} says nothing",
                    source.path, pair[1]
                ));
            }
        }
    }
    found
}

#[test]
fn files_are_short() {
    assert_no_violations("sizes", all().iter().filter_map(size_violation).collect());
}

#[test]
fn files_open_with_what_they_hold() {
    assert_no_violations(
        "first lines",
        all().iter().filter_map(opening_violation).collect(),
    );
}

#[test]
fn names_say_what_is_inside() {
    assert_no_violations("names", all().iter().flat_map(name_violations).collect());
}

#[test]
fn planted_files_are_found() {
    let long = Source::new("src/a.rs", &"const A: u8 = 1;\n".repeat(CODE_LINES_MAX + 1));
    assert!(size_violation(&long).is_some());
    let tests = Source::new("src/a/tests.rs", &long.text);
    assert_eq!(size_violation(&tests), None);
    let commented = Source::new("src/a.rs", &"// why\n".repeat(CODE_LINES_MAX + 1));
    assert_eq!(size_violation(&commented), None);

    assert!(opening_violation(&Source::new("src/a.rs", "use a;")).is_some());
    assert_violation(
        &name_violations(&Source::new("src/a/mod.rs", "")),
        "src/a/mod.rs",
    );
    assert_violation(
        &name_violations(&Source::new("src/a.rs", "\npub struct WatchManager;")),
        "src/a.rs:2: the name WatchManager",
    );
    assert_violation(
        &name_violations(&Source::new("src/a.rs", "fn get_it() {}")),
        "get_it",
    );
    assert_eq!(
        name_violations(&Source::new(
            "src/a.rs",
            "// struct AHandler\nfn getter() {}"
        )),
        Vec::<String>::new()
    );
}
