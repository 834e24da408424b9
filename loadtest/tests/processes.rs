//! The program as scripts run it: its exit codes and figures.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::process::Stdio;

use kube_fanout_testkit::apiserver::{Options, start};
use serde_json::Value;
use tokio::net::TcpListener;

const PROGRAM: &str = env!("CARGO_BIN_EXE_kube-fanout-loadtest");

/// Plays a scenario; its exit code and what it wrote.
async fn play(arguments: &str, target: &str) -> (i32, Value) {
    let file = format!(
        "{}/{}.json",
        env!("CARGO_TARGET_TMPDIR"),
        target.replace(['/', ':'], "-")
    );
    let mut command = tokio::process::Command::new(PROGRAM);
    command
        .args(arguments.split_whitespace())
        .args(["--target", target, "--json", &file])
        .stdout(Stdio::null())
        .kill_on_drop(true);
    let status = command.status().await.unwrap();
    let written = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    std::fs::remove_file(&file).unwrap();
    (status.code().unwrap(), written)
}

/// A figure of the first column.
fn figure(written: &Value, row: &str) -> f64 {
    written["columns"][0]["figures"][row]["median"]
        .as_f64()
        .unwrap()
}

#[tokio::test]
async fn every_event_is_counted_for_every_watcher() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = start(listener, Options::default()).unwrap();
    let target = format!("http://{}", server.address());
    let arguments =
        "steady --watchers 10 --write-rate 200 --objects 10 --duration 0.5 --warm-up 0.05";
    let (code, written) = play(arguments, &target).await;
    assert_eq!(code, 0, "{written}");
    let [each, all] = ["reference events", "events verified"].map(|row| figure(&written, row));
    assert_eq!(all, each * 10.0, "{written}");
    let histograms = &written["columns"][0]["histograms"];
    let latencies = histograms["latency, ms"].as_array().unwrap();
    assert!(!latencies.is_empty(), "{written}");
}

#[tokio::test]
async fn wrong_answers_end_with_exit_code_1() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = start(listener, Options::default()).unwrap();
    let order = r#"{"fault":"garbageFrame","resource":"configmaps"}"#;
    server.order(serde_json::from_str(order).unwrap()).unwrap();
    let target = format!("http://{}", server.address());
    let arguments = "watch-list-herd --clients 2 --rounds 1 --objects 5";
    let (code, written) = play(arguments, &target).await;
    assert_eq!(code, 1, "{written}");
    assert_eq!(written["faults"].as_array().unwrap().len(), 1, "{written}");
}

#[tokio::test]
async fn attacks_are_played_at_their_size_beside_a_witness() {
    let options = Options {
        objects: vec!["configmaps=20".parse().unwrap(), "pods=20".parse().unwrap()],
        ..Options::default()
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = start(listener, options).unwrap();
    let target = format!("http://{}", server.address());
    for (attack, connections) in [
        ("pings --rate 1000", 3.0),
        ("forwarded --rate 100", 1.0),
        ("slow-lists --rate 100", 3.0),
    ] {
        let arguments = format!(
            "hostile --attack {attack} --clients 3 --quiet 0.3 --duration 0.5 --after 0.2 --server-pid {}",
            std::process::id()
        );
        let (code, written) = play(&arguments, &target).await;
        assert_eq!(code, 0, "{written}");
        assert_eq!(written["invalid"].as_array().unwrap().len(), 0, "{written}");
        let of = |row: &str| figure(&written, row);
        // All objects and its own.
        assert_eq!(of("witness: objects in a full list"), 21.0, "{written}");
        assert!(of("attack: done a second") > 0.0, "{written}");
        assert_eq!(
            of("attack: connections at its end"),
            connections,
            "{written}"
        );
        assert_eq!(of("attack: refused"), 0.0, "{written}");
        for row in ["events", "lists", "full lists", "writes", "new connections"] {
            assert_eq!(of(&format!("{row}: refused")), 0.0, "{written}");
            assert!(of(&format!("{row}: attacked p50, ms")) > 0.0, "{written}");
        }
    }
}
