//! Percentage, `off` and `on`. Each step says what it did, and a step that fails does not hide the others.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::api::{Api, ApiFailure, text};
use super::names::{NAME, OFF, OFF_SINCE, SERVICE, STANDBY};
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
    let since = match before["spec"]["selector"][OFF].is_null() {
        true => None,
        false => before["metadata"]["annotations"][OFF_SINCE].as_str(),
    };
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let service = lead(api, namespace, json!("true"), json!(since.unwrap_or(&now))).await;
    let selector = service.as_ref().ok().map(selector_of);
    steps.add(
        &format!("Service {SERVICE} leads new connections to the API servers"),
        service.map(drop),
    );
    match selector {
        Some(selector) => end_connections(api, namespace, (&selector, since), &mut steps).await,
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

/// Writes the label that no pod has into the Service's selector, and since when, or removes both.
async fn lead(api: &Api, namespace: &str, off: Value, since: Value) -> Result<Value, ApiFailure> {
    let patch =
        json!({"metadata": {"annotations": {OFF_SINCE: since}}, "spec": {"selector": {OFF: off}}});
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
/// if this is repeated: only pods from before `since` are deleted, or all.
async fn end_connections(
    api: &Api,
    namespace: &str,
    (selector, since): (&str, Option<&str>),
    steps: &mut Steps,
) {
    if selector.is_empty() {
        return steps.fail(&format!("Service {SERVICE} selects no pods"));
    }
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    // Both times are UTC in whole seconds, so their text has their order.
    let concerned = |pod: &Value| {
        let is_concerned =
            since.is_none_or(|since| text(pod, "/metadata/creationTimestamp") < since);
        let is_ending = !pod["metadata"]["deletionTimestamp"].is_null();
        is_concerned.then(|| (text(pod, "/metadata/name").to_owned(), is_ending))
    };
    let query = format!("labelSelector={selector}");
    let found = match api.list(&pods, &query, concerned).await {
        Ok(found) => found,
        Err(failure) => return steps.fail(&failure.to_string()),
    };
    let found: Vec<_> = found.into_iter().flatten().collect();
    for (name, is_ending) in &found {
        let deleted = match !is_ending {
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
