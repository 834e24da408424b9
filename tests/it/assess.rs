//! `kube-fanout assess`, run as a user runs it, on what a real API server wrote while `kubelets --nodes 10` of the load test ran before it:
//! `tests/captured/assess` has two scrapes with 55 s between them, of which only the families of an assessment are left, and the lists and
//! watches of its audit log.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn captured(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captured/assess");
    folder.join(name).display().to_string()
}

fn new_folder() -> PathBuf {
    let folder = std::env::temp_dir().join(format!("kube-fanout-{}", uuid::Uuid::new_v4()));
    std::fs::create_dir(&folder).unwrap();
    folder
}

fn assess(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kube-fanout"))
        .arg("assess")
        .args(arguments)
        .env_clear()
        .output()
        .unwrap()
}

fn of_scrapes(before: &str, after: &str, more: &[&str]) -> Output {
    let scrapes = ["--before", before, "--after", after, "--window=55s"];
    assess(&[&scrapes, more].concat())
}

fn recorded(more: &[&str]) -> Output {
    let files = ["before.txt", "after.txt", "audit.log.gz"].map(captured);
    let audit = ["--audit", &files[2]];
    of_scrapes(&files[0], &files[1], &[&audit, more].concat())
}

fn stdout(output: &Output) -> &str {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    std::str::from_utf8(&output.stdout).unwrap()
}

fn row<'a>(document: &'a Value, agent: &str, resource: &str) -> &'a Value {
    let mut rows = document["rows"].as_array().unwrap().iter();
    let is_wanted = |row: &&Value| row["agent"] == agent && row["resource"] == resource;
    rows.find(is_wanted)
        .unwrap_or_else(|| panic!("no {agent} {resource} in {document:#}"))
}

#[test]
fn the_clients_of_a_real_api_server_are_assessed() {
    let output = recorded(&["--json=-", "--gateways=1", "--encodings=1"]);
    let document: Value = serde_json::from_str(stdout(&output)).unwrap();
    // Ten kubelets and ten kube-proxies.
    for (agent, resource, watches) in [
        ("kubelet", "pods", 10.0),
        ("kubelet", "services", 10.0),
        ("kubelet", "configmaps", 30.0),
        ("kube-proxy", "endpointslices.discovery.k8s.io", 10.0),
        ("kube-proxy", "nodes", 10.0),
    ] {
        let row = row(&document, agent, resource);
        let found = row["watches"].as_f64().unwrap();
        assert!((watches * 0.8..=watches * 1.1).contains(&found), "{row:#}");
    }
    let slices = row(&document, "kube-proxy", "endpointslices.discovery.k8s.io");
    assert!(
        slices["netEventsPerSecond"].as_f64() > Some(0.0),
        "{slices:#}"
    );
    // Forwarded by default.
    let secrets = row(&document, "kubelet", "secrets");
    assert_eq!(
        (&secrets["how"], &secrets["order"]),
        (&"none".into(), &Value::Null)
    );
    let totals = &document["totals"];
    assert!(totals["net"]["watches"].as_f64() > Some(50.0), "{totals:#}");
    let unexplained = totals["unexplained"]["watches"].as_f64();
    assert!(unexplained < Some(10.0), "{totals:#}");
}

#[test]
fn table_and_page_show_the_same_clients() {
    let folder = new_folder();
    let page = folder.join("page.html");
    let output = recorded(&["--html", page.to_str().unwrap()]);
    let (table, page) = (stdout(&output), std::fs::read_to_string(&page).unwrap());
    std::fs::remove_dir_all(&folder).unwrap();
    for words in [
        "kube-proxy",
        "endpointslices.discovery.k8s.io",
        "excluded by",
        "Saved",
    ] {
        assert!(page.contains(words), "{words}");
        assert!(
            words == "excluded by" || table.contains(words),
            "{words} in {table}"
        );
    }
    assert!(table.contains("less than ten says little"), "{table}");
}

#[test]
fn without_an_audit_log_there_is_a_row_for_each_resource() {
    let files = ["before.txt", "after.txt"].map(captured);
    let output = of_scrapes(&files[0], &files[1], &[]);
    let table = stdout(&output);
    assert!(table.contains("all clients"), "{table}");
    assert!(!table.contains("Not explained"), "{table}");
}

#[test]
fn several_servers_are_added_up_and_one_that_was_restarted_is_named() {
    let folder = new_folder();
    let server = |name: &str, side: &str, started: &str| {
        let text = std::fs::read_to_string(captured(side)).unwrap();
        let own = text.replace(
            "process_start_time_seconds 1.",
            &format!("process_start_time_seconds {started}"),
        );
        let path = folder.join(name).display().to_string();
        std::fs::write(&path, own).unwrap();
        path
    };
    let document = |before: &[&String], after: &[&String]| -> Value {
        let sides = [before, after].map(|side| {
            let names: Vec<_> = side.iter().map(|name| name.as_str()).collect();
            names.join(",")
        });
        let output = of_scrapes(&sides[0], &sides[1], &["--json=-"]);
        serde_json::from_str(stdout(&output)).unwrap()
    };
    let (a0, a1) = (captured("before.txt"), captured("after.txt"));
    let (b0, b1) = (
        server("b0", "before.txt", "2."),
        server("b1", "after.txt", "2."),
    );
    let (c0, c1) = (
        server("c0", "before.txt", "3."),
        server("c1", "after.txt", "4."),
    );
    let one = document(&[&a0], &[&a1]);
    let two = document(&[&b0, &c0, &a0], &[&a1, &c1, &b1]);
    std::fs::remove_dir_all(&folder).unwrap();

    assert_eq!((&one["servers"], &two["servers"]), (&1.into(), &2.into()));
    for figure in ["watches", "requestsPerSecond", "eventsPerSecond"] {
        let of = |document: &Value| document["totals"]["now"][figure].as_f64().unwrap();
        let (one, two) = (of(&one), of(&two));
        assert!((two - 2.0 * one).abs() < 1e-6, "{figure}: {one} and {two}");
    }
    let notes = two["notes"].to_string();
    for (name, side) in [(&c0, "--after"), (&c1, "--before")] {
        let note = format!("{name} is left out: no file of {side} is of the same process");
        assert!(notes.contains(&note), "{notes}");
    }
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let [before, after] = ["before.txt", "after.txt"].map(captured);
    let folder = new_folder();
    let path = |name: &str| folder.join(name).display().to_string();
    let text = std::fs::read_to_string(&after).unwrap();
    std::fs::write(path("half"), &text[..text.len() / 2]).unwrap();
    let restarted = text.replace(
        "process_start_time_seconds 1.",
        "process_start_time_seconds 2.",
    );
    std::fs::write(path("restarted"), restarted).unwrap();
    let noise: Vec<u8> = (0..200_000_u32)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    std::fs::write(path("noise"), noise).unwrap();
    for (before, after, words) in [
        (&before, &path("half"), "a part of a scrape"),
        (
            &before,
            &path("restarted"),
            "no file of --after is of the same process",
        ),
        (&before, &path("noise"), "noise is left out"),
        (&after, &before, "went back"),
        (&before, &path("missing"), "cannot read"),
    ] {
        let output = of_scrapes(before, after, &[]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(
            stderr.contains(words) && stderr.lines().count() == 1,
            "{stderr}"
        );
    }
    std::fs::remove_dir_all(&folder).unwrap();
    let output = of_scrapes(&before, &after, &["--gateways=0"]);
    assert_eq!(output.status.code(), Some(2));
}
