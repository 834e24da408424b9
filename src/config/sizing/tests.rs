//! The commands that only print: `size`, `completions` and `man`.

use crate::config::{ProcessTask, Settings, read};

/// What the command prints, or the error.
fn printed(line: &str) -> Result<String, String> {
    let arguments = line.split_whitespace().map(Into::into).collect();
    let flags = read(arguments, |_| None).map_err(|error| error.one_line().unwrap_or_default())?;
    match Settings::resolve(flags)
        .map_err(|error| error.to_string())?
        .task
    {
        ProcessTask::Print(text) => Ok(text),
        ProcessTask::Serve(_)
        | ProcessTask::Apiserver(_)
        | ProcessTask::Demo(_)
        | ProcessTask::Top(_)
        | ProcessTask::Check(_)
        | ProcessTask::CheckList(_)
        | ProcessTask::ConfigCheck(_) => Err("does not print".to_owned()),
    }
}

#[test]
fn size_uses_every_flag() {
    let plan = |flags: &str| {
        let line = format!("kube-fanout size --watches 4000 --output json {flags}");
        serde_json::from_str::<serde_json::Value>(&printed(&line).unwrap()).unwrap()
    };
    let default = plan("");
    for flags in [
        "--events 11",
        "--own-events 0.1",
        "--event-len 2KiB",
        "--upstream-events 200",
        "--objects-len 2GiB",
        "--resources 13",
        "--encodings 2",
        "--listed-len 100MiB",
        "--lists 100",
        "--http2",
        "--plain-http",
        "--cores 0.2",
        "--network 0.5",
    ] {
        assert_ne!(plan(flags), default, "{flags}");
    }
    assert_eq!(plan("--events 10"), default);
    let text = printed("kube-fanout size --watches 4000").unwrap();
    assert!(text.starts_with("replicas              2\n"), "{text}");
}

#[test]
fn size_refuses_what_makes_no_sense() {
    for (flags, part) in [
        ("", "--watches"),
        ("--watches 0", "--watches must be between 1"),
        ("--watches 1 --events NaN", "--events must be between 0"),
        ("--watches 1 --events inf", "--events must be between 0"),
        ("--watches 1 --own-events=-1", "--own-events"),
        ("--watches 1 --resources 0", "--resources must be between 1"),
        (
            "--watches 1 --encodings 9",
            "--encodings must be between 1 and 3",
        ),
        ("--watches 1 --cores 0", "--cores must be between 0.1"),
        ("--watches 1 --network 0", "--network must be between 0.01"),
        ("--watches 1 --event-len 1.5.5", "--event-len"),
        ("--watches 1 --upstream-events 1000000", "takes 76.00 cores"),
        ("--watches 100000000", "more than 1000 replicas"),
        (
            "--watches 100000001",
            "--watches must be between 1 and 100000000",
        ),
    ] {
        let error = printed(&format!("kube-fanout size {flags}")).unwrap_err();
        assert!(error.contains(part), "{flags}: {error}");
    }
}

#[test]
fn completions_know_commands_and_flags() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = printed(&format!("kube-fanout completions {shell}")).unwrap();
        assert!(
            script.contains("pin-resources") && script.contains("apiserver"),
            "{shell}"
        );
    }
    assert!(printed("kube-fanout completions csh").is_err());
}

#[test]
fn there_is_a_manual_page_for_each_command() {
    for (command, part) in [
        ("", "kube\\-fanout\\-serve(1)"),
        ("serve", "pin\\-resources"),
        ("config print", "pin\\-resources"),
        ("size", "own\\-events"),
    ] {
        let page = printed(&format!("kube-fanout man {command}")).unwrap();
        assert!(page.contains(".TH") && page.contains(part), "{command}");
    }
    let error = printed("kube-fanout man config nothing").unwrap_err();
    assert!(error.contains("\"config nothing\""), "{error}");
}
