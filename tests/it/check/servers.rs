//! API servers that answer wrongly, never or without end.

use std::net::SocketAddr;
use std::time::Duration;

use kube_fanout::check::{CheckLevel, check_once};
use kube_fanout::cli::CheckCategory;
use kube_fanout::config::{AuthMode, AuthSettings, CheckSettings, UpstreamSource};
use kube_fanout::resource::Gvr;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::front::{Front, Reply};
use super::stage::{self, Authority, ended, report_on, settings};

use CheckLevel::{Failure, Warning};

const ACCESS: &str = "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const RULES: &str = "POST /apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
pub(crate) const WHO: &str = "POST /apis/authentication.k8s.io/v1/selfsubjectreviews";
pub(crate) const NAMESPACES: &str = "GET /api/v1/namespaces";

pub(crate) fn access(allowed: bool) -> Reply {
    Reply::new(
        ACCESS,
        201,
        json!({"status": {"allowed": allowed}}).to_string(),
    )
}

pub(crate) fn list(version: &str, names: &[&str]) -> String {
    let items = names
        .iter()
        .map(|name| json!({"metadata": {"name": name, "resourceVersion": "1"}}));
    json!({"metadata": {"resourceVersion": version}, "items": items.collect::<Vec<_>>()})
        .to_string()
}

/// No way to an API server.
pub(crate) async fn ways() -> Vec<&'static str> {
    let nowhere = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = nowhere.local_addr().unwrap();
    let mut unreadable = settings(address);
    unreadable.serve.upstream = UpstreamSource::Kubeconfig {
        path: "/nowhere/kubeconfig".into(),
        context: None,
    };
    let unreadable = check_once(&unreadable).await;
    drop(nowhere);
    let closed = check_once(&settings(address)).await;
    // Nothing that depends on the connection is made, and everything is listed.
    ended(
        &closed,
        "upstream-credentials",
        CheckLevel::Skipped,
        "upstream-ready failed",
    );
    ended(
        &closed,
        "rights-reviews",
        CheckLevel::Skipped,
        "cannot be used",
    );

    let (own, other) = (
        Authority::new("upstream-own"),
        Authority::new("upstream-other"),
    );
    let pair = own.sign("server", -1..300);
    let front = Front::with_tls(None, Vec::new(), pair.tls(&["h2", "http/1.1"])).await;
    let mut untrusted = settings_of_user(front.address, &other, json!({}));
    // What others depend on is reported whichever category is chosen.
    untrusted.categories = vec![CheckCategory::Rights];
    let untrusted = check_once(&untrusted).await;
    vec![
        ended(
            &unreadable,
            "upstream-config",
            Failure,
            "/nowhere/kubeconfig",
        ),
        ended(
            &closed,
            "upstream-ready",
            Failure,
            "cannot connect to 127.0.0.1:",
        ),
        ended(&untrusted, "upstream-ready", Failure, "UnknownIssuer"),
    ]
}

/// Settings that check the API server at this address, with TLS, as this user of a kubeconfig that trusts the authority.
pub(crate) fn settings_of_user(
    server: SocketAddr,
    authority: &Authority,
    user: serde_json::Value,
) -> CheckSettings {
    let mut settings = settings(server);
    settings.serve.upstream = UpstreamSource::Kubeconfig {
        path: kubeconfig(authority, &format!("https://{server}"), user),
        context: None,
    };
    settings
}

/// A kubeconfig for a server with a certificate of this authority.
pub(crate) fn kubeconfig(
    authority: &Authority,
    server: &str,
    user: serde_json::Value,
) -> std::path::PathBuf {
    let path = authority.folder().join("kubeconfig");
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "own",
        "contexts": [{"name": "own", "context": {"cluster": "own", "user": "own"}}],
        "users": [{"name": "own", "user": user}],
        "clusters": [{"name": "own", "cluster": {
            "server": server, "certificate-authority": authority.ca_file(),
        }}],
    });
    std::fs::write(&path, text.to_string()).unwrap();
    path
}

