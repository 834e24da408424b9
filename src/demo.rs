//! The demo: embedded API server, gateway and watchers in one process, with live figures and a verdict at the end.
//!
//! All parts talk over loopback sockets, as they would between machines. The API server's store reports every write; the events of each
//! watcher are hashed into one number, which is compared with the hash of the writes.
//!
//! Start with [`run`]. `watcher` and `stream` read one watch each, `expected_events` records the writes, `quiet` detects the end, and
//! `figures` and `screen` show the result.

mod expected_events;
mod figures;
mod latency;
mod process;
mod quiet;
mod screen;
mod stream;
mod watcher;

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use kube_fanout_testkit::apiserver::{self, Apiserver};
use rustix::process::{Resource, getrlimit};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::config::{DemoSettings, ServeSettings};
use crate::embedded::{self, OptionsError};
use crate::gateway::{self, Gateway};
use crate::numbers::counted;
use crate::resource::ResourceVersion;
use crate::shutdown::Drain;
use expected_events::ExpectedEvents;
use figures::{CounterSample, DemoVerdict, IntervalFigures, WATCHERS, closing};
use latency::Latencies;
use parking_lot::Mutex;
use process::ProcessUsage;
use quiet::{QuietEnd, QuietSample};
use screen::Screen;
pub use screen::ScreenKind;
use stream::Finders;
use watcher::{Swarm, Watcher};

/// Open files in addition to the watchers' sockets: listeners, the gateway's connections to upstream, standard streams, epoll.
const OTHER_OPEN_FILES: usize = 64;
/// Connections that are established at the same time.
const CONNECTING_MAX: usize = 64;
/// Time limit for all watchers to connect, and for all watchers to get the last events.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How often the watchers' progress is checked.
const POLL_PERIOD: Duration = Duration::from_millis(20);
/// How often figures are shown.
const SHOW_PERIOD: Duration = Duration::from_secs(1);
/// Time limit of the gateway's drain. The watchers are already disconnected.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// How a demo ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DemoOutcome {
    /// Every watcher got every event once and in order.
    Verified,
    /// Events were lost, duplicated or out of order; the closing table shows how many.
    Faulty,
}

