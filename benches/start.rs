//! Time until a cache is ready, compared with a client that only receives the same bytes; and the memory used meanwhile.
//!
//! A plain program: `cargo bench --bench start [-- --quick]`. Upstream, the gateway's side and the bare client are processes of their own
//! (this program again) on one machine, and share its cores. A real API server encodes while it sends, so it is slower than this one,
//! whose responses are prepared in advance.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::expect_used,
    clippy::panic,
    reason = "a bench is a driver: it reads the clock, prints, and panics at the first failure"
)]

#[allow(dead_code, reason = "the benches use different parts of it")]
#[path = "rig/child.rs"]
mod child;
#[path = "rig/record.rs"]
mod record;
#[allow(dead_code, reason = "the benches use different parts of it")]
#[path = "rig/rounds.rs"]
mod rounds;
#[path = "rig/source.rs"]
mod source;
#[allow(dead_code, reason = "the benches use different parts of it")]
#[path = "rig/typical.rs"]
mod typical;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::BodyExt as _;
use kube_fanout::cache::{ApplyOutcome, CacheWriter, Retention};
use kube_fanout::resource::{Encoding, Gvr, Layout, ResourceKind};
use kube_fanout::upstream::cache_sink::{CacheSink, FillRecorder};
use kube_fanout::upstream::client::{Client, ConnectSource};
use kube_fanout::upstream::driver::{
    Driver, DriverRecorder, FailureReport, Fetch as _, FrameRejection, ReadSpec, RequestPurpose,
};
use kube_fanout::upstream::reflector::{
    InitialVersion, ReflectorMachine, ReflectorOptions, StreamingLists,
};
use kube_fanout::view::Hub;
use tokio::sync::Notify;

use child::Child;
use record::{Claim, Record};
use rounds::Effort;
use source::Case;

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// By then the allocator has returned the free memory that it will return.
const SETTLED: Duration = Duration::from_secs(2);

fn main() -> io::Result<()> {
    match child::part() {
        Some((part, number)) if part == "upstream" => serve(Case::of(number)),
        Some((part, number)) => Task::of(number).play(&part),
        None => measure(Effort::of_arguments()),
    }
}

fn serve(case: Case) -> io::Result<()> {
    child::end_with_parent();
    let (address, len) = source::serve(case)?;
    child::report(&[usize::from(address.port()), len]);
    loop {
        std::thread::park();
    }
}

/// A client's task, encoded as one number for its command line.
#[derive(Clone, Copy, Debug)]
struct Task {
    case: Case,
    port: u16,
    /// Total length of all responses, below 4 GiB.
    len: usize,
}

impl Task {
    fn number(self) -> usize {
        self.case.number() << 48 | usize::from(self.port) << 32 | self.len
    }

    fn of(number: usize) -> Self {
        let low = |bits: usize, count: u32| bits & ((1 << count) - 1);
        Self {
            case: Case::of(number >> 48),
            port: u16::try_from(low(number >> 32, 16)).expect("sixteen bits"),
            len: low(number, 32),
        }
    }

    /// Runs the task, and reports the wall time and the CPU time of all cores in microseconds, and the peak and final memory in KiB.
    fn play(self, part: &str) -> io::Result<()> {
        child::end_with_parent();
        let address = SocketAddr::from(([127, 0, 0, 1], self.port));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?;
        let before = rounds::process_cpu(std::process::id());
        let start = Instant::now();
        // Kept until the memory has been measured.
        let mut filled = None;
        match part {
            "bare" => source::receive(self.case, address, self.len)?,
            "client" => runtime.block_on(receive(self.case, address)),
            _ => filled = Some(runtime.block_on(fill(self.case, address))),
        }
        let wall = start.elapsed();
        let cpu = rounds::process_cpu(std::process::id()).saturating_sub(before);
        std::thread::sleep(SETTLED);
        let (peak, last) = (memory("VmHWM:")?, memory("VmRSS:")?);
        drop(filled);
        child::report(&[wall.as_micros(), cpu.as_micros(), peak, last]);
        Ok(())
    }
}

