//! The gateway, the embedded API server and their clients on one simulated network, in virtual time, from one seed (decision 45).
//!
//! A run has two parts. While faults happen, every client checks the contract of list and watch on all that it receives ([`contract`]).
//! Then the faults and the writes stop, and within a minute every client must have the state of the API server.
//!
//! Each seed runs in a process of its own, because a process has state that an earlier run would leave changed. `FANOUT_SIM_SEED=7` with
//! the test `one_seed` runs one seed again and prints what happens; `FANOUT_SIM_SEEDS=0..1000` sets those of the test `seeds`.

mod clients;
mod contract;
mod determinism;
mod history;
mod plan;
mod stage;

use std::ops::Range;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use stage::Outcome;

/// Seeds that run without being named.
const SEEDS: Range<u64> = 0..40;

/// Runs one seed, on a thread that has run nothing else.
fn run(seed: u64) -> Outcome {
    std::thread::spawn(move || stage::run(seed)).join().unwrap()
}

#[test]
fn one_seed() {
    let Some(seed) = variable("FANOUT_SIM_SEED") else {
        return;
    };
    if variable("FANOUT_SIM_LOG").is_some() {
        tracing_subscriber::fmt()
            .with_env_filter(variable("FANOUT_SIM_LOG").unwrap())
            .init();
    }
    let outcome = run(seed.parse().unwrap());
    println!("SEED {seed} {outcome}");
    assert!(outcome.violations.is_empty());
}

#[test]
fn a_seed_gives_the_same_run_again() {
    for seed in 0..3 {
        assert_eq!(in_process(seed).0, in_process(seed).0, "seed {seed}");
    }
}

#[test]
fn seeds() {
    let seeds = variable("FANOUT_SIM_SEEDS").map_or(SEEDS, |range| {
        let (first, end) = range.split_once("..").unwrap();
        first.parse().unwrap()..end.parse().unwrap()
    });
    let (started, next, failed) = (Instant::now(), AtomicU64::new(seeds.start), Mutex::new(0));
    let workers = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let (said, is_good) = in_process(seed);
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

/// Runs a seed in a process of its own; what it says, and whether all is well.
fn in_process(seed: u64) -> (String, bool) {
    let program = std::env::current_exe().unwrap();
    let run = Command::new("setarch")
        .arg("-R")
        .arg(program)
        .args(["--exact", "simulation::one_seed", "--nocapture"])
        .env("FANOUT_SIM_SEED", seed.to_string())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&run.stdout);
    let said = text
        .split_once("SEED ")
        .map(|(_, said)| said.split("\ntest ").next().unwrap());
    let errors = String::from_utf8_lossy(&run.stderr);
    match said {
        Some(said) => (format!("SEED {said}"), run.status.success()),
        None => (format!("SEED {seed} did not end\n{text}\n{errors}"), false),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the arguments of a test are in the environment"
)]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
