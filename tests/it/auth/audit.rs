//! The gateway's audit log: it records each request that memory answers once, and never contains a credential.

use std::path::{Path, PathBuf};

use http::HeaderMap;
use kube_fanout::config::{AuditOutput, AuditSettings, AuthMode};
use kube_fanout_testkit::apiserver::faults::{Fault, FaultOrder};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::hostile::identity::record;
use crate::support::auth::{AuthStage, gateways_rights, grant, next_piece, until};

const POLICY: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Metadata\n";
const PODS: &str = "/api/v1/pods";
const HANDOVER: &str = "/kube-fanout/handover/pods.v1.json";

/// The audit policy and the log file of one test.
struct Files {
    policy: PathBuf,
    log: PathBuf,
}

impl Files {
    fn new(name: &str, policy: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("audit-{name}"));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let files = Self {
            policy: folder.join("policy.yaml"),
            log: folder.join("audit.log"),
        };
        std::fs::write(&files.policy, policy).unwrap();
        files
    }

    fn settings(&self) -> Option<AuditSettings> {
        Some(AuditSettings {
            policy: self.policy.clone(),
            log: AuditOutput::File(self.log.clone()),
        })
    }

    async fn stage(&self, mode: AuthMode) -> AuthStage {
        AuthStage::with(mode, |settings| settings.audit = self.settings()).await
    }

    fn text(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    fn events(&self) -> Vec<Value> {
        let text = self.text();
        let whole = text.lines().filter(|line| line.ends_with('}'));
        whole
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// The stage, verb and response code of each event, as one line.
    fn outline(&self) -> Vec<String> {
        let line = |event: &Value| {
            let code = &event["responseStatus"]["code"];
            format!(
                "{} {} {code}",
                str_or_dash(&event["stage"]),
                str_or_dash(&event["verb"])
            )
        };
        self.events().iter().map(line).collect()
    }
}

fn str_or_dash(value: &Value) -> &str {
    value.as_str().unwrap_or("-")
}

/// Sends the bytes of a request, and reads the head of the response.
async fn head_of(stage: &AuthStage, request: &str) -> (TcpStream, String) {
    let mut socket = TcpStream::connect(stage.address).await.unwrap();
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(socket.read_u8().await.unwrap());
    }
    (
        socket,
        String::from_utf8(head).unwrap().to_ascii_lowercase(),
    )
}

