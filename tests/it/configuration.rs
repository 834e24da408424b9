//! A configuration file that changes while the gateway runs.

mod starts;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use kube_fanout_testkit::apiserver::{self, Apiserver, Options};
use tokio::net::TcpListener;

use crate::support::auth::until;
use crate::support::client::{Watch, get, text};
use crate::support::process::GatewayProcess;

const CHANGED: &str = "a setting has changed";
const REFUSED: &str = "cannot reload; keeping the previous contents and retrying";

async fn apiserver() -> Apiserver {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    apiserver::start(listener, Options::default()).unwrap()
}

/// A new empty folder.
fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn file(upstream: &Apiserver, settings: &str) -> String {
    let upstream = upstream.address();
    format!(
        "apiVersion: kube-fanout.dev/v1alpha1\nkind: GatewayConfiguration\n\
         upstream: http://{upstream}\n{settings}"
    )
}

/// As an editor does: a new file takes the place of the old one.
fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(&new, path).unwrap();
}

async fn start(path: &Path) -> GatewayProcess {
    GatewayProcess::start(&[format!("--config={}", path.display())]).await
}

async fn reloads(gateway: &GatewayProcess, outcome: &str) -> u64 {
    let page = text(gateway.admin, "/metrics").await;
    let labels = format!("{{file=\"configuration\",outcome=\"{outcome}\"}} ");
    let name = "kube_fanout_file_reloads_total";
    let line = page
        .lines()
        .find(|line| line.starts_with(&format!("{name}{labels}")));
    line.unwrap().rsplit(' ').next().unwrap().parse().unwrap()
}

