//! Servers, credentials and gateways that look right at first.

use std::net::SocketAddr;

use kube_fanout::check::{CheckLevel, CheckReport, check_once};
use kube_fanout::cli::CheckCategory;
use kube_fanout::config::{AuthMode, AuthSettings, UpstreamSource};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::front::{Front, Reply};
use super::servers::{NAMESPACES, WHO, access, kubeconfig, list, settings_of_user};
use super::stage::{self, Authority, client, ended, report_on, settings};

use CheckLevel::{Failure, Ok, Skipped, Warning};

/// The API server does not let this user ask who it is.
fn may_not_ask(user: &str) -> Reply {
    let text = format!("selfsubjectreviews is forbidden: User \"{user}\" cannot create resource");
    Reply::new(WHO, 403, json!({ "message": text }).to_string())
}

/// The report on credentials of an authenticating gateway that may not ask who it is.
async fn report_of(user: &str, credentials: Value) -> CheckReport {
    let apiserver = stage::apiserver().await;
    let front = Front::new(Some(apiserver.address()), vec![may_not_ask(user)]).await;
    let authority = Authority::new(&format!("credentials-{}", user.replace(':', "-")));
    let server = format!("http://{}", front.address);
    let mut settings = settings(front.address);
    settings.serve.auth = AuthSettings::of_mode(AuthMode::Review);
    settings.serve.upstream = UpstreamSource::Kubeconfig {
        path: kubeconfig(&authority, &server, credentials),
        context: None,
    };
    check_once(&settings).await
}

