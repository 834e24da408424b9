//! Which headers are forwarded.

use super::*;
use crate::auth::impersonation::impersonates;

fn headers(lines: &[(&str, &str)]) -> HeaderMap {
    lines
        .iter()
        .map(|(name, value)| {
            let name: HeaderName = name.parse().unwrap();
            (name, HeaderValue::from_str(value).unwrap())
        })
        .collect()
}

#[track_caller]
fn check_request(before: &[(&str, &str)], after: &[(&str, &str)]) {
    let mut cleared = headers(before);
    clear_request(&mut cleared, &ProxyHeaders::default());
    assert_eq!(cleared, headers(after));
}

#[test]
fn connection_headers_are_not_forwarded() {
    check_request(
        &[
            ("Connection", "close, X-Hop"),
            ("Connection", "keep-alive"),
            ("X-Hop", "1"),
            ("Keep-Alive", "timeout=5"),
            ("Proxy-Connection", "keep-alive"),
            ("Proxy-Authorization", "Basic x"),
            ("Transfer-Encoding", "chunked"),
            ("Upgrade", "h2c"),
            ("Expect", "100-continue"),
            ("Accept", "application/json"),
        ],
        &[("accept", "application/json")],
    );
}

#[test]
fn x_remote_headers_of_clients_are_removed() {
    check_request(
        &[
            ("X-Remote-User", "root"),
            ("X-REMOTE-GROUP", "system:masters"),
            ("x-remote-extra-scopes", "a"),
            ("x-remotely", "fine"),
        ],
        &[("x-remotely", "fine")],
    );
}

#[test]
fn all_other_headers_pass_in_number_and_order() {
    let lines = [
        ("authorization", "Bearer a"),
        ("audit-id", "42"),
        ("trailer", "x-sum"),
        ("content-length", "3"),
        ("accept-encoding", "gzip"),
        ("impersonate-group", "a"),
        ("impersonate-group", "b"),
    ];
    check_request(&lines, &lines);
}

#[test]
fn renamed_front_proxy_headers_are_not_forwarded() {
    let proxy = ProxyHeaders {
        names: vec![
            HeaderName::from_static("x-who"),
            HeaderName::from_static("x-groups"),
        ],
        prefixes: vec!["x-more-".to_owned(), String::new()],
    };
    let mut cleared = headers(&[
        ("X-Who", "root"),
        ("X-Groups", "system:masters"),
        ("X-More-Scopes", "a"),
        ("X-Remote-User", "root"),
        // The API server treats underscores and hyphens as different, and so does the gateway.
        ("X_Remote_User", "root"),
        ("Impersonate_User", "root"),
        ("x-more", "fine"),
    ]);
    clear_request(&mut cleared, &proxy);
    let expected = [
        ("x_remote_user", "root"),
        ("impersonate_user", "root"),
        ("x-more", "fine"),
    ];
    assert_eq!(cleared, headers(&expected));
    assert!(!impersonates(&cleared));
}

#[test]
fn the_connection_header_cannot_remove_identity_headers() {
    let identities = [
        ("authorization", "Bearer a"),
        ("impersonate-user", "jane"),
        ("impersonate-group", "a"),
        ("impersonate-uid", "7"),
        ("impersonate-extra-scopes", "x"),
        (
            "sec-websocket-protocol",
            "base64url.bearer.authorization.k8s.io.YQ, v4.channel.k8s.io",
        ),
        ("x-forwarded-for", "192.0.2.1"),
        ("x-forwarded-host", "a"),
        ("cookie", "a=b"),
    ];
    for (name, _) in identities {
        for list in [name.to_owned(), format!("close, {}", name.to_uppercase())] {
            let sent: Vec<_> = identities
                .into_iter()
                .chain([("connection", &*list)])
                .collect();
            check_request(&sent, &identities);
        }
    }
}

#[test]
fn impersonation_headers_replace_those_of_the_client() {
    let user = User {
        name: "jane".to_owned(),
        uid: "7".to_owned(),
        groups: vec!["a".to_owned(), "b".to_owned()],
        extra: [("scopes".to_owned(), vec!["x".to_owned(), "y".to_owned()])].into(),
    };
    let sent = [
        ("authorization", "Bearer a"),
        ("impersonate-user", "root"),
        ("impersonate-group", "system:masters"),
        ("impersonate-uid", "0"),
        ("impersonate-extra-other", "z"),
        ("impersonate-something-new", "z"),
        ("sec-websocket-protocol", "v4.channel.k8s.io"),
        (
            "sec-websocket-protocol",
            "base64url.bearer.authorization.k8s.io.YQ",
        ),
        ("accept", "*/*"),
    ];
    let mut acting = headers(&sent);
    impersonate(&mut acting, &Impersonator::default(), &user).unwrap();
    let expected = [
        ("sec-websocket-protocol", "v4.channel.k8s.io"),
        ("accept", "*/*"),
        ("impersonate-user", "jane"),
        ("impersonate-uid", "7"),
        ("impersonate-group", "a"),
        ("impersonate-group", "b"),
        ("impersonate-extra-scopes", "x"),
        ("impersonate-extra-scopes", "y"),
    ];
    assert_eq!(acting, headers(&expected));
    for odd in [" root", "root\t", "ro\not", "ro\0ot", ""] {
        let user = User {
            name: odd.to_owned(),
            ..User::default()
        };
        let mut acting = headers(&sent);
        assert!(
            impersonate(&mut acting, &Impersonator::default(), &user).is_err(),
            "{odd:?}"
        );
    }
}

#[test]
fn only_trailers_remain_of_te() {
    check_request(&[("te", "gzip, trailers")], &[("te", "trailers")]);
    check_request(&[("te", "gzip")], &[]);
}

#[track_caller]
fn check_upgrade(lines: &[(&str, &str)], expected: Option<&str>) {
    let upgrade = Upgrade::requested_by(&headers(lines));
    let protocol = upgrade.map(|upgrade| upgrade.protocol);
    assert_eq!(
        protocol.as_ref().map(|value| value.to_str().unwrap()),
        expected
    );
}

#[test]
fn an_upgrade_needs_both_headers_and_a_protocol_of_its_own() {
    check_upgrade(
        &[
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "SPDY/3.1"),
        ],
        Some("SPDY/3.1"),
    );
    check_upgrade(&[("upgrade", "websocket")], None);
    check_upgrade(&[("connection", "upgrade")], None);
    check_upgrade(&[("connection", "upgrade"), ("upgrade", "H2C")], None);
}

#[test]
fn any_impersonation_header_counts() {
    assert!(impersonates(&headers(&[("Impersonate-Extra-Scopes", "x")])));
    assert!(!impersonates(&headers(&[("x-impersonate-user", "x")])));
}
