//! The attacker's process: it ends when its input does, or with its parent.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::process::Command;

use super::Hostile;
use crate::attack::AttackCounts;
use crate::process::piped::PipedChild;

/// Address of the attacker if it differs from the witness's.
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// Longest time for the process to end.
const END_WAIT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct AttackerProcess {
    child: PipedChild,
    clients: u64,
    counts: AttackCounts,
}

impl AttackerProcess {
    /// Starts the process, which ends after `life` at the latest.
    pub fn begin(flags: &Hostile, reference: &str, life: Duration) -> Result<Self> {
        let attack = flags.attack;
        let clients = flags.clients.unwrap_or(attack.size().clients);
        let rate = flags.rate.unwrap_or(attack.size().rate);
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
        if let Some(ca) = &flags.server.ca {
            command.arg("--ca").arg(ca);
        }
        Ok(Self {
            child: PipedChild::spawn(&mut command)?,
            clients: clients as u64,
            counts: AttackCounts::default(),
        })
    }

    /// Reads its counts for this time.
    pub async fn read(&mut self, time: Duration) -> Result<()> {
        match tokio::time::timeout(time, self.read_on()).await {
            Ok(ended) => ended.context("the attacker"),
            Err(_) => Ok(()),
        }
    }

    /// Reads its counts until it ends, which is an error. Can be cancelled without loss.
    async fn read_on(&mut self) -> Result<()> {
        while let Some(line) = self.child.line().await? {
            self.counts = serde_json::from_str(&line)?;
        }
        bail!("it has ended early")
    }

    /// Whether all its clients have connected or were refused.
    pub fn has_started(&self) -> bool {
        self.counts.started >= self.clients
    }

    /// Ends it; returns its counts.
    pub async fn end(self) -> Result<AttackCounts> {
        let lines = self.child.end(END_WAIT).await.context("the attacker")?;
        match lines.last() {
            Some(line) => Ok(serde_json::from_str(line)?),
            None => Ok(self.counts),
        }
    }
}
