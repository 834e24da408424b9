//! A scenario's process: a subcommand of this program with the addresses of the servers, which writes its figures as JSON.

use std::path::Path;

use anyhow::{Context, Result, bail};

use super::plan::RunPlan;
use super::servers::{Endpoint, Servers};
use crate::report::RunReport;

/// Starts the servers, runs the scenario, and reads the figures. `servers` knows all started processes, also when this future is dropped.
/// Wrong answers are faults, not errors.
pub async fn play(planned: &RunPlan, servers: &mut Servers) -> Result<RunReport> {
    let (api, gateway) = servers.start(planned).await?;
    let json = servers.json();
    // A file of an earlier run must not be taken for this one's.
    let _ = std::fs::remove_file(&json);
    let process = servers.play(&arguments(planned, &api, gateway.as_ref(), &json))?;
    let status = process.wait_for_end(planned.limit).await?;
    let text = std::fs::read(&json)
        .with_context(|| format!("the scenario ended without figures: {status}"))?;
    let found: RunReport =
        serde_json::from_slice(&text).with_context(|| json.display().to_string())?;
    if !status.success() && found.faults.is_empty() {
        bail!("the scenario failed without a fault: {status}");
    }
    Ok(found)
}

/// The command line of the scenario: its own flags, and the servers.
pub fn arguments(
    planned: &RunPlan,
    api: &Endpoint,
    gateway: Option<&Endpoint>,
    json: &Path,
) -> Vec<String> {
    let mut words = planned.play.clone();
    let mut put = |flag: &str, value: String| words.extend([flag.to_owned(), value]);
    let under_test = gateway.unwrap_or(api);
    put("--target", under_test.url.clone());
    if let Some(ca) = &under_test.ca {
        put("--ca", ca.display().to_string());
    }
    if let Some(token) = &under_test.token {
        put("--token", format!("@{}", token.display()));
    }
    put("--server-pid", under_test.pid.to_string());
    if gateway.is_some() {
        put("--reference", api.url.clone());
        if let Some(ca) = &api.ca {
            put("--reference-ca", ca.display().to_string());
        }
        put("--upstream-pid", api.pid.to_string());
        if let Some(url) = &under_test.admin_url {
            put("--server-admin", url.clone());
        }
    }
    put("--json", json.display().to_string());
    words
}
