//! Tests of plans.

use super::*;

const ADDRESS: &str = "10.96.0.77";

/// A cluster in which nothing is to be done.
fn complete() -> Setup {
    let conditions = json!({"ready": false, "serving": true, "terminating": true});
    Setup {
        namespace: "gateways".to_owned(),
        service: json!({"spec": {"clusterIP": ADDRESS, "ports": [{"name": "https", "port": 443}]}}),
        standby: json!({
            "addressType": "IPv4",
            "ports": [{"name": "https", "port": 6443, "protocol": "TCP"}],
            "endpoints": [
                {"addresses": ["192.0.2.1"], "conditions": conditions},
                {"addresses": ["192.0.2.2"], "conditions": conditions},
            ],
        }),
        settings: json!({"data": {"percent": "10", "ip": ADDRESS}}),
        servers: servers("IPv4", &["192.0.2.2", "192.0.2.1"]),
        ..Setup::default()
    }
}

fn servers(family: &str, addresses: &[&str]) -> Value {
    let endpoints = addresses.iter();
    let endpoints = endpoints.map(|one| json!({"addresses": [one], "conditions": {"ready": true}}));
    json!({
        "addressType": family,
        "ports": [{"name": "https", "port": 6443, "protocol": "TCP"}],
        "endpoints": endpoints.collect::<Vec<_>>(),
    })
}

/// The only patch of a plan without problems.
#[track_caller]
fn only_patch(setup: &Setup) -> (String, Value) {
    let plan = Plan::of(setup);
    assert_eq!(plan.problems, [""; 0]);
    let [Write::Patch(path, patch)] = plan.writes.as_slice() else {
        panic!("{plan:?}");
    };
    (path.clone(), patch.clone())
}

#[track_caller]
fn check_problem(setup: &Setup, expected: &str) {
    let plan = Plan::of(setup);
    let is_named = plan
        .problems
        .iter()
        .any(|problem| problem.contains(expected));
    assert!(is_named, "{plan:?}");
    let touches_standby = |write: &Write| match write {
        Write::Patch(path, _) | Write::Create(path, _) => path.contains("endpointslices"),
    };
    assert!(!plan.writes.iter().any(touches_standby), "{plan:?}");
}

#[test]
fn nothing_is_written_where_all_is_there() {
    assert_eq!(Plan::of(&complete()), Plan::default());
}

#[test]
fn the_stand_by_follows_the_ready_api_servers() {
    let mut setup = complete();
    setup.servers["endpoints"][1]["conditions"]["ready"] = false.into();
    setup.servers["ports"][0]["port"] = 443.into();
    let (path, patch) = only_patch(&setup);
    assert_eq!(
        path,
        "/apis/discovery.k8s.io/v1/namespaces/gateways/endpointslices/kube-fanout-api-direct"
    );
    assert_eq!(patch["endpoints"].as_array().map(Vec::len), Some(1));
    assert_eq!(patch["endpoints"][0]["addresses"], json!(["192.0.2.2"]));
    assert_eq!(patch["endpoints"][0]["conditions"]["ready"], false);
    assert_eq!(patch["ports"][0]["port"], 443);
}

#[test]
fn the_family_of_the_service_is_that_of_the_api_servers_and_of_the_stand_by() {
    let mut setup = complete();
    setup.service["spec"]["clusterIP"] = "2001:db8::77".into();
    check_problem(&setup, "no EndpointSlice kubernetes with IPv6 addresses");
    setup.servers = servers("IPv6", &["2001:db8::1"]);
    check_problem(&setup, "is of IPv4, the Service of IPv6");
}

#[test]
fn the_last_addresses_of_api_servers_are_kept_while_none_is_known() {
    let mut setup = complete();
    setup.servers["endpoints"] = json!([]);
    check_problem(&setup, "no API server is ready");
    setup.servers = Value::Null;
    check_problem(&setup, "no EndpointSlice kubernetes");
}

