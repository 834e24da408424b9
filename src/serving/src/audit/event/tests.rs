//! Tests that event lines have kube-apiserver's fields in its order, and that client input cannot break a line.

use std::collections::BTreeMap;

use super::*;

fn timestamp(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn line(event: &AuditEvent<'_>) -> String {
    String::from_utf8(event.to_line()).unwrap()
}

#[test]
fn an_event_has_the_api_servers_fields_in_its_order() {
    let user = User {
        name: "ann".to_owned(),
        uid: "u-1".to_owned(),
        groups: vec!["dev".to_owned(), "system:authenticated".to_owned()],
        extra: BTreeMap::from([("example.org/scopes".to_owned(), vec!["a".to_owned()])]),
    };
    let other = User {
        name: "bob".to_owned(),
        ..User::default()
    };
    let object = ObjectReference {
        resource: "deployments".to_owned(),
        namespace: "prod".to_owned(),
        name: "web".to_owned(),
        api_group: "apps".to_owned(),
        api_version: "v1".to_owned(),
        subresource: String::new(),
    };
    let details = r#"{"name":"web","group":"apps","kind":"deployments"}"#;
    let response = ResponseStatus {
        status: "Failure",
        message: "deployments.apps \"web\" is forbidden".to_owned(),
        reason: "Forbidden",
        details: Some(RawValue::from_string(details.to_owned()).unwrap()),
        code: 403,
    };
    let event = AuditEvent {
        audit_id: "7a4c",
        stage: AuditStage::ResponseComplete,
        uri: "/apis/apps/v1/namespaces/prod/deployments?fieldSelector=metadata.name%3Dweb",
        verb: "list",
        user: Some(&user),
        impersonated_user: Some(&other),
        source_ips: &["1.2.3.4".parse().unwrap(), "::1".parse().unwrap()],
        user_agent: "kubectl/v1.36.0",
        object: Some(&object),
        response: Some(&response),
        received_at: timestamp("2026-11-22T09:08:07.000001Z"),
        stage_at: timestamp("2026-11-22T09:08:07.5Z"),
        decision: Some(&AuditDecision::Forbid("no role".to_owned())),
    };
    let expected = concat!(
        r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"7a4c","stage":"ResponseComplete","#,
        r#""requestURI":"/apis/apps/v1/namespaces/prod/deployments?fieldSelector=metadata.name%3Dweb","verb":"list","#,
        r#""user":{"username":"ann","uid":"u-1","groups":["dev","system:authenticated"],"extra":{"example.org/scopes":["a"]}},"#,
        r#""impersonatedUser":{"username":"bob"},"sourceIPs":["1.2.3.4","::1"],"userAgent":"kubectl/v1.36.0","#,
        r#""objectRef":{"resource":"deployments","namespace":"prod","name":"web","apiGroup":"apps","apiVersion":"v1"},"#,
        r#""responseStatus":{"metadata":{},"status":"Failure","message":"deployments.apps \"web\" is forbidden","#,
        r#""reason":"Forbidden","details":{"name":"web","group":"apps","kind":"deployments"},"code":403},"#,
        r#""requestReceivedTimestamp":"2026-11-22T09:08:07.000001Z","stageTimestamp":"2026-11-22T09:08:07.500000Z","#,
        r#""annotations":{"authorization.k8s.io/decision":"forbid","authorization.k8s.io/reason":"no role"}}"#,
        "\n"
    );
    assert_eq!(line(&event), expected);
}

#[test]
fn what_is_not_known_is_left_out() {
    let at = timestamp("1970-01-01T00:00:00Z");
    let event = AuditEvent {
        audit_id: "1",
        stage: AuditStage::RequestReceived,
        uri: "/version",
        verb: "get",
        user: None,
        impersonated_user: None,
        source_ips: &[],
        user_agent: "",
        object: None,
        response: None,
        received_at: at,
        stage_at: at,
        decision: None,
    };
    let expected = concat!(
        r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"1","stage":"RequestReceived","#,
        r#""requestURI":"/version","verb":"get","user":{},"#,
        r#""requestReceivedTimestamp":"1970-01-01T00:00:00.000000Z","stageTimestamp":"1970-01-01T00:00:00.000000Z"}"#,
        "\n"
    );
    assert_eq!(line(&event), expected);
    let allowed = line(&AuditEvent {
        decision: Some(&AuditDecision::Allow(String::new())),
        response: Some(&ResponseStatus::of_code(200)),
        ..event
    });
    assert!(
        allowed.contains(r#""responseStatus":{"metadata":{},"code":200}"#),
        "{allowed}"
    );
    let annotations = r#""annotations":{"authorization.k8s.io/decision":"allow","authorization.k8s.io/reason":""}"#;
    assert!(allowed.contains(annotations), "{allowed}");
    let failed = line(&AuditEvent {
        decision: Some(&AuditDecision::Error),
        ..event
    });
    let annotations = r#""annotations":{"authorization.k8s.io/reason":"internal error"}"#;
    assert!(failed.contains(annotations), "{failed}");
}

#[test]
fn whatever_a_client_sends_stays_within_one_line_of_json() {
    let at = timestamp("1970-01-01T00:00:00Z");
    let hostile = "a\n{\"kind\":\"Event\"}\r\u{2028}\u{0}\u{1b}[31m\"\\";
    let user = User {
        name: hostile.to_owned(),
        groups: vec![hostile.to_owned()],
        extra: BTreeMap::from([(hostile.to_owned(), vec![hostile.to_owned()])]),
        ..User::default()
    };
    let text = line(&AuditEvent {
        audit_id: hostile,
        stage: AuditStage::RequestReceived,
        uri: hostile,
        verb: hostile,
        user: Some(&user),
        impersonated_user: None,
        source_ips: &[],
        user_agent: hostile,
        object: None,
        response: None,
        received_at: at,
        stage_at: at,
        decision: None,
    });
    assert_eq!(text.matches('\n').count(), 1);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    for field in ["auditID", "requestURI", "userAgent"] {
        assert_eq!(value[field], hostile, "{field}");
    }
    assert_eq!(value["user"]["username"], hostile);
}