/// The demo cannot start, or cannot continue. Each message is one line.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The limit of open files is too low.
    #[error(
        "--watchers {watchers} needs {needed} open files, the limit is {limit}: raise the limit (ulimit -n {needed}) or lower --watchers"
    )]
    OpenFiles {
        /// Number of watchers.
        watchers: usize,
        /// Open files that they need, on both ends of their connections.
        needed: usize,
        /// The limit of open files.
        limit: usize,
    },
    /// There are no objects to watch.
    #[error("--objects: name at least one resource with at least one object")]
    Nothing,
    /// The options of the API server are invalid.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// No port on loopback could be opened.
    #[error("cannot open a port on loopback")]
    Listen(#[source] io::Error),
    /// The API server cannot start.
    #[error("embedded API server")]
    Apiserver(#[from] apiserver::StartError),
    /// The gateway cannot start.
    #[error("gateway")]
    Gateway(#[from] gateway::GatewayError),
    /// A resource cannot be listed.
    #[error("cannot list {0}")]
    List(String),
    /// Some watchers did not connect in time.
    #[error("{} did not connect within {TIMEOUT:?}", counted(*.0, WATCHERS))]
    Connect(usize),
    /// The figures cannot be written.
    #[error("cannot write the figures")]
    Screen(#[from] io::Error),
}

/// A resource that the watchers watch.
#[derive(Clone, Debug)]
struct WatchedResource {
    kind_index: usize,
    path: String,
}

/// The running parts of the demo.
struct DemoParts {
    apiserver: Apiserver,
    gateway: SocketAddr,
    /// The gateway's admin port, with its status page.
    admin: SocketAddr,
    gateway_drain: Drain,
    expected: ExpectedEvents,
    watched: Vec<WatchedResource>,
    swarm: Arc<Swarm>,
    watchers: Vec<Arc<Watcher>>,
    watcher_tasks: JoinSet<()>,
    gateway_task: JoinSet<()>,
    started_at: Instant,
}

/// Runs until the drain begins or the duration is over, then checks what the watchers received.
///
/// # Errors
/// See [`DemoError`].
pub async fn run<W: Write>(
    settings: DemoSettings,
    drain: Drain,
    out: W,
    kind: ScreenKind,
) -> Result<DemoOutcome, DemoError> {
    let mut screen = Screen::new(out, kind);
    let churn = settings.apiserver.churn;
    screen.say(&opening(&settings))?;
    let mut parts = DemoParts::start(&settings).await?;
    parts.connect(settings.watchers, &mut screen).await?;
    let watchers = counted(settings.watchers, WATCHERS);
    let millis = parts.started_at.elapsed().as_millis();
    screen.say(&format!("{watchers} connected in {millis} ms"))?;
    screen.say(&format!("status page: http://{}/status", parts.admin))?;
    parts.started_at = Instant::now();
    let start = parts.sample();
    parts.apiserver.set_churn(churn);
    let time_limit = async {
        match settings.duration {
            Some(duration) => tokio::time::sleep(duration).await,
            None => std::future::pending().await,
        }
    };
    let show = parts.show(&mut screen);
    // All three are cancel-safe: cancelling `show` loses at most one update of the figures.
    tokio::select! {
        shown = show => shown?,
        () = time_limit => {}
        () = drain.begun() => {}
    }
    parts.apiserver.set_churn(0);
    screen.say("writes have stopped; waiting until every watcher has every event")?;
    let elapsed = parts.started_at.elapsed();
    let settled = parts.settle().await;
    let end = CounterSample {
        elapsed,
        ..parts.sample()
    };
    let verdict = DemoVerdict {
        settled,
        ..parts.verdict().await?
    };
    for line in closing(&start, &end, &verdict) {
        screen.say(&line)?;
    }
    parts.stop().await;
    Ok(if verdict.is_sound() {
        DemoOutcome::Verified
    } else {
        DemoOutcome::Faulty
    })
}

impl DemoParts {
    /// Starts the API server, without churn, and the gateway.
    async fn start(settings: &DemoSettings) -> Result<Self, DemoError> {
        check_open_files(settings.watchers)?;
        let mut options = embedded::options(&settings.apiserver)?;
        options.churn_per_second = 0;
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
            .await
            .map_err(DemoError::Listen)?;
        let resources: Vec<String> = options
            .objects
            .iter()
            .filter(|count| count.count > 0)
            .map(|count| count.resource.clone())
            .collect();
        let apiserver = apiserver::start(listener, options)?;
        let watched = watched(&apiserver, &resources);
        if watched.is_empty() {
            return Err(DemoError::Nothing);
        }
        let expected = ExpectedEvents::new(apiserver.catalogue().kinds().len());
        let observer = expected.clone();
        let version = apiserver.store().observe(move |event| observer.add(event));
        expected.begin_after(ResourceVersion(version));

        let upstream = http::Uri::builder()
            .scheme("http")
            .authority(apiserver.address().to_string())
            .path_and_query("/")
            .build()
            .unwrap_or_default();
        let gateway = Gateway::build(ServeSettings::embedded(upstream)).await?;
        let address = gateway.address().map_err(DemoError::Listen)?;
        let admin = gateway.admin_address().map_err(DemoError::Listen)?;
        let gateway_drain = Drain::with_timeout(DRAIN_TIMEOUT);
        let mut gateway_task = JoinSet::new();
        gateway_task.spawn(gateway.run(gateway_drain.clone()));
        Ok(Self {
            apiserver,
            gateway: address,
            admin,
            gateway_drain,
            expected,
            watched,
            swarm: Arc::new(Swarm {
                gateway: address,
                finders: Finders::new(),
                latencies: std::array::from_fn(|_| Mutex::default()),
                connecting: Semaphore::new(CONNECTING_MAX),
            }),
            watchers: Vec::new(),
            watcher_tasks: JoinSet::new(),
            gateway_task,
            started_at: Instant::now(),
        })
    }

    /// Lists each resource once, so that the gateway's caches are filled, then connects the watchers.
    async fn connect<W: Write>(
        &mut self,
        count: usize,
        screen: &mut Screen<W>,
    ) -> Result<(), DemoError> {
        for watched in &self.watched {
            screen.progress(&format!("filling the cache of {}", watched.path))?;
            self.list(self.gateway, &watched.path).await?;
        }
        for number in 0..count {
            let watched = &self.watched[number % self.watched.len()];
            let from: ResourceVersion = self.expected.digest(watched.kind_index).last;
            let watcher = Watcher::new(number, watched.kind_index, watched.path.clone(), from);
            let watcher = Arc::new(watcher);
            self.watchers.push(Arc::clone(&watcher));
            self.watcher_tasks
                .spawn(watcher.run(Arc::clone(&self.swarm)));
        }
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let is_connected = |watcher: &&Arc<Watcher>| watcher.progress().connected;
            let connected = self.watchers.iter().filter(is_connected).count();
            if connected == count {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(DemoError::Connect(count - connected));
            }
            screen.progress(&format!("connecting watchers: {connected} of {count}"))?;
            tokio::time::sleep(POLL_PERIOD).await;
        }
    }

    /// Shows figures once per period. Never returns, unless writing fails.
    async fn show<W: Write>(&self, screen: &mut Screen<W>) -> io::Result<()> {
        let mut earlier = self.sample();
        let mut tick = tokio::time::interval_at(self.started_at + SHOW_PERIOD, SHOW_PERIOD);
        loop {
            tick.tick().await;
            let now = self.sample();
            screen.show(&IntervalFigures::between(&earlier, &now))?;
            earlier = now;
        }
    }

    /// Reads all counters.
    fn sample(&self) -> CounterSample {
        let mut latencies = Latencies::default();
        for shard in &self.swarm.latencies {
            latencies.merge(&shard.lock());
        }
        let delivered = self.watchers.iter().fold((0, 0), |(events, bytes), one| {
            let digest = one.progress().digest;
            (events + digest.events, bytes + digest.bytes)
        });
        CounterSample {
            elapsed: self.started_at.elapsed(),
            upstream_watches: self.apiserver.watch_count(),
            watchers: self.watchers.len(),
            written: self.expected.totals(),
            delivered,
            latencies,
            usage: ProcessUsage::now(),
        }
    }

    /// Waits until writes have stopped and every watcher has every event, or until no events arrive any more. Returns the time from the
    /// last write to the last event. The verdict reports watchers that still lack events.
    async fn settle(&self) -> Duration {
        let started_at = Instant::now();
        let mut end = QuietEnd::begin(self.quiet_sample(started_at));
        loop {
            tokio::time::sleep(POLL_PERIOD).await;
            if let Some(settled) = end.add(self.quiet_sample(started_at)) {
                return settled;
            }
            if started_at.elapsed() > TIMEOUT {
                return TIMEOUT;
            }
        }
    }

    fn quiet_sample(&self, started_at: Instant) -> QuietSample {
        let mut sample = QuietSample {
            at: started_at.elapsed(),
            written: self.expected.totals().0,
            delivered_bytes: 0,
            behind: 0,
        };
        for watcher in &self.watchers {
            let (progress, written) =
                (watcher.progress(), self.expected.digest(watcher.kind_index));
            sample.delivered_bytes += progress.digest.bytes;
            let is_behind = !progress.must_relist && progress.digest.last < written.last;
            sample.behind += usize::from(is_behind);
        }
        sample
    }

    async fn verdict(&self) -> Result<DemoVerdict, DemoError> {
        let mut verdict = DemoVerdict::default();
        for watcher in &self.watchers {
            let (progress, written) =
                (watcher.progress(), self.expected.digest(watcher.kind_index));
            let missing = written.events.saturating_sub(progress.digest.events);
            verdict.lost += missing;
            if !progress.must_relist && progress.digest.last < written.last {
                verdict.behind += 1;
                verdict.behind_events = verdict.behind_events.max(missing);
            }
            verdict.doubled += progress.doubled;
            verdict.out_of_order += progress.out_of_order;
            verdict.differing += u64::from(progress.digest != written);
            verdict.must_relist += u64::from(progress.must_relist);
            verdict.resumed += progress.resumed;
        }
        for watched in &self.watched {
            let from_gateway = self.list(self.gateway, &watched.path).await?;
            let from_apiserver = self.list(self.apiserver.address(), &watched.path).await?;
            verdict.differing_lists += u64::from(from_gateway != from_apiserver);
        }
        Ok(verdict)
    }

    /// The response body of a list without selectors.
    async fn list(&self, server: SocketAddr, path: &str) -> Result<Bytes, DemoError> {
        let failed = || DemoError::List(path.to_owned());
        let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
        let uri = format!("http://{server}{path}");
        let response = client.get(uri.parse().map_err(|_| failed())?);
        let response = response.await.map_err(|_| failed())?;
        if response.status() != http::StatusCode::OK {
            return Err(failed());
        }
        let body = response.into_body().collect().await.map_err(|_| failed())?;
        Ok(body.to_bytes())
    }

    /// Stops all parts, the watchers first.
    async fn stop(mut self) {
        self.watcher_tasks.shutdown().await;
        self.gateway_drain.begin();
        while self.gateway_task.join_next().await.is_some() {}
    }
}

/// The resources to watch, without duplicates.
fn watched(apiserver: &Apiserver, resources: &[String]) -> Vec<WatchedResource> {
    let catalogue = apiserver.catalogue();
    let mut kinds: Vec<usize> = resources
        .iter()
        .filter_map(|resource| catalogue.index_of_plural(resource))
        .collect();
    kinds.sort_unstable();
    kinds.dedup();
    let watched = |kind_index: usize| WatchedResource {
        kind_index,
        path: catalogue.kind(kind_index).collection_path(),
    };
    kinds.into_iter().map(watched).collect()
}

/// What is started, which takes a while with many objects.
fn opening(settings: &DemoSettings) -> String {
    let counts = settings.apiserver.objects.iter();
    let objects: Vec<_> = counts.map(ToString::to_string).collect();
    format!(
        "starting an API server ({}), a gateway and {}",
        objects.join(", "),
        counted(settings.watchers, WATCHERS)
    )
}

fn check_open_files(watchers: usize) -> Result<(), DemoError> {
    let needed = 2 * watchers + OTHER_OPEN_FILES;
    let limit = getrlimit(Resource::Nofile).current;
    match limit.and_then(|limit| usize::try_from(limit).ok()) {
        Some(limit) if limit < needed => Err(DemoError::OpenFiles {
            watchers,
            needed,
            limit,
        }),
        _ => Ok(()),
    }
}
