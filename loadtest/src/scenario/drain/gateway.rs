//! The gateway, as whoever ends it sees it.

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

use crate::process;

/// A gateway that can be ended.
pub trait GatewayControl {
    /// Asks it to end.
    ///
    /// # Errors
    /// If it cannot be asked.
    fn terminate(&self) -> Result<()>;

    /// Whether it has ended.
    fn has_ended(&self) -> bool;
}

/// One in a process of its own, with this id. How it ended is told to the process that started it.
#[derive(Debug, Clone, Copy)]
pub struct GatewayPid(pub u32);

impl GatewayControl for GatewayPid {
    fn terminate(&self) -> Result<()> {
        let pid = i32::try_from(self.0).ok().and_then(Pid::from_raw);
        let pid = pid.with_context(|| format!("{} is no process", self.0))?;
        kill_process(pid, Signal::TERM).with_context(|| format!("SIGTERM to process {}", self.0))
    }

    fn has_ended(&self) -> bool {
        process::has_ended(self.0)
    }
}
