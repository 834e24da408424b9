//! Verdicts about lists and watches of a resource, compared between API server and gateway.

use std::collections::BTreeMap;

use super::verdict::CheckVerdict;
use super::versions::{ListHead, ObjectHead};
use super::words::counted;

/// The annotation of the bookmark after the initial events of a watch.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";
const OBJECTS: (&str, &str) = ("object", "objects");
const REPORT: &str = "list the resource again; if the difference stays, restart the gateway and report it with this output (docs/TROUBLESHOOTING.md)";

/// Whether two lists at one version have the same objects in the same versions.
pub(super) fn lists_verdict(upstream: &ListHead, gateway: &ListHead) -> CheckVerdict {
    let version = &gateway.metadata.resource_version;
    let (expected, found) = (versions(&upstream.items), versions(&gateway.items));
    let mut differences = Vec::new();
    for (key, version) in &expected {
        match found.get(key) {
            None => differences.push(format!("{key}: missing at the gateway")),
            Some(other) if other != version => {
                differences.push(format!(
                    "{key}: version {version} upstream, {other} at the gateway"
                ));
            }
            Some(_) => {}
        }
    }
    let repeated = gateway.items.len() - found.len();
    if repeated > 0 {
        let objects = counted(repeated, OBJECTS);
        differences.push(format!("{objects} more than once at the gateway"));
    }
    let extra = found.keys().filter(|key| !expected.contains_key(*key));
    differences.extend(extra.map(|key| format!("{key}: only at the gateway")));
    let (count, total) = (differences.len(), counted(expected.len(), OBJECTS));
    if count > 0 {
        let differing = counted(count, ("difference", "differences"));
        let text = format!("{differing} among {total} at version {version}");
        return CheckVerdict::failure(text, REPORT).with_details(differences);
    }
    CheckVerdict::ok(format!("no difference among {total} at version {version}"))
}

/// The verdict on lists that are the same, if it is known whether the gateway has a cache of the resource: without one, it forwards.
pub(super) fn compared_verdict(lists: CheckVerdict, has_cache: Option<bool>) -> CheckVerdict {
    if lists.is_failure() {
        return lists;
    }
    match has_cache {
        Some(true) => lists,
        Some(false) => CheckVerdict::warning(
            "the gateway has no cache of this resource: the API server was compared with itself",
            "name a resource that the gateway caches with --compare-resource, or let the gateway cache this one",
        ),
        None => CheckVerdict::ok(format!(
            "{}; the client may not see whether the gateway has a cache of them",
            lists.message
        )),
    }
}

fn versions(items: &[ObjectHead]) -> BTreeMap<String, &str> {
    let pairs = items
        .iter()
        .map(|item| (item.key(), item.metadata.resource_version.as_str()));
    pairs.collect()
}

/// Whether a consistent list through the gateway is at least of the version that the API server had before it.
pub(super) fn freshness_verdict(upstream: u64, gateway: Option<u64>) -> CheckVerdict {
    match gateway {
        Some(version) if version >= upstream => {
            CheckVerdict::ok(format!("version {version}, after {upstream} upstream"))
        }
        Some(version) => CheckVerdict::failure(
            format!("the gateway lists version {version} after the API server listed {upstream}"),
            REPORT,
        ),
        None => CheckVerdict::failure("the gateway's list states no version", REPORT),
    }
}

/// An event of a watch.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
pub(super) struct WatchedEvent {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) object: ObjectHead,
}

/// How far a watch that begins with all objects has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct InitialProgress {
    objects: usize,
    /// The version of the bookmark after the initial events.
    bookmark: Option<String>,
    /// An event that ends the watch.
    error: bool,
}

impl InitialProgress {
    /// Notes an event; returns whether no more needs to be read.
    pub(super) fn note(&mut self, event: &WatchedEvent) -> bool {
        match event.kind.as_str() {
            "BOOKMARK" => {
                let metadata = &event.object.metadata;
                if metadata
                    .annotations
                    .get(INITIAL_EVENTS_END)
                    .map(String::as_str)
                    == Some("true")
                {
                    self.bookmark = Some(metadata.resource_version.clone());
                }
            }
            "ERROR" => self.error = true,
            _ => self.objects += 1,
        }
        self.bookmark.is_some() || self.error
    }

    /// Whether the watch sent its objects and then a bookmark that says so, not older than `version`.
    pub(super) fn verdict(&self, version: u64, hint: &str) -> CheckVerdict {
        let objects = counted(self.objects, OBJECTS);
        if self.error {
            return CheckVerdict::failure(format!("after {objects} the watch sent an error"), hint);
        }
        let Some(bookmark) = &self.bookmark else {
            let text =
                format!("the watch sent {objects}, and no bookmark that says where they end");
            return CheckVerdict::failure(text, hint);
        };
        match bookmark.parse::<u64>() {
            Ok(at) if at >= version => {
                CheckVerdict::ok(format!("{objects}, then a bookmark of version {at}"))
            }
            _ => CheckVerdict::failure(
                format!(
                    "the bookmark is of version {bookmark:?}, and the watch began after {version}"
                ),
                hint,
            ),
        }
    }
}
