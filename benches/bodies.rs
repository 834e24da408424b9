//! Server CPU time per list response, compared with a loop that writes the same number of bytes to a socket.
//!
//! A plain program: `cargo bench --bench bodies [-- --quick]`. Servers run as separate processes (this program again), so that their CPU
//! time, kernel included, can be separated from the clients'. The two servers are measured alternately; the ratio is the result. Work
//! that is done once for all clients (compressing, changing an event's type) is compared with a single thread that does the minimum for
//! the same result.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::expect_used,
    reason = "a bench is a driver: it reads the clock, prints, and ends at the first surprise"
)]

#[path = "rig/child.rs"]
mod child;
#[allow(dead_code, reason = "the benches use different parts of it")]
#[path = "rig/gateway.rs"]
mod gateway;
#[allow(dead_code, reason = "the benches use different parts of it")]
#[path = "rig/rounds.rs"]
mod rounds;

use std::fmt::Write as _;
use std::hint::black_box;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use bytes::Bytes;
use flate2::{Compress, Compression, FlushCompress};
use kube_fanout::cache::Change;
use kube_fanout::resource::{EventKind, FieldTable, Object};
use tokio::runtime::Builder;

use child::Child;
use rounds::{Effort, median, nanos_each, process_cpu, timed};

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const OBJECT_LEN: usize = 2_900;
/// Concurrent clients.
const CLIENTS: usize = 8;
/// Bytes per write of the loop: as many as a frame of a list has.
const PIECE_LEN: usize = 128 << 10;
/// Longer than any response of this bench.
const SOURCE_LEN: usize = 32 << 20;
/// As many worker threads as the gateway has.
const THREADS: usize = 2;

fn main() -> io::Result<()> {
    match child::part() {
        Some((part, _)) if part == "bare" => bare(),
        Some((_, count)) => Builder::new_multi_thread()
            .worker_threads(THREADS)
            .enable_all()
            .build()?
            .block_on(serve(count)),
        None => measure(Effort::of_arguments()),
    }
}

/// One form of a request for all objects.
struct Row {
    name: &'static str,
    query: &'static str,
    headers: &'static str,
    /// The response's last bytes contain this, for responses after which the connection stays open.
    ends_with: &'static [u8],
    target: &'static str,
}

const ROWS: [Row; 4] = [
    Row {
        name: "list, plain",
        query: "resourceVersion=0",
        headers: "",
        ends_with: b"",
        target: "<= 10 ms",
    },
    Row {
        name: "list, gzip made before",
        query: "resourceVersion=0",
        headers: "Accept-Encoding: gzip\r\n",
        ends_with: b"",
        target: "<= 2 ms",
    },
    Row {
        name: "list, metadata alone",
        query: "resourceVersion=0",
        headers: "Accept: application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1\r\n",
        ends_with: b"",
        target: "",
    },
    Row {
        name: "watch-list",
        query: "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0&allowWatchBookmarks=true",
        headers: "",
        ends_with: b"initial-events-end\":\"true\"",
        target: "<= 12 ms",
    },
];

fn measure(effort: Effort) -> io::Result<()> {
    let count = effort.pick(10_000, 300);
    println!("{count} objects of {OBJECT_LEN} bytes, {CLIENTS} clients at once");
    println!(
        "{:<28}{:>10}{:>12}{:>12}{:>8}  target",
        "milliseconds of CPU each", "MB", "ours", "limit", "ratio"
    );
    let ours = Child::start("gateway", count)?;
    let bare = Child::start("bare", count)?;
    for row in &ROWS {
        let request = |path: &str| {
            let headers = row.headers;
            format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{headers}\r\n")
        };
        let ask = request(&format!("/api/v1/configmaps?{}", row.query));
        let len = answer(address(&ours)?, &ask, row.ends_with)?;
        let ask_bare = request(&format!("/{len}"));
        let each = effort.pick(6, 1);
        let mut figures = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..effort.pick(7, 1) {
            let ours = herd(&ours, &ask, row.ends_with, each)?;
            let bare = herd(&bare, &ask_bare, b"", each)?;
            figures[0].push(ours);
            figures[1].push(bare);
            figures[2].push(ours / bare);
        }
        print_row(row.name, len, figures, row.target);
    }
    first_gzip(count, effort)?;
    other_kind(effort);
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "megabytes are few")]
fn print_row(name: &str, len: usize, figures: [Vec<f64>; 3], target: &str) {
    let [ours, bare, ratio] = figures.map(median);
    let len = len as f64 / 1e6;
    println!("{name:<28}{len:>10.2}{ours:>12.3}{bare:>12.3}{ratio:>8.2}  {target}");
}

fn address(server: &Child) -> io::Result<SocketAddr> {
    let words: Vec<SocketAddr> = server.words()?;
    words
        .first()
        .copied()
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Milliseconds of server CPU time per response, when every client sends `each` requests.
fn herd(server: &Child, ask: &str, ends_with: &'static [u8], each: usize) -> io::Result<f64> {
    let (address, before) = (address(server)?, process_cpu(server.pid()));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let ask = ask.to_owned();
            thread::spawn(move || -> io::Result<()> {
                for _ in 0..each {
                    answer(address, &ask, ends_with)?;
                }
                Ok(())
            })
        })
        .collect();
    for client in clients {
        client.join().expect("a client does not panic")?;
    }
    let spent = process_cpu(server.pid()).saturating_sub(before);
    Ok(nanos_each(spent, (CLIENTS * each) as u64) / 1e6)
}

