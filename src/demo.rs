//! Embedded API server, gateway and watchers in one process, with live figures and a verdict at the end.
//!
//! Everything goes over loopback sockets as it would between machines. What is written is told by the store itself;
//! each watcher's events are folded into one number and compared with it.

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
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use rustix::process::{Resource, getrlimit};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::apiserver::{self, Apiserver, Options, OptionsError};
use crate::config::{DemoSettings, ServeSettings};
use crate::gateway::{self, Gateway};
use crate::resource::ResourceVersion;
use crate::shutdown::Drain;
use expected_events::ExpectedEvents;
use figures::{CounterSample, DemoVerdict, IntervalFigures, closing};
use latency::Latencies;
use process::ProcessUsage;
use quiet::{QuietEnd, QuietSample};
use screen::Screen;
pub use screen::ScreenKind;
use stream::Finders;
use watcher::{Swarm, Watcher};

/// Files besides the watchers' sockets: listeners, the gateway's connections upstream, standard streams, epoll.
const OPEN_FILES_BESIDES: usize = 64;
/// Connections made at once.
const CONNECTING_MAX: usize = 64;
/// So long everybody may take to connect, and to get the last events while there are always more.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often it is looked whether they have.
const LOOK_PERIOD: Duration = Duration::from_millis(20);
/// How often figures are shown.
const SHOW_PERIOD: Duration = Duration::from_secs(1);
/// The gateway's own end; its clients are gone by then.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// How a demo ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DemoOutcome {
    /// Every watcher got everything once and in order.
    Verified,
    /// Something was lost, doubled or out of order; the closing table tells what.
    Faulty,
}

