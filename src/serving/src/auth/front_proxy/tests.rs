//! Which user the headers of a front proxy name.

use http::HeaderValue;

use super::*;

fn settings() -> FrontProxySettings {
    let names = |names: &[&'static str]| {
        names
            .iter()
            .map(|name| HeaderName::from_static(name))
            .collect()
    };
    FrontProxySettings {
        client_ca: "ca.pem".into(),
        allowed_names: Vec::new(),
        username_headers: names(&["x-remote-user", "x-user"]),
        uid_headers: names(&["x-remote-uid"]),
        group_headers: names(&["x-remote-group", "x-group"]),
        extra_header_prefixes: vec!["x-remote-extra-".to_owned(), "x-extra-".to_owned()],
    }
}

fn check(pairs: &[(&'static str, &[u8])], expected: Result<Option<User>, HeaderTextError>) {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(*name, HeaderValue::from_bytes(value).unwrap());
    }
    assert_eq!(user(&settings(), &headers), expected, "{pairs:?}");
}

fn named(name: &str, groups: &[&str]) -> User {
    let groups = groups.iter().map(|&group| group.to_owned()).collect();
    User {
        name: name.to_owned(),
        groups,
        ..User::default()
    }
}

#[test]
fn the_first_header_with_a_value_names_the_user() {
    let of = |name| Ok(Some(named(name, &["system:authenticated"])));
    check(&[], Ok(None));
    check(&[("x-remote-user", b"alice")], of("alice"));
    check(
        &[("x-user", b"bob"), ("x-remote-user", b"alice")],
        of("alice"),
    );
    check(&[("x-remote-user", b""), ("x-user", b"bob")], of("bob"));
    check(
        &[("x-remote-user", b"alice"), ("x-remote-user", b"bob")],
        of("alice"),
    );
    // Only the first value of a header is read, and it is empty.
    check(
        &[("x-remote-user", b""), ("x-remote-user", b"bob")],
        Ok(None),
    );
    check(&[("x-remote-user", b"")], Ok(None));
    check(&[("x-remote-group", b"admins")], Ok(None));
    for name in [
        "x_remote_user",
        "x-remote_user",
        "remote-user",
        "x-remote-user-",
    ] {
        check(&[(name, b"alice")], Ok(None));
    }
    check(&[("x-remote-user", b"\xff")], Err(HeaderTextError));
    let anonymous = named("system:anonymous", &[]);
    check(
        &[("x-remote-user", b"system:anonymous")],
        Ok(Some(anonymous)),
    );
}

#[test]
fn all_values_count_for_groups_and_extra() {
    let mut expected = named("alice", &["a", "b,c", "d", "system:authenticated"]);
    expected.uid = "7".to_owned();
    let values = |values: &[&str]| values.iter().map(|&value| value.to_owned()).collect();
    expected.extra = BTreeMap::from([
        ("scopes".to_owned(), values(&["x", "", "z"])),
        ("example.org/p".to_owned(), values(&["y"])),
        (String::new(), values(&["w"])),
    ]);
    check(
        &[
            ("x-extra-scopes", b"z"),
            ("x-group", b"d"),
            ("x-remote-user", b"alice"),
            ("x-remote-group", b"a"),
            ("x-remote-group", b""),
            ("x-remote-group", b"b,c"),
            ("x-remote-uid", b"7"),
            ("x-remote-extra-scopes", b"x"),
            ("x-remote-extra-scopes", b""),
            ("x-remote-extra-example.org%2fp", b"y"),
            ("x-remote-extra-", b"w"),
            ("x_remote_extra_scopes", b"no"),
            ("x-remote-groups", b"no"),
        ],
        Ok(Some(expected)),
    );
    for bad in ["x-remote-group", "x-remote-uid", "x-remote-extra-a"] {
        check(
            &[("x-remote-user", b"alice"), (bad, b"\xff")],
            Err(HeaderTextError),
        );
    }
    let key = "x-remote-extra-%ff";
    check(
        &[("x-remote-user", b"alice"), (key, b"a")],
        Err(HeaderTextError),
    );
}

#[test]
fn headers_of_front_proxies_are_known_by_their_configured_names() {
    let rows = [
        ("x-remote-user", true),
        ("x-user", true),
        ("x-remote-uid", true),
        ("x-group", true),
        ("x-remote-extra-a", true),
        ("x-extra-", true),
        ("x-remote-extra", false),
        ("x_remote_user", false),
        ("authorization", false),
    ];
    for (name, expected) in rows {
        assert_eq!(
            is_header(&settings(), &HeaderName::from_static(name)),
            expected,
            "{name}"
        );
    }
}
