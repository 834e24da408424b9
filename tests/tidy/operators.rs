//! The pages for operators: log lines, metrics and flags that they name exist, and their links lead to headings.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use kube_fanout::check;

use crate::source::{root, sources};
use crate::{assert_no_violations, assert_violation};

const PAGES: &[&str] = &[
    "README.md",
    "deploy/README.md",
    "docs/ADOPTING.md",
    "docs/PLATFORMS.md",
    "docs/UPGRADING.md",
    "docs/QUICKSTART.md",
    "docs/HOWTO.md",
    "docs/TROUBLESHOOTING.md",
    "docs/SCALING.md",
    "docs/COMPARISON.md",
    "docs/CHANGELOG.md",
    "docs/RELEASING.md",
    "docs/RELIABILITY.md",
    "docs/SECURITY.md",
    "docs/STATUS.md",
    "docs/CHECK.md",
];

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The text in one line, so that a quotation may be wrapped.
fn unwrapped(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The text between each pair of backticks, with the text before it.
fn quotations(text: &str) -> Vec<(&str, &str)> {
    let mut parts = text.split('`');
    let mut before = parts.next().unwrap_or_default();
    let mut found = Vec::new();
    while let (Some(quoted), Some(after)) = (parts.next(), parts.next()) {
        found.push((before, quoted));
        before = after;
    }
    found
}

/// Quotations after the word `log`, and those that follow with `or`, that no source contains.
fn unknown_log_lines(path: &str, page: &str, code: &str) -> Vec<String> {
    let page = unwrapped(page);
    let mut is_log_line = false;
    let mut found = Vec::new();
    for (before, quoted) in quotations(&page) {
        let continues = is_log_line && matches!(before.trim(), "or" | ", or" | "and");
        let is_named = [" log", "(log", " log says"]
            .iter()
            .any(|word| before.trim_end().ends_with(word));
        is_log_line = continues || is_named;
        if is_log_line && !code.contains(quoted) {
            found.push(format!("{path}: nothing logs {quoted:?}"));
        }
    }
    found
}

/// All sources of the program, with string literals that are continued on the next line in one piece.
fn code() -> String {
    let mut code = String::new();
    for source in sources("src").iter().filter(|source| !source.is_test()) {
        let mut pieces = source.text.split("\\\n");
        code.push_str(pieces.next().unwrap_or_default());
        pieces.for_each(|piece| code.push_str(piece.trim_start()));
    }
    code
}

#[test]
fn quoted_log_lines_are_logged() {
    let code = code();
    let check = |path: &&str| unknown_log_lines(path, &read(path), &code);
    assert_no_violations("log lines", PAGES.iter().flat_map(check).collect());
    assert_violation(
        &unknown_log_lines(
            "x",
            "See log `serving\nfrom memory` or `was never logged`.",
            &code,
        ),
        "x: nothing logs \"was never logged\"",
    );
}

fn unknown_metrics(path: &str, page: &str, listed: &str) -> Vec<String> {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let names = page
        .match_indices("kube_fanout_")
        .map(|(at, _)| page[at..].split(|c| !is_part(c)).next().unwrap_or_default());
    names
        .filter(|name| *name != "kube_fanout_" && !listed.contains(&format!("`{name}`")))
        .map(|name| format!("{path}: docs/METRICS.md has no {name}"))
        .collect()
}

#[test]
fn metrics_of_the_pages_are_listed() {
    let listed = read("docs/METRICS.md");
    let check = |path: &&str| unknown_metrics(path, &read(path), &listed);
    assert_no_violations("metrics", PAGES.iter().flat_map(check).collect());
    assert_violation(
        &unknown_metrics("x", "rate(kube_fanout_nothing_total[1m])", &listed),
        "x: docs/METRICS.md has no kube_fanout_nothing_total",
    );
}

/// Flags in backticks, by themselves: those of other programs are written with the program's name.
fn unknown_flags(path: &str, page: &str, flags: &BTreeSet<String>) -> Vec<String> {
    quotations(page)
        .into_iter()
        .filter_map(|(_, quoted)| quoted.strip_prefix("--"))
        .map(|rest| {
            rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '-')
                .next()
                .unwrap_or_default()
        })
        .filter(|name| !flags.contains(*name))
        .map(|name| format!("{path}: there is no flag --{name}"))
        .collect()
}