/// The demo cannot begin, or was broken off. Each is one line for the terminal.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The system lets too few files be open.
    #[error(
        "{watchers} watchers need {needed} open files, the limit is {limit}: raise it (ulimit -n {needed}) or ask for fewer --watchers"
    )]
    OpenFiles {
        /// Watchers asked for.
        watchers: usize,
        /// Files that they need, on both ends.
        needed: usize,
        /// Files that may be open.
        limit: usize,
    },
    /// Nothing to watch.
    #[error("--objects: name at least one resource with at least one object")]
    Nothing,
    /// The API server cannot be made as asked for.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// No port on loopback.
    #[error("no port on loopback")]
    Listen(#[source] io::Error),
    /// The API server.
    #[error("embedded API server")]
    Apiserver(#[from] apiserver::StartError),
    /// The gateway.
    #[error("gateway")]
    Gateway(#[from] gateway::GatewayError),
    /// A resource cannot be listed.
    #[error("{0} cannot be listed")]
    List(String),
    /// Watchers that got no answer.
    #[error("{0} watchers are not connected after {PATIENCE:?}")]
    Connect(usize),
    /// The figures cannot be shown.
    #[error("the figures cannot be written")]
    Screen(#[from] io::Error),
}

/// One resource that is watched.
#[derive(Clone, Debug)]
struct WatchedResource {
    kind_index: usize,
    path: String,
}

/// All parts, running.
struct DemoParts {
    apiserver: Apiserver,
    gateway: SocketAddr,
    gateway_drain: Drain,
    ledger: ExpectedEvents,
    watched: Vec<WatchedResource>,
    swarm: Arc<Swarm>,
    watchers: Vec<Arc<Watcher>>,
    watcher_tasks: JoinSet<()>,
    gateway_task: JoinSet<()>,
    began_at: Instant,
}

/// Runs until the drain begins or the duration is over, then checks what the watchers got.
///
/// # Errors
/// See [`DemoError`].
pub async fn run<W: Write>(
    settings: DemoSettings,
    drain: Drain,
    out: W,
    surface: ScreenKind,
) -> Result<DemoOutcome, DemoError> {
    let mut screen = Screen::new(out, surface);
    let churn = settings.apiserver.churn;
    let mut stage = DemoParts::set(&settings).await?;
    stage.connect(settings.watchers).await?;
    let (watchers, millis) = (settings.watchers, stage.began_at.elapsed().as_millis());
    screen.say(&format!("{watchers} watchers connected in {millis} ms"))?;
    stage.began_at = Instant::now();
    let begun = stage.counted();
    stage.apiserver.set_churn(churn);
    let over = async {
        match settings.duration {
            Some(duration) => tokio::time::sleep(duration).await,
            None => std::future::pending().await,
        }
    };
    let shown = stage.show(&mut screen);
    // None of them loses anything when it is cancelled: figures are taken anew each time.
    tokio::select! {
        shown = shown => shown?,
        () = over => {}
        () = drain.begun() => {}
    }
    stage.apiserver.set_churn(0);
    let elapsed = stage.began_at.elapsed();
    let settled = stage.settle().await;
    let all = CounterSample {
        elapsed,
        ..stage.counted()
    };
    let verdict = DemoVerdict {
        settled,
        ..stage.verdict().await?
    };
    for line in closing(&begun, &all, &verdict) {
        screen.say(&line)?;
    }
    stage.strike().await;
    Ok(if verdict.is_sound() {
        DemoOutcome::Verified
    } else {
        DemoOutcome::Faulty
    })
}

impl DemoParts {
    /// Starts API server and gateway; nothing is written yet, and nobody watches.
    async fn set(settings: &DemoSettings) -> Result<Self, DemoError> {
        check_open_files(settings.watchers)?;
        let mut options = Options::try_from(&settings.apiserver)?;
        options.churn_per_second = 0;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
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
        let ledger = ExpectedEvents::new(apiserver.catalogue().kinds().len());
        let begin = apiserver.store().add_publisher(Box::new(ledger.clone()));
        ledger.begin_after(begin);

        let upstream = http::Uri::builder()
            .scheme("http")
            .authority(apiserver.address().to_string())
            .path_and_query("/")
            .build()
            .unwrap_or_default();
        let gateway = Gateway::build(ServeSettings::embedded(upstream)).await?;
        let address = gateway.address().map_err(DemoError::Listen)?;
        let gateway_drain = Drain::with_timeout(DRAIN_TIMEOUT);
        let mut gateway_task = JoinSet::new();
        gateway_task.spawn(gateway.run(gateway_drain.clone()));
        Ok(Self {
            apiserver,
            gateway: address,
            gateway_drain,
            ledger,
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
            began_at: Instant::now(),
        })
    }

    /// Fills the gateway's caches by a list each, then connects the watchers.
    async fn connect(&mut self, count: usize) -> Result<(), DemoError> {
        for watched in &self.watched {
            self.list(self.gateway, &watched.path).await?;
        }
        for number in 0..count {
            let watched = &self.watched[number % self.watched.len()];
            let from: ResourceVersion = self.ledger.course(watched.kind_index).last;
            let watcher = Watcher::new(number, watched.kind_index, watched.path.clone(), from);
            let watcher = Arc::new(watcher);
            self.watchers.push(Arc::clone(&watcher));
            self.watcher_tasks
                .spawn(watcher.run(Arc::clone(&self.swarm)));
        }
        let waiting = || {
            let waits = |watcher: &&Arc<Watcher>| !watcher.got().connected;
            self.watchers.iter().filter(waits).count()
        };
        if until(|| waiting() == 0).await {
            Ok(())
        } else {
            Err(DemoError::Connect(waiting()))
        }
    }

    /// Shows figures for ever.
    async fn show<W: Write>(&self, screen: &mut Screen<W>) -> io::Result<()> {
        let mut earlier = self.counted();
        let mut tick = tokio::time::interval_at(self.began_at + SHOW_PERIOD, SHOW_PERIOD);
        loop {
            tick.tick().await;
            let now = self.counted();
            screen.show(&IntervalFigures::between(&earlier, &now))?;
            earlier = now;
        }
    }

    fn counted(&self) -> CounterSample {
        let mut latencies = Latencies::default();
        for shard in &self.swarm.latencies {
            latencies.merge(&shard.lock().unwrap_or_else(PoisonError::into_inner));
        }
        let delivered = self.watchers.iter().fold((0, 0), |(events, bytes), one| {
            let course = one.got().course;
            (events + course.events, bytes + course.bytes)
        });
        CounterSample {
            elapsed: self.began_at.elapsed(),
            upstream_watches: self.apiserver.watch_count(),
            watchers: self.watchers.len(),
            written: self.ledger.totals(),
            delivered,
            latencies,
            usage: ProcessUsage::now(),
        }
    }

    /// Waits until nothing is written any more and everybody has everything, or until nothing more comes. How long after the last write
    /// that was; whoever lacks something then is told by the verdict.
    async fn settle(&self) -> Duration {
        let begun_at = Instant::now();
        let mut end = QuietEnd::begin(self.look(begun_at));
        loop {
            tokio::time::sleep(LOOK_PERIOD).await;
            let over = end.look(self.look(begun_at));
            if let Some(took) = over {
                return took;
            }
            if begun_at.elapsed() > PATIENCE {
                return PATIENCE;
            }
        }
    }

    fn look(&self, begun_at: Instant) -> QuietSample {
        let mut look = QuietSample {
            at: begun_at.elapsed(),
            written: self.ledger.totals().0,
            delivered_bytes: 0,
            behind: 0,
        };
        for watcher in &self.watchers {
            let (got, written) = (watcher.got(), self.ledger.course(watcher.kind_index));
            look.delivered_bytes += got.course.bytes;
            look.behind += usize::from(!got.lost_place && got.course.last < written.last);
        }
        look
    }

    async fn verdict(&self) -> Result<DemoVerdict, DemoError> {
        let mut verdict = DemoVerdict::default();
        for watcher in &self.watchers {
            let (got, written) = (watcher.got(), self.ledger.course(watcher.kind_index));
            let missing = written.events.saturating_sub(got.course.events);
            verdict.lost += missing;
            if !got.lost_place && got.course.last < written.last {
                verdict.behind += 1;
                verdict.behind_events = verdict.behind_events.max(missing);
            }
            verdict.doubled += got.doubled;
            verdict.out_of_order += got.out_of_order;
            verdict.differing += u64::from(got.course != written);
            verdict.lost_place += u64::from(got.lost_place);
            verdict.resumed += got.resumed;
        }
        for watched in &self.watched {
            let ours = self.list(self.gateway, &watched.path).await?;
            let theirs = self.list(self.apiserver.address(), &watched.path).await?;
            verdict.differing_lists += u64::from(ours != theirs);
        }
        Ok(verdict)
    }

    /// The body of a list of everything.
    async fn list(&self, server: SocketAddr, path: &str) -> Result<Bytes, DemoError> {
        let failed = || DemoError::List(path.to_owned());
        let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
        let uri = format!("http://{server}{path}");
        let answer = client.get(uri.parse().map_err(|_| failed())?);
        let answer = answer.await.map_err(|_| failed())?;
        if answer.status() != http::StatusCode::OK {
            return Err(failed());
        }
        let body = answer.into_body().collect().await.map_err(|_| failed())?;
        Ok(body.to_bytes())
    }

    /// Ends everything, the watchers first.
    async fn strike(mut self) {
        self.watcher_tasks.shutdown().await;
        self.gateway_drain.begin();
        while self.gateway_task.join_next().await.is_some() {}
    }
}

/// The resources that there are objects of, each once.
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
        path: catalogue.kind(kind_index).resource.gvr.collection_path(),
    };
    kinds.into_iter().map(watched).collect()
}

fn check_open_files(watchers: usize) -> Result<(), DemoError> {
    let needed = 2 * watchers + OPEN_FILES_BESIDES;
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

/// Waits until something holds, for as long as the demo has patience; whether it does.
async fn until(holds: impl Fn() -> bool) -> bool {
    let give_up_at = Instant::now() + PATIENCE;
    while !holds() {
        if Instant::now() > give_up_at {
            return false;
        }
        tokio::time::sleep(LOOK_PERIOD).await;
    }
    true
}
