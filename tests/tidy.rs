//! Rules that the compiler cannot check: who may name whom, where the clock may be read, sizes, names, documents.

#![expect(
    clippy::unwrap_used,
    reason = "a rule that cannot read its file has failed"
)]

#[path = "tidy/behaviours.rs"]
mod behaviours;
#[path = "tidy/documents.rs"]
mod documents;
#[path = "tidy/edges.rs"]
mod edges;
#[path = "tidy/figures.rs"]
mod figures;
#[path = "tidy/files.rs"]
mod files;
#[path = "tidy/planted.rs"]
mod planted;
#[path = "tidy/references.rs"]
mod references;
#[path = "tidy/source.rs"]
mod source;
#[path = "tidy/words.rs"]
mod words;

/// Fails with one line a violation, each beginning with file and line.
#[track_caller]
fn none(rule: &str, violations: Vec<String>) {
    assert!(
        violations.is_empty(),
        "{rule}:\n  {}",
        violations.join("\n  ")
    );
}

#[track_caller]
fn finds(violations: &[String], expected: &str) {
    assert!(
        violations.iter().any(|found| found.contains(expected)),
        "{expected:?} is not in {violations:?}"
    );
}
