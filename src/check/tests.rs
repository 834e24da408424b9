//! Verdicts, one by one, and how they are written.

use std::time::Duration;

use super::certificates::{CertificateFacts, credentials_verdict, expiry_verdict, names_verdict};
use super::clock::skew_verdict;
use super::comparison::{
    InitialProgress, WatchedEvent, compared_verdict, freshness_verdict, lists_verdict,
};
use super::limits::{self, MemoryLimits};
use super::rights::{self, CacheRights, Right};
use super::versions::{
    ListHead, ServerVersion, consistency_verdict, flow_verdict, version_verdict,
};
use super::*;
use crate::config::{
    AuthMode, AuthSettings, FrontProxySettings, HandoverSettings, OpenFiles, ServeSettings,
};
use crate::resource::Gvr;

const DAY: i64 = 86_400;

fn facts(names: &[&str], not_before: i64, not_after: i64) -> (String, CertificateFacts) {
    let facts = CertificateFacts {
        names: names.iter().map(|&name| name.to_owned()).collect(),
        not_before,
        not_after,
        is_authority: false,
    };
    ("tls.crt".to_owned(), facts)
}

#[track_caller]
fn is(verdict: &CheckVerdict, level: CheckLevel, words: &str) {
    assert_eq!(verdict.level, level, "{verdict:?}");
    assert!(verdict.message.contains(words), "{verdict:?}");
    assert_eq!(
        verdict.hint.is_empty(),
        level < CheckLevel::Warning,
        "{verdict:?}"
    );
}

#[test]
fn a_certificate_is_to_be_valid_for_a_while() {
    let verdict = |from, to| expiry_verdict(&[facts(&[], from, to)], 1_000 * DAY, "renew");
    for (from, to, level, words) in [
        (900, 1_090, CheckLevel::Ok, "expires in 90 days"),
        (900, 1_010, CheckLevel::Warning, "expires in 10 days"),
        // Made for seven days: two thirds of its life are left.
        (998, 1_005, CheckLevel::Ok, "expires in 5 days"),
        (994, 1_001, CheckLevel::Warning, "expires in 24 hours"),
        (900, 999, CheckLevel::Failure, "expired 24 hours ago"),
        (1_001, 1_090, CheckLevel::Failure, "valid only in 24 hours"),
    ] {
        is(&verdict(from * DAY, to * DAY), level, words);
    }
    // The one that expires first was made for a day; the other one should have been renewed already.
    let (brief, late) = (
        facts(&[], 1_000 * DAY, 1_001 * DAY),
        facts(&[], 900 * DAY, 1_010 * DAY),
    );
    is(
        &expiry_verdict(&[brief, late], 1_000 * DAY, "renew"),
        CheckLevel::Warning,
        "expires in 10 days",
    );
    is(
        &expiry_verdict(&[], 0, "renew"),
        CheckLevel::Skipped,
        "no certificate",
    );
    is(&credentials_verdict(None, 0), CheckLevel::Ok, "do not say");
    is(
        &credentials_verdict(Some(10), 11),
        CheckLevel::Failure,
        "expired 1 s ago",
    );
}

#[test]
fn names_are_compared_as_clients_compare_them() {
    let certificates = [facts(
        &[
            "fanout.example.com",
            "*.apps.example.com",
            "10.0.0.1",
            "2001:db8::1",
        ],
        0,
        1,
    )];
    let verdict = |name: &str| {
        let served = [(name.to_owned(), certificates[0].1.clone())];
        names_verdict(&certificates, &served).level
    };
    for (name, level) in [
        ("fanout.example.com", CheckLevel::Ok),
        ("FANOUT.example.com", CheckLevel::Ok),
        ("a.apps.example.com", CheckLevel::Ok),
        ("10.0.0.1", CheckLevel::Ok),
        // The root's dot, and another way to write an address.
        ("fanout.example.com.", CheckLevel::Ok),
        ("2001:DB8:0::0001", CheckLevel::Ok),
        ("2001:db8::2", CheckLevel::Failure),
        ("apps.example.com", CheckLevel::Failure),
        ("b.a.apps.example.com", CheckLevel::Failure),
        ("10.0.0.2", CheckLevel::Failure),
    ] {
        assert_eq!(verdict(name), level, "{name}");
    }
    is(
        &names_verdict(&[facts(&[], 0, 1)], &[]),
        CheckLevel::Failure,
        "no subject alternative names",
    );
    is(
        &names_verdict(&certificates, &[]),
        CheckLevel::Ok,
        "--client-names",
    );
}

