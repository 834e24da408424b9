//! A program that ends with whoever started it, also if that one is killed: the system sends the signal, so nobody has to live for it.

use std::convert::Infallible;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use crate::cli::runner::GuardedProgram;

/// The arguments of this program that run another one guarded; the id stays the same.
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

/// Becomes the program.
///
/// # Errors
/// If it cannot be started, or the parent is gone already.
pub fn become_program(flags: &GuardedProgram) -> Result<Infallible> {
    set_parent_process_death_signal(Some(Signal::TERM))?;
    // The signal is sent for deaths from now on only.
    let parent = getppid().map(|pid| pid.as_raw_nonzero().get());
    ensure!(
        parent == i32::try_from(flags.parent).ok(),
        "the parent has ended"
    );
    let error = Command::new(&flags.program).args(&flags.arguments).exec();
    Err(error).with_context(|| flags.program.display().to_string())
}
