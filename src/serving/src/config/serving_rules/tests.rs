//! Tests of serving rules: what they mean, and what is refused.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use super::*;
use crate::resource::Gvr;

fn rules(text: &str) -> ServingRules {
    text.parse()
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refusal(text: &str) -> String {
    text.parse::<ServingRules>().unwrap_err().to_string()
}

/// Asks as one client.
struct Client<'a> {
    user: KnownUser<'a>,
    agent: &'a str,
    resource: Gvr,
    last: u8,
}

impl Client<'_> {
    fn ask(&self, rules: &ServingRules) -> Answerer {
        rules.answerer(&ReadSubject {
            user: self.user,
            agent: self.agent,
            resource: &self.resource,
            address: IpAddr::V4(Ipv4Addr::new(10, 0, 0, self.last)),
        })
    }
}

fn client(user: KnownUser<'_>) -> Client<'_> {
    Client {
        user,
        agent: "kubelet/v1.36.2",
        resource: Gvr::new("", "v1", "pods"),
        last: 1,
    }
}

fn user(name: &str) -> KnownUser<'_> {
    KnownUser::User { name, groups: &[] }
}

const SAMPLE: &str = r#"
mode: rules
switchOver: 20s
rules:
  - {name: nodes, users: ["system:node:*"], percent: 100}
  - {name: argo, agents: ["argocd-*"], resources: ["*.apps"], percent: 0}
  - {groups: ["system:masters", "dev-*"], percent: 0}
"#;

#[test]
fn the_first_rule_that_matches_decides() {
    let rules = rules(SAMPLE);
    assert_eq!(rules.switch_over(), Duration::from_secs(20));
    assert_eq!(rules.names(), ["nodes", "argo", "3"]);
    let groups = ["dev-a".to_owned()];
    let member = KnownUser::User {
        name: "jane",
        groups: &groups,
    };
    assert_eq!(
        client(user("system:node:n1")).ask(&rules),
        Answerer::Memory(Some(0))
    );
    assert_eq!(client(user("node:n1")).ask(&rules), Answerer::Memory(None));
    assert_eq!(client(member).ask(&rules), Answerer::Upstream(2));
    assert_eq!(
        client(KnownUser::Nobody).ask(&rules),
        Answerer::Memory(None)
    );
    let argo = Client {
        agent: "argocd-application-controller/v3",
        resource: Gvr::new("apps", "v1", "deployments"),
        ..client(user("x"))
    };
    assert_eq!(argo.ask(&rules), Answerer::Upstream(1));
    let pods = Client {
        resource: Gvr::new("", "v1", "pods"),
        ..argo
    };
    assert_eq!(pods.ask(&rules), Answerer::Memory(None));
}

#[test]
fn the_user_is_asked_for_only_where_the_answer_depends_on_it() {
    let unknown = |text: &str| client(KnownUser::Unknown).ask(&rules(text));
    assert_eq!(unknown(SAMPLE), Answerer::User);
    assert_eq!(unknown("passthrough"), Answerer::Upstream(0));
    assert_eq!(unknown("rules"), Answerer::Memory(None));
    assert_eq!(unknown("rules: [{percent: 0}]"), Answerer::Upstream(0));
    assert_eq!(unknown("rules: [{percent: 50}]"), Answerer::User);
    assert_eq!(unknown("shadow"), Answerer::Shadow(0));
    assert_eq!(unknown("rules: [{mode: shadow}]"), Answerer::Shadow(0));
    assert_eq!(
        unknown("rules: [{mode: shadow, percent: 50}]"),
        Answerer::User
    );
    let none = "rules: [{mode: shadow, percent: 0}]";
    assert_eq!(unknown(none), Answerer::Upstream(0));
    let others =
        "rules: [{users: [a], agents: [argo], percent: 0}, {agents: [kubelet*], percent: 0}]";
    assert_eq!(unknown(others), Answerer::Upstream(1));
}