#[test]
fn flags_of_the_pages_exist() {
    let top = crate::command();
    let flags: BTreeSet<String> = top
        .get_subcommands()
        .flat_map(clap::Command::get_arguments)
        .filter_map(|flag| Some(flag.get_long()?.to_owned()))
        .collect();
    let check = |path: &&str| unknown_flags(path, &read(path), &flags);
    // These name flags of cargo and of scripts as well.
    let others = ["README.md", "deploy/README.md", "docs/RELEASING.md"];
    let pages = PAGES.iter().filter(|page| !others.contains(page));
    assert_no_violations("flags", pages.flat_map(check).collect());
    assert_violation(
        &unknown_flags("x", "`--listen` and `--watch-max 7`", &flags),
        "x: there is no flag --watch-max",
    );
}

/// The anchors of a page's headings, as renderers of Markdown make them.
fn anchors(page: &str) -> BTreeSet<String> {
    let titles = page
        .lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| line.trim_start_matches('#').trim());
    titles
        .map(|title| {
            title
                .to_lowercase()
                .replace(' ', "-")
                .replace(|c: char| !c.is_alphanumeric() && c != '-' && c != '_', "")
        })
        .collect()
}

/// Checks whose reports link to a heading that does not exist, and headings of checks that do not exist.
fn unlinked_checks(page: &str) -> Vec<String> {
    let known: BTreeSet<&str> = check::CATALOGUE.iter().map(|spec| spec.name).collect();
    let headings = page.lines().filter_map(|line| line.strip_prefix("### "));
    let headings: BTreeSet<&str> = headings.collect();
    let differences = known.symmetric_difference(&headings);
    differences
        .map(|name| format!("{}: {name}", check::PAGE))
        .collect()
}

#[test]
fn every_check_leads_to_a_heading() {
    let page = read(check::PAGE);
    assert_no_violations("checks", unlinked_checks(&page));
    for spec in check::CATALOGUE {
        let (file, anchor) = spec
            .section()
            .split_once('#')
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
            .unwrap();
        assert!(anchors(&read(&file)).contains(&anchor), "{anchor}");
    }
    let renamed = page.replace("### clock-skew", "### clock");
    assert_violation(&unlinked_checks(&renamed), "clock-skew");
}

/// Links to files and headings that do not exist.
fn broken_links(path: &str, page: &str) -> Vec<String> {
    let folder = Path::new(path).parent().unwrap_or_else(|| Path::new(""));
    let targets = page
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next());
    let mut found = Vec::new();
    for target in targets.filter(|target| !target.contains("://")) {
        let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
        let text = if file.is_empty() {
            Some(page.to_owned())
        } else if root().join(folder).join(file).is_dir() {
            continue;
        } else {
            fs::read_to_string(root().join(folder).join(file)).ok()
        };
        let leads = text.is_some_and(|text| anchor.is_empty() || anchors(&text).contains(anchor));
        if !leads {
            found.push(format!("{path}: {target} leads nowhere"));
        }
    }
    found
}

#[test]
fn links_of_the_pages_lead_to_headings() {
    let check = |path: &&str| broken_links(path, &read(path));
    let others = ["docs/CONFIGURATION.md", "docs/METRICS.md"];
    assert_no_violations(
        "links",
        PAGES.iter().chain(&others).flat_map(check).collect(),
    );
    assert_violation(
        &broken_links("docs/page.md", "# A heading\n[a](#a-heading) [b](#other)"),
        "docs/page.md: #other leads nowhere",
    );
}
