//! Lines as clouds write them, made by hand.

use super::super::audit_entry::{ReadProgress, WatchScope};
use super::*;

const EVENT: &str = r#"{"kind":"Event","auditID":"7f","stage":"ResponseStarted","requestURI":"/api/v1/pods?watch=1&resourceVersion=7","verb":"watch","user":{"username":"system:serviceaccount:a:b"},"userAgent":"c/v1","objectRef":{"resource":"pods"},"requestReceivedTimestamp":"2026-11-29T08:42:05Z","stageTimestamp":"2026-11-29T08:42:06Z"}"#;
const GOOGLE: &str = r#"{"protoPayload":{"@type":"type.googleapis.com/google.cloud.audit.AuditLog","methodName":"io.k8s.apps.v1.deployments.watch","resourceName":"apps/v1/namespaces/a/deployments","authenticationInfo":{"principalEmail":"system:serviceaccount:a:b"},"requestMetadata":{"callerIp":"10.0.0.1","callerSuppliedUserAgent":"c/v1"}},"insertId":"x","timestamp":"2026-11-29T08:42:06.5Z","operation":{"id":"7f","producer":"k8s.io","first":true}}"#;

fn read_of(line: &str) -> (f64, AuditedRead) {
    let (time, read) = cloud_entry(line.as_bytes()).unwrap();
    (time, read.unwrap())
}

#[test]
fn an_event_within_something_else_is_the_event() {
    let plain = read_of(EVENT);
    for line in [
        EVENT.to_owned(),
        format!("2026-11-29T08:42:06.123Z {EVENT}"),
        json!({"timestamp": 1, "message": EVENT}).to_string(),
        json!({"category": "kube-audit", "properties": {"log": format!("{EVENT}\n"), "pod": "p"}})
            .to_string(),
    ] {
        assert_eq!(read_of(&line), plain, "{line}");
    }
}

#[test]
fn googles_parts_of_an_event_are_a_read() {
    let (time, read) = read_of(GOOGLE);
    assert_eq!(time, 1_795_941_726.5);
    assert_eq!((&*read.id, read.progress), ("7f", ReadProgress::Started));
    assert_eq!(&*read.client.user, "system:serviceaccount:a:b");
    assert_eq!((&*read.client.agent, &*read.namespace), ("c", "a"));
    assert_eq!(read.resource.to_string(), "deployments.apps");
    assert_eq!((read.is_watch, read.scope), (true, WatchScope::Namespace));
    assert_eq!(read.node.as_deref(), Some("10.0.0.1"));
    assert!(!read.is_refused && read.token.is_none());

    let list = GOOGLE
        .replace("apps.v1.deployments.watch", "core.v1.namespaces.list")
        .replace("apps/v1/namespaces/a/deployments", "core/v1/namespaces")
        .replace(r#""first":true"#, r#""first":true,"last":true"#)
        .replace(
            r#""methodName""#,
            r#""status":{"code":7,"message":"no"},"methodName""#,
        );
    let (_, read) = read_of(&list);
    assert_eq!(read.progress, ReadProgress::Complete);
    assert_eq!(read.resource.to_string(), "namespaces");
    assert_eq!((read.is_watch, read.scope), (false, WatchScope::Cluster));
    assert!(read.is_refused);

    // Any other request is an entry, and no read.
    for (method, resource) in [("create", "a/b/c"), ("list", ""), ("watch", "////")] {
        let other = GOOGLE
            .replace("deployments.watch", method)
            .replace("apps/v1/namespaces/a/deployments", resource);
        assert_eq!(cloud_entry(other.as_bytes()).unwrap().1, None, "{other}");
    }
}

#[test]
fn what_no_cloud_writes_is_no_entry() {
    for line in [
        "2026-11-29T08:42:06.123Z I1129 started",
        "2026 {",
        r#"{"message":"hello"}"#,
        r#"{"properties":{"log":"I1129 started"}}"#,
        r#"{"properties":{"log":{}}}"#,
        r#"{"protoPayload":{},"timestamp":"2026-11-29T08:42:06.5Z","operation":{"id":"7f"}}"#,
        &format!("x {EVENT}"),
        &json!({"message": json!({"message": EVENT}).to_string()}).to_string(),
    ] {
        let error = cloud_entry(line.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with("not an audit event"), "{line}: {error}");
    }
    let timeless = GOOGLE.replace("2026-11-29T08:42:06.5Z", "today");
    let error = cloud_entry(timeless.as_bytes()).unwrap_err().to_string();
    assert!(error.contains("\"today\""), "{error}");
}
