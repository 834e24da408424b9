//! Credentials from an exec plugin (client.authentication.k8s.io), obtained as client-go does.
//!
//! The plugin runs once for each reading of the configuration, with a time limit, and its output is never shown.

use std::io::{self, Read};
#[cfg(feature = "gateway")]
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use jiff::Timestamp;
use kube_client::config::{ExecConfig, ExecInteractiveMode};
#[cfg(feature = "gateway")]
use rustix::fs::{Access, access};
use serde::{Deserialize, Serialize};

use super::ConnectError;

/// Time limit of a plugin that may ask a person. Other plugins ask a server.
const INTERACTIVE_TIME_MAX: Duration = Duration::from_secs(300);
const TIME_MAX: Duration = Duration::from_secs(60);
/// How often the exit is checked after the plugin has closed its output. It has little left to do then.
const EXIT_POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Longest output that is read. A certificate and its key take a few kilobytes.
const OUTPUT_LEN_MAX: u64 = 1 << 20;

/// Whether the plugin's program is there and can be run, without running it.
///
/// # Errors
/// It is not, neither at its path nor, without one, in the folders of `PATH`.
#[cfg(feature = "gateway")]
pub(super) fn find(plugin: &ExecConfig) -> Result<(), ConnectError> {
    let program = Path::new(plugin.command.as_deref().unwrap_or_default());
    #[expect(
        clippy::disallowed_methods,
        reason = "the system looks for the program there, too"
    )]
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places: Vec<_> = match program.to_string_lossy().contains('/') {
        true => vec![program.to_owned()],
        false => std::env::split_paths(&path)
            .map(|folder| folder.join(program))
            .collect(),
    };
    let found: Vec<_> = places.iter().filter(|place| place.is_file()).collect();
    let problem = match found.is_empty() {
        true => "is not there",
        false
            if found
                .iter()
                .any(|place| access(*place, Access::EXEC_OK).is_ok()) =>
        {
            return Ok(());
        }
        false => "is not executable",
    };
    Err(ConnectError::Credentials {
        reason: format!("the plugin {} {problem}", program.display()),
    })
}

/// The credentials that a plugin returns. They are secret: no error and no log line contains them.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ExecCredentialStatus {
    pub(super) token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
    expiration_timestamp: Option<String>,
}

impl ExecCredentialStatus {
    /// The client certificate and its key, both PEM.
    pub(super) fn identity(&self) -> Option<(&str, &str)> {
        let (cert, key) = (&self.client_certificate_data, &self.client_key_data);
        Some((cert.as_deref()?, key.as_deref()?))
    }

    /// When the credentials expire, if the plugin says so.
    pub(super) fn expires_at(&self) -> Option<Timestamp> {
        self.expiration_timestamp.as_deref()?.parse().ok()
    }

    /// What is wrong with the credentials, if anything.
    fn fault(&self) -> Option<&'static str> {
        let has_cert = is_filled(self.client_certificate_data.as_deref());
        if has_cert != is_filled(self.client_key_data.as_deref()) {
            return Some("it returned a certificate without key or a key without certificate");
        }
        if !has_cert && !is_filled(self.token.as_deref()) {
            return Some("it returned neither a token nor a certificate");
        }
        let is_bad_time = self.expiration_timestamp.is_some() && self.expires_at().is_none();
        is_bad_time.then_some("its expirationTimestamp is not a timestamp")
    }
}

fn is_filled(text: Option<&str>) -> bool {
    text.is_some_and(|text| !text.is_empty())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredential {
    api_version: Option<String>,
    kind: Option<String>,
    status: Option<ExecCredentialStatus>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredentialInput<'a> {
    api_version: &'a str,
    kind: &'static str,
    spec: Spec<'a>,
}

#[derive(Serialize)]
struct Spec<'a> {
    interactive: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<&'a kube_client::config::ExecAuthCluster>,
}

