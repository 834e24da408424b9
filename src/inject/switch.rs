//! Percentage, `off` and `on`. Each step says what it did, and a step that fails does not hide the others.

use serde_json::{Value, json};

use super::api::{Api, ApiFailure, text};
use super::names::{NAME, OFF, OFF_GATEWAYS, SERVICE, STANDBY};
use super::plan::Plan;
use super::setup::{self, Setup};
use super::{publisher, status};

/// Injects this many of 100 new pods.
pub(super) async fn percent(api: &Api, namespace: &str, percent: u8) -> (String, bool) {
    let mut steps = Steps::default();
    let done = format!("percent is set to {percent}; pods that run stay as they are");
    steps.add(&done, set_percent(api, namespace, percent).await);
    steps.lines.extend(status::faults(api, namespace).await);
    steps.finish()
}

/// Leads every client to the API servers. Clients of running gateways that come by another Service come back to new ones.
pub(super) async fn off(api: &Api, namespace: &str) -> (String, bool) {
    let mut steps = Steps::default();
    steps.add(
        "no new pod is injected but those labelled true",
        set_percent(api, namespace, 0).await,
    );
    let before = match prepare_standby(api, namespace).await {
        Ok(before) => before,
        Err(reason) => {
            steps.fail(&format!(
                "the stand-by {STANDBY} does not lead to the API servers, so Service and gateways stay as they are: {reason}"
            ));
            return steps.finish();
        }
    };
    // Gateways that came after the first `off` have no clients by this Service, and those that they have are not this command's.
    let noted = match before["spec"]["selector"][OFF].is_null() {
        true => None,
        false => before["metadata"]["annotations"][OFF_GATEWAYS].as_str(),
    };
    let service = lead(api, namespace, json!("true"), json!(noted)).await;
    let selector = service.as_ref().ok().map(selector_of);
    steps.add(
        &format!("Service {SERVICE} leads new connections to the API servers"),
        service.map(drop),
    );
    match selector {
        Some(selector) => end_connections(api, namespace, (&selector, noted), &mut steps).await,
        None => steps.fail("connections to gateways stay open: they would be opened again"),
    }
    steps.finish()
}

/// Brings the API servers into the stand-by, and reads whether they are there. Returns the Service.
async fn prepare_standby(api: &Api, namespace: &str) -> Result<Value, String> {
    let read = async || {
        Setup::read(api, namespace)
            .await
            .map_err(|failure| failure.to_string())
    };
    let planned = Plan::of_standby(&read().await?);
    let mut problems = planned.problems;
    problems.extend(publisher::carry_out(api, &planned.writes).await);
    let setup = read().await?;
    let left = Plan::of_standby(&setup);
    if left == Plan::default() {
        return Ok(setup.service);
    }
    problems.extend(left.problems);
    problems.sort_unstable();
    problems.dedup();
    if problems.is_empty() {
        problems.push("somebody else changes it".to_owned());
    }
    Err(problems.join("; "))
}

/// Leads the clients of injected pods to gateways again.
pub(super) async fn on(api: &Api, namespace: &str) -> (String, bool) {
    let mut steps = Steps::default();
    steps.add(
        &format!("Service {SERVICE} leads new connections to gateways; open ones stay at the API servers until they end"),
        lead(api, namespace, Value::Null, Value::Null).await.map(drop),
    );
    steps.finish()
}

async fn set_percent(api: &Api, namespace: &str, percent: u8) -> Result<(), ApiFailure> {
    let patch = json!({"data": {"percent": percent.to_string()}});
    api.patch(&setup::settings(namespace), &patch)
        .await
        .map(drop)
}

/// Writes the label that no pod has into the Service's selector, and the gateways that `off` has noted, or removes both.
async fn lead(api: &Api, namespace: &str, off: Value, noted: Value) -> Result<Value, ApiFailure> {
    let annotations = json!({OFF_GATEWAYS: noted});
    let patch = json!({"metadata": {"annotations": annotations}, "spec": {"selector": {OFF: off}}});
    api.patch(&setup::service(namespace), &patch).await
}

/// The gateways' own labels, as a label selector in a query.
fn selector_of(service: &Value) -> String {
    let labels = service["spec"]["selector"].as_object();
    let labels = labels.into_iter().flatten().filter(|(key, _)| *key != OFF);
    let labels = labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
    let labels: Vec<String> = labels.collect();
    // The only sign in labels that a query must not have as it is.
    labels.join(",").replace('/', "%2F").replace('=', "%3D")
}

/// Deletes the gateways' pods. Each drains: it ends its watches one after the other, each after a last bookmark, and the kubelet kills it
/// at the end of its grace period, whatever state it is in. Their workload starts others, which get no connection by this Service, and stay
/// if this is repeated: only pods whose uids are `noted` are deleted, or all, which are noted first.
async fn end_connections(
    api: &Api,
    namespace: &str,
    (selector, noted): (&str, Option<&str>),
    steps: &mut Steps,
) {
    if selector.is_empty() {
        return steps.fail(&format!("Service {SERVICE} selects no pods"));
    }
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    let query = format!("labelSelector={selector}");
    let mut found = match api.list(&pods, &query, Value::clone).await {
        Ok(found) => found,
        Err(failure) => return steps.fail(&failure.to_string()),
    };
    if let Some(noted) = noted {
        found.retain(|pod| noted.split(',').any(|one| one == uid(pod)));
    } else {
        let uids: Vec<&str> = found.iter().map(uid).collect();
        let note = lead(api, namespace, json!("true"), json!(uids.join(","))).await;
        if let Err(failure) = note {
            steps.fail(&format!(
                "{failure}: if this is repeated, it ends new gateways too"
            ));
        }
    }
    for pod in &found {
        let name = text(pod, "/metadata/name");
        let deleted = match pod["metadata"]["deletionTimestamp"].is_null() {
            true => api.delete(&format!("{pods}/{name}")).await.map(drop),
            false => Ok(()),
        };
        let deleted = match deleted {
            Err(failure) if failure.is_not_found() => Ok(()),
            deleted => deleted,
        };
        steps.add(&format!("gateway {name} ends its connections"), deleted);
    }
    if found.is_empty() {
        steps.add("no gateway from before runs", Ok(()));
    }
}

fn uid(pod: &Value) -> &str {
    text(pod, "/metadata/uid")
}

/// What was done, a line each.
#[derive(Default)]
struct Steps {
    lines: Vec<String>,
    has_failed: bool,
}

impl Steps {
    fn add(&mut self, done: &str, outcome: Result<(), ApiFailure>) {
        match outcome {
            Ok(()) => self.lines.push(done.to_owned()),
            Err(failure) if failure.is_not_found() => self.fail(&format!(
                "{failure}: is deploy/inject applied, with the ConfigMap {NAME} in this namespace?"
            )),
            Err(failure) => self.fail(&failure.to_string()),
        }
    }

    fn fail(&mut self, line: &str) {
        self.has_failed = true;
        self.lines.push(format!("failed: {line}"));
    }

    fn finish(self) -> (String, bool) {
        let lines = self.lines.join("\n");
        (lines + "\n", !self.has_failed)
    }
}
