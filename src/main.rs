//! The thin binary: allocator, flags, log, runtime, signals, exit code. Decides nothing about serving.

#[path = "main/limits.rs"]
mod limits;
#[path = "main/log.rs"]
mod log;

use std::io::{IsTerminal, Write, stdout};
use std::process::ExitCode;

use kube_fanout::config::{self, ProcessTask, Settings};
use kube_fanout::demo::{self, DemoOutcome, ScreenKind};
use kube_fanout::shutdown::Drain;
use kube_fanout::{apiserver, build_info, gateway};
use tokio::signal::unix::{Signal, SignalKind, signal};

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Wrong usage, wrong settings, or nothing to start with; as clap has it.
const EXIT_USAGE: u8 = 2;
/// A failure while running.
const EXIT_FAILURE: u8 = 1;

fn main() -> ExitCode {
    build_info::set_commit(option_env!("KUBE_FANOUT_COMMIT"));
    let flags = match config::read(std::env::args_os().collect(), config::environment) {
        Ok(flags) => flags,
        Err(error) => {
            // Help and version go to standard output; everything else is one line on standard error.
            return match error.one_line() {
                Some(line) => complain(EXIT_USAGE, &line),
                None => print(&error.to_string()),
            };
        }
    };
    match Settings::resolve(flags) {
        Ok(settings) => perform(settings),
        Err(error) => complain(EXIT_USAGE, &error.to_string()),
    }
}

fn perform(Settings { process, task }: Settings) -> ExitCode {
    let log = match &task {
        ProcessTask::ConfigCheck => return print("the settings are valid\n"),
        ProcessTask::ConfigPrint(text) => return print(text),
        ProcessTask::Serve(_) | ProcessTask::Apiserver(_) | ProcessTask::Demo(_) => {
            log::start(process, &task)
        }
    };
    // Written out when this function returns, before the last complaint is read.
    let _log = match log {
        Ok(log) => log,
        Err(error) => return complain(EXIT_USAGE, &format!("cannot start threads: {error}")),
    };
    limits::raise_open_files();
    if let Err(error) = limits::forbid_cores() {
        tracing::warn!(%error, "a core of this process would hold tokens and keys");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(process.worker_threads)
        .thread_name("fanout")
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return complain(EXIT_USAGE, &format!("cannot start threads: {error}")),
    };
    let drain = Drain::with_timeout(process.drain_timeout);
    // What can fail fails at start: afterwards nothing ends a server but its drain.
    runtime
        .block_on(run(task, drain))
        .unwrap_or_else(|error| complain(EXIT_USAGE, &format!("{error:#}")))
}

async fn run(task: ProcessTask, drain: Drain) -> anyhow::Result<ExitCode> {
    let (terminate, interrupt) = (
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
    );
    // Owned by the runtime: it lives as long as the process.
    tokio::spawn(drain_on_signal(drain.clone(), terminate, interrupt));
    match task {
        ProcessTask::Serve(settings) => gateway::run(settings, drain).await?,
        ProcessTask::Apiserver(settings) => apiserver::run(settings, drain).await?,
        ProcessTask::Demo(settings) => {
            let terminal = stdout().is_terminal();
            let surface = if terminal {
                ScreenKind::Terminal
            } else {
                ScreenKind::Plain
            };
            if demo::run(settings, drain, stdout(), surface).await? == DemoOutcome::Faulty {
                return Ok(ExitCode::from(EXIT_FAILURE));
            }
        }
        ProcessTask::ConfigCheck | ProcessTask::ConfigPrint(_) => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// The first signal begins the drain; whoever asks twice means it.
async fn drain_on_signal(drain: Drain, mut terminate: Signal, mut interrupt: Signal) {
    let mut asked = false;
    loop {
        let name = tokio::select! {
            // Both are safe to cancel: a signal that is not taken stays pending.
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        };
        if asked {
            tracing::warn!(signal = name, "second signal, ending at once");
            std::process::exit(i32::from(EXIT_FAILURE));
        }
        asked = true;
        tracing::info!(signal = name, "draining");
        drain.begin();
    }
}

/// A reader that went away, such as `head`, is no failure of ours.
fn print(text: &str) -> ExitCode {
    let _ = stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

fn complain(code: u8, line: &str) -> ExitCode {
    eprintln!("kube-fanout: {line}");
    ExitCode::from(code)
}
