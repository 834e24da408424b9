//! Requests that have bypassed the access checks of other proxies, sent over a raw socket. The gateway's response must equal the API
//! server's response to the same bytes, and a forwarded request must carry the caller's identity and no other.
//!
//! | vulnerability or case | test |
//! |---|---|
//! | CVE-2018-1002105 | `a_refused_upgrade_opens_no_way_to_upstream` |
//! | CVE-2020-8559, CVE-2018-1002102, CVE-2022-3172 | `redirections_are_passed_on_and_not_followed` |
//! | CVE-2021-31999, capsule-proxy#188 | `connection_options_take_no_identity_away` |
//! | CVE-2025-48865 | `connection_options_take_no_forwarded_host_away` |
//! | CVE-2025-64484 | `names_with_underscores_mean_nothing` |
//! | CVE-2026-40575 | `headers_about_the_target_change_no_target` |
//! | CVE-2026-30851 | `headers_of_front_proxies_mean_nothing_without_a_proxy` |
//! | CVE-2023-48312 | `tokens_are_read_as_the_api_server_reads_them` |
//! | kcp GHSA-c7xh-gjv4-4jgv, kcp#4226, `kubectl --as` | `each_part_of_an_impersonated_user_must_be_allowed` |
//! | cluster-proxy#329 | `certificates::nothing_is_added_to_whom_the_gateway_impersonates` |
//! | k/k#119631 | `certificates::renamed_headers_of_front_proxies_need_the_proxys_certificate` |
//! | CVE-2022-3162 | `odd_paths_reach_no_other_resource` |
//! | CVE-2019-11247 | `cluster_scoped_resources_are_in_no_namespace` |
//! | Headlamp #6713, #5718 | `an_allowed_question_answers_no_other` |
//! | CVE-2023-44487, CVE-2025-8671 | `floods::whoever_gives_up_request_after_request_is_sent_away_and_then_cut` and its neighbours |
//! | RUSTSEC-2024-0332 | `floods::floods_within_a_frame_or_a_stream_end_their_connection` |
//! | RUSTSEC-2021-0020 | `connections::bodies_with_wrong_sizes_are_refused` |
//! | Teleport#24910 | `certificates::a_stream_ends_with_its_certificate` |
//! | a token for another audience | `a_token_for_another_audience_is_refused` |
//! | two users, one view | `a_view_that_others_share_is_for_those_who_may_see_it` |
//! | the WebSocket bearer subprotocol | `a_websocket_token_counts_as_a_header_does` |

use std::net::SocketAddr;
use std::path::PathBuf;

use kube_fanout::config::{AuthMode, ServeSettings, UpstreamSource};
use kube_fanout_testkit::apiserver::auth::TokenUser;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::hostile::recorder::Recorder;
use crate::hostile::wire::{code, read_to_end, read_until, send};
use crate::support::auth::AuthStage;

const MODES: [AuthMode; 3] = [AuthMode::SelfCheck, AuthMode::Review, AuthMode::Rbac];
/// Answered from memory.
const PODS: &str = "/api/v1/namespaces/default/pods";
/// Forwarded.
const POD: &str = "/api/v1/namespaces/default/pods/treasure";
const BOB: &str = "Authorization: Bearer bob-token";
const EVE: &str = "Authorization: Bearer eve-token";

/// A gateway with a recorder between it and the API server. Bob and Alice may read pods in one namespace; Eve may only impersonate
/// Alice.
struct IdentityStage {
    stage: AuthStage,
    recorder: Recorder,
}

impl IdentityStage {
    async fn new(mode: AuthMode) -> Self {
        Self::with(mode, |_| {}).await
    }

    async fn with(mode: AuthMode, adjust: impl FnOnce(&mut ServeSettings)) -> Self {
        let mut recorder = None;
        let stage = AuthStage::with(mode, |settings| {
            recorder = Some(record(settings));
            // The embedded API server allows anonymous requests, too.
            settings.auth.anonymous = true;
            adjust(settings);
        })
        .await;
        for name in ["alice", "bob", "carol", "eve"] {
            stage.user(&format!("{name}-token"), name, &[]);
        }
        stage.allow_bob_alice_and_eve().await;
        let treasure = json!({"metadata": {"name": "treasure", "labels": {"with": "jewels"}}});
        stage.create(PODS, &treasure).await;
        Self {
            stage,
            recorder: recorder.unwrap(),
        }
    }

