//! Users as impersonation headers.

use std::collections::BTreeMap;

use super::*;

fn user(name: &str, groups: &[&str]) -> User {
    User {
        name: name.to_owned(),
        groups: groups.iter().map(|&group| group.to_owned()).collect(),
        ..User::default()
    }
}

fn pairs(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    headers
        .iter()
        .map(|(name, value)| (name.to_string(), text(value)))
        .collect()
}

#[test]
fn groups_that_the_server_adds_are_not_named() {
    let rows: [(User, &[&str]); 5] = [
        (user("a", &["g", AUTHENTICATED]), &["g"]),
        (user("a", &[AUTHENTICATED]), &[]),
        (user("a", &[UNAUTHENTICATED]), &[UNAUTHENTICATED]),
        (
            user("a", &[UNAUTHENTICATED, AUTHENTICATED]),
            &[UNAUTHENTICATED, AUTHENTICATED],
        ),
        (User::anonymous(), &[]),
    ];
    for (user, expected) in rows {
        let headers = headers(&user).unwrap();
        let groups: Vec<_> = headers.get_all(GROUP).iter().collect();
        assert_eq!(groups, expected, "{user:?}");
    }
}

/// The API server adds groups to a service account that is impersonated without any. A certificate or a front proxy may name a service
/// account without these groups, which must not get them by being impersonated.
#[test]
fn service_accounts_and_nodes_without_groups_are_given_none() {
    let own = "system:serviceaccounts:a";
    let rows: [(User, &[&str]); 4] = [
        (
            user("system:serviceaccount:a:b", &[AUTHENTICATED]),
            &[AUTHENTICATED],
        ),
        (
            user("system:serviceaccount:a:b", &[own, AUTHENTICATED]),
            &[own],
        ),
        (user("system:serviceaccount:", &[AUTHENTICATED]), &[]),
        (user("system:node:n", &[AUTHENTICATED]), &[AUTHENTICATED]),
    ];
    for (user, expected) in rows {
        let headers = headers(&user).unwrap();
        let groups: Vec<_> = headers.get_all(GROUP).iter().collect();
        assert_eq!(groups, expected, "{user:?}");
    }
}

#[test]
fn all_of_a_user_travels() {
    let mut user = user("jürgen", &["a,b", "", "c"]);
    user.uid = "42".to_owned();
    user.extra = BTreeMap::from([
        (
            "example.org/Path%".to_owned(),
            vec!["x".to_owned(), "y".to_owned()],
        ),
        ("plain".to_owned(), vec![String::new()]),
    ]);
    let expected = [
        ("impersonate-user", "jürgen"),
        ("impersonate-uid", "42"),
        ("impersonate-group", "a,b"),
        ("impersonate-group", ""),
        ("impersonate-group", "c"),
        ("impersonate-extra-example.org%2f%50ath%25", "x"),
        ("impersonate-extra-example.org%2f%50ath%25", "y"),
        ("impersonate-extra-plain", ""),
    ];
    let expected: Vec<_> = expected
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
    assert_eq!(pairs(&headers(&user).unwrap()), expected);
}

#[test]
fn users_that_headers_cannot_express_are_not_impersonated() {
    for value in [
        " admin", "admin ", "\tadmin", "ad\nmin", "ad\rmin", "admin\0", "\x7f",
    ] {
        for (user, part) in [
            (user(value, &[]), "name"),
            (user("a", &["g", value]), "group"),
            (
                User {
                    uid: value.to_owned(),
                    ..user("a", &[])
                },
                "uid",
            ),
            (
                User {
                    extra: BTreeMap::from([("k".to_owned(), vec![value.to_owned()])]),
                    ..user("a", &[])
                },
                "extra value",
            ),
        ] {
            assert_eq!(headers(&user), Err(UnsendableUser { part }), "{value:?}");
        }
    }
    let nobody = headers(&user("", &["g"]));
    assert_eq!(nobody, Err(UnsendableUser { part: "name" }));
}

#[test]
fn more_headers_than_a_request_can_have_are_refused() {
    let groups = vec!["g".to_owned(); 1 << 17];
    let many = User {
        groups,
        ..user("a", &[])
    };
    let refused = headers(&many);
    // A `HeaderMap` bounds the number of names, not of values, so these headers may also be accepted here and rejected upstream.
    assert!(refused.is_ok() || refused == Err(UnsendableUser { part: "group" }));
    let extra = (0..1 << 16).map(|number| (format!("k{number}"), vec![String::new()]));
    let many = User {
        extra: extra.collect(),
        ..user("a", &[])
    };
    assert_eq!(
        headers(&many),
        Err(UnsendableUser {
            part: "extra value"
        })
    );
}

#[test]
fn only_impersonation_headers_are_copied() {
    let mut all = HeaderMap::new();
    for name in [
        "impersonate-user",
        "impersonate-group",
        "impersonate-uid",
        "impersonate-extra-a",
        "impersonate-new",
        "impersonate_user",
        "x-impersonate-user",
        "impersonate",
        "authorization",
    ] {
        all.append(name, HeaderValue::from_static("v"));
    }
    let names: Vec<_> = only(&all).keys().map(ToString::to_string).collect();
    let expected = [
        "impersonate-user",
        "impersonate-group",
        "impersonate-uid",
        "impersonate-extra-a",
        "impersonate-new",
    ];
    assert_eq!(names, expected);
}

#[test]
fn nodes_are_named_alone_where_upstream_adds_the_rest() {
    let certificate = BTreeMap::from([(CREDENTIAL_ID.to_owned(), vec!["X509SHA256=1".to_owned()])]);
    let node = User {
        extra: certificate,
        ..user("system:node:n1", &[NODES, AUTHENTICATED])
    };
    let impersonator = Impersonator::default();
    assert_eq!(impersonator.headers(&node), headers(&node));
    assert!(impersonator.set_node_form(NodeForm::Name));
    assert!(!impersonator.clone().set_node_form(NodeForm::Name));
    let name = ("impersonate-user".to_owned(), "system:node:n1".to_owned());
    assert_eq!(pairs(&impersonator.headers(&node).unwrap()), [name]);

    let scoped = BTreeMap::from([("scopes".to_owned(), vec!["view".to_owned()])]);
    for other in [
        user("system:node:n1", &[AUTHENTICATED]),
        user("system:node:n1", &[NODES, "system:masters"]),
        user("system:node:", &[NODES]),
        user("n1", &[NODES]),
        User {
            extra: scoped,
            ..node.clone()
        },
        User {
            uid: "1".to_owned(),
            ..node
        },
    ] {
        assert_eq!(impersonator.headers(&other), headers(&other), "{other:?}");
    }
}
