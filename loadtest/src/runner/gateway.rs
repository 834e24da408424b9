//! A gateway that a scenario starts by itself, in a process that ends with this one.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;
use tokio::process::Command;

use super::process::ChildProcess;
use super::{arguments, guarded};

/// Time from the start of the process until it serves; it reads the API server's discovery in between.
const START_WAIT: Duration = Duration::from_secs(30);

/// A gateway on a port of the system's choice, unless its flags name one.
#[derive(Debug)]
pub struct GatewayProcess {
    pub process: ChildProcess,
    pub url: String,
    pub admin_url: String,
}

impl GatewayProcess {
    /// Starts a gateway with these flags, and waits until it serves: over TLS if they name a certificate. Its log is in `folder`.
    pub async fn start(program: &Path, folder: &Path, flags: &[String]) -> Result<Self> {
        let words = "serve --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 --log-format json";
        let mut arguments = arguments::split(words);
        arguments::add(&mut arguments, flags);
        let scheme = match arguments::value(&arguments, "--tls-cert") {
            Some(_) => "https",
            None => {
                arguments.push("--plain-http".to_owned());
                "http"
            }
        };
        let mut command = Command::new(std::env::current_exe()?);
        command.args(guarded::arguments(program, &arguments));
        let mut process = ChildProcess::start("gateway", command, folder)?;
        let address = process.address(START_WAIT).await;
        let address = address.with_context(|| process.last_lines())?;
        // The same line names both.
        let admin = process.logged("admin")?.context("no admin address")?;
        Ok(Self {
            process,
            url: format!("{scheme}://{address}"),
            admin_url: format!("http://{admin}"),
        })
    }
}

/// A kubeconfig for one server and one caller.
pub fn kubeconfig(url: &str, ca: Option<&Path>, token: Option<&str>) -> String {
    let named = |what: &str, value: serde_json::Value| json!([{"name": "upstream", what: value}]);
    let mut cluster = json!({"server": url});
    if let Some(ca) = ca {
        cluster["certificate-authority"] = json!(ca);
    }
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "upstream",
        "clusters": named("cluster", cluster),
        "users": named("user", json!({"token": token})),
        "contexts": named("context", json!({"cluster": "upstream", "user": "upstream"})),
    })
    .to_string()
}
