//! The attacker's process: it ends when its input does, or with its parent.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use parking_lot::Mutex;
use tokio::process::Command;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::Hostile;
use crate::attack::AttackCounts;
use crate::process::piped::PipedChild;

/// Address of the attacker if it differs from the witness's.
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// Longest time for the process to end.
const END_WAIT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct AttackerProcess {
    tally: Arc<Mutex<AttackCounts>>,
    /// Reads the process's counts until the input is closed, then ends it.
    reading: JoinHandle<Result<()>>,
    input: oneshot::Sender<()>,
    clients: u64,
}

impl AttackerProcess {
    /// Starts the process, which ends after `life` at the latest.
    pub fn begin(flags: &Hostile, reference: &str, life: Duration) -> Result<Self> {
        let attack = flags.attack;
        let clients = flags.clients.unwrap_or(attack.clients());
        let rate = flags.rate.unwrap_or(attack.rate());
        let source = if attack.shares_address() {
            Ipv4Addr::LOCALHOST
        } else {
            ELSEWHERE
        };
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["attack", "--target", &flags.server.target])
            .args(["--reference", reference, "--attack", &attack.name()])
            .args(["--clients", &clients.to_string()])
            .args(["--rate", &rate.to_string()])
            .args(["--source", &source.to_string()])
            .args(["--life", &life.as_secs().to_string()]);
        let child = PipedChild::spawn(&mut command)?;
        let tally = Arc::<Mutex<AttackCounts>>::default();
        let (input, over) = oneshot::channel();
        // Ends with the process, or when the sender of `over` is used.
        let reading = tokio::spawn(read(child, tally.clone(), over));
        Ok(Self {
            tally,
            reading,
            input,
            clients: clients as u64,
        })
    }

    fn tally(&self) -> AttackCounts {
        *self.tally.lock()
    }

    /// Whether all its clients have connected or were refused.
    pub fn has_started(&self) -> bool {
        self.tally().started >= self.clients
    }

    /// Ends it; returns its counts.
    pub async fn end(self) -> Result<AttackCounts> {
        // If the reader is gone it has failed; its error is returned next.
        let _ = self.input.send(());
        self.reading.await?.context("the attacker")?;
        Ok(*self.tally.lock())
    }
}

async fn read(
    mut child: PipedChild,
    tally: Arc<Mutex<AttackCounts>>,
    mut over: oneshot::Receiver<()>,
) -> Result<()> {
    let keep = |line: &str| {
        if let Ok(counts) = serde_json::from_str(line) {
            *tally.lock() = counts;
        }
    };
    loop {
        tokio::select! {
            // Both can be cancelled without loss.
            line = child.line() => keep(&line?.context("it has ended early")?),
            _ = &mut over => break,
        }
    }
    let last = child.end(END_WAIT).await?;
    last.iter().for_each(|line| keep(line));
    Ok(())
}