/// No client accepts an address that is written as a DNS name, although many certificates are made that way.
#[test]
fn an_address_among_the_dns_names_is_no_address() {
    let mut params = rcgen::CertificateParams::default();
    let name = "10.0.0.1".to_owned().try_into().unwrap();
    params.subject_alt_names = vec![rcgen::SanType::DnsName(name)];
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let facts = CertificateFacts::read(certificate.der()).unwrap();
    assert!(facts.names.is_empty(), "{facts:?}");
}

#[test]
fn clocks_may_differ_by_the_seconds_of_a_response() {
    let verdict = |server| skew_verdict(server, 1_000, 1_002);
    is(&verdict(1_001), CheckLevel::Ok, "agrees");
    is(&verdict(998), CheckLevel::Ok, "agrees");
    is(&verdict(990), CheckLevel::Warning, "10 s ahead of");
    is(&verdict(1_012), CheckLevel::Warning, "10 s behind");
    is(&verdict(900), CheckLevel::Failure, "100 s ahead of");
}

#[test]
fn the_memory_bound_lies_below_the_limit() {
    let verdict = |max: u64, container: Option<u64>| {
        let machine = Some(64 << 30);
        limits::memory_verdict(max << 30, MemoryLimits { container, machine })
    };
    is(
        &verdict(6, Some(8 << 30)),
        CheckLevel::Ok,
        "of the container's limit of 8192 MiB",
    );
    is(
        &verdict(8, Some(8 << 30)),
        CheckLevel::Warning,
        "nearly all",
    );
    is(&verdict(9, Some(8 << 30)), CheckLevel::Failure, "more than");
    is(
        &verdict(0, Some(8 << 30)),
        CheckLevel::Warning,
        "no --memory-max",
    );
    is(&verdict(0, None), CheckLevel::Ok, "the machine's memory");
    is(
        &verdict(65, None),
        CheckLevel::Failure,
        "more than the machine's memory",
    );
    let unknown = MemoryLimits {
        container: None,
        machine: None,
    };
    is(
        &limits::memory_verdict(1, unknown),
        CheckLevel::Skipped,
        "does not say",
    );
}

#[test]
fn files_of_the_kernel_are_read() {
    assert_eq!(limits::cgroup_limit("max\n"), None);
    assert_eq!(limits::cgroup_limit("9223372036854771712\n"), None);
    assert_eq!(limits::cgroup_limit("1048576\n"), Some(1 << 20));
    assert_eq!(limits::cgroup_path("1:name=x:/a\n0::/b/c\n"), Some("b/c"));
    assert_eq!(limits::cgroup_path("0::/../x\n"), None);
    let files = machine::limit_files("a.slice/b.service");
    let expected = [
        "/sys/fs/cgroup/a.slice/b.service/memory.max",
        "/sys/fs/cgroup/a.slice/memory.max",
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    ];
    assert_eq!(files, expected.map(std::path::PathBuf::from));
    let meminfo = "MemTotal:        1024 kB\nMemFree: 1 kB\n";
    assert_eq!(limits::machine_memory(meminfo), Some(1 << 20));
}

