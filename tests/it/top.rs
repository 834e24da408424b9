//! `kube-fanout top` against a gateway, and against what is none.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use kube_fanout::config::ServeSettings;
use kube_fanout::shutdown::Drain;
use kube_fanout_testkit::apiserver::{self, Options};
use kube_fanout_top::{TopError, TopSettings, TopSort, once};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::support::client::{CONFIGMAPS, Watch, get};
use crate::support::gateway::Running;

fn settings(server: SocketAddr) -> TopSettings {
    TopSettings {
        url: format!("http://{server}").parse().unwrap(),
        token_file: None,
        interval: std::time::Duration::from_secs(1),
        once: true,
        sort: TopSort::Watches,
        color: false,
    }
}

#[test]
fn the_command_runs_the_program_beside_it_with_its_flags() {
    let name = format!("top-{}", std::process::id());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).unwrap();
    let program = folder.join("kube-fanout");
    fs::hard_link(env!("CARGO_BIN_EXE_kube-fanout"), &program).unwrap();
    let run = || {
        let mut command = Command::new(&program);
        let command = command.args(["top", "--once", "--sort=slow", "--help"]);
        command.env_clear().output().unwrap()
    };
    let missing = run();
    assert_eq!(missing.status.code(), Some(2));
    let stderr = String::from_utf8(missing.stderr).unwrap();
    assert!(stderr.contains("neither beside this program"), "{stderr}");
    std::os::unix::fs::symlink("/bin/echo", folder.join("kube-fanout-top")).unwrap();
    let found = run();
    let stdout = String::from_utf8(found.stdout).unwrap();
    assert_eq!(stdout, "--once --sort=slow --help\n");
    fs::remove_dir_all(folder).unwrap();
}

/// A server that gives this response to one request.
async fn responding(response: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = [0; 4_096];
        assert!(stream.read(&mut head).await.unwrap() > 0);
        stream.write_all(response.as_bytes()).await.unwrap();
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_shows_its_resources_and_clients() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = Options {
        objects: vec!["configmaps=7".parse().unwrap()],
        ..Options::default()
    };
    let apiserver = apiserver::start(listener, options).unwrap();
    let upstream = format!("http://{}", apiserver.address());
    let gateway = Running::start(
        ServeSettings::embedded(upstream.parse().unwrap()),
        Drain::with_timeout(std::time::Duration::from_secs(1)),
    )
    .await;
    assert_eq!(get(gateway.address, CONFIGMAPS).await.status(), 200);
    let _watch = Watch::start(gateway.address, 0).await;
    let text = once(&settings(gateway.admin), 100).await.unwrap();
    for words in [
        "✓ No client is slow.",
        "✓ configmaps.v1  live  1 client",
        "7 objects",
        "delivered: ",
        "Slow clients (0)\nNone.",
    ] {
        assert!(text.contains(words), "{words} in\n{text}");
    }
    // Rates need two documents: nobody had looked before.
    assert!(!text.contains("delivered: –"), "{text}");
    // The other port is no admin port.
    let error = once(&settings(gateway.address), 100).await.unwrap_err();
    assert!(matches!(error, TopError::NotGateway { .. }), "{error}");
}

#[tokio::test]
async fn each_failure_is_one_sentence() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = listener.local_addr().unwrap();
    drop(listener);
    let refusal = responding(
        "HTTP/1.1 403 Forbidden\r\ncontent-length: 24\r\n\r\nthe user may\x1b[2J not ...\n",
    )
    .await;
    let newer = "HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\n{\"version\":2}";
    let newer = responding(newer).await;
    let page = responding("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n<html>").await;
    let noise = responding("SSH-2.0-OpenSSH\r\n").await;
    let ended = responding("").await;
    let half = "HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\n{\"ver";
    let half = responding(half).await;
    for (server, words) in [
        (closed, "cannot connect to"),
        (refusal, "refuses to show its status (403): the user may"),
        (newer, "has version 2"),
        (page, "not the admin port of a kube-fanout gateway"),
        (noise, "does not speak HTTP"),
        (ended, "closed the connection before it sent its status"),
        (half, "closed the connection before it sent its status"),
    ] {
        let error = once(&settings(server), 100).await.unwrap_err().to_string();
        assert!(error.contains(words), "{words} in {error}");
        assert!(!error.chars().any(char::is_control), "{error:?}");
    }
}

#[tokio::test]
async fn a_token_that_cannot_be_read_is_named() {
    let server = responding("").await;
    let settings = TopSettings {
        token_file: Some("/nonexistent/token".into()),
        ..settings(server)
    };
    let error = once(&settings, 100).await.unwrap_err().to_string();
    assert!(
        error.starts_with("--token-file /nonexistent/token: "),
        "{error}"
    );
}
