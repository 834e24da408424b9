//! The gateway as the scenario controls it.

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

use crate::process;

/// A gateway that can be ended.
pub trait GatewayControl {
    fn terminate(&self) -> Result<()>;

    fn has_ended(&self) -> bool;
}

/// A gateway in a process with this id. Its exit status is checked by the process that started it.
#[derive(Debug, Clone, Copy)]
pub struct GatewayPid(pub u32);

impl GatewayControl for GatewayPid {
    fn terminate(&self) -> Result<()> {
        let pid = i32::try_from(self.0).ok().and_then(Pid::from_raw);
        let pid = pid.with_context(|| format!("{} is not a process id", self.0))?;
        kill_process(pid, Signal::TERM).with_context(|| format!("SIGTERM to process {}", self.0))
    }

    fn has_ended(&self) -> bool {
        process::has_ended(self.0)
    }
}
