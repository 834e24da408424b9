//! Clients of every kind that a gateway serves, each kind a swarm of its own.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::Result;

use super::Drain;
use super::client::{DrainClient, Request};
use super::collection::{Collection, Collections};
use crate::lister::Lister;
use crate::recorder::{Control, Recorder};
use crate::scenario::population::Population;
use crate::scenario::swarm_config;
use crate::scenario::watch_run::ready_wait;
use crate::swarm::pace::Slowness;
use crate::swarm::{Accept, STREAM_WINDOW_LEN, Swarm, SwarmConfig};
use crate::target::Target;

/// Streams on each HTTP/2 connection.
const STREAMS: usize = 20;
/// Receive window of an HTTP/2 stream, bytes: longer responses stay in progress while they are not read.
const WINDOW_LEN: u32 = 64 << 10;

/// How a client differs from one that reads JSON over HTTP/1.1 from memory, with bookmarks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientTrait {
    /// Reads nothing before it is woken.
    Slow,
    /// The gateway forwards its request to the API server.
    Forwarded,
    Http2,
    WebSocket,
    WithoutBookmarks,
    Metadata,
}

use ClientTrait::{Forwarded, Http2, Metadata, Slow, WebSocket, WithoutBookmarks};

#[derive(Debug, Clone, Copy)]
pub struct ClientKind {
    /// Name in messages and figures.
    pub name: &'static str,
    /// Share of all watchers, %. Of listers each kind has equally many.
    percent: usize,
    traits: &'static [ClientTrait],
}

const fn kind(name: &'static str, percent: usize, traits: &'static [ClientTrait]) -> ClientKind {
    ClientKind {
        name,
        percent,
        traits,
    }
}

const WATCHERS: [ClientKind; 9] = [
    kind("HTTP/1.1", 30, &[]),
    kind("HTTP/1.1 without bookmarks", 10, &[WithoutBookmarks]),
    kind("HTTP/1.1, metadata", 10, &[Metadata]),
    kind("HTTP/1.1, slow", 5, &[Slow]),
    kind("HTTP/1.1, forwarded", 5, &[Forwarded]),
    kind("WebSocket", 10, &[WebSocket]),
    kind("HTTP/2", 20, &[Http2]),
    kind("HTTP/2, slow", 5, &[Http2, Slow]),
    kind("HTTP/2, forwarded", 5, &[Http2, Forwarded]),
];

