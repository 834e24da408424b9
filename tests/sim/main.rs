//! The gateway, the embedded API server and their clients on one simulated network, in virtual time, from one seed (decision 45).
//!
//! A run has two parts. While faults happen, every client checks the contract of list and watch on all that it receives ([`contract`]).
//! Then the faults and the writes stop, and within a minute every client must have the state of the API server.
//!
//! Each seed runs in a process of its own, because a process has state that an earlier run would leave changed.
//!
//! | variable | meaning |
//! |---|---|
//! | `FANOUT_SIM_SEED=7` | the test `one_seed` runs this seed |
//! | `FANOUT_SIM_TRACE=1` | it prints what clients receive and which faults happen |
//! | `FANOUT_SIM_LOG=debug` | it prints the log |
//! | `FANOUT_SIM_SEEDS=0..1000` | the seeds of the test `seeds` |
//! | `FANOUT_SIM_PROCESSES=1` | how many of them run at a time; as many as there are processors without it |
//! | `FANOUT_SIM_FIRST=1` | the test `seeds` ends with the first seed that fails |
//! | `FANOUT_SIM_PLANT=15220` | a build with planted defects (`planted.sh`) has this one |

#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a simulation may fail"
)]

mod clients;
mod contract;
mod contradictions;
mod determinism;
mod history;
mod plan;
mod stage;
mod writes;

use std::ops::Range;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use stage::Outcome;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Seeds that run without being named.
const SEEDS: Range<u64> = 0..40;
/// A certificate of nobody.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sim/root.pem");

/// Runs one seed, on a thread that has run nothing else.
fn run(seed: u64) -> Outcome {
    std::thread::spawn(move || stage::run(seed)).join().unwrap()
}

#[test]
fn one_seed() {
    let Some(seed) = variable("FANOUT_SIM_SEED") else {
        return;
    };
    let log = variable("FANOUT_SIM_LOG").map(|directives| {
        tracing_subscriber::fmt::layer().with_filter(directives.parse::<Targets>().unwrap())
    });
    tracing_subscriber::registry()
        .with(contradictions::counter())
        .with(log)
        .init();
    let outcome = run(seed.parse().unwrap());
    println!("SEED {seed} {outcome}");
    assert!(outcome.violations.is_empty());
}

#[test]
fn a_seed_gives_the_same_run_again() {
    for seed in 0..4 {
        let [one, other] = [(); 2].map(|()| in_process(seed, Trace::Printed).0);
        assert!(one.lines().count() > 10, "{one}");
        assert!(one == other, "seed {seed} has two traces");
    }
}

#[test]
fn seeds() {
    let seeds = variable("FANOUT_SIM_SEEDS").map_or(SEEDS, |range| {
        let (first, end) = range.split_once("..").unwrap();
        first.parse().unwrap()..end.parse().unwrap()
    });
    let (started, next, failed) = (Instant::now(), AtomicU64::new(seeds.start), Mutex::new(0));
    let stops = variable("FANOUT_SIM_FIRST").is_some();
    let processors = || std::thread::available_parallelism().map_or(2, usize::from);
    let processes = variable("FANOUT_SIM_PROCESSES");
    let processes = processes.map_or_else(processors, |count| count.parse().unwrap());
    std::thread::scope(|scope| {
        for _ in 0..processes {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end || (stops && *failed.lock().unwrap() > 0) {
                        return;
                    }
                    let (said, is_good) = in_process(seed, Trace::Hashed);
                    if !is_good {
                        *failed.lock().unwrap() += 1;
                        println!("{said}");
                    }
                }
            });
        }
    });
    let failed = *failed.lock().unwrap();
    println!(
        "{} seeds in {:?}, {failed} failed",
        seeds.end - seeds.start,
        started.elapsed()
    );
    assert_eq!(failed, 0);
}

/// What a run says of its trace.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trace {
    Hashed,
    Printed,
}

/// Runs a seed in a process of its own; what it says, and whether all is well.
fn in_process(seed: u64, trace: Trace) -> (String, bool) {
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new("setarch");
    command
        .arg("-R")
        .arg(program)
        .args(["--exact", "one_seed", "--nocapture"])
        .env("FANOUT_SIM_SEED", seed.to_string())
        // Clients read the certificates that the machine trusts, which takes longer than some runs, and use none of them.
        .env("SSL_CERT_FILE", ROOT)
        .env_remove("SSL_CERT_DIR");
    if trace == Trace::Printed {
        command.env("FANOUT_SIM_TRACE", "1");
    }
    let run = command.output().unwrap();
    let text = String::from_utf8_lossy(&run.stdout);
    if let Some((traced, said)) = text.split_once("SEED ") {
        let said = said.split("\ntest ").next().unwrap();
        let traced = if trace == Trace::Printed { traced } else { "" };
        return (format!("{traced}SEED {said}"), run.status.success());
    }
    let errors = String::from_utf8_lossy(&run.stderr);
    (format!("SEED {seed} did not end\n{text}\n{errors}"), false)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the arguments of a test are in the environment"
)]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