#[test]
fn open_files_are_to_suffice_for_the_clients_that_are_allowed() {
    let verdict = |clients, wanted| {
        let files = OpenFiles {
            clients,
            refusals: 1,
            forwarded_requests: 1,
            forwarded_watches: 1,
            tunnels: 1,
        };
        limits::files_verdict(files, wanted)
    };
    let one = verdict(1, 0);
    assert!(
        one.message.ends_with("leaves 1 client connection"),
        "{one:?}"
    );
    is(&verdict(5_000, 0), CheckLevel::Ok, "5,000");
    is(&verdict(500, 0), CheckLevel::Warning, "500");
    is(&verdict(500, 500), CheckLevel::Ok, "500");
    is(
        &verdict(500, 501),
        CheckLevel::Failure,
        "--connections-max is 501",
    );
}

/// Otherwise a gateway with full checkpoints on a volume of the right size would be warned of them.
#[test]
fn checkpoints_that_are_there_take_no_further_space() {
    let verdict =
        |free: u64, stored: u64| limits::space_verdict(10 << 20, free << 20, stored << 20);
    is(&verdict(10, 0), CheckLevel::Ok, "10 MiB free");
    is(&verdict(2, 8), CheckLevel::Ok, "8 MiB of checkpoints");
    is(&verdict(2, 7), CheckLevel::Warning, "may take 10 MiB");
    let folder = crate::upstream::samples::certificates::Folder::create();
    std::fs::write(folder.0.join("pods.v1.json.checkpoint"), [0; 1_000]).unwrap();
    std::fs::write(folder.0.join("lock"), "").unwrap();
    assert_eq!(machine::stored_len(&folder.0).unwrap(), 1_000);
}

#[test]
fn versions_of_kubernetes_are_told_apart() {
    let verdict = |major: &str, minor: &str| {
        version_verdict(&ServerVersion {
            major: major.to_owned(),
            minor: minor.to_owned(),
            git_version: format!("v{major}.{minor}"),
        })
    };
    is(&verdict("1", "36"), CheckLevel::Ok, "v1.36");
    is(&verdict("1", "28+"), CheckLevel::Ok, "v1.28+");
    is(&verdict("1", "27"), CheckLevel::Warning, "older than 1.28");
    is(
        &verdict("1", ""),
        CheckLevel::Failure,
        "no version of Kubernetes",
    );
    is(
        &verdict("2", "0"),
        CheckLevel::Failure,
        "no version of Kubernetes",
    );
}

/// A list of this version with these objects, each with its version.
fn list(version: &str, items: &[(&str, &str)]) -> ListHead {
    let items = items.iter().map(|(name, version)| {
        serde_json::json!({"metadata": {"name": name, "namespace": "default", "resourceVersion": version}})
    });
    let list = serde_json::json!({
        "metadata": {"resourceVersion": version}, "items": items.collect::<Vec<_>>(),
    });
    serde_json::from_value(list).unwrap()
}

#[test]
fn an_empty_list_may_have_null_for_its_items() {
    let text = r#"{"metadata":{"resourceVersion":"7","continue":""},"items":null}"#;
    let list: ListHead = serde_json::from_str(text).unwrap();
    assert_eq!((list.version(), list.items.len()), (Some(7), 0));
}

#[test]
fn lists_are_compared_object_by_object() {
    let upstream = list("9", &[("a", "1"), ("b", "2"), ("c", "3")]);
    let (one, newer) = (list("9", &[("a", "1")]), list("9", &[("a", "2")]));
    is(
        &lists_verdict(&one, &one),
        CheckLevel::Ok,
        "no difference among 1 object at version 9",
    );
    is(
        &lists_verdict(&one, &newer),
        CheckLevel::Failure,
        "1 difference among 1 object at version 9",
    );
    is(
        &lists_verdict(&upstream, &upstream),
        CheckLevel::Ok,
        "no difference among 3 objects at version 9",
    );
    let gateway = list("9", &[("a", "1"), ("b", "1"), ("d", "4")]);
    let verdict = lists_verdict(&upstream, &gateway);
    is(
        &verdict,
        CheckLevel::Failure,
        "3 differences among 3 objects at version 9",
    );
    assert_eq!(
        verdict.details,
        [
            "default/b: version 2 upstream, 1 at the gateway",
            "default/c: missing at the gateway",
            "default/d: only at the gateway",
        ]
    );
    let twice = list("9", &[("a", "1"), ("a", "1"), ("b", "2"), ("c", "3")]);
    let twice = lists_verdict(&upstream, &twice);
    is(&twice, CheckLevel::Failure, "1 difference among 3 objects");
    assert_eq!(twice.details, ["1 object more than once at the gateway"]);
    // A difference is one with or without a cache.
    is(
        &compared_verdict(verdict, Some(false)),
        CheckLevel::Failure,
        "3 differences among 3 objects",
    );
    is(&freshness_verdict(5, Some(5)), CheckLevel::Ok, "version 5");
    is(
        &freshness_verdict(5, Some(4)),
        CheckLevel::Failure,
        "version 4",
    );
    is(
        &freshness_verdict(5, None),
        CheckLevel::Failure,
        "no version",
    );
}

