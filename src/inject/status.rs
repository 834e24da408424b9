//! `inject status`: what is set up, whose pods are injected, and what is wrong. Changes nothing.

use serde_json::Value;

use super::api::{Api, ApiFailure, text};
use super::names::{INJECTED, LABEL, NAME, OFF, SERVICE, STANDBY};
use super::plan::{Plan, endpoints};
use super::setup::{self, Setup};

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1";

/// Lines for the user, and whether all is as it should be.
#[derive(Default)]
struct Report {
    lines: Vec<String>,
    has_faults: bool,
}

impl Report {
    fn say(&mut self, line: String) {
        self.lines.push(line);
    }

    fn fault(&mut self, line: &str) {
        self.has_faults = true;
        self.lines.push(format!("wrong: {line}"));
    }

    /// Adds what was found, or why it is not known. What one part cannot read hides no other.
    fn add(&mut self, found: Result<(), ApiFailure>) {
        if let Err(failure) = found {
            self.fault(&failure.to_string());
        }
    }
}

/// The report, and whether all is as it should be.
pub(super) async fn report(api: &Api, namespace: &str) -> (String, bool) {
    let mut report = Report::default();
    let policy = policy(api, &mut report).await;
    report.add(policy);
    match Setup::read(api, namespace).await {
        Err(failure) => report.fault(&failure.to_string()),
        Ok(setup) => {
            describe(&setup, &mut report);
            let gateways = gateways(api, &setup, &mut report).await;
            report.add(gateways);
            let pods = pods(api, &setup, &mut report).await;
            report.add(pods);
        }
    }
    (report.lines.join("\n") + "\n", !report.has_faults)
}

/// Whether the policy is there, and whether the cluster knows such policies at all.
async fn policy(api: &Api, report: &mut Report) -> Result<(), ApiFailure> {
    let known = api.get(POLICIES).await?.unwrap_or_default();
    let mut kinds = known["resources"].as_array().into_iter().flatten();
    if !kinds.any(|kind| kind["name"] == "mutatingadmissionpolicies") {
        report.fault(
            "this cluster knows no MutatingAdmissionPolicy of v1, which Kubernetes has since 1.36: no pod is injected",
        );
        return Ok(());
    }
    let mut is_there = true;
    for (kind, what) in [
        ("mutatingadmissionpolicies", "MutatingAdmissionPolicy"),
        (
            "mutatingadmissionpolicybindings",
            "MutatingAdmissionPolicyBinding",
        ),
    ] {
        if api
            .get(&format!("{POLICIES}/{kind}/{NAME}"))
            .await?
            .is_none()
        {
            is_there = false;
            report.fault(&format!("{what} {NAME} is missing: no pod is injected"));
        }
    }
    if is_there {
        report.say("policy: in force".to_owned());
    }
    Ok(())
}

/// Percentage and address, and what the publisher has not done yet or cannot do.
fn describe(setup: &Setup, report: &mut Report) {
    match setup.setting("percent") {
        None => report.say("percent: not set, so no pod is injected".to_owned()),
        Some(percent) => match percent.parse::<u8>() {
            Ok(percent @ 0..=100) => report.say(format!("percent: {percent} of the new pods")),
            _ => report.fault(&format!(
                "percent is {percent:?}, not a whole number from 0 to 100: no pod is injected"
            )),
        },
    }
    if let Some(address) = setup.setting("ip") {
        report.say(format!("address: {address}"));
    }
    report.say(match setup.bundle() {
        Some(_) => "authorities: those of the ConfigMap".to_owned(),
        None => "authorities: the cluster's".to_owned(),
    });
    let servers = endpoints(&setup.standby).count();
    let plan = Plan::of(setup);
    for problem in &plan.problems {
        report.fault(problem);
    }
    match plan.writes.len() {
        0 if plan.problems.is_empty() => {
            report.say(format!("stand-by: {servers} API servers, up to date"));
        }
        0 => {}
        count => report.fault(&format!(
            "{count} objects are not up to date: does the publisher run? Its log says more"
        )),
    }
}

/// Gateways that are ready, by the Service's own EndpointSlices.
async fn gateways(api: &Api, setup: &Setup, report: &mut Report) -> Result<(), ApiFailure> {
    if !setup.service["spec"]["selector"][OFF].is_null() {
        report.say("clients: at the API servers (off)".to_owned());
        return Ok(());
    }
    let namespace = &setup.namespace;
    let path = format!(
        "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3D{SERVICE}"
    );
    let slices = api.get(&path).await?.unwrap_or_default();
    let slices = slices["items"].as_array().into_iter().flatten();
    let slices = slices.filter(|slice| text(slice, "/metadata/name") != STANDBY);
    let (mut ready, mut all) = (0, 0);
    for endpoint in slices.flat_map(endpoints) {
        all += 1;
        ready += usize::from(endpoint["conditions"]["ready"] != false);
    }
    match ready {
        0 => report.fault(&format!(
            "none of {all} gateways is ready: clients are at the API servers"
        )),
        _ => report.say(format!("gateways: {ready} of {all} ready")),
    }
    Ok(())
}

/// The pods of each namespace with the label.
async fn pods(api: &Api, setup: &Setup, report: &mut Report) -> Result<(), ApiFailure> {
    let namespaces = setup::labelled(api, &setup.namespace).await?;
    if namespaces.is_empty() {
        report.say(format!("namespaces: none has the label {LABEL}=true"));
    }
    for namespace in namespaces {
        let pods = api
            .list(&format!("/api/v1/namespaces/{namespace}/pods"), "")
            .await?;
        let is_injected = |pod: &&Value| !pod["metadata"]["annotations"][INJECTED].is_null();
        let injected = pods.iter().filter(is_injected).count();
        let others = pods.len() - injected;
        report.say(format!(
            "namespace {namespace}: {injected} pods injected, {others} not"
        ));
        if setup.bundle().is_some_and(|bundle| {
            let copy = setup.bundles.get(&namespace).and_then(Option::as_deref);
            copy != Some(bundle)
        }) {
            report.fault(&format!(
                "namespace {namespace} has no copy of the authorities: no pod is injected there"
            ));
        }
    }
    Ok(())
}
