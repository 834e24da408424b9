//! Type names: each is used once in the crate, and none ends with a word that does not describe what the type is.

use std::collections::BTreeMap;

use crate::source::{Source, is_word, sources};
use crate::{assert_no_violations, assert_violation};

const DECLARATIONS: &[&str] = &["struct", "enum", "trait", "type", "union"];

/// Files that replace another file under the model checker and declare the same names.
const STAND_INS: &[&str] = &["src/cache/src/cache/sync/loom_cells.rs"];

/// Participles and figures of speech that type names have ended with; nouns are clearer.
const VAGUE_ENDINGS: &[&str] = &[
    "Asked", "Begun", "Caught", "Conduct", "Course", "Crew", "Crowd", "Doing", "Done", "Filling",
    "Found", "Gathered", "Given", "Gone", "Got", "Heard", "Joining", "Journal", "Kept", "Ledger",
    "Left", "Made", "Making", "News", "Patience", "Place", "Places", "Roster", "Seat", "Sent",
    "Shelf", "Shown", "Taken", "Tally", "Telling", "Told", "Trouble", "Wanted", "Wish", "Wishes",
    "Wanting", "Written",
];

/// The types that a file declares at the top level, with their lines. Associated types are indented, so they are not found. Private
/// aliases are left out, because they only shorten the name of a type.
fn declared(source: &Source) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in source.lines() {
        if line.starts_with(char::is_whitespace) || line.starts_with("type ") {
            continue;
        }
        let words: Vec<&str> = line
            .split(|c: char| !c.is_ascii() || !is_word(c as u8))
            .filter(|word| !word.is_empty())
            .collect();
        let declared = words
            .windows(2)
            .find(|pair| DECLARATIONS.contains(&pair[0]))
            .map(|pair| pair[1].to_owned());
        found.extend(declared.map(|name| (number, name)));
    }
    found
}

fn product() -> Vec<Source> {
    let mut found = sources("src");
    found.retain(|source| !source.is_test() && !STAND_INS.contains(&source.path.as_str()));
    assert!(found.len() > 10, "the sources were not found");
    found
}

fn repeated(sources: &[Source]) -> Vec<String> {
    let mut by_name = BTreeMap::<String, Vec<String>>::new();
    for source in sources {
        for (number, name) in declared(source) {
            let location = format!("{}:{number}", source.path);
            by_name.entry(name).or_default().push(location);
        }
    }
    by_name.retain(|_, locations| locations.len() > 1);
    by_name
        .iter()
        .map(|(name, locations)| format!("{name}: {}", locations.join(", ")))
        .collect()
}

fn vague(source: &Source) -> Vec<String> {
    declared(source)
        .into_iter()
        .filter(|(_, name)| VAGUE_ENDINGS.iter().any(|ending| name.ends_with(ending)))
        .map(|(number, name)| {
            format!(
                "{}:{number}: {name} does not end with a descriptive noun",
                source.path
            )
        })
        .collect()
}

#[test]
fn a_type_name_is_used_once() {
    assert_no_violations("type names", repeated(&product()));
}

#[test]
fn type_names_are_nouns_of_the_field() {
    assert_no_violations("type names", product().iter().flat_map(vague).collect());
}

#[test]
fn planted_names_are_found() {
    let first = Source::new("src/a.rs", "\npub(crate) struct State;");
    let second = Source::new("src/b.rs", "enum State { A }\npub type Map = ();");
    let third = Source::new(
        "src/c.rs",
        "type Map = u8;\nimpl A {\n    type State = u8;\n}",
    );
    let found = repeated(&[first, second, third]);
    assert_eq!(found, ["State: src/a.rs:2, src/b.rs:1"]);
    assert_violation(
        &vague(&Source::new("src/a.rs", "pub struct LinesGathered;")),
        "src/a.rs:1: LinesGathered",
    );
    assert_eq!(
        vague(&Source::new("src/a.rs", "pub struct Placement;")),
        Vec::<String>::new()
    );
}
