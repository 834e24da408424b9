//! Flags of the scenarios that play one kind of trouble each.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use kube_fanout::resource::Encoding;

use super::{ChurnFlags, HerdFlags, ServerFlags, WatchFlags, WatchRunFlags, seconds};
use crate::pods::Fleet;
use crate::swarm::Accept;

/// Flags of `burst`.
#[derive(Debug, Clone, Args)]
#[allow(missing_docs, reason = "groups of flags, documented where they are")]
pub struct Burst {
    #[command(flatten)]
    pub server: ServerFlags,
    #[command(flatten)]
    pub watching: WatchFlags,
    #[command(flatten)]
    pub bursts: BurstFlags,
    /// Number of objects that are written.
    #[arg(long, default_value_t = 100)]
    pub objects: usize,
    /// Size of an object on the wire, bytes.
    #[arg(long, default_value_t = 1_024)]
    pub object_size: usize,
    /// Writes of one burst.
    #[arg(long, default_value_t = 1_000)]
    pub writes: usize,
    /// Connections of the writer.
    #[arg(long, default_value_t = 16)]
    pub writers: usize,
}

/// Flags of `big-object`.
#[derive(Debug, Clone, Args)]
#[allow(missing_docs, reason = "groups of flags, documented where they are")]
pub struct BigObject {
    #[command(flatten)]
    pub server: ServerFlags,
    #[command(flatten)]
    pub watching: WatchFlags,
    #[command(flatten)]
    pub bursts: BurstFlags,
    /// Size of the object on the wire, bytes.
    #[arg(long, default_value_t = 680 * 1_024)]
    pub object_size: usize,
}

/// Flags of scenarios that write at once and then wait.
#[derive(Debug, Clone, Args)]
pub struct BurstFlags {
    /// How often.
    #[arg(long, default_value_t = 5)]
    pub bursts: usize,
    /// Quiet before each, such as 1s.
    #[arg(long, default_value = "1s", value_parser = seconds)]
    pub quiet: Duration,
    /// Leave the written objects there.
    #[arg(long)]
    pub keep_objects: bool,
}

/// Flags of `quiet-end`.
#[derive(Debug, Clone, Args)]
#[command(mut_arg("watchers", |arg| arg.default_value("200")))]
#[allow(missing_docs, reason = "groups of flags, documented where they are")]
pub struct QuietEnd {
    #[command(flatten)]
    pub server: ServerFlags,
    #[command(flatten)]
    pub watching: WatchFlags,
    /// Bursts of each size: of four one each is written at once and one after the other, at the API server and through the server under test.
    #[arg(long, default_value_t = 4)]
    pub rounds: usize,
    /// Writes of a burst, several sizes after each other.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4, 20, 200])]
    pub writes: Vec<usize>,
    /// Sizes of the object on the wire, bytes.
    #[arg(long, value_delimiter = ',', default_values_t = [100, 1_000, 20_000, 70_000, 1 << 20])]
    pub sizes: Vec<usize>,
    /// What all watchers together may get of one burst, MiB; bursts of more are left out.
    #[arg(long, default_value_t = 512)]
    pub volume_max: usize,
    /// Watch over WebSockets.
    #[arg(long)]
    pub websocket: bool,
    /// Ask for the metadata of objects alone.
    #[arg(long)]
    pub metadata: bool,
    /// Ask for objects in protobuf.
    #[arg(long, conflicts_with = "metadata")]
    pub protobuf: bool,
}

impl QuietEnd {
    /// What the watchers ask for.
    pub const fn accept(&self) -> Accept {
        match (self.metadata, self.protobuf) {
            (true, _) => Accept::Metadata,
            (false, true) => Accept::Protobuf,
            (false, false) => Accept::Json,
        }
    }
}

/// Flags of `node-selectors`.
#[derive(Debug, Clone, Args)]
#[command(mut_arg("path", |arg| arg.default_value("/api/v1/namespaces/default/pods")))]
#[command(mut_arg("write_rate", |arg| arg.default_value("1000")))]
#[command(mut_arg("objects", |arg| arg.default_value("10000")))]
#[allow(missing_docs, reason = "groups of flags, documented where they are")]
pub struct NodeSelectors {
    #[command(flatten)]
    pub setting: WatchRunFlags,
    /// Watchers of the run that is compared with.
    #[arg(long, default_value_t = 5)]
    pub reference_watchers: usize,
    /// Nodes that the pods are spread over; by default one for each watcher.
    #[arg(long)]
    pub nodes: Option<usize>,
}

