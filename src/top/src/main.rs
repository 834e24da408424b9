//! The program `kube-fanout-top`, which `kube-fanout top` runs.

use std::io::stdout;
use std::process::ExitCode;

use clap::Parser;
use kube_fanout_top::TopSettings;
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let mut settings = TopSettings::parse();
    #[expect(clippy::disallowed_methods, reason = "no-color.org")]
    let no_color = std::env::var_os("NO_COLOR");
    settings.color = no_color.is_none_or(|value| value.is_empty());
    let mut out = stdout();
    let shown = tokio::select! {
        shown = kube_fanout_top::run(&settings, &mut out) => shown,
        // Dropping the other future restores the terminal.
        ended = terminated() => ended.map_err(Into::into),
    };
    match shown {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kube-fanout-top: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Waits for SIGTERM or SIGINT.
async fn terminated() -> std::io::Result<()> {
    let (mut terminate, mut interrupt) = (
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
    );
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
