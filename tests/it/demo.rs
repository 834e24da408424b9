//! The `demo` subcommand, run as a user runs it: its final table and its exit code.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

fn demo(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kube-fanout"))
        .arg("demo")
        .args(arguments)
        .output()
        .unwrap()
}

/// The value of a row in the final table.
#[track_caller]
fn value_of<'a>(text: &'a str, name: &str) -> &'a str {
    let closing = text.split("closing figures").nth(1).unwrap();
    let row = closing
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(name));
    row.unwrap_or_else(|| panic!("no {name} in {text}")).trim()
}

#[test]
fn a_short_demo_ends_verified() {
    let output = demo(&[
        "--watchers",
        "50",
        "--duration",
        "3s",
        "--objects",
        "pods=40,configmaps=10",
    ]);
    let text = String::from_utf8(output.stdout).unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}{stderr}");
    // One for each resource, and one of APIServices.
    assert_eq!(value_of(&text, "upstream watches"), "3");
    assert_eq!(value_of(&text, "downstream watches"), "50");
    for name in [
        "lost",
        "doubled",
        "out of order",
        "watchers that differ",
        "lists that differ",
        // Watchers that relist would hide lost events.
        "watchers told to relist",
        "watches taken up again",
    ] {
        assert_eq!(value_of(&text, name), "0", "{name}");
    }
    let number = |name| {
        value_of(&text, name)
            .replace(',', "")
            .parse::<u64>()
            .unwrap()
    };
    let (written, delivered) = (number("events written"), number("events delivered "));
    // Each resource has half of the watchers.
    assert!(written > 0);
    assert_eq!(delivered, written * 25);
    assert!(!text.contains("behind at the end"), "{text}");
    assert!(text.trim_end().ends_with("once, in order, byte for byte"));
    assert!(!text.contains('\x1b'), "a pipe gets plain lines");
}

#[test]
fn a_demo_that_cannot_begin_says_why_in_one_line() {
    let output = demo(&["--objects", "unicorns=1"]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.contains("unicorns"), "{stderr}");
}

#[test]
fn a_reader_that_has_seen_enough_ends_the_demo() {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_kube-fanout"))
        .args(["demo", "--watchers", "1", "--objects", "configmaps=1"])
        .args(["--duration", "1h"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(demo.stdout.take().unwrap()).lines().take(2);
    let lines: Vec<_> = lines.map(Result::unwrap).collect();
    let opening = "starting an API server (configmaps=1), a gateway and 1 watcher";
    assert_eq!(lines[0], opening);
    assert!(lines[1].starts_with("1 watcher connected in "), "{lines:?}");
    // The reader is dropped now: the next figures have nowhere to go.
    let output = demo.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), &*stderr), (Some(0), ""));
}