/// Runs the plugin once, within its time limit.
pub(super) async fn run(plugin: &ExecConfig) -> Result<ExecCredentialStatus, ConnectError> {
    let name = plugin.command.as_deref().unwrap_or_default();
    let failed = |reason: &str| ConnectError::Credentials {
        reason: format!("exec plugin {name}: {reason}"),
    };
    let is_interactive = plugin.interactive_mode != Some(ExecInteractiveMode::Never);
    let time_max = if is_interactive {
        INTERACTIVE_TIME_MAX
    } else {
        TIME_MAX
    };
    let child = command(plugin, is_interactive)
        .map_err(|reason| failed(&reason))?
        .spawn()
        .map_err(|error| failed(&format!("cannot be run: {error}")))?;
    let mut running = RunningPlugin(child);
    let ended = tokio::time::timeout(time_max, read_output(&mut running.0))
        .await
        .map_err(|_elapsed| failed("it took too long"))?;
    let (printed, status) = ended.map_err(|error| failed(&error.to_string()))?;
    if !status.success() {
        return Err(failed(&format!("it failed with {status}")));
    }
    parse(&printed, plugin.api_version.as_deref()).map_err(failed)
}

/// A plugin that does not outlive the wait for it.
struct RunningPlugin(Child);

impl Drop for RunningPlugin {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            // A plugin cannot ignore SIGKILL, so waiting for its exit takes little time.
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

/// Reads what a plugin prints and waits for its exit.
async fn read_output(child: &mut Child) -> io::Result<(Vec<u8>, ExitStatus)> {
    let mut printed = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        printed = tokio::task::spawn_blocking(move || {
            let mut printed = Vec::new();
            stdout.take(OUTPUT_LEN_MAX).read_to_end(&mut printed)?;
            Ok::<_, io::Error>(printed)
        })
        .await??;
    }
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((printed, status));
        }
        tokio::time::sleep(EXIT_POLL_INTERVAL).await;
    }
}

fn command(plugin: &ExecConfig, is_interactive: bool) -> Result<Command, String> {
    let program = plugin
        .command
        .as_deref()
        .filter(|name| !name.is_empty())
        .ok_or("it has no command")?;
    let cluster = plugin
        .cluster
        .as_ref()
        .filter(|_| plugin.provide_cluster_info);
    let input = ExecCredentialInput {
        api_version: plugin.api_version.as_deref().unwrap_or_default(),
        kind: "ExecCredential",
        spec: Spec {
            interactive: is_interactive,
            cluster,
        },
    };
    let input = serde_json::to_string(&input).map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command
        .args(plugin.args.iter().flatten())
        .env("KUBERNETES_EXEC_INFO", input)
        .stdout(Stdio::piped())
        // The plugin's messages go to the gateway's stderr.
        .stderr(Stdio::inherit())
        .stdin(if is_interactive {
            Stdio::inherit()
        } else {
            Stdio::null()
        });
    for variable in plugin.env.iter().flatten() {
        if let (Some(name), Some(value)) = (variable.get("name"), variable.get("value")) {
            command.env(name, value);
        }
    }
    Ok(command)
}

