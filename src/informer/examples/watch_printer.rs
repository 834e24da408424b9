//! Prints the objects of a resource and then each change, as `kubectl get -w` does.
//!
//! ```text
//! ./kube-fanout example watch-printer pods --namespace ns-01 -l tier=backend
//! ```
//!
//! If no server is named, the example starts one in this process whose objects change, and stops after ten seconds.

#[path = "cluster.rs"]
mod cluster;

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use futures::StreamExt;
use jiff::{Timestamp, Unit};
use kube_fanout_informer::resource::Gvr;
use kube_fanout_informer::{
    Cached, InformerOptions, ListWatch, Notification, Raw, SharedInformer, WatchFailure,
};
use kube_fanout_testkit::apiserver::churn::InitialCount;
use serde::Deserialize;

use cluster::{Cluster, Server};

/// Changes a second in the embedded server.
const CHURN: u32 = 5;
/// Objects of each kind in the embedded server.
const OBJECT_COUNT: u32 = 8;
/// Resources of which the embedded server has objects.
const KINDS: [&str; 5] = [
    "pods",
    "services",
    "endpointslices",
    "configmaps",
    "deployments",
];

/// Resources that can be named without group and version: (group, version, plural).
const WELL_KNOWN: [(&str, &str, &str); 13] = [
    ("", "v1", "configmaps"),
    ("", "v1", "namespaces"),
    ("", "v1", "nodes"),
    ("", "v1", "pods"),
    ("", "v1", "secrets"),
    ("", "v1", "services"),
    ("apps", "v1", "daemonsets"),
    ("apps", "v1", "deployments"),
    ("apps", "v1", "replicasets"),
    ("apps", "v1", "statefulsets"),
    ("batch", "v1", "jobs"),
    ("coordination.k8s.io", "v1", "leases"),
    ("discovery.k8s.io", "v1", "endpointslices"),
];

/// Prints the objects of a resource and then each change
#[derive(Parser)]
struct Flags {
    /// A well-known plural name such as pods, or plural.version.group
    #[arg(default_value = "pods", value_parser = resource)]
    resource: Gvr,
    /// Only objects of this namespace
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// Only objects whose labels match
    #[arg(short = 'l', long, value_name = "SELECTOR", default_value = "")]
    selector: String,
    #[command(flatten)]
    server: Server,
}

fn resource(text: &str) -> Result<Gvr, String> {
    let mut parts = text.splitn(3, '.');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(plural), Some(version), group) => Ok(Gvr::new(group.unwrap_or(""), version, plural)),
        (plural, _, _) => WELL_KNOWN
            .iter()
            .find(|(_, _, known)| Some(*known) == plural)
            .map(|(group, version, plural)| Gvr::new(group, version, plural))
            .ok_or_else(|| {
                "unknown; write plural.version.group, as in widgets.v1.example.com".to_owned()
            }),
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Flags::parse(), &mut io::stdout()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn complain(line: &str) {
    // If standard error is closed, there is nowhere to report it.
    let _ = writeln!(io::stderr(), "watch-printer: {line}");
}

