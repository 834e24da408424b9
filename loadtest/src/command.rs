//! Command lines: a program is a list of subcommands, and every subcommand is a type whose fields are its flags.

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{ArgMatches, Command, Parser};

/// A subcommand; its fields are its flags, and its doc comment is its help text.
pub trait Subcommand: Parser {
    /// Runs the subcommand; false if a check has failed.
    fn execute(&self) -> Result<bool>;
}

/// An entry in a program's list of subcommands.
#[derive(Debug)]
pub struct Entry {
    pub command: fn() -> Command,
    /// Runs it; false if a check has failed.
    pub execute: fn(&ArgMatches) -> Result<bool>,
}

impl Entry {
    /// The entry of a subcommand.
    pub const fn of<S: Subcommand>() -> Self {
        Self {
            command: S::command,
            execute: |matches| S::from_arg_matches(matches)?.execute(),
        }
    }
}

/// The command line of a program. A flag that is given twice has its last value.
pub fn command(name: &'static str, about: &'static str, entries: &[Entry]) -> Command {
    let program = Command::new(name)
        .version(env!("CARGO_PKG_VERSION"))
        .about(about)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .args_override_self(true);
    program.subcommands(entries.iter().map(|entry| (entry.command)()))
}

/// Runs the subcommand that the process's arguments name. Exit code 1 means that a check has failed or that the subcommand could not run.
pub fn run(program: Command, entries: &[Entry]) -> ExitCode {
    let name = program.get_name().to_owned();
    match execute(&program.get_matches(), entries) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn execute(matches: &ArgMatches, entries: &[Entry]) -> Result<bool> {
    let (name, flags) = matches
        .subcommand()
        .context("invariant: a subcommand is required")?;
    let is_named = |entry: &&Entry| (entry.command)().get_name() == name;
    let entry = entries.iter().find(is_named);
    let entry = entry.context("invariant: the command line knows the listed subcommands only")?;
    (entry.execute)(flags)
}

/// Runs a future on a runtime with one worker thread. Tasks that remain are aborted, so that a hanging connection cannot keep the process.
pub fn block_on<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let result = runtime.block_on(future);
    runtime.shutdown_background();
    result
}
