//! References for operators are written from the code: `FANOUT_WRITE_DOCS=1 cargo test --test tidy` rewrites them.
//!
//! Without the variable these tests compare them. docs/METRICS.md is compared by the tests of `metrics`, which know every series.

use std::collections::BTreeSet;
use std::fs;

use clap::{Arg, ArgAction, Command};

use crate::source::{root, sources};
use crate::{assert_no_violations, assert_violation};

const PAGE: &str = "docs/CONFIGURATION.md";
const WRITE: &str = "FANOUT_WRITE_DOCS";

#[track_caller]
fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Flags in backticks, documents as links.
fn marked_up(help: &str) -> String {
    let mut text = String::new();
    for (index, piece) in help.split('`').enumerate() {
        if index % 2 == 1 {
            text.push_str(&format!("`{piece}`"));
            continue;
        }
        let words = piece.split(' ').map(|word| {
            let bare = word.trim_end_matches(['.', ',', ';', ':', ')']);
            let (before, bare) = bare.split_at(usize::from(bare.starts_with('(')));
            let after = &word[before.len() + bare.len()..];
            let bare = match bare.strip_prefix("docs/") {
                Some(target) => link(target),
                None if bare.starts_with("--") && bare.len() > 2 => format!("`{bare}`"),
                None => bare.to_owned(),
            };
            format!("{before}{bare}{after}")
        });
        text.push_str(&words.collect::<Vec<_>>().join(" "));
    }
    text
}

fn link(target: &str) -> String {
    match target.strip_prefix("CONFIGURATION.md") {
        Some(anchor) => format!("[below]({anchor})"),
        None => {
            let page = target.split('#').next().unwrap_or_default();
            format!("[{page}]({target})")
        }
    }
}

/// What the help says of a flag, its paragraphs in one line, and its values if it has a fixed set of them.
fn meaning(flag: &Arg) -> String {
    let help = flag.get_long_help().or_else(|| flag.get_help());
    let help = help.map(ToString::to_string).unwrap_or_default();
    let paragraphs = help.split("\n\n").map(|paragraph| {
        let line = paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
        line.trim_end_matches('.').to_owned()
    });
    let mut text = marked_up(&paragraphs.collect::<Vec<_>>().join(". "));
    let values = flag.get_possible_values();
    let names = values.iter().map(|value| format!("`{}`", value.get_name()));
    let names: Vec<String> = names.collect();
    let is_switch = values.iter().any(|value| value.get_name() == "true");
    if !is_switch && names.iter().any(|name| !text.contains(name)) {
        text.push_str(&format!(": {}", names.join(", ")));
    }
    text
}

fn row(flag: &Arg, name: &str) -> String {
    let defaults = flag.get_default_values().iter();
    let default: Vec<_> = defaults.map(|value| value.to_string_lossy()).collect();
    let default = match (default.join(","), flag.get_action()) {
        (none, ArgAction::SetTrue) if none.is_empty() => " `false` ".to_owned(),
        (none, _) if none.is_empty() => " ".to_owned(),
        (some, _) => format!(" `{some}` "),
    };
    format!("| `--{name}` |{default}| {} |", meaning(flag))
}

/// The rows of a command's own flags, or those of the flags that every command has.
fn rows(command: &Command, is_global: bool) -> Vec<String> {
    let flags = command.get_arguments();
    let flags = flags.filter(|flag| !matches!(flag.get_id().as_str(), "help" | "version"));
    let flags = flags.filter(|flag| flag.is_global_set() == is_global);
    flags
        .filter_map(|flag| Some(row(flag, flag.get_long()?)))
        .collect()
}

/// The rows of the flags that a command does not share with `serve`: `check` takes all of these as well.
fn rows_in_section(top: &Command, command: &Command) -> Vec<String> {
    let mut own = rows(command, false);
    if command.get_name() == "check" {
        let shared = rows(top.find_subcommand("serve").unwrap(), false);
        own.retain(|row| !shared.contains(row));
    }
    own
}

