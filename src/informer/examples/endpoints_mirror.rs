//! A controller: keeps a ConfigMap with the ready endpoints of every labelled Service.
//!
//! ```text
//! ./kube-fanout example endpoints-mirror
//! ```
//!
//! If no server is named, the example starts one in this process. For ten seconds it then changes Services and EndpointSlices, breaks
//! all watches and modifies copies. Afterwards everything must converge: each labelled Service has its copy, and there is no other copy.
//! The exit code is 0 if it does.

#[path = "cluster.rs"]
mod cluster;
#[path = "endpoints_mirror/mirror.rs"]
mod mirror;
#[path = "endpoints_mirror/requests.rs"]
mod requests;
#[path = "endpoints_mirror/traffic.rs"]
mod traffic;
#[path = "endpoints_mirror/work_queue.rs"]
mod work_queue;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube_fanout_informer::SharedInformerFactory;
use kube_fanout_informer::client::Client;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use cluster::{Cluster, Server};
use mirror::{COPY_OF, Mirror, Outcome, SERVICE_NAME, WANTED};

/// How long copies may take to agree after the last write.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pause between two comparisons of the copies with the Services.
const LOOK_PERIOD: Duration = Duration::from_millis(50);

/// Keeps a ConfigMap with the ready endpoints of every labelled Service
#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    server: Server,
}

#[tokio::main]
async fn main() -> ExitCode {
    let flags = Flags::parse();
    match run(flags).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("endpoints-mirror: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Prints a line. A closed standard output is not a failure.
fn say(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

async fn run(flags: Flags) -> anyhow::Result<()> {
    let cluster = Cluster::connect(flags.server, Vec::new(), 0).await?;
    let client = Arc::clone(&cluster.client);
    let factory = SharedInformerFactory::new(Arc::clone(&client));
    let mirror = Mirror::new(Arc::clone(&client), &factory)?;
    factory.start();
    factory.wait_for_cache_sync().await?;
    say("the local stores have synced");
    let working = tokio::spawn(Arc::clone(&mirror).work(|service, outcome| match outcome {
        Ok(Outcome::Unchanged) => {}
        Ok(outcome) => say(&format!("{service}: {outcome}")),
        Err(error) => say(&format!("{service}: {error:#}; will retry")),
    }));

    match (&cluster.embedded, cluster.until) {
        (Some(server), Some(until)) => {
            let done = traffic::make(&client, server, until).await?;
            say(&format!(
                "made {} writes and broke all watches {} times; waiting for the copies to agree",
                done.writes, done.breaks
            ));
        }
        (None, _) | (Some(_), None) => cluster.over().await?,
    }
    let settled = settled(&client).await;
    mirror.stop();
    working.await?;
    factory.shutdown().await;
    let count = settled?;
    say(&format!(
        "each of the {count} labelled services has its copy, and there are no other copies"
    ));
    Ok(())
}

/// Waits until the copies on the server match the labelled services; returns the number of copies.
async fn settled(client: &Client) -> anyhow::Result<usize> {
    let until = Instant::now() + PATIENCE;
    loop {
        let (wanted, there) = (wanted(client).await?, copies(client).await?);
        if wanted == there {
            return Ok(there.len());
        }
        let told = timeout_at(until, tokio::time::sleep(LOOK_PERIOD)).await;
        told.with_context(|| {
            format!("the copies did not converge: expected {wanted:#?}, found {there:#?}")
        })?;
    }
}

/// `namespace/service` → endpoints, from the server's services and slices, read without an informer.
async fn wanted(client: &Client) -> anyhow::Result<BTreeMap<String, String>> {
    let services = format!("/api/v1/services?labelSelector={WANTED}%3Dtrue");
    let services = requests::list(client, &services).await?;
    let slices = requests::list(client, "/apis/discovery.k8s.io/v1/endpointslices").await?;
    let mut of_service: BTreeMap<String, Vec<EndpointSlice>> = BTreeMap::new();
    for slice in slices {
        let service = key(&slice, &slice["metadata"]["labels"][SERVICE_NAME]);
        let slice = serde_json::from_value(slice)?;
        of_service.entry(service).or_default().push(slice);
    }
    let endpoints = |service: Value| {
        let key = key(&service, &service["metadata"]["name"]);
        let slices = of_service.get(&key).into_iter().flatten();
        (key, mirror::endpoints_of(slices))
    };
    Ok(services.into_iter().map(endpoints).collect())
}

/// `namespace/service` → endpoints, from the copies.
async fn copies(client: &Client) -> anyhow::Result<BTreeMap<String, String>> {
    let copies = format!("/api/v1/configmaps?labelSelector={COPY_OF}");
    let copies = requests::list(client, &copies).await?;
    let entry = |copy: Value| {
        let endpoints = copy["data"]["endpoints"].as_str().unwrap_or_default();
        (
            key(&copy, &copy["metadata"]["labels"][COPY_OF]),
            endpoints.to_owned(),
        )
    };
    Ok(copies.into_iter().map(entry).collect())
}

fn key(object: &Value, name: &Value) -> String {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!("{}/{}", word(&object["metadata"]["namespace"]), word(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_short_run_settles() {
        let flags = Flags::parse_from(["endpoints-mirror", "--duration", "3s"]);
        run(flags).await.unwrap();
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_told_in_one_line() {
        // Connecting sends no request, so a server that is down would only delay the first list. An unreadable kubeconfig fails at once.
        let flags = Flags::parse_from(["endpoints-mirror", "--kubeconfig", "/nonexistent"]);
        let error = run(flags).await.unwrap_err();
        assert!(format!("{error:#}").contains("/nonexistent"), "{error:#}");
    }
}
