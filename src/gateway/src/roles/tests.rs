//! What the feed reports, and when its policy may be used. Upstream is scripted; the clock is paused and moves only when all tasks wait.

use serde_json::{Value, json};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::*;
use crate::auth::access::{Access, ResourceAccess};
use crate::auth::user::User;
use crate::config::ReviewBudget;
use crate::upstream::driver::samples::scripted::{
    Asked, Feed, Script, bookmark, marker, push, sort_of,
};

const KINDS: [&str; 4] = [
    "clusterroles",
    "clusterrolebindings",
    "roles",
    "rolebindings",
];

/// A feed of roles, the requests that its upstream gets, and what it reports.
struct Stage {
    policy: Arc<PolicyStore>,
    run: Option<JoinHandle<()>>,
    requests: Receiver<Asked>,
    reports: Receiver<RoleScope>,
    report_to: Sender<RoleScope>,
}

/// The watches of one run of the feed, by kind.
struct Watches(Vec<(&'static str, Feed)>);

impl Watches {
    async fn push(&self, kind: &str, lines: &[String]) {
        let (_, feed) = self.0.iter().find(|(one, _)| *one == kind).unwrap();
        push(feed, lines).await;
    }
}

impl Stage {
    fn new() -> Self {
        let (report_to, reports) = channel(16);
        let (_, requests) = channel(1);
        Self {
            policy: Arc::default(),
            run: None,
            requests,
            reports,
            report_to,
        }
    }

    /// Starts a run of the feed instead of the previous one, which does not wait for its informers to end.
    async fn run(&mut self) {
        if let Some(run) = self.run.take() {
            run.abort();
            assert!(run.await.is_err_and(|end| end.is_cancelled()));
            assert!(!self.explains(), "nobody follows");
        }
        let (script, requests) = Script::new();
        self.requests = requests;
        let report_to = self.report_to.clone();
        let feed = RoleFeed {
            fetch: Arc::new(script),
            mode: AuthorizerMode::SelfCheck,
            stale_after: STALE_MIN,
            policy: Arc::clone(&self.policy),
            report: Arc::new(move |scope| report_to.try_send(scope).unwrap()),
        };
        self.run = Some(tokio::spawn(async move { feed.run().await }));
    }

    /// Accepts the watches of a run, without any event. In no fixed order.
    async fn accept(&mut self) -> Watches {
        let mut watches = Vec::new();
        while watches.len() < KINDS.len() {
            let request = self.requests.recv().await.unwrap();
            assert_eq!(sort_of(&request.path), "stream latest");
            watches.push((kind_of(&request), request.open()));
        }
        Watches(watches)
    }

    /// Starts a run whose initial lists have these objects.
    async fn listed(&mut self, objects: &[Value]) -> Watches {
        self.run().await;
        let watches = self.accept().await;
        for kind in KINDS {
            let of_kind = objects.iter().filter(|object| plural(object) == kind);
            let mut lines: Vec<String> = of_kind.map(|object| line("ADDED", object)).collect();
            lines.push(marker(100));
            watches.push(kind, &lines).await;
        }
        watches
    }

    /// The changes since the last call.
    fn reported(&mut self) -> Vec<RoleScope> {
        let reports = std::iter::from_fn(|| self.reports.try_recv().ok());
        reports.filter(|scope| *scope != RoleScope::Known).collect()
    }

    fn explains(&self) -> bool {
        let access = Access::Resource(ResourceAccess {
            verb: "list".to_owned(),
            resource: "pods".to_owned(),
            ..ResourceAccess::default()
        });
        let user = User {
            name: "ann".to_owned(),
            ..User::default()
        };
        self.policy.explains(&user, &access)
    }
}

fn kind_of(request: &Asked) -> &'static str {
    let path = request.path.split('?').next().unwrap();
    let kind = KINDS
        .into_iter()
        .find(|kind| path.ends_with(&format!("/{kind}")));
    kind.unwrap()
}

/// The list of a kind's [`objects`].
fn list_of(kind: &str) -> Value {
    let objects = objects();
    let object = objects.iter().find(|one| plural(one) == kind).unwrap();
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": format!("{}List", object["kind"].as_str().unwrap()),
        "metadata": {"resourceVersion": "102"},
        "items": [object],
    })
}