/// The page with the rows of each section `` ## `command` `` written from the command's help, and the commands that have no section.
fn written(page: &str) -> (String, Vec<String>) {
    let top = crate::command();
    let with_flags = top
        .get_subcommands()
        .filter(|command| !rows(command, false).is_empty());
    let mut missing: BTreeSet<&str> = with_flags.map(Command::get_name).collect();
    let mut made = String::new();
    let mut waiting = Vec::new();
    for line in page.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            let title = title.trim_matches('`');
            let command = top.find_subcommand(title);
            missing.remove(title);
            waiting = match (command, title) {
                (Some(command), _) => rows_in_section(&top, command),
                (None, "every command") => rows(top.find_subcommand("serve").unwrap(), true),
                _ => Vec::new(),
            };
        }
        if line.starts_with("| `--") {
            continue;
        }
        made.push_str(line);
        made.push('\n');
        if line == "|---|---|---|" {
            for row in std::mem::take(&mut waiting) {
                made.push_str(&row);
                made.push('\n');
            }
        }
    }
    let missing = missing.into_iter().map(str::to_owned).collect();
    (made, missing)
}

/// Lines of one text that the other does not have.
fn differences(path: &str, found: &str, expected: &str) -> Vec<String> {
    let known: BTreeSet<&str> = found.lines().collect();
    let wanted: BTreeSet<&str> = expected.lines().collect();
    let only = |lines: &BTreeSet<&str>, other: &BTreeSet<&str>, sign: &str| {
        let lines = lines.difference(other);
        lines
            .map(|line| format!("{path}: {sign} {line}"))
            .collect::<Vec<_>>()
    };
    let mut lines = only(&known, &wanted, "has");
    lines.extend(only(&wanted, &known, "needs"));
    if lines.is_empty() && found != expected {
        lines.push(format!("{path}: rows are in another order than the help"));
    }
    if !lines.is_empty() {
        lines.push(format!("write it: {WRITE}=1 cargo test --test tidy"));
    }
    lines
}

#[test]
fn the_tables_of_flags_are_written_from_the_help() {
    #[expect(
        clippy::disallowed_methods,
        reason = "a switch for whoever runs the test"
    )]
    let writes = std::env::var_os(WRITE).is_some();
    let page = read(PAGE);
    let (made, missing) = written(&page);
    assert_eq!(missing, Vec::<String>::new(), "commands without a section");
    if writes {
        fs::write(root().join(PAGE), &made).unwrap();
        return;
    }
    assert_no_violations("flags", differences(PAGE, &page, &made));
}

#[test]
fn a_wrong_row_of_a_flag_is_found() {
    let head = "## `demo`\n\n|---|---|---|\n";
    let (right, missing) = written(head);
    assert!(missing.contains(&"serve".to_owned()), "{missing:?}");
    assert_eq!(
        differences("x", &right, &written(&right).0),
        Vec::<String>::new()
    );
    for (from, to) in [
        ("--churn", "--churns"),
        ("`50`", "`51`"),
        ("Writes per second", "Reads per second"),
    ] {
        let wrong = right.replacen(from, to, 1);
        assert_ne!(wrong, right, "{from}");
        let found = differences("x", &wrong, &written(&wrong).0);
        assert_violation(&found, "x: has | `--churn");
        assert_violation(&found, "x: needs | `--churn` | `50` |");
    }
}

/// The literals in the sources of the program's own responses that are paths.
fn served(text: &str) -> BTreeSet<String> {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let code = code
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    let code = code.collect::<Vec<_>>().join("\n");
    let literals = code.split('"').skip(1).step_by(2);
    let is_path = |text: &&str| {
        text.len() > 1
            && text.starts_with('/')
            && text[1..]
                .chars()
                .all(|c| c.is_ascii_lowercase() || "/.-".contains(c))
    };
    literals.filter(is_path).map(str::to_owned).collect()
}

/// The paths in the rows of the section with this heading.
fn listed(page: &str, heading: &str) -> BTreeSet<String> {
    let section = page.split("\n## ").find(|part| part.starts_with(heading));
    let rows = section.unwrap_or_default().lines();
    let cells = rows.filter_map(|row| row.strip_prefix("| ")?.split('|').nth(1));
    let quoted = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    quoted
        .filter(|path| path.starts_with('/'))
        .map(|path| path.split('?').next().unwrap_or_default().to_owned())
        .collect()
}

fn endpoint_violations(served: &BTreeSet<String>, listed: &BTreeSet<String>) -> Vec<String> {
    let missing = served.difference(listed);
    let missing = missing.map(|path| format!("{PAGE}: no endpoint {path}"));
    let unknown = listed.difference(served);
    let unknown = unknown.map(|path| format!("{PAGE}: nothing serves {path}"));
    missing.chain(unknown).collect()
}

