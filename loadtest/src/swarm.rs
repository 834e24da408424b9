//! Thousands of clients on a few threads. What a client says and checks is its [`Member`]; how the bytes get there is ours.

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
use serde::{Deserialize, Serialize};

use crate::recorder::{Control, Recorder};
use crate::target::Target;
use pace::Slowness;

/// Clients per source address: below Linux' 28,232 ephemeral ports.
const CONNECTIONS_PER_SOURCE: usize = 20_000;
/// How long a member that asked for a pause is left alone, if the server has not said how long.
const PAUSE: Duration = Duration::from_secs(1);
/// Longest Retry-After that is obeyed: an API server asks for less, and a run must come to its end.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);
/// How often threads look at their orders and count who is done.
const LOOK: Duration = Duration::from_millis(5);

/// The status of requests that the server has no room for.
pub const TOO_MANY: u16 = 429;

/// What a member wants to do while its connection is free.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// GET this path.
    Send(String),
    /// Ask again after a while: what the server's last answer asked for, or [`PAUSE`].
    Pause,
    /// Ask again at the next round.
    Rest,
    /// Nothing any more. An HTTP/1.1 connection stays until the server closes it.
    Done,
}

/// How a response, or the attempt to get one, ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseEnd<'a> {
    /// In good order, with this status.
    Complete(u16),
    /// The connection was refused, reset, or broke the protocol.
    Broken(&'a str),
    /// The member wanted no more of it.
    Left,
}

/// What members ask for.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Accept {
    /// Objects as they are, in JSON.
    #[default]
    Json,
    /// Their metadata alone, in JSON.
    Metadata,
    /// Objects as they are, in protobuf.
    Protobuf,
}

impl Accept {
    /// The header's value.
    pub const fn header(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Metadata => "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
            Self::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        }
    }

    /// How what comes is written.
    pub const fn encoding(self) -> Encoding {
        match self {
            Self::Json | Self::Metadata => Encoding::Json,
            Self::Protobuf => Encoding::Protobuf,
        }
    }
}

/// One client of the swarm.
pub trait Member: Send + 'static {
    /// Asked when the connection is free: at the start, and after each end.
    fn next(&mut self, control: &Control) -> Next;
    /// A response with status 200 has begun, and goes on. Told once or more often.
    fn begins(&mut self) {}
    /// A piece of the body of a response with this status.
    fn body(&mut self, status: u16, data: &[u8], recorder: &mut Recorder);
    /// The response is over.
    fn ended(&mut self, how: ResponseEnd<'_>, recorder: &mut Recorder);
    /// The server has closed the connection after a response; `in_order` if it was not reset, and TLS was ended before it. Over HTTP/1.1
    /// only.
    fn closed(&mut self, _in_order: bool) {}
    /// How many of the orders in `control` it has carried out: rounds, or 1 when the goal is reached.
    fn progress(&self, control: &Control) -> usize;
    /// By how many versions it is behind the goal, if it watches; asked while a response is open.
    fn behind_by(&self) -> Option<u64> {
        None
    }
    /// How it reads, if it is one of the slow.
    fn slowness(&self) -> Option<Slowness> {
        None
    }
    /// Whether it has had enough of the response; asked after each piece.
    fn leaves(&self, _control: &Control) -> bool {
        false
    }
}

/// How members are connected.
#[derive(Debug, Clone)]
pub struct SwarmConfig {
    /// The server.
    pub target: Target,
    /// Threads that share the members.
    pub threads: usize,
    /// HTTP/2 with so many streams on each connection; HTTP/1.1 if `None`.
    pub streams_per_connection: Option<usize>,
    /// Whether members watch over WebSockets; over HTTP/1.1 only.
    pub websocket: bool,
    /// What members ask for.
    pub accept: Accept,
    /// Receive window of each HTTP/2 stream, bytes, if not the library's own.
    pub stream_window: Option<u32>,
    /// Whether members come again after [`PAUSE`] even if they were told to come later.
    pub impatient: bool,
    /// First local address; the next is taken for every 20,000 connections.
    pub source: Ipv4Addr,
}

