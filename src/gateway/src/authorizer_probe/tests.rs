//! The requests of a probe, and what it makes of the responses.

use std::collections::HashMap;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::*;
use crate::upstream::client::ConnectSource;

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";

/// An upstream with a response per path. Others are not found.
struct Stage {
    responses: Arc<Mutex<HashMap<&'static str, (u16, Value)>>>,
    /// Path and body of each request.
    requests: Arc<Mutex<Vec<(String, String)>>>,
    client: Client,
    _serving: JoinSet<()>,
}

impl Stage {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let responses = Arc::new(Mutex::new(HashMap::new()));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let mut serving = JoinSet::new();
        let (answers, asked) = (Arc::clone(&responses), Arc::clone(&requests));
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (answers, asked) = (Arc::clone(&answers), Arc::clone(&asked));
                let respond = service_fn(move |request: Request<Incoming>| {
                    let (answers, asked) = (Arc::clone(&answers), Arc::clone(&asked));
                    async move {
                        let path = request.uri().path().to_owned();
                        let answer = answers.lock().get(&*path).cloned();
                        let body = request.into_body().collect().await?.to_bytes();
                        let body = String::from_utf8_lossy(&body).into_owned();
                        asked.lock().push((path, body));
                        let (code, answer) = answer.unwrap_or((404, Value::Null));
                        let mut response =
                            Response::new(Full::new(Bytes::from(answer.to_string())));
                        *response.status_mut() = code.try_into().unwrap();
                        Ok::<_, hyper::Error>(response)
                    }
                });
                let io = TokioIo::new(stream);
                connections.spawn(async move {
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(io, respond)
                        .await;
                });
            }
        });
        let source = ConnectSource::url(&format!("http://{address}")).unwrap();
        Self {
            responses,
            requests,
            client: Client::connect(source).await.unwrap(),
            _serving: serving,
        }
    }

    fn respond(&self, path: &'static str, code: u16, answer: Value) {
        self.responses.lock().insert(path, (code, answer));
    }

    fn respond_review(&self, status: &Value) {
        let review = json!({
            "kind": "SelfSubjectRulesReview", "apiVersion": "authorization.k8s.io/v1",
            "metadata": {}, "spec": {}, "status": status,
        });
        self.respond(REVIEWS, 201, review);
    }

    fn respond_groups(&self, names: &[&str]) {
        let groups: Vec<_> = names
            .iter()
            .map(|name| json!({"name": name, "versions": [{"groupVersion": format!("{name}/v1"), "version": "v1"}]}))
            .collect();
        let list = json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups});
        self.respond("/apis", 200, list);
    }

    fn probe(&self, configured: UpstreamAuthorizers) -> (AuthorizerProbe, Arc<Followed>) {
        let followed = Arc::<Followed>::default();
        let probe = AuthorizerProbe::new(self.client.clone(), Arc::clone(&followed), configured);
        (probe, followed)
    }

    async fn outcome(&self) -> Result<AuthorizerAnswer, String> {
        probe(&self.client).await
    }
}

#[tokio::test]
async fn a_probe_asks_for_the_gateways_own_rules_and_for_the_api_groups() {
    let stage = Stage::new().await;
    stage
        .respond_review(&json!({"resourceRules": [], "nonResourceRules": [], "incomplete": false}));
    stage.respond_groups(&["apps", "example.com"]);
    assert_eq!(stage.outcome().await, Ok(AuthorizerAnswer::Complete));
    let requests = stage.requests.lock().clone();
    let paths: Vec<_> = requests.iter().map(|(path, _)| &**path).collect();
    assert_eq!(paths, [REVIEWS, "/apis"]);
    let review: Value = serde_json::from_str(&requests[0].1).unwrap();
    assert_eq!(
        review,
        json!({
            "kind": "SelfSubjectRulesReview", "apiVersion": "authorization.k8s.io/v1",
            "spec": {"namespace": "default"},
        })
    );
    stage.respond_groups(&["apps", "authorization.openshift.io"]);
    let hidden = AuthorizerAnswer::HiddenAuthorizers("authorization.openshift.io".to_owned());
    assert_eq!(stage.outcome().await, Ok(hidden));
}

#[tokio::test]
async fn what_is_not_answered_in_full_is_not_complete() {
    let stage = Stage::new().await;
    stage.respond_groups(&["apps"]);
    stage.outcome().await.unwrap_err();
    stage.respond_review(&json!({"incomplete": true}));
    assert_eq!(stage.outcome().await, Ok(AuthorizerAnswer::Incomplete));
    stage.respond_review(&Value::Null);
    assert_eq!(stage.outcome().await, Ok(AuthorizerAnswer::Incomplete));
    stage.respond_review(&json!({"resourceRules": []}));
    stage.outcome().await.unwrap_err();
    stage.respond(REVIEWS, 403, json!({"kind": "Status", "message": "no"}));
    stage.outcome().await.unwrap_err();
    stage.respond_review(&json!({"incomplete": false}));
    assert_eq!(stage.outcome().await, Ok(AuthorizerAnswer::Complete));
    for (code, groups) in [
        (503, json!({})),
        (
            200,
            json!({"kind": "APIResourceList", "groupVersion": "v1"}),
        ),
        (200, json!({"kind": "Status"})),
    ] {
        stage.respond("/apis", code, groups);
        stage.outcome().await.unwrap_err();
    }
}

#[tokio::test]
async fn the_state_and_its_reason_are_told() {
    let stage = Stage::new().await;
    let (probe, followed) = stage.probe(UpstreamAuthorizers::Auto);
    assert_eq!(probe.verdict.lock().state(), AuthorizerState::Opaque);
    probe.publish(&AuthorizerVerdict::Answered(AuthorizerAnswer::Complete));
    assert_eq!(followed.authorizers(), AuthorizerState::Transparent);
    assert_eq!(probe.verdict.lock().state(), AuthorizerState::Transparent);
    probe.publish(&AuthorizerVerdict::Unanswered("no route".to_owned()));
    assert_eq!(followed.authorizers(), AuthorizerState::Opaque);
    assert!(probe.verdict.lock().to_string().contains("no route"));
}

#[tokio::test]
async fn nothing_is_asked_of_an_upstream_that_is_declared_opaque() {
    let stage = Stage::new().await;
    let (probe, followed) = stage.probe(UpstreamAuthorizers::Opaque);
    let mut running = std::pin::pin!(probe.run());
    assert!(futures::poll!(&mut running).is_pending());
    assert_eq!(followed.authorizers(), AuthorizerState::Opaque);
    assert_eq!(
        probe.verdict.lock().to_string(),
        "--upstream-authorizers opaque"
    );
    assert!(stage.requests.lock().is_empty());
}
