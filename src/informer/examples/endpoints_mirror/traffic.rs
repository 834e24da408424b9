//! Other writers: services and endpoint slices are created, changed and deleted, and copies are modified now and then.

use http::{Method, StatusCode};
use kube_fanout_informer::client::Client;
use kube_fanout_informer::resource::random;
use kube_fanout_testkit::apiserver::Apiserver;
use kube_fanout_testkit::apiserver::faults::{Fault, FaultOrder};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

use crate::mirror::{self, copy_name};
use crate::requests::send;

const NAMESPACES: [&str; 2] = ["bank", "shop"];
const SERVICE_COUNT: u64 = 12;
const SLICES_PER_SERVICE: u64 = 3;
const ADDRESSES_MAX: u64 = 4;
/// Pause between two writes.
const PAUSE: Duration = Duration::from_millis(20);
/// Time between two interruptions of all watches.
const BREAK_PERIOD: Duration = Duration::from_secs(2);

/// Counts of what was done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Done {
    pub(crate) writes: u64,
    pub(crate) breaks: u64,
}

/// Makes random writes, and breaks watches, until `until`.
pub(crate) async fn make(
    client: &Client,
    server: &Apiserver,
    until: Instant,
) -> anyhow::Result<Done> {
    let mut done = Done::default();
    let mut breaks_at = Instant::now() + BREAK_PERIOD;
    while Instant::now() < until {
        write_something(client).await?;
        done.writes += 1;
        if Instant::now() >= breaks_at {
            // Watches end before the history is compacted, so that some informers miss events that are no longer in it.
            break_watches(server, done.breaks)?;
            done.breaks += 1;
            breaks_at += BREAK_PERIOD;
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(done)
}

fn break_watches(server: &Apiserver, round: u64) -> anyhow::Result<()> {
    let order = |fault| FaultOrder {
        fault,
        verb: None,
        resource: None,
        count: 1,
    };
    server.order(order(Fault::EndWatches))?;
    if round.is_multiple_of(2) {
        server.order(order(Fault::Compact))?;
    }
    Ok(())
}

fn any(count: u64) -> u64 {
    random() % count
}

async fn write_something(client: &Client) -> anyhow::Result<()> {
    let number = any(SERVICE_COUNT);
    let namespace = NAMESPACES[usize::try_from(number)? % NAMESPACES.len()];
    let service = format!("service-{number:02}");
    match any(20) {
        0..4 => put(client, namespace, "services", new_service(&service)).await,
        4 => remove(client, namespace, "services", &service).await,
        5..7 => relabel(client, namespace, &service).await,
        7..16 => {
            let slice = new_slice(&service, any(SLICES_PER_SERVICE));
            put(client, namespace, "endpointslices", slice).await
        }
        16..18 => {
            let slice = format!("{service}-{}", any(SLICES_PER_SERVICE));
            remove(client, namespace, "endpointslices", &slice).await
        }
        18 => remove(client, namespace, "configmaps", &copy_name(&service)).await,
        _ => {
            let path = path(namespace, "configmaps", &copy_name(&service));
            let spoilt = json!({"data": {"endpoints": "nobody's"}});
            ignore_missing(send(client, Method::PATCH, &path, Some(&spoilt)).await?)
        }
    }
}

fn new_service(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "labels": {mirror::WANTED: "true"}},
        "spec": {"ports": [{"port": 80, "protocol": "TCP"}]},
    })
}

fn new_slice(service: &str, number: u64) -> Value {
    let endpoint = |place| {
        json!({
            "addresses": [format!("10.{}.{number}.{place}", any(256))],
            "conditions": {"ready": any(4) > 0},
        })
    };
    let endpoints: Vec<Value> = (0..any(ADDRESSES_MAX + 1)).map(endpoint).collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": format!("{service}-{number}"), "labels": {mirror::SERVICE_NAME: service}},
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
    })
}

fn path(namespace: &str, resource: &str, name: &str) -> String {
    let group = match resource {
        "endpointslices" => "/apis/discovery.k8s.io/v1",
        _ => "/api/v1",
    };
    let path = format!("{group}/namespaces/{namespace}/{resource}");
    if name.is_empty() {
        path
    } else {
        format!("{path}/{name}")
    }
}

/// Patches an object, or creates it if it does not exist.
async fn put(
    client: &Client,
    namespace: &str,
    resource: &str,
    object: Value,
) -> anyhow::Result<()> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let there = path(namespace, resource, name);
    let answer = send(client, Method::PATCH, &there, Some(&object)).await?;
    if answer.0 == StatusCode::NOT_FOUND {
        let path = path(namespace, resource, "");
        return ignore_missing(send(client, Method::POST, &path, Some(&object)).await?);
    }
    ignore_missing(answer)
}

async fn remove(
    client: &Client,
    namespace: &str,
    resource: &str,
    name: &str,
) -> anyhow::Result<()> {
    let path = path(namespace, resource, name);
    ignore_missing(send(client, Method::DELETE, &path, None).await?)
}

/// Removes the label that requests a copy, or sets it again.
async fn relabel(client: &Client, namespace: &str, service: &str) -> anyhow::Result<()> {
    let label = match any(2) {
        0 => Value::Null,
        _ => "true".into(),
    };
    let change = json!({"metadata": {"labels": {mirror::WANTED: label}}});
    let path = path(namespace, "services", service);
    ignore_missing(send(client, Method::PATCH, &path, Some(&change)).await?)
}

/// Accepts 404 and 409: the object of a random write may not exist, or the mirror may be writing it at the same time.
fn ignore_missing((status, answer): (StatusCode, Value)) -> anyhow::Result<()> {
    let fine = matches!(status, StatusCode::NOT_FOUND | StatusCode::CONFLICT);
    anyhow::ensure!(
        status.is_success() || fine,
        "{status}: {}",
        answer["message"]
    );
    Ok(())
}
