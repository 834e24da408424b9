//! Thousands of clients on a few threads. A [`Member`] is a client: it chooses requests and checks responses; the swarm moves the bytes.

pub mod connection;
pub mod multiplexed;
pub mod pace;
pub mod reactor;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use kube_fanout::resource::Encoding;
use rustls::ClientConfig;

use crate::recorder::{Control, Recorder};
use crate::target::{Target, USER_AGENT};
use pace::Slowness;

/// Connections per source address: fewer than Linux's 28,232 ephemeral ports.
const CONNECTIONS_PER_SOURCE: usize = 20_000;
/// Length of a member's pause, if the server has sent no Retry-After.
const PAUSE: Duration = Duration::from_secs(1);
/// Longest Retry-After that is obeyed: an API server sends shorter ones, and a run must end.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);
/// How often threads look at their orders and count progress.
const LOOK: Duration = Duration::from_millis(5);

/// The status of requests that the server refuses for lack of capacity.
pub const TOO_MANY: u16 = 429;

/// The next action of a member whose connection is free.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Send a request for this path: a GET, or a PATCH by [`Member::patch`].
    Send(String),
    /// Pause for this time.
    Wait(Duration),
    /// Pause for the time in the server's last response, or [`PAUSE`].
    Pause,
    /// Wait for the next round.
    Rest,
    /// Nothing more. An HTTP/1.1 connection stays until the server closes it.
    Done,
}

/// How a response, or the attempt to get one, ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseEnd<'a> {
    Complete(u16),
    /// The connection was refused, reset, or broke the protocol.
    Broken(&'a str),
    /// The member has left it.
    Left,
}

/// Media type that members ask for.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Accept {
    #[default]
    Json,
    /// Metadata of objects in JSON.
    Metadata,
    Protobuf,
}

impl Accept {
    /// The value of the Accept header.
    pub const fn header(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Metadata => "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
            // As Kubernetes' own components ask.
            Self::Protobuf => "application/vnd.kubernetes.protobuf,application/json",
        }
    }

    /// The encoding of the responses.
    pub const fn encoding(self) -> Encoding {
        match self {
            Self::Json | Self::Metadata => Encoding::Json,
            Self::Protobuf => Encoding::Protobuf,
        }
    }
}

/// One client of the swarm.
pub trait Member: Send + 'static {
    /// The next action; called when the connection is free: at the start, and after each response.
    fn next(&mut self, control: &Control) -> Next;
    /// The body of the request that it has chosen, if that is a strategic merge patch; asked over HTTP/2 only.
    fn patch(&mut self) -> Option<Vec<u8>> {
        None
    }
    /// Its own bearer token, instead of the swarm's; asked before each request over HTTP/2 only.
    fn token(&mut self) -> Option<String> {
        None
    }
    /// Its own TLS configuration, with a client certificate; asked before each connection over HTTP/2 only.
    fn tls(&self) -> Option<Arc<ClientConfig>> {
        None
    }
    /// A response with status 200 has started; called once or more often.
    fn response_started(&mut self) {}
    /// A piece of the body of a response with this status.
    fn body(&mut self, status: u16, data: &[u8], recorder: &mut Recorder);
    fn response_ended(&mut self, how: ResponseEnd<'_>, recorder: &mut Recorder);
    /// The server has closed the connection after a response; `in_order` if it was not reset and TLS was closed first. Over HTTP/1.1 only.
    fn closed(&mut self, _in_order: bool) {}
    /// Number of orders in `control` that it has carried out: rounds, or 1 when the goal is reached.
    fn progress(&self, control: &Control) -> usize;
    /// Number of versions that it is behind the goal, if it watches; called while a response is open.
    fn behind_by(&self) -> Option<u64> {
        None
    }
    /// How slowly it reads, if it is a slow client.
    fn slowness(&self) -> Option<Slowness> {
        None
    }
    /// Whether it leaves the response now; called after each piece.
    fn wants_to_leave(&self, _control: &Control) -> bool {
        false
    }
}

