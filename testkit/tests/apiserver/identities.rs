//! Tokens that are bound to pods, kubelets, rules reviews, and a webhook that denies.

use kube_fanout_testkit::apiserver::auth::{Denial, PodBinding, TokenUser};
use kube_fanout_testkit::apiserver::reviews::Review;

use super::auth::*;
use super::*;

const KUBELET: &str = "kubelet-token";
const POD: &str = "pod-token";
const ACCOUNT: &str = "system:serviceaccount:default:bot";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
const RULES_REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";

impl Bench {
    async fn uid(&self, target: &str) -> String {
        let response = self.send_as(ADMIN, "GET", target, "").await;
        value(&response)["metadata"]["uid"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    /// A token of the service account `bot`, bound to the pod `p`.
    async fn put_pod_token(&self) {
        self.create(ACCOUNTS, json!({"metadata": {"name": "bot"}}))
            .await;
        self.create(PODS, json!({"metadata": {"name": "p"}})).await;
        let pod = PodBinding {
            pod_name: "p".to_owned(),
            pod_uid: self.uid(&format!("{PODS}/p")).await,
            credential_id: "JTI=1".to_owned(),
            ..PodBinding::default()
        };
        let account_uid = self.uid(&format!("{ACCOUNTS}/bot")).await;
        let user = TokenUser::of_pod("default", "bot", &account_uid, pod);
        self.server.tokens().put(POD, user);
    }

    /// The reviewed user of the pod's token; null if it is not authenticated.
    async fn reviewed_user(&self) -> Value {
        let spec = json!({"token": POD});
        let (code, review) = self.review(REVIEWER, TOKEN_REVIEWS, spec).await;
        assert_eq!(code, 201);
        match review["status"]["authenticated"].as_bool() {
            Some(true) => review["status"]["user"].clone(),
            _ => Value::Null,
        }
    }

    async fn may(&self, spec: Value) -> bool {
        let (code, review) = self.review(REVIEWER, ACCESS_REVIEWS, spec).await;
        assert_eq!(code, 201, "{review}");
        review["status"]["allowed"].as_bool().unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_is_valid_as_long_as_its_pod_and_its_service_account_exist() {
    for gone in [format!("{PODS}/p"), format!("{ACCOUNTS}/bot")] {
        let bench = bench().await;
        bench.put_pod_token().await;
        let user = bench.reviewed_user().await;
        assert_eq!(user["username"], ACCOUNT);
        assert_eq!(user["extra"][CREDENTIAL_ID], json!(["JTI=1"]));
        assert_eq!(bench.review(POD, SELF_REVIEWS, json!(null)).await.0, 201);
        let response = bench.send_as(ADMIN, "DELETE", &gone, "").await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(bench.reviewed_user().await, Value::Null, "{gone}");
        assert_eq!(
            bench.review(POD, SELF_REVIEWS, json!(null)).await.0,
            401,
            "{gone}"
        );
        // An object of the same name is another one.
        bench.create(PODS, json!({"metadata": {"name": "q"}})).await;
        bench.put_other(&gone).await;
        assert_eq!(bench.code(POD, PODS).await, 401, "{gone}");
    }
}

impl Bench {
    /// Creates an object in the place of a deleted one.
    async fn put_other(&self, target: &str) {
        let (collection, name) = target.rsplit_once('/').unwrap();
        self.create(collection, json!({"metadata": {"name": name}}))
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn rules_reviews_tell_the_rules_of_the_sender_in_a_namespace() {
    let bench = bench().await;
    let ask = async |token: &str, namespace: &str| {
        let spec = json!({"namespace": namespace});
        bench.review(token, RULES_REVIEWS, spec).await
    };
    bench
        .create(
            &format!("{RBAC}/clusterroles"),
            role("pod-reader", &["list"], "", "pods"),
        )
        .await;
    let in_default = format!("{RBAC}/namespaces/default/rolebindings");
    bench
        .create(&in_default, binding("r", "pod-reader", "User", "ann"))
        .await;
    let rule = json!({"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]});
    for (namespace, is_listed) in [("default", true), ("other", false)] {
        let (code, review) = ask(ANN, namespace).await;
        assert_eq!(code, 201);
        let rules = review["status"]["resourceRules"].as_array().unwrap();
        assert_eq!(rules.contains(&rule), is_listed, "{review}");
        assert_eq!(review["status"]["incomplete"], false);
        let of_paths = review["status"]["nonResourceRules"].as_array().unwrap();
        assert!(
            of_paths
                .iter()
                .any(|rule| rule["nonResourceURLs"][0] == "/api")
        );
    }
    assert_eq!(ask(ANN, "").await.0, 400);
    assert_eq!(ask("", "default").await.0, 403);
    let counts = bench.server.reviews();
    assert_eq!(counts.totals().self_subject_rules, 2);
    assert_eq!(counts.of(Review::SelfSubjectRules, "ann"), 2);
}

#[tokio::test(start_paused = true)]
async fn rules_are_incomplete_for_kubelets_and_while_there_is_a_webhook() {
    let bench = bench().await;
    let kubelet = TokenUser::new("system:node:n", &["system:nodes"]);
    bench.server.tokens().put(KUBELET, kubelet);
    let is_incomplete = async |token: &str| {
        let spec = json!({"namespace": "default"});
        let (_, review) = bench.review(token, RULES_REVIEWS, spec).await;
        review["status"]["incomplete"].as_bool().unwrap()
    };
    assert!(is_incomplete(KUBELET).await && !is_incomplete(ADMIN).await);
    let webhook = bench.server.webhook();
    webhook.configure(Vec::new());
    assert!(is_incomplete(ADMIN).await);
    webhook.remove();
    assert!(!is_incomplete(ADMIN).await);
}

#[tokio::test(start_paused = true)]
async fn a_webhook_denies_one_credential_of_an_account_and_no_administrator() {
    let bench = bench().await;
    bench.put_pod_token().await;
    bench
        .create(
            &format!("{RBAC}/clusterroles"),
            role("pod-reader", &["list"], "", "pods"),
        )
        .await;
    bench
        .create(
            &format!("{RBAC}/clusterrolebindings"),
            binding("r", "pod-reader", "Group", "system:serviceaccounts"),
        )
        .await;
    let of_pods = json!({"verb": "list", "resource": "pods", "namespace": "default"});
    let question = |id: &str| {
        json!({"user": ACCOUNT, "groups": ["system:serviceaccounts"], "extra": {CREDENTIAL_ID: [id]},
            "resourceAttributes": of_pods})
    };
    assert_eq!(bench.code(POD, PODS).await, 200);
    let webhook = bench.server.webhook();
    let by_credential = Denial {
        credential_id: "JTI=1".to_owned(),
        ..Denial::default()
    };
    webhook.configure(vec![by_credential]);
    assert_eq!(bench.code(POD, PODS).await, 403);
    assert!(!bench.may(question("JTI=1")).await && bench.may(question("JTI=2")).await);
    let everything_else = Denial {
        verb: "list".to_owned(),
        resource: "pods".to_owned(),
        namespace: "default".to_owned(),
        ..Denial::default()
    };
    webhook.configure(vec![everything_else]);
    assert!(!bench.may(question("JTI=2")).await);
    assert_eq!(bench.code(ADMIN, PODS).await, 200);
    webhook.remove();
    assert_eq!(bench.code(POD, PODS).await, 200);
}

#[tokio::test(start_paused = true)]
async fn kubelets_may_what_the_node_authorizer_allows() {
    let bench = bench().await;
    let volumes = json!([
        {"name": "a", "configMap": {"name": "used"}},
        {"name": "b", "projected": {"sources": [{"secret": {"name": "used"}}]}},
    ]);
    let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n", "volumes": volumes}});
    bench.create(PODS, pod).await;
    let own_pods = json!({"rawSelector": "spec.nodeName=n"});
    let all_pods = json!({"rawSelector": ""});
    let rows = [
        (true, json!({"verb": "watch", "resource": "services"})),
        (false, json!({"verb": "create", "resource": "services"})),
        (
            true,
            json!({"verb": "watch", "resource": "pods", "fieldSelector": own_pods}),
        ),
        (
            false,
            json!({"verb": "watch", "resource": "pods", "fieldSelector": all_pods}),
        ),
        (
            true,
            json!({"verb": "get", "resource": "nodes", "name": "n"}),
        ),
        (
            false,
            json!({"verb": "get", "resource": "nodes", "name": "m"}),
        ),
        (
            true,
            json!({"verb": "watch", "resource": "configmaps", "namespace": "default", "name": "used"}),
        ),
        (
            false,
            json!({"verb": "watch", "resource": "configmaps", "namespace": "other", "name": "used"}),
        ),
        (
            false,
            json!({"verb": "watch", "resource": "configmaps", "namespace": "default"}),
        ),
        (
            true,
            json!({"verb": "get", "resource": "secrets", "namespace": "default", "name": "used"}),
        ),
        (
            false,
            json!({"verb": "get", "resource": "secrets", "namespace": "default", "name": "unused"}),
        ),
    ];
    for (expected, attributes) in &rows {
        let of = |user: &str| {
            let groups = json!(["system:nodes"]);
            json!({"user": user, "groups": groups, "resourceAttributes": attributes})
        };
        let allowed = bench.may(of("system:node:n")).await;
        assert_eq!(allowed, *expected, "{attributes}");
        assert!(!bench.may(of("ann")).await, "{attributes}");
    }
    let response = bench
        .send_as(ADMIN, "DELETE", &format!("{PODS}/p"), "")
        .await;
    assert_eq!(response.status(), StatusCode::OK);
    let (_, attributes) = &rows[6];
    let of_node = json!({"user": "system:node:n", "groups": ["system:nodes"], "resourceAttributes": attributes});
    assert!(!bench.may(of_node).await);
}
