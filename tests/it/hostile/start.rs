//! Settings and files with which the gateway cannot start: it writes one line to standard error and exits with code 2.

use std::fs;
use std::io::Read;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tokio::time::Instant;

use crate::support::PATIENCE;

/// A URL where no server listens.
const UNREACHABLE: &str = "http://127.0.0.1:9";
const PLAIN_HTTP: &[&str] = &["--plain-http", "--auth", "none"];
const PORTS: &[&str] = &["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];

/// A folder for the files of a test, removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("hostile-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) -> String {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn missing(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // If this fails, the folder remains in the build's temporary folder.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs the gateway, which must exit by itself, with one line that contains all of `parts`.
async fn check(arguments: &[&[&str]], parts: &[&str]) {
    let arguments = arguments.concat();
    let mut child = Command::new(env!("CARGO_BIN_EXE_kube-fanout"))
        .arg("serve")
        .args(&arguments)
        .env_remove("KUBECONFIG")
        .env_remove("KUBERNETES_SERVICE_HOST")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let give_up_at = Instant::now() + PATIENCE;
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break Some(status),
            None if Instant::now() > give_up_at => break None,
            None => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
        }
    };
    if status.is_none() {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let mut stderr = String::new();
    child.stderr.unwrap().read_to_string(&mut stderr).unwrap();
    let code = status.and_then(|status| status.code());
    assert_eq!(code, Some(2), "{arguments:?}: {stderr}");
    assert_eq!(stderr.lines().count(), 1, "{arguments:?}: {stderr}");
    assert!(stderr.starts_with("kube-fanout: "), "{stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
    for part in parts {
        assert!(
            stderr.contains(part),
            "{arguments:?}: no {part} in {stderr}"
        );
    }
}

#[tokio::test]
async fn a_port_in_use_is_named() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    for (own, other) in [
        ("--listen", "--admin-listen"),
        ("--admin-listen", "--listen"),
    ] {
        let ports = [own, address.as_str(), other, "127.0.0.1:0"];
        let parts = [own, address.as_str(), "in use"];
        check(&[&["--upstream", UNREACHABLE], PLAIN_HTTP, &ports], &parts).await;
    }
    check(
        &[
            &["--upstream", UNREACHABLE],
            PLAIN_HTTP,
            &["--listen", &address, "--admin-listen", &address],
        ],
        &["--listen and --admin-listen", &address],
    )
    .await;
}

#[tokio::test]
async fn a_kubeconfig_that_cannot_be_used_is_named() {
    let folder = Folder::new("kubeconfig");
    let missing = folder.missing("none.yaml");
    let garbage = folder.write("garbage.yaml", "clusters: [\n  {name: a\n");
    let binary = folder.write("binary.yaml", [0x80, 0, 1, 2]);
    // A byte order mark of UTF-16, and half a character.
    let half = folder.write("half.yaml", [0xff, 0xfe, 0, 1, 2]);
    let empty = folder.write("empty.yaml", "");
    for path in [&missing, &garbage, &binary, &half, &empty] {
        check(&[&["--kubeconfig", path], PLAIN_HTTP, PORTS], &[]).await;
    }
    let folder_path = folder.0.to_str().unwrap();
    check(&[&["--kubeconfig", folder_path], PLAIN_HTTP, PORTS], &[]).await;
    let good = folder.write("good.yaml", GOOD);
    let context = ["--kubeconfig", &good, "--context", "elsewhere"];
    check(&[&context, PLAIN_HTTP, PORTS], &["elsewhere"]).await;
    let no_ca = folder.write(
        "no-ca.yaml",
        GOOD.replace(
            "server:",
            "certificate-authority: /nonexistent/ca.crt\n    server:",
        ),
    );
    check(&[&["--kubeconfig", &no_ca], PLAIN_HTTP, PORTS], &["ca.crt"]).await;
}

const GOOD: &str = "apiVersion: v1
kind: Config
current-context: here
clusters:
- name: here
  cluster:
    server: https://127.0.0.1:9
users:
- name: me
  user: {}
contexts:
- name: here
  context:
    cluster: here
    user: me
";

#[tokio::test]
async fn a_configuration_file_that_cannot_be_used_is_named() {
    let folder = Folder::new("config");
    let missing = folder.missing("none.yaml");
    check(&[&["--config", &missing]], &["none.yaml"]).await;
    let bad = folder.write("bad.yaml", "apiVersion: [\n");
    check(&[&["--config", &bad]], &["bad.yaml"]).await;
    let huge = folder.write("huge.yaml", "a: b\n".repeat(300_000));
    check(&[&["--config", &huge]], &["huge.yaml"]).await;
    let binary = folder.write("binary.yaml", [0xff, 0xfe, 0, 1, 2]);
    check(&[&["--config", &binary]], &["binary.yaml"]).await;
    let unreadable = folder.write("unreadable.yaml", "");
    fs::set_permissions(&unreadable, fs::Permissions::from_mode(0o000)).unwrap();
    // Root can read the file, but it is empty: the gateway fails either way, because it has no upstream.
    check(&[&["--config", &unreadable]], &[]).await;
}

