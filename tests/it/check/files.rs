//! Certificates, limits, directories and other gateways that cannot be used.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use kube_fanout::check::{CheckLevel, check_once};
use kube_fanout::config::{
    CheckSettings, FrontProxySettings, HandoverSettings, ListenTransport, SniCertificate,
    StateSettings,
};
use tokio::net::TcpListener;

use super::front::{Front, Reply};
use super::stage::{self, Authority, PairFiles, ended, settings};

use CheckLevel::{Failure, Warning};

fn serving(pair: &PairFiles, settings: &mut CheckSettings) {
    settings.serve.transport = ListenTransport::Tls {
        cert: pair.cert.clone(),
        key: pair.key.clone(),
        sni: Vec::new(),
    };
}

/// Files that do not fit, are for other names, or for another time.
pub(crate) async fn certificates() -> Vec<&'static str> {
    let apiserver = stage::apiserver().await;
    let authority = Authority::new("serving");
    let (good, other) = (
        authority.sign("good", -1..300),
        authority.sign("other", -1..300),
    );
    let expired = authority.sign("expired", -100..-2);
    let future = authority.sign("future", 5..300);

    let mut mixed = settings(apiserver.address());
    serving(&good, &mut mixed);
    if let ListenTransport::Tls { key, .. } = &mut mixed.serve.transport {
        key.clone_from(&other.key);
    }
    // Certificates, but of no authority.
    mixed.serve.auth.client_ca = Some(good.cert.clone());
    mixed.serve.auth.front_proxy = Some(FrontProxySettings {
        client_ca: other.cert.clone(),
        allowed_names: Vec::new(),
        username_headers: Vec::new(),
        uid_headers: Vec::new(),
        group_headers: Vec::new(),
        extra_header_prefixes: Vec::new(),
    });
    let mixed = check_once(&mixed).await;
    ended(
        &mixed,
        "serving-names",
        CheckLevel::Skipped,
        "cannot be used together",
    );

    let mut old = settings(apiserver.address());
    serving(&expired, &mut old);
    old.client_names = vec!["LOCALHOST".to_owned(), "fanout.example.com".to_owned()];
    let old = check_once(&old).await;

    let mut early = settings(apiserver.address());
    serving(&future, &mut early);
    early.client_names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let early = check_once(&early).await;
    ended(
        &early,
        "serving-names",
        CheckLevel::Ok,
        "localhost, 127.0.0.1",
    );
    ended(
        &early,
        "certificate-expiry",
        Failure,
        "becomes valid only in",
    );
    ended(&mixed, "certificate-expiry", Failure, "no authority; ");

    passes(&good, &authority, apiserver.address()).await;
    vec![
        ended(&mixed, "settings", Failure, "cannot be used together"),
        ended(&old, "serving-names", Failure, "fanout.example.com"),
        ended(&old, "certificate-expiry", Failure, "expired 2 days ago"),
    ]
}

/// A certificate of the authority that clients trust.
async fn passes(good: &PairFiles, authority: &Authority, upstream: SocketAddr) {
    let mut right = settings(upstream);
    serving(good, &mut right);
    right.serve.auth.client_ca = Some(authority.ca_file());
    let right = check_once(&right).await;
    ended(&right, "settings", CheckLevel::Ok, "");
    ended(&right, "certificate-expiry", CheckLevel::Ok, "1 authority");
}

/// Clients send no address, and get the default certificate; a pair with names of its own is for these names only.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_is_looked_for_in_the_certificate_that_its_clients_get() {
    let apiserver = stage::apiserver().await;
    let authority = Authority::new("serving-names");
    let default = authority.sign("default", -1..300);
    let names = ["fanout.example.com", "10.0.0.9"];
    let named = authority.sign_for(&names, "named", -1..300);
    let report = async |own_names: &[&str], wanted: &str| {
        let mut settings = settings(apiserver.address());
        serving(&default, &mut settings);
        if let ListenTransport::Tls { sni, .. } = &mut settings.serve.transport {
            sni.push(SniCertificate {
                cert: named.cert.clone(),
                key: named.key.clone(),
                names: own_names.iter().map(|&name| name.to_owned()).collect(),
            });
        }
        settings.client_names = vec![wanted.to_owned()];
        check_once(&settings).await
    };
    let right = report(&[], "fanout.example.com").await;
    ended(
        &right,
        "serving-names",
        CheckLevel::Ok,
        "fanout.example.com",
    );
    let address = report(&[], "10.0.0.9").await;
    ended(&address, "serving-names", Failure, "10.0.0.9");
    let other = report(&["other.example.com"], "fanout.example.com").await;
    ended(&other, "serving-names", Failure, "lack 1 name");
}