async fn watch_status(gateway: &GatewayProcess) -> u16 {
    let target = "/api/v1/configmaps?watch=1&resourceVersion=0";
    get(gateway.address, target).await.status().as_u16()
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_of_a_changed_file_hold_and_an_invalid_one_changes_nothing() {
    let apiserver = apiserver().await;
    let path = folder("configuration-limits").join("gateway.yaml");
    fs::write(&path, file(&apiserver, "")).unwrap();
    let gateway = start(&path).await;
    let _watch = Watch::start(gateway.address, 0).await;
    assert_eq!(watch_status(&gateway).await, 200);

    replace(
        &path,
        &file(
            &apiserver,
            "watchesMax: 1\nringBytesMax: 8Mi\nringAgeMin: 5s\n",
        ),
    );
    let change = gateway.logged(CHANGED).await;
    assert_eq!(change["setting"], "watchesMax");
    assert_eq!(
        (&change["old"], &change["new"]),
        (&"250000".into(), &"1".into())
    );
    let needed =
        "these settings of the configuration file need a restart; their old values stay in force";
    let restart = gateway.logged(needed).await;
    assert_eq!(restart["settings"], "ringAgeMin, ringBytesMax");
    assert_eq!(watch_status(&gateway).await, 429);

    replace(
        &path,
        &file(&apiserver, "watchesMax: 9\nstalenessBound: 48h\n"),
    );
    let refused = gateway.logged(REFUSED).await;
    assert_eq!(refused["file"], "configuration");
    let reason = "--staleness-bound must be between 1s and 24h, not 48h";
    assert_eq!(refused["error"], reason);
    assert_eq!(watch_status(&gateway).await, 429);
    assert!(reloads(&gateway, "failed").await > 0);

    replace(&path, &file(&apiserver, ""));
    until("the default is back", async || {
        watch_status(&gateway).await == 200
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_that_has_begun_is_no_longer_changed_and_the_rest_is() {
    let apiserver = apiserver().await;
    let path = folder("configuration-drain").join("gateway.yaml");
    let slow = "drainDelay: 10m\ndrainTimeout: 20m\n";
    fs::write(&path, file(&apiserver, slow)).unwrap();
    let gateway = start(&path).await;
    gateway.begin_drain();
    until("it drains", async || {
        get(gateway.admin, "/readyz").await.status() == 503
    })
    .await;
    let fast = "drainDelay: 0s\ndrainTimeout: 20m\nwatchesMax: 1\n";
    replace(&path, &file(&apiserver, fast));
    let late = "these settings no longer change the drain, which has begun";
    assert_eq!(gateway.logged(late).await["settings"], "drainDelay");
    assert_eq!(gateway.logged(CHANGED).await["setting"], "watchesMax");
    let _watch = Watch::start(gateway.address, 0).await;
    assert_eq!(watch_status(&gateway).await, 429);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_config_map_that_is_swapped_is_read_again() {
    let apiserver = apiserver().await;
    let mount = folder("configuration-mount");
    let write = |version: &str, settings: &str| {
        fs::create_dir(mount.join(version)).unwrap();
        fs::write(
            mount.join(version).join("gateway.yaml"),
            file(&apiserver, settings),
        )
        .unwrap();
        symlink(version, mount.join("..data_tmp")).unwrap();
        fs::rename(mount.join("..data_tmp"), mount.join("..data")).unwrap();
    };
    write("..1", "");
    symlink("..data/gateway.yaml", mount.join("gateway.yaml")).unwrap();
    let gateway = start(&mount.join("gateway.yaml")).await;
    write("..2", "logFilter: kube_fanout::upstream=debug\n");
    let change = gateway.logged("the log filter has changed").await;
    assert_eq!(change["by"], "the configuration file");
    assert_eq!(change["new"], "info,kube_fanout::upstream=debug");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hangup_reads_the_file_again_and_damaged_files_are_survived() {
    let apiserver = apiserver().await;
    let path = folder("configuration-hangup").join("gateway.yaml");
    fs::write(&path, file(&apiserver, "")).unwrap();
    let gateway = start(&path).await;
    until("the file has been read", async || {
        reloads(&gateway, "applied").await >= 1
    })
    .await;
    let applied = reloads(&gateway, "applied").await;
    gateway.hang_up();
    until("it is read again", async || {
        reloads(&gateway, "applied").await > applied
    })
    .await;

    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    until("a folder is refused", async || gateway.count(REFUSED) > 0).await;
    fs::remove_dir(&path).unwrap();
    fs::write(&path, "").unwrap();
    let refusals = gateway.count(REFUSED);
    gateway.hang_up();
    until("an empty file is refused", async || {
        gateway.count(REFUSED) > refusals
    })
    .await;
    let huge = fs::File::create(&path).unwrap();
    huge.set_len(100 << 20).unwrap();
    let refusals = gateway.count(REFUSED);
    gateway.hang_up();
    until("a huge file is refused", async || {
        gateway.count(REFUSED) > refusals
    })
    .await;
    assert_eq!(gateway.count(CHANGED), 0);

    replace(&path, &file(&apiserver, "drainTimeout: 1s\n"));
    let change = gateway.logged(CHANGED).await;
    assert_eq!(change["setting"], "drainTimeout");
    gateway.terminate();
}

const ANY_PORTS: [&str; 2] = ["--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0"];

/// What `config check` prints, and whether it accepts the settings.
fn checked(flags: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_kube-fanout"))
        .args(["config", "check"])
        .args(ANY_PORTS)
        .args(flags)
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

#[test]
#[expect(clippy::too_many_lines, reason = "a list of settings")]
fn what_settings_name_must_be_usable() {
    let folder = folder("configuration-check");
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let certificate = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(path("tls.crt"), certificate.cert.pem()).unwrap();
    fs::write(path("tls.key"), certificate.signing_key.serialize_pem()).unwrap();
    fs::write(path("garbage"), "garbage").unwrap();
    let kubeconfig = "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
        clusters: [{name: c, cluster: {server: 'http://127.0.0.1:6443'}}], users: [{name: u, user: {TOKEN}}]}";
    let write = |name: &str, user: &str| {
        fs::write(path(name), kubeconfig.replace("{TOKEN}", user)).unwrap();
        path(name)
    };
    let kubeconfig = write("kubeconfig", "{token: t}");
    let tokenless = write("tokenless", "{tokenFile: /nowhere/token}");
    let keyless = write(
        "keyless",
        "{client-certificate: /nowhere/crt, client-key: /nowhere/key}",
    );
    // A plugin is not run: it could ask the network.
    let plugin = |command: &str| {
        format!(
            "{{exec: {{apiVersion: client.authentication.k8s.io/v1, command: {command}, interactiveMode: Never}}}}"
        )
    };
    let pluginless = write("pluginless", &plugin("/nowhere/plugin"));
    let plugin = write("plugin", &plugin("sh"));
    let plain = ["--plain-http", "--auth=none", "--kubeconfig", &kubeconfig];
    for good in [kubeconfig.as_str(), plugin.as_str()] {
        let (is_valid, text) = checked(&["--plain-http", "--auth=none", "--kubeconfig", good]);
        assert!(is_valid, "{text}");
        assert_eq!(text, "the settings are valid\n");
    }
    let (crt, key, garbage) = (path("tls.crt"), path("tls.key"), path("garbage"));
    let tls = ["--kubeconfig", &kubeconfig, "--tls-cert", &crt, "--tls-key"];
    let refused = |flags: &[&[&str]], message: &str| {
        let (is_valid, text) = checked(&flags.concat());
        assert!(!is_valid && text.contains(message), "{flags:?}: {text}");
        assert_eq!(text.lines().count(), 1, "{text}");
        assert_eq!(
            text.matches("No such file").count(),
            usize::from(message.contains("No such")),
            "{text}"
        );
    };
    let open = ["--plain-http", "--auth=none", "--kubeconfig"];
    refused(
        &[&open, &["/nowhere/config"]],
        "/nowhere/config: No such file",
    );
    refused(&[&open, &[&garbage]], "garbage");
    refused(
        &[&open, &[&pluginless]],
        "the plugin /nowhere/plugin is not there",
    );
    refused(&[&open, &[&tokenless]], "/nowhere/token: No such file");
    refused(&[&open, &[&keyless]], "No such file");
    refused(&[&plain, &["--context", "d"]], "no context \"d\"");
    refused(
        &[&["--plain-http", "--auth=none", "--in-cluster"]],
        "no in-cluster configuration",
    );
    refused(&[&tls, &["/nowhere/tls.key"]], "No such file");
    refused(&[&tls, &[&garbage]], "the serving certificate");
    refused(
        &[&tls, &[&key, "--client-ca-file", "/nowhere/ca"]],
        "No such file",
    );
    refused(
        &[&tls, &[&key, "--requestheader-client-ca-file", &garbage]],
        "garbage",
    );
    refused(
        &[
            &tls,
            &[&key, "--tls-sni-cert-key", "/nowhere/crt,/nowhere/key"],
        ],
        "No such file",
    );
    let audit = ["--audit-log-path=-", "--audit-policy-file"];
    refused(
        &[&plain, &audit, &["/nowhere/policy"]],
        "--audit-policy-file: /nowhere/policy: No such file",
    );
    refused(&[&plain, &audit, &[&garbage]], "--audit-policy-file: ");
    refused(&[&plain, &["--state-dir", &garbage]], "--state-dir: ");
    let handover = ["--handover-from=https://other.example.com"];
    for flag in ["--handover-ca-file", "--handover-token-file"] {
        refused(
            &[&plain, &handover, &[flag, "/nowhere/file"]],
            "No such file",
        );
    }
}
