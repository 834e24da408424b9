//! Scenario files: errors with their place, planned runs, and that this project's files are valid.

use std::path::PathBuf;

use super::*;
use crate::runner::plan::{RunPlan, plan};
use crate::runner::scenario_process::arguments;
use crate::runner::servers::Endpoint;

const FILE: &str = "
about: some watchers
play: steady --watchers 5000 --duration 30s --write-rate 100
runs:
  - {server: embedded}
  - {server: gateway}
  - {server: gateway, label: 'gateway, HTTP/2', play: --http2, gateway: --ring-bytes-max 640Ki, tiers: 2}
gateway: --ring-age-min 1s
sweep: {flag: --watchers, values: [100, 1000]}
scaled: [--watchers, --duration]
targets:
  - {what: memory, figure: 'server RSS, MiB', of: gateway, to: embedded}
";

fn parse(text: &str) -> anyhow::Result<ScenarioFile> {
    ScenarioFile::parse(Path::new("scenarios/some.yaml"), text)
}

#[track_caller]
fn refused(text: &str, part: &str) {
    let error = format!("{:#}", parse(text).unwrap_err());
    assert!(error.contains(part), "{error}");
}

#[test]
fn unknown_keys_are_refused_with_their_line() {
    refused(
        &FILE.replace("scaled:", "sclaed:"),
        "scenarios/some.yaml:10: ",
    );
    refused(
        &FILE.replace("figure:", "figures:"),
        "scenarios/some.yaml:12: ",
    );
    refused(
        &FILE.replace("server: embedded", "server: floor"),
        "scenarios/some.yaml:5: ",
    );
    refused("about: [", "scenarios/some.yaml:");
}

#[test]
fn invalid_scenarios_are_refused() {
    refused(
        &FILE.replace("label: 'gateway, HTTP/2', ", ""),
        "two are called gateway",
    );
    refused(&FILE.replace("tiers: 2", "tiers: 0"), "tiers: 1 to 8");
    refused(
        &FILE.replace(
            "{server: embedded}",
            "{server: embedded, gateway-files: 64}",
        ),
        "embedded: gateway-files without a gateway",
    );
    refused(
        &FILE.replace("{server: embedded}", "{server: real, tiers: 2}"),
        "real: tiers without a gateway",
    );
    refused(
        &FILE.replace("to: embedded", "to: real"),
        "no run is called real",
    );
    refused(&FILE.replace("[100, 1000]", "[]"), "sweep: no values");
    refused(
        &FILE.replace("play: steady", "limit: soon\nplay: steady"),
        "limit: soon",
    );
}

fn words(run: &RunPlan) -> String {
    run.play.join(" ")
}

#[test]
fn each_size_is_played_against_each_server() {
    let runs = plan(&parse(FILE).unwrap(), 1.0, &[]);
    let names: Vec<String> = runs.iter().map(RunPlan::name).collect();
    let (small, large) = (
        [
            "embedded at 100",
            "gateway at 100",
            "gateway, HTTP/2 at 100",
        ],
        [
            "embedded at 1000",
            "gateway at 1000",
            "gateway, HTTP/2 at 1000",
        ],
    );
    assert_eq!(names, [small, large].concat());
    assert_eq!(
        words(&runs[5]),
        "steady --watchers 1000 --duration 30s --write-rate 100 --http2"
    );
    assert_eq!(
        runs[5].gateway,
        ["--ring-age-min", "1s", "--ring-bytes-max", "640Ki"]
    );
    assert_eq!((runs[4].tiers, runs[5].tiers), (1, 2));
}

#[test]
fn runs_can_be_chosen_and_shrunk() {
    let scenario = parse(FILE).unwrap();
    let only = |name: &str| plan(&scenario, 0.01, &[name.to_owned()]);
    assert_eq!(only("gateway").len(), 4, "by server");
    assert_eq!(only("gateway, HTTP/2").len(), 2, "by label");
    assert!(only("real").is_empty());
    assert_eq!(
        words(&only("embedded")[1]),
        "steady --watchers 10 --duration 1s --write-rate 100"
    );
}

#[test]
fn every_scenario_of_this_project_can_be_played() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert!(files.len() > 4, "{files:?}");
    let reach = Endpoint {
        url: "http://127.0.0.1:1".to_owned(),
        ca: Some("ca".into()),
        token: Some("token".into()),
        pid: 1,
        admin_url: None,
    };
    for file in files {
        let scenario = ScenarioFile::read(&file).unwrap();
        for flag in &scenario.scaled {
            let line = [
                scenario.play.clone(),
                scenario
                    .runs
                    .iter()
                    .flat_map(|run| run.play.clone())
                    .collect(),
            ]
            .concat();
            let swept = scenario
                .sweep
                .as_ref()
                .is_some_and(|sweep| sweep.flag == *flag);
            assert!(
                swept || crate::runner::arguments::value(&line, flag).is_some(),
                "{}: {flag} is scaled but not given",
                file.display()
            );
        }
        for scale in [1.0, 0.02] {
            for run in plan(&scenario, scale, &[]) {
                let words = arguments(&run, &reach, Some(&reach), Path::new("figures.json"));
                let line = [&["kube-fanout-loadtest".to_owned()], words.as_slice()].concat();
                let parsed = crate::loadtest_command().try_get_matches_from(line);
                assert!(
                    parsed.is_ok(),
                    "{}: {}: {}",
                    file.display(),
                    run.name(),
                    parsed.unwrap_err()
                );
            }
        }
    }
}

#[test]
fn the_flags_of_servers_in_scenarios_exist() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let known = |command: &str, words: &[String]| {
        let top = kube_fanout::cli::command();
        let command = top.find_subcommand(command).unwrap();
        let flags: Vec<&str> = command
            .get_arguments()
            .filter_map(clap::Arg::get_long)
            .collect();
        let unknown = words.iter().find_map(|word| {
            word.strip_prefix("--")
                .filter(|flag| !flags.contains(&flag.split('=').next().unwrap()))
        });
        unknown.map(str::to_owned)
    };
    for entry in std::fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().path();
        for run in plan(&ScenarioFile::read(&file).unwrap(), 1.0, &[]) {
            assert_eq!(
                known("apiserver", &run.apiserver),
                None,
                "{}",
                file.display()
            );
            assert_eq!(known("serve", &run.gateway), None, "{}", file.display());
        }
    }
}
