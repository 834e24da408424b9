//! The command itself: its exit codes, its JSON, and what it prints where.

use std::net::SocketAddr;
use std::process::{Command, Output};

use serde_json::Value;

use super::front::{Front, Reply};
use super::stage;

/// Runs `kube-fanout check` on a thread, so that the servers of the test go on.
async fn check(upstream: SocketAddr, flags: &'static [&'static str]) -> Output {
    let url = format!("http://{upstream}");
    let run = move || {
        Command::new(env!("CARGO_BIN_EXE_kube-fanout"))
            .args([
                "check",
                "--upstream",
                &url,
                "--plain-http",
                "--auth",
                "none",
            ])
            .args(flags)
            .env_clear()
            .output()
            .unwrap()
    };
    tokio::task::spawn_blocking(run).await.unwrap()
}

fn document(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_exit_code_and_the_document_say_whether_a_check_failed() {
    let apiserver = stage::apiserver().await;
    let good = check(
        apiserver.address(),
        &["-o", "json", "--category", "features,upstream"],
    )
    .await;
    let report = document(&good);
    assert_eq!(good.status.code(), Some(0), "{report:#}");
    // Nothing but the document is printed where a program reads.
    assert!(
        good.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&good.stderr)
    );
    assert_eq!(report["version"], 1);
    assert_eq!(report["counts"]["failure"], 0);
    let checks = report["checks"].as_array().unwrap();
    assert!(
        checks
            .iter()
            .all(|check| check["category"] == "upstream" || check["category"] == "features")
    );
    let first = &checks[0];
    assert_eq!(
        (&first["name"], &first["level"]),
        (&"upstream-config".into(), &"ok".into())
    );
    assert_eq!(first["see"], "docs/CHECK.md#upstream-config");

    let replies = vec![Reply::new("GET /readyz", 500, "{}")];
    let front = Front::new(Some(apiserver.address()), replies).await;
    let bad = check(front.address, &["-o", "json"]).await;
    assert_eq!(bad.status.code(), Some(1));
    let report = document(&bad);
    assert_eq!(report["level"], "failure");
    let failed = report["checks"].as_array().unwrap().iter();
    let failed: Vec<_> = failed.filter(|check| check["level"] == "failure").collect();
    assert_eq!(failed.len(), 1, "{failed:#?}");
    assert_eq!(failed[0]["name"], "upstream-ready");
    assert!(
        failed[0]["hint"]
            .as_str()
            .is_some_and(|hint| !hint.is_empty())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_usage_is_one_line_and_code_2() {
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 1));
    let refused: [(&'static [&'static str], &str); 9] = [
        (&["--category", "everything"], "invalid value 'everything'"),
        (&["--category", "live"], "--category needs --gateway"),
        (&["--pre", "--gateway", "http://127.0.0.1:1"], "--pre"),
        (
            &["--gateway-ca-file", "x"],
            "--gateway-ca-file needs --gateway",
        ),
        (
            &[
                "--gateway",
                "http://example.com",
                "--gateway-token-file",
                "x",
            ],
            "clear text",
        ),
        (&["--gateway-admin", "https://127.0.0.1:1"], "plain HTTP"),
        (
            &["--compare-resource", "widgets.example.com"],
            "plural.version",
        ),
        (&["--client-names", "a b"], "not a host name"),
        (&["--wait", "2h"], "between"),
    ];
    for (flags, words) in refused {
        let output = check(nowhere, flags).await;
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {stderr}");
        assert!(stderr.contains(words), "{words} in {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_are_repeated_until_none_fails() {
    let apiserver = stage::apiserver().await;
    let address = apiserver.address();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let flaky = listener.local_addr().unwrap();
    let waiting = check(flaky, &["--wait", "60s", "--category", "upstream"]);
    let opening = async {
        for accepted in 0.. {
            let (mut near, _) = listener.accept().await.unwrap();
            // The first one shows that the port is open; the second one would carry a request.
            if accepted < 2 {
                continue;
            }
            tokio::spawn(async move {
                let mut far = tokio::net::TcpStream::connect(address).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            });
        }
    };
    let output = tokio::select! {
        output = waiting => output,
        () = opening => unreachable!("it accepts for ever"),
    };
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    // One report, and no colours where no terminal is.
    assert_eq!(text.matches("upstream-config").count(), 1, "{text}");
    assert!(!text.contains('\u{1b}'), "{text}");
}

/// A full disk. A program that reads the file would find nothing in it.
#[tokio::test(flavor = "multi_thread")]
async fn a_report_that_cannot_be_written_is_a_failure() {
    let run = || {
        let full = std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .unwrap();
        Command::new(env!("CARGO_BIN_EXE_kube-fanout"))
            .args(["check", "--upstream", "http://127.0.0.1:1", "--plain-http"])
            .args(["--auth", "none", "--category", "limits", "-o", "json"])
            .env_clear()
            .stdout(full)
            .output()
            .unwrap()
    };
    let output = tokio::task::spawn_blocking(run).await.unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("cannot write the report"), "{stderr}");
}

#[test]
fn all_checks_are_listed_without_settings() {
    let run = |flags: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_kube-fanout"))
            .args(["check", "--list"])
            .args(flags)
            .env_clear()
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0));
        output
    };
    let text = String::from_utf8(run(&[]).stdout).unwrap();
    let document = document(&run(&["-o", "json"]));
    let checks = document["checks"].as_array().unwrap();
    assert_eq!(checks.len(), kube_fanout::check::CATALOGUE.len());
    assert!(checks.len() >= 20);
    for check in checks {
        assert!(text.contains(check["name"].as_str().unwrap()), "{check}");
    }
}
