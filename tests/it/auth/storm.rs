//! Many users open many watches at once: the API server gets each review only once.

use futures::future::join_all;
use http::StatusCode;
use kube_fanout::config::AuthMode;
use kube_fanout_testkit::apiserver::reviews::Review;
use serde_json::json;

use crate::support::auth::{AuthStage, gateways_rights, grant};

const USERS: usize = 50;
const WATCHES_EACH: usize = 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watchers_who_come_at_once_are_asked_about_once_for_each_token_and_question() {
    // The roles are created before the gateway starts, because a change of roles makes it repeat its reviews.
    let mut rights = gateways_rights();
    for number in 0..USERS {
        let rule = json!({"verbs": ["list", "watch"], "apiGroups": [""], "resources": ["pods"]});
        let name = format!("user-{number}");
        let (role, binding) = grant(&name, &name, rule);
        rights.push(("/clusterroles", role));
        rights.push(("/clusterrolebindings", binding));
    }
    let stage = AuthStage::with_rights(AuthMode::Review, rights, |settings| {
        // Reauthorization of open streams would add reviews; the interval is longer than the test.
        settings.auth.reauthorize_interval = std::time::Duration::from_secs(3_600);
    })
    .await;
    for number in 0..USERS {
        stage.user(&format!("token-{number}"), &format!("user-{number}"), &[]);
    }
    // Fill the cache first, so that all watches start at the same time.
    assert_eq!(stage.get("token-0", "/api/v1/pods").await.status(), 200);
    let reviews = stage.apiserver.reviews();
    reviews.reset();
    for _ in 0..2 {
        let watches = (0..USERS * WATCHES_EACH).map(|number| {
            let token = format!("token-{}", number % USERS);
            let stage = &stage;
            async move { stage.watch(&token, "/api/v1/pods?watch=1", true).await }
        });
        let open = join_all(watches).await;
        assert!(open.iter().all(|watch| watch.status() == StatusCode::OK));
        // The first token was already reviewed for the list above, but its permission to watch was not.
        let token_reviews = reviews.subject_count(Review::Token);
        let access_reviews = reviews.subject_count(Review::SubjectAccess);
        assert_eq!((token_reviews, access_reviews), (USERS - 1, USERS));
        assert_eq!(reviews.most(Review::Token), 1);
        assert_eq!(reviews.most(Review::SubjectAccess), 1);
    }
    stage.ended().await;
}
