//! Lines as kube-apiserver writes them, and lines that are none.

use super::*;

/// A watch of a kubelet as kube-apiserver 1.36 writes it.
const STARTED: &str = r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"7f69","stage":"ResponseStarted","requestURI":"/api/v1/pods?watch=1\u0026resourceVersion=172\u0026allowWatchBookmarks=true\u0026fieldSelector=spec.nodeName%3Dn1","verb":"watch","user":{"username":"system:node:n1","groups":["system:nodes"],"extra":{"authentication.kubernetes.io/credential-id":["X509SHA256=ab"]}},"sourceIPs":["10.0.0.1"],"userAgent":"kubelet/v1.36.0","objectRef":{"resource":"pods","apiVersion":"v1"},"responseStatus":{"metadata":{},"code":200},"requestReceivedTimestamp":"2026-11-29T08:42:05.500000Z","stageTimestamp":"2026-11-29T08:42:05.750000Z"}"#;

fn read_of(line: &str) -> Option<AuditedRead> {
    entry(line.as_bytes()).unwrap().1
}

fn changed(from: &str, to: &str) -> Option<AuditedRead> {
    let line = STARTED.replace(from, to);
    assert_ne!(line, STARTED, "{from}");
    read_of(&line)
}

#[test]
fn a_watch_is_read_with_its_client_and_its_scope() {
    let (time, read) = entry(STARTED.as_bytes()).unwrap();
    let read = read.unwrap();
    assert_eq!(time, 1_795_941_725.75);
    assert_eq!((read.received_at, read.stage_at), (time - 0.25, time));
    assert_eq!((&*read.id, read.progress), ("7f69", ReadProgress::Started));
    assert_eq!(&*read.client.user, "system:node:*");
    assert_eq!(read.client.credential, CredentialKind::Certificate);
    assert_eq!((read.token, read.node.as_deref()), (None, Some("10.0.0.1")));
    assert_eq!(read.resource.to_string(), "pods");
    assert_eq!((read.is_watch, read.scope), (true, WatchScope::Node));
    assert!(!read.is_consistent && !read.is_forwarded && !read.is_refused && !read.is_in_pod);
}

#[test]
fn a_token_names_its_pod_and_its_node() {
    let extra = r#"JTI=1"],"authentication.kubernetes.io/node-name":["n7"],"authentication.kubernetes.io/pod-name":["p"#;
    let read = changed("X509SHA256=ab", extra).unwrap();
    assert_eq!(read.token.as_deref(), Some("JTI=1"));
    assert_eq!((read.node.as_deref(), read.is_in_pod), (Some("n7"), true));
}

#[test]
fn the_scope_comes_from_selector_and_reference() {
    let scope = |from, to| changed(from, to).unwrap().scope;
    let selector = "spec.nodeName%3Dn1";
    assert_eq!(scope(selector, "metadata.name%3Dx"), WatchScope::Object);
    assert_eq!(
        scope(selector, "status.phase%3DRunning"),
        WatchScope::Selected
    );
    let field = format!("\\u0026fieldSelector={selector}");
    assert_eq!(
        scope(&field, "\\u0026labelSelector=a"),
        WatchScope::Selected
    );
    assert_eq!(scope(&field, ""), WatchScope::Cluster);
    assert_eq!(
        scope(selector, "status.phase!%3DRunning,spec.nodeName%3D%3Dn1"),
        WatchScope::Node
    );
    let place = r#""resource":"pods","namespace":"a""#;
    let line = STARTED.replace(r#""resource":"pods""#, place);
    let line = line.replace("\\u0026fieldSelector=spec.nodeName%3Dn1", "");
    assert_eq!(read_of(&line).unwrap().scope, WatchScope::Namespace);
}

#[test]
fn reads_of_the_newest_state_are_told_apart() {
    let state = |uri: &str, is_watch| {
        let query = uri.split_once('?').map(|(_, query)| query);
        let options = ListOptions::from_query(&Query::parse(query))?;
        state(&options, is_watch).map(|state| state == Freshness::Latest)
    };
    for (uri, is_watch, expected) in [
        ("/api/v1/pods", false, Some(true)),
        ("/api/v1/pods?limit=500", false, Some(true)),
        ("/api/v1/pods?resourceVersion=0", false, Some(false)),
        ("/api/v1/pods?resourceVersion=7", false, Some(false)),
        ("/api/v1/pods?limit=x", false, None),
        ("/api/v1/pods?watch=1&resourceVersion=7", true, Some(false)),
        ("/api/v1/pods?watch=1", true, Some(true)),
        (
            "/api/v1/pods?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
            true,
            Some(true),
        ),
    ] {
        assert_eq!(state(uri, is_watch), expected, "{uri}");
    }
}

#[test]
fn only_lists_and_watches_are_reads() {
    assert_eq!(changed(r#""verb":"watch""#, r#""verb":"get""#), None);
    assert_eq!(changed(r#""verb":"watch""#, r#""verb":"list""#), None);
    assert_eq!(changed("ResponseStarted", "RequestReceived"), None);
    assert_eq!(
        changed(
            r#""resource":"pods""#,
            r#""resource":"pods","subresource":"log""#
        ),
        None
    );
    assert_eq!(changed(r#""resource":"pods""#, r#""resource":"<b>""#), None);
    let complete = changed("ResponseStarted", "ResponseComplete").unwrap();
    assert_eq!(complete.progress, ReadProgress::Complete);
    assert!(
        changed(r#""code":200"#, r#""code":403"#)
            .unwrap()
            .is_refused
    );
}

#[test]
fn what_is_no_entry_is_named() {
    let half = &STARTED[..STARTED.len() / 2];
    let nested = "[".repeat(100_000);
    let deep = STARTED.replace(
        "\"groups\":[\"system:nodes\"]",
        &format!("\"groups\":{nested}"),
    );
    for line in [half, "", "null", "[]", "{}", "\u{1}", &deep, &nested] {
        let error = entry(line.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with("not an audit event"), "{error}");
    }
    assert!(entry(b"\xff\x00{}").is_err());
    for time in ["yesterday", "", "2026-13-01T00:00:00Z"] {
        let line = STARTED.replace("2026-11-29T08:42:05.750000Z", time);
        let error = entry(line.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(&format!("{time:?}")), "{error}");
    }
}
