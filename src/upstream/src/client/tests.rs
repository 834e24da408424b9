//! Valid and invalid addresses and configurations. Connections are tested in `tests/it/passthrough.rs`.

use std::path::PathBuf;

use super::routing::join;
use super::*;

#[track_caller]
fn check_join(base: &str, target: &str, expected: &str) {
    let joined = join(&base.parse().unwrap(), &target.parse().unwrap()).unwrap();
    assert_eq!(joined.to_string(), expected);
}

#[test]
fn request_paths_are_put_behind_the_base() {
    check_join("https://h:6443", "/api?x=%2F", "https://h:6443/api?x=%2F");
    check_join(
        "https://h/k8s/c-1/",
        "/api/v1?",
        "https://h/k8s/c-1/api/v1?",
    );
    check_join("http://h", "//api//a%2Fb", "http://h//api//a%2Fb");
    check_join("http://h", "http://elsewhere/api", "http://h/api");
}

/// A temporary file, deleted when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, text: &str) -> Self {
        let name = format!("kube-fanout-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

const KUBECONFIG: &str = "
apiVersion: v1
kind: Config
clusters:
- {name: plain, cluster: {server: 'http://127.0.0.1:1'}}
- {name: proxied, cluster: {server: 'https://127.0.0.1:1', proxy-url: 'http://proxy:3128'}}
- {name: bad-ca, cluster: {server: 'https://127.0.0.1:1', certificate-authority-data: '!'}}
- {name: bad-url, cluster: {server: 'ftp://127.0.0.1:1'}}
users:
- {name: no-token, user: {tokenFile: /nonexistent/token}}
- {name: bad-key, user: {client-certificate-data: eA==, client-key-data: eA==}}
contexts:
- {name: good, context: {cluster: plain}}
- {name: proxied, context: {cluster: proxied}}
- {name: bad-ca, context: {cluster: bad-ca}}
- {name: bad-url, context: {cluster: bad-url}}
- {name: no-token, context: {cluster: plain, user: no-token}}
- {name: bad-key, context: {cluster: plain, user: bad-key}}
- {name: lost, context: {cluster: nowhere}}
";

#[tokio::test]
async fn every_fault_of_a_kubeconfig_is_told_in_one_line() {
    let file = Scratch::new("faults", KUBECONFIG);
    for (context, expected) in [
        (
            None,
            "names no current context: choose one of good, proxied",
        ),
        (
            Some("other"),
            "has no context \"other\", only good, proxied",
        ),
        (Some("proxied"), "sets proxy-url for cluster \"proxied\""),
        (Some("bad-ca"), "unusable certificate authority: "),
        (
            Some("bad-url"),
            "ftp://127.0.0.1:1/ is not an API server address",
        ),
        (Some("no-token"), "cannot get credentials: "),
        (Some("bad-key"), "unusable client certificate or key: "),
        (
            Some("lost"),
            "is incomplete: failed to load the cluster of context: nowhere",
        ),
    ] {
        let source = ConnectSource::Kubeconfig {
            path: file.0.clone(),
            context: context.map(str::to_owned),
        };
        let text = Client::connect(source).await.err().unwrap().to_string();
        assert!(text.contains(expected), "{context:?}: {text}");
        assert!(!text.contains('\n'), "{text}");
    }
}

#[tokio::test]
async fn several_servers_are_named_and_only_checked_ones_are_used() {
    let file = Scratch::new("several", KUBECONFIG);
    let servers = |urls: &[&str]| urls.iter().map(|url| url.parse().unwrap()).collect();
    let connect = |servers: Vec<Uri>| {
        let source = ConnectSource::Kubeconfig {
            path: file.0.clone(),
            context: Some("good".to_owned()),
        };
        Client::connect_to(source, servers)
    };
    let several = connect(servers(&["https://a", "https://b:6443"]))
        .await
        .unwrap();
    assert_eq!(several.endpoints(), ["a:443", "b:6443"]);
    assert!(!several.is_clear_text());
    let single = connect(Vec::new()).await.unwrap();
    assert_eq!(single.endpoints(), ["127.0.0.1:1"]);
    let unchecked = several.send(Request::get("/api").body(()).unwrap()).await;
    assert!(matches!(unchecked, Err(SendError::NoEndpoint)));
    let mixed = connect(servers(&["https://a", "http://b"])).await.err();
    assert!(matches!(mixed, Some(ConnectError::BadServers)));
    let bad = connect(servers(&["ftp://a"])).await.err();
    assert!(matches!(bad, Some(ConnectError::BadUrl { .. })));
    let secret = connect(servers(&["https://jane:hunter2@a:6443/b?token=hunter2"])).await;
    let text = secret.err().unwrap().to_string();
    assert!(text.starts_with("https://a:6443/b?… is not an"), "{text}");
}

#[tokio::test]
async fn faults_of_files_are_told_with_their_path() {
    let not_yaml = Scratch::new("not-yaml", "a: [");
    let no_certificate = Scratch::new("no-certificate", "nothing");
    let kubeconfig = |path: &str| ConnectSource::Kubeconfig {
        path: path.into(),
        context: None,
    };
    let url = ConnectSource::Url {
        url: "https://127.0.0.1:1".parse().unwrap(),
        ca_file: Some(no_certificate.0.clone()),
    };
    for (source, expected) in [
        (
            kubeconfig("/nonexistent"),
            "cannot read /nonexistent: No such file",
        ),
        (
            kubeconfig(not_yaml.0.to_str().unwrap()),
            "is not a kubeconfig: ",
        ),
        (url, "no-certificate: no certificate in it"),
    ] {
        let text = Client::connect(source).await.err().unwrap().to_string();
        assert!(text.contains(expected), "{text}");
    }
}

#[tokio::test]
async fn credentials_are_not_read_again_in_a_storm() {
    let file = Scratch::new("rebuild", KUBECONFIG);
    let source = ConnectSource::Kubeconfig {
        path: file.0.clone(),
        context: Some("good".to_owned()),
    };
    let client = Client::connect(source).await.unwrap();
    assert_eq!(client.rebuild().await.unwrap(), RebuildOutcome::Done);
    assert_eq!(client.rebuild().await.unwrap(), RebuildOutcome::TooSoon);
}

/// Issues a token immediately on the first run, and after a second on each further run.
const SLOW_PLUGIN: &str = r#"
apiVersion: v1
kind: Config
current-context: slow
clusters: [{name: here, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: slow, context: {cluster: here, user: plugin}}]
users:
- name: plugin
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1
      interactiveMode: Never
      command: sh
      args: ["-c", "if [ -e MARK ]; then echo > MARK.again; sleep 1; else echo > MARK; fi; echo '{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\",\"status\":{\"token\":\"t\"}}'"]
"#;

#[tokio::test]
async fn a_plugin_that_hangs_is_not_run_a_second_time_beside() {
    let mark = std::env::temp_dir().join(format!("fanout-plugin-{}", std::process::id()));
    let again = mark.with_extension("again");
    let file = Scratch::new(
        "plugin",
        &SLOW_PLUGIN.replace("MARK", mark.to_str().unwrap()),
    );
    let source = ConnectSource::Kubeconfig {
        path: file.0.clone(),
        context: None,
    };
    let client = Client::connect(source).await.unwrap();
    // The plugin may have run more than once already.
    let _ = std::fs::remove_file(&again);
    let waiter = client.clone();
    let waiter = tokio::spawn(async move { waiter.rebuild().await });
    while !again.exists() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    waiter.abort();
    assert!(waiter.await.is_err());
    tokio::time::pause();
    tokio::time::advance(REBUILD_INTERVAL_MIN).await;
    assert_eq!(client.rebuild().await.unwrap(), RebuildOutcome::TooSoon);
    for file in [mark, again] {
        std::fs::remove_file(file).unwrap();
    }
}

/// A kubeconfig with this `user`, and files beside it.
struct Rotation {
    folder: crate::samples::certificates::Folder,
}

impl Rotation {
    fn new(user: &str) -> Self {
        let folder = crate::samples::certificates::Folder::create();
        let text = format!(
            "
apiVersion: v1
kind: Config
current-context: here
clusters: [{{name: here, cluster: {{server: 'https://127.0.0.1:1', certificate-authority: ca.pem}}}}]
contexts: [{{name: here, context: {{cluster: here, user: me}}}}]
users: [{{name: me, user: {user}}}]
"
        );
        folder.write("config", text);
        let authority = crate::samples::certificates::Authority::new("servers");
        folder.write("ca.pem", authority.0.pem());
        Self { folder }
    }

    async fn client(&self) -> Result<Client, ConnectError> {
        Client::connect(ConnectSource::kubeconfig(self.folder.0.join("config"))).await
    }
}

async fn authorization(client: &Client) -> Option<String> {
    let mut headers = HeaderMap::new();
    let stack = client.shared.stack.load_full();
    stack.credentials.attach(&mut headers).unwrap();
    let value = headers.remove(http::header::AUTHORIZATION)?;
    assert!(value.is_sensitive());
    Some(value.to_str().unwrap().to_owned())
}

#[tokio::test]
async fn a_token_file_is_read_again_and_its_connections_stay() {
    let rotation = Rotation::new("{tokenFile: token}");
    let folder = &rotation.folder;
    let token = folder.write("token", "one\n");
    let client = rotation.client().await.unwrap();
    let read = ["config", "ca.pem", "token"].map(|name| folder.0.join(name));
    assert_eq!(client.files(), read);
    assert_eq!(authorization(&client).await.unwrap(), "Bearer one");
    let before = client.shared.stack.load_full();

    folder.write("token", " \n");
    let refused = client.rebuild_in_time().await.unwrap_err().to_string();
    assert!(refused.contains(token.to_str().unwrap()), "{refused}");
    assert_eq!(authorization(&client).await.unwrap(), "Bearer one");

    folder.write("token", "two");
    client.rebuild_in_time().await.unwrap();
    assert_eq!(authorization(&client).await.unwrap(), "Bearer two");
    let after = client.shared.stack.load_full();
    assert!(Arc::ptr_eq(
        &before.servers[0].gateway,
        &after.servers[0].gateway
    ));

    // Other trusted authorities need other connections.
    let authority = crate::samples::certificates::Authority::new("other servers");
    folder.write("ca.pem", authority.0.pem());
    client.rebuild_in_time().await.unwrap();
    let other = client.shared.stack.load_full();
    assert!(!Arc::ptr_eq(
        &after.servers[0].gateway,
        &other.servers[0].gateway
    ));
    assert!(!Arc::ptr_eq(
        &after.servers[0].caller,
        &other.servers[0].caller
    ));
}

#[tokio::test]
async fn a_client_certificate_is_read_again_with_its_key_or_not_at_all() {
    let rotation = Rotation::new("{client-certificate: tls.crt, client-key: tls.key}");
    let folder = &rotation.folder;
    let authority = crate::samples::certificates::Authority::new("clients");
    let pair = authority.sign("gateway");
    folder.write("tls.crt", pair.cert_pem());
    folder.write("tls.key", pair.key_pem());
    let client = rotation.client().await.unwrap();
    assert!(client.expires_at().unwrap() > 1_000_000_000);
    assert_eq!(client.renewal_in(), None, "files need no timer");
    let before = client.shared.stack.load_full();
    let mut params = rcgen::CertificateParams::default();
    params.not_after = rcgen::date_time_ymd(2100, 1, 1);
    let next = authority.sign_with(&params);
    folder.write("tls.crt", next.cert_pem());
    client.rebuild_in_time().await.unwrap_err();
    let unchanged = client.shared.stack.load_full();
    assert!(Arc::ptr_eq(&before, &unchanged));
    folder.write("tls.key", next.key_pem());
    client.rebuild_in_time().await.unwrap();
    assert_eq!(client.expires_at(), Some(4_102_444_800));
    let after = client.shared.stack.load_full();
    assert!(!Arc::ptr_eq(
        &before.servers[0].gateway,
        &after.servers[0].gateway
    ));
}

const PLUGIN: &str = r#"{exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: sh, args: [-c, "
  echo run >> FOLDER/runs; cat FOLDER/answer"]}}"#;

#[tokio::test]
async fn a_plugin_runs_once_for_each_reading_and_what_it_issued_is_renewed_in_time() {
    let folder = crate::samples::certificates::Folder::create();
    let path = folder.0.to_str().unwrap();
    let rotation = Rotation::new(&PLUGIN.replace("FOLDER", path));
    let answer = |token: &str, life: i64| {
        let end = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(life);
        let text = format!(
            "{{apiVersion: client.authentication.k8s.io/v1, kind: ExecCredential, status: {{token: {token}, expirationTimestamp: '{end}'}}}}"
        );
        folder.write("answer", text);
    };
    answer("one", 20);
    let client = rotation.client().await.unwrap();
    for _ in 0..3 {
        assert_eq!(authorization(&client).await.unwrap(), "Bearer one");
    }
    let runs = || {
        std::fs::read_to_string(folder.0.join("runs"))
            .unwrap()
            .lines()
            .count()
    };
    assert_eq!(runs(), 1);
    assert!(client.renewal_in().unwrap() <= Duration::from_secs(16));
    answer("two", 3_600);
    let start = Instant::now();
    client.rebuild_in_time().await.unwrap();
    assert_eq!(authorization(&client).await.unwrap(), "Bearer two");
    assert_eq!(runs(), 2);
    let next = client.renewal_in().unwrap().as_secs();
    assert!((3_200..=3_300).contains(&next), "{next}");
    tokio::time::pause();
    client.rebuild_in_time().await.unwrap();
    assert!(
        start.elapsed() >= REBUILD_INTERVAL_MIN,
        "at most one run per interval"
    );
}

#[tokio::test]
async fn a_certificate_from_a_plugin_is_renewed_before_it_expires() {
    let folder = crate::samples::certificates::Folder::create();
    let path = folder.0.to_str().unwrap();
    let rotation = Rotation::new(&PLUGIN.replace("FOLDER", path));
    let pair = crate::samples::certificates::Authority::new("clients").sign("gateway");
    let text = serde_json::json!({
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"clientCertificateData": pair.cert_pem(), "clientKeyData": pair.key_pem()},
    });
    folder.write("answer", text.to_string());
    let client = rotation.client().await.unwrap();
    assert_eq!(authorization(&client).await, None);
    // Without an expirationTimestamp the certificate's own end counts.
    assert!(client.expires_at().is_some() && client.renewal_in().is_some());
}

#[cfg(feature = "gateway")]
#[tokio::test]
async fn credentials_that_are_refused_are_logged_once_and_so_is_their_acceptance() {
    let (log, _guard) = crate::samples::captured_log::CapturedLog::start();
    let file = Scratch::new("refused", KUBECONFIG);
    let source = ConnectSource::Kubeconfig {
        path: file.0.clone(),
        context: Some("good".to_owned()),
    };
    let client = Client::connect(source).await.unwrap();
    tokio::time::pause();
    for _ in 0..5 {
        client.renew().await;
        tokio::time::advance(REBUILD_INTERVAL_MIN).await;
    }
    assert_eq!(log.lines_with("refused the gateway").len(), 1);
    for _ in 0..2 {
        client.accepted();
    }
    assert_eq!(log.lines_with("accepts the gateway").len(), 1);
}
