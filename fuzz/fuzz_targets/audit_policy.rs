//! An audit policy is either rejected at a line that the text has, or decides about requests; the same text always decides the same.
#![no_main]

use kube_fanout::audit::event::{AuditStage, ObjectReference};
use kube_fanout::audit::policy::{
    AuditAttributes, AuditLevel, AuditPolicy, AuditTarget, PolicyVerdict,
};
use kube_fanout::auth::user::User;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let policy = match AuditPolicy::parse(text) {
        Ok(policy) => policy,
        Err(error) => {
            assert!(!error.message.contains('\n'), "{error}");
            let lines = text.matches(['\n', '\r']).count() as u64 + 1;
            assert!((1..=lines).contains(&error.line), "{error}");
            return;
        }
    };
    let again = AuditPolicy::parse(text).expect("it was read before");
    assert_eq!(policy.exceeds_metadata(), again.exceeds_metadata());
    for verdict_of in requests() {
        let verdict = verdict_of(&policy);
        assert_eq!(verdict, verdict_of(&again));
        assert!(
            policy.exceeds_metadata()
                || matches!(verdict.level, AuditLevel::None | AuditLevel::Metadata)
        );
        let _ = AuditStage::ALL.map(|stage| verdict.omitted.contains(stage));
    }
});

type Evaluation = Box<dyn Fn(&AuditPolicy) -> PolicyVerdict>;

fn requests() -> Vec<Evaluation> {
    let ann = User {
        name: "ann".to_owned(),
        groups: vec!["dev".to_owned(), "system:authenticated".to_owned()],
        ..User::default()
    };
    let object = |resource: &str, subresource: &str, api_group: &str| ObjectReference {
        resource: resource.to_owned(),
        subresource: subresource.to_owned(),
        api_group: api_group.to_owned(),
        namespace: "a".to_owned(),
        name: "x".to_owned(),
        ..ObjectReference::default()
    };
    let targets = [
        Some(object("pods", "", "")),
        Some(object("pods", "log", "")),
        Some(object("deployments", "", "apps")),
        None,
    ];
    let mut all: Vec<Evaluation> = Vec::new();
    for target in targets {
        for user in [None, Some(ann.clone())] {
            let target = target.clone();
            all.push(Box::new(move |policy| {
                policy.evaluate(AuditAttributes {
                    user: user.as_ref(),
                    verb: "watch",
                    target: target
                        .as_ref()
                        .map_or(AuditTarget::Path("/version"), AuditTarget::Object),
                })
            }));
        }
    }
    all
}
