//! The table of behaviours in `docs/INFORMER.md`: it is long enough and complete, and every test that it names exists.

use std::collections::BTreeSet;
use std::fs;

use crate::source::{root, source_folders};
use crate::{assert_no_violations, assert_violation};

const PAGE: &str = "docs/INFORMER.md";
const ROW_COUNT_MIN: usize = 60;
/// The columns: id, client-go's behaviour, ours, tests.
const CELL_COUNT: usize = 4;

/// A row with its line number.
struct Row<'a> {
    line: usize,
    cells: Vec<&'a str>,
}

fn cells_of(line: &str) -> Option<Vec<&str>> {
    let inside = line.strip_prefix('|')?.strip_suffix('|')?;
    Some(inside.split('|').map(str::trim).collect())
}

/// The rows are the lines of tables that begin with an id: one letter and a number.
fn rows(page: &str) -> Vec<Row<'_>> {
    let is_id = |cell: &str| {
        let mut letters = cell.chars();
        letters.next().is_some_and(|c| c.is_ascii_uppercase())
            && cell.len() > 1
            && letters.all(|c| c.is_ascii_digit())
    };
    page.lines()
        .enumerate()
        .filter_map(|(index, line)| {
            let cells = cells_of(line)?;
            let line = index + 1;
            is_id(cells[0]).then_some(Row { line, cells })
        })
        .collect()
}

/// The texts between backticks.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// The files that a path can refer to, with the modules that must be inside: `a::b::c` is the function `c` of `src/a/b.rs`, or of the
/// module `b` in `src/a.rs`, or of the same file of another crate; where `a` is a crate, of its file `src/a/src/b.rs`. Integration tests begin with `tests/`.
fn candidate_files(path: &str) -> Vec<(String, Vec<&str>)> {
    let (folders, path) = match path.rsplit_once('/') {
        Some((folder, path)) => (vec![folder.to_owned()], path),
        None => (source_folders(), path),
    };
    let parts: Vec<&str> = path.split("::").collect();
    let mut candidates = Vec::new();
    for count in 1..parts.len() {
        let module = parts[..count].join("/");
        let inside = &parts[count..];
        candidates.extend(
            folders
                .iter()
                .map(|folder| (format!("{folder}/{module}.rs"), inside.to_vec())),
        );
        if let Some((room, module)) = module.split_once('/') {
            candidates.push((format!("src/{room}/src/{module}.rs"), inside.to_vec()));
        }
    }
    candidates
}

/// Whether the text has this function as a test inside these modules.
fn has_test(text: &str, inside: &[&str]) -> bool {
    let Some((name, modules)) = inside.split_last() else {
        return false;
    };
    let declared = |module: &&str| text.contains(&format!("mod {module} {{"));
    // The attributes are between the function and the end of the item before it.
    let is_end = |line: &&str| line.trim().is_empty() || line.ends_with(['}', ';', '{']);
    let is_attribute = |line: &str| {
        let line = line.trim_start();
        line.starts_with("#[test]") || line.starts_with("#[tokio::test")
    };
    let is_test = || {
        let signature = format!("fn {name}(");
        text.match_indices(&signature).any(|(at, _)| {
            let line_at = text[..at].rfind('\n').map_or(0, |end| end + 1);
            let mut above = text[..line_at]
                .lines()
                .rev()
                .take_while(|line| !is_end(line));
            above.any(is_attribute)
        })
    };
    modules.iter().all(declared) && is_test()
}

/// Whether the test exists; `path` is written as in the page.
pub(crate) fn exists(path: &str) -> bool {
    candidate_files(path).iter().any(|(file, inside)| {
        fs::read_to_string(root().join(file)).is_ok_and(|text| has_test(&text, inside))
    })
}

fn violations(page: &str, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    let mut ids = BTreeSet::new();
    let rows = rows(page);
    for Row { line, cells } in &rows {
        let id = cells[0];
        let mut report = |what: String| found.push(format!("{PAGE}:{line}: {id}: {what}"));
        if !ids.insert(id) {
            report("the id is used twice".to_owned());
        }
        if cells.len() != CELL_COUNT || cells.iter().any(|cell| cell.is_empty()) {
            report(format!("{} cells, or an empty cell", cells.len()));
            continue;
        }
        let (theirs, ours, tests) = (cells[1], cells[2], quoted(cells[3]));
        if quoted(theirs).is_empty() {
            report("does not name a client-go identifier".to_owned());
        }
        let why = ours.strip_prefix("differs");
        if ours != "same" && !ours.starts_with("same: ") && why.is_none_or(|why| why.len() < 20) {
            report("is neither \"same\" nor \"differs\" with a reason".to_owned());
        }
        if tests.is_empty() {
            report("names no test".to_owned());
        }
        for test in tests.into_iter().filter(|test| !exists(test)) {
            report(format!("there is no test {test}"));
        }
    }
    if rows.len() < ROW_COUNT_MIN {
        found.push(format!(
            "{PAGE}: {} rows, at least {ROW_COUNT_MIN} are required",
            rows.len()
        ));
    }
    found
}

#[test]
fn every_behaviour_has_a_test_that_exists() {
    let page = fs::read_to_string(root().join(PAGE)).unwrap();
    assert_no_violations("behaviours", violations(&page, exists));
}

#[test]
fn tests_are_found_in_files_modules_and_folders() {
    for path in [
        "upstream::reflector::tests::a_streamed_list_becomes_a_watch",
        "upstream::driver::request::tests::requests_say_what_the_reflector_wants",
        "upstream::driver::tests::frames_cut_anywhere_add_up",
        "tests/it/demo::a_short_demo_ends_verified",
        "tests/it/hostile::requests::wrong_methods_and_paths_get_the_answer_of_upstream",
    ] {
        assert!(exists(path), "{path}");
    }
    for path in [
        "upstream::reflector::tests::a_streamed_list",
        "upstream::reflector::a_streamed_list_becomes_a_watch",
        // Not a test.
        "upstream::driver::tests::settled",
        "nowhere::tests::a",
        "a",
    ] {
        assert!(!exists(path), "{path}");
    }
}

#[test]
fn planted_rows_are_found() {
    let page = "\
| id | client-go | ours | test |
|---|---|---|---|
| Q1 | does it (`TestA`) | same | `a::b` |
| Q1 | does it (`TestA`) | same: as it is | `a::b`, `a::c` |
| Q2 | does it | similar | none |
| Q3 | does it (`TestA`) | differs | `a::b` |
| Q4 | | same | `a::b` |
";
    let found = violations(page, |test| test == "a::b");
    for expected in [
        ":4: Q1: the id is used twice",
        ":4: Q1: there is no test a::c",
        ":5: Q2: does not name a client-go identifier",
        ":5: Q2: is neither \"same\" nor \"differs\"",
        ":5: Q2: names no test",
        ":6: Q3: is neither \"same\" nor \"differs\"",
        ":7: Q4: 4 cells, or an empty cell",
        "5 rows, at least 60 are required",
    ] {
        assert_violation(&found, expected);
    }
    assert_eq!(found.len(), 8, "{found:?}");
}
