//! Tests that policies decide as the API server does, and that mistakes in files are reported with their line.

use super::*;

fn user(name: &str, groups: &[&str]) -> User {
    User {
        name: name.to_owned(),
        groups: groups.iter().map(|&group| group.to_owned()).collect(),
        ..User::default()
    }
}

/// Parses `GROUP/RESOURCE[/SUBRESOURCE]`, followed by optional `@NAMESPACE` and `#NAME`.
fn object(text: &str) -> ObjectReference {
    let (text, name) = text.split_once('#').unwrap_or((text, ""));
    let (text, namespace) = text.split_once('@').unwrap_or((text, ""));
    let mut parts = text.splitn(3, '/').map(str::to_owned);
    let mut part = || parts.next().unwrap_or_default();
    ObjectReference {
        api_group: part(),
        resource: part(),
        subresource: part(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        ..ObjectReference::default()
    }
}

fn policy(rules: &str) -> AuditPolicy {
    let text = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n{rules}\n");
    AuditPolicy::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Whether a rule of level Metadata with these conditions matches a list of `target` by the user `ann`, a member of `dev`.
fn matches_object(conditions: &str, target: &str) -> bool {
    let policy = policy(&format!("- {{level: Metadata, {conditions}}}"));
    let verdict = policy.evaluate(AuditAttributes {
        user: Some(&user("ann", &["dev", "system:authenticated"])),
        verb: "list",
        target: AuditTarget::Object(&object(target)),
    });
    verdict.level == AuditLevel::Metadata
}

/// Whether such a rule matches a GET of a path that is not a resource's.
fn matches_path(conditions: &str, path: &str) -> bool {
    let policy = policy(&format!("- {{level: Metadata, {conditions}}}"));
    let verdict = policy.evaluate(AuditAttributes {
        user: Some(&user("ann", &["dev"])),
        verb: "get",
        target: AuditTarget::Path(path),
    });
    verdict.level == AuditLevel::Metadata
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of rows")]
fn conditions_match_as_the_api_servers() {
    let rows: &[(&str, &str, bool)] = &[
        ("users: [ann]", "/pods", true),
        ("users: [bob]", "/pods", false),
        ("userGroups: [ops, dev]", "/pods", true),
        ("userGroups: [ops]", "/pods", false),
        ("users: [ann], userGroups: [ops]", "/pods", false),
        ("verbs: [watch, list]", "/pods", true),
        ("verbs: [watch]", "/pods", false),
        ("verbs: [\"*\"]", "/pods", false),
        ("namespaces: [a, b]", "/pods@b", true),
        ("namespaces: [a]", "/pods@b", false),
        ("namespaces: [\"\"]", "/nodes", true),
        ("namespaces: [a]", "/pods", false),
        ("resources: [{group: \"\"}]", "/pods", true),
        ("resources: [{group: \"\"}]", "apps/deployments", false),
        ("resources: [{group: \"*\"}]", "apps/deployments", true),
        ("resources: [{resources: [pods]}]", "/pods", true),
        (
            "resources: [{group: apps, resources: [pods]}]",
            "/pods",
            false,
        ),
        ("resources: [{resources: [pods]}]", "/pods/log", false),
        ("resources: [{resources: [pods/log]}]", "/pods/log", true),
        ("resources: [{resources: [pods/log]}]", "/pods", false),
        ("resources: [{resources: [\"pods/*\"]}]", "/pods/log", true),
        ("resources: [{resources: [\"pods/*\"]}]", "/pods", true),
        ("resources: [{resources: [\"pods/*\"]}]", "/podsets", false),
        (
            "resources: [{resources: [\"*/status\"]}]",
            "/pods/status",
            true,
        ),
        ("resources: [{resources: [\"*/status\"]}]", "/pods", false),
        ("resources: [{resources: [\"*\"]}]", "/pods/log", true),
        (
            "resources: [{resources: [pods], resourceNames: [x, y]}]",
            "/pods#y",
            true,
        ),
        (
            "resources: [{resources: [pods], resourceNames: [x]}]",
            "/pods",
            false,
        ),
        (
            "resources: [{resources: [pods]}], namespaces: [a]",
            "/pods@b",
            false,
        ),
        ("nonResourceURLs: [\"*\"]", "/pods", false),
        ("namespaces: null, users: null", "/pods", true),
    ];
    for &(conditions, target, expected) in rows {
        assert_eq!(
            matches_object(conditions, target),
            expected,
            "{conditions}: {target}"
        );
    }
    let rows: &[(&str, &str, bool)] = &[
        ("nonResourceURLs: [\"*\"]", "/version", true),
        ("nonResourceURLs: [/version]", "/version", true),
        ("nonResourceURLs: [/version]", "/version/", false),
        ("nonResourceURLs: [/healthz*]", "/healthz/ping", true),
        ("nonResourceURLs: [/healthz*]", "/livez", false),
        ("resources: [{group: \"*\"}]", "/version", false),
        ("namespaces: [\"\"]", "/version", false),
        ("verbs: [get]", "/version", true),
    ];
    for &(conditions, path, expected) in rows {
        assert_eq!(
            matches_path(conditions, path),
            expected,
            "{conditions}: {path}"
        );
    }
}

#[test]
fn the_first_rule_that_matches_decides() {
    let policy = policy(
        "- {level: None, users: [ann]}\n- {level: Metadata, verbs: [list]}\n- {level: None}\n- {level: Metadata}",
    );
    let level = |name: &str, verb| {
        let user = user(name, &[]);
        let target = object("/pods");
        let target = AuditTarget::Object(&target);
        let user = Some(&user);
        policy
            .evaluate(AuditAttributes { user, verb, target })
            .level
    };
    assert_eq!(level("ann", "list"), AuditLevel::None);
    assert_eq!(level("bob", "list"), AuditLevel::Metadata);
    assert_eq!(level("bob", "watch"), AuditLevel::None);
}

#[test]
fn what_no_rule_matches_is_not_recorded() {
    assert!(!matches_object("users: [nobody]", "/pods"));
}

#[test]
fn rules_for_users_do_not_match_requests_without_one() {
    let evaluate = |rule: &str| {
        let attributes = AuditAttributes {
            user: None,
            verb: "list",
            target: AuditTarget::Path("/version"),
        };
        policy(rule).evaluate(attributes).level
    };
    assert_eq!(
        evaluate("- {level: Metadata, users: [\"\"]}"),
        AuditLevel::None
    );
    assert_eq!(
        evaluate("- {level: Metadata, userGroups: [\"\"]}"),
        AuditLevel::None
    );
    assert_eq!(evaluate("- {level: Metadata}"), AuditLevel::Metadata);
}

#[test]
fn stages_are_omitted_by_the_policy_and_by_the_rule() {
    let policy = AuditPolicy::parse(
        "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n\
         - {level: Metadata, verbs: [list], omitStages: [Panic]}\n- {level: Metadata}\n",
    );
    let policy = policy.unwrap();
    let omitted = |verb| {
        let target = AuditTarget::Path("/");
        let user = None;
        let verdict = policy.evaluate(AuditAttributes { user, verb, target });
        AuditStage::ALL.map(|stage| verdict.omitted.contains(stage))
    };
    assert_eq!(omitted("list"), [true, false, false, true]);
    assert_eq!(omitted("watch"), [true, false, false, false]);
}

#[test]
fn levels_beyond_metadata_are_known_as_such() {
    assert!(!policy("- {level: Metadata}\n- {level: None}").exceeds_metadata());
    assert!(policy("- {level: Metadata}\n- {level: Request}").exceeds_metadata());
    assert!(policy("- {level: RequestResponse}").exceeds_metadata());
}

#[test]
fn a_policy_of_the_api_server_is_read_whole() {
    let policy = AuditPolicy::parse(include_str!("tests/policy.yaml"));
    let policy = policy.unwrap();
    assert_eq!(policy.rules.len(), 8);
    let json = r#"{"apiVersion":"audit.k8s.io/v1","kind":"Policy","rules":[{"level":"Metadata"}]}"#;
    assert_eq!(AuditPolicy::parse(json).unwrap().rules.len(), 1);
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of rows")]
fn mistakes_are_told_with_their_line() {
    let head = "apiVersion: audit.k8s.io/v1\nkind: Policy\n";
    let rows: &[(&str, u64, &str)] = &[
        ("", 1, ""),
        ("a: [", 1, ""),
        ("kind: Policy\nrules: []", 1, "no apiVersion"),
        (
            "apiVersion: audit.k8s.io/v1beta1\nkind: Policy\nrules: [{level: None}]",
            1,
            "write apiVersion",
        ),
        (
            "apiVersion: audit.k8s.io/v1\nkind: Pod\nrules: [{level: None}]",
            2,
            "write apiVersion",
        ),
        ("HEAD", 1, "without rules"),
        ("HEADrules:\n", 1, "without rules"),
        (
            "HEADrules:\n- level: None\n- users: [a]\n",
            5,
            "without a level",
        ),
        ("HEADrules:\n- level: metadata\n", 4, "unknown level"),
        (
            "HEADrules:\n- level: None\n  user: [a]\n",
            5,
            "unknown field",
        ),
        ("HEADrules:\n- level: None\n  users: {a: b}\n", 5, ""),
        (
            "HEADrules:\n- level: None\n  omitStages:\n  - Panic\n  - Done\n",
            7,
            "unknown stage",
        ),
        (
            "HEADomitStages: [RequestRecieved]\nrules: [{level: None}]",
            3,
            "unknown stage",
        ),
        (
            "HEADrules:\n- level: None\n  nonResourceURLs: [version]\n",
            5,
            "must begin with",
        ),
        (
            "HEADrules:\n- level: None\n  nonResourceURLs:\n  - \"/a*b\"\n",
            6,
            "final character",
        ),
        (
            "HEADrules:\n- level: None\n  nonResourceURLs: [\"\"]\n",
            5,
            "must begin with",
        ),
        (
            "HEADrules:\n- level: None\n  namespaces: [a]\n  nonResourceURLs: [/a]\n",
            6,
            "cannot apply to both",
        ),
        (
            "HEADrules:\n- level: None\n  resources:\n  - group: apps/v1\n",
            6,
            "API group",
        ),
        (
            "HEADrules:\n- level: None\n  resources:\n  - group: Apps\n",
            6,
            "API group",
        ),
        (
            "HEADrules:\n- level: None\n  resources:\n  - resourceNames: [a]\n",
            6,
            "at least one resource",
        ),
    ];
    for &(text, line, message) in rows {
        let text = text.replace("HEAD", head);
        let error = AuditPolicy::parse(&text).expect_err(&text);
        assert_eq!(error.line, line, "{text}\n{error}");
        assert!(error.message.contains(message), "{text}\n{error}");
        assert!(!error.message.contains('\n'), "{error}");
    }
}