    /// Sends the same bytes to the gateway and to the API server, checks that both respond alike, and returns the status code.
    async fn compare(&self, target: &str, headers: &[&str]) -> u16 {
        let request = request(target, headers);
        let proxied = raw(self.stage.address, &request).await;
        let direct = raw(self.stage.apiserver.address(), &request).await;
        let expected = (code(&direct), refusal(&direct));
        assert_eq!(
            (code(&proxied), refusal(&proxied)),
            expected,
            "{request}{proxied}"
        );
        assert!(
            code(&proxied) == 200 || !proxied.contains("jewels"),
            "{proxied}"
        );
        code(&proxied)
    }

    async fn ended(self) {
        self.stage.ended().await;
    }
}

/// Starts a recorder and changes the settings so that it is between the gateway and its API server.
pub(crate) fn record(settings: &mut ServeSettings) -> Recorder {
    let recorder = Recorder::start(upstream_address(settings));
    redirect(settings, recorder.address);
    recorder
}

/// The address of the API server in the settings' kubeconfig.
pub(crate) fn upstream_address(settings: &mut ServeSettings) -> SocketAddr {
    let text = std::fs::read_to_string(kubeconfig(settings)).unwrap();
    let config: Value = serde_json::from_str(&text).unwrap();
    let url = config["clusters"][0]["cluster"]["server"].as_str().unwrap();
    url.strip_prefix("http://").unwrap().parse().unwrap()
}

/// Replaces the API server in the settings' kubeconfig.
pub(crate) fn redirect(settings: &mut ServeSettings, server: SocketAddr) {
    let upstream = upstream_address(settings).to_string();
    let path = kubeconfig(settings);
    let text = std::fs::read_to_string(&*path).unwrap();
    let own = path.with_extension(format!("{}.kubeconfig", server.port()));
    std::fs::write(&own, text.replace(&upstream, &server.to_string())).unwrap();
    *path = own;
}

fn kubeconfig(settings: &mut ServeSettings) -> &mut PathBuf {
    match &mut settings.upstream {
        UpstreamSource::Kubeconfig { path, .. } => path,
        UpstreamSource::Url(_) | UpstreamSource::InCluster => {
            panic!("the upstream is not given by a kubeconfig")
        }
    }
}

fn request(target: &str, headers: &[&str]) -> String {
    let mut request = format!("GET {target} HTTP/1.1\r\nHost: a\r\n");
    if !headers
        .iter()
        .any(|header| header.starts_with("Connection:"))
    {
        request.push_str("Connection: close\r\n");
    }
    for header in headers {
        request.push_str(&format!("{header}\r\n"));
    }
    request + "\r\n"
}

async fn raw(server: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(server).await.unwrap();
    send(&mut stream, request.as_bytes()).await;
    read_to_end(&mut stream).await
}