/// Parses the output, which is JSON or YAML. Errors contain nothing of it.
fn parse(printed: &[u8], api_version: Option<&str>) -> Result<ExecCredentialStatus, &'static str> {
    let credential: ExecCredential =
        serde_saphyr::from_slice(printed).map_err(|_| "it printed no ExecCredential")?;
    if credential.kind.as_deref() != Some("ExecCredential") {
        return Err("it printed no ExecCredential");
    }
    if credential.api_version.as_deref() != api_version {
        return Err("it printed another apiVersion than the requested one");
    }
    let issued = credential.status.ok_or("it returned no status")?;
    issued.fault().map_or(Ok(issued), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERSION: &str = "client.authentication.k8s.io/v1";

    fn parsed(status: &str) -> Result<ExecCredentialStatus, &'static str> {
        let text = format!(
            r#"{{"apiVersion": "{VERSION}", "kind": "ExecCredential", "status": {status}}}"#
        );
        parse(text.as_bytes(), Some(VERSION))
    }

    #[test]
    fn answers_are_taken_as_client_go_takes_them() {
        let issued = parsed(r#"{"token": "t", "expirationTimestamp": "2026-01-01T00:00:00Z"}"#);
        let issued = issued.ok().unwrap();
        assert_eq!(issued.token.as_deref(), Some("t"));
        assert_eq!(issued.expires_at().unwrap().as_second(), 1_767_225_600);
        assert!(issued.identity().is_none());
        let issued = parsed(r#"{"clientCertificateData": "c", "clientKeyData": "k"}"#);
        assert_eq!(issued.ok().unwrap().identity(), Some(("c", "k")));
        for (status, expected) in [
            ("null", "no status"),
            ("{}", "neither"),
            (r#"{"token": ""}"#, "neither"),
            (r#"{"clientCertificateData": "c"}"#, "without key"),
            (
                r#"{"token": "t", "clientKeyData": "k"}"#,
                "without certificate",
            ),
            (
                r#"{"token": "t", "expirationTimestamp": "soon"}"#,
                "not a timestamp",
            ),
            (r#"{"token": 7}, "secret": ["#, "no ExecCredential"),
        ] {
            let fault = parsed(status).err().unwrap();
            assert!(fault.contains(expected), "{status}: {fault}");
        }
        let other =
            format!("apiVersion: {VERSION}beta1\nkind: ExecCredential\nstatus: {{token: t}}");
        assert!(parse(other.as_bytes(), Some(VERSION)).is_err());
        assert!(parse(b"kind: Pod\nstatus: {token: t}", None).is_err());
    }

    fn shell(script: &str) -> ExecConfig {
        let text = serde_json::json!({
            "apiVersion": VERSION,
            "command": "sh",
            "args": ["-c", script],
            "env": [{"name": "GIVEN", "value": "from-env"}],
            "interactiveMode": "Never",
        });
        serde_json::from_value(text).unwrap()
    }

    #[tokio::test]
    async fn a_plugin_gets_what_is_configured_and_its_secrets_are_in_no_error() {
        let print = r#"echo "{apiVersion: client.authentication.k8s.io/v1, kind: ExecCredential, status: {token: $GIVEN}}""#;
        let issued = run(&shell(print)).await.ok().unwrap();
        assert_eq!(issued.token.as_deref(), Some("from-env"));
        let check_input =
            r#"case "$KUBERNETES_EXEC_INFO" in *'"interactive":false'*) ;; *) exit 3;; esac; "#;
        run(&shell(&format!("{check_input}{print}")))
            .await
            .ok()
            .unwrap();
        for script in ["echo SECRET; exit 1", "echo SECRET", "echo 'kind: [SECRET'"] {
            let text = run(&shell(script)).await.err().unwrap().to_string();
            assert!(
                text.starts_with("cannot get credentials: exec plugin sh: "),
                "{text}"
            );
            assert!(!text.contains("SECRET"), "{text}");
        }
        let mut missing = shell("");
        missing.command = Some("/nonexistent/plugin".to_owned());
        let text = run(&missing).await.err().unwrap().to_string();
        assert!(
            text.contains("/nonexistent/plugin: cannot be run"),
            "{text}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_plugin_that_hangs_is_given_up() {
        let text = run(&shell("exec >&-; exec sleep 600"))
            .await
            .err()
            .unwrap()
            .to_string();
        assert!(text.contains("took too long"), "{text}");
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_plugin_is_killed_when_its_caller_is_dropped() {
        let path = std::env::temp_dir().join(format!("kube-fanout-plugin-{}", std::process::id()));
        let script = format!("echo $$ >{}; exec sleep 600", path.display());
        let waiting = tokio::spawn(async move { run(&shell(&script)).await.is_ok() });
        let pid = loop {
            let written = std::fs::read_to_string(&path).unwrap_or_default();
            match written.trim_end().parse::<u32>() {
                Ok(pid) if written.ends_with('\n') => break pid,
                _ => tokio::time::sleep(EXIT_POLL_INTERVAL).await,
            }
        };
        std::fs::remove_file(&path).unwrap();
        waiting.abort();
        assert!(waiting.await.unwrap_err().is_cancelled());
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }
}