#[test]
fn what_is_not_set_up_is_named() {
    let mut setup = complete();
    setup.settings = Value::Null;
    check_problem(&setup, "ConfigMap kube-fanout-inject is missing");
    for address in [Value::Null, "".into(), "None".into()] {
        setup.service["spec"]["clusterIP"] = address;
        check_problem(&setup, "Service kube-fanout-api is missing");
    }
}

#[test]
fn pods_learn_the_services_address_and_the_percentage_is_left_alone() {
    for before in [Value::Null, "".into(), "10.96".into()] {
        let mut setup = complete();
        setup.settings["data"]["ip"] = before;
        let (path, patch) = only_patch(&setup);
        assert_eq!(
            path,
            "/api/v1/namespaces/gateways/configmaps/kube-fanout-inject"
        );
        assert_eq!(patch, json!({"data": {"ip": ADDRESS}}));
    }
}

#[test]
fn the_address_that_pods_have_is_never_overwritten() {
    let mut setup = complete();
    setup.settings["data"]["ip"] = "10.96.0.1".into();
    check_problem(&setup, "recreate the Service with clusterIP 10.96.0.1");
    assert_eq!(Plan::of(&setup).writes, []);
}

#[test]
fn a_stand_by_that_is_missing_is_created() {
    let mut setup = complete();
    setup.standby = Value::Null;
    let plan = Plan::of(&setup);
    assert_eq!(plan.problems, [""; 0]);
    let [Write::Create(path, slice)] = plan.writes.as_slice() else {
        panic!("{plan:?}");
    };
    assert_eq!(
        path,
        "/apis/discovery.k8s.io/v1/namespaces/gateways/endpointslices"
    );
    setup.standby = slice.clone();
    assert_eq!(Plan::of(&setup), Plan::default());
}

#[test]
fn what_is_not_known_of_bundles_stays_as_it_was_and_hides_nothing() {
    let mut setup = complete();
    setup.settings["data"] = json!({BUNDLE: "new", "ip": ADDRESS, "namespaces": "a"});
    setup.failures = vec!["no answer".to_owned()];
    setup.standby["endpoints"] = json!([]);
    for copies in [
        None,
        Some(
            [
                ("a".to_owned(), BundleCopy::Unknown),
                ("b".to_owned(), BundleCopy::Unknown),
            ]
            .into(),
        ),
    ] {
        setup.copies = copies;
        let plan = Plan::of(&setup);
        assert_eq!(plan.problems, ["no answer"]);
        assert!(
            matches!(plan.writes.as_slice(), [Write::Patch(path, _)] if path.contains("direct")),
            "{plan:?}"
        );
    }
}

#[test]
fn a_namespace_is_named_when_it_has_the_bundle_and_not_before() {
    let mut setup = complete();
    setup.settings["data"][BUNDLE] = "new".into();
    let copies = [
        ("a", BundleCopy::Equal),
        ("b", BundleCopy::Different),
        ("c", BundleCopy::Absent),
    ];
    setup.copies = Some(copies.map(|(name, copy)| (name.to_owned(), copy)).into());
    let plan = Plan::of(&setup);
    assert_eq!(plan.problems, [""; 0]);
    let [
        Write::Patch(b, old),
        Write::Create(c, new),
        Write::Patch(_, names),
    ] = plan.writes.as_slice()
    else {
        panic!("{plan:?}");
    };
    assert_eq!(b, "/api/v1/namespaces/b/configmaps/kube-fanout-inject");
    assert_eq!(*old, json!({"data": {BUNDLE: "new"}}));
    assert_eq!(c, "/api/v1/namespaces/c/configmaps");
    assert_eq!(new["data"], old["data"]);
    assert_eq!(*names, json!({"data": {"namespaces": "a"}}));
}

#[test]
fn without_a_bundle_no_namespace_is_named() {
    let mut setup = complete();
    setup.settings["data"]["namespaces"] = "a".into();
    let (_, patch) = only_patch(&setup);
    assert_eq!(patch, json!({"data": {"namespaces": null}}));
}