/// Flags of `slow`.
#[derive(Debug, Clone, Args)]
#[allow(missing_docs, reason = "groups of flags, documented where they are")]
pub struct Slow {
    #[command(flatten)]
    pub setting: WatchRunFlags,
    /// How some are slow; several are played one after the other.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [
        SlowKind::Renews, SlowKind::NeverReads, SlowKind::RenewsUnread,
        SlowKind::ReadsSlowly, SlowKind::Pauses, SlowKind::Trickles, SlowKind::Http2, SlowKind::Half,
    ])]
    pub kind: Vec<SlowKind>,
    /// How long those who begin anew stay on a stream, such as 0.5s.
    #[arg(long, default_value = "0.5s", value_parser = seconds)]
    pub renews_every: Duration,
    /// Receive buffer of the slow over HTTP/1.1, bytes.
    #[arg(long, default_value_t = 4_096)]
    pub receive_buffer: usize,
}

/// How slow watchers are slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SlowKind {
    /// One in a hundred reads, and leaves now and then to watch anew from the newest version: what that alone costs the others.
    #[value(alias = "draining-companion")]
    Renews,
    /// One in a hundred does not read at all.
    #[value(alias = "stalled-once")]
    NeverReads,
    /// One in a hundred does not read at all, and leaves now and then to watch anew from the newest version.
    #[value(alias = "stalled-reconnecting")]
    RenewsUnread,
    /// One in ten reads a tenth of what comes.
    ReadsSlowly,
    /// One in ten reads for a second and rests for four.
    Pauses,
    /// One in a hundred reads small pieces, just as fast as they come.
    Trickles,
    /// One stream in a hundred is not read, on HTTP/2 connections that others read from.
    Http2,
    /// Every second one does not read at all.
    Half,
}

/// Flags of `joiners`.
#[derive(Debug, Clone, Args)]
#[command(mut_arg("watchers", |arg| arg.default_value("200")))]
#[allow(missing_docs, reason = "groups of flags, documented where they are")]
pub struct Joiners {
    #[command(flatten)]
    pub setting: WatchRunFlags,
}

/// Flags of `rate`.
#[derive(Debug, Clone, Args)]
#[command(mut_arg("watchers", |arg| arg.default_value("8")))]
#[command(mut_arg("write_rate", |arg| arg.default_value("0")))]
#[allow(missing_docs, reason = "groups of flags, documented where they are")]
pub struct Rate {
    #[command(flatten)]
    pub setting: WatchRunFlags,
    /// Connections of the writer, if it is not the server that churns.
    #[arg(long, default_value_t = 32)]
    pub writers: usize,
}

/// Flags of `overload`.
#[derive(Debug, Clone, Args)]
#[command(mut_arg("watchers", |arg| arg.default_value("2000")))]
#[allow(missing_docs, reason = "groups of flags, documented where they are")]
pub struct Overload {
    #[command(flatten)]
    pub setting: WatchRunFlags,
    /// Clients that list again and again.
    #[arg(long, default_value_t = 500)]
    pub listers: usize,
    /// Objects that these lists hold besides those that are written; missing ones are created.
    #[arg(long, default_value_t = 10_000)]
    pub ballast_objects: usize,
    /// Size of these, bytes.
    #[arg(long, default_value_t = 2_900)]
    pub ballast_size: usize,
    /// Most memory that the server may have at any moment, MiB.
    #[arg(long)]
    pub memory_max: Option<u64>,
    /// Watchers that come when the load is over.
    #[arg(long, default_value_t = 100)]
    pub late_watchers: usize,
    /// Clients that are refused ask again after a second, as scripts do; without this they wait as long as they are told, as client-go
    /// does, 30 s at most.
    #[arg(long)]
    pub impatient: bool,
    /// How soon after the load the server must answer a list.
    #[arg(long, default_value = "5s", value_parser = seconds)]
    pub recovery: Duration,
}

/// Flags of `drain`.
#[derive(Debug, Clone, Args)]
#[command(mut_arg("write_rate", |arg| arg.default_value("30")))]
#[command(mut_arg("object_size", |arg| arg.default_value("4096")))]
#[command(mut_arg("duration", |arg| arg.default_value("3s")))]
#[command(mut_arg("warm_up", |arg| arg.default_value("0s")))]
#[allow(missing_docs, reason = "groups of flags, documented where they are")]
pub struct Drain {
    #[command(flatten)]
    pub server: ServerFlags,
    #[command(flatten)]
    pub churning: ChurnFlags,
    /// Number of watchers, of all kinds together.
    #[arg(long, default_value_t = 3_000)]
    pub watchers: usize,
    /// Clients that are in the middle of a list, half of them of one that is forwarded.
    #[arg(long, default_value_t = 16)]
    pub listers: usize,
    /// Objects that these lists hold besides those that are written; missing ones are created.
    #[arg(long, default_value_t = 600)]
    pub ballast_objects: usize,
    /// Size of these, bytes.
    #[arg(long, default_value_t = 5_000)]
    pub ballast_size: usize,
    /// How long the gateway may take to end, as it was told.
    #[arg(long, default_value = "25s", value_parser = seconds)]
    pub drain_timeout: Duration,
}