#[test]
fn lists_of_a_server_agree_with_each_other() {
    let (early, late) = (list("5", &[("a", "1")]), list("7", &[("b", "1")]));
    is(
        &consistency_verdict(&early, &late),
        CheckLevel::Ok,
        "5 and 7",
    );
    is(
        &consistency_verdict(&late, &early),
        CheckLevel::Failure,
        "is of version 5",
    );
    is(
        &consistency_verdict(&list("x", &[]), &early),
        CheckLevel::Failure,
        "no version",
    );
    let wrong = consistency_verdict(&early, &list("x", &[]));
    is(&wrong, CheckLevel::Failure, "a number: \"x\"");
    is(
        &flow_verdict(&[200, 429, 200], true),
        CheckLevel::Warning,
        "1 of 3",
    );
    is(
        &flow_verdict(&[200, 429, 503], true),
        CheckLevel::Failure,
        "1 of 3",
    );
    is(
        &flow_verdict(&[200, 200], true),
        CheckLevel::Ok,
        "fairness is on",
    );
}

#[test]
fn a_watch_says_where_its_initial_events_end() {
    let event = |json: &str| serde_json::from_str::<WatchedEvent>(json).unwrap();
    let added = event(r#"{"type":"ADDED","object":{"metadata":{"name":"a"}}}"#);
    let plain = event(r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"8"}}}"#);
    let end = event(
        r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"8","annotations":{"k8s.io/initial-events-end":"true"}}}}"#,
    );
    let mut progress = InitialProgress::default();
    assert!(!progress.note(&added) && !progress.note(&plain));
    is(
        &progress.verdict(8, "look"),
        CheckLevel::Failure,
        "1 object, and no bookmark",
    );
    assert!(progress.note(&end));
    is(
        &progress.verdict(8, "look"),
        CheckLevel::Ok,
        "1 object, then a bookmark of version 8",
    );
    is(
        &progress.verdict(9, "look"),
        CheckLevel::Failure,
        "began after 9",
    );
    assert!(progress.note(&event(r#"{"type":"ERROR","object":{"code":410}}"#)));
    is(
        &progress.verdict(8, "look"),
        CheckLevel::Failure,
        "an error",
    );
}

#[test]
fn each_mode_needs_its_own_rights() {
    let names = |mode| {
        let rights = rights::of_reviews(mode);
        rights
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(", ")
    };
    assert_eq!(
        names(AuthMode::Review),
        "create tokenreviews.authentication.k8s.io, create subjectaccessreviews.authorization.k8s.io"
    );
    assert_eq!(
        names(AuthMode::Rbac),
        "create tokenreviews.authentication.k8s.io"
    );
    assert_eq!(names(AuthMode::SelfCheck) + &names(AuthMode::None), "");
    assert_eq!(rights::of_roles().len(), 8);
}

/// A role that names users says nothing about what else is sent with their names.
#[test]
fn a_role_that_names_users_grants_nothing_else() {
    let users = Right::new("impersonate", "", "users");
    let groups = Right::new("impersonate", "", "groups");
    let key = "userextras/authentication.kubernetes.io/credential-id";
    let key = Right::new("impersonate", "authentication.k8s.io", key);
    let rules = serde_json::json!({"status": {"resourceRules": [
        {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"], "resourceNames": ["alice"]},
    ]}});
    let verdict = |missing: &[&Right]| {
        let missing = missing.iter().map(|&right| right.clone()).collect();
        rights::impersonation_verdict(missing, &rules)
    };
    is(&verdict(&[]), CheckLevel::Ok, "granted");
    is(&verdict(&[&users]), CheckLevel::Ok, "roles name");
    is(
        &verdict(&[&users, &groups]),
        CheckLevel::Warning,
        "callers in groups",
    );
    is(
        &verdict(&[&users, &key]),
        CheckLevel::Failure,
        "1 right missing",
    );
    is(&verdict(&[&groups]), CheckLevel::Failure, "1 right missing");
}

#[test]
fn a_uid_that_a_front_proxy_sends_needs_a_right() {
    let proxy = |uid_headers: Vec<http::HeaderName>| FrontProxySettings {
        client_ca: "/nowhere/ca.crt".into(),
        allowed_names: Vec::new(),
        username_headers: Vec::new(),
        uid_headers,
        group_headers: Vec::new(),
        extra_header_prefixes: Vec::new(),
    };
    let uids = Right::new("impersonate", "authentication.k8s.io", "uids");
    let mut settings = ServeSettings::embedded("http://127.0.0.1/".parse().unwrap());
    settings.auth = AuthSettings::of_mode(AuthMode::Review);
    settings.auth.front_proxy = Some(proxy(vec!["x-remote-uid".parse().unwrap()]));
    assert!(rights::of_impersonation(&settings).contains(&uids));
    settings.auth.front_proxy = Some(proxy(Vec::new()));
    assert!(!rights::of_impersonation(&settings).contains(&uids));
}

#[test]
fn a_handover_needs_the_right_to_every_path_that_is_requested() {
    let mut settings = HandoverSettings::without_files("https://fanout.example.com/");
    let names = |settings: &HandoverSettings| {
        let rights = rights::of_handover(settings);
        rights.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let handover = [
        "get /kube-fanout/handover",
        "get /kube-fanout/handover/pods.v1.json",
    ];
    assert_eq!(names(&settings), handover);
    settings.rebalance_interval = Some(Duration::from_secs(60));
    assert_eq!(names(&settings)[2..], ["get /kube-fanout/handover/load"]);
}

#[test]
fn what_may_not_be_read_is_judged_by_what_was_asked_for() {
    let gvr = |name: &str| Gvr::new("", "v1", name);
    let verdict = |denied: &[&str], pinned: &[&str], is_named| {
        rights::cache_verdict(&CacheRights {
            wanted: ["pods", "services"].map(gvr).to_vec(),
            pinned: pinned.iter().copied().map(gvr).collect(),
            denied: denied.iter().copied().map(gvr).collect(),
            absent: Vec::new(),
            is_named,
            unknown: Vec::new(),
        })
    };
    let one = rights::cache_verdict(&CacheRights {
        wanted: vec![gvr("pods")],
        pinned: Vec::new(),
        denied: Vec::new(),
        absent: Vec::new(),
        is_named: true,
        unknown: Vec::new(),
    });
    is(&one, CheckLevel::Ok, "1 of 1 resource may");
    let misspelt = "--cache-resources deployment; did you mean deployments.apps?";
    let one = rights::cache_verdict(&CacheRights {
        wanted: vec![gvr("pods")],
        pinned: Vec::new(),
        denied: Vec::new(),
        absent: Vec::new(),
        is_named: true,
        unknown: vec![misspelt.to_owned()],
    });
    is(
        &one,
        CheckLevel::Warning,
        "1 of 2 resources may be listed and watched; 1 unknown",
    );
    assert_eq!(one.details, [misspelt]);
    is(&verdict(&[], &["pods"], true), CheckLevel::Ok, "2 of 2");
    // Least rights are a choice, unless the settings name the resource.
    is(
        &verdict(&["services"], &["pods"], false),
        CheckLevel::Ok,
        "1 of 2",
    );
    is(
        &verdict(&["services"], &["pods"], true),
        CheckLevel::Warning,
        "1 of 2",
    );
    is(
        &verdict(&["pods"], &["pods"], false),
        CheckLevel::Failure,
        "1 resource of --pin-resources",
    );
    is(
        &verdict(&["pods", "services"], &[], false),
        CheckLevel::Failure,
        "0 of 2",
    );
}

#[test]
fn a_report_is_safe_and_bounded_whatever_was_found() {
    let hostile = format!("a\u{1b}[2J\n\u{202e}{}", "x".repeat(10_000));
    let details = vec![hostile.clone(); 50];
    let verdict = CheckVerdict::failure(&hostile, "do this").with_details(details);
    assert!(verdict.message.chars().count() <= 401, "{verdict:?}");
    assert_eq!(verdict.details.len(), 21);
    assert_eq!(
        verdict.details.last().map(String::as_str),
        Some("and 30 more")
    );
    let result = |spec, verdict| CheckEntry {
        spec,
        verdict,
        elapsed: Duration::from_millis(12),
    };
    let report = CheckReport {
        results: vec![
            result(CATALOGUE[0], CheckVerdict::ok("fine")),
            result(CATALOGUE[1], verdict),
            result(CATALOGUE[2], CheckVerdict::skipped("no need")),
        ],
    };
    assert_eq!(report.level(), CheckLevel::Failure);
    let plain = report.text(false);
    assert!(!plain.contains(['\u{1b}', '\u{202e}']), "{plain:?}");
    assert!(plain.contains("do:  do this\n"), "{plain}");
    assert!(
        plain.contains("see: docs/CHECK.md#upstream-ready\n"),
        "{plain}"
    );
    assert!(
        plain.ends_with("3 checks: 1 ok, 0 warnings, 1 failure, 1 skipped\n"),
        "{plain}"
    );
    assert!(report.text(true).contains("\u{1b}[1;31mfailure\u{1b}[0m"));
    let document: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
    assert_eq!(document["checks"][1]["see"], "docs/CHECK.md#upstream-ready");
    assert_eq!(document["checks"][0]["milliseconds"], 12);
    assert_eq!(document["checks"][0].get("hint"), None);
}

#[test]
fn a_list_that_is_too_long_is_no_fault_of_the_gateway() {
    let error = requests::CheckRequestError::Body {
        path: "/api/v1/pods".to_owned(),
        reason: "length limit exceeded".to_owned(),
    };
    let verdict = clients::unread("the gateway", &error);
    is(&verdict, CheckLevel::Failure, "too long");
    assert!(verdict.hint.contains("--compare-resource"), "{verdict:?}");
}

#[test]
fn names_of_checks_are_different() {
    let names: std::collections::BTreeSet<_> = CATALOGUE.iter().map(|spec| spec.name).collect();
    assert_eq!(names.len(), CATALOGUE.len());
    assert!(CATALOGUE.is_sorted_by_key(|spec| spec.category));
}

#[test]
fn the_worst_of_several_steps_decides_and_is_not_hidden_by_others() {
    let verdict = |levels: &str| {
        let steps = levels.chars().map(|level| match level {
            'o' => CheckVerdict::ok("good"),
            's' => CheckVerdict::skipped("absent"),
            'w' => CheckVerdict::warning("poor", "improve"),
            _ => CheckVerdict::failure("bad", "repair").with_details(["it"]),
        });
        CheckVerdict::worst_of(steps.collect::<Vec<_>>())
    };
    is(&verdict("sos"), CheckLevel::Ok, "good");
    is(&verdict("ss"), CheckLevel::Skipped, "absent; absent");
    is(&verdict("wow"), CheckLevel::Warning, "poor; poor");
    is(&verdict("wfo"), CheckLevel::Failure, "bad");
    assert_eq!(verdict("wff").details, ["it", "it"]);
    is(&verdict(""), CheckLevel::Skipped, "nothing");
}
