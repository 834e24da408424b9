//! A gateway that runs as a process of its own, so that a test can kill it.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::time::Instant;

use crate::support::PATIENCE;

const POLL_PERIOD: std::time::Duration = std::time::Duration::from_millis(10);

/// The process, and the log lines that it has written. Dropping it kills the process.
pub(crate) struct GatewayProcess {
    child: Child,
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
    log: Arc<Mutex<Vec<Value>>>,
}

impl GatewayProcess {
    /// Starts a gateway with these flags, on any ports unless they say `--listen=`, and waits until it serves.
    pub(crate) async fn start(flags: &[String]) -> Self {
        Self::start_after("", flags).await
    }

    /// Like [`Self::start`], in a shell that has run these commands, such as `ulimit`.
    pub(crate) async fn start_after(commands: &str, flags: &[String]) -> Self {
        let mut process = Self::spawn(commands, flags);
        let fields = process.logged("serving").await;
        let address = |name: &str| fields[name].as_str().unwrap().parse().unwrap();
        (process.address, process.admin) = (address("address"), address("admin"));
        process
    }

    fn command(commands: &str, flags: &[String]) -> Command {
        let mut command = Command::new("sh");
        command
            .args(["-c", &format!("{commands}\nexec \"$0\" \"$@\"")])
            .args([env!("CARGO_BIN_EXE_kube-fanout"), "serve"])
            .args(["--admin-listen", "127.0.0.1:0"])
            .args(["--plain-http", "--auth", "none", "--log-format", "json"])
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        if !flags.iter().any(|flag| flag.starts_with("--listen=")) {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        command
    }

    fn spawn(commands: &str, flags: &[String]) -> Self {
        let mut child = Self::command(commands, flags).spawn().unwrap();
        let log = Arc::<Mutex<Vec<Value>>>::default();
        let (written, stderr) = (Arc::clone(&log), child.stderr.take().unwrap());
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines() {
                let Ok(line) = line else { return };
                let fields = serde_json::from_str::<Value>(&line);
                let fields = fields.unwrap_or_else(|_| Value::from(line));
                written.lock().unwrap().push(fields);
            }
        });
        let nowhere = SocketAddr::from(([0; 4], 0));
        Self {
            child,
            address: nowhere,
            admin: nowhere,
            log,
        }
    }

    /// Runs a gateway that refuses to start; returns what it wrote.
    pub(crate) fn refused(flags: &[String]) -> String {
        let output = Self::command("", flags).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    }

    /// Waits for a log line with this message, and returns its fields.
    pub(crate) async fn logged(&self, message: &str) -> Value {
        let give_up_at = Instant::now() + PATIENCE;
        loop {
            let log = self.log.lock().unwrap().clone();
            let found = log.iter().find(|fields| fields["message"] == message);
            if let Some(fields) = found {
                return fields.clone();
            }
            assert!(Instant::now() < give_up_at, "no line {message:?}: {log:?}");
            tokio::time::sleep(POLL_PERIOD).await;
        }
    }

    /// The number of log lines with this message until now.
    pub(crate) fn count(&self, message: &str) -> usize {
        let log = self.log.lock().unwrap();
        let lines = log.iter().filter(|fields| fields["message"] == message);
        lines.count()
    }

    /// What `kill -HUP` sends.
    pub(crate) fn hang_up(&self) {
        self.signal(rustix::process::Signal::HUP);
    }

    /// Starts the drain.
    pub(crate) fn begin_drain(&self) {
        self.signal(rustix::process::Signal::TERM);
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, signal).unwrap();
    }

    /// The most bytes that were resident.
    pub(crate) fn peak_len(&self) -> u64 {
        let status = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(status).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = line.unwrap().trim().strip_suffix(" kB").unwrap();
        kilobytes.parse::<u64>().unwrap() << 10
    }

    /// Ends the process at once, as the kernel does when memory is short.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts the drain, and waits for the process to end.
    pub(crate) fn terminate(mut self) {
        self.begin_drain();
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for GatewayProcess {
    fn drop(&mut self) {
        // The process may have ended before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