/// API servers that answer, but are not ready, do not know the gateway, or show certificates that expire.
pub(crate) async fn answers() -> Vec<&'static str> {
    let unready = vec![Reply::new("GET /readyz", 500, "[-]etcd failed")];
    let unready = report_on(unready, |_| {}).await;
    let unknown = report_on(vec![Reply::new(WHO, 401, "{}")], |_| {}).await;
    let late = Reply {
        date: Some("Wed, 01 Jan 2020 00:00:00 GMT"),
        ..Reply::new(
            "GET /version",
            200,
            r#"{"major":"2","minor":"0","gitVersion":"v2.0.0"}"#,
        )
    };
    let late = report_on(vec![late], |_| {}).await;

    let apiserver = stage::apiserver().await;
    let authority = Authority::new("upstream-expiring");
    let pair = authority.sign("server", -100..3);
    let tls = pair.tls(&["http/1.1"]);
    let front = Front::with_tls(Some(apiserver.address()), vec![stage::known()], tls).await;
    let expiring = settings_of_user(front.address, &authority, json!({"token": "t"}));
    let expiring = check_once(&expiring).await;
    vec![
        ended(
            &unready,
            "upstream-ready",
            Failure,
            "/readyz is answered 500",
        ),
        ended(
            &unknown,
            "upstream-credentials",
            Failure,
            "refuses the gateway's credentials",
        ),
        ended(&late, "clock-skew", Failure, "ahead of the API server's"),
        ended(
            &late,
            "server-version",
            Failure,
            "no version of Kubernetes 1.x",
        ),
        ended(&expiring, "certificate-expiry", Warning, "expires in"),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn the_right_to_act_as_nodes_needs_that_to_ask_what_a_node_may_do() {
    let mut rules = json!({"status": {"resourceRules": [
        {"verbs": ["impersonate:arbitrary-node"], "apiGroups": ["authentication.k8s.io"], "resources": ["nodes"]},
    ]}});
    let on_nodes = async |rules: &serde_json::Value| {
        let rules = Reply::new(RULES, 201, rules.to_string());
        report_on(vec![access(false), rules], |settings| {
            settings.serve.auth = AuthSettings::of_mode(AuthMode::SelfCheck);
            settings.serve.auth.client_ca = Some("/nowhere/ca.crt".into());
        })
        .await
    };
    let half = on_nodes(&rules).await;
    let needed = "create selfsubjectaccessreviews.authorization.k8s.io";
    ended(&half, "rights-impersonate", Failure, needed);
    let whatever =
        json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["selfsubjectaccessreviews"]});
    if let Some(rules) = rules["status"]["resourceRules"].as_array_mut() {
        rules.push(whatever);
    }
    let nodes = on_nodes(&rules).await;
    let mode = "by constrained impersonation";
    ended(&nodes, "rights-impersonate", CheckLevel::Ok, mode);
}

/// An API server that grants the gateway nothing, or too much.
pub(crate) async fn rights() -> Vec<&'static str> {
    let denied = || vec![access(false), Reply::new(RULES, 201, "{}")];
    let review = report_on(denied(), |settings| {
        settings.serve.auth = AuthSettings::of_mode(AuthMode::Review);
        settings.serve.auth.client_ca = Some("/nowhere/ca.crt".into());
    });
    let review = review.await;
    let rbac = report_on(denied(), |settings| {
        settings.serve.auth = AuthSettings::of_mode(AuthMode::Rbac);
    });
    let rbac = rbac.await;
    ended(
        &rbac,
        "rights-reviews",
        Failure,
        "create tokenreviews.authentication.k8s.io",
    );
    // Roles that name users and groups suffice.
    let rules = json!({"status": {"resourceRules": [
        {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users", "groups"], "resourceNames": ["alice"]},
        {"verbs": ["impersonate"], "apiGroups": ["authentication.k8s.io"], "resourceNames": ["X509SHA256=1"],
            "resources": ["userextras/authentication.kubernetes.io/credential-id"]},
    ]}});
    let rules = Reply::new(RULES, 201, rules.to_string());
    let named = report_on(vec![access(false), rules], |settings| {
        settings.serve.auth = AuthSettings::of_mode(AuthMode::SelfCheck);
        settings.serve.auth.client_ca = Some("/nowhere/ca.crt".into());
    });
    ended(
        &named.await,
        "rights-impersonate",
        CheckLevel::Ok,
        "roles name those",
    );
    let open = report_on(vec![access(true)], |_| {}).await;
    ended(
        &open,
        "rights-resources",
        CheckLevel::Ok,
        "resources may be listed and watched",
    );
    vec![
        ended(&review, "rights-resources", Failure, "0 of"),
        ended(
            &review,
            "rights-reviews",
            Failure,
            "create subjectaccessreviews.authorization.k8s.io",
        ),
        ended(&review, "rights-impersonate", Failure, "impersonate users"),
        ended(
            &review,
            "rights-credentials",
            Warning,
            "watch serviceaccounts",
        ),
        // The API server behind it answers everything.
        ended(
            &review,
            "unfiltered-lists",
            Failure,
            "filters them by caller",
        ),
        ended(
            &rbac,
            "rights-roles",
            Failure,
            "watch clusterrolebindings.rbac.authorization.k8s.io",
        ),
        ended(&open, "rights-shared", Warning, "get secrets"),
    ]
}

/// A role would not help.
#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_under_load_is_not_said_to_lack_a_role() {
    let loaded = report_on(vec![Reply::new(ACCESS, 429, "{}")], |_| {}).await;
    ended(&loaded, "rights-resources", Failure, "is answered 429");
    assert!(!loaded.text(false).contains("system:basic-user"));
}

