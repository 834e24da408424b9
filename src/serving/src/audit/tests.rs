//! Tests of the whole room: from the policy through a request's stages to the log file.

use std::sync::Arc;

use serde_json::Value;

use super::event::{AuditDecision, ObjectReference, ResponseStatus};
use super::request::Request;
use super::*;
use crate::auth::user::User;
use crate::metrics::Metrics;

const POLICY: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- {level: None, verbs: [get]}\n- {level: Metadata}\n";

fn settings(policy: &Path, log: &Path) -> AuditSettings {
    AuditSettings {
        policy: policy.to_owned(),
        log: AuditOutput::File(log.to_owned()),
    }
}

struct Stage {
    folder: PathBuf,
    audit: Audit,
    metrics: AuditMetrics,
}

impl Stage {
    fn new(name: &str, policy: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("kube-fanout-trail-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("policy.yaml"), policy).unwrap();
        let files = settings(&folder.join("policy.yaml"), &folder.join("audit.log"));
        let metrics = Metrics::new().unwrap().audit();
        let audit = Audit::start(&files, metrics.clone()).unwrap();
        Self {
            folder,
            audit,
            metrics,
        }
    }

    /// Finishes the log and returns its events.
    async fn events(self) -> Vec<Value> {
        self.audit.finish(Duration::from_secs(60)).await;
        let text = std::fs::read_to_string(self.folder.join("audit.log")).unwrap();
        std::fs::remove_dir_all(&self.folder).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    fn begin(&self, verb: &str, user: Option<&Arc<User>>) -> Option<AuditTrail> {
        let request = Request {
            audit_id: format!("id-{verb}"),
            received_at: "2026-11-22T09:08:07Z".parse().unwrap(),
            uri: "/api/v1/pods".to_owned(),
            path: "/api/v1/pods".to_owned(),
            verb: verb.to_owned(),
            object: Some(ObjectReference {
                resource: "pods".to_owned(),
                api_version: "v1".to_owned(),
                ..ObjectReference::default()
            }),
            source_ips: vec!["127.0.0.1".parse().unwrap()],
            user_agent: String::new(),
        };
        self.audit.begin(request, user)
    }
}

fn ann() -> Arc<User> {
    Arc::new(User {
        name: "ann".to_owned(),
        ..User::default()
    })
}

/// Stage, code and decision of each event.
fn outline(events: &[Value]) -> Vec<String> {
    let line = |event: &Value| {
        let decision = &event["annotations"]["authorization.k8s.io/decision"];
        format!(
            "{} {} {}",
            event["stage"].as_str().unwrap(),
            event["responseStatus"]["code"],
            decision
        )
    };
    events.iter().map(line).collect()
}

#[tokio::test]
async fn a_list_has_two_stages_and_a_watch_three() {
    let stage = Stage::new("stages", POLICY);
    for verb in ["list", "watch"] {
        let trail = stage.begin(verb, Some(&ann())).unwrap();
        trail.decide(AuditDecision::Allow(String::new()));
        trail.respond(ResponseStatus::of_code(200));
        // Only the first response is recorded.
        trail.respond(ResponseStatus::of_code(504));
    }
    let metrics = stage.metrics.clone();
    let events = stage.events().await;
    assert_eq!(
        outline(&events),
        [
            "RequestReceived null null",
            "ResponseComplete 200 \"allow\"",
            "RequestReceived null null",
            "ResponseStarted 200 \"allow\"",
            "ResponseComplete 200 \"allow\"",
        ]
    );
    let received = "2026-11-22T09:08:07.000000Z";
    assert_eq!(events[0]["stageTimestamp"], received);
    assert!(
        events
            .iter()
            .all(|event| event["requestReceivedTimestamp"] == received)
    );
    assert!(
        events
            .iter()
            .all(|event| event["user"]["username"] == "ann")
    );
    assert_eq!(metrics.events.count(AuditEvents::Written), 5);
}

#[tokio::test]
async fn what_is_forwarded_or_not_wanted_leaves_no_event() {
    let stage = Stage::new("forwarded", POLICY);
    assert!(stage.begin("get", Some(&ann())).is_none());
    stage.begin("list", Some(&ann())).unwrap().forget();
    let answered = stage.begin("list", Some(&ann())).unwrap();
    answered.respond(ResponseStatus::of_code(200));
    // `forget` has no effect after a response was recorded.
    answered.forget();
    drop(answered);
    assert_eq!(stage.events().await.len(), 2);
}

#[tokio::test]
async fn a_client_that_leaves_before_the_answer_is_recorded() {
    let stage = Stage::new("early", POLICY);
    drop(stage.begin("watch", Some(&ann())));
    let events = stage.events().await;
    let stages = [
        "RequestReceived null null",
        "ResponseStarted 200 null",
        "ResponseComplete 200 null",
    ];
    assert_eq!(outline(&events), stages);
    assert_eq!(
        events[2]["responseStatus"]["message"],
        "Connection closed early"
    );
}

#[tokio::test]
async fn a_request_without_a_user_has_one_event_if_it_is_refused_for_that() {
    let stage = Stage::new("unauthorized", POLICY);
    stage
        .begin("list", None)
        .unwrap()
        .respond(ResponseStatus::of_code(401));
    // An authenticated user may get a 401, too; its request has all stages.
    stage
        .begin("list", Some(&ann()))
        .unwrap()
        .respond(ResponseStatus::of_code(401));
    stage
        .begin("list", None)
        .unwrap()
        .respond(ResponseStatus::of_code(500));
    let events = stage.events().await;
    assert_eq!(
        outline(&events),
        [
            "ResponseStarted 401 null",
            "RequestReceived null null",
            "ResponseComplete 401 null",
            "RequestReceived null null",
            "ResponseComplete 500 null",
        ]
    );
    assert_eq!(events[0]["user"], serde_json::json!({}));
}

#[tokio::test]
async fn an_answer_that_panics_is_recorded_as_such() {
    let stage = Stage::new("panic", POLICY);
    let trail = stage.begin("list", Some(&ann()));
    let panicked = std::thread::spawn(move || {
        let _trail = trail;
        panic!("on purpose");
    });
    assert!(panicked.join().is_err());
    let events = stage.events().await;
    assert_eq!(
        outline(&events),
        ["RequestReceived null null", "Panic 500 null"]
    );
}

#[tokio::test]
async fn impersonation_shows_both_users_once_it_is_allowed() {
    let stage = Stage::new("impersonation", POLICY);
    let trail = stage.begin("list", Some(&ann())).unwrap();
    trail.impersonate(&Arc::new(User {
        name: "bob".to_owned(),
        ..User::default()
    }));
    drop(trail);
    let events = stage.events().await;
    assert!(events[0].get("impersonatedUser").is_none());
    assert_eq!(events[1]["user"]["username"], "ann");
    assert_eq!(events[1]["impersonatedUser"]["username"], "bob");
}

#[tokio::test]
async fn stages_that_the_policy_omits_are_not_written() {
    let policy = POLICY.replace(
        "rules:",
        "omitStages: [RequestReceived, ResponseStarted]\nrules:",
    );
    let stage = Stage::new("omitted", &policy);
    drop(stage.begin("watch", Some(&ann())));
    assert_eq!(
        outline(&stage.events().await),
        ["ResponseComplete 200 null"]
    );
}

#[tokio::test]
async fn a_policy_that_cannot_be_read_again_leaves_the_old_one_in_force() {
    let stage = Stage::new("reload", POLICY);
    let path = stage.audit.policy_path().to_owned();
    std::fs::write(&path, "kind: Nonsense\n").unwrap();
    let error = stage.audit.reload().unwrap_err().to_string();
    assert!(
        error.starts_with(&format!("{}:1: ", path.display())),
        "{error}"
    );
    assert!(stage.begin("list", Some(&ann())).is_some());
    std::fs::write(&path, POLICY.replace("[get]", "[list]")).unwrap();
    stage.audit.reload().unwrap();
    assert!(stage.begin("list", Some(&ann())).is_none());
    assert!(stage.begin("get", Some(&ann())).is_some());
}

#[tokio::test]
async fn after_the_end_events_are_counted_as_lost() {
    let stage = Stage::new("end", POLICY);
    let trail = stage.begin("list", Some(&ann()));
    stage.audit.finish(Duration::from_secs(60)).await;
    drop(trail);
    assert_eq!(stage.metrics.events.count(AuditEvents::Dropped), 2);
    assert!(stage.events().await.is_empty());
}

#[test]
fn files_that_cannot_be_used_are_one_line_with_their_name() {
    let metrics = Metrics::new().unwrap().audit();
    let policy =
        std::env::temp_dir().join(format!("kube-fanout-policy-{}.yaml", std::process::id()));
    std::fs::write(&policy, POLICY).unwrap();
    let policy = policy.to_str().unwrap();
    for (policy, log, named) in [
        ("/nowhere/policy.yaml", "/", "/nowhere/policy.yaml"),
        (policy, "/proc/nowhere/audit.log", "/proc/nowhere/audit.log"),
        (policy, "/", "/"),
    ] {
        let files = settings(Path::new(policy), Path::new(log));
        let error = Audit::start(&files, metrics.clone()).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(named) && !text.contains('\n'), "{text}");
    }
    std::fs::remove_file(policy).unwrap();
}