#[tokio::test]
async fn a_serving_certificate_that_cannot_be_used_is_named() {
    let folder = Folder::new("tls");
    let mut pairs = Vec::new();
    for _ in 0..2 {
        let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        pairs.push((pair.cert.pem(), pair.signing_key.serialize_pem()));
    }
    let cert = folder.write("tls.crt", &pairs[0].0);
    let key = folder.write("tls.key", &pairs[0].1);
    let other_key = folder.write("other.key", &pairs[1].1);
    let pair = (cert.clone(), key.clone());
    let empty = folder.write("empty.pem", "");
    let garbage = folder.write(
        "garbage.pem",
        "-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n",
    );
    let none = folder.missing("none.pem");
    let cases = [
        (&none, &key, "none.pem"),
        (&cert, &none, "none.pem"),
        (&empty, &key, "empty.pem"),
        (&cert, &empty, "empty.pem"),
        (&garbage, &key, "garbage.pem"),
        (&key, &cert, "tls."),
        (&cert, &other_key, "cannot be used together"),
    ];
    for (cert, key, part) in cases {
        let tls = ["--tls-cert", cert, "--tls-key", key, "--auth", "none"];
        check(&[&["--upstream", UNREACHABLE], &tls, PORTS], &[part]).await;
        // The same for a certificate that is selected by SNI.
        let named = format!("{cert},{key}");
        let tls = [
            "--tls-cert",
            &pair.0,
            "--tls-key",
            &pair.1,
            "--tls-sni-cert-key",
            &named,
            "--auth",
            "none",
        ];
        check(&[&["--upstream", UNREACHABLE], &tls, PORTS], &[part]).await;
    }
    for flag in ["--client-ca-file", "--requestheader-client-ca-file"] {
        for (path, part) in [
            (&none, "none.pem"),
            (&empty, "empty.pem"),
            (&garbage, "garbage.pem"),
            (&pair.1, "tls.key"),
        ] {
            let tls = ["--tls-cert", &pair.0, "--tls-key", &pair.1, flag, path];
            check(&[&["--upstream", UNREACHABLE], &tls, PORTS], &[part]).await;
        }
    }
}

#[tokio::test]
async fn authorities_that_cannot_be_used_are_named() {
    let folder = Folder::new("authorities");
    let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let cert = folder.write("tls.crt", pair.cert.pem());
    let key = folder.write("tls.key", pair.signing_key.serialize_pem());
    let empty = folder.write("empty.pem", "");
    let garbage = folder.write(
        "garbage.pem",
        "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n",
    );
    let none = folder.missing("none.pem");
    for flag in ["--client-ca-file", "--requestheader-client-ca-file"] {
        for (file, part) in [
            (&none, "none.pem"),
            (&empty, "empty.pem"),
            (&garbage, "garbage.pem"),
        ] {
            let tls = ["--tls-cert", &cert, "--tls-key", &key, flag, file];
            check(&[&["--upstream", UNREACHABLE], &tls, PORTS], &[part]).await;
        }
    }
}

#[tokio::test]
async fn settings_that_cannot_be_true_name_their_flag() {
    let upstream: &[&str] = &["--upstream", UNREACHABLE];
    let cases: &[(&[&str], &str)] = &[
        (
            &["--plain-http", "--client-ca-file", "ca.crt"],
            "--client-ca-file",
        ),
        (&["--auth", "none"], "--plain-http"),
        (&["--tls-cert", "a", "--auth", "none"], "--tls-key"),
        (
            &["--plain-http", "--auth", "none", "--listen", "0.0.0.0:0"],
            "loopback",
        ),
        (
            &["--plain-http", "--auth", "none", "--listen", "here"],
            "--listen",
        ),
        (&["--plain-http", "--auth", "sometimes"], "--auth"),
        (&["--no-such-flag"], "--no-such-flag"),
        (
            &["--plain-http", "--auth", "none", "--context", "a"],
            "--context",
        ),
        (
            &["--plain-http", "--auth", "none", "--in-cluster"],
            "--upstream",
        ),
        (
            &["--plain-http", "--auth", "none", "--ring-bytes-max", "1"],
            "--ring-bytes-max",
        ),
        (
            &["--plain-http", "--auth", "none", "--pin-resources", "po ds"],
            "--pin-resources",
        ),
    ];
    for (flags, part) in cases {
        check(&[upstream, flags], &[part]).await;
    }
    check(&[PLAIN_HTTP], &["--upstream"]).await;
    for url in [
        "ftp://127.0.0.1",
        "http://127.0.0.1/path",
        "nowhere",
        "http://",
    ] {
        check(&[&["--upstream", url], PLAIN_HTTP, PORTS], &["--upstream"]).await;
    }
    check(&[&["--in-cluster"], PLAIN_HTTP, PORTS], &[]).await;
}
