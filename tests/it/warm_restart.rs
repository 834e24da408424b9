//! A gateway that starts again continues from its checkpoints: its clients resume their watches and miss nothing, and upstream is not
//! listed. A checkpoint that cannot be used is refused, and the gateway starts without it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use kube_fanout_testkit::apiserver::{self, Apiserver, Options};
use tokio::net::TcpListener;

use crate::support::client::{CONFIGMAPS, Watch, create_kube_system, get, listed, metric};
use crate::support::history::until;
use crate::support::process::GatewayProcess;

const OBJECTS: usize = 300;

/// An API server in this process, and a folder for the checkpoints of gateways.
struct Stage {
    apiserver: Apiserver,
    folder: PathBuf,
}

impl Stage {
    async fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("kube-fanout-{}", uuid::Uuid::new_v4()));
        Self {
            apiserver: apiserver().await,
            folder,
        }
    }

    fn state(&self) -> PathBuf {
        self.folder.join("state")
    }

    fn flags(&self, more: &[&str]) -> Vec<String> {
        let mut flags = vec![
            "--upstream".to_owned(),
            format!("http://{}", self.apiserver.address()),
            "--state-dir".to_owned(),
            self.state().to_str().unwrap().to_owned(),
        ];
        flags.extend(more.iter().map(|flag| (*flag).to_owned()));
        flags
    }

    async fn gateway(&self, more: &[&str]) -> GatewayProcess {
        GatewayProcess::start(&self.flags(more)).await
    }

    fn checkpoint(&self) -> PathBuf {
        self.state().join("configmaps.v1.json.checkpoint")
    }

    async fn has_checkpoint(&self) {
        until("there is a checkpoint", || self.checkpoint().exists()).await;
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // The folder may not exist.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

async fn apiserver() -> Apiserver {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = Options {
        objects: vec![format!("configmaps={OBJECTS}").parse().unwrap()],
        object_len: 500,
        ..Options::default()
    };
    apiserver::start(listener, options).unwrap()
}

/// A client that watches through a gateway sees the same events as one that watches the API server, although the gateway is ended in
/// the middle and started again; and the new gateway lists nothing.
async fn check_restart(end: fn(GatewayProcess), flags: &[&str]) {
    let stage = Stage::new().await;
    let first = stage.gateway(flags).await;
    let (version, _) = listed(first.address).await;
    let mut direct = Watch::start(stage.apiserver.address(), version).await;
    let mut client = Watch::start(first.address, version).await;
    stage.apiserver.set_churn(400);
    client.read_events(200).await;
    stage.has_checkpoint().await;
    end(first);
    while client.read().await {}
    // Meanwhile upstream goes on.
    direct.read_to(client.version + 100).await;

    let second = stage.gateway(flags).await;
    let mut client = client.resume(second.address).await;
    client.read_events(200).await;
    stage.apiserver.set_churn(0);
    let (newest, objects) = listed(stage.apiserver.address()).await;
    client.read_to(newest).await;
    direct.read_to(newest).await;

    assert_eq!(client.events, direct.events);
    assert_eq!(listed(second.address).await, (newest, objects));
    let restored = metric(
        &second,
        "kube_fanout_checkpoint_restores_total",
        "\"restored\"",
    )
    .await;
    assert_eq!(restored, 1.0);
    assert_eq!(
        metric(&second, "kube_fanout_upstream_lists_total", "").await,
        0.0
    );
}

#[tokio::test]
async fn clients_of_a_killed_gateway_resume_at_the_next_one() {
    check_restart(GatewayProcess::kill, &[]).await;
}

#[tokio::test]
async fn clients_of_a_drained_gateway_resume_at_the_next_one() {
    check_restart(GatewayProcess::terminate, &[]).await;
}

fn key_file(folder: &Path) -> String {
    fs::create_dir_all(folder).unwrap();
    let file = folder.join("key");
    fs::write(&file, "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVowMTIzNDU=\n").unwrap();
    file.to_str().unwrap().to_owned()
}

#[tokio::test]
async fn encrypted_checkpoints_are_continued_too() {
    let folder = std::env::temp_dir().join(format!("kube-fanout-{}", uuid::Uuid::new_v4()));
    let file = key_file(&folder);
    check_restart(GatewayProcess::kill, &["--state-key-file", &file]).await;
    fs::remove_dir_all(folder).unwrap();
}

/// Stops a gateway that has written a checkpoint, changes the file, and starts the next gateway, which must refuse it.
async fn check_refused(change: impl FnOnce(&Stage), message: &str) {
    let stage = Stage::new().await;
    let first = stage.gateway(&[]).await;
    let before = listed(first.address).await;
    stage.has_checkpoint().await;
    first.terminate();
    change(&stage);
    let second = stage.gateway(&[]).await;
    let fields = second
        .logged("the checkpoint is not used; the resource is listed upstream")
        .await;
    assert_eq!(fields["error"], message);
    assert_eq!(listed(second.address).await, before);
    let refused = metric(
        &second,
        "kube_fanout_checkpoint_restores_total",
        "\"refused\"",
    )
    .await;
    assert_eq!(refused, 1.0);
    assert_eq!(
        metric(&second, "kube_fanout_upstream_lists_total", "").await,
        1.0
    );
}

fn flip(file: &Path, at: usize) {
    let mut bytes = fs::read(file).unwrap();
    bytes[at] ^= 1;
    fs::write(file, bytes).unwrap();
}

#[tokio::test]
async fn damaged_checkpoints_are_refused() {
    let flipped = |stage: &Stage| flip(&stage.checkpoint(), 20_000);
    check_refused(flipped, "it is damaged: block 1 is damaged").await;
    let cut = |stage: &Stage| {
        let bytes = fs::read(stage.checkpoint()).unwrap();
        fs::write(stage.checkpoint(), &bytes[..bytes.len() / 2]).unwrap();
    };
    check_refused(cut, "it is damaged: block 1 is damaged").await;
    let other = |stage: &Stage| fs::write(stage.checkpoint(), "not a checkpoint").unwrap();
    let message = "it is not a checkpoint, or its first bytes are damaged";
    check_refused(other, message).await;
}

/// Brings a checkpoint that a gateway of `other` wrote to the gateway of `stage`, which must refuse it with this line.
async fn check_foreign(stage: Stage, other: Stage, message: &str) {
    for stage in [&stage, &other] {
        let gateway = stage.gateway(&[]).await;
        listed(gateway.address).await;
        stage.has_checkpoint().await;
        gateway.terminate();
    }
    fs::copy(other.checkpoint(), stage.checkpoint()).unwrap();
    let gateway = stage.gateway(&[]).await;
    gateway.logged(message).await;
    let expected = listed(stage.apiserver.address()).await;
    assert_eq!(listed(gateway.address).await, expected);
}

#[tokio::test]
async fn checkpoints_of_another_cluster_are_refused() {
    let (stage, other) = (Stage::new().await, Stage::new().await);
    for stage in [&stage, &other] {
        create_kube_system(stage.apiserver.address()).await;
    }
    let message = "the checkpoint is not used; the resource is listed upstream";
    check_foreign(stage, other, message).await;
}

/// As after a restored backup, or where the cluster's uid cannot be read.
#[tokio::test]
async fn checkpoints_with_another_history_are_refused() {
    let message = "the checkpoint is not used: upstream has another history";
    check_foreign(Stage::new().await, Stage::new().await, message).await;
}

#[tokio::test]
async fn a_state_directory_is_private_and_has_one_user() {
    let stage = Stage::new().await;
    let gateway = stage.gateway(&[]).await;
    listed(gateway.address).await;
    stage.has_checkpoint().await;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&stage.state()), 0o700);
    assert_eq!(mode(&stage.checkpoint()), 0o600);
    let refused = GatewayProcess::refused(&stage.flags(&[]));
    assert!(
        refused.contains("(--state-dir) is in use by another gateway"),
        "{refused}"
    );
    gateway.terminate();
    fs::set_permissions(stage.state(), fs::Permissions::from_mode(0o755)).unwrap();
    let refused = GatewayProcess::refused(&stage.flags(&[]));
    assert!(
        refused.contains("is open to other users (mode 755)"),
        "{refused}"
    );
}

