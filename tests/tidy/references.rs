//! Documents, code and scripts refer only to documents, sections and decisions that exist in the repository.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::source::root;
use crate::{assert_no_violations, assert_violation};

const FOLDERS: &[&str] = &[
    "src", "tests", "benches", "loadtest", "deploy", "docs", "fuzz", ".ci",
];
const EXTENSIONS: &[&str] = &["md", "patch", "py", "rs", "sh", "toml", "txt", "yaml"];

/// Every text file of the repository: path and contents.
pub(crate) fn texts() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for folder in FOLDERS {
        collect(&root().join(folder), &mut found);
    }
    for name in ["README.md", "Cargo.toml"] {
        found.push((
            name.to_owned(),
            fs::read_to_string(root().join(name)).unwrap(),
        ));
    }
    assert!(found.len() > 100, "the files were not found");
    found
}

fn collect(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            let is_output = path.file_name().is_some_and(|name| {
                ["target", "node_modules"]
                    .iter()
                    .any(|output| name == *output)
            });
            if !is_output {
                collect(&path, found);
            }
            continue;
        }
        let extension = path.extension().and_then(|extension| extension.to_str());
        if !extension.is_some_and(|extension| EXTENSIONS.contains(&extension)) {
            continue;
        }
        let Ok(text) = fs::read_to_string(&path) else {
            continue;
        };
        let path = path
            .strip_prefix(root())
            .unwrap()
            .to_string_lossy()
            .into_owned();
        found.push((path, text));
    }
}

/// Names of Markdown files in a line, including the characters before them in the same word.
fn documents(line: &str) -> Vec<&str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    line.match_indices(".md")
        .filter_map(|(at, _)| {
            let end = at + 3;
            if line[end..].starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_') {
                return None;
            }
            let start = line[..at].rfind(|c| !is_part(c)).map_or(0, |before| {
                before + line[before..].chars().next().map_or(1, char::len_utf8)
            });
            Some(&line[start..end])
        })
        .filter(|name| name.len() > 3 && !name.starts_with('/'))
        .collect()
}

/// The number after each `word`, such as `decision 12`; for a list ("decisions 3 and 4") all numbers.
fn decisions(line: &str) -> Vec<u32> {
    let lower = line.to_ascii_lowercase();
    let mut found = Vec::new();
    for (at, _) in lower.match_indices("decision") {
        let mut words = lower[at..].split_ascii_whitespace();
        if !matches!(words.next(), Some("decision" | "decisions")) {
            continue;
        }
        for word in words {
            let digits = word.trim_matches(|c: char| !c.is_ascii_digit());
            match digits.parse() {
                Ok(number) if digits.len() <= 2 => found.push(number),
                _ if word == "and" => continue,
                _ => break,
            }
        }
    }
    found
}

/// Sections of the protocol page that a line refers to: `docs/PROTOCOL.md §4.13`.
fn sections(line: &str) -> Vec<String> {
    let marker = "PROTOCOL.md §";
    line.match_indices(marker)
        .map(|(at, _)| {
            let text = &line[at + marker.len()..];
            let end = text
                .find(|c: char| !c.is_ascii_digit() && c != '.')
                .unwrap_or(text.len());
            text[..end].trim_end_matches('.').to_owned()
        })
        .collect()
}

/// The numbers of headings and of numbered table rows.
fn headings(page: &str) -> BTreeSet<String> {
    page.lines()
        .filter(|line| line.starts_with(['#', '|']))
        .filter_map(|line| {
            let number = line
                .trim_start_matches(['#', '|'])
                .split_whitespace()
                .next()?;
            Some(
                number
                    .trim_start_matches('§')
                    .trim_end_matches('.')
                    .to_owned(),
            )
        })
        .collect()
}

/// Whether `name`, as written in the file at `path`, exists: relative to the repository, to the file's folder, or to a folder of documents.
fn exists(path: &str, name: &str) -> bool {
    let beside = Path::new(path).parent().unwrap_or_else(|| Path::new(""));
    [
        root().join(name),
        root().join(beside).join(name),
        root().join("docs").join(name),
        root().join("docs/decisions").join(name),
        root().join("docs/performance").join(name),
    ]
    .iter()
    .any(|candidate| candidate.is_file())
}

/// Files that programs write, or that tests create.
const MADE_BY_PROGRAMS: &[&str] = &["page.md", "out/README.md", "out/PERFORMANCE.md"];

fn dangling(path: &str, text: &str, sections_of_protocol: &BTreeSet<String>) -> Vec<String> {
    let mut found = Vec::new();
    let records = fs::read_dir(root().join("docs/decisions")).unwrap();
    let records: BTreeSet<u32> = records
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.get(..4)?.parse().ok())
        .collect();
    for (index, line) in text.lines().enumerate() {
        let mut say = |what: String| found.push(format!("{path}:{}: {what}", index + 1));
        for name in documents(line) {
            let is_made = MADE_BY_PROGRAMS.iter().any(|made| name.ends_with(made));
            if !is_made && !exists(path, name) {
                say(format!("there is no {name}"));
            }
        }
        for section in sections(line) {
            if !sections_of_protocol.contains(&section) {
                say(format!("docs/PROTOCOL.md has no section {section}"));
            }
        }
        if path.ends_with(".rs") || path.ends_with(".md") {
            for number in decisions(line) {
                if !records.contains(&number) {
                    say(format!("there is no decision {number}"));
                }
            }
        }
    }
    found
}

#[test]
fn references_lead_somewhere() {
    let protocol = headings(&fs::read_to_string(root().join("docs/PROTOCOL.md")).unwrap());
    let violations = texts()
        .iter()
        .filter(|(path, _)| path != "tests/tidy/references.rs")
        .flat_map(|(path, text)| dangling(path, text, &protocol))
        .collect();
    assert_no_violations("references", violations);
}

#[test]
fn planted_references_are_found() {
    let protocol = BTreeSet::from(["4.13".to_owned()]);
    let check = |text: &str| dangling("src/a.rs", text, &protocol);
    assert_violation(
        &check("// See design.md."),
        "src/a.rs:1: there is no design.md",
    );
    assert_violation(
        &check("\n// docs/PROTOCOL.md §4.14"),
        "src/a.rs:2: docs/PROTOCOL.md has no section 4.14",
    );
    assert_violation(&check("// (decisions 3 and 99)"), "there is no decision 99");
    let right = "// README.md, docs/PROTOCOL.md §4.13, decisions/README.md; a decision is made, decision 3.";
    assert_eq!(check(right), Vec::<String>::new());
}
