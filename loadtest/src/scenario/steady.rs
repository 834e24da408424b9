//! `steady`: many watchers under steady churn; then, if asked, the same swarm against a bare socket loop.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

use super::watch_run::{SERVER_PER_EVENT, WatchRun};
use super::{connections, targets, wiring};
use crate::cli::{Churning, Steady};
use crate::process::raise_open_files;
use crate::sheet::Sheet;
use crate::target::Target;
use crate::writer::Churn;

/// What the socket loop lives longer than the measured window: connecting, warming up, settling.
const BASELINE_SPARE: Duration = Duration::from_secs(60);

/// Runs the scenario.
///
/// # Errors
/// If it could not be run; faults of the server are in the sheet.
pub async fn run(flags: &Steady) -> Result<Sheet> {
    let Steady {
        server,
        watching,
        churning,
        baseline,
    } = flags;
    raise_open_files(connections(watching))?;
    let (target, reference) = targets(server)?;
    let mut sheet = Sheet::new("steady");
    let run = WatchRun {
        name: "target",
        wiring: wiring(server, Some(watching), target),
        churn: churn(churning, &reference, &server.path),
        reference,
        path: &server.path,
        watchers: watching.watchers,
        set_apart: 0,
        receive_buffer: None,
        warm_up: churning.warm_up,
        duration: churning.duration,
        server_pid: server.server_pid,
        upstream_pid: server.upstream_pid,
    };
    run.run(&mut sheet).await?;
    if let Some(churn) = run.churn.as_ref().filter(|_| !churning.keep_objects) {
        churn.clean().await;
    }
    if *baseline {
        against_socket_loop(&run, &mut sheet).await?;
    }
    Ok(sheet)
}

/// The writer that the flags describe.
pub fn churn(flags: &Churning, target: &Target, path: &str) -> Option<Churn> {
    let churn = Churn {
        target: target.clone(),
        path: path.to_owned(),
        prefix: "cm".to_owned(),
        objects: flags.objects.max(1),
        object_len: flags.object_size,
        rate: flags.write_rate,
    };
    (flags.write_rate > 0.0).then_some(churn)
}

/// The same watchers, event rate and event size against the bare loop.
async fn against_socket_loop(run: &WatchRun<'_>, sheet: &mut Sheet) -> Result<()> {
    let per_watcher =
        sheet.value("events delivered a second", 0).unwrap_or(0.0) / run.watchers.max(1) as f64;
    let event_len = sheet.value("bytes an event", 0).unwrap_or(1_024.0);
    let socket_loop = SocketLoopProcess::start(
        per_watcher.max(1.0),
        event_len,
        run.warm_up + run.duration + BASELINE_SPARE,
    )?;
    let target = Target::new(&socket_loop.url, None, None)?;
    let mut wiring = run.wiring.clone();
    wiring.target = target.clone();
    // The loop speaks HTTP/1.1 only: it is the floor for all.
    wiring.streams_per_connection = None;
    raise_open_files(run.watchers)?;
    let baseline = WatchRun {
        name: "socket loop",
        wiring,
        reference: target,
        churn: None,
        server_pid: Some(socket_loop.child.id()),
        upstream_pid: None,
        ..*run
    };
    baseline.run(sheet).await?;
    if let (Some(target), Some(floor)) = (
        sheet.value(SERVER_PER_EVENT, 0),
        sheet.value(SERVER_PER_EVENT, 1),
    ) {
        sheet.note(format!(
            "server CPU per delivered event is {:.2} times that of the bare socket loop",
            target / floor.max(1e-9)
        ));
    }
    Ok(())
}

/// This program as a socket loop, ended with its owner.
struct SocketLoopProcess {
    child: Child,
    url: String,
}

impl SocketLoopProcess {
    fn start(rate: f64, event_len: f64, life: Duration) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args([
                "socket-loop",
                "--rate",
                &format!("{rate:.2}"),
                "--event-size",
                &format!("{event_len:.0}"),
            ])
            .args(["--duration", &life.as_secs().to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut socket_loop = Self {
            url: String::new(),
            child: {
                child.stdin = None;
                child
            },
        };
        let stdout = socket_loop
            .child
            .stdout
            .take()
            .context("invariant: stdout is piped")?;
        // The loop prints one line at once or ends; both end this read.
        BufReader::new(stdout).read_line(&mut socket_loop.url)?;
        socket_loop.url = socket_loop.url.trim().to_owned();
        Ok(socket_loop)
    }
}

impl Drop for SocketLoopProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