/// A failure and its chain of causes, on one line.
fn told_whole(failure: &WatchFailure) -> String {
    let mut text = failure.to_string();
    let mut cause = failure.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

async fn run(flags: Flags, out: &mut impl Write) -> anyhow::Result<()> {
    let objects = KINDS.map(|resource| InitialCount {
        resource: resource.to_owned(),
        count: OBJECT_COUNT,
    });
    let cluster = Cluster::connect(flags.server, objects.into(), CHURN).await?;
    if let Some(server) = &cluster.embedded {
        complain(&format!(
            "no server was named; using the embedded one at http://{}",
            server.address()
        ));
    }
    let mut list_watch = ListWatch::raw(&flags.resource).with_labels(&flags.selector);
    if let Some(namespace) = &flags.namespace {
        list_watch = list_watch.in_namespace(namespace);
    }
    let options = InformerOptions {
        on_failure: Some(Arc::new(|failure| complain(&told_whole(failure)))),
        ..InformerOptions::default()
    };
    let client = Arc::clone(&cluster.client);
    let informer = SharedInformer::with_options(client, list_watch, options);
    let mut changes = informer.subscribe();
    informer.start();
    let printed = async {
        row(out, ["NAMESPACE", "NAME", "STATUS", "AGE"])?;
        while let Some(change) = changes.next().await {
            print(out, &change)?;
        }
        anyhow::Ok(())
    };
    tokio::select! {
        // Both are cancel-safe: a row is written in one piece.
        printed = printed => printed?,
        over = cluster.over() => over?,
    }
    informer.shutdown().await;
    Ok(())
}

/// The fields that are read of an object of any kind.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Brief {
    metadata: BriefMetadata,
    status: Option<BriefStatus>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct BriefMetadata {
    creation_timestamp: Option<Timestamp>,
    deletion_timestamp: Option<Timestamp>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct BriefStatus {
    phase: Option<String>,
    conditions: Vec<Condition>,
}

#[derive(Deserialize)]
struct Condition {
    r#type: String,
    status: String,
}

impl Brief {
    fn status(&self) -> &str {
        if self.metadata.deletion_timestamp.is_some() {
            return "Terminating";
        }
        let Some(status) = &self.status else {
            return "-";
        };
        let ready = status
            .conditions
            .iter()
            .find(|found| found.r#type == "Ready");
        match (&status.phase, ready) {
            (Some(phase), _) => phase,
            (None, Some(ready)) if ready.status == "True" => "Ready",
            (None, Some(_)) => "NotReady",
            (None, None) => "-",
        }
    }

    fn age(&self, now: Timestamp) -> String {
        let made_at = self.metadata.creation_timestamp;
        made_at.map_or_else(|| "<unknown>".to_owned(), |at| age(now, at))
    }
}

/// An age as kubectl writes it, without the second unit that kubectl adds to small numbers: `7s`, `3m`, `2h`, `5d`.
fn age(now: Timestamp, made_at: Timestamp) -> String {
    // The server's clock may be ahead of ours.
    let seconds = (now - made_at)
        .total(Unit::Second)
        .unwrap_or_default()
        .max(0.0);
    let units = [(86_400.0, 'd'), (3_600.0, 'h'), (60.0, 'm'), (1.0, 's')];
    let (len, letter) = units
        .into_iter()
        .find(|(len, _)| seconds >= 2.0 * len)
        .unwrap_or((1.0, 's'));
    format!("{:.0}{letter}", (seconds / len).floor())
}

fn print(out: &mut impl Write, change: &Notification<Raw>) -> anyhow::Result<()> {
    match change {
        Notification::Added { object, .. } => told(out, object, None),
        Notification::Updated { new, .. } => told(out, new, None),
        Notification::Deleted { object, .. } => told(out, object, Some("Deleted")),
    }
}

fn told(out: &mut impl Write, object: &Cached<Raw>, status: Option<&str>) -> anyhow::Result<()> {
    // An object that cannot be decoded still exists, so its row is printed without details.
    let brief: Brief = object.read().unwrap_or_default();
    let (key, age) = (object.key(), brief.age(Timestamp::now()));
    let status = status.unwrap_or_else(|| brief.status());
    row(out, [key.namespace(), key.name(), status, &age])
}

fn row(out: &mut impl Write, [namespace, name, status, age]: [&str; 4]) -> anyhow::Result<()> {
    Ok(writeln!(
        out,
        "{namespace:<12} {name:<28} {status:<12} {age}"
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn printed(arguments: &[&str]) -> Vec<String> {
        let program = ["watch-printer", "--duration", "1s"];
        let flags = Flags::parse_from(program.iter().chain(arguments));
        let mut out = Vec::new();
        run(flags, &mut out).await.unwrap();
        let text = String::from_utf8(out).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    #[tokio::test]
    async fn each_object_of_a_resource_is_printed() {
        let rows = printed(&["pods"]).await;
        assert!(rows[0].starts_with("NAMESPACE    NAME "), "{rows:?}");
        let first = rows.iter().find(|row| row.contains("pod-000000"));
        assert!(first.unwrap().contains("Running"), "{rows:?}");
        assert!(rows.len() > OBJECT_COUNT as usize, "{rows:?}");
    }

    #[tokio::test]
    async fn a_namespace_and_a_selector_leave_out_what_does_not_match() {
        let rows = printed(&["deployments", "-n", "ns-02", "-l", "tier=batch"]).await;
        assert!(rows.len() > 1, "{rows:?}");
        assert!(
            rows[1..].iter().all(|row| row.starts_with("ns-02")),
            "{rows:?}"
        );
    }

    #[test]
    fn a_resource_is_named_in_short_or_in_full() {
        assert_eq!(
            resource("deployments"),
            Ok(Gvr::new("apps", "v1", "deployments"))
        );
        assert_eq!(resource("pods.v1"), Ok(Gvr::new("", "v1", "pods")));
        assert_eq!(
            resource("widgets.v2.example.com"),
            Ok(Gvr::new("example.com", "v2", "widgets"))
        );
        assert!(resource("widgets").is_err());
    }

    #[test]
    fn ages_are_told_in_the_largest_unit_that_is_reached_twice() {
        let now: Timestamp = "2026-01-10T00:00:00Z".parse().unwrap();
        for (made_at, told) in [
            ("2026-01-10T00:00:05Z", "0s"),
            ("2026-01-09T23:59:53Z", "7s"),
            ("2026-01-09T23:58:30Z", "90s"),
            ("2026-01-09T22:30:00Z", "90m"),
            ("2026-01-01T00:00:00Z", "9d"),
        ] {
            assert_eq!(age(now, made_at.parse().unwrap()), told);
        }
    }
}
