//! Resident memory of an idle watch and of a cached object.
//!
//! A plain program: `cargo bench --bench memory [-- --quick]`. Each server is a process of its own (this program again, with the
//! gateway's allocator). The kernel's memory for sockets is not counted. Watches are compared with responses of hyper alone, objects with
//! their bytes on the wire.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::expect_used,
    reason = "a bench is a driver: it reads the clock, prints, and panics at the first failure"
)]

#[path = "rig/child.rs"]
mod child;
#[path = "rig/floor.rs"]
mod floor;
#[allow(dead_code, reason = "the benches use different parts of it")]
#[path = "rig/gateway.rs"]
mod gateway;
#[path = "rig/held.rs"]
mod held;
#[allow(dead_code, reason = "the benches use different parts of it")]
#[path = "rig/herd.rs"]
mod herd;
#[allow(dead_code, reason = "the benches use different parts of it")]
#[path = "rig/order.rs"]
mod order;
#[path = "rig/pods.rs"]
mod pods;
#[path = "rig/record.rs"]
mod record;
#[allow(dead_code, reason = "the benches use different parts of it")]
#[path = "rig/rounds.rs"]
mod rounds;
#[path = "rig/tls.rs"]
mod tls;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kube_fanout::resource::{Encoding, FieldTable};
use tokio::runtime::Builder;
use tokio::task::LocalSet;

use child::Child;
use held::{Held, Sizes};
use herd::{Form, Herd};
use record::{Claim, Record};
use rounds::{Effort, median, resident};

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Watches opened before the first measurement, so that memory that a server allocates once is not counted per watch.
const WARM: usize = 100;
/// By then the allocator and the kernel have settled; the figures do not change later.
const SETTLED: Duration = Duration::from_secs(2);

fn main() -> io::Result<()> {
    match child::part() {
        Some((part, len)) if part == "objects-json" => hold_objects(Encoding::Json, len),
        Some((part, len)) if part == "objects-protobuf" => hold_objects(Encoding::Protobuf, len),
        Some((part, threads)) => Builder::new_multi_thread()
            .worker_threads(threads)
            .enable_all()
            .build()?
            .block_on(serve(&part)),
        None => measure(Effort::of_arguments()),
    }
}

fn measure(effort: Effort) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let local = LocalSet::new();
    let watches = effort.pick(2_000, 100);
    let rounds = effort.pick(3, 1);
    let about = "Memory of an idle watch after one event, compared with hyper alone, and of a cached object, compared with its bytes on the wire.";
    let mut record = Record::new("memory", about, effort);
    println!(
        "{:<44}{:>10}{:>12}{:>8}  target",
        "bytes per idle watch", "ours", "hyper alone", "ratio"
    );
    for (name, form, most) in [
        ("HTTP/1.1", Form::Plain, 8_192.0),
        ("HTTP/1.1 over TLS", Form::Tls, 24_576.0),
        ("HTTP/2, 100 streams a connection", Form::Http2, 2_048.0),
    ] {
        let mut figures = [Vec::new(), Vec::new()];
        for _ in 0..rounds {
            for (part, figures) in ["gateway", "hyper"].iter().zip(&mut figures) {
                let each = local.block_on(&runtime, idle_watch(part, form, watches, effort))?;
                figures.push(each);
            }
        }
        record_watch(&mut record, name, &figures, most);
        let [ours, floor] = figures.map(median);
        let ratio = ours / floor;
        println!("{name:<44}{ours:>10.0}{floor:>12.0}{ratio:>8.2}  <= {most:.0}");
    }
    print_objects_heading();
    for encoding in [Encoding::Json, Encoding::Protobuf] {
        for (len, name) in [
            (1_024, "of 1,024 bytes"),
            (3_072, "of 3,072 bytes"),
            (6_144, "of 6,144 bytes"),
            (0, "of 1,000 to 8,000 bytes"),
        ] {
            let child = Child::start(&format!("objects-{}", encoding.as_str()), len)?;
            let words: Vec<usize> = child.words()?;
            let &[listed, updated, wire, counted] = words.as_slice() else {
                return Err(io::ErrorKind::UnexpectedEof.into());
            };
            #[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^52")]
            let [listed_ratio, updated_ratio] =
                [listed, updated].map(|len| len as f64 / wire as f64);
            #[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^52")]
            let counted_ratio = counted as f64 / updated as f64;
            let name = format!("pods {name}, {}", encoding.as_str());
            println!(
                "{name:<44}{wire:>10}{listed:>10}{listed_ratio:>8.2}{updated:>10}{updated_ratio:>8.2}{counted:>10}{counted_ratio:>8.2}  <= 1.30, counted >= 0.85"
            );
            record.rounds(&format!("{name} / listed"), OBJECT, &[listed_ratio]);
            record.rounds(&format!("{name} / updated"), OBJECT, &[updated_ratio]);
            record.claim(Claim {
                what: &name,
                figure: OBJECT,
                of: &format!("{name} / updated"),
                to: None,
                at_most: Some(1.3),
            });
        }
    }
    record.write()
}

