//! The demo as a user starts it: through the binary, to its closing table.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::process::{Command, Output};

fn demo(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kube-fanout"))
        .arg("demo")
        .args(arguments)
        .output()
        .unwrap()
}

/// The value behind a name in the closing table.
#[track_caller]
fn told<'a>(text: &'a str, name: &str) -> &'a str {
    let closing = text.split("closing figures").nth(1).unwrap();
    let row = closing
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(name));
    row.unwrap_or_else(|| panic!("no {name} in {text}")).trim()
}

#[test]
fn a_short_demo_ends_verified() {
    let ended = demo(&[
        "--watchers",
        "50",
        "--duration",
        "3s",
        "--objects",
        "pods=40,configmaps=10",
    ]);
    let text = String::from_utf8(ended.stdout).unwrap();
    let errors = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(0), "{text}{errors}");
    assert_eq!(told(&text, "upstream watches"), "2");
    assert_eq!(told(&text, "downstream watches"), "50");
    for name in [
        "lost",
        "doubled",
        "out of order",
        "watchers that differ",
        "lists that differ",
        // Who begins anew gets what was left behind.
        "watchers told to relist",
        "watches taken up again",
    ] {
        assert_eq!(told(&text, name), "0", "{name}");
    }
    let number = |name| told(&text, name).replace(',', "").parse::<u64>().unwrap();
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
    let ended = demo(&["--objects", "unicorns=1"]);
    let errors = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(2), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.contains("unicorns"), "{errors}");
}