/// Sends one request over a new connection; returns the length of the response, head included.
fn answer(address: SocketAddr, ask: &str, ends_with: &[u8]) -> io::Result<usize> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(ask.as_bytes())?;
    let mut buffer = vec![0; 256 << 10];
    // Keep this many bytes of the previous read: the end marker may be split between two reads.
    let (mut len, mut kept) = (0, 0);
    loop {
        let read = stream.read(&mut buffer[kept..])?;
        len += read;
        let seen = &buffer[..kept + read];
        let is_over = !ends_with.is_empty()
            && seen
                .windows(ends_with.len())
                .rev()
                .take(1_024)
                .any(|it| it == ends_with);
        if read == 0 || is_over {
            return Ok(len);
        }
        let tail = seen.len().saturating_sub(1_024)..seen.len();
        kept = tail.len();
        buffer.copy_within(tail, 0);
    }
}

/// The first compression of a list, compared with the same compressor on contiguous bytes.
fn first_gzip(count: usize, effort: Effort) -> io::Result<()> {
    let plain: Vec<u8> = (0..count).flat_map(|index| line(index).to_vec()).collect();
    let ask = "GET /api/v1/configmaps?resourceVersion=0 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\
               Accept-Encoding: gzip\r\n\r\n";
    let (mut figures, mut len) = ([Vec::new(), Vec::new(), Vec::new()], 0);
    for _ in 0..effort.pick(3, 1) {
        let server = Child::start("gateway", count)?;
        let before = process_cpu(server.pid());
        len = answer(address(&server)?, ask, b"")?;
        let spent = process_cpu(server.pid()).saturating_sub(before);
        let (_, limit) = timed(|| {
            let mut deflate = Compress::new(Compression::new(2), false);
            let mut out = Vec::with_capacity(plain.len());
            deflate.compress_vec(&plain, &mut out, FlushCompress::Finish)
        });
        let (ours, limit) = (nanos_each(spent, 1) / 1e6, nanos_each(limit, 1) / 1e6);
        figures[0].push(ours);
        figures[1].push(limit);
        figures[2].push(ours / limit);
    }
    print_row("list, gzip for the first", len, figures, "");
    Ok(())
}

/// The last row's figures are for this many frames.
const FRAMES: f64 = 1_000.0;

/// Watch frames whose event type differs from the stored one, compared with a copy of the frames.
fn other_kind(effort: Effort) {
    let objects: Vec<Object> = (0..100).map(object).collect();
    let (mut figures, rounds) = ([Vec::new(), Vec::new(), Vec::new()], effort.pick(200, 1));
    let each = objects.len() * rounds;
    for _ in 0..effort.pick(7, 1) {
        let all = |each_object: &mut dyn FnMut(&Object)| {
            let (_, spent) = timed(|| {
                for _ in 0..rounds {
                    objects.iter().for_each(&mut *each_object);
                }
            });
            nanos_each(spent, each as u64) * FRAMES / 1e6
        };
        let ours = all(&mut |object| drop(black_box(object.frame(EventKind::Modified))));
        let copy = all(&mut |object| {
            let frame = object.frame(EventKind::Added);
            drop(black_box(Bytes::copy_from_slice(&frame)));
        });
        figures[0].push(ours);
        figures[1].push(copy);
        figures[2].push(ours / copy);
    }
    print_row(
        "1,000 watch frames changed",
        OBJECT_LEN * 1_000,
        figures,
        "",
    );
}

/// An event line that compresses about as well as real objects do.
fn line(index: usize) -> Bytes {
    let mut text = format!(
        r#"{{"type":"ADDED","object":{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"config-{index:06}","namespace":"team-{:02}","uid":"e0107c60-3809-4949-b3b5-{index:012}","resourceVersion":"{}","creationTimestamp":"2026-11-21T02:54:13Z"}},"data":{{"text":""#,
        index % 20,
        100_000 + index,
    );
    let mut state = index as u64 + 1;
    while text.len() < OBJECT_LEN {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let _ = write!(text, "setting-{}=value of the setting; ", state >> 52);
    }
    text.push_str("\"}}}\n");
    text.into()
}

fn object(index: usize) -> Object {
    let fields = FieldTable::of(&gateway::kind("configmaps", "ConfigMap").gvr);
    match gateway::change(line(index), fields) {
        Change::Put(object) | Change::Delete(object) => object,
    }
}

/// The child process that runs the gateway.
async fn serve(count: usize) -> io::Result<()> {
    let objects = (0..count).map(object).collect();
    let (_writer, served) = gateway::filled(gateway::kind("configmaps", "ConfigMap"), objects);
    child::report(&[gateway::serve(served, None).await?]);
    child::end_with_parent();
    std::future::pending().await
}

/// The child process that runs the loop: it writes as many bytes as the request's path says.
fn bare() -> io::Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    child::report(&[listener.local_addr()?]);
    child::end_with_parent();
    let source: &'static [u8] = vec![b'x'; SOURCE_LEN].leak();
    let threads: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let listener = listener.try_clone();
            thread::spawn(move || -> io::Result<()> {
                let listener = listener?;
                loop {
                    let (stream, _) = listener.accept()?;
                    // A client that disconnects does not affect the others.
                    let _ = write_to(&stream, source);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("a loop does not panic")?;
    }
    Ok(())
}

fn write_to(mut stream: &TcpStream, source: &[u8]) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut line = first.clone();
    while line.trim() != "" {
        line.clear();
        reader.read_line(&mut line)?;
    }
    let words = first.split(['/', ' ']).find_map(|word| word.parse().ok());
    let len: usize = words.unwrap_or(0).min(source.len());
    for piece in source[..len].chunks(PIECE_LEN) {
        stream.write_all(piece)?;
    }
    Ok(())
}
