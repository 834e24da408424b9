//! `config check` accepts exactly the settings with which `serve` starts.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::folder;

const PLAIN: &str = "--plain-http --auth=none";
const TLS: &str = "--tls-cert=tls.crt --tls-key=tls.key";
const ANY_PORTS: &str = "--listen=127.0.0.1:0 --admin-listen=127.0.0.1:0";

/// Settings, and whether a gateway starts with them.
struct Row {
    starts: bool,
    flags: String,
    /// The file that is written into standard input, which is a pipe.
    piped: Option<&'static str>,
}

/// A kubeconfig with this cluster and this user.
fn kubeconfig(cluster: &str, user: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Config, current-context: c, contexts: [{{name: c, context: {{cluster: c, user: u}}}}],
        clusters: [{{name: c, cluster: {cluster}}}], users: [{{name: u, user: {user}}}]}}"
    )
}

fn write_files(folder: &Path) {
    let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
    let certificate = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    write("tls.crt", &certificate.cert.pem());
    write("tls.key", &certificate.signing_key.serialize_pem());
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().unwrap();
    write("ca.crt", &params.self_signed(&key).unwrap().pem());
    write("garbage", "garbage");
    write("token", "a-token");
    write(
        "policy",
        "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Metadata}]}",
    );
    write("plugin", "#!/bin/sh\n");
    let plain = "{server: 'http://127.0.0.1:1'}";
    let plugin = |command: &str| {
        format!(
            "exec: {{apiVersion: client.authentication.k8s.io/v1, command: {command}, interactiveMode: Never}}"
        )
    };
    write("good", &kubeconfig(plain, "{token: t}"));
    let cluster =
        "{server: 'https://127.0.0.1:1', certificate-authority: ca.crt, tls-server-name: 'a b'}";
    write("server-name", &kubeconfig(cluster, "{token: t}"));
    write(
        "provider",
        &kubeconfig(plain, "{auth-provider: {name: unheard-of, config: {}}}"),
    );
    write(
        "not-executable",
        &kubeconfig(plain, &format!("{{{}}}", plugin("./plugin"))),
    );
    let unused = format!("{{token: t, {}}}", plugin("/nowhere/plugin"));
    write("unused-plugin", &kubeconfig(plain, &unused));
    let mut private = fs::DirBuilder::new();
    private.mode(0o700).create(folder.join("state")).unwrap();
    fs::set_permissions(folder.join("plugin"), fs::Permissions::from_mode(0o600)).unwrap();
}

#[expect(clippy::too_many_lines, reason = "a list of settings")]
fn rows(taken: u16) -> Vec<Row> {
    let row = |starts, flags: &str, piped| Row {
        starts,
        flags: flags.to_owned(),
        piped,
    };
    let good = "--kubeconfig=good";
    let mut rows = Vec::new();
    for (starts, kubeconfig, piped) in [
        (true, "good", None),
        (true, "unused-plugin", None),
        (true, "/dev/stdin", Some("good")),
        (false, "missing", None),
        (false, "garbage", None),
        (false, "/dev/stdin", Some("garbage")),
        (false, "server-name", None),
        (false, "provider", None),
        (false, "not-executable", None),
    ] {
        let flags = format!("{PLAIN} {ANY_PORTS} --kubeconfig={kubeconfig}");
        rows.push(row(starts, &flags, piped));
    }
    for (starts, flags, piped) in [
        (
            true,
            "--audit-policy-file=policy --audit-log-path=new/folder/log",
            None,
        ),
        (
            true,
            "--audit-policy-file=/dev/stdin --audit-log-path=log",
            Some("policy"),
        ),
        (
            false,
            "--audit-policy-file=policy --audit-log-path=garbage/log",
            None,
        ),
        (
            false,
            "--audit-policy-file=garbage --audit-log-path=log",
            None,
        ),
        (true, "--state-dir=new-state", None),
        (false, "--state-dir=state", None),
        (false, "--state-dir=garbage", None),
        (
            true,
            "--handover-from=http://127.0.0.1:1 --handover-token-file=/dev/stdin",
            Some("token"),
        ),
        (
            false,
            "--handover-from=http://127.0.0.1:1 --handover-token-file=missing",
            None,
        ),
        (
            false,
            "--api-servers=http://127.0.0.1:1,https://127.0.0.1:2",
            None,
        ),
    ] {
        rows.push(row(
            starts,
            &format!("{PLAIN} {ANY_PORTS} {good} {flags}"),
            piped,
        ));
    }
    for (starts, flags, piped) in [
        (true, format!("{TLS} --client-ca-file=ca.crt"), None),
        (
            true,
            format!("{TLS} --client-ca-file=/dev/stdin"),
            Some("ca.crt"),
        ),
        (
            true,
            "--tls-cert=/dev/stdin --tls-key=tls.key".to_owned(),
            Some("tls.crt"),
        ),
        (false, format!("{TLS} --client-ca-file=garbage"), None),
        (
            false,
            "--tls-cert=tls.crt --tls-key=garbage".to_owned(),
            None,
        ),
    ] {
        rows.push(row(starts, &format!("{ANY_PORTS} {good} {flags}"), piped));
    }
    for listen in [
        format!("--listen=127.0.0.1:{taken} --admin-listen=127.0.0.1:0"),
        format!("--listen=127.0.0.1:0 --admin-listen=127.0.0.1:{taken}"),
        format!("{ANY_PORTS} --operator-listen=127.0.0.1:{taken}"),
        "--listen=0.0.0.0:9 --admin-listen=127.0.0.1:9 --i-know-this-is-insecure".to_owned(),
    ] {
        rows.push(row(false, &format!("{PLAIN} {good} {listen}"), None));
    }
    rows
}

fn run(folder: &Path, command: &[&str], row: &Row) -> Child {
    let mut child = Command::new(env!("CARGO_BIN_EXE_kube-fanout"))
        .args(command)
        .args(row.flags.split(' '))
        .current_dir(folder)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let text = row.piped.map(|name| fs::read(folder.join(name)).unwrap());
    let mut stdin = child.stdin.take().unwrap();
    // A process that has ended reads nothing.
    let _ = stdin.write_all(&text.unwrap_or_default());
    child
}

/// Whether the process ended with 0, or serves; otherwise it has ended with 2. And what it wrote.
fn is_good(mut child: Child) -> (bool, String) {
    let mut written = String::new();
    for line in BufReader::new(child.stderr.take().unwrap()).lines() {
        let line = line.unwrap();
        if line.contains(" serving address=") {
            child.kill().unwrap();
            child.wait().unwrap();
            return (true, written);
        }
        written.push_str(&line);
    }
    let code = child.wait().unwrap().code();
    assert!(matches!(code, Some(0 | 2)), "{code:?}: {written}");
    (code == Some(0), written)
}

#[test]
fn config_check_accepts_exactly_what_serve_starts_with() {
    let folder: PathBuf = folder("configuration-starts");
    write_files(&folder);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let lock = File::create(folder.join("state/lock")).unwrap();
    lock.lock().unwrap();
    let rows = rows(taken.local_addr().unwrap().port());
    let folder = &folder;
    // The checks first: a gateway that starts creates what its settings name.
    for row in &rows {
        let (is_valid, text) = is_good(run(folder, &["config", "check"], row));
        assert_eq!(is_valid, row.starts, "config check {}: {text}", row.flags);
    }
    std::thread::scope(|scope| {
        for row in &rows {
            scope.spawn(move || {
                let (is_started, text) = is_good(run(folder, &["serve"], row));
                assert_eq!(is_started, row.starts, "serve {}: {text}", row.flags);
            });
        }
    });
}
