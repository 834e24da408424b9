//! Shared informers in trouble: whatever befalls the server and the way to it, in the end the store is what the server
//! holds, and what each handler was told explains it.
//!
//! A failure names its seed. The same seed gives the same run: dice decide, and the clock stands still but where it is
//! moved. `CHAOS_SEED=n cargo nextest run --test informer_chaos same_run` runs one alone.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

#[path = "informer_chaos/audience.rs"]
mod audience;
#[path = "informer_chaos/dice.rs"]
mod dice;
#[path = "staging/gateway.rs"]
mod gateway;
#[path = "informer_chaos/model.rs"]
mod model;
#[path = "informer_chaos/run.rs"]
mod run;
#[path = "informer_chaos/sockets.rs"]
mod sockets;
#[path = "informer_chaos/wire.rs"]
mod wire;
#[path = "informer_chaos/witness.rs"]
mod witness;

use std::collections::BTreeMap;
use std::ops::Range;

use k8s_openapi::api::core::v1::ConfigMap;
use kube_fanout::informer::ListWatch;
use kube_fanout::resource::Gvr;

use model::Plant;
use run::{Report, run};

/// Each seed reads in one of the ways that there are.
async fn play(seed: u64, plant: Plant) -> Result<Report, String> {
    let gvr = Gvr::new("", "v1", "configmaps");
    match seed % 5 {
        0 => run(seed, ListWatch::raw(&gvr), plant).await,
        1 => run(seed, ListWatch::raw(&gvr).in_pages(3), plant).await,
        2 => run(seed, ListWatch::<ConfigMap>::of_kind().consistent(), plant).await,
        3 => run(seed, ListWatch::metadata(&gvr), plant).await,
        _ => {
            run(
                seed,
                ListWatch::metadata(&gvr).in_pages(2).consistent(),
                plant,
            )
            .await
        }
    }
}

/// What a simulation does not do, it does not show.
const TROUBLE: [&str; 19] = [
    "410",
    "410 in a stream",
    "429",
    "500 in a stream",
    "5xx",
    "GOAWAY",
    "compaction",
    "expired page",
    "garbage frame",
    "initial stream cut",
    "list cut short",
    "outage",
    "repeated event",
    "restart",
    "restore",
    "stale answer",
    "stream cut",
    "version ahead",
    "wrong content type",
];

async fn play_all(seeds: Range<u64>) {
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in seeds.clone() {
        let report = play(seed, Plant::Nothing).await;
        let report = report.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        let totals = report.totals;
        let own = [
            ("told", totals.told),
            ("merged", totals.merged),
            ("went back", totals.went_back),
            ("made anew", totals.made_anew),
            ("found gone", totals.found_gone),
            ("requests", report.requests.len() as u64),
        ];
        for (what, times) in report.struck.into_iter().chain(own) {
            *sums.entry(what).or_default() += times;
        }
    }
    let rare = TROUBLE
        .into_iter()
        .chain(["merged", "went back", "made anew", "found gone"]);
    for what in rare {
        assert!(
            sums.get(what).is_some_and(|times| *times >= 10),
            "{what} is missing in {sums:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn after_trouble_all_hold_what_the_server_holds() {
    play_all(0..50).await;
}

#[tokio::test(start_paused = true)]
async fn after_trouble_all_hold_what_the_server_holds_second_part() {
    play_all(50..100).await;
}

#[tokio::test(start_paused = true)]
async fn after_trouble_all_hold_what_the_server_holds_third_part() {
    play_all(100..150).await;
}

#[tokio::test(start_paused = true)]
async fn after_trouble_all_hold_what_the_server_holds_fourth_part() {
    play_all(150..200).await;
}

#[tokio::test(start_paused = true)]
async fn a_seed_gives_the_same_run_again() {
    // The last one has large objects, whose lists are read on another thread.
    let seeds = option_env!("CHAOS_SEED").map_or_else(
        || vec![5, 6, 7, 8, 9, 117],
        |seed| vec![seed.parse().unwrap()],
    );
    for seed in seeds {
        let first = play(seed, Plant::Nothing).await;
        let first = first.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        let again = play(seed, Plant::Nothing).await.unwrap();
        assert_eq!(first.requests, again.requests, "seed {seed} did not replay");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_event_is_found_out() {
    let why = play(3, Plant::LostEvent).await.unwrap_err();
    assert!(why.starts_with("the store holds"), "{why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_sockets_all_hold_what_the_server_holds() {
    sockets::play_all(0..5).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_sockets_all_hold_what_the_server_holds_second_part() {
    sockets::play_all(5..10).await;
}
