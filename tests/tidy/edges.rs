//! Which module of the crate `serving` may use which, and what the pure zone may not use at all.

use crate::source::{Source, is_word, sources};
use crate::{assert_no_violations, assert_violation};

/// The modules of the crates below, which the crate has under these names. Cargo forbids them to use it.
const BELOW: &[&str] = &[
    "resource",
    "log_limit",
    "error_chain",
    "fairness",
    "decode",
    "selector",
    "sync",
    "net",
    "blocking",
    "cache",
    "view",
    "upstream",
    "protocol",
];

/// Each module of the crate, and the modules that it may use. A part of a module is allowed as `module::part`. A new edge is a
/// commit of its own with a decision record.
const EDGES: &[(&str, &[&str])] = &[
    ("build_info", &[]),
    ("allocator", &["resource"]),
    ("log_filter", &[]),
    ("cli", &["build_info", "log_filter"]),
    (
        "metrics",
        &[
            "fairness",
            "log_limit",
            "resource",
            "protocol::request",
            "upstream::driver",
            "upstream::reflector",
            "build_info",
        ],
    ),
    // Spans are counted where they are sent.
    ("telemetry", &["build_info", "log_limit", "metrics"]),
    ("shutdown", &[]),
    ("stable_share", &[]),
    ("printable", &[]),
    ("numbers", &[]),
    ("config", &["resource", "cli", "log_filter", "stable_share"]),
    ("cache_rule", &["resource", "config"]),
    (
        "auth",
        &[
            "log_limit",
            "blocking",
            "error_chain",
            "sync",
            "resource",
            "fairness",
            "upstream::client",
            "config",
            "metrics",
            "telemetry",
        ],
    ),
    (
        "serving_control",
        &["resource", "auth", "config", "metrics"],
    ),
    (
        "audit",
        &["resource", "log_limit", "auth", "config", "metrics"],
    ),
    (
        "passthrough",
        &[
            "resource",
            "fairness",
            "upstream::client",
            "auth",
            "config",
            "metrics",
            "telemetry",
        ],
    ),
    (
        "admission",
        &[
            "sync",
            "resource",
            "protocol",
            "fairness",
            "allocator",
            "config",
            "metrics",
        ],
    ),
    (
        "shadow",
        &[
            "log_limit",
            "resource",
            "decode",
            "fairness",
            "admission",
            "config",
            "metrics",
        ],
    ),
    ("transport", &["net", "protocol", "fairness", "metrics"]),
    (
        "watch",
        &[
            "talkers",
            "selector",
            "sync",
            "resource",
            "cache",
            "view",
            "protocol",
            "admission",
            "transport",
            "audit",
            "auth",
            "config",
            "metrics",
            "serving_control",
        ],
    ),
    (
        "serve",
        &[
            "talkers",
            "blocking",
            "selector",
            "resource",
            "decode",
            "cache",
            "view",
            "protocol",
            "fairness",
            "admission",
            "watch",
            "audit",
            "auth",
            "config",
            "metrics",
            "serving_control",
            "shadow",
            "stable_share",
            "telemetry",
        ],
    ),
    (
        "connection",
        &[
            "log_limit",
            "net",
            "protocol",
            "fairness",
            "admission",
            "transport",
            "watch",
            "serve",
            "audit",
            "auth",
            "config",
            "metrics",
            "shutdown",
        ],
    ),
    (
        "tables",
        &[
            "resource",
            "decode",
            "cache",
            "view",
            "protocol",
            "fairness",
            "upstream::client",
            "upstream::driver",
            "upstream::backoff",
            "admission",
            "watch",
            "serve",
            "audit",
            "auth",
            "metrics",
            "task",
        ],
    ),
    ("task", &["resource", "upstream::backoff", "metrics"]),
    ("reload", &["blocking", "error_chain", "metrics"]),
    // The process's boundary to its clients: files and rustls.
    ("tls", &["config"]),
    (
        "admin",
        &[
            "net",
            "protocol",
            "blocking",
            "fairness",
            "audit",
            "build_info",
            "auth",
            "config",
            "log_filter",
            "serving_control",
            "metrics",
            "shutdown",
            "status",
        ],
    ),
    ("status", &[]),
    ("talkers", &[]),
    // The crate's root declares modules and uses none.
    ("lib", &[]),
];