#[test]
fn the_endpoints_of_both_ports_are_listed() {
    let mut paths = served(&read("src/serving/src/admin/answer.rs"));
    for source in sources("src").iter().filter(|source| !source.is_test()) {
        let own = served(&source.text).into_iter();
        paths.extend(own.filter(|path| path.starts_with("/kube-fanout/")));
    }
    // Rights, not endpoints.
    for right in ["status", "log-filter", "profile", "serving"] {
        assert!(paths.remove(&format!("/kube-fanout/{right}")), "{right}");
    }
    let page = read(PAGE);
    let listed = listed(&page, "Endpoints");
    assert!(listed.contains("/metrics"), "{listed:?}");
    assert_no_violations("endpoints", endpoint_violations(&paths, &listed));
    let planted = served("path == \"/debug/pprof\" // \"/not/this\"");
    assert_violation(
        &endpoint_violations(&planted, &listed),
        "no endpoint /debug/pprof",
    );
    assert_violation(
        &endpoint_violations(&planted, &listed),
        "nothing serves /metrics",
    );
}

/// Variables that are no settings: of the build, of tests, and those that Kubernetes sets for a Service named kube-fanout.
const OTHER_VARIABLES: &[&str] = &["COMMIT", "REQUIRE", "PORT", "SERVICE_HOST", "TEST_"];

fn unknown_variables(path: &str, text: &str, flags: &BTreeSet<String>) -> Vec<String> {
    let prefix = "KUBE_FANOUT_";
    let names = text.match_indices(prefix).map(|(at, _)| {
        let rest = &text[at + prefix.len()..];
        let end = rest.find(|c: char| !c.is_ascii_uppercase() && c != '_');
        &rest[..end.unwrap_or(rest.len())]
    });
    let is_known = |name: &str| {
        let other = OTHER_VARIABLES;
        name.is_empty()
            || other.contains(&name)
            || name.starts_with("TEST_")
            || flags.contains(name)
    };
    names
        .filter(|name| !is_known(name))
        .map(|name| format!("{path}: no flag is set by {prefix}{name}"))
        .collect()
}

#[test]
fn variables_of_documents_and_manifests_are_those_of_flags() {
    let top = crate::command();
    let flags = top
        .get_subcommands()
        .flat_map(Command::get_arguments)
        .filter_map(|flag| Some(flag.get_long()?.replace('-', "_").to_uppercase()));
    let flags: BTreeSet<String> = flags.collect();
    let mut found = Vec::new();
    for (path, text) in crate::references::texts() {
        if path.starts_with("docs") || path.starts_with("deploy") || path == "README.md" {
            found.extend(unknown_variables(&path, &text, &flags));
        }
    }
    assert_no_violations("variables", found);
    assert_violation(
        &unknown_variables("x", "KUBE_FANOUT_LISTEN=1 KUBE_FANOUT_LISTENS=2", &flags),
        "no flag is set by KUBE_FANOUT_LISTENS",
    );
}

