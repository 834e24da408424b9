//! Load tests for kube-fanout and any Kubernetes API server: swarms of clients that verify what they receive.
//!
//! The library holds what its two programs share: `kube-fanout-loadtest`, with a scenario behind most of its subcommands, and
//! `kube-fanout-informers`, which runs informers for the real suites. Exit code 0: every check passed; 1: events were lost, duplicated,
//! out of order or incomplete, or the run failed; 2: wrong usage.

mod attack;
mod cli;
mod client;
mod command;
mod http2;
mod informers;
mod lister;
mod metrics;
mod pods;
mod process;
mod recorder;
mod recording;
mod report;
mod results;
mod runner;
mod scenario;
mod socket_loop;
mod swarm;
mod target;
mod texts;
mod verify;
mod watcher;
mod wire;
mod writer;

use std::process::ExitCode;

use clap::Command;

use command::Entry;
use scenario::entry;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The subcommands of `kube-fanout-loadtest`: scenarios, then what scenarios start in processes of their own, then the runner.
const LOADTEST: &[Entry] = &[
    entry::<scenario::steady::Steady>(),
    entry::<scenario::stalled::Stalled>(),
    entry::<scenario::herd::RelistHerd>(),
    entry::<scenario::herd::gzip::GzipHerd>(),
    entry::<scenario::quiet_end::QuietEnd>(),
    entry::<scenario::node_selectors::NodeSelectors>(),
    entry::<scenario::herd::watch_list::WatchListHerd>(),
    entry::<scenario::slow::Slow>(),
    entry::<scenario::joiners::Joiners>(),
    entry::<scenario::transports::Transports>(),
    entry::<scenario::overload::Overload>(),
    entry::<scenario::drain::Drain>(),
    entry::<scenario::hostile::Hostile>(),
    entry::<scenario::start::Start>(),
    entry::<scenario::reconnect_storm::ReconnectStorm>(),
    entry::<scenario::identities::Identities>(),
    entry::<scenario::rolling::Rolling>(),
    entry::<scenario::kubelets::Kubelets>(),
    entry::<scenario::forwarded::Forwarded>(),
    Entry::of::<socket_loop::SocketLoop>(),
    Entry::of::<runner::Runner>(),
    Entry::of::<runner::documents::Merge>(),
    Entry::of::<runner::documents::Page>(),
    Entry::of::<runner::documents::Quote>(),
    Entry::of::<runner::guarded::ProgramGuard>(),
];

/// The subcommands of `kube-fanout-informers`.
const INFORMERS: &[Entry] = &[
    Entry::of::<informers::Follow>(),
    Entry::of::<informers::Crowd>(),
];

fn loadtest_command() -> Command {
    let about = "Swarms of clients against kube-fanout or any Kubernetes API server, with verification of what they receive";
    command::command("kube-fanout-loadtest", about, LOADTEST)
}

fn informers_command() -> Command {
    let about = "Informers of this project and of kube-rs, for tests that compare their stores";
    command::command("kube-fanout-informers", about, INFORMERS)
}

/// Runs `kube-fanout-loadtest` with the process's arguments.
pub fn loadtest() -> ExitCode {
    command::run(loadtest_command(), LOADTEST)
}

/// Runs `kube-fanout-informers` with the process's arguments.
pub fn informers() -> ExitCode {
    command::run(informers_command(), INFORMERS)
}

#[cfg(test)]
mod tests {
    //! Both command lines are well formed, and refuse unknown values.

    use super::*;

    #[test]
    fn the_flags_are_well_formed() {
        loadtest_command().debug_assert();
        informers_command().debug_assert();
        let accepts = |line: &str| {
            let words = line.split(' ');
            loadtest_command().try_get_matches_from(words).is_ok()
        };
        assert!(accepts("x node-selectors --target http://127.0.0.1:1"));
        assert!(accepts("x steady --target http://a --target http://b"));
        assert!(!accepts("x slow --target http://127.0.0.1:1 --kind fast"));
    }
}
