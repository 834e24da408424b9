//! The API server behind the gateway, and its faults.

use std::net::SocketAddr;

use kube_fanout_testkit::apiserver::auth::{AuthOptions, TokenUser};
use kube_fanout_testkit::apiserver::faults::nonsense::Nonsense;
use kube_fanout_testkit::apiserver::faults::{Fault, FaultOrder};
use kube_fanout_testkit::apiserver::request::Verb;
use kube_fanout_testkit::apiserver::{self, Apiserver, Options};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use crate::secrets::credentials::{Credentials, random_text};
use crate::secrets::process::{Serving, connect};
use crate::secrets::requests::{PODS, bearer, get};
use crate::support::PATIENCE;

/// The ways in which reviews fail.
pub(crate) fn failures() -> Vec<Fault> {
    let refuse = |code| Fault::Refuse {
        code,
        retry_after_seconds: 1,
    };
    let mut failures = vec![refuse(401), refuse(403), refuse(429), refuse(500)];
    failures.extend([Fault::BreakOff, Fault::Delay { delay_ms: 1 }]);
    let nonsense = [
        Nonsense::NotJson,
        Nonsense::Truncated,
        Nonsense::WrongKind,
        Nonsense::StatusText,
        Nonsense::Text,
        Nonsense::Contradiction,
        Nonsense::NoName,
        Nonsense::Oversized { len: 4 << 20 },
    ];
    failures.extend(nonsense.map(Fault::Nonsense));
    failures
}

/// Starts an API server that accepts the valid credentials.
pub(crate) async fn start(serving: &Serving, credentials: &Credentials) -> Apiserver {
    let user = || TokenUser::new("ann", &["system:masters"]);
    let tokens = [&credentials.good, &credentials.expiring]
        .into_iter()
        .chain(&credentials.for_failures)
        .map(|token| (token.as_str(), user()));
    let gateway = TokenUser::new("gateway", &["system:masters"]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = Options {
        objects: vec!["pods=20".parse().unwrap()],
        object_len: 1_024,
        seed: Some(1),
        tls: Some(serving.settings()),
        auth: Some(AuthOptions {
            tokens: tokens
                .chain([(credentials.gateway.as_str(), gateway)])
                .collect(),
            ..AuthOptions::default()
        }),
        ..Options::default()
    };
    apiserver::start(listener, options).unwrap()
}

fn order(server: &Apiserver, fault: Fault, resource: Option<&str>, count: u32) {
    let order = FaultOrder {
        fault,
        verb: None,
        resource: resource.map(Into::into),
        count,
    };
    server.order(order).unwrap();
}

/// Makes token reviews and access reviews fail in every way, and finally revokes the gateway's own token. `get` sends a request with
/// a token and a target to the gateway. Returns the responses.
pub(crate) async fn fail_reviews(
    server: &Apiserver,
    credentials: &Credentials,
    get: impl AsyncFn(&str, &str) -> Vec<u8>,
) -> Vec<Vec<u8>> {
    let mut responses = Vec::new();
    let reviews = Some("reviews");
    for (index, (fault, token)) in failures()
        .into_iter()
        .zip(&credentials.for_failures)
        .enumerate()
    {
        order(server, fault, reviews, 8);
        responses.push(get(token, PODS).await);
        order(server, Fault::Clear, reviews, 1);
        responses.push(get(token, PODS).await);
        // The gateway remembers the token now, but has to review this access.
        let other = format!("/api/v1/namespaces/other-{index}/pods?resourceVersion=0");
        order(server, fault, reviews, 8);
        responses.push(get(token, &other).await);
        order(server, Fault::Clear, reviews, 1);
    }
    server.tokens().remove(&credentials.gateway);
    order(server, Fault::EndWatches, None, 1);
    responses.push(get(&random_text(), PODS).await);
    responses.push(get(&credentials.good, PODS).await);
    responses
}

/// Opens a request that upstream delays beyond the end of the test, and waits until it has been forwarded. The returned future ends
/// with its connection.
pub(crate) async fn open_request(
    server: &Apiserver,
    credentials: &Credentials,
    client: &TlsConnector,
    address: SocketAddr,
) -> impl Future<Output = ()> + use<> {
    let gateway = TokenUser::new("gateway", &["system:masters"]);
    server.tokens().put(&credentials.gateway, gateway);
    let delay = FaultOrder {
        fault: Fault::Delay { delay_ms: 60_000 },
        verb: Some(Verb::Get),
        resource: Some("nodes".into()),
        count: 1,
    };
    server.order(delay).unwrap();
    let before = server.fault_counts().delayed;
    let request = get("/api/v1/nodes/stuck", &bearer(&credentials.good));
    let mut stream = connect(client, address).await;
    stream.write_all(&request).await.unwrap();
    let give_up_at = Instant::now() + PATIENCE;
    while server.fault_counts().delayed == before {
        assert!(Instant::now() < give_up_at, "the request was not forwarded");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    async move {
        // The connection ends when the gateway is killed.
        let _ = stream.read_to_end(&mut Vec::new()).await;
    }
}