#[tokio::test]
async fn excluded_resources_and_secrets_have_no_checkpoint() {
    let stage = Stage::new().await;
    let flags = [
        "--state-exclude",
        "services,leases.coordination.k8s.io",
        "--passthrough-resources",
        "",
    ];
    let gateway = stage.gateway(&flags).await;
    for path in ["/api/v1/secrets", "/api/v1/services", CONFIGMAPS] {
        assert_eq!(get(gateway.address, path).await.status(), 200);
    }
    stage.has_checkpoint().await;
    gateway.terminate();
    let names = fs::read_dir(stage.state()).unwrap();
    let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["configmaps.v1.json.checkpoint", "lock"]);
}

/// A file may not grow beyond about twice the objects, as on a full disk: clients notice nothing, errors are counted, and what was written
/// before is still valid.
#[tokio::test]
async fn a_full_disk_costs_only_the_checkpoint() {
    let stage = Stage::new().await;
    let limit = format!(
        "trap '' XFSZ; ulimit -f {}",
        (OBJECTS * 1_500).div_ceil(512)
    );
    let gateway = GatewayProcess::start_after(&limit, &stage.flags(&[])).await;
    let (version, _) = listed(gateway.address).await;
    let mut direct = Watch::start(stage.apiserver.address(), version).await;
    let mut client = Watch::start(gateway.address, version).await;
    stage.has_checkpoint().await;
    stage.apiserver.set_churn(1_000);
    client.read_events(1_500).await;
    gateway.logged("cannot write the checkpoint").await;
    assert!(metric(&gateway, "kube_fanout_checkpoint_errors_total", "").await > 0.0);
    stage.apiserver.set_churn(0);
    let (newest, objects) = listed(stage.apiserver.address()).await;
    client.read_to(newest).await;
    direct.read_to(newest).await;
    assert_eq!(client.events, direct.events);
    gateway.kill();

    let next = stage.gateway(&[]).await;
    let mut client = Watch::start(next.address, version).await;
    client.read_to(newest).await;
    assert_eq!(client.events, direct.events);
    assert_eq!(listed(next.address).await, (newest, objects));
    let restored = metric(
        &next,
        "kube_fanout_checkpoint_restores_total",
        "\"restored\"",
    )
    .await;
    assert_eq!(restored, 1.0);
}

#[tokio::test]
async fn caches_that_do_not_fit_have_no_checkpoint() {
    let stage = Stage::new().await;
    let gateway = stage.gateway(&[]).await;
    // As long as all checkpoints together may be; it takes no space.
    let else_there = fs::File::create(stage.state().join("else")).unwrap();
    else_there.set_len(8 << 30).unwrap();
    let expected = listed(stage.apiserver.address()).await;
    assert_eq!(listed(gateway.address).await, expected);
    let fields = gateway.logged("cannot write the checkpoint").await;
    assert_eq!(
        fields["error"],
        "it does not fit (twice --memory-max, and 8Gi at most)"
    );
    assert!(!stage.checkpoint().exists());
}