/// Unlike a user whom the API server knows, an anonymous one may not ask who it is.
#[tokio::test(flavor = "multi_thread")]
async fn an_anonymous_gateway_is_told_from_one_that_may_not_ask_who_it_is() {
    let name = "upstream-credentials";
    let open = report_on(vec![may_not_ask("system:anonymous")], |_| {}).await;
    ended(&open, name, Warning, "it is system:anonymous");
    let none = report_on(vec![Reply::new(WHO, 403, "{}")], |settings| {
        settings.serve.auth = AuthSettings::of_mode(AuthMode::Review);
    });
    ended(&none.await, name, Failure, "it is system:anonymous");
    let token = json!({"token": "t"});
    let refused = report_of("system:anonymous", token.clone()).await;
    ended(&refused, name, Failure, "it is system:anonymous");
    let known = report_of("gateway", token).await;
    ended(&known, name, Ok, "may not ask who it is");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_no_health_check_is_neither_api_server_nor_gateway() {
    for status in [404, 302] {
        let report = report_on(vec![Reply::new("GET /readyz", status, "{}")], |_| {}).await;
        let words = format!("/readyz is answered {status}");
        ended(&report, "upstream-ready", Failure, &words);
        let apiserver = stage::apiserver().await;
        let replies = vec![Reply::new("GET /readyz", status, "{}")];
        let front = Front::new(Some(apiserver.address()), replies).await;
        let mut settings = settings(apiserver.address());
        settings.gateway = Some(client("http", front.address));
        let report = check_once(&settings).await;
        ended(&report, "gateway-ready", Failure, &words);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_forwards_the_list_is_not_praised_for_its_cache() {
    let apiserver = stage::apiserver().await;
    let gateway = stage::gateway(apiserver.address()).await;
    let pods = r#"{"caches":["pods.v1.json"]}"#;
    for (status, index, level, words) in [
        (200, pods, Warning, "compared with itself"),
        (403, "{}", Ok, "may not see whether the gateway has a cache"),
    ] {
        let replies = vec![Reply::new("GET /kube-fanout/handover", status, index)];
        let front = Front::new(Some(gateway.address), replies).await;
        let mut settings = settings(apiserver.address());
        settings.gateway = Some(client("http", front.address));
        ended(&check_once(&settings).await, "live-list", level, words);
    }
    gateway.ended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_is_not_blamed_for_what_it_does_not_lack() {
    // A server that is under load has the feature all the same.
    for status in [429, 503] {
        let reply = Reply::new("sendInitialEvents", status, "{}");
        let report = report_on(vec![reply], |_| {}).await;
        let words = format!("is answered {status}");
        ended(&report, "streamed-lists", Failure, &words);
    }
    let broken = Reply::new(&format!("{NAMESPACES}?limit=1"), 500, list("1", &[]));
    let broken = report_on(vec![broken], |_| {}).await;
    ended(&broken, "flow-control", Failure, "10 of 10 requests");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_certificate_in_a_file_is_to_be_renewed_in_time() {
    let apiserver = stage::apiserver().await;
    let authority = Authority::new("client-expiring");
    let tls = authority.sign("server", -1..300).tls(&["http/1.1"]);
    let front = Front::with_tls(Some(apiserver.address()), vec![stage::known()], tls).await;
    let own = authority.sign("client", -100..3);
    let user = json!({"client-certificate": own.cert, "client-key": own.key});
    let settings = settings_of_user(front.address, &authority, user);
    let report = check_once(&settings).await;
    ended(
        &report,
        "certificate-expiry",
        Warning,
        "client certificate expires in",
    );
}

/// Otherwise nothing would say why: the API server refuses an expired certificate with 401, as any other.
#[tokio::test(flavor = "multi_thread")]
async fn refused_credentials_are_looked_at() {
    let apiserver = stage::apiserver().await;
    let authority = Authority::new("client-refused");
    let tls = authority.sign("server", -100..3).tls(&["http/1.1"]);
    let replies = vec![Reply::new(WHO, 401, "{}")];
    let front = Front::with_tls(Some(apiserver.address()), replies, tls).await;
    let own = authority.sign("client", -100..-10);
    let user = json!({"client-certificate": own.cert, "client-key": own.key});
    let settings = settings_of_user(front.address, &authority, user);
    let report = check_once(&settings).await;
    ended(&report, "upstream-credentials", Failure, "401");
    ended(
        &report,
        "certificate-expiry",
        Failure,
        "expired 10 days ago",
    );
    ended(&report, "rights-resources", Skipped, "cannot be used");
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_that_nobody_verifies_are_not_called_trusted() {
    let apiserver = stage::apiserver().await;
    let authority = Authority::new("unverified");
    let tls = authority.sign("server", -1..300).tls(&["http/1.1"]);
    let front = Front::with_tls(Some(apiserver.address()), vec![stage::known()], tls).await;
    let server = format!("https://{}", front.address);
    let path = kubeconfig(&authority, &server, json!({}));
    let text = std::fs::read_to_string(&path).unwrap();
    let mut text: Value = serde_json::from_str(&text).unwrap();
    text["clusters"][0]["cluster"] = json!({"server": server, "insecure-skip-tls-verify": true});
    std::fs::write(&path, text.to_string()).unwrap();
    let mut settings = settings(front.address);
    settings.serve.upstream = UpstreamSource::Kubeconfig {
        path,
        context: None,
    };
    let report = check_once(&settings).await;
    ended(&report, "upstream-ready", Warning, "are not verified");
}

/// A URL brings no authority of its own, so there is none to look at.
#[tokio::test(flavor = "multi_thread")]
async fn a_hint_names_an_authority_that_exists() {
    let authority = Authority::new("system-bundle");
    let tls = authority.sign("server", -1..300).tls(&["http/1.1"]);
    let front = Front::with_tls(None, Vec::new(), tls).await;
    let mut settings = settings(front.address);
    settings.serve.upstream =
        UpstreamSource::Url(format!("https://{}/", front.address).parse().unwrap());
    let report = check_once(&settings).await;
    ended(&report, "upstream-ready", Failure, "UnknownIssuer");
    let hint = report.text(false);
    assert!(hint.contains("authority in the system's bundle"), "{hint}");
}

/// An API server that nobody asks about is not waited for.
#[tokio::test(flavor = "multi_thread")]
async fn limits_are_checked_without_an_api_server() {
    let nowhere = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = nowhere.local_addr().unwrap();
    drop(nowhere);
    let mut settings = settings(address);
    settings.categories = vec![CheckCategory::Limits, CheckCategory::Admin];
    let report = check_once(&settings).await;
    let is_of_upstream = |name: &str| name.starts_with("upstream");
    let names: Vec<_> = report.results.iter().map(|one| one.spec.name).collect();
    assert!(!names.iter().any(|name| is_of_upstream(name)), "{names:?}");
    settings.categories.push(CheckCategory::Clock);
    let report = check_once(&settings).await;
    ended(&report, "upstream-ready", Failure, "cannot connect");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_api_server_that_is_not_reached_is_named() {
    let apiserver = stage::apiserver().await;
    let (first, second) = (
        TcpListener::bind("127.0.0.1:0").await.unwrap(),
        TcpListener::bind("127.0.0.1:0").await.unwrap(),
    );
    let closed = [&first, &second].map(|listener| listener.local_addr().unwrap());
    drop((first, second));
    let mut settings = settings(apiserver.address());
    settings.categories = vec![CheckCategory::Upstream];
    settings.serve.api_servers = [closed[0], closed[1], apiserver.address()]
        .map(|server| format!("http://{server}/").parse().unwrap())
        .to_vec();
    let report = check_once(&settings).await;
    for address in closed {
        let words = format!("cannot connect to {address}");
        ended(&report, "upstream-ready", Warning, &words);
    }
    settings.serve.api_servers.pop();
    let report = check_once(&settings).await;
    let words = closed[1].to_string();
    ended(&report, "upstream-ready", Failure, &words);
}

/// Two servers that answer with empty objects are not thereby in the same cluster.
#[tokio::test(flavor = "multi_thread")]
async fn what_has_no_uid_is_no_cluster() {
    let apiserver = stage::apiserver().await;
    let empty = || Reply::new("GET /api/v1/namespaces/kube-system", 200, "{}");
    let (upstream, gateway) = (
        Front::new(Some(apiserver.address()), vec![empty()]).await,
        Front::new(Some(apiserver.address()), vec![empty()]).await,
    );
    let mut settings = settings(upstream.address);
    settings.gateway = Some(client("http", gateway.address));
    let report = check_once(&settings).await;
    ended(&report, "gateway-cluster", Ok, "both say version");
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_without_dangerous_rights_are_said_to_lack_only_what_was_asked_about() {
    let report = report_on(vec![access(false)], |_| {}).await;
    let words = "none of the dangerous rights that were asked about";
    ended(&report, "rights-shared", Ok, words);
    let report = report_on(vec![access(true)], |_| {}).await;
    ended(&report, "rights-shared", Warning, "impersonate users");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_in_a_url_is_not_printed() {
    let authority = Authority::new("password");
    let nowhere = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = nowhere.local_addr().unwrap();
    drop(nowhere);
    let mut settings = settings(address);
    settings.serve.upstream = UpstreamSource::Kubeconfig {
        path: kubeconfig(
            &authority,
            &format!("https://user:secret@{address}"),
            json!({}),
        ),
        context: None,
    };
    let report = check_once(&settings).await;
    ended(&report, "upstream-config", Ok, &address.to_string());
    assert!(!report.json().contains("secret"), "{}", report.json());
}

/// A listener whose queue is full: nothing that connects to it gets an answer, as behind a firewall.
async fn mute() -> (SocketAddr, TcpListener, TcpStream) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let listener = socket.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    let first = TcpStream::connect(address).await.unwrap();
    (address, listener, first)
}

/// The clock stands still and jumps to the next timeout whenever nothing else happens.
#[tokio::test(start_paused = true)]
async fn one_api_server_that_drops_packets_is_a_warning() {
    let apiserver = stage::apiserver().await;
    let (address, _listener, _first) = mute().await;
    let mut settings = settings(apiserver.address());
    settings.categories = vec![CheckCategory::Upstream];
    settings.serve.api_servers = [address, apiserver.address()]
        .map(|server| format!("http://{server}/").parse().unwrap())
        .to_vec();
    let report = check_once(&settings).await;
    ended(&report, "upstream-ready", Warning, "1 of 2 API servers");
    settings.serve.api_servers.pop();
    let report = check_once(&settings).await;
    let words = "no answer within 3 s";
    ended(&report, "upstream-ready", Failure, words);
}