/// Kinds of listers. Their lists stay in progress while they do not read.
const LISTERS: [ClientKind; 4] = [
    kind("list, HTTP/1.1", 0, &[Slow]),
    kind("list, HTTP/1.1, forwarded", 0, &[Slow, Forwarded]),
    kind("list, HTTP/2", 0, &[Slow, Http2]),
    kind("list, HTTP/2, forwarded", 0, &[Slow, Http2, Forwarded]),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientSet {
    /// Clients that read all the time.
    Prompt,
    /// Clients that do not read before they are woken.
    Slow,
    All,
}

impl ClientSet {
    fn has(self, kind: &ClientKind) -> bool {
        match self {
            Self::Prompt => !kind.is(Slow),
            Self::Slow => kind.is(Slow),
            Self::All => true,
        }
    }
}

/// The running clients of a kind.
#[derive(Debug)]
struct ClientGroup {
    kind: ClientKind,
    count: usize,
    control: Arc<Control>,
    swarm: Swarm<DrainClient>,
}

#[derive(Debug)]
pub struct DrainClients(Vec<ClientGroup>);

/// The stopped clients of a kind.
#[derive(Debug)]
pub struct GroupResult {
    pub kind: ClientKind,
    pub clients: Vec<DrainClient>,
    pub recorder: Recorder,
}

#[derive(Debug)]
pub struct ClientResults(pub Vec<GroupResult>);

impl ClientKind {
    fn is(&self, one: ClientTrait) -> bool {
        self.traits.contains(&one)
    }

    /// Whether the gateway forwards their requests to the API server.
    pub fn is_forwarded(&self) -> bool {
        self.is(Forwarded)
    }

    fn accept(&self) -> Accept {
        if self.is(Metadata) {
            Accept::Metadata
        } else {
            Accept::Json
        }
    }

    fn swarm_config(&self, flags: &Drain, target: &Target) -> SwarmConfig {
        SwarmConfig {
            streams_per_connection: self.is(Http2).then_some(STREAMS),
            websocket: self.is(WebSocket),
            accept: self.accept(),
            stream_window: match self.is(Slow) {
                true => WINDOW_LEN,
                false => STREAM_WINDOW_LEN,
            },
            ..swarm_config(&flags.server, None, target.clone())
        }
    }

    fn client(&self, request: Request) -> DrainClient {
        // Over HTTP/2 other clients share the connection, and a WebSocket ends with its connection.
        let sees_close = !self.is(Http2) && !self.is(WebSocket);
        DrainClient::new(
            request,
            self.is(Slow).then_some(Slowness::STALLED),
            sees_close,
        )
    }

    fn watchers(&self, count: usize, collections: &Collections) -> Vec<DrainClient> {
        let Collection {
            path, recording, ..
        } = collections.of(self.is_forwarded());
        let watchers = Population {
            bookmarks: !self.is(WithoutBookmarks),
            accept: self.accept(),
            ..Population::of(count)
        };
        let plans = watchers.plans(path, recording.start);
        let recruited = watchers.make_watchers(&plans, &Arc::default());
        let watches = recruited.into_iter().map(Box::new).map(Request::Watch);
        watches.map(|watch| self.client(watch)).collect()
    }

    fn listers(
        &self,
        count: usize,
        items_min: usize,
        collections: &Collections,
    ) -> Vec<DrainClient> {
        let path = &collections.of(self.is_forwarded()).path;
        let path: Arc<str> = format!("{path}?resourceVersion=0").into();
        let list = || Lister::repeating(path.clone(), items_min as u64);
        let lists = (0..count).map(|_| Request::List(Box::new(list())));
        lists.map(|list| self.client(list)).collect()
    }
}

impl DrainClients {
    /// Starts all clients; returns when each has the start of its response.
    pub async fn begin(flags: &Drain, target: &Target, collections: &Collections) -> Result<Self> {
        let mut all = Self(Vec::new());
        for kind in WATCHERS {
            let count = (flags.watchers * kind.percent).div_ceil(100);
            all.add(kind, flags, target, kind.watchers(count, collections))?;
        }
        for kind in LISTERS {
            let count = flags.listers.div_ceil(LISTERS.len());
            let listers = kind.listers(count, flags.ballast_objects, collections);
            all.add(kind, flags, target, listers)?;
        }
        for group in &all.0 {
            group.swarm.ready(ready_wait(flags.watchers)).await?;
        }
        Ok(all)
    }

    fn add(
        &mut self,
        kind: ClientKind,
        flags: &Drain,
        target: &Target,
        clients: Vec<DrainClient>,
    ) -> Result<()> {
        let control = Arc::new(Control::default());
        control.stalled.store(true, Ordering::Relaxed);
        self.0.push(ClientGroup {
            kind,
            count: clients.len(),
            swarm: Swarm::start(clients, &kind.swarm_config(flags, target), control.clone())?,
            control,
        });
        Ok(())
    }

    fn of(&self, who: ClientSet) -> impl Iterator<Item = &ClientGroup> {
        self.0.iter().filter(move |group| who.has(&group.kind))
    }

    /// Whether responses and connections of all these clients have ended.
    pub fn is_over(&self, who: ClientSet) -> bool {
        let over =
            |group: &ClientGroup| group.control.progress.load(Ordering::Relaxed) >= group.count;
        self.of(who).all(over)
    }

    /// Bytes that these clients have received.
    pub fn bytes(&self, who: ClientSet) -> u64 {
        let bytes = |group: &ClientGroup| group.control.bytes.load(Ordering::Relaxed);
        self.of(who).map(bytes).sum()
    }

    pub fn wake(&self) {
        let wake = |group: &ClientGroup| group.control.stalled.store(false, Ordering::Relaxed);
        self.0.iter().for_each(wake);
    }

    pub fn finish(self) -> Result<ClientResults> {
        let groups = self.0.into_iter().map(|group| {
            let (clients, recorder) = group.swarm.finish()?;
            Ok(GroupResult {
                kind: group.kind,
                clients,
                recorder,
            })
        });
        groups.collect::<Result<_>>().map(ClientResults)
    }
}

impl ClientResults {
    /// The newest received versions: of the collection in memory, and of the forwarded one.
    pub fn furthest(&self) -> [u64; 2] {
        [false, true].map(|is_forwarded| {
            let groups = self.0.iter();
            let groups = groups.filter(|group| group.kind.is_forwarded() == is_forwarded);
            let versions = groups.flat_map(|group| group.clients.iter().map(DrainClient::last));
            versions.max().unwrap_or(0)
        })
    }
}