/// Files and folders without `async`, clock, environment, log or metrics: time is an argument.
const PURE: &[&str] = &[
    "src/assess/assumptions",
    "src/assess/audit_entry",
    "src/assess/client",
    "src/assess/cloud_entry",
    "src/assess/columns",
    "src/assess/document",
    "src/assess/estimate",
    "src/assess/exposition",
    "src/assess/figures",
    "src/assess/group_resource",
    "src/assess/lines",
    "src/assess/page",
    "src/assess/readers",
    "src/assess/scrape",
    "src/assess/servers",
    "src/assess/summary",
    "src/assess/table",
    "src/assess/usage",
    "src/check/catalogue",
    "src/check/certificates",
    "src/check/clock",
    "src/check/comparison",
    "src/check/limits",
    "src/check/report",
    "src/check/rights",
    "src/check/verdict",
    "src/check/versions",
    "src/inject/names",
    "src/inject/plan",
    "src/quiet",
    "src/upstream/src/error_chain",
    "src/serving/src/printable",
    "src/serving/src/numbers",
    "src/serving/src/stable_share",
    "src/protocol/src",
    "src/wire/src/resource",
    "src/wire/src/decode",
    "src/cache/src/cache",
    "src/serving/src/cache_rule",
    "src/serving/src/stable_share",
    "src/wire/src/selector",
    "src/cache/src/view",
    "src/serving/src/audit/event",
    "src/serving/src/audit/policy",
    "src/serving/src/audit/request",
    "src/serving/src/shadow/object",
    "src/serving/src/shadow/object_set",
    "src/serving/src/auth/access",
    "src/serving/src/auth/bearer",
    "src/serving/src/auth/caller",
    "src/serving/src/auth/certificate",
    "src/serving/src/auth/extra_key",
    "src/serving/src/auth/front_proxy",
    "src/serving/src/auth/impersonation",
    "src/serving/src/auth/lease",
    "src/serving/src/auth/node_rules",
    "src/serving/src/auth/rbac",
    "src/serving/src/auth/user",
    "src/upstream/src/reflector",
    "src/upstream/src/backoff",
];

const IMPURE: &[&str] = &[
    "async",
    "await",
    "tokio",
    "hyper",
    "prometheus",
    "tracing",
    "println",
    "eprintln",
    "std::env",
    "std::fs",
    "std::net",
    "std::thread",
    "Instant::now",
    "SystemTime::now",
    "Timestamp::now",
];

/// The only files that may use atomics: the proofs of the ring must cover every atomic that the order of events depends on.
const ATOMICS: &[&str] = &[
    "src/serving/src/allocator.rs",
    "src/serving/src/auth/lease.rs",
    "src/cache/src/cache/sync.rs",
    "src/cache/src/cache/sync/loom_cells.rs",
    "src/serving/src/metrics/sharded.rs",
    "src/serving/src/watch/progress.rs",
];

/// Edges that the table does not allow, one line each.
fn edge_violations(source: &Source) -> Vec<String> {
    let module = source.module();
    let Some((_, granted)) = EDGES.iter().find(|(name, _)| *name == module[0]) else {
        return vec![format!(
            "{}: module {} is not in the table of edges",
            source.path, module[0]
        )];
    };
    let mut found = Vec::new();
    for (line, path) in references(source, module.len()) {
        let target = path[0].as_str();
        let known = BELOW.contains(&target) || EDGES.iter().any(|(name, _)| *name == target);
        if !known || target == module[0] {
            continue;
        }
        let part = path.get(1).map(|part| format!("{target}::{part}"));
        let is_granted = |grant: &str| grant == target || Some(grant) == part.as_deref();
        if !granted.iter().any(|grant| is_granted(grant)) {
            let target = part.unwrap_or_else(|| target.to_owned());
            found.push(format!("{}:{line}: {} -> {target}", source.path, module[0]));
        }
    }
    found
}