#[test]
fn a_percentage_draws_the_same_clients_each_time_and_only_more_when_it_grows() {
    let of = |percent: f64, by: &str, salt: &str| {
        rules(&format!(
            "rules: [{{percent: {percent}, by: {by}, salt: {salt}}}]"
        ))
    };
    let drawn = |rules: &ServingRules| -> Vec<u32> {
        let is_drawn = |node: &u32| {
            let name = format!("system:node:{node}");
            matches!(client(user(&name)).ask(rules), Answerer::Memory(_))
        };
        (0..2_000).filter(is_drawn).collect()
    };
    let one = drawn(&of(1.0, "user", "a"));
    assert!((5..=45).contains(&one.len()), "{}", one.len());
    let ten = drawn(&of(10.0, "user", "a"));
    assert!(one.iter().all(|node| ten.contains(node)));
    assert_ne!(ten, drawn(&of(10.0, "user", "b")));
    assert_eq!(ten, drawn(&of(10.0, "user", "a")));

    // One service account on many addresses.
    let of_address = |rules: &ServingRules| {
        let is_served = |last: &u8| {
            let client = Client {
                last: *last,
                ..client(user("system:serviceaccount:a:b"))
            };
            matches!(client.ask(rules), Answerer::Memory(_))
        };
        (0..=255).filter(is_served).count()
    };
    assert!((80..=176).contains(&of_address(&of(50.0, "client", "a"))));
    assert!([0, 256].contains(&of_address(&of(50.0, "user", "a"))));
}

#[test]
fn a_pattern_matches_what_it_says() {
    for (pattern, name, matches) in [
        ("*", "", true),
        ("a", "a", true),
        ("a", "ab", false),
        ("a*", "a", true),
        ("*b", "ab", true),
        ("a*a", "a", false),
        ("a*b*c", "a-b-b-c", true),
        ("a*bb*c", "abc", false),
        ("*ab*ab*", "xabab", true),
        ("*ab*ab*", "xab", false),
        ("**", "anything", true),
    ] {
        let rules = rules(&format!("rules: [{{agents: [\"{pattern}\"], percent: 0}}]"));
        let client = Client {
            agent: name,
            ..client(KnownUser::Nobody)
        };
        let is_matched = client.ask(&rules) == Answerer::Upstream(0);
        assert_eq!(is_matched, matches, "{pattern} {name}");
    }
}

#[test]
fn rules_are_written_as_they_are_read() {
    for text in [
        "rules",
        "passthrough",
        "shadow",
        "rules: [{users: [a], mode: shadow, percent: 5}, {mode: memory, percent: 0}]",
        SAMPLE,
        "rules: [{percent: 0.5, by: user, salt: x}]",
        "{\"mode\": \"passthrough\", \"switchOver\": \"1h\"}",
    ] {
        let read = rules(text);
        assert_eq!(rules(&read.to_string()), read, "{text}");
    }
    let tiny = rules("rules: [{percent: 0.00001}]").to_string();
    assert!(tiny.contains("0.0001"), "not rounded to nobody: {tiny}");
}

#[test]
fn what_cannot_be_meant_is_named() {
    for (text, reason) in [
        ("mode: shadowy", "shadowy"),
        ("modes: rules", "modes"),
        ("rules: [{percent: 101}]", "from 0 to 100"),
        ("rules: [{percent: -1}]", "from 0 to 100"),
        ("rules: [{percent: .nan}]", "from 0 to 100"),
        ("rules: [{percent: ten}]", "invalid floating point"),
        ("rules: [{users: []}]", "an empty list matches nothing"),
        ("rules: [{users: [\"\"]}]", "a pattern has 1 to 512 bytes"),
        ("rules: [{resources: [Pods]}]", "write resource"),
        ("rules: [{name: a b}]", "letters, digits"),
        (
            "rules: [{name: passthrough}]",
            "the name of what mode: passthrough counts",
        ),
        (
            "rules: [{name: shadow}]",
            "the name of what mode: shadow counts",
        ),
        ("rules: [{mode: passthrough}]", "passthrough"),
        ("rules: [{name: a, users: [x]}, {name: a}]", "has this name"),
        (
            "rules: [{percent: 1}, {users: [x]}]",
            "rule 2: never matches, because 1 matches",
        ),
        ("rules: [{agents: [\"*\"]}, {users: [x]}]", "never matches"),
        ("switchOver: 100ms", "from 1s to 1h"),
        ("switchOver: soon", "not a duration"),
        ("[", "rules"),
    ] {
        let refused = refusal(text);
        assert!(
            refused.contains(reason) || reason == "rules",
            "{text}: {refused}"
        );
        assert!(
            !refused.is_empty() && !refused.contains('\n'),
            "{text}: {refused}"
        );
    }
    assert!(refusal(&"x".repeat(RULES_LEN_MAX + 1)).contains("longer than"));
    let many: Vec<_> = (0..65).map(|at| format!("{{users: [u{at}]}}")).collect();
    assert!(refusal(&format!("rules: [{}]", many.join(","))).contains("more than 64 rules"));
    let long = format!("rules: [{{users: [{}]}}]", vec!["u"; 513].join(","));
    assert!(refusal(&long).contains("more than 512 patterns"));
    // Not every caller is in a group.
    rules("rules: [{groups: ['*']}, {percent: 0}]");
}
