//! Many informers of one resource in one process, for tests that disturb what they watch. It answers each line on its input: `lap` with
//! how often they listed and how long they got nothing, any other line with the hashes of their stores.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use kube::core::{ApiResource, GroupVersionKind};
use kube_fanout::informer::ListWatch;
use kube_fanout::resource::Gvr;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, stdin};
use tokio::task::JoinSet;

use super::follow::{InformerHandle, kube_rs, own};
use crate::command::Subcommand;
use crate::pods::digest;

/// Runs many informers of one resource in a process; it answers lines on its input.
#[derive(Debug, Clone, Parser)]
#[command(name = "crowd")]
pub struct Crowd {
    /// Kubeconfig of the server.
    #[arg(long)]
    pub kubeconfig: PathBuf,
    /// Whose informers.
    #[arg(long, value_enum)]
    pub library: Library,
    /// Version and plural name, such as `example.com/v1/widgets` or `/v1/pods`.
    #[arg(long)]
    pub resource: String,
    /// Kind of the resource, such as `Widget`.
    #[arg(long)]
    pub kind: String,
    /// Informers, each with connections of its own.
    #[arg(long)]
    pub count: usize,
}

/// Where an informer comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Library {
    /// This project.
    Ours,
    /// kube-rs.
    KubeRs,
}

impl Subcommand for Crowd {
    fn execute(&self) -> Result<bool> {
        // As many threads as the machine has processors, which is tokio's default.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()?;
        runtime.block_on(serve(self)).map(|()| true)
    }
}

async fn serve(flags: &Crowd) -> Result<()> {
    let mut parts = flags.resource.splitn(3, '/');
    let mut part = || parts.next().context("--resource is GROUP/VERSION/PLURAL");
    let (group, version, plural) = (part()?, part()?, part()?);
    let kind = GroupVersionKind::gvk(group, version, &flags.kind);
    let resource = ApiResource::from_gvk_with_plural(&kind, plural);
    let gvr = Gvr::new(group, version, plural);
    let (mut informers, mut starting) = (Vec::new(), JoinSet::new());
    let synced_count = Arc::new(AtomicUsize::new(0));
    for _ in 0..flags.count {
        let mut informer = match flags.library {
            Library::Ours => own::start(&flags.kubeconfig, ListWatch::raw(&gvr)).await?,
            Library::KubeRs => kube_rs::dynamic_of(&flags.kubeconfig, resource.clone()).await?,
        };
        let ready = Box::pin(futures::future::pending());
        let synced = std::mem::replace(&mut informer.synced, ready);
        let synced_count = Arc::clone(&synced_count);
        starting.spawn(async move {
            if synced.await.is_ok() {
                // Relaxed: the reader polls it until it is high enough.
                synced_count.fetch_add(1, Ordering::Relaxed);
            }
        });
        informers.push(informer);
    }
    let mut asked = BufReader::new(stdin()).lines();
    while let Some(line) = asked.next_line().await? {
        let mut answer = match line.as_str() {
            "lap" => lap(&informers),
            _ => state(&informers),
        };
        answer["synced"] = synced_count.load(Ordering::Relaxed).into();
        println!("{answer}");
    }
    Ok(())
}

/// How often they have listed since their start, and the longest time for which one of them got nothing since the last lap.
fn lap(informers: &[InformerHandle]) -> Value {
    let silences = informers.iter().map(|one| one.seen.take_longest_silence());
    let longest = silences.max().unwrap_or_default();
    let lists: u64 = informers.iter().map(|one| (one.lists)()).sum();
    json!({"event": "lap", "lists": lists, "silenceMs": longest.as_secs_f64() * 1e3})
}

/// The number of stores by their hash.
fn state(informers: &[InformerHandle]) -> Value {
    let mut hashes = BTreeMap::<String, usize>::new();
    for informer in informers {
        *hashes.entry(digest((informer.lines)()).hash).or_default() += 1;
    }
    json!({"event": "state", "hashes": hashes})
}