/// The paths from the crate's root that the code uses, cut to `depth` segments, with their lines.
fn references(source: &Source, depth: usize) -> Vec<(usize, Vec<String>)> {
    let code = &source.code;
    let supers = "super::".repeat(depth);
    let mut found = Vec::new();
    for start in ["crate::", supers.as_str()] {
        for (at, _) in code.match_indices(start) {
            let inside_path =
                at > 0 && (is_word(code.as_bytes()[at - 1]) || code[..at].ends_with("::"));
            if inside_path {
                continue;
            }
            let line = code[..at].matches('\n').count() + 1;
            let paths = expand(&code[at + start.len()..], 2);
            found.extend(paths.into_iter().map(|path| (line, path)));
        }
    }
    found
}

/// The paths of a use tree, each cut to `segments`.
fn expand(tree: &str, segments: usize) -> Vec<Vec<String>> {
    if segments == 0 {
        return vec![Vec::new()];
    }
    let tree = tree.trim_start();
    if let Some(group) = tree.strip_prefix('{') {
        return members(group)
            .into_iter()
            .flat_map(|member| expand(member, segments))
            .collect();
    }
    let length = tree.bytes().take_while(|&byte| is_word(byte)).count();
    if length == 0 {
        return vec![Vec::new()];
    }
    let (name, rest) = tree.split_at(length);
    let below = match rest.trim_start().strip_prefix("::") {
        Some(rest) => expand(rest, segments - 1),
        None => vec![Vec::new()],
    };
    let join = |tail: Vec<String>| std::iter::once(name.to_owned()).chain(tail).collect();
    below.into_iter().map(join).collect()
}

/// The members of a group, given what follows its opening brace.
fn members(group: &str) -> Vec<&str> {
    let (mut found, mut depth, mut start) = (Vec::new(), 0_usize, 0);
    for (at, byte) in group.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth > 0 => depth -= 1,
            b',' if depth == 0 => {
                found.push(&group[start..at]);
                start = at + 1;
            }
            b'}' => {
                found.push(&group[start..at]);
                break;
            }
            _ => {}
        }
    }
    found.retain(|member| !member.trim().is_empty());
    found
}

fn purity_violations(source: &Source) -> Vec<String> {
    let is_pure = PURE.iter().any(|zone| {
        source.path == format!("{zone}.rs") || source.path.starts_with(&format!("{zone}/"))
    });
    if !is_pure {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (number, line) in source.lines() {
        // Tracing a decision is the one exception.
        let line = line.replace("tracing::trace!", "");
        for word in IMPURE.iter().filter(|word| names(&line, word)) {
            found.push(format!(
                "{}:{number}: the pure zone names {word}",
                source.path
            ));
        }
    }
    found
}

fn atomic_violations(source: &Source) -> Vec<String> {
    if ATOMICS.contains(&source.path.as_str()) {
        return Vec::new();
    }
    let named = source
        .lines()
        .filter(|(_, line)| names(line, "sync::atomic") || names(line, "UnsafeCell"));
    named
        .map(|(number, _)| {
            format!(
                "{}:{number}: atomics are named in {ATOMICS:?} only",
                source.path
            )
        })
        .collect()
}

/// Whether a line contains a word or path as a whole.
fn names(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line.as_bytes()[..at].last();
        let after = line.as_bytes().get(at + word.len());
        !before.is_some_and(|&byte| is_word(byte)) && !after.is_some_and(|&byte| is_word(byte))
    })
}

/// The product's code only: tests may use any module.
fn product() -> Vec<Source> {
    let mut found = sources("src");
    found.retain(|source| !source.is_test());
    assert!(found.len() > 10, "the sources were not found");
    found
}

/// A path of grants that leads from a module back to itself, if there is one.
fn cycle(edges: &[(&str, &[&str])]) -> Option<String> {
    let grants = |module: &str| {
        let granted = edges.iter().find(|(name, _)| *name == module);
        granted.map_or(&[][..], |(_, granted)| granted)
    };
    let of = |grant: &str| grant.split("::").next().unwrap_or_default().to_owned();
    for (start, _) in edges {
        let mut paths = vec![vec![(*start).to_owned()]];
        let mut seen = std::collections::BTreeSet::new();
        while let Some(path) = paths.pop() {
            let last = path.last().cloned().unwrap_or_default();
            for next in grants(&last).iter().map(|grant| of(grant)) {
                if next == *start {
                    return Some(format!("{} -> {next}", path.join(" -> ")));
                }
                if seen.insert(next.clone()) {
                    paths.push([path.clone(), vec![next]].concat());
                }
            }
        }
    }
    None
}