#[derive(Debug, Clone)]
pub struct SwarmConfig {
    pub target: Target,
    /// Threads that share the members.
    pub threads: usize,
    /// Streams on each HTTP/2 connection; HTTP/1.1 if `None`.
    pub streams_per_connection: Option<usize>,
    /// Whether members watch over WebSockets; over HTTP/1.1 only.
    pub websocket: bool,
    /// Media type that members ask for.
    pub accept: Accept,
    /// `user-agent` over HTTP/2.
    pub user_agent: &'static str,
    /// Receive window of each HTTP/2 stream, bytes.
    pub stream_window: u32,
    /// Whether members pause for [`PAUSE`] only, even if Retry-After is longer.
    pub impatient: bool,
    /// First local address; the next is used for every 20,000 connections.
    pub source: Ipv4Addr,
}

/// Receive window of a stream, as Go's HTTP/2 client has it.
pub const STREAM_WINDOW_LEN: u32 = 4 << 20;

impl SwarmConfig {
    /// One thread over HTTP/1.1, for clients that read JSON.
    pub const fn new(target: Target) -> Self {
        Self {
            target,
            threads: 1,
            streams_per_connection: None,
            websocket: false,
            accept: Accept::Json,
            user_agent: USER_AGENT,
            stream_window: STREAM_WINDOW_LEN,
            impatient: false,
            source: Ipv4Addr::LOCALHOST,
        }
    }

    /// The pause after a response with this Retry-After.
    fn pause(&self, retry_after: Option<Duration>) -> Duration {
        let obeyed = retry_after.filter(|_| !self.impatient);
        obeyed.map_or(PAUSE, |wait| wait.min(RETRY_AFTER_MAX))
    }

    /// The local address of the connection with this number.
    pub fn source_of(&self, number: usize) -> Ipv4Addr {
        let step = u32::try_from(number / CONNECTIONS_PER_SOURCE).unwrap_or(u32::MAX);
        Ipv4Addr::from(u32::from(self.source).saturating_add(step))
    }
}

/// Returns its members and counters.
type SwarmThread<M> = JoinHandle<Result<(Vec<M>, Recorder)>>;

/// A running swarm. Dropping it orders its threads to stop.
#[derive(Debug)]
pub struct Swarm<M> {
    control: Arc<Control>,
    threads: Vec<SwarmThread<M>>,
    count: usize,
}

impl<M: Member> Swarm<M> {
    /// Starts the threads, which connect their members.
    pub fn start(
        members: Vec<M>,
        swarm_config: &SwarmConfig,
        control: Arc<Control>,
    ) -> Result<Self> {
        let count = members.len();
        let streams = swarm_config.streams_per_connection.unwrap_or(1).max(1);
        let share = count.div_ceil(swarm_config.threads.max(1)).max(1);
        let share = share.next_multiple_of(streams);
        let mut swarm = Self {
            control,
            threads: Vec::new(),
            count,
        };
        let mut members = members.into_iter();
        let mut first = 0;
        while first < count {
            let mine: Vec<M> = members.by_ref().take(share).collect();
            let (swarm_config, control, number) =
                (swarm_config.clone(), swarm.control.clone(), first);
            first += mine.len();
            let run = move || match swarm_config.streams_per_connection {
                None => reactor::run(mine, &swarm_config, &control, number),
                Some(streams) => multiplexed::run(mine, &swarm_config, control, number, streams),
            };
            swarm.threads.push(
                std::thread::Builder::new()
                    .name(format!("swarm-{number}"))
                    .spawn(run)?,
            );
        }
        Ok(swarm)
    }

    /// Waits until every member's first response has started.
    pub async fn ready(&self, wait: Duration) -> Result<()> {
        self.until(wait, "got a response", |control| {
            control.ready.load(Ordering::Relaxed)
        })
        .await
    }