impl SwarmConfig {
    /// How long a member pauses whose last answer said this.
    fn pause(&self, retry_after: Option<Duration>) -> Duration {
        let told = retry_after.filter(|_| !self.impatient);
        told.map_or(PAUSE, |told| told.min(RETRY_AFTER_MAX))
    }

    /// The local address of the connection with this number.
    fn source_of(&self, number: usize) -> Ipv4Addr {
        let step = u32::try_from(number / CONNECTIONS_PER_SOURCE).unwrap_or(u32::MAX);
        Ipv4Addr::from(u32::from(self.source).saturating_add(step))
    }
}

/// Gives back its members and what it counted.
type SwarmThread<M> = JoinHandle<Result<(Vec<M>, Recorder)>>;

/// A running swarm. Dropping it orders its threads to stop.
#[derive(Debug)]
pub struct Swarm<M> {
    control: Arc<Control>,
    threads: Vec<SwarmThread<M>>,
    count: usize,
}

impl<M: Member> Swarm<M> {
    /// Starts the threads; they connect their members at once.
    ///
    /// # Errors
    /// If a thread cannot be started, or the swarm_config asks for what is not there.
    pub fn start(
        members: Vec<M>,
        swarm_config: &SwarmConfig,
        control: Arc<Control>,
    ) -> Result<Self> {
        let count = members.len();
        let share = count.div_ceil(swarm_config.threads.max(1)).max(1);
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
                Some(streams) => multiplexed::run(mine, &swarm_config, control, streams),
            };
            swarm.threads.push(
                std::thread::Builder::new()
                    .name(format!("swarm-{number}"))
                    .spawn(run)?,
            );
        }
        Ok(swarm)
    }

    /// Waits until every member's first response has begun.
    ///
    /// # Errors
    /// If that takes longer than `wait`; says how far it came.
    pub async fn ready(&self, wait: Duration) -> Result<()> {
        self.until(wait, "got a response", |control| {
            control.ready.load(Ordering::Relaxed)
        })
        .await
    }

    /// Orders and counts.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// Begins a round and waits until every member has ended it; rounds count from 1.
    ///
    /// # Errors
    /// If that takes longer than `wait`; says how far it came.
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
        let has_failed = || self.threads.iter().any(JoinHandle::is_finished);
        until_all(wait, self.count, what, || count(&self.control), has_failed).await
    }

    /// Stops all threads and returns the members in their order, and the merged counts.
    ///
    /// # Errors
    /// If a thread failed.
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

/// Waits until all of so many clients count.
///
/// # Errors
/// If that takes longer than `wait`, or something `has_failed`; says how many clients `what` is true of.
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
    /// Reports for all members of the thread, each with whether its response is open.
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

/// Puts a thread's new share of a total in the place of the one it reported before.
fn replace(total: &AtomicUsize, reported: &mut usize, share: usize) {
    // Wraps around where it has gone back.
    total.fetch_add(share.wrapping_sub(*reported), Ordering::Relaxed);
    *reported = share;
}

#[cfg(test)]
mod tests {
    //! Who waits how long.

    use super::*;

    #[test]
    fn the_patient_wait_as_long_as_they_are_told_within_bounds() {
        let target = Target::new("http://127.0.0.1:1", None, None).unwrap();
        let swarm_config = |impatient| SwarmConfig {
            target: target.clone(),
            threads: 1,
            streams_per_connection: None,
            websocket: false,
            accept: Accept::Json,
            stream_window: None,
            impatient,
            source: Ipv4Addr::LOCALHOST,
        };
        for (told_s, patient, impatient) in [
            (None, PAUSE, PAUSE),
            (Some(0), Duration::ZERO, PAUSE),
            (Some(7), Duration::from_secs(7), PAUSE),
            (Some(3_600), RETRY_AFTER_MAX, PAUSE),
        ] {
            let told = told_s.map(Duration::from_secs);
            assert_eq!(swarm_config(false).pause(told), patient);
            assert_eq!(swarm_config(true).pause(told), impatient);
        }
    }
}
