//! The defects in `tests/planted`: each patch states its defect and the test that finds it, the test exists, and the patch applies.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::behaviours::exists;
use crate::source::root;
use crate::{assert_no_violations, assert_violation};

const FOLDER: &str = "tests/planted";
const COUNT_MIN: usize = 30;

fn patches() -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join(FOLDER)).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut patches: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|end| end == "patch"))
        .collect();
    patches.sort();
    patches
}

fn header_violations(name: &str, patch: &str, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    let mut report =
        |line: usize, what: String| found.push(format!("{FOLDER}/{name}:{line}: {what}"));
    let mut lines = patch.lines();
    let mut field = |label: &str| lines.next().and_then(|line| line.strip_prefix(label));
    if field("Defect: ").is_none_or(|text| text.len() < 20) {
        report(1, "does not describe the defect".to_owned());
    }
    match field("Found by: ") {
        None => report(2, "does not name the test that finds it".to_owned()),
        Some(test) if !exists(test) => report(2, format!("there is no test {test}")),
        Some(_) => {}
    }
    let changes_tests = |line: &str| line.starts_with("+++ ") && !line.starts_with("+++ b/src/");
    if patch.lines().any(changes_tests) {
        report(0, "changes a file outside src".to_owned());
    }
    found
}

#[test]
fn every_planted_defect_has_a_test_that_exists() {
    let patches = patches();
    let mut violations = Vec::new();
    for path in &patches {
        let name = path.file_name().unwrap().to_str().unwrap();
        let text = fs::read_to_string(path).unwrap();
        violations.extend(header_violations(name, &text, exists));
    }
    if patches.len() < COUNT_MIN {
        violations.push(format!(
            "{FOLDER}: {} patches, at least {COUNT_MIN} are required",
            patches.len()
        ));
    }
    assert_no_violations("planted defects", violations);
}

/// A change to the code around a defect must update the patch.
#[test]
fn every_planted_defect_applies() {
    let mut check = Command::new(root().join(FOLDER).join("run.sh"));
    let output = check.arg("--check").output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.code() == Some(3) {
        eprintln!("not checked: {}", text(&output.stderr));
        return;
    }
    let lines = text(&output.stdout);
    let violations = match output.status.success() {
        true => Vec::new(),
        false => lines.lines().map(str::to_owned).collect(),
    };
    assert_no_violations("planted defects", violations);
    assert!(lines.ends_with("patches apply\n"), "{lines}");
}

#[test]
fn every_defect_planted_for_the_simulation_applies() {
    let mut check = Command::new(root().join("tests/sim/planted.sh"));
    let output = check.arg("--check").output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.code() == Some(3) {
        eprintln!("not checked: {errors}");
        return;
    }
    let violations = match output.status.success() {
        true => Vec::new(),
        false => errors.lines().map(str::to_owned).collect(),
    };
    assert_no_violations("planted defects", violations);
}

#[test]
fn planted_headers_are_found() {
    let patch = |defect: &str, test: &str, file: &str| {
        format!("Defect: {defect}\nFound by: {test}\n\n--- a/{file}\n+++ b/{file}\n")
    };
    let defect = "An event is delivered twice.";
    let check = |text: &str| header_violations("01-a.patch", text, |test| test == "a::b");
    assert_eq!(check(&patch(defect, "a::b", "src/a.rs")), [""; 0]);
    assert_violation(
        &check(&patch("twice", "a::b", "src/a.rs")),
        "01-a.patch:1: does not describe",
    );
    assert_violation(
        &check(&patch(defect, "a::c", "src/a.rs")),
        "01-a.patch:2: there is no test a::c",
    );
    assert_violation(
        &check(&patch(defect, "a::b", "src/a.rs").replace("Found by", "By")),
        "01-a.patch:2: does not name the test",
    );
    assert_violation(
        &check(&patch(defect, "a::b", "tests/a.rs")),
        "changes a file outside src",
    );
}