/// A memory figure of this process, in KiB.
fn memory(row: &str) -> io::Result<u128> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let kib = status.lines().find_map(|line| {
        let kib = line.strip_prefix(row)?.trim().strip_suffix(" kB")?;
        kib.parse().ok()
    });
    kib.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

async fn connect(address: SocketAddr) -> Client {
    let source = ConnectSource::url(&format!("http://{address}")).expect("a URL");
    Client::connect(source)
        .await
        .expect("connecting sends no request")
}

/// The gateway's upstream connections alone: receives and drops everything.
async fn receive(case: Case, address: SocketAddr) {
    let client = connect(address).await;
    let (purpose, pages) = match case.streamed {
        true => (RequestPurpose::Watch, 1),
        false => (RequestPurpose::Read, case.pages),
    };
    for page in 0..pages {
        let answer = client.get(case.path(page), purpose, encoding(case)).await;
        let mut body = answer.expect("upstream answers").into_body();
        let mut last = 0;
        while let Some(frame) = body.frame().await {
            let frame = frame.expect("the stream stays open");
            let data = frame.into_data().unwrap_or_default();
            // The stream stays open after its final bookmark.
            if case.streamed && memchr::memmem::find(&data, b"initial-events-end").is_some() {
                return;
            }
            last = data.len();
        }
        std::hint::black_box(last);
    }
}

const fn encoding(case: Case) -> Encoding {
    if case.protobuf {
        Encoding::Protobuf
    } else {
        Encoding::Json
    }
}

/// Fills a cache as the gateway does; returns it when it can be read. The caller keeps it alive.
async fn fill(case: Case, address: SocketAddr) -> Arc<kube_fanout::cache::WatchCache> {
    let kind = ResourceKind {
        gvr: Gvr::new("", "v1", "pods"),
        kind: "Pod".to_owned(),
        list_kind: "PodList".to_owned(),
        namespaced: true,
        layout: Layout::Typed,
        encoding: encoding(case),
        warnings: Vec::new(),
    };
    let options = ReflectorOptions {
        streaming: match case.streamed {
            true => StreamingLists::Preferred,
            false => StreamingLists::Never,
        },
        page_len: u32::try_from(source::PAGE_LEN).expect("a small number"),
        start_from: None,
        initial: InitialVersion::Latest,
    };
    let retention = Retention {
        segment_slots: 256,
        events_min: 1_024,
        events_max: 16_384,
        bytes_max: 64 << 20,
        age_max: Duration::from_secs(1),
    };
    let reading = ReadSpec::all(&kind.gvr, 4 << 20).in_encoding(kind.encoding);
    let hub = Arc::new(Hub::new(&kind));
    let writer = CacheWriter::new(kind, retention, hub);
    let cache = Arc::clone(writer.cache());
    let ready = Arc::new(Ready::default());
    let sink = CacheSink::new(writer, Duration::from_millis(5), Arc::clone(&ready) as _);
    let driver = Driver::new(
        Arc::new(connect(address).await),
        reading,
        ReflectorMachine::new(options),
        sink,
        Arc::clone(&ready) as _,
    );
    // The runtime owns the task: it lives as long as the process.
    tokio::spawn(driver.run());
    ready.0.notified().await;
    let count = cache.snapshot().map_or(0, |all| all.objects.len());
    assert_eq!(count, case.objects(), "the cache has all objects");
    cache
}

/// Notifies when the first state has been applied, and panics on any failure.
#[derive(Debug, Default)]
struct Ready(Notify);

impl FillRecorder for Ready {
    fn applied(&self, _: ApplyOutcome) {
        self.0.notify_one();
    }
}

impl DriverRecorder for Ready {
    fn rejected(&self, reason: FrameRejection) {
        panic!("{reason:?}");
    }

    fn failed(&self, trouble: FailureReport<'_>) {
        panic!("{trouble:?}");
    }
}

