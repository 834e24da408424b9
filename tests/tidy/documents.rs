//! Documents, manifests and scripts agree with the code.

use std::collections::BTreeMap;
use std::fs;

use kube_fanout::config::{self, Settings};

use crate::source::{root, source_folders};
use crate::{assert_no_violations, assert_violation};

/// Each flag without its dashes, and its default, of one command.
type FlagTable = BTreeMap<String, String>;

/// Reads a file that these checks need; fails if it is missing, because the check would prove nothing.
#[track_caller]
fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The documents in these folders.
fn pages(folders: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for folder in folders {
        let entries = fs::read_dir(root().join(folder)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let before = found.len();
        found.extend(
            names
                .filter(|name| name.ends_with(".md"))
                .map(|name| format!("{folder}/{name}")),
        );
        assert!(found.len() > before, "no documents in {folder}");
    }
    found.sort_unstable();
    found
}

fn flags_of(command: &str) -> FlagTable {
    let top = crate::command();
    let command = top.find_subcommand(command).unwrap();
    let flags = command
        .get_arguments()
        .filter(|flag| !matches!(flag.get_id().as_str(), "help" | "version"));
    flags
        .filter_map(|flag| {
            let defaults = flag
                .get_default_values()
                .iter()
                .map(|value| value.to_string_lossy());
            let default: Vec<_> = defaults.collect();
            Some((flag.get_long()?.to_owned(), default.join(",")))
        })
        .collect()
}

#[test]
fn the_configuration_page_lists_every_setting_that_changes_without_a_restart() {
    let page = read("docs/CONFIGURATION.md");
    let section = page
        .split("### Settings that change without a restart")
        .nth(1);
    let section = section.unwrap().split("\n#").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let mut keys: Vec<&str> = rows.filter_map(|row| row.split('`').next()).collect();
    keys.sort_unstable();
    let live = config::LiveSetting::ALL.map(config::LiveSetting::key);
    assert_eq!(keys, live);
}

/// Flags that a text passes to one of our commands but that the command does not have.
fn unknown_flags(path: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for command in [
            "serve",
            "apiserver",
            "demo",
            "top",
            "check",
            "assess",
            "inject",
        ] {
            let Some((_, rest)) = line.split_once(&format!("kube-fanout {command} ")) else {
                continue;
            };
            let flags = flags_of(command);
            for word in rest
                .split_whitespace()
                .filter_map(|word| word.strip_prefix("--"))
            {
                let name = word
                    .split(['=', '`', '|', ']', ','])
                    .next()
                    .unwrap_or_default();
                if !flags.contains_key(name) {
                    found.push(format!("{path}:{}: {command} has no --{name}", index + 1));
                }
            }
        }
    }
    found
}

#[test]
fn documents_give_flags_that_exist() {
    let pages = pages(&[".", "docs", "docs/decisions", "loadtest", "tests/real"]);
    assert_no_violations(
        "flags",
        pages
            .iter()
            .flat_map(|page| unknown_flags(page, &read(page)))
            .collect(),
    );
    assert_violation(
        &unknown_flags("x", "\nkube-fanout demo --watchers 1 --clients=2"),
        "x:2: demo has no --clients",
    );
}

/// Checks arguments in manifests, which are one per line: `- --listen=0.0.0.0:8443`.
fn unknown_arguments(path: &str, text: &str) -> Vec<String> {
    let flags = flags_of("serve");
    let arguments = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- --"));
    let names = arguments.filter_map(|argument| argument.trim_matches('"').split('=').next());
    names
        .filter(|name| !flags.contains_key(*name))
        .map(|name| format!("{path}: serve has no --{name}"))
        .collect()
}

#[test]
fn manifests_give_flags_that_exist() {
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join("deploy/manifests")).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        found.extend(unknown_arguments(&path.display().to_string(), &text));
    }
    assert_no_violations("manifests", found);
    assert_violation(
        &unknown_arguments("x", "  - --listn=0.0.0.0:1"),
        "serve has no --listn",
    );
}

/// The configuration files inside a text, without their indentation.
fn embedded_files(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut indent = None;
    for line in text.lines() {
        if let Some(before) = line.strip_suffix("apiVersion: kube-fanout.dev/v1alpha1") {
            indent = Some(before);
            found.push(String::new());
        }
        let Some(body) = indent.and_then(|indent| line.strip_prefix(indent)) else {
            indent = None;
            continue;
        };
        if body.starts_with("```") {
            indent = None;
        } else if let Some(file) = found.last_mut() {
            file.push_str(body);
            file.push('\n');
        }
    }
    found
}

#[test]
fn configuration_files_in_documents_and_manifests_are_read() {
    let pages = [
        "docs/CONFIGURATION.md",
        "deploy/manifests/20-configuration.yaml",
    ];
    for (index, page) in pages.into_iter().enumerate() {
        let files = embedded_files(&read(page));
        assert_eq!(files.len(), 1, "{page}");
        let path = std::env::temp_dir().join(format!(
            "kube-fanout-tidy-{}-{index}.yaml",
            std::process::id()
        ));
        fs::write(&path, &files[0]).unwrap();
        let arguments = ["kube-fanout", "serve", "--config"]
            .map(Into::into)
            .into_iter();
        let flags = config::read(arguments.chain([path.clone().into()]).collect(), |_| None);
        fs::remove_file(&path).unwrap();
        let resolved = Settings::resolve(
            flags.unwrap_or_else(|error| panic!("{page}: {:?}", error.one_line())),
        );
        assert!(resolved.is_ok(), "{page}: {resolved:?}");
    }
}

