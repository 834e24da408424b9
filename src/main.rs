//! The program `kube-fanout`: allocator, flags, log, runtime, signals and exit code. Everything else is in the library.
//!
//! Start reading at `main`; `run` starts the command that was given, and `drain_on_signal` handles SIGTERM and SIGINT, `reread_on_hangup` SIGHUP.

#[path = "main/limits.rs"]
mod limits;
#[path = "main/log.rs"]
mod log;

use std::ffi::OsString;
use std::io::{ErrorKind, IsTerminal, Write, stdout};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "mimalloc")]
use kube_fanout::allocator::CountingAllocator;
use kube_fanout::check::CheckLevel;
use kube_fanout::config::{
    self, AssessSettings, ConfigurationFile, ProcessTask, ServeSettings, Settings,
};
use kube_fanout::demo::{self, DemoError, DemoOutcome, ScreenKind};
use kube_fanout::error_chain::one_line;
use kube_fanout::gateway::{Configuration, Gateway, ProcessControls, unusable_settings};
use kube_fanout::log_filter::LogControl;
use kube_fanout::shutdown::Drain;
use kube_fanout::telemetry::SpanExport;
use kube_fanout::{assess, build_info, check, embedded, inject, serving_command};
use log::LogHandles;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: CountingAllocator<mimalloc::MiMalloc> = CountingAllocator(mimalloc::MiMalloc);

/// Wrong usage, invalid settings, or a failure at start; the same code that clap uses.
const EXIT_USAGE: u8 = 2;
/// A failure while running, or a check that failed.
const EXIT_FAILURE: u8 = 1;

/// What `kube-fanout top` runs.
const TOP_PROGRAM: &str = "kube-fanout-top";

/// How long threads may go on with work that blocks when everything else has ended. Checkpoints and the audit log have their own time before.
const BLOCKED_TIME_MAX: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    build_info::set_commit(option_env!("KUBE_FANOUT_COMMIT"));
    let arguments: Vec<_> = std::env::args_os().collect();
    let flags = config::read(arguments.clone(), config::environment).and_then(|flags| {
        config::check_variables(std::env::vars_os())?;
        Ok(flags)
    });
    let flags = match flags {
        Ok(flags) => flags,
        Err(error) => {
            // Help and version go to standard output; everything else is one line on standard error.
            return match error.one_line() {
                Some(line) => report_error(EXIT_USAGE, &line),
                None => print(&error.to_string()),
            };
        }
    };
    let file = ConfigurationFile::new(&flags, arguments, config::environment);
    let settings = Settings::resolve(flags).and_then(|mut settings| {
        let copies = settings.keep_pipes()?;
        Ok((settings, copies))
    });
    match settings {
        Ok((settings, _copies)) => execute(settings, file),
        Err(error) => report_error(EXIT_USAGE, &error.to_string()),
    }
}

fn execute(Settings { process, task }: Settings, file: Option<ConfigurationFile>) -> ExitCode {
    let log = match &task {
        ProcessTask::ConfigCheck(settings) => return check_settings(settings),
        ProcessTask::Print(text) => return print(text),
        ProcessTask::CheckList(output) => return print(&check::list(*output)),
        ProcessTask::Top(flags) => return run_top(flags),
        ProcessTask::Assess(settings) => return run_assess(settings),
        ProcessTask::Serve(_)
        | ProcessTask::Apiserver(_)
        | ProcessTask::Demo(_)
        | ProcessTask::Serving(_)
        | ProcessTask::Inject(_)
        | ProcessTask::Check(_) => log::start(&process, &task),
    };
    let LogHandles {
        end: _end,
        control,
        spans,
    } = match log {
        // Dropping the end, when this function returns, waits until all log lines are written.
        Ok(log) => log,
        Err(error) => return report_error(EXIT_USAGE, &format!("cannot start the log: {error}")),
    };
    limits::raise_open_files();
    if let Err(error) = limits::disable_core_dumps() {
        tracing::warn!(%error, "cannot disable core dumps; a core dump of this process would contain tokens and keys");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(process.worker_threads)
        .thread_name("fanout")
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return report_error(EXIT_USAGE, &format!("cannot start threads: {error}")),
    };
    let drain = Drain::with_timeout(process.drain_timeout).with_delay(process.drain_delay);
    // Every error that can occur here occurs at start. A server that has started ends only by its drain.
    let code = runtime
        .block_on(run(task, drain, (control, spans, file)))
        .unwrap_or_else(|error| report_error(EXIT_USAGE, &one_line(error.as_ref())));
    // What still blocks a thread, such as a read of a plugin's output, is not waited for: nobody needs it any longer.
    runtime.shutdown_timeout(BLOCKED_TIME_MAX);
    code
}