/// The sentence about exit codes.
fn exit_codes(text: &str) -> Option<String> {
    let text = text.replace("**", "");
    let (_, rest) = text.split_once("Exit codes:")?;
    let sentence = rest.split_once('.')?.0;
    Some(sentence.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[test]
fn the_page_and_the_help_give_the_same_exit_codes() {
    let help = crate::command().get_after_help().unwrap().to_string();
    let said = exit_codes(&help).unwrap();
    assert!(said.starts_with("0 after"), "{said}");
    assert_eq!(exit_codes(&read(PAGE)), Some(said));
}

/// The versions that files for a release name: `version: X`, `appVersion: X` and `kube-fanout:X`.
fn other_versions(path: &str, text: &str, version: &str) -> Vec<String> {
    let is_part = |c: char| c.is_ascii_digit() || c == '.';
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for marker in ["kube-fanout:", "ersion: ", "newTag: "] {
            let Some((_, rest)) = line.split_once(marker) else {
                continue;
            };
            let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
            let named = rest[..end].trim_end_matches('.');
            if named.matches('.').count() == 2 && named != version {
                found.push(format!("{path}:{}: {named}, not {version}", number + 1));
            }
        }
    }
    found
}

#[test]
fn everything_names_the_version_of_the_crate() {
    let version = env!("CARGO_PKG_VERSION");
    let files = [
        "deploy/chart/kube-fanout/Chart.yaml",
        "deploy/manifests/30-deployment.yaml",
        "deploy/README.md",
        "deploy/image.sh",
    ];
    let check = |path: &&str| other_versions(path, &read(path), version);
    assert_no_violations("versions", files.iter().flat_map(check).collect());
    let log = read("docs/CHANGELOG.md");
    let newest = log.lines().find(|line| line.starts_with("## ["));
    assert!(newest.unwrap().starts_with(&format!("## [{version}]")));
    for line in ["appVersion: 9.9.9", "image: a/kube-fanout:9.9.9"] {
        assert_violation(&other_versions("x", line, version), "x:1: 9.9.9");
    }
}

/// Names of the image under another repository than the chart's.
fn other_repositories(path: &str, text: &str, repository: &str) -> Vec<String> {
    let words = text.split(|c: char| c.is_whitespace() || "`\"'=,{}".contains(c));
    words
        .map(|word| word.trim_start_matches("docker://"))
        .map(|word| word.split([':', '@']).next().unwrap_or_default())
        .filter(|name| name.ends_with("/kube-fanout") && !name.starts_with(['.', '/']))
        // What a reader puts in its place.
        .filter(|name| {
            name.split('/')
                .next()
                .is_some_and(|host| host.contains('.'))
        })
        .filter(|name| *name != repository && !name.starts_with("registry.internal/"))
        .map(|name| format!("{path}: {name}, not {repository}"))
        .collect()
}

#[test]
fn the_chart_alone_says_which_registry_has_the_image() {
    let values = read("deploy/chart/kube-fanout/values.yaml");
    let named = values
        .lines()
        .find_map(|line| line.strip_prefix("  repository: "))
        .unwrap();
    let mut found = Vec::new();
    for (path, text) in crate::references::texts() {
        let is_for_tests = path.starts_with("deploy/chart/tests");
        if ["docs", "deploy", "README.md"]
            .iter()
            .any(|part| path.starts_with(part))
            && !is_for_tests
        {
            found.extend(other_repositories(&path, &text, named));
        }
    }
    assert_no_violations("registries", found);
    assert_violation(
        &other_repositories("x", "image: quay.example.org/kube-fanout:0.1.0", named),
        "x: quay.example.org/kube-fanout, not",
    );
}

/// The members of the status document that the sources declare, as they are written in JSON.
fn declared_members(source: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let (mut is_serialized, mut is_flat) = (false, false);
    for line in source.lines().map(str::trim) {
        if line.starts_with("#[derive(") {
            is_serialized = line.contains("Serialize");
        }
        is_flat |= line == "#[serde(flatten)]";
        let field = line
            .strip_prefix("pub ")
            .and_then(|rest| rest.split_once(": "));
        let Some((name, _)) = field else { continue };
        if is_serialized && !std::mem::take(&mut is_flat) {
            found.insert(crate::documents::key_of(&name.replace('_', "-")));
        }
    }
    found
}

/// The names in backticks of the page's section about the document.
fn documented_members(page: &str) -> BTreeSet<String> {
    // Values of members.
    let values = ["null", "lagged", "stalled", "disconnected"];
    let section = page
        .split("\n## ")
        .find(|part| part.starts_with("The document"));
    let quoted = section.unwrap_or_default().split('`').skip(1).step_by(2);
    let names = quoted.map(|name| name.trim_end_matches("[]").to_owned());
    names
        .filter(|name| name.chars().all(|c| c.is_ascii_alphabetic()))
        .filter(|name| !values.contains(&name.as_str()))
        .collect()
}

#[test]
fn the_status_page_documents_every_member() {
    let mut declared = BTreeSet::new();
    for source in sources("src").iter().filter(|source| !source.is_test()) {
        if source.path.starts_with("src/serving/src/status") {
            declared.extend(declared_members(&source.text));
        }
    }
    assert!(declared.len() > 30, "{declared:?}");
    let documented = documented_members(&read("docs/STATUS.md"));
    assert_eq!(documented, declared);
    let planted = "#[derive(Serialize)]\nstruct A {\n    pub lag_events: u64,\n    #[serde(flatten)]\n    pub traffic: u8,\n    pub events: u64,\n}\n#[derive(Debug)]\nstruct B {\n    pub head: u64,\n}";
    let members = declared_members(planted);
    assert_eq!(members, ["events", "lagEvents"].map(str::to_owned).into());
}