    /// Orders and counters of the swarm.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// Starts a round and waits until every member has ended it; rounds count from 1.
    pub async fn play_round(&self, round: usize, wait: Duration) -> Result<()> {
        let before = self.count * (round - 1);
        self.control.round.store(round, Ordering::Relaxed);
        let ended = |control: &Control| {
            control
                .progress
                .load(Ordering::Relaxed)
                .saturating_sub(before)
        };
        self.until(wait, "ended the round", ended).await
    }

    async fn until(
        &self,
        wait: Duration,
        what: &str,
        count: impl Fn(&Control) -> usize,
    ) -> Result<()> {
        let reached = || count(&self.control);
        until_all(wait, self.count, what, reached, || self.has_failed()).await
    }

    /// Whether one of its threads has ended.
    pub fn has_failed(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Stops all threads; returns the members in their order, and the merged counters.
    pub fn finish(mut self) -> Result<(Vec<M>, Recorder)> {
        self.control.stop.store(true, Ordering::Relaxed);
        let mut members = Vec::with_capacity(self.count);
        let mut recorder = Recorder::default();
        for thread in self.threads.drain(..) {
            let (mine, counts) = thread
                .join()
                .map_err(|_| anyhow!("a swarm thread panicked"))??;
            members.extend(mine);
            recorder.merge(&counts);
        }
        Ok((members, recorder))
    }
}

/// Waits until `count` reaches `all`.
pub async fn until_all(
    wait: Duration,
    all: usize,
    what: &str,
    count: impl Fn() -> usize,
    has_failed: impl Fn() -> bool,
) -> Result<()> {
    let deadline = Instant::now() + wait;
    loop {
        let reached = count();
        if reached >= all {
            return Ok(());
        }
        ensure!(
            Instant::now() <= deadline && !has_failed(),
            "after {wait:?} only {reached} of {all} clients have {what}"
        );
        tokio::time::sleep(LOOK).await;
    }
}

impl<M> Drop for Swarm<M> {
    fn drop(&mut self) {
        self.control.stop.store(true, Ordering::Relaxed);
    }
}

/// One thread's share of [`Control::progress`] and [`Control::behind`].
#[derive(Debug, Default)]
struct ProgressShare {
    reported: usize,
    reported_behind: usize,
}

impl ProgressShare {
    /// Reports all members of the thread, each with whether its response is open.
    fn report<'a, M: Member>(
        &mut self,
        members: impl Iterator<Item = (&'a M, bool)>,
        control: &Control,
    ) {
        let (mut progress, mut behind, mut behind_by) = (0, 0, 0);
        for (member, is_open) in members {
            progress += member.progress(control);
            if let Some(by) = member.behind_by().filter(|_| is_open) {
                behind += 1;
                behind_by = by.max(behind_by);
            }
        }
        control.behind_by.fetch_max(behind_by, Ordering::Relaxed);
        replace(&control.progress, &mut self.reported, progress);
        replace(&control.behind, &mut self.reported_behind, behind);
    }
}

/// Replaces a thread's old share of a total by the new one.
fn replace(total: &AtomicUsize, reported: &mut usize, share: usize) {
    // This wraps around if the share is smaller than before.
    total.fetch_add(share.wrapping_sub(*reported), Ordering::Relaxed);
    *reported = share;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patient_members_obey_retry_after_within_bounds() {
        let target = Target::new("http://127.0.0.1:1", None, None).unwrap();
        let swarm_config = |impatient| SwarmConfig {
            impatient,
            ..SwarmConfig::new(target.clone())
        };
        for (retry_after_s, patient) in [
            (None, PAUSE),
            (Some(0), Duration::ZERO),
            (Some(7), Duration::from_secs(7)),
            (Some(3_600), RETRY_AFTER_MAX),
        ] {
            let retry_after = retry_after_s.map(Duration::from_secs);
            assert_eq!(swarm_config(false).pause(retry_after), patient);
            assert_eq!(swarm_config(true).pause(retry_after), PAUSE);
        }
    }
}