async fn run(
    task: ProcessTask,
    drain: Drain,
    (log, spans, file): (LogControl, Option<SpanExport>, Option<ConfigurationFile>),
) -> anyhow::Result<ExitCode> {
    let (terminate, interrupt) = (
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
    );
    // Detached: it runs until the process exits.
    tokio::spawn(drain_on_signal(drain.clone(), terminate, interrupt));
    match task {
        ProcessTask::Serve(settings) => {
            let configuration = file.map(reread_on_hangup).transpose()?;
            let gateway = Gateway::build(settings).await?;
            let gateway = gateway.with_controls(ProcessControls {
                log: Some(log),
                spans,
                configuration,
            });
            gateway.run(drain).await;
        }
        ProcessTask::Apiserver(settings) => embedded::run(settings, drain).await?,
        ProcessTask::Demo(settings) => {
            let terminal = stdout().is_terminal();
            let screen = if terminal {
                ScreenKind::Terminal
            } else {
                ScreenKind::Plain
            };
            match demo::run(settings, drain, stdout(), screen).await {
                Ok(DemoOutcome::Faulty) => return Ok(ExitCode::from(EXIT_FAILURE)),
                Ok(DemoOutcome::Verified) => {}
                // A reader that closed the pipe, such as `head`, has seen enough.
                Err(DemoError::Screen(error)) if error.kind() == ErrorKind::BrokenPipe => {}
                Err(error) => return Err(error.into()),
            }
        }
        ProcessTask::Check(settings) => {
            let report = check::run(&settings, drain).await;
            // The drain has begun: the user does not want to know any longer.
            let Some(report) = report else {
                return Ok(ExitCode::from(EXIT_FAILURE));
            };
            let text = check::written(&report, &settings, stdout().is_terminal());
            match stdout().write_all(text.as_bytes()) {
                // A report that nobody can read says nothing; a reader that closed the pipe has seen enough.
                Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                    let line = format!("cannot write the report: {error}");
                    return Ok(report_error(EXIT_FAILURE, &line));
                }
                Ok(()) | Err(_) => {}
            }
            if report.level() == CheckLevel::Failure {
                return Ok(ExitCode::from(EXIT_FAILURE));
            }
        }
        ProcessTask::Serving(request) => {
            return outcome(serving_command::run(&request).await);
        }
        ProcessTask::Inject(settings) => return outcome(inject::run(&settings, drain).await),
        ProcessTask::ConfigCheck(_)
        | ProcessTask::Print(_)
        | ProcessTask::CheckList(_)
        | ProcessTask::Top(_)
        | ProcessTask::Assess(_) => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints what a command that changes something has done; it fails if that was not everything.
fn outcome(done: Result<(String, bool), String>) -> anyhow::Result<ExitCode> {
    let (lines, are_done) = done.map_err(anyhow::Error::msg)?;
    print(&lines);
    Ok(match are_done {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(EXIT_FAILURE),
    })
}

/// Becomes the program `kube-fanout-top`, which is beside this one or on the PATH.
fn run_top(flags: &[OsString]) -> ExitCode {
    let beside = std::env::current_exe().map(|program| program.with_file_name(TOP_PROGRAM));
    let program = match beside {
        Ok(beside) if beside.exists() => beside,
        Ok(_) | Err(_) => TOP_PROGRAM.into(),
    };
    // Returns only if it fails.
    let error = Command::new(program).args(flags).exec();
    let line = if error.kind() == ErrorKind::NotFound {
        format!(
            "{TOP_PROGRAM} is neither beside this program nor on the PATH: it is in the release's archive, and in a clone `cargo build --release \
             --package {TOP_PROGRAM}` makes it"
        )
    } else {
        format!("{TOP_PROGRAM}: {error}")
    };
    report_error(EXIT_USAGE, &line)
}

/// Everything that it does is to read files and to calculate, so it needs neither log nor runtime.
fn run_assess(settings: &AssessSettings) -> ExitCode {
    match assess::run(settings, &mut stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report_error(EXIT_FAILURE, &one_line(&error)),
    }
}

/// Reads the files that the settings name, each of which would keep `serve` from starting.
fn check_settings(settings: &ServeSettings) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return report_error(EXIT_USAGE, &format!("cannot start threads: {error}")),
    };
    let problems = runtime.block_on(unusable_settings(settings));
    runtime.shutdown_timeout(BLOCKED_TIME_MAX);
    for problem in &problems {
        report_error(EXIT_USAGE, problem);
    }
    match problems.is_empty() {
        true => print("the settings are valid\n"),
        false => ExitCode::from(EXIT_USAGE),
    }
}

/// A configuration that is read again on SIGHUP. Without a file the signal ends the process, as it does when a terminal is closed.
fn reread_on_hangup(file: ConfigurationFile) -> std::io::Result<Configuration> {
    let mut hangup = signal(SignalKind::hangup())?;
    let requests = Arc::<Notify>::default();
    let configuration = Configuration {
        file,
        requests: Arc::clone(&requests),
    };
    // Detached: it runs until the process exits.
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            requests.notify_one();
        }
    });
    Ok(configuration)
}

/// The first signal begins the drain; a second signal exits immediately.
async fn drain_on_signal(drain: Drain, mut terminate: Signal, mut interrupt: Signal) {
    let mut draining = false;
    loop {
        let name = tokio::select! {
            // Both are cancel-safe: a signal that was not received stays pending.
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        };
        if draining {
            tracing::warn!(signal = name, "second signal, exiting immediately");
            std::process::exit(i32::from(EXIT_FAILURE));
        }
        draining = true;
        tracing::info!(signal = name, "draining");
        drain.begin();
    }
}

/// Ignores write errors: a reader that closed the pipe, such as `head`, is not a failure.
fn print(text: &str) -> ExitCode {
    let _ = stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

fn report_error(code: u8, line: &str) -> ExitCode {
    eprintln!("kube-fanout: {line}");
    ExitCode::from(code)
}
