//! Header by header: what goes through.

use super::*;

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
    clear_request(&mut cleared);
    assert_eq!(cleared, headers(after));
}

#[test]
fn headers_of_the_connection_stay_behind() {
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
fn nobody_vouches_for_users_by_x_remote_headers() {
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
fn all_else_goes_through_in_number_and_order() {
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
fn of_te_only_trailers_is_asked_again() {
    check_request(&[("te", "gzip, trailers")], &[("te", "trailers")]);
    check_request(&[("te", "gzip")], &[]);
}

#[track_caller]
fn check_upgrade(lines: &[(&str, &str)], expected: Option<&str>) {
    let asked = Upgrade::asked_by(&headers(lines));
    let protocol = asked.map(|upgrade| upgrade.protocol);
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