#[test]
fn no_grants_of_the_table_form_a_cycle() {
    assert_eq!(cycle(EDGES), None);
    let planted: &[(&str, &[&str])] = &[("a", &["b"]), ("b", &["c::part"]), ("c", &["a"])];
    assert_eq!(cycle(planted).as_deref(), Some("a -> b -> c -> a"));
}

#[test]
fn modules_name_only_what_the_table_grants() {
    assert_no_violations(
        "module edges",
        product()
            .iter()
            .filter(|source| source.crate_folder() == "src/serving/src")
            .flat_map(edge_violations)
            .collect(),
    );
}

#[test]
fn the_pure_zone_has_no_clock_no_async_and_no_metrics() {
    assert_no_violations(
        "pure zone",
        product().iter().flat_map(purity_violations).collect(),
    );
}

#[test]
fn atomics_are_named_in_few_files() {
    assert_no_violations(
        "atomics",
        product().iter().flat_map(atomic_violations).collect(),
    );
}

#[track_caller]
fn planted(path: &str, text: &str, expected: &str) {
    assert_violation(&edge_violations(&Source::new(path, text)), expected);
}

#[test]
fn a_planted_edge_is_found() {
    planted(
        "src/serving/src/audit/log.rs",
        "\nuse crate::serve::Answer;",
        "src/serving/src/audit/log.rs:2: audit -> serve::Answer",
    );
    planted(
        "src/serving/src/cli.rs",
        "use crate::{build_info::VERSION, config};",
        "cli -> config",
    );
    planted(
        "src/serving/src/tls.rs",
        "use super::metrics;",
        "tls -> metrics",
    );
    planted(
        "src/serving/src/tls/a/b.rs",
        "use super::super::super::metrics;",
        "tls -> metrics",
    );
    planted(
        "src/serving/src/passthrough.rs",
        "use crate::upstream::{client, reflector::A};",
        "passthrough -> upstream::reflector",
    );
    planted(
        "src/serving/src/admin.rs",
        "fn f() { crate::serve::run() }",
        "admin -> serve",
    );
    planted("src/serving/src/sidecar.rs", "", "not in the table");
}

#[test]
fn granted_edges_and_prose_are_left_alone() {
    for (path, text) in [
        (
            "src/serving/src/tls/a.rs",
            "use super::metrics; use crate::config::Tls;",
        ),
        (
            "src/serving/src/tls.rs",
            "/// See [`crate::upstream`].\nconst A: &str = \"crate::serve\";",
        ),
        (
            "src/serving/src/tls.rs",
            "#[cfg(test)]\nmod tests { use crate::serve; }",
        ),
        (
            "src/serving/src/config.rs",
            "use crate::config::kinds; use serde::crate_name;",
        ),
    ] {
        assert_eq!(
            edge_violations(&Source::new(path, text)),
            Vec::<String>::new(),
            "{text}"
        );
    }
}

#[test]
fn planted_clocks_and_atomics_are_found() {
    let clock = Source::new(
        "src/upstream/src/backoff.rs",
        "fn f() { let now = std::time::Instant::now(); }",
    );
    assert_violation(&purity_violations(&clock), "Instant::now");
    let wait = Source::new("src/cache/src/cache/ring.rs", "async fn f() {}");
    assert_violation(&purity_violations(&wait), "async");
    let driver = Source::new("src/upstream/src/client.rs", "async fn f() {}");
    assert_eq!(purity_violations(&driver), Vec::<String>::new());
    let atomic = Source::new(
        "src/cache/src/view/waiters.rs",
        "use std::sync::atomic::AtomicBool;",
    );
    assert_violation(
        &atomic_violations(&atomic),
        "src/cache/src/view/waiters.rs:1",
    );
}
