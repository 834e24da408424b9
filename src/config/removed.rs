//! Settings that earlier versions had. Whoever still writes one is told what replaces it.

use clap::error::{ContextKind, ContextValue};

use super::suggestion::letters;

const CANARY: &str = "kube_fanout_watch_events_age_seconds shows how long events take, --drift-interval whether any is missing";

const ROTATION: &str =
    "logrotate does it: a new file is created within a second once the audit log was moved away";

/// The flags that were removed, without dashes, and what replaces each.
const REMOVED: &[(&str, &str)] = &[
    ("canary-namespace", CANARY),
    ("canary-interval", CANARY),
    ("audit-log-maxsize", ROTATION),
    ("audit-log-maxbackup", ROTATION),
    ("audit-log-maxage", ROTATION),
];

/// What replaces a setting that was removed, by the name of its flag, its variable or its key; `None` if there was none of this name.
pub(super) fn replacement(name: &str) -> Option<&'static str> {
    let name = letters(name.strip_prefix("KUBE_FANOUT_").unwrap_or(name));
    let removed = REMOVED.iter().find(|(removed, _)| letters(removed) == name);
    removed.map(|(_, replacement)| *replacement)
}

/// The flag that the command line has although it was removed, and what replaces it.
pub(super) fn removed_flag(error: &clap::Error) -> Option<(String, &'static str)> {
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    Some((flag.clone(), replacement(flag)?))
}
