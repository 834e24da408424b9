//! Rules that the compiler cannot check: which module may use which, where the clock may be read, sizes, names, documents.

#![expect(
    clippy::unwrap_used,
    reason = "a rule that cannot read its file has failed"
)]

mod behaviours;
mod circles;
mod documents;
mod edges;
mod figures;
mod files;
mod operators;
mod parsing;
mod planted;
mod reference;
mod references;
mod source;
mod words;

use clap::CommandFactory as _;

/// The command line, with the flags of the program that `top` runs.
fn command() -> clap::Command {
    let mut top = kube_fanout_top::TopSettings::command().name("top");
    top.build();
    kube_fanout::cli::command().mut_subcommand("top", |_| top)
}

/// Fails with one line per violation; each line begins with file and line number.
#[track_caller]
fn assert_no_violations(rule: &str, violations: Vec<String>) {
    assert!(
        violations.is_empty(),
        "{rule}:\n  {}",
        violations.join("\n  ")
    );
}

#[track_caller]
fn assert_violation(violations: &[String], expected: &str) {
    assert!(
        violations.iter().any(|found| found.contains(expected)),
        "{expected:?} is not in {violations:?}"
    );
}
