//! The connections that reviews use.

use std::sync::Arc;

use kube_fanout::auth::access::Access;
use kube_fanout::auth::authorizer::Authorizer as _;
use kube_fanout::auth::authorizer::UpstreamAuthorizer;
use kube_fanout::auth::caller::BearerToken;
use kube_fanout::auth::digest::CredentialHasher;
use kube_fanout::auth::followed::AuthorizerState;
use kube_fanout::auth::question::{AccessQuestion, QuestionIdentity, QuestionKey};
use kube_fanout::auth::token_review::{TokenAuthenticator as _, TokenReviewMethod, UpstreamTokens};
use kube_fanout::auth::upstream::{ReviewPurpose, Reviewer};
use kube_fanout::fairness::Peer;
use kube_fanout::metrics::Metrics;
use kube_fanout::upstream::client::Client;

use crate::passthrough::front::peer_of_http2;

/// API servers close a connection after a request with invalid credentials, which ends other reviews on it.
#[tokio::test]
async fn a_new_token_is_reviewed_over_a_connection_that_no_other_review_shares() {
    let (_peer, source) = peer_of_http2().await;
    let client = Client::connect(source).await.unwrap();
    let reviewer = Arc::new(Reviewer::new(client));
    let metrics = Metrics::new().unwrap().authentication();
    let method = TokenReviewMethod::SelfSubjectReview;
    let tokens = UpstreamTokens::new(Arc::clone(&reviewer), method, metrics);
    let token = BearerToken::new("of-somebody").unwrap();
    let authorizer = UpstreamAuthorizer::new(reviewer);
    let digest = CredentialHasher::new(&[7; 32]).token(&token);
    let question = AccessQuestion {
        identity: QuestionIdentity::Caller {
            token: token.clone(),
            owner: Arc::default(),
            impersonation: Arc::default(),
            digest,
        },
        subject: Arc::default(),
        payer: Peer::default(),
        key: QuestionKey {
            credentials: Some(digest),
            user: Arc::default(),
            access: Arc::new(Access::Path {
                verb: "get".to_owned(),
                path: "/version".to_owned(),
            }),
            authorizers: AuthorizerState::Opaque,
        },
    };
    for _ in 0..2 {
        let user = tokens.authenticate(&token, ReviewPurpose::Authentication);
        assert_eq!(user.await.unwrap().unwrap().name, "HTTP/1.1");
        let verdict = authorizer.decide(&question, ReviewPurpose::Authorization);
        assert_eq!(verdict.await.unwrap().reason, "HTTP/2.0");
    }
}
