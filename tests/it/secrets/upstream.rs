//! The API server behind the gateway, and what goes wrong there.

use std::net::SocketAddr;

use kube_fanout::apiserver::auth::{AuthOptions, TokenUser};
use kube_fanout::apiserver::faults::nonsense::Nonsense;
use kube_fanout::apiserver::faults::{Fault, FaultOrder};
use kube_fanout::apiserver::route::ResourceVerb;
use kube_fanout::apiserver::{self, Apiserver, Options};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use crate::secrets::credentials::{Credentials, random_text};
use crate::secrets::process::{PATIENCE, Serving, connect};
use crate::secrets::requests::{PODS, bearer, get};

/// Ways in which reviews fail.
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

/// Starts it.
pub(crate) async fn upstream(serving: &Serving, credentials: &Credentials) -> Apiserver {
    let user = || TokenUser::new("ann", &["system:masters"]);
    let tokens = [&credentials.good, &credentials.expiring]
        .into_iter()
        .chain(&credentials.unlucky)
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

/// Reviews of tokens and of accesses fail in every way, and then the gateway's own token is not good any more. `ask` sends a token
/// and a target.
pub(crate) async fn trouble(
    server: &Apiserver,
    credentials: &Credentials,
    ask: impl AsyncFn(&str, &str) -> Vec<u8>,
) -> Vec<Vec<u8>> {
    let mut answers = Vec::new();
    let reviews = Some("reviews");
    for (index, (fault, token)) in failures().into_iter().zip(&credentials.unlucky).enumerate() {
        order(server, fault, reviews, 8);
        answers.push(ask(token, PODS).await);
        order(server, Fault::Clear, reviews, 1);
        answers.push(ask(token, PODS).await);
        // The token is known now; whether it may do this is not.
        let other = format!("/api/v1/namespaces/other-{index}/pods?resourceVersion=0");
        order(server, fault, reviews, 8);
        answers.push(ask(token, &other).await);
        order(server, Fault::Clear, reviews, 1);
    }
    server.tokens().remove(&credentials.gateway);
    order(server, Fault::EndWatches, None, 1);
    answers.push(ask(&random_text(), PODS).await);
    answers.push(ask(&credentials.good, PODS).await);
    answers
}

/// A request that is under way for as long as a test lasts.
pub(crate) async fn stuck(
    server: &Apiserver,
    credentials: &Credentials,
    client: &TlsConnector,
    address: SocketAddr,
) -> impl Future<Output = ()> + use<> {
    let gateway = TokenUser::new("gateway", &["system:masters"]);
    server.tokens().put(&credentials.gateway, gateway);
    let delay = FaultOrder {
        fault: Fault::Delay { delay_ms: 60_000 },
        verb: Some(ResourceVerb::Get),
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
        assert!(Instant::now() < give_up_at, "the request is not forwarded");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    async move {
        // It ends with the gateway.
        let _ = stream.read_to_end(&mut Vec::new()).await;
    }
}
