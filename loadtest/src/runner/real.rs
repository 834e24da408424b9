//! A real API server for a run, by the script of the real suites, with its own ports and state.

use std::ffi::OsStr;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::process::{Child, Command};

/// Below the ephemeral ports, so that a swarm's connections do not take them.
const PORTS: std::ops::Range<u16> = 21_000..30_000;
/// For HTTPS, etcd's clients and etcd's peers.
const PORT_COUNT: usize = 3;
/// Building the server takes some minutes, the first time.
const INSTALL_WAIT: Duration = Duration::from_secs(1_200);
/// The script itself waits 90 s at most.
const START_WAIT: Duration = Duration::from_secs(120);
/// The script itself waits 15 s for each process.
const STOP_WAIT: Duration = Duration::from_secs(45);

/// The server, from before it starts until it is stopped.
#[derive(Debug)]
pub struct RealServer {
    script: PathBuf,
    state: PathBuf,
    ports: Vec<u16>,
    /// The running script; it must not be interrupted between starting a process and writing its id.
    working: Option<Child>,
    /// Whether processes may run that have not been stopped.
    started: bool,
}

impl RealServer {
    /// Chooses ports, and starts nothing yet.
    pub fn new(script: &Path, folder: &Path) -> Result<Self> {
        ensure!(
            script.is_file(),
            "{} is missing: --real-apiserver FILE",
            script.display()
        );
        let state = folder.join("real");
        // State of an earlier run: every run has its own data.
        let _ = std::fs::remove_dir_all(&state);
        std::fs::create_dir_all(&state)?;
        let (script, ports) = (script.canonicalize()?, free_ports()?);
        Ok(Self {
            script,
            state,
            ports,
            working: None,
            started: false,
        })
    }

    /// Builds the server if needed, and starts it; returns when it is ready.
    pub async fn start(&mut self) -> Result<()> {
        self.perform("install", INSTALL_WAIT).await?;
        self.started = true;
        self.perform("start", START_WAIT).await
    }

    /// Stops the server and its etcd by their ids, as far as they have started.
    pub async fn stop(&mut self) -> Result<()> {
        if let Some(mut working) = self.working.take() {
            let _ = tokio::time::timeout(START_WAIT, working.wait()).await;
        }
        self.started = false;
        self.perform("stop", STOP_WAIT).await
    }

    async fn perform(&mut self, verb: &str, wait: Duration) -> Result<()> {
        let log = self.log();
        let file = std::fs::File::options()
            .create(true)
            .append(true)
            .open(&log)?;
        let mut command = Command::new(&self.script);
        command
            .arg(verb)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .process_group(0);
        command.env("REAL_APISERVER_STATE", &self.state);
        let names = [
            "REAL_APISERVER_PORT",
            "REAL_APISERVER_ETCD_PORT",
            "REAL_APISERVER_PEER_PORT",
        ];
        command.envs(names.iter().zip(self.ports.iter().map(u16::to_string)));
        let working = self.working.insert(command.spawn()?);
        let status = tokio::time::timeout(wait, working.wait()).await;
        let status = status.with_context(|| format!("{verb}: not finished after {wait:?}"))??;
        self.working = None;
        ensure!(
            status.success(),
            "{} {verb}: {status}",
            self.script.file_name().unwrap_or(OsStr::new("")).display()
        );
        Ok(())
    }

    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.ports[0])
    }

    /// A file with credentials: `ca.crt`, `admin.token`, and a certificate for 127.0.0.1, `server.crt` and `server.key`.
    pub fn credential(&self, name: &str) -> PathBuf {
        self.state.join("pki").join(name)
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.credential(&format!("kubeconfig-{}", self.ports[0]))
    }

    /// The process id of the API server.
    pub fn pid(&self) -> Result<u32> {
        let file = self.state.join("run/real-apiserver.pid");
        let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        text.trim()
            .parse()
            .with_context(|| file.display().to_string())
    }

    pub fn log(&self) -> PathBuf {
        self.state.join("script.log")
    }
}

impl Drop for RealServer {
    /// Needed after a panic only: [`RealServer::stop`] does it otherwise. The script waits for a bounded time.
    fn drop(&mut self) {
        if self.started {
            let mut script = std::process::Command::new(&self.script);
            let _ = script
                .arg("stop")
                .env("REAL_APISERVER_STATE", &self.state)
                .stdin(Stdio::null())
                .stderr(Stdio::null())
                .status();
        }
    }
}

/// Ports that are free. All are bound until the last is found, so they differ.
fn free_ports() -> Result<Vec<u16>> {
    // Concurrent runs start their search at different ports.
    let first = PORTS.start
        + u16::try_from(std::process::id() % u32::from(PORTS.end - PORTS.start)).unwrap_or(0);
    let mut held = Vec::new();
    for port in (first..PORTS.end).chain(PORTS.start..first) {
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            held.push((port, listener));
        }
        if held.len() == PORT_COUNT {
            return Ok(held.into_iter().map(|(port, _)| port).collect());
        }
    }
    anyhow::bail!("no free ports from {} to {}", PORTS.start, PORTS.end)
}
