//! The rule for each kind of group, and how it reads APIServices.

use super::*;
use crate::config::ResourcePattern;

fn lists(allowed: &str) -> CacheLists {
    let patterns = allowed.split(',').map(|one| one.parse::<ResourcePattern>());
    CacheLists {
        allowed: patterns.map(Result::unwrap).collect(),
        denied: vec!["secrets".parse().unwrap()],
    }
}

fn known() -> ApiServiceKnowledge {
    let services = [
        ("v1.", r#"{"spec":{"version":"v1"}}"#),
        (
            "v1.apps",
            r#"{"spec":{"group":"apps","version":"v1","service":null}}"#,
        ),
        (
            "v1.example.com",
            r#"{"spec":{"group":"example.com","version":"v1"}}"#,
        ),
        (
            "v2.example.com",
            r#"{"spec":{"group":"example.com","version":"v2","service":{"namespace":"ns","name":"s"}}}"#,
        ),
        (
            "v1beta1.batch",
            r#"{"spec":{"group":"batch","version":"v1beta1","service":{}}}"#,
        ),
        ("v1.odd.example.com", r#"{"spec":5}"#),
    ];
    let services = services.map(|(name, json)| ApiService::read(name, json.as_bytes()));
    ApiServiceKnowledge::Known(services.into_iter().collect())
}

#[track_caller]
fn check(allowed: &str, known: &ApiServiceKnowledge, rows: &[(&str, &str, &str, &str)]) {
    for (group, version, resource, expected) in rows {
        let gvr = Gvr::new(group, version, resource);
        let ruling = match may_cache(&gvr, &lists(allowed), known) {
            Ok(()) => "cached".to_owned(),
            Err(reason) => format!("{reason:?}"),
        };
        assert_eq!(ruling, *expected, "{gvr}");
    }
}

#[test]
fn what_a_service_serves_is_forwarded_by_group_and_version() {
    check(
        "*",
        &known(),
        &[
            ("", "v1", "pods", "cached"),
            ("", "v1", "secrets", "Excluded"),
            ("", "v1", "events", "Events"),
            ("events.k8s.io", "v1", "events", "Events"),
            ("apps", "v1", "deployments", "cached"),
            ("batch", "v1", "jobs", "cached"),
            ("batch", "v1beta1", "jobs", "Service(\"/\")"),
            ("example.com", "v1", "widgets", "cached"),
            ("example.com", "v2", "widgets", "Service(\"ns/s\")"),
            ("example.com", "v3", "widgets", "Unlisted"),
            ("example", "v1", "widgets", "Unlisted"),
            ("odd.example.com", "v1", "widgets", "Service(\"unknown\")"),
        ],
    );
}

#[test]
fn only_a_pattern_that_names_the_group_asserts_that_a_service_does_not_filter() {
    for (allowed, expected) in [
        ("*", "Service(\"ns/s\")"),
        ("widgets.*", "Service(\"ns/s\")"),
        ("*.*.com", "Service(\"ns/s\")"),
        ("*.v2.*", "Service(\"ns/s\")"),
        ("pods", "Excluded"),
        ("*,*.example.com", "cached"),
        ("widgets.example.com", "cached"),
        ("widgets.v2.example.com", "cached"),
        ("*,widgets.v1.example.com", "Service(\"ns/s\")"),
        ("*,gizmos.example.com", "Service(\"ns/s\")"),
    ] {
        check(
            allowed,
            &known(),
            &[("example.com", "v2", "widgets", expected)],
        );
    }
}

#[test]
fn without_api_services_only_built_in_groups_and_named_resources_are_cached() {
    let unreadable = ApiServiceKnowledge::Unreadable {
        reason: "403".to_owned(),
        last: None,
    };
    for known in [ApiServiceKnowledge::Unread, unreadable] {
        check(
            "*,*.example.com",
            &known,
            &[
                ("", "v1", "pods", "cached"),
                ("storage.k8s.io", "v1", "csinodes", "cached"),
                ("example.com", "v2", "widgets", "cached"),
                ("metrics.k8s.io", "v1beta1", "pods", "Unknown"),
                ("projectcalico.org", "v3", "networkpolicies", "Unknown"),
                (
                    "snapshot.storage.k8s.io",
                    "v1",
                    "volumesnapshots",
                    "Unknown",
                ),
            ],
        );
        assert!(known.limitation().is_some());
    }
    assert_eq!(known().limitation(), None);
}

/// Anybody who may write APIServices can give a version of a built-in group to a service.
#[test]
fn what_a_service_served_last_is_forwarded_while_api_services_cannot_be_read() {
    let unreadable = ApiServiceKnowledge::Unreadable {
        reason: "403".to_owned(),
        last: known().last().cloned(),
    };
    check(
        "*",
        &unreadable,
        &[
            ("", "v1", "pods", "cached"),
            ("batch", "v1", "jobs", "cached"),
            ("batch", "v1beta1", "jobs", "Service(\"/\")"),
            ("batch", "v2", "jobs", "cached"),
            ("example.com", "v1", "widgets", "Unknown"),
            ("example.com", "v2", "widgets", "Service(\"ns/s\")"),
            ("example.com", "v3", "widgets", "Unknown"),
        ],
    );
    // A cache that there is already stays if kube-apiserver stored its objects.
    for (version, is_kept) in [("v1", true), ("v2", false), ("v3", false)] {
        let gvr = Gvr::new("example.com", version, "widgets");
        assert_eq!(may_keep(&gvr, &lists("*"), &unreadable), is_kept, "{gvr}");
        assert!(!may_keep(&gvr, &lists("pods"), &unreadable), "{gvr}");
    }
}

#[test]
fn a_group_moves_when_its_api_service_is_replaced_or_removed() {
    let ApiServiceKnowledge::Known(mut services) = known() else {
        unreachable!("it was made so");
    };
    let gvr = Gvr::new("example.com", "v1", "widgets");
    let read = |json: &str| ApiService::read("v1.example.com", json.as_bytes());
    let local = read(r#"{"spec":{"group":"example.com","version":"v1"}}"#);
    let moved = r#"{"spec":{"group":"example.com","version":"v1","service":{"namespace":"ns","name":"t"}}}"#;
    assert_eq!(services.origin(&gvr), GroupOrigin::Local);
    services.put(read(moved));
    assert_eq!(services.service(&gvr).as_deref(), Some("ns/t"));
    services.remove(&local);
    assert_eq!(services.origin(&gvr), GroupOrigin::Unlisted);
    let named: Vec<_> = services.aggregated().map(|(group, _)| group).collect();
    assert_eq!(
        named,
        ["batch/v1beta1", "example.com/v2", "odd.example.com/v1"]
    );
}