/// An API server that lacks what the gateway uses.
pub(crate) async fn features() -> Vec<&'static str> {
    let old = vec![
        Reply::new("GET /apis/apiregistration.k8s.io/v1/apiservices", 404, "{}"),
        Reply::new("selfsubjectrulesreviews", 404, "{}"),
        Reply::new(
            "sendInitialEvents",
            422,
            r#"{"message":"sendInitialEvents is forbidden"}"#,
        ),
        Reply::new("resourceVersionMatch=NotOlderThan", 200, list("1", &["a"])),
        Reply::new(
            &format!("{NAMESPACES}?limit=1"),
            200,
            list("7", &["a", "b"]),
        ),
    ];
    let old = report_on(old, |settings| {
        settings.serve.auth = AuthSettings::of_mode(AuthMode::SelfCheck);
        settings.serve.pin_resources = vec![Gvr::new("example.com", "v1", "widgets")];
    });
    let old = old.await;
    let local = report_on(Vec::new(), |_| {}).await;
    ended(
        &local,
        "aggregated-apis",
        CheckLevel::Ok,
        "serves all groups itself",
    );
    let busy = vec![Reply::new(&format!("{NAMESPACES}?limit=1"), 429, "{}")];
    let busy = report_on(busy, |_| {}).await;
    ended(&old, "rights-resources", Failure, "widgets.v1.example.com");
    vec![
        ended(&old, "aggregated-apis", Warning, "has no APIServices"),
        ended(
            &old,
            "streamed-lists",
            Warning,
            "sendInitialEvents is forbidden",
        ),
        ended(
            &old,
            "consistent-reads",
            Failure,
            "not older than version 7 is of version 1",
        ),
        ended(&old, "authorizers", Warning, "does not say what decides"),
        ended(&busy, "flow-control", Warning, "10 of 10 requests"),
    ]
}

/// A server that sends this after the head of each response, and then nothing more.
async fn stalling(response: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            open.push(tokio::spawn(async move {
                let mut head = [0; 4_096];
                while stream.read(&mut head).await.is_ok_and(|len| len > 0) {
                    let _ = stream.write_all(response.as_bytes()).await;
                }
            }));
        }
    });
    address
}

/// The clock stands still and jumps to the next timeout whenever nothing else happens.
#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_holds_nothing_up_for_long() {
    for response in ["", "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"] {
        let silent = stalling(response).await;
        let mut settings = settings(silent);
        settings.gateway = Some(stage::client("http", silent));
        settings.admin = Some(format!("http://{silent}/").parse().unwrap());
        let began = tokio::time::Instant::now();
        let report = check_once(&settings).await;
        assert!(began.elapsed() <= Duration::from_secs(190));
        ended(&report, "upstream-ready", Failure, "no result within 10 s");
        ended(&report, "gateway-ready", Failure, "no result within 10 s");
        ended(&report, "admin-ready", Failure, "no result within 10 s");
        assert!(!report.text(false).contains("a pipe"));
        ended(
            &report,
            "live-list",
            CheckLevel::Skipped,
            "not both connected",
        );
    }
}

/// No server is to blame for a plugin that waits.
#[tokio::test(start_paused = true)]
async fn a_plugin_that_waits_is_not_blamed_on_the_server() {
    let authority = Authority::new("plugin");
    let plugin = json!({"exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
        "command": "sh", "args": ["-c", "exec >&-; exec sleep 600"],
    }});
    let mut settings = settings(SocketAddr::from(([127, 0, 0, 1], 1)));
    settings.categories = vec![CheckCategory::Upstream];
    settings.serve.upstream = UpstreamSource::Kubeconfig {
        path: kubeconfig(&authority, "https://127.0.0.1:1", plugin),
        context: None,
    };
    let report = check_once(&settings).await;
    ended(&report, "upstream-config", Failure, "no result within 10 s");
    assert!(report.text(false).contains("a plugin of the kubeconfig"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_sends_is_bounded_and_cannot_move_the_cursor() {
    let hostile = format!("\u{1b}[2J{}\u{202e}", "x".repeat(100_000));
    let refusal = json!({"message": hostile}).to_string();
    let replies = vec![
        Reply::new("GET /readyz", 503, refusal.clone()),
        Reply::new("GET /version", 200, "x".repeat(5 << 20)),
    ];
    let report = report_on(replies, |_| {}).await;
    ended(
        &report,
        "upstream-ready",
        Failure,
        "/readyz is answered 503",
    );
    let long = vec![Reply::new("GET /version", 200, "x".repeat(5 << 20))];
    let long = report_on(long, |_| {}).await;
    ended(
        &long,
        "server-version",
        Failure,
        "broke off, or is too long",
    );
    let denied = vec![Reply::new(ACCESS, 403, refusal)];
    let denied = report_on(denied, |_| {}).await;
    ended(
        &denied,
        "rights-resources",
        Failure,
        "does not say which rights",
    );
    for report in [report, long, denied] {
        for text in [report.text(false), report.json()] {
            let is_obeyed = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
            assert!(!text.contains(is_obeyed));
            assert!(text.lines().all(|line| line.len() < 2_000));
        }
    }
}
