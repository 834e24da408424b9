//! Which rights an impersonation needs, in which order, and the user as whom the request then acts.

use super::*;

fn headers(pairs: &[(&'static str, &[u8])]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(*name, HeaderValue::from_bytes(value).unwrap());
    }
    headers
}

fn parse(pairs: &[(&'static str, &[u8])]) -> ImpersonationRequest {
    ImpersonationRequest::from_headers(&headers(pairs))
        .unwrap()
        .unwrap()
}

/// Each part as `group/resource/subresource namespace name`.
fn parts(request: &ImpersonationRequest) -> Vec<String> {
    let line = |part: &Access| match part {
        Access::Resource(part) => {
            assert_eq!(
                (part.verb.as_str(), part.version.as_str()),
                ("impersonate", "v1")
            );
            format!(
                "{}/{}/{} {} {}",
                part.group, part.resource, part.subresource, part.namespace, part.name
            )
        }
        Access::Path { .. } => panic!("{part:?}"),
    };
    request.parts.iter().map(line).collect()
}

#[test]
fn each_part_of_the_user_is_a_right_of_its_own() {
    let request = parse(&[
        ("impersonate-extra-scopes", b"view"),
        ("impersonate-group", b"devs"),
        ("impersonate-extra-example.org%2fPath", b"a"),
        ("impersonate-extra-scopes", b""),
        ("impersonate-uid", b"7"),
        ("impersonate-group", b""),
        ("impersonate-user", b"alice"),
    ]);
    let expected = [
        "/users/  alice",
        "authentication.k8s.io/uids/  7",
        "/groups/  devs",
        "/groups/  ",
        "authentication.k8s.io/userextras/example.org/path  a",
        "authentication.k8s.io/userextras/scopes  view",
        "authentication.k8s.io/userextras/scopes  ",
    ];
    assert_eq!(parts(&request), expected);
    assert_eq!(request.user.name, "alice");
    assert_eq!(request.user.uid, "7");
    assert_eq!(request.user.groups, ["devs", "", "system:authenticated"]);
    assert_eq!(request.user.extra["scopes"], ["view", ""]);
}

#[test]
#[expect(clippy::type_complexity, reason = "a table of rows")]
fn groups_are_filled_in_as_the_api_server_does() {
    let rows: [(&[u8], &[&[u8]], &[&str]); 9] = [
        (b"alice", &[], &["system:authenticated"]),
        (b"alice", &[b"g"], &["g", "system:authenticated"]),
        (
            b"alice",
            &[b"system:authenticated"],
            &["system:authenticated"],
        ),
        (
            b"alice",
            &[b"system:unauthenticated"],
            &["system:unauthenticated"],
        ),
        (b"system:anonymous", &[], &["system:unauthenticated"]),
        (
            b"system:anonymous",
            &[b"system:authenticated"],
            &["system:authenticated", "system:unauthenticated"],
        ),
        (
            b"system:serviceaccount:ns:sa",
            &[],
            &[
                "system:serviceaccounts",
                "system:serviceaccounts:ns",
                "system:authenticated",
            ],
        ),
        (
            b"system:serviceaccount:ns:sa",
            &[b"g"],
            &["g", "system:authenticated"],
        ),
        (
            b"system:serviceaccount:Ns:sa",
            &[],
            &["system:authenticated"],
        ),
    ];
    for (name, groups, expected) in rows {
        let mut pairs = vec![("impersonate-user", name)];
        pairs.extend(groups.iter().map(|group| ("impersonate-group", *group)));
        assert_eq!(parse(&pairs).user.groups, expected, "{pairs:?}");
    }
}

#[test]
fn only_what_can_be_a_service_account_is_one() {
    let long = format!("system:serviceaccount:{}:sa", "a".repeat(64));
    let rows = [
        ("system:serviceaccount:ns:sa", "/serviceaccounts/ ns sa"),
        (
            "system:serviceaccount:ns:a.b-c",
            "/serviceaccounts/ ns a.b-c",
        ),
        ("system:serviceaccount:0-9:0", "/serviceaccounts/ 0-9 0"),
        (
            "system:serviceaccount:a.b:sa",
            "/users/  system:serviceaccount:a.b:sa",
        ),
        (
            "system:serviceaccount:ns:a..b",
            "/users/  system:serviceaccount:ns:a..b",
        ),
        (
            "system:serviceaccount:ns:-a",
            "/users/  system:serviceaccount:ns:-a",
        ),
        (
            "system:serviceaccount:-n:a",
            "/users/  system:serviceaccount:-n:a",
        ),
        (
            "system:serviceaccount:ns:",
            "/users/  system:serviceaccount:ns:",
        ),
        (
            "system:serviceaccount::sa",
            "/users/  system:serviceaccount::sa",
        ),
        (
            "system:serviceaccount:ns:sa:x",
            "/users/  system:serviceaccount:ns:sa:x",
        ),
        (
            "system:serviceaccount:ns:S",
            "/users/  system:serviceaccount:ns:S",
        ),
        (
            "system:serviceaccount:ns:*",
            "/users/  system:serviceaccount:ns:*",
        ),
        (
            "System:serviceaccount:ns:sa",
            "/users/  System:serviceaccount:ns:sa",
        ),
    ];
    for (name, expected) in rows {
        let name = HeaderValue::from_str(name).unwrap();
        let headers = HeaderMap::from_iter([(USER, name)]);
        let request = ImpersonationRequest::from_headers(&headers)
            .unwrap()
            .unwrap();
        assert_eq!(parts(&request), [expected]);
    }
    let headers = HeaderMap::from_iter([(USER, HeaderValue::from_str(&long).unwrap())]);
    let request = ImpersonationRequest::from_headers(&headers)
        .unwrap()
        .unwrap();
    assert_eq!(parts(&request), [format!("/users/  {long}")]);
}

#[test]
#[expect(clippy::type_complexity, reason = "a table of rows")]
fn impersonation_without_a_user_gets_the_api_servers_message() {
    let rows: [(&[(&'static str, &[u8])], &str); 6] = [
        (
            &[("impersonate-group", b"system:masters")],
            r#"Name:"", UID:"", Groups:[]string{"system:masters"}, Extra:map[string][]string(nil)"#,
        ),
        (
            &[
                ("impersonate-user", b""),
                ("impersonate-group", b"a"),
                ("impersonate-group", b"b\"\\\t"),
            ],
            r#"Name:"", UID:"", Groups:[]string{"a", "b\"\\\t"}, Extra:map[string][]string(nil)"#,
        ),
        (
            &[
                ("impersonate-user", b""),
                ("impersonate-user", b"bob"),
                ("impersonate-uid", b"7"),
            ],
            r#"Name:"", UID:"7", Groups:[]string(nil), Extra:map[string][]string(nil)"#,
        ),
        (
            &[
                ("impersonate-extra-b", b"2"),
                ("impersonate-extra-a", b"1"),
                ("impersonate-extra-a", b""),
            ],
            r#"Name:"", UID:"", Groups:[]string(nil), Extra:map[string][]string{"a":[]string{"1", ""}, "b":[]string{"2"}}"#,
        ),
        (
            &[("impersonate-group", b"")],
            r#"Name:"", UID:"", Groups:[]string{""}, Extra:map[string][]string(nil)"#,
        ),
        (
            &[("impersonate-extra-", b"")],
            r#"Name:"", UID:"", Groups:[]string(nil), Extra:map[string][]string{"":[]string{""}}"#,
        ),
    ];
    for (pairs, expected) in rows {
        let message =
            format!("requested &user.DefaultInfo{{{expected}}} without impersonating a user name");
        let refused = ImpersonationRequest::from_headers(&headers(pairs));
        assert_eq!(
            refused,
            Err(ImpersonationError::WithoutUser { message }),
            "{pairs:?}"
        );
    }
}

#[test]
fn other_headers_do_not_impersonate() {
    let rows: [&[(&'static str, &[u8])]; 5] = [
        &[],
        &[("impersonate-user", b""), ("impersonate-uid", b"")],
        &[
            ("impersonate_user", b"admin"),
            ("impersonate_group", b"system:masters"),
        ],
        &[
            ("impersonate-groups", b"system:masters"),
            ("impersonate-extra", b"a"),
        ],
        &[("x-remote-user", b"admin"), ("authorization", b"Bearer x")],
    ];
    for pairs in rows {
        assert_eq!(
            ImpersonationRequest::from_headers(&headers(pairs)),
            Ok(None),
            "{pairs:?}"
        );
    }
}

#[test]
fn impersonation_headers_that_are_not_text_or_too_many_are_refused() {
    for name in [
        "impersonate-user",
        "impersonate-uid",
        "impersonate-group",
        "impersonate-extra-a",
    ] {
        let pairs: [(&str, &[u8]); 2] = [("impersonate-user", b"a"), (name, b"\xff")];
        let pairs = if name == "impersonate-user" {
            &pairs[1..]
        } else {
            &pairs[..]
        };
        let refused = ImpersonationRequest::from_headers(&headers(pairs));
        assert_eq!(refused, Err(ImpersonationError::NotText), "{name}");
    }
    for name in ["impersonate-group", "impersonate-extra-a"] {
        for (count, is_fine) in [(PARTS_MAX - 1, true), (PARTS_MAX, false), (20_000, false)] {
            let mut pairs = vec![(name, b"g".as_slice()); count];
            pairs.push(("impersonate-user", b"a"));
            let request = ImpersonationRequest::from_headers(&headers(&pairs));
            assert_eq!(request.is_ok(), is_fine, "{name} {count}");
        }
    }
}