/// The figure that is recorded for each case.
const WALL: &str = "wall time, ms";

/// The best of several runs: disturbances only add time.
#[derive(Clone, Copy, Debug)]
struct Figures {
    wall_ms: f64,
    cpu_ms: f64,
    peak_mib: f64,
    last_mib: f64,
}

fn measure(effort: Effort) -> io::Result<()> {
    let only = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    println!(
        "{:34} {:>8} {:>8} {:>8} {:>8} {:>9} {:>9}",
        "", "wall ms", "× bare", "cpu ms", "× bare", "peak MiB", "× final"
    );
    let about = "Time until a cache is ready, compared with a bare client and a bare socket that receive the same bytes.";
    let mut record = Record::new("start", about, effort);
    for (streamed, protobuf) in [(true, false), (false, false), (true, true), (false, true)] {
        let case = Case {
            streamed,
            protobuf,
            pages: effort.pick(300, 4),
        };
        let form = if streamed { "stream" } else { "pages" };
        let name = format!("{form}, {}", encoding(case).as_str());
        if only.as_ref().is_none_or(|only| name.contains(&**only)) {
            measure_case(&name, case, effort.pick(5, 1), &mut record)?;
        }
    }
    record.write()
}

fn measure_case(name: &str, case: Case, rounds: usize, record: &mut Record) -> io::Result<()> {
    let upstream = Child::start("upstream", case.number())?;
    let words: Vec<usize> = upstream.words()?;
    let &[port, len] = &*words else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let port = u16::try_from(port).map_err(io::Error::other)?;
    let task = Task { case, port, len };
    println!("{name}: {} objects, {} bytes", case.objects(), len);
    let mut best: [Option<Figures>; 3] = [None; 3];
    let mut walls = [const { Vec::new() }; 3];
    let parts = ["bare", "client", "cache"];
    // Alternate between the parts, so that a busy moment of the machine affects all of them.
    for _ in 0..rounds {
        for ((part, best), walls) in parts.iter().zip(&mut best).zip(&mut walls) {
            let figures = run(part, task)?;
            walls.push(figures.wall_ms);
            *best = Some(best.map_or(figures, |best| best.or_better(figures)));
        }
    }
    let places = parts.map(|part| format!("{name} / {part}"));
    for (place, walls) in places.iter().zip(&walls) {
        record.rounds(place, WALL, walls);
    }
    for (what, to) in [("ready", None), ("ready, to receiving", Some(&*places[0]))] {
        record.claim(Claim {
            what: &format!("{name}: {what}"),
            figure: WALL,
            of: &places[2],
            to,
            at_most: None,
        });
    }
    let bare = best[0].expect("at least one round");
    for (part, figures) in parts.iter().zip(best.into_iter().flatten()) {
        println!(
            "  {:32} {:>8.0} {:>8.2} {:>8.0} {:>8.2} {:>9.0} {:>9.2}",
            part,
            figures.wall_ms,
            figures.wall_ms / bare.wall_ms,
            figures.cpu_ms,
            figures.cpu_ms / bare.cpu_ms,
            figures.peak_mib,
            figures.peak_mib / figures.last_mib,
        );
    }
    Ok(())
}

fn run(part: &str, task: Task) -> io::Result<Figures> {
    let words: Vec<f64> = Child::start(part, task.number())?.words()?;
    let &[wall, cpu, peak, last] = &*words else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    Ok(Figures {
        wall_ms: wall / 1e3,
        cpu_ms: cpu / 1e3,
        peak_mib: peak / 1024.0,
        last_mib: last / 1024.0,
    })
}

impl Figures {
    fn or_better(self, other: Self) -> Self {
        Self {
            wall_ms: self.wall_ms.min(other.wall_ms),
            cpu_ms: self.cpu_ms.min(other.cpu_ms),
            peak_mib: self.peak_mib.min(other.peak_mib),
            last_mib: self.last_mib.min(other.last_mib),
        }
    }
}
