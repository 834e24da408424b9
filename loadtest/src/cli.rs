//! Flags.

pub mod hostile;
pub mod informers;
pub mod players;
pub mod runner;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

/// Swarms of clients against kube-fanout or any Kubernetes API server, checking what they get.
#[derive(Debug, Parser)]
#[command(version, args_override_self = true)]
pub struct Flags {
    /// What to do.
    #[command(subcommand)]
    pub scenario: Scenario,
}

/// The scenarios by name.
#[derive(Debug, Subcommand)]
pub enum Scenario {
    /// Many watchers under steady churn: nothing lost, nothing doubled, order kept; latency and CPU per event.
    Steady(Steady),
    /// Steady twice, the second time with some watchers that stop reading: do they delay the others, do they recover?
    Stalled(Stalled),
    /// Many clients list at once, several times: every body complete.
    RelistHerd(HerdFlags),
    /// Many clients list at once, plain and with gzip: what the first compressed lists cost, and the later ones.
    GzipHerd(HerdFlags),
    /// Many idle watches: server memory per watch.
    IdleMemory(Idle),
    /// Nothing, then many writes at once, several times: how long until the last watcher has the last event?
    Burst(players::Burst),
    /// A burst, then nothing, with objects and bursts of every size: everybody must have everything although nothing more happens.
    QuietEnd(players::QuietEnd),
    /// Each watcher asks for the pods of its own node: a few of them, then all; CPU for each event.
    NodeSelectors(players::NodeSelectors),
    /// One long object changes, and all watch it.
    BigObject(players::BigObject),
    /// Many clients take their list as a stream of initial events at once, several times: every state complete.
    WatchListHerd(players::WatchListHerd),
    /// Ways to be slow, each beside the same run without: do they delay the others, do they recover?
    Slow(players::Slow),
    /// Clients come and go while objects churn: each ends with the server's state.
    Joiners(players::Joiners),
    /// A few clients list a gigabyte at once.
    BigLists(players::BigLists),
    /// As many events as upstream makes, to a few watchers: how far behind are they?
    Rate(players::Rate),
    /// More lists and watches than the server takes: it sheds, stays within its memory, and recovers.
    Overload(players::Overload),
    /// A gateway with a mixed population is asked to end: every stream ends in order and whole, who comes new is turned away, and it ends in time.
    Drain(players::Drain),
    /// What a hostile client does, and a witness beside it: its events, lists, writes and new connections, and the server's memory.
    Hostile(hostile::Hostile),
    /// The initial events of all pods, to a client that drops them and to gateways just started: how soon after them is a cache ready?
    Start(players::Start),
    /// Watchers of many users connect at once to gateways that it starts itself before an API server of its own, and again: what does the
    /// API server hear of it, and what does an event cost?
    ReconnectStorm(players::ReconnectStorm),
    /// The floor to compare with: a server that does one write per client and event and nothing else.
    SocketLoop(SocketLoop),
    /// client-go's informers, kube-rs's reflector and this project's informer on the same pods: equal stores, sync time, CPU, memory.
    Informers(informers::Informers),
    /// Makes the pods for that.
    SeedPods(informers::SeedPods),
    /// A share of a swarm, in a process of its own; told what to do on its input.
    #[command(hide = true)]
    Part(ServerFlags),
    /// A hostile client, in a process of its own.
    #[command(hide = true)]
    Attack(hostile::Attacker),
    /// One informer of that, in a process of its own; answers lines on its input.
    Follow(informers::Follow),
    /// Plays scenario files against servers that it starts, side by side, and reports.
    Run(runner::Runner),
    /// Renders the report of an earlier run anew.
    Report(runner::Render),
    /// Makes one report of several and of the figures of benches.
    Merge(runner::Merge),
    /// Prints docs/PERFORMANCE.md, made of a report.
    Page(runner::Page),
    /// Puts a report's figures into the marks of texts.
    Quote(runner::Quote),
    /// Runs a program that ends with the runner.
    #[command(hide = true)]
    #[command(name = "guarded")]
    GuardedProgram(runner::GuardedProgram),
}

/// Flags of all scenarios that need a server.
#[derive(Debug, Clone, Args)]
pub struct ServerFlags {
    /// Server under test, such as http://127.0.0.1:8001.
    #[arg(long)]
    pub target: String,
    /// API server that the reference and the writer use directly; by default the target.
    #[arg(long)]
    pub reference: Option<String>,
    /// Bearer token, or @FILE.
    #[arg(long, env = "LOADTEST_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// CA certificates for https, PEM.
    #[arg(long)]
    pub ca: Option<PathBuf>,
    /// CA certificates of the reference, if others.
    #[arg(long)]
    pub reference_ca: Option<PathBuf>,
    /// Path of the collection.
    #[arg(long, default_value = "/api/v1/namespaces/default/configmaps")]
    pub path: String,
    /// Process of the server under test: its CPU and memory are reported.
    #[arg(long)]
    pub server_pid: Option<u32>,
    /// Process of the API server behind it, for its CPU.
    #[arg(long)]
    pub upstream_pid: Option<u32>,
    /// Threads of the swarm.
    #[arg(long, default_value_t = 1)]
    pub threads: usize,
    /// First local address; the next one is used for every 20,000 connections.
    #[arg(long, default_value_t = Ipv4Addr::LOCALHOST)]
    pub source: Ipv4Addr,
    /// Write the figures to this file too.
    #[arg(long)]
    pub json: Option<PathBuf>,
}