/// Flags of `start`.
#[derive(Debug, Clone, Args)]
#[command(mut_arg("path", |arg| arg.default_value("/api/v1/pods")))]
#[allow(missing_docs, reason = "groups of flags, documented where they are")]
pub struct Start {
    #[command(flatten)]
    pub server: ServerFlags,
    /// Pods that the server shall hold, and no others; missing ones are created.
    #[arg(long, default_value_t = 20_000)]
    pub pods: usize,
    /// Namespaces that they are spread over.
    #[arg(long, default_value_t = 50)]
    pub namespaces: usize,
    /// Nodes that they are spread over.
    #[arg(long, default_value_t = 200)]
    pub nodes: usize,
    /// Encodings, one after the other.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [ObjectEncoding::Json, ObjectEncoding::Protobuf])]
    pub encodings: Vec<ObjectEncoding>,
    /// How often, for each encoding.
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// Longest time for the initial events, such as 60s.
    #[arg(long, default_value = "60s", value_parser = seconds)]
    pub wait: Duration,
    /// The gateway's program; by default the one beside this one.
    #[arg(long)]
    pub gateway: Option<PathBuf>,
}

/// Flags of `reconnect-repeat`.
#[derive(Debug, Clone, Args)]
#[allow(missing_docs, reason = "groups of flags, documented where they are")]
pub struct ReconnectStorm {
    #[command(flatten)]
    pub setting: WatchRunFlags,
    /// Users that the watchers are.
    #[arg(long, default_value_t = 500)]
    pub users: usize,
    /// The gateway's program; by default the one beside this one.
    #[arg(long)]
    pub gateway: Option<PathBuf>,
}

/// How objects are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ObjectEncoding {
    /// JSON.
    Json,
    /// Kubernetes' protobuf.
    Protobuf,
}

impl Start {
    /// The pods there shall be.
    pub const fn fleet(&self) -> Fleet {
        Fleet {
            pods: self.pods,
            namespaces: self.namespaces,
            nodes: self.nodes,
        }
    }

    /// The encodings to play with.
    pub fn encodings(&self) -> impl Iterator<Item = Encoding> {
        self.encodings.iter().map(|written| match written {
            ObjectEncoding::Json => Encoding::Json,
            ObjectEncoding::Protobuf => Encoding::Protobuf,
        })
    }

    /// The gateway to start.
    ///
    /// # Errors
    /// If there is none.
    pub fn gateway_program(&self) -> Result<PathBuf> {
        gateway_program(self.gateway.as_ref())
    }
}

impl ReconnectStorm {
    /// The gateway to start.
    ///
    /// # Errors
    /// If there is none.
    pub fn gateway_program(&self) -> Result<PathBuf> {
        gateway_program(self.gateway.as_ref())
    }
}

fn gateway_program(given: Option<&PathBuf>) -> Result<PathBuf> {
    let program = match given {
        Some(program) => program.clone(),
        None => std::env::current_exe()?.with_file_name("kube-fanout"),
    };
    ensure!(
        program.is_file(),
        "{} is missing: cargo build --release --workspace, or --gateway FILE",
        program.display()
    );
    Ok(program)
}

/// Flags of `watch-list-herd`.
#[derive(Debug, Clone, Args)]
#[allow(missing_docs, reason = "groups of flags, documented where they are")]
pub struct WatchListHerd {
    #[command(flatten)]
    pub herd: HerdFlags,
    /// Streams over HTTP/2, so many on each connection.
    #[arg(long)]
    pub streams_per_connection: Option<usize>,
}

/// Flags of `big-lists`.
#[derive(Debug, Clone, Args)]
#[command(mut_arg("clients", |arg| arg.default_value("4")))]
#[command(mut_arg("object_size", |arg| arg.default_value("102400")))]
#[command(mut_arg("round_wait", |arg| arg.default_value("120s")))]
#[allow(missing_docs, reason = "groups of flags, documented where they are")]
pub struct BigLists {
    #[command(flatten)]
    pub herd: HerdFlags,
}