fn audit_id(headers: &HeaderMap) -> &str {
    headers["audit-id"].to_str().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_refused_is_recorded_under_the_id_on_the_wire_and_without_the_token() {
    for mode in [AuthMode::SelfCheck, AuthMode::Review, AuthMode::Rbac] {
        let files = Files::new(&format!("refused-{mode:?}"), POLICY);
        let stage = files.stage(mode).await;
        let response = stage.get("token-that-nobody-knows", PODS).await;
        assert_eq!(response.status(), 401);
        assert_eq!(audit_id(response.headers()), "mine");
        stage.ended().await;
        assert_eq!(files.outline(), ["ResponseStarted list 401"]);
        let event = &files.events()[0];
        assert_eq!(event["auditID"], "mine");
        assert_eq!(event["user"], json!({}));
        assert_eq!(event["requestURI"], PODS);
        assert_eq!(
            event["objectRef"],
            json!({"resource": "pods", "apiVersion": "v1"})
        );
        assert_eq!(event["sourceIPs"], json!(["127.0.0.1"]));
        let status = json!({"metadata": {}, "status": "Failure", "message": "Unauthorized", "reason": "Unauthorized", "code": 401});
        assert_eq!(event["responseStatus"], status);
        assert!(!files.text().contains("token-that-nobody-knows"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_and_what_authorization_says_is_recorded_and_no_secret_is() {
    for mode in [AuthMode::SelfCheck, AuthMode::Review] {
        let files = Files::new(&format!("decisions-{mode:?}"), POLICY);
        let stage = files.stage(mode).await;
        stage.user("secret-of-ann", "ann", &["dev"]);
        stage.user("secret-of-bob", "bob", &[]);
        let reading = json!({"verbs": ["list", "watch"], "apiGroups": [""], "resources": ["pods"]});
        stage.allow("ann-reads", "ann", reading, "").await;
        assert_eq!(stage.get("secret-of-ann", PODS).await.status(), 200);
        let denied = stage
            .get("secret-of-bob", "/api/v1/namespaces/default/pods")
            .await;
        assert_eq!(denied.status(), 403);
        stage.ended().await;
        let outline = files.outline();
        assert_eq!(
            outline,
            [
                "RequestReceived list null",
                "ResponseComplete list 200",
                "RequestReceived list null",
                "ResponseComplete list 403",
            ]
        );
        let events = files.events();
        assert_eq!(events[1]["user"]["username"], "ann");
        assert_eq!(
            events[1]["user"]["groups"],
            json!(["dev", "system:authenticated"])
        );
        assert_eq!(
            events[1]["annotations"]["authorization.k8s.io/decision"],
            "allow"
        );
        // The API server's reason, which the API server's own audit log has, too.
        let reason = "RBAC: allowed by ClusterRoleBinding \"ann-reads\" of ClusterRole \"ann-reads\" to User \"ann\"";
        let recorded = str_or_dash(&events[1]["annotations"]["authorization.k8s.io/reason"]);
        assert_eq!(recorded, reason);
        assert_eq!(events[3]["user"]["username"], "bob");
        assert_eq!(events[3]["objectRef"]["namespace"], "default");
        assert_eq!(
            events[3]["annotations"]["authorization.k8s.io/decision"],
            "forbid"
        );
        let status: Value = serde_json::from_slice(denied.body()).unwrap();
        for field in ["status", "message", "reason", "details", "code"] {
            assert_eq!(events[3]["responseStatus"][field], status[field], "{field}");
        }
        assert!(!files.text().contains("secret-of"), "{}", files.text());
    }
}

/// Reviews of this kind fail from now on.
fn unavailable(reviews: &str) -> FaultOrder {
    FaultOrder {
        fault: Fault::Refuse {
            code: 503,
            retry_after_seconds: 1,
        },
        verb: None,
        resource: Some(reviews.to_owned()),
        count: 1_000,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_authorizer_that_fails_is_no_decision_and_the_answers_code_is_recorded() {
    for (mode, reviews) in [
        (AuthMode::Review, "subjectaccessreviews"),
        (AuthMode::SelfCheck, "selfsubjectaccessreviews"),
    ] {
        let files = Files::new(&format!("failed-{mode:?}"), POLICY);
        let stage = files.stage(mode).await;
        stage.user("secret-of-ann", "ann", &[]);
        stage.apiserver.order(unavailable(reviews)).unwrap();
        assert_eq!(stage.get("secret-of-ann", PODS).await.status(), 500);
        let resumed = format!("{PODS}?watch=1&resourceVersion=1");
        assert_eq!(stage.get("secret-of-ann", &resumed).await.status(), 429);
        stage.ended().await;
        assert_eq!(
            files.outline(),
            [
                "RequestReceived list null",
                "ResponseComplete list 500",
                "RequestReceived watch null",
                "ResponseStarted watch 429",
                "ResponseComplete watch 429",
            ]
        );
        let event = &files.events()[1];
        assert_eq!(event["user"]["username"], "ann");
        let annotations = json!({"authorization.k8s.io/reason": "internal error"});
        assert_eq!(event["annotations"], annotations);
    }
}

/// Whether somebody may act as another one cannot be found out: who asked for it, and for whom, is recorded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_impersonation_that_cannot_be_reviewed_names_both_users() {
    let files = Files::new("failed-impersonation", POLICY);
    let stage = files.stage(AuthMode::Review).await;
    stage.user("secret-of-ann", "ann", &[]);
    let order = unavailable("subjectaccessreviews");
    stage.apiserver.order(order).unwrap();
    let acting = [
        ("authorization", "Bearer secret-of-ann"),
        ("impersonate-user", "bob"),
    ];
    let response = stage.ask_with(stage.address, "GET", PODS, &acting).await;
    assert_eq!(response.status(), 500);
    stage.ended().await;
    let events = files.events();
    assert_eq!(events.len(), 2, "{events:?}");
    assert_eq!(events[1]["user"]["username"], "ann");
    assert_eq!(events[1]["impersonatedUser"]["username"], "bob");
    assert_eq!(events[1]["responseStatus"]["code"], 500);
}

/// An impersonator without the right to act as somebody is refused, and recorded with the one it named.
async fn check_refused_impersonator(name: &str, target: &str) {
    for mode in [AuthMode::SelfCheck, AuthMode::Review] {
        // The rules are for whoever asks, not for the user in whose name it asks.
        let events = refuse_impersonator((name, "root"), mode, target).await;
        assert!(events.is_empty(), "{events:?}");
        let events = refuse_impersonator((name, "bob"), mode, target).await;
        assert_eq!(events.len(), 2, "{events:?}");
        assert_eq!(events[1]["user"]["username"], "root");
        assert_eq!(events[1]["impersonatedUser"]["username"], "bob");
        assert_eq!(events[1]["responseStatus"]["code"], 403);
        assert_eq!(
            events[1]["annotations"]["authorization.k8s.io/decision"],
            "forbid"
        );
    }
}

/// The entries for an impersonator without the right to act as `bob`; the policy excludes one user.
async fn refuse_impersonator(
    (name, excluded): (&str, &str),
    mode: AuthMode,
    target: &str,
) -> Vec<Value> {
    let rule = format!("- level: None\n  users: [{excluded}]\n- level: Metadata\n");
    let policy = POLICY.replace("- level: Metadata\n", &rule);
    let files = Files::new(&format!("{name}-{mode:?}-{excluded}"), &policy);
    let stage = files.stage(mode).await;
    let acting = [
        ("authorization", "Bearer root-token"),
        ("impersonate-user", "bob"),
    ];
    let denied = stage.ask_with(stage.address, "GET", target, &acting).await;
    assert_eq!(denied.status(), 403);
    stage.ended().await;
    files.events()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_impersonator_is_the_user_and_the_impersonated_is_named_beside() {
    check_refused_impersonator("impersonation", "/api/v1/namespaces/default/pods").await;
}

/// A handover contains more than any list.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handovers_are_recorded_also_without_authentication() {
    let files = Files::new("handover-none", POLICY);
    let stage = files.stage(AuthMode::None).await;
    assert_eq!(stage.get("", PODS).await.status(), 200);
    let request = format!("GET {HANDOVER} HTTP/1.1\r\nHost: a\r\nUser-Agent: test/1\r\n\r\n");
    let (socket, head) = head_of(&stage, &request).await;
    assert!(head.starts_with("http/1.1 200 "), "{head}");
    let id = head
        .lines()
        .find_map(|line| line.strip_prefix("audit-id: "))
        .unwrap();
    drop(socket);
    stage.ended().await;
    let events = files.events();
    let handover: Vec<_> = events
        .iter()
        .filter(|event| event["requestURI"] == HANDOVER)
        .collect();
    assert_eq!(handover.len(), 2, "{}", files.text());
    for event in handover {
        assert_eq!(event["verb"], "get");
        assert_eq!(event["auditID"], id);
    }
}

/// Who asks is the user of the entry, not the user in whose name it asks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_handover_is_recorded_as_its_impersonators() {
    check_refused_impersonator("handover", HANDOVER).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_that_the_gateway_makes_is_the_same_in_the_log() {
    let files = Files::new("made-id", POLICY);
    let stage = files.stage(AuthMode::None).await;
    let request = "GET /api/v1/pods?limit=1 HTTP/1.1\r\nHost: a\r\nUser-Agent: test/1\r\nX-Forwarded-For: 1.2.3.4\r\n\r\n";
    let (socket, head) = head_of(&stage, request).await;
    let id = head
        .lines()
        .find_map(|line| line.strip_prefix("audit-id: "))
        .unwrap()
        .to_owned();
    drop(socket);
    stage.ended().await;
    assert_eq!(
        files.outline(),
        ["RequestReceived list null", "ResponseComplete list 200"]
    );
    for event in files.events() {
        // An API server without authentication records an empty user, too.
        assert_eq!(event["user"], json!({}));
        assert!(event.get("annotations").is_none(), "{event}");
        assert_eq!(event["auditID"], id);
        assert_eq!(event["userAgent"], "test/1");
        assert_eq!(event["sourceIPs"], json!(["1.2.3.4", "127.0.0.1"]));
        assert_eq!(event["requestURI"], "/api/v1/pods?limit=1");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_are_complete_when_their_clients_leave_however_they_are_brought() {
    let files = Files::new("watches", POLICY);
    let stage = files.stage(AuthMode::None).await;
    let target = "/api/v1/pods?watch=1&resourceVersion=0";
    let received = ["RequestReceived watch null"];
    for is_http2 in [false, true] {
        let before = files.outline().len();
        let mut body = stage.watch("", target, is_http2).await.into_body();
        assert!(next_piece(&mut body).await.is_some());
        until("the start of the watch is recorded", async || {
            files.outline().len() == before + 2
        })
        .await;
        assert_eq!(
            files.outline()[before..],
            [received[0], "ResponseStarted watch 200"]
        );
        drop(body);
        until("the end of the watch is recorded", async || {
            files.outline().len() == before + 3
        })
        .await;
        assert_eq!(files.outline()[before + 2], "ResponseComplete watch 200");
    }
    stage.ended().await;
    assert_eq!(files.outline().len(), 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_upstream_answers_under_its_callers_credential_is_not_recorded() {
    let files = Files::new("forwarded", POLICY);
    let stage = files.stage(AuthMode::None).await;
    let name = "/api/v1/namespaces/default/pods/absent";
    assert_eq!(stage.get("", name).await.status(), 404);
    assert_eq!(stage.get("", "/version").await.status(), 200);
    stage.ended().await;
    assert_eq!(files.text(), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_gateway_answers_instead_of_upstream_is_recorded() {
    let files = Files::new("refused-forwarding", POLICY);
    let stage = files.stage(AuthMode::None).await;
    let request =
        "GET /version HTTP/1.1\r\nHost: a\r\nAudit-ID: mine\r\nImpersonate-User: jane\r\n\r\n";
    let (_socket, head) = head_of(&stage, request).await;
    assert!(head.starts_with("http/1.1 403 "), "{head}");
    stage.ended().await;
    let expected = ["RequestReceived get null", "ResponseComplete get 403"];
    assert_eq!(files.outline(), expected);
    for event in files.events() {
        assert_eq!(event["auditID"], "mine");
        assert_eq!(event["requestURI"], "/version");
        assert_eq!(event["sourceIPs"], json!(["127.0.0.1"]));
    }
    assert_eq!(files.events()[1]["responseStatus"]["reason"], "Forbidden");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upstream_that_gives_no_answer_is_recorded() {
    let files = Files::new("unreachable", POLICY);
    let mut recorder = None;
    let stage = AuthStage::with(AuthMode::SelfCheck, |settings| {
        settings.audit = files.settings();
        recorder = Some(record(settings));
    });
    let (stage, recorder) = (stage.await, recorder.unwrap());
    recorder.respond("GET /apis/none", "nonsense\r\n\r\n");
    let response = stage.get("any", "/apis/none").await;
    assert_eq!(response.status(), 503);
    stage.ended().await;
    let expected = ["RequestReceived get null", "ResponseComplete get 503"];
    assert_eq!(files.outline(), expected);
    // Upstream may have seen the request under the same id.
    let head = recorder.heads("/apis/none")[0].to_lowercase();
    assert!(head.contains("\r\naudit-id: mine\r\n"), "{head}");
    assert_eq!(files.events()[0]["auditID"], "mine");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_looks_at_the_admin_ports_guarded_pages_is_recorded() {
    let files = Files::new("admin", POLICY);
    let mut rights = gateways_rights();
    let rule = json!({"verbs": ["get"], "nonResourceURLs": ["/kube-fanout/status"]});
    let (role, binding) = grant("reader", "reader", rule);
    rights.extend([("/clusterroles", role), ("/clusterrolebindings", binding)]);
    let stage = AuthStage::with_rights(AuthMode::Review, rights, |settings| {
        settings.audit = files.settings();
    })
    .await;
    stage.user("readers-token", "reader", &[]);
    stage.user("nobodys-token", "nobody", &[]);
    let mut expected = Vec::new();
    for (local, target, token, user, code) in [
        (1, "/status", "", None, 200),
        (1, "/log-filter", "", None, 200),
        (2, "/status.json?a=b", "readers-token", Some("reader"), 200),
        (2, "/status.json", "nobodys-token", Some("nobody"), 403),
        (2, "/log-filter", "nobodys-token", Some("nobody"), 403),
        (2, "/status", "unknown-token", None, 401),
        // Who may not impersonate is recorded, too.
        (2, "/status?as=jane", "nobodys-token", Some("nobody"), 403),
    ] {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, local], 0).into()).unwrap();
        let mut socket = socket.connect(stage.admin).await.unwrap();
        let impersonation = match target.contains("as=jane") {
            true => "Impersonate-User: jane\r\n",
            false => "",
        };
        let request = format!(
            "GET {target} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nAudit-ID: {target}\r\n{impersonation}\r\n"
        );
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut response = Vec::new();
        socket.read_to_end(&mut response).await.unwrap();
        let response = String::from_utf8_lossy(&response).to_lowercase();
        assert!(
            response.starts_with(&format!("http/1.1 {code} ")),
            "{response}"
        );
        assert!(
            response.contains(&format!("\r\naudit-id: {target}\r\n")),
            "{response}"
        );
        let address = format!("127.0.0.{local}");
        expected.push(json!([target, user, [address], target, code]));
    }
    stage.ended().await;
    let complete = files
        .events()
        .into_iter()
        .filter(|event| event["stage"] != "RequestReceived");
    let recorded: Vec<_> = complete
        .map(|event| {
            json!([
                event["requestURI"],
                event["user"]["username"],
                event["sourceIPs"],
                event["auditID"],
                event["responseStatus"]["code"]
            ])
        })
        .collect();
    assert_eq!(recorded, expected);
    assert!(!files.text().contains("-token"), "{}", files.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_nobody_reads_holds_nobody_up() {
    let files = Files::new("stalled", POLICY);
    // A pipe takes 64 KiB and then blocks its writer.
    let made = std::process::Command::new("mkfifo")
        .arg(&files.log)
        .status();
    assert!(made.unwrap().success());
    let stage = files.stage(AuthMode::None).await;
    let target = format!("{PODS}?limit=1&junk={}", "x".repeat(50_000));
    for _ in 0..200 {
        assert_eq!(stage.get("", &target).await.status(), 200);
    }
    let dropped = stage
        .metric("kube_fanout_audit_events_total", &["result=\"dropped\""])
        .await;
    assert!(dropped > 0.0);
    // The gateway's shutdown does not wait for the pipe either.
    stage.ended().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_is_followed_and_one_with_a_mistake_is_not() {
    let files = Files::new("policy", &POLICY.replace("Metadata", "None"));
    let stage = files.stage(AuthMode::None).await;
    let target = format!("{PODS}?limit=1");
    stage.get("", &target).await;
    std::fs::write(&files.policy, POLICY).unwrap();
    until("the new policy is in force", async || {
        stage.get("", &target).await;
        !files.events().is_empty()
    })
    .await;
    std::fs::write(&files.policy, POLICY.replace("Metadata", "Nothing")).unwrap();
    until("the mistake is counted", async || {
        let labels = ["audit_policy", "failed"];
        stage
            .metric("kube_fanout_file_reloads_total", &labels)
            .await
            > 0.0
    })
    .await;
    let before = files.events().len();
    stage.get("", &target).await;
    until("the old policy is in force", async || {
        files.events().len() >= before + 2
    })
    .await;
    stage.ended().await;
}

#[tokio::test]
async fn a_gateway_does_not_start_with_an_audit_log_that_it_cannot_use() {
    use kube_fanout::config::ServeSettings;
    let mut settings = ServeSettings::embedded("http://127.0.0.1:9".parse().unwrap());
    let good = Files::new("start", POLICY);
    let bad = Files::new(
        "start-bad",
        "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Meta\n",
    );
    let mut unusable = good.settings().unwrap();
    unusable.log = AuditOutput::File("/proc/nowhere/audit.log".into());
    for (audit, expected) in [
        (
            bad.settings().unwrap(),
            format!("{}:4: unknown level", bad.policy.display()),
        ),
        (unusable, "/proc/nowhere/audit.log".to_owned()),
    ] {
        settings.audit = Some(audit);
        let error = kube_fanout::gateway::Gateway::build(settings.clone())
            .await
            .err()
            .unwrap();
        let mut text = error.to_string();
        let mut next = std::error::Error::source(&error);
        while let Some(cause) = next {
            text = format!("{text}: {cause}");
            next = cause.source();
        }
        assert!(text.contains(&expected) && !text.contains('\n'), "{text}");
    }
}