/// The Status of a refusal; `None` for other responses. All denied impersonations are considered equal, because the API server names a
/// right of constrained impersonation or one of the original kind, depending on what it allowed before.
fn refusal(response: &str) -> Option<String> {
    let (_, body) = response.split_once("\r\n\r\n")?;
    if body.contains("cannot impersonate") {
        return Some("impersonation is denied".to_owned());
    }
    (code(response) >= 400).then(|| {
        let status = body.find('{').zip(body.rfind('}'));
        status
            .map_or(body, |(first, last)| &body[first..=last])
            .to_owned()
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_are_read_as_the_api_server_reads_them() {
    for mode in MODES {
        let stage = IdentityStage::new(mode).await;
        for target in [PODS, POD] {
            let rows: [(&[&str], u16); 13] = [
                (&[BOB], 200),
                (&["authorization:  bearer bob-token  "], 200),
                (&["Authorization: Bearer bob-token carol-token"], 200),
                (&[BOB, "Authorization: Bearer carol-token"], 200),
                (&["Authorization: Bearer carol-token", BOB], 403),
                (&["Authorization: Bearer unknown", BOB], 401),
                (&["Authorization: Bearer unknown"], 401),
                (&["Authorization: Bearer"], 403),
                (&["Authorization: Bearer "], 403),
                (&["Authorization: Bearer  bob-token"], 403),
                (&["Authorization: Bearer\tbob-token"], 403),
                (&["Authorization: Basic x", BOB], 403),
                (&["Authorization:", BOB], 403),
            ];
            for (headers, expected) in rows {
                assert_eq!(
                    stage.compare(target, headers).await,
                    expected,
                    "{mode:?} {headers:?}"
                );
            }
        }
        stage.ended().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_options_take_no_identity_away() {
    for mode in MODES {
        let stage = IdentityStage::new(mode).await;
        let option = "Connection: close, Impersonate-User, Impersonate-Group, Authorization";
        let (alice, masters) = (
            "Impersonate-User: alice",
            "Impersonate-Group: system:masters",
        );
        for target in [PODS, POD] {
            assert_eq!(stage.compare(target, &[option, BOB]).await, 200);
            assert_eq!(stage.compare(target, &[option, BOB, alice]).await, 403);
            assert_eq!(stage.compare(target, &[option, EVE]).await, 403);
            assert_eq!(stage.compare(target, &[option, EVE, alice]).await, 200);
            assert_eq!(
                stage.compare(target, &[option, EVE, alice, masters]).await,
                403
            );
        }
        for head in stage.recorder.heads(POD) {
            let head = head.to_lowercase();
            assert!(head.contains("\r\nauthorization: bearer "), "{head}");
            assert_eq!(
                head.contains("impersonate-group"),
                head.contains("system:masters")
            );
        }
        stage.ended().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_options_take_no_forwarded_host_away() {
    let stage = IdentityStage::new(AuthMode::SelfCheck).await;
    let headers = [
        BOB,
        "Connection: close, X-Forwarded-Host",
        "X-Forwarded-Host: a.example",
    ];
    assert_eq!(stage.compare(POD, &headers).await, 200);
    let head = stage.recorder.heads(POD)[0].to_lowercase();
    assert!(
        head.contains("\r\nx-forwarded-host: a.example\r\n"),
        "{head}"
    );
    stage.ended().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upstream_learns_the_address_of_the_connection_whatever_a_client_claims() {
    let stage = IdentityStage::new(AuthMode::SelfCheck).await;
    let rows: [(&[&str], &str); 3] = [
        (&[BOB], "127.0.0.1"),
        (&[BOB, "X-Forwarded-For: 1.2.3.4"], "1.2.3.4, 127.0.0.1"),
        (
            &[
                BOB,
                "Connection: close, X-Forwarded-For",
                "X-Forwarded-For: 1.2.3.4, 5.6.7.8",
                "X-Forwarded-For: 127.0.0.1",
                "X-Real-Ip: 9.9.9.9",
                "Forwarded: for=9.9.9.9",
                "True-Client-Ip: 9.9.9.9",
                "CF-Connecting-IP: 9.9.9.9",
            ],
            "1.2.3.4, 5.6.7.8, 127.0.0.1, 127.0.0.1",
        ),
    ];
    for (headers, expected) in rows {
        stage.recorder.clear();
        assert_eq!(stage.compare(POD, headers).await, 200);
        let head = stage.recorder.heads(POD)[0].to_lowercase();
        let line = format!("\r\nx-forwarded-for: {expected}\r\n");
        assert!(head.contains(&line) && !head.contains("9.9.9.9"), "{head}");
    }
    stage.ended().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_with_underscores_mean_nothing() {
    for mode in MODES {
        let stage = IdentityStage::new(mode).await;
        let similar = [
            "Impersonate_User: alice",
            "Impersonate-User_: alice",
            "Impersonate_Group: system:masters",
            "X_Remote_User: alice",
            "X_Remote_Group: system:masters",
        ];
        for header in similar {
            assert_eq!(stage.compare(PODS, &[BOB, header]).await, 200, "{header}");
            assert_eq!(
                stage.compare("/api/v1/nodes", &[BOB, header]).await,
                403,
                "{header}"
            );
            assert_eq!(stage.compare(POD, &[EVE, header]).await, 403, "{header}");
        }
        stage.ended().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_about_the_target_change_no_target() {
    for mode in MODES {
        let stage = IdentityStage::new(mode).await;
        for header in [
            "X-Forwarded-Uri: /healthz",
            "X-Original-URL: /healthz",
            "X-Rewrite-URL: /healthz",
            "X-Forwarded-Prefix: /healthz",
            "X-HTTP-Method-Override: OPTIONS",
        ] {
            assert_eq!(stage.compare(PODS, &[header]).await, 403, "{header}");
            assert_eq!(stage.compare(POD, &[header]).await, 403, "{header}");
        }
        stage.ended().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_of_front_proxies_mean_nothing_without_a_proxy() {
    for mode in MODES {
        let stage = IdentityStage::new(mode).await;
        let headers = [
            "X-Remote-User: root",
            "X-Remote-Group: system:masters",
            "X-Remote-Extra-A: b",
        ];
        for target in [PODS, POD] {
            assert_eq!(stage.compare(target, &headers).await, 403);
            let with_token = [&headers[..], &["Authorization: Bearer carol-token"]].concat();
            assert_eq!(stage.compare(target, &with_token).await, 403);
        }
        let heads = stage.recorder.heads("/");
        assert!(!heads.is_empty());
        for head in heads {
            assert!(!head.to_lowercase().contains("x-remote-"), "{head}");
        }
        stage.ended().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_part_of_an_impersonated_user_must_be_allowed() {
    const ALICE: &str = "Impersonate-User: alice";
    for mode in MODES {
        let stage = IdentityStage::new(mode).await;
        for target in [PODS, POD] {
            assert_eq!(stage.compare(target, &[EVE, ALICE]).await, 200);
            assert_eq!(
                stage
                    .compare(target, &[EVE, "IMPERSONATE-USER: alice"])
                    .await,
                200
            );
            let rows: [&[&str]; 9] = [
                &[ALICE, "Impersonate-Group: system:masters"],
                &[ALICE, "Impersonate-Group: system:authenticated"],
                &[ALICE, "Impersonate-Uid: 7"],
                &[ALICE, "Impersonate-Extra-Scopes: a"],
                &[
                    ALICE,
                    "Impersonate-Extra-%61uthentication.kubernetes.io%2Fcredential-id: a",
                ],
                &["Impersonate-User: bob"],
                &["Impersonate-User: Alice"],
                &["Impersonate-User: root", ALICE],
                &["Impersonate-User: system:serviceaccount:default:default"],
            ];
            for headers in rows {
                let headers = [&[EVE][..], headers].concat();
                assert_eq!(
                    stage.compare(target, &headers).await,
                    403,
                    "{mode:?} {headers:?}"
                );
            }
            // With an empty name there is no impersonation.
            assert_eq!(
                stage.compare(target, &[BOB, "Impersonate-User:"]).await,
                200
            );
            let code = stage
                .compare(target, &[BOB, "Impersonate-Group: system:masters"])
                .await;
            assert!(code == 400 || code == 500, "{code}");
        }
        assert_eq!(stage.compare("/api/v1/nodes", &[EVE, ALICE]).await, 403);
        stage.ended().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_paths_reach_no_other_resource() {
    for mode in MODES {
        let stage = IdentityStage::new(mode).await;
        assert_eq!(stage.compare(PODS, &[BOB]).await, 200);
        for target in [
            "/api/v1/namespaces/default/pods/../secrets",
            "/api/v1/namespaces/default/pods/%2e%2e/secrets",
            "/api/v1/namespaces/default/pods%2F..%2Fsecrets",
            "/api/v1/namespaces/default/../kube-system/pods",
            "/api/v1/namespaces/default%2F..%2Fkube-system/pods",
            "/api/v1/namespaces/default/pods%2F",
            "/api/v1/namespaces/default/%70ods",
            "/api/v1/namespaces//pods",
            "/api/v1//pods",
            "//api/v1/pods",
            "/api//v1/namespaces/default/pods",
            "/api/v1/namespaces/default//pods",
            "/api/v1/namespaces/default/pods//",
            "/api/v1/./pods",
            "/api/v1/pods;a=b",
            "/api/v1/pods%00",
            "/api/v1/pods%3Fwatch=1",
        ] {
            stage.recorder.clear();
            let response = raw(stage.stage.address, &request(target, &[BOB])).await;
            let direct = raw(stage.stage.apiserver.address(), &request(target, &[BOB])).await;
            assert_eq!(
                code(&response),
                code(&direct),
                "{mode:?} {target}: {response}"
            );
            // Exactly the requests with the caller's token have the caller's target. The others are the gateway's own.
            for head in stage.recorder.heads("GET ") {
                let line = head.lines().next().unwrap();
                let is_callers = head.to_lowercase().contains("bearer bob-token");
                assert_eq!(
                    is_callers,
                    line == format!("GET {target} HTTP/1.1"),
                    "{head}"
                );
            }
        }
        stage.ended().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_scoped_resources_are_in_no_namespace() {
    for mode in MODES {
        let stage = IdentityStage::new(mode).await;
        let nodes =
            json!({"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["nodes"]});
        stage
            .stage
            .allow("bob-nodes", "bob", nodes, "default")
            .await;
        for target in [
            "/api/v1/nodes",
            "/api/v1/namespaces/default/nodes",
            "/api/v1/namespaces/default/nodes?watch=1&timeoutSeconds=1",
            "/api/v1/watch/namespaces/default/nodes?timeoutSeconds=1",
        ] {
            let code = stage.compare(target, &[BOB]).await;
            assert_ne!(code, 200, "{mode:?} {target}");
        }
        stage.ended().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_allowed_question_answers_no_other() {
    const TREASURE: &str = "fieldSelector=metadata.name%3Dtreasure";
    const CAROL: &str = "Authorization: Bearer carol-token";
    for mode in MODES {
        let stage = IdentityStage::new(mode).await;
        let one = json!({"verbs": ["list"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["treasure"]});
        stage
            .stage
            .allow("carol-one", "carol", one, "default")
            .await;
        let allowed = format!("{PODS}?{TREASURE}");
        for target in [
            PODS.to_owned(),
            format!("{PODS}?fieldSelector=metadata.name%3Dother"),
            format!("{PODS}?fieldSelector=metadata.name!%3Dtreasure"),
            format!("{PODS}?labelSelector=metadata.name%3Dtreasure"),
            format!("{PODS}?fieldselector=metadata.name%3Dtreasure"),
            format!("{PODS}?watch=1&{TREASURE}"),
            format!("{PODS}?{TREASURE}&limit=x"),
            format!("{PODS}?{TREASURE}&labelSelector=%3D%3D"),
            format!("/api/v1/watch/namespaces/default/pods?{TREASURE}"),
            format!("/api/v1/watch/namespaces/default/pods/treasure?{TREASURE}"),
            format!("{PODS}/treasure"),
            format!("{PODS}/treasure/log"),
            format!("{PODS}/treasure/status?{TREASURE}"),
            format!("/api/v1/pods?{TREASURE}"),
            format!("/api/v1/namespaces/kube-system/pods?{TREASURE}"),
            format!("/api/v1/namespaces/default/configmaps?{TREASURE}"),
            format!("/apis/apps/v1/namespaces/default/deployments?{TREASURE}"),
            format!("/apis/batch/v1/namespaces/default/pods?{TREASURE}"),
        ] {
            assert_eq!(stage.compare(&allowed, &[CAROL]).await, 200, "{mode:?}");
            let code = stage.compare(&target, &[CAROL]).await;
            assert!(code == 403 || code == 404, "{mode:?} {target}: {code}");
        }
        stage.ended().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_upgrade_opens_no_way_to_upstream() {
    for refused in [
        "403 Forbidden",
        "500 Internal Server Error",
        "400 Bad Request",
        "200 OK",
    ] {
        let stage = IdentityStage::new(AuthMode::SelfCheck).await;
        let response = format!("HTTP/1.1 {refused}\r\nContent-Length: 2\r\n\r\nno");
        stage.recorder.respond("/exec", &response);
        let upgrade = ["Connection: Upgrade", "Upgrade: SPDY/3.1", BOB];
        let second = "/api/v1/namespaces/kube-system/secrets";
        let sent = request(&format!("{POD}/exec?command=id"), &upgrade) + &request(second, &[]);
        let responses = raw(stage.stage.address, &sent).await;
        assert_eq!(code(&responses).to_string(), refused[..3], "{responses}");
        // The second request is handled on its own, as an anonymous one.
        let (_, rest) = responses.split_once("\r\n\r\nno").unwrap();
        assert!(rest.is_empty() || code(rest) == 403, "{responses}");
        for head in stage.recorder.heads(second) {
            assert!(
                !head.to_lowercase().contains("\r\nauthorization:"),
                "{head}"
            );
        }
        stage.ended().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redirections_are_passed_on_and_not_followed() {
    let stage = IdentityStage::new(AuthMode::SelfCheck).await;
    let elsewhere = Recorder::start(stage.stage.apiserver.address());
    let upgrade = ["Connection: Upgrade", "Upgrade: SPDY/3.1", BOB];
    let rows: [(&str, &[&str]); 3] = [
        ("/exec?command=id", &upgrade),
        ("/proxy/", &[BOB]),
        ("/metrics.k8s.io/", &[BOB]),
    ];
    for status_line in [
        "301 Moved Permanently",
        "302 Found",
        "307 Temporary Redirect",
    ] {
        for (part, headers) in rows {
            let response = format!(
                "HTTP/1.1 {status_line}\r\nLocation: http://{}/api/v1/secrets\r\nContent-Length: 0\r\n\r\n",
                elsewhere.address
            );
            stage.recorder.respond(part, &response);
            stage.recorder.clear();
            let target = match part {
                "/metrics.k8s.io/" => "/apis/metrics.k8s.io/v1beta1/pods/a".to_owned(),
                part => format!("{POD}{part}"),
            };
            let mut stream = TcpStream::connect(stage.stage.address).await.unwrap();
            send(&mut stream, request(&target, headers).as_bytes()).await;
            let is_whole = |bytes: &[u8]| bytes.windows(4).any(|end| end == b"\r\n\r\n");
            let response = read_until(&mut stream, is_whole).await;
            let response = String::from_utf8_lossy(&response).to_lowercase();
            assert!(
                (301..308).contains(&code(&response.replace("http/1.1", "HTTP/1.1"))),
                "{response}"
            );
            assert!(!response.contains("-token"), "{response}");
            assert_eq!(stage.recorder.heads(part).len(), 1, "{part}");
        }
    }
    assert!(elsewhere.heads("").is_empty());
    stage.ended().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_for_another_audience_is_refused() {
    let audiences = |settings: &mut ServeSettings| {
        settings.auth.token_audiences = vec!["fanout".to_owned()];
    };
    let stage = IdentityStage::with(AuthMode::Review, audiences).await;
    let tokens = stage.stage.apiserver.tokens();
    for (token, audiences) in [
        ("for-us", vec!["fanout".to_owned()]),
        ("for-others", vec!["vault".to_owned()]),
    ] {
        let mut user = TokenUser::new("bob", &[]);
        user.audiences = audiences;
        tokens.put(token, user);
    }
    for (token, expected) in [("for-us", 200), ("for-others", 401), ("bob-token", 401)] {
        let header = format!("Authorization: Bearer {token}");
        let response = raw(stage.stage.address, &request(PODS, &[&header])).await;
        assert_eq!(code(&response), expected, "{token}: {response}");
    }
    stage.ended().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_view_that_others_share_is_for_those_who_may_see_it() {
    for mode in MODES {
        let stage = IdentityStage::new(mode).await;
        let watch = format!("{PODS}?watch=1&resourceVersion=0");
        let mut open = Vec::new();
        for token in ["bob-token", "alice-token"] {
            let response = stage.stage.watch(token, &watch, false).await;
            assert_eq!(response.status(), 200);
            open.push(response);
        }
        for headers in [&["Authorization: Bearer carol-token"][..], &[EVE], &[]] {
            assert_eq!(
                stage.compare(&watch, headers).await,
                403,
                "{mode:?} {headers:?}"
            );
        }
        drop(open);
        stage.ended().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_websocket_token_counts_as_a_header_does() {
    for mode in MODES {
        let stage = IdentityStage::new(mode).await;
        // "bob-token" and "carol-token".
        for (token, others, expected) in [
            ("Ym9iLXRva2Vu", "binary.k8s.io, ", 101),
            ("Y2Fyb2wtdG9rZW4", "binary.k8s.io, ", 403),
            ("dW5rbm93bg", "binary.k8s.io, ", 401),
            ("Ym9iLXRva2Vu", "", 401),
            ("!", "binary.k8s.io, ", 401),
        ] {
            let protocols = format!(
                "Sec-WebSocket-Protocol: {others}base64url.bearer.authorization.k8s.io.{token}"
            );
            let headers = [
                "Connection: Upgrade",
                "Upgrade: websocket",
                "Origin: http://a",
                "Sec-WebSocket-Version: 13",
                "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
                &protocols,
            ];
            let mut stream = TcpStream::connect(stage.stage.address).await.unwrap();
            send(
                &mut stream,
                request(&format!("{PODS}?watch=1"), &headers).as_bytes(),
            )
            .await;
            let is_whole = |bytes: &[u8]| bytes.windows(4).any(|end| end == b"\r\n\r\n");
            let response = read_until(&mut stream, is_whole).await;
            let response = String::from_utf8_lossy(&response);
            assert_eq!(
                code(&response),
                expected,
                "{mode:?} {protocols}: {response}"
            );
            assert!(!response.contains("base64url.bearer"), "{response}");
        }
        stage.ended().await;
    }
}
