//! The attacker's process as its owner sees it: it ends when its input does, or with its owner.

use std::net::Ipv4Addr;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::task::JoinHandle;

use crate::attack::Tally;
use crate::cli::hostile::Hostile;

/// The address of an attacker that is not where the witness is.
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// How soon the process must end.
const END_WAIT: Duration = Duration::from_secs(5);

/// An attack that goes on.
#[derive(Debug)]
pub struct Attacking {
    child: Child,
    input: ChildStdin,
    tally: Arc<Mutex<Tally>>,
    reading: JoinHandle<()>,
    clients: u64,
}

impl Attacking {
    /// Begins; it ends by itself after `life`.
    ///
    /// # Errors
    /// If the process cannot be started.
    pub async fn begin(flags: &Hostile, reference: &str, life: Duration) -> Result<Self> {
        let attack = flags.attack;
        let clients = flags.clients.unwrap_or(attack.clients());
        let rate = flags.rate.unwrap_or(attack.rate());
        let source = if attack.shares_address() {
            Ipv4Addr::LOCALHOST
        } else {
            ELSEWHERE
        };
        let mut child = Command::new(std::env::current_exe()?)
            .args(["attack", "--target", &flags.server.target])
            .args(["--reference", reference, "--attack", &attack.name()])
            .args([
                "--clients",
                &clients.to_string(),
                "--rate",
                &rate.to_string(),
            ])
            .args([
                "--source",
                &source.to_string(),
                "--life",
                &life.as_secs().to_string(),
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let input = child.stdin.take().context("invariant: stdin is piped")?;
        let output = child.stdout.take().context("invariant: stdout is piped")?;
        let tally = Arc::<Mutex<Tally>>::default();
        let kept = tally.clone();
        // Ends with the process.
        let reading = tokio::spawn(async move {
            let mut lines = BufReader::new(output).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if let Ok(told) = serde_json::from_str(&line) {
                    *kept.lock().unwrap_or_else(PoisonError::into_inner) = told;
                }
            }
        });
        Ok(Self {
            child,
            input,
            tally,
            reading,
            clients: clients as u64,
        })
    }

    fn tally(&self) -> Tally {
        *self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether all its clients have come, or were turned away.
    pub fn has_begun(&self) -> bool {
        self.tally().begun >= self.clients
    }

    /// Ends it; what it came to.
    ///
    /// # Errors
    /// If it failed.
    pub async fn end(mut self) -> Result<Tally> {
        drop(self.input);
        let status = tokio::time::timeout(END_WAIT, self.child.wait()).await;
        let status = status.context("the attacker does not end")??;
        anyhow::ensure!(status.success(), "the attacker failed: {status}");
        let _ = self.reading.await;
        Ok(*self.tally.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
