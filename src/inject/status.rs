//! `inject status`: what is set up, whose pods are injected, and what is wrong. Changes nothing.

use std::collections::BTreeMap;

use serde_json::Value;

use super::api::{Api, ApiFailure, text};
use super::names::{INJECTED, LABEL, NAME, OFF, SERVICE, STANDBY};
use super::plan::{Plan, endpoints};
use super::setup::{self, BundleCopy, Setup};
use crate::config::inject_percent;

const FAULT: &str = "wrong: ";
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
        self.lines.push(format!("{FAULT}{line}"));
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
    if let Some(setup) = objects(api, namespace, &mut report).await {
        let pods = pods(api, &setup, &mut report).await;
        report.add(pods);
    }
    (report.lines.join("\n") + "\n", !report.has_faults)
}

/// What is wrong with the objects, a line each.
pub(super) async fn faults(api: &Api, namespace: &str) -> Vec<String> {
    let mut report = Report::default();
    objects(api, namespace, &mut report).await;
    let mut lines = report.lines;
    lines.retain(|line| line.starts_with(FAULT));
    lines
}

/// All but the pods. Returns what is set up, if it can be read.
async fn objects(api: &Api, namespace: &str, report: &mut Report) -> Option<Setup> {
    let policy = policy(api, report).await;
    report.add(policy);
    match Setup::read(api, namespace).await {
        Err(failure) => {
            report.fault(&failure.to_string());
            None
        }
        Ok(setup) => {
            describe(&setup, report);
            let gateways = gateways(api, &setup, report).await;
            report.add(gateways);
            Some(setup)
        }
    }
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
        Some(percent) => match inject_percent(percent) {
            Some(percent) => report.say(format!("percent: {percent} of the new pods")),
            None => report.fault(&format!(
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

/// The pods of namespaces with the label, and those that are injected elsewhere: they came before the label was removed.
async fn pods(api: &Api, setup: &Setup, report: &mut Report) -> Result<(), ApiFailure> {
    let labelled = setup::labelled(api, &setup.namespace).await?;
    if labelled.is_empty() {
        report.say(format!("namespaces: none has the label {LABEL}=true"));
    }
    let place = |pod: &Value| {
        let is_injected = !pod["metadata"]["annotations"][INJECTED].is_null();
        let namespace = text(pod, "/metadata/namespace");
        let is_counted = is_injected || labelled.iter().any(|name| name == namespace);
        is_counted.then(|| (namespace.to_owned(), is_injected))
    };
    let pods = api.list("/api/v1/pods", "", place).await?;
    let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for name in &labelled {
        counts.insert(name, (0, 0));
    }
    for (namespace, is_injected) in pods.iter().flatten() {
        let (injected, others) = counts.entry(namespace).or_default();
        *(if *is_injected { injected } else { others }) += 1;
    }
    let all: usize = counts.values().map(|(injected, _)| injected).sum();
    report.say(format!("pods of the cluster that are injected: {all}"));
    for (namespace, (injected, others)) in counts {
        let Some(name) = labelled.iter().find(|name| *name == namespace) else {
            report.say(format!(
                "namespace {namespace}: {injected} pods injected, without the label"
            ));
            continue;
        };
        report.say(format!(
            "namespace {name}: {injected} pods injected, {others} not"
        ));
        let copy = setup.copies.as_ref().and_then(|copies| copies.get(name));
        if matches!(copy, Some(BundleCopy::Different | BundleCopy::Absent)) {
            report.fault(&format!(
                "namespace {name} has no copy of the authorities: no pod is injected there"
            ));
        }
    }
    Ok(())
}