/// More than the system allows, and a directory that others can read.
pub(crate) async fn machine() -> Vec<&'static str> {
    let apiserver = stage::apiserver().await;
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("check-state");
    std::fs::create_dir_all(&directory).unwrap();
    let mode =
        |mode| std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(mode)).unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut greedy = settings(apiserver.address());
    greedy.before_install = true;
    greedy.serve.listen = taken.local_addr().unwrap();
    greedy.serve.admission.connections_max = 1 << 24;
    greedy.serve.admission.memory_max = 1 << 49;
    greedy.serve.state = Some(StateSettings {
        directory: directory.clone(),
        key_file: None,
        len_max: 1 << 60,
        interval: Duration::from_secs(1),
        excluded: Vec::new(),
    });
    mode(0o755);
    let report = check_once(&greedy).await;
    mode(0o700);
    let closed = check_once(&greedy).await;
    ended(&closed, "settings", Failure, "--listen");
    // Checks leave the directory as it was.
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
    let lock = std::fs::File::create(directory.join("lock")).unwrap();
    lock.lock().unwrap();
    let used = check_once(&greedy).await;
    ended(&used, "settings", Failure, "is in use");
    // A gateway that runs has its own ports and directory.
    greedy.before_install = false;
    let running = check_once(&greedy).await;
    ended(&running, "settings", CheckLevel::Ok, "");
    std::fs::remove_dir_all(&directory).unwrap();
    vec![
        ended(
            &report,
            "open-files",
            Failure,
            "--connections-max is 16777216",
        ),
        ended(&report, "memory", Failure, "--memory-max is 536870912 MiB"),
        ended(
            &report,
            "settings",
            Failure,
            "open to other users (mode 755)",
        ),
        ended(&report, "state-space", Warning, "MiB free"),
    ]
}

/// A gateway that refuses runs; one that does not answer may not run yet.
#[tokio::test(flavor = "multi_thread")]
async fn before_the_installation_other_gateways_are_asked_all_the_same() {
    let apiserver = stage::apiserver().await;
    let denied = vec![Reply::new("GET /kube-fanout/handover", 403, "{}")];
    let denying = Front::new(Some(apiserver.address()), denied).await;
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = closed.local_addr().unwrap();
    drop(closed);
    for (from, level, words) in [
        (denying.address, Warning, "is answered 403"),
        (address, CheckLevel::Skipped, "no gateway runs yet"),
    ] {
        let mut settings = settings(apiserver.address());
        settings.before_install = true;
        settings.serve.handover = Some(HandoverSettings {
            from: format!("http://{from}/").parse().unwrap(),
            ca_file: None,
            server_name: None,
            token_file: None,
            timeout: Duration::from_secs(1),
            len_max: 1 << 20,
            rebalance_interval: None,
        });
        let report = check_once(&settings).await;
        ended(&report, "handover-peers", level, words);
    }
}

/// Other gateways that are none, refuse, or cannot be asked.
pub(crate) async fn handover() -> Vec<&'static str> {
    let apiserver = stage::apiserver().await;
    let denied = Reply::new(
        "selfsubjectaccessreviews",
        201,
        r#"{"status":{"allowed":false}}"#,
    );
    let upstream = Front::new(Some(apiserver.address()), vec![denied]).await;
    let token = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("check-handover-token");
    std::fs::write(&token, "token").unwrap();
    let report = async |adjust: &dyn Fn(&mut HandoverSettings)| {
        let mut settings = settings(upstream.address);
        let mut handover = HandoverSettings {
            // It answers, but is no gateway.
            from: format!("http://{}/", apiserver.address()).parse().unwrap(),
            ca_file: None,
            server_name: None,
            token_file: Some(token.clone()),
            timeout: Duration::from_secs(1),
            len_max: 1 << 20,
            rebalance_interval: None,
        };
        adjust(&mut handover);
        settings.serve.handover = Some(handover);
        check_once(&settings).await
    };
    let none = report(&|_| {}).await;
    let unreadable = report(&|settings| settings.ca_file = Some("/nowhere/ca.crt".into())).await;
    let gateway = stage::gateway(apiserver.address()).await;
    let from = format!("http://{}/", gateway.address);
    let right = report(&|settings| settings.from = from.parse().unwrap()).await;
    ended(
        &right,
        "handover-peers",
        CheckLevel::Ok,
        "handed over by 1 gateway",
    );
    gateway.ended().await;
    vec![
        ended(&unreadable, "settings", Failure, "/nowhere/ca.crt"),
        ended(
            &none,
            "handover-rights",
            Warning,
            "get /kube-fanout/handover",
        ),
        ended(&none, "handover-peers", Warning, "it is no gateway"),
    ]
}