/// `--ring-age-min` as it is written in a file: `ringAgeMin`.
pub(crate) fn key_of(flag: &str) -> String {
    let mut words = flag.split('-');
    let mut key = words.next().unwrap_or_default().to_owned();
    for word in words {
        let (first, rest) = word.split_at(1);
        key.push_str(&first.to_uppercase());
        key.push_str(rest);
    }
    key
}

/// Settings that the chart's schema offers but the gateway does not have, and settings that the chart neither offers nor sets.
fn chart_differences(offered: &[String], template: &str) -> Vec<String> {
    // In a pod, or together with other values, none of them is of use.
    let of_no_use = [
        "config",
        "context",
        "upstream",
        "plainHttp",
        "iKnowThisIsInsecure",
    ];
    let flags = flags_of("serve").into_keys();
    let keys: Vec<String> = flags.map(|flag| key_of(&flag)).collect();
    let unknown = offered
        .iter()
        .filter(|key| !keys.contains(key))
        .map(|key| format!("values.schema.json: serve has no {key}"));
    let is_set = |key: &str| template.contains(&format!("\"{key}\""));
    let missing = keys
        .iter()
        .filter(|key| !offered.contains(key) && !of_no_use.contains(&key.as_str()) && !is_set(key))
        .map(|key| format!("values.schema.json: no config.{key}"));
    unknown.chain(missing).collect()
}

#[test]
fn the_chart_offers_every_setting_that_it_does_not_set() {
    let schema: serde_json::Value =
        serde_json::from_str(&read("deploy/chart/kube-fanout/values.schema.json")).unwrap();
    let offered = schema["properties"]["config"]["properties"]
        .as_object()
        .unwrap();
    // The templates refuse what was removed, with what replaces it.
    let offered = offered
        .iter()
        .filter(|(_, schema)| schema["description"] != "removed");
    let mut offered: Vec<String> = offered.map(|(key, _)| key.clone()).collect();
    let template = read("deploy/chart/kube-fanout/templates/_configuration.tpl");
    assert_no_violations("chart", chart_differences(&offered, &template));
    offered.push("ringAgeMinimum".to_owned());
    assert_violation(
        &chart_differences(&offered, &template),
        "serve has no ringAgeMinimum",
    );
    offered.retain(|key| key != "ringAgeMin");
    assert_violation(
        &chart_differences(&offered, &template),
        "no config.ringAgeMin",
    );
}

#[test]
fn the_code_map_names_every_crate_and_module() {
    let map = read("docs/ARCHITECTURE.md") + &read("docs/CONTRIBUTING.md");
    let lib = read("src/lib.rs") + &read("src/serving/src/lib.rs");
    let modules = lib
        .lines()
        .filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
    let folders = source_folders();
    let crates = folders
        .iter()
        .filter_map(|folder| folder.strip_suffix("/src"));
    let missing = modules
        .chain(crates)
        .filter(|name| !map.contains(&format!("`{name}`")));
    assert_no_violations(
        "code map",
        missing
            .map(|module| format!("docs/ARCHITECTURE.md: no `{module}`"))
            .collect(),
    );
}

#[track_caller]
fn check_exit(arguments: &[&str], code: i32, line: &str) {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_kube-fanout"))
        .args(arguments)
        .env_clear()
        .output()
        .unwrap();
    let (stdout, stderr) = (
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    );
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    let said = if code == 0 { &stdout } else { &stderr };
    assert!(said.starts_with(line), "{said}");
    assert!(code == 0 || stderr.lines().count() == 1, "{stderr}");
}

#[test]
fn the_program_ends_with_the_documented_codes() {
    check_exit(&["--help"], 0, "List/watch fan-out gateway");
    check_exit(
        &[
            "config",
            "check",
            "--auth=none",
            "--upstream=http://127.0.0.1:1",
            "--plain-http",
        ],
        0,
        "the settings are valid",
    );
    check_exit(&[], 2, "kube-fanout: no command given");
    check_exit(
        &["serve", "--watch"],
        2,
        "kube-fanout: unexpected argument '--watch'",
    );
    // A configuration that is accepted would start the server, and this test would wait for it.
    check_exit(
        &["serve", "--auth=none", "--in-cluster"],
        2,
        "kube-fanout: give either --tls-cert and --tls-key, or --plain-http",
    );
}

#[test]
fn every_example_can_be_started_and_is_told_of() {
    let manifest = read("src/informer/Cargo.toml");
    let examples = manifest.split("[[example]]").skip(1);
    let names = examples.filter_map(|example| example.split('"').nth(1));
    let names: Vec<&str> = names.collect();
    assert!(!names.is_empty());
    let (launcher, page) = (read("kube-fanout"), read("README.md"));
    let choice = format!(" {}) name=", names.join(" | "));
    assert!(launcher.contains(&choice), "kube-fanout: no {choice:?}");
    for name in names {
        let command = format!("./kube-fanout example {name}");
        assert!(page.contains(&command), "README.md: no {command:?}");
    }
}