/// Flags of scenarios with watchers.
#[derive(Debug, Clone, Args)]
pub struct WatchFlags {
    /// Number of watchers.
    #[arg(long, default_value_t = 5_000)]
    pub watchers: usize,
    /// Watch over HTTP/2.
    #[arg(long)]
    pub http2: bool,
    /// Streams on each HTTP/2 connection.
    #[arg(long, default_value_t = 100)]
    pub streams_per_connection: usize,
    /// Processes that the watchers are split over: each may have as many connections as it may have open files.
    #[arg(long, default_value_t = 1)]
    pub processes: usize,
}

/// Flags of scenarios with churn.
#[derive(Debug, Clone, Args)]
pub struct ChurnFlags {
    /// Length of the measured window, such as 30s.
    #[arg(long, default_value = "30s", value_parser = seconds)]
    pub duration: Duration,
    /// Churn before the window, such as 2s.
    #[arg(long, default_value = "2s", value_parser = seconds)]
    pub warm_up: Duration,
    /// Writes a second; 0 if the server churns by itself.
    #[arg(long, default_value_t = 100.0)]
    pub write_rate: f64,
    /// Number of objects that are written.
    #[arg(long, default_value_t = 100)]
    pub objects: usize,
    /// Size of an object on the wire, bytes.
    #[arg(long, default_value_t = 1_024)]
    pub object_size: usize,
    /// Leave the written objects there.
    #[arg(long)]
    pub keep_objects: bool,
}

/// Flags of scenarios with watchers under churn.
#[derive(Debug, Clone, Args)]
#[allow(missing_docs, reason = "groups of flags, documented above")]
pub struct WatchRunFlags {
    #[command(flatten)]
    pub server: ServerFlags,
    #[command(flatten)]
    pub watching: WatchFlags,
    #[command(flatten)]
    pub churning: ChurnFlags,
}

/// Flags of `steady`.
#[derive(Debug, Clone, Args)]
#[allow(missing_docs, reason = "groups of flags, documented above")]
pub struct Steady {
    #[command(flatten)]
    pub setting: WatchRunFlags,
    /// Then the same against a bare socket loop, and print the ratio; with TLS if the target has it.
    #[arg(long)]
    pub baseline: bool,
    /// Watch from different versions, one in four without bookmarks, and send one write in ten through the server under test.
    #[arg(long)]
    pub mixed: bool,
    /// So many writes at the same moment, as often as the rate then wants; the socket loop lets as many events leave in one write.
    #[arg(long, default_value_t = 1)]
    pub writes_at_once: usize,
}

/// Flags of `stalled`.
#[derive(Debug, Clone, Args)]
#[allow(missing_docs, reason = "groups of flags, documented above")]
pub struct Stalled {
    #[command(flatten)]
    pub setting: WatchRunFlags,
    /// Watchers that stop reading.
    #[arg(long, default_value_t = 50)]
    pub stalled: usize,
    /// Receive buffer of these, bytes.
    #[arg(long, default_value_t = 4_096)]
    pub receive_buffer: usize,
}

/// Flags of `relist-herd` and `gzip-herd`.
#[derive(Debug, Clone, Args)]
#[allow(missing_docs, reason = "groups of flags, documented above")]
pub struct HerdFlags {
    #[command(flatten)]
    pub server: ServerFlags,
    /// Number of clients.
    #[arg(long, default_value_t = 500)]
    pub clients: usize,
    /// How often all list at once.
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// Objects there shall be; missing ones are created.
    #[arg(long, default_value_t = 10_000)]
    pub objects: usize,
    /// Size of a created object on the wire, bytes.
    #[arg(long, default_value_t = 2_900)]
    pub object_size: usize,
    /// Query of the list.
    #[arg(long, default_value = "resourceVersion=0")]
    pub query: String,
    /// Longest time for one round, such as 60s.
    #[arg(long, default_value = "60s", value_parser = seconds)]
    pub round_wait: Duration,
}

/// Flags of `idle-memory`.
#[derive(Debug, Clone, Args)]
#[allow(missing_docs, reason = "groups of flags, documented above")]
pub struct Idle {
    #[command(flatten)]
    pub server: ServerFlags,
    #[command(flatten)]
    pub watching: WatchFlags,
    /// How long to wait before memory is read, such as 5s.
    #[arg(long, default_value = "5s", value_parser = seconds)]
    pub settle: Duration,
}

/// Flags of `socket-loop`.
#[derive(Debug, Clone, Args)]
pub struct SocketLoop {
    /// Where to listen; the address is printed on standard output.
    #[arg(long, default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// Events a second.
    #[arg(long, default_value_t = 100.0)]
    pub rate: f64,
    /// Length of an event's line, bytes.
    #[arg(long, default_value_t = 1_024)]
    pub event_size: usize,
    /// Events that leave in one write.
    #[arg(long, default_value_t = 1)]
    pub events_per_write: usize,
    /// HTTPS, with a certificate made for it, which is printed behind the address.
    #[arg(long)]
    pub tls: bool,
    /// Leaves out every N-th write for every second client: the load test must find that.
    #[arg(long, value_name = "N")]
    pub lose_one_in: Option<usize>,
    /// Ends by itself after this time.
    #[arg(long, default_value = "120s", value_parser = seconds)]
    pub duration: Duration,
}

/// Reads `30s`, `2m` or a plain number of seconds.
///
/// # Errors
/// If it is none of these; the message says so.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let (number, factor) = match text.strip_suffix('m') {
        Some(minutes) => (minutes, 60.0),
        None => (text.strip_suffix('s').unwrap_or(text), 1.0),
    };
    let number: f64 = number
        .parse()
        .map_err(|_| format!("{text}: not a number of seconds"))?;
    Duration::try_from_secs_f64(number * factor).map_err(|error| error.to_string())
}
