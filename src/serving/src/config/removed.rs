//! Settings that earlier versions had. Whoever still writes one is told what replaces it.

use clap::error::{ContextKind, ContextValue};

use super::suggestion::letters;

const CANARY: &str = "kube_fanout_watch_events_age_seconds shows how long events take, --drift-interval whether any is missing";

const ROTATION: &str =
    "logrotate does it: a new file is created within a second once the audit log was moved away";

const FORWARDED: &str = "it is 5760, or what the limit of open files leaves";

/// The flags that were removed, without dashes, and what replaces each.
const REMOVED: &[(&str, &str)] = &[
    ("canary-namespace", CANARY),
    ("canary-interval", CANARY),
    ("audit-log-maxsize", ROTATION),
    ("audit-log-maxbackup", ROTATION),
    ("audit-log-maxage", ROTATION),
    (
        "frame-len-max",
        "objects of up to 16Mi are cached, as far as --ring-bytes-max holds one",
    ),
    ("coalesce-delay-max", "it is 2ms"),
    (
        "ring-events-max",
        "it is 102400, the API server's own, or one for each 4Ki of --ring-bytes-max if that is more",
    ),
    (
        "auth-deny-ttl",
        "it is 30s, or --auth-allow-ttl if that is less",
    ),
    ("state-interval", "it is 1s"),
    (
        "state-bytes-max",
        "it is twice --memory-max, and 8Gi at most",
    ),
    ("handover-timeout", "it is 30s"),
    ("handover-bytes-max", "it is 4Gi"),
    ("lists-waiting-max", "it is 64 times --lists-max"),
    ("list-wait-max", "it is 30s"),
    ("list-stall-max", "it is 2s"),
    ("forwarded-requests-max", FORWARDED),
    ("forwarded-watches-max", FORWARDED),
    (
        "tunnels-max",
        "it is 4096, or what the limit of open files leaves",
    ),
];

/// The command that was removed, and what replaces it.
const REMOVED_COMMAND: (&str, &str) = (
    "size",
    "docs/SCALING.md has its formulas and a table of sizes",
);

/// What replaces a setting that was removed, by the name of its flag, its variable or its key; `None` if there was none of this name.
pub(super) fn replacement(name: &str) -> Option<&'static str> {
    let name = letters(name.strip_prefix("KUBE_FANOUT_").unwrap_or(name));
    let removed = REMOVED.iter().find(|(removed, _)| letters(removed) == name);
    removed.map(|(_, replacement)| *replacement)
}

/// The flag or command that the command line has although it was removed, and what replaces it.
pub(super) fn in_command_line(error: &clap::Error) -> Option<(String, &'static str)> {
    if let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) {
        return Some((flag.clone(), replacement(flag)?));
    }
    let (name, replacement) = REMOVED_COMMAND;
    let command = error.get(ContextKind::InvalidSubcommand);
    let is_removed = command == Some(&ContextValue::String(name.to_owned()));
    is_removed.then(|| (format!("kube-fanout {name}"), replacement))
}
