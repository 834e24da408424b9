//! Programs that end with the process that started them, also if that one is killed: the system sends the signal.

use std::convert::Infallible;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use crate::command::Subcommand;

/// Runs a program that ends with the process that starts it.
#[derive(Debug, Clone, Parser)]
#[command(name = "guarded", hide = true)]
pub struct ProgramGuard {
    /// The process to end with.
    #[arg(long)]
    pub parent: u32,
    /// The program to run.
    pub program: PathBuf,
    /// Its arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<OsString>,
}

impl Subcommand for ProgramGuard {
    fn execute(&self) -> Result<bool> {
        match become_program(self)? {}
    }
}

/// The arguments of this program that run another program guarded; the process id stays the same.
pub fn arguments(program: &Path, arguments: &[String]) -> Vec<OsString> {
    let own = std::process::id().to_string();
    let head = [
        "guarded".into(),
        "--parent".into(),
        own.into(),
        program.into(),
    ];
    head.into_iter()
        .chain(arguments.iter().map(OsString::from))
        .collect()
}

/// Replaces this process by the program.
fn become_program(flags: &ProgramGuard) -> Result<Infallible> {
    set_parent_process_death_signal(Some(Signal::TERM))?;
    // The signal is sent only for deaths from now on.
    let parent = getppid().map(|pid| pid.as_raw_nonzero().get());
    ensure!(
        parent == i32::try_from(flags.parent).ok(),
        "the parent has ended"
    );
    let error = Command::new(&flags.program).args(&flags.arguments).exec();
    Err(error).with_context(|| flags.program.display().to_string())
}