fn plural(object: &Value) -> String {
    format!("{}s", object["kind"].as_str().unwrap().to_lowercase())
}

fn line(event: &str, object: &Value) -> String {
    format!("{}\n", json!({"type": event, "object": object}))
}

/// A role and a binding of the cluster, and the same in a namespace. They let ann list pods.
fn objects() -> Vec<Value> {
    let rules = json!([{"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]}]);
    let subjects = json!([{"kind": "User", "name": "ann"}]);
    ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]
        .into_iter()
        .map(|kind| {
            let mut object = json!({
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": kind,
                "metadata": {"name": "reader", "uid": kind, "resourceVersion": "50"},
            });
            if !kind.starts_with("Cluster") {
                object["metadata"]["namespace"] = json!("a");
            }
            if kind.ends_with("Binding") {
                object["roleRef"] = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"});
                object["subjects"] = subjects.clone();
            } else {
                object["rules"] = rules.clone();
            }
            object
        })
        .collect()
}

/// The object with another label, and another version.
fn labelled(object: &Value, version: u64) -> Value {
    let mut object = object.clone();
    object["metadata"]["labels"] = json!({"version": version.to_string()});
    object["metadata"]["resourceVersion"] = json!(version.to_string());
    object
}

/// The object with other rules or subjects, and another version.
fn changed(object: &Value, version: u64) -> Value {
    let mut object = labelled(object, version);
    if object["rules"].is_array() {
        object["rules"][0]["resources"] = json!([format!("widgets{version}")]);
    } else {
        object["subjects"][0]["name"] = json!(format!("user{version}"));
    }
    object
}

fn scope_of(object: &Value) -> RoleScope {
    match object["metadata"]["namespace"].as_str() {
        None => RoleScope::Cluster,
        Some(namespace) => RoleScope::Namespace(namespace.to_owned()),
    }
}

#[tokio::test(start_paused = true)]
async fn labels_are_no_change_of_rights() {
    let mut stage = Stage::new();
    let watches = stage.listed(&objects()).await;
    assert!(stage.explains());
    for object in objects() {
        let edits = [line("MODIFIED", &labelled(&object, 101)), bookmark(102)];
        watches.push(&plural(&object), &edits).await;
    }
    assert_eq!(stage.reported(), []);
    // The same watches deliver changes, so the edits before were noticed too.
    for object in objects() {
        let change = line("MODIFIED", &changed(&object, 103));
        watches.push(&plural(&object), &[change]).await;
        assert_eq!(stage.reported(), [scope_of(&object)], "{object}");
    }
    assert!(!stage.explains());
}

#[tokio::test(start_paused = true)]
async fn what_comes_and_goes_is_reported_with_its_scope() {
    let mut stage = Stage::new();
    let watches = stage.listed(&[]).await;
    assert!(!stage.explains());
    for event in ["ADDED", "DELETED"] {
        for object in objects() {
            let version = if event == "ADDED" { 101 } else { 102 };
            let change = line(event, &labelled(&object, version));
            watches.push(&plural(&object), &[change]).await;
            assert_eq!(stage.reported(), [scope_of(&object)], "{event} {object}");
        }
        assert_eq!(stage.explains(), event == "ADDED");
    }
}

#[tokio::test(start_paused = true)]
async fn what_changed_while_nobody_followed_is_reported_once() {
    let mut stage = Stage::new();
    let _ended = stage.listed(&objects()).await;
    assert!(stage.explains());
    let relabelled: Vec<Value> = objects().iter().map(|one| labelled(one, 60)).collect();
    let watches = stage.listed(&relabelled).await;
    assert_eq!(stage.reported(), [], "only labels are new");
    assert!(stage.explains());
    // A change that is gone with the next list, like any other.
    let cluster = &objects()[0];
    let change = line("MODIFIED", &changed(cluster, 101));
    watches.push(&plural(cluster), &[change]).await;
    assert_eq!(stage.reported(), [RoleScope::Cluster]);
    stage.listed(&relabelled).await;
    assert_eq!(stage.reported(), [RoleScope::Cluster]);
    // Bindings are gone.
    stage.listed(&objects()[..1]).await;
    assert_eq!(stage.reported(), [RoleScope::Cluster]);
    assert!(!stage.explains());
}

#[tokio::test(start_paused = true)]
async fn an_earlier_run_changes_nothing_any_more() {
    let mut stage = Stage::new();
    let earlier = stage.listed(&objects()).await;
    stage.run().await;
    let watches = stage.accept().await;
    // The informers of the earlier run end only later.
    let binding = &objects()[1];
    let deletion = line("DELETED", &labelled(binding, 101));
    let (_, feed) = earlier
        .0
        .iter()
        .find(|(kind, _)| *kind == plural(binding))
        .unwrap();
    let _ = feed.try_send(Ok(deletion.into()));
    for object in objects() {
        assert!(!stage.explains(), "{object} is missing");
        let lines = [line("ADDED", &object), marker(100)];
        watches.push(&plural(&object), &lines).await;
    }
    assert!(stage.explains());
}

#[tokio::test(start_paused = true)]
async fn without_the_right_to_watch_one_kind_nothing_is_explained_and_changes_of_others_are_reported()
 {
    let mut stage = Stage::new();
    stage.run().await;
    let mut watches = Vec::new();
    let objects = objects();
    // Upstream refuses the roles of namespaces, each time.
    while watches.len() < KINDS.len() - 1 {
        let request = stage.requests.recv().await.unwrap();
        match kind_of(&request) {
            "roles" => request.refuse(403).await,
            kind => watches.push((kind, request.open())),
        }
    }
    let watches = Watches(watches);
    for object in objects.iter().filter(|one| plural(one) != "roles") {
        let lines = [line("ADDED", object), marker(100)];
        watches.push(&plural(object), &lines).await;
    }
    assert_eq!(stage.reported(), []);
    assert!(!stage.explains());
    let binding = &objects[1];
    let change = line("MODIFIED", &changed(binding, 101));
    watches.push(&plural(binding), &[change]).await;
    assert_eq!(stage.reported(), [RoleScope::Cluster]);
    assert!(!stage.explains());
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_explains_nothing_until_upstream_is_heard_again() {
    let mut stage = Stage::new();
    let watches = stage.listed(&objects()).await;
    for version in [101, 102] {
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(stage.explains());
        for kind in &KINDS[1..] {
            watches.push(kind, &[bookmark(version)]).await;
        }
    }
    tokio::time::sleep(Duration::from_secs(60) + CONTACT_PERIOD).await;
    assert!(!stage.explains(), "one kind is silent");
    // Upstream answers again, and the watches stay silent: lists prove what the feed has.
    let end = Instant::now() + STALE_MIN;
    let mut open = Vec::new();
    while !stage.explains() {
        assert!(Instant::now() < end, "lists prove nothing");
        let Ok(request) = timeout(CONTACT_PERIOD, stage.requests.recv()).await else {
            continue;
        };
        let request = request.unwrap();
        if sort_of(&request.path) == "list latest" {
            let list = list_of(kind_of(&request));
            request.whole(200, &list.to_string()).await;
        } else {
            open.push(request.open());
        }
    }
    assert_eq!(stage.reported(), []);
}

#[test]
fn roles_that_decide_do_so_for_the_grace() {
    let settings = |mode, minutes| GuardSettings {
        review_budget: ReviewBudget::Auto,
        mode,
        allow_ttl: Duration::ZERO,
        deny_ttl: Duration::ZERO,
        reauthorize_interval: Duration::ZERO,
        reauthorize_grace: Duration::from_secs(60_u64 * minutes),
    };
    for (mode, minutes, expected) in [
        (AuthorizerMode::Rbac, 5, 5),
        (AuthorizerMode::Rbac, 1, 3),
        (AuthorizerMode::SelfCheck, 5, 3),
        (AuthorizerMode::Review, 1, 3),
    ] {
        let after = stale_after(&settings(mode, minutes));
        assert_eq!(after, Duration::from_secs(60 * expected), "{mode:?}");
    }
}