fn print_objects_heading() {
    println!(
        "{:<44}{:>10}{:>10}{:>8}{:>10}{:>8}{:>10}{:>8}  target",
        "bytes per cached object",
        "wire",
        "listed",
        "ratio",
        "updated",
        "ratio",
        "counted",
        "ratio"
    );
}

/// Records the rounds of an idle watch, of the gateway and of hyper, and the upper limit for the gateway.
fn record_watch(record: &mut Record, name: &str, figures: &[Vec<f64>; 2], most: f64) {
    for (column, rounds, what, at_most) in [
        (
            "ours",
            &figures[0],
            format!("idle watch, {name}"),
            Some(most),
        ),
        (
            "hyper",
            &figures[1],
            format!("idle watch, {name}, hyper alone"),
            None,
        ),
    ] {
        let place = format!("{name} / {column}");
        record.rounds(&place, WATCH, rounds);
        record.claim(Claim {
            what: &what,
            figure: WATCH,
            of: &place,
            to: None,
            at_most,
        });
    }
}

const WATCH: &str = "memory of an idle watch, B";
const OBJECT: &str = "memory / wire bytes";

/// Resident bytes per watch in a server with `count` watches, after each has received one event.
async fn idle_watch(part: &str, form: Form, count: usize, effort: Effort) -> io::Result<f64> {
    let child = match form {
        Form::Tls => Child::start(&format!("{part}-tls"), 2)?,
        Form::Plain | Form::Http2 | Form::Http2Alone => Child::start(part, 2)?,
    };
    let addresses: Vec<SocketAddr> = child.words()?;
    let address = match form {
        Form::Plain | Form::Tls => addresses[0],
        Form::Http2 | Form::Http2Alone => addresses[1],
    };
    let settled = effort.pick(SETTLED, Duration::from_millis(10));
    let warm = Herd::connect(form, WARM, &[address], 1).await?;
    tokio::time::sleep(settled).await;
    let before = resident(child.pid())?;
    let many = Herd::connect(form, count, &[address], 1).await?;
    tokio::time::sleep(settled).await;
    let after = resident(child.pid())?;
    drop((warm, many));
    #[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^52")]
    Ok(after.saturating_sub(before) as f64 / count as f64)
}

/// The child process of a server: its watches are idle after one event.
async fn serve(part: &str) -> io::Result<()> {
    child::end_with_parent();
    let (part, tls) = match part.strip_suffix("-tls") {
        Some(part) => (part, Some(tls::server()?)),
        None => (part, None),
    };
    if part == "hyper" {
        child::report(&floor::serve(tls).await?);
    } else {
        // The one event: an initial object for each watch.
        let line = Bytes::from(order::line(gateway::FIRST_VERSION + 1));
        let change = gateway::change(line, FieldTable::default());
        let (mut writer, served) =
            gateway::filled(gateway::kind("configmaps", "ConfigMap"), Vec::new());
        writer.apply([change], Instant::now());
        let address = gateway::serve(served, tls).await?;
        child::report(&[address, address]);
    }
    std::future::pending::<Infallible>().await;
    Ok(())
}

/// Resident bytes of this process after the allocator has returned free memory, which it does while it is used.
fn settled() -> io::Result<usize> {
    const STEPS: u32 = 100;
    for len in 0..STEPS {
        drop(vec![0_u8; 1 << (len % 17)]);
        std::thread::sleep(SETTLED / STEPS);
    }
    resident(std::process::id())
}

/// Objects held at a time: enough that the process's own memory does not matter.
const OBJECTS: usize = 40_000;

/// The child process of a cache: fills it from a list, then changes each object, and reports its size per object after each step.
fn hold_objects(encoding: Encoding, len: usize) -> io::Result<()> {
    let sizes = if len == 0 {
        Sizes::Mixed
    } else {
        Sizes::Of(len)
    };
    let each = |bytes: usize| bytes / OBJECTS;
    let before = resident(std::process::id())?;
    let (mut held, wire) = Held::list(encoding, sizes, OBJECTS);
    let listed = settled()?;
    held.update_all();
    let updated = settled()?;
    child::report(&[
        each(listed.saturating_sub(before)),
        each(updated.saturating_sub(before)),
        each(wire),
        each(held.counted()),
    ]);
    drop(held);
    Ok(())
}
