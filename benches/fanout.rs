//! CPU per delivered event of the whole downstream path, beside a loop that only writes to sockets.
//!
//! A plain program: `cargo bench --bench fanout [-- --quick] [plain] [tls] [http2] [http2-alone]`, all of them unless some are named. Each server is a process of its own (this program
//! again), so its CPU time, kernel included, is told apart from the clients'. One step at a time: the next events are
//! published when every client has the last ones. Both servers are measured in turn; the ratio is the figure.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::expect_used,
    reason = "a bench is a driver: it reads the clock, prints, and ends at the first surprise"
)]

#[path = "rig/bare.rs"]
mod bare;
#[path = "rig/child.rs"]
mod child;
#[allow(dead_code, reason = "the benches use different parts of it")]
#[path = "rig/gateway.rs"]
mod gateway;
#[allow(dead_code, reason = "the benches use different parts of it")]
#[path = "rig/herd.rs"]
mod herd;
#[path = "rig/order.rs"]
mod order;
#[allow(dead_code, reason = "the benches use different parts of it")]
#[path = "rig/rounds.rs"]
mod rounds;
#[path = "rig/tls.rs"]
mod tls;

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use kube_fanout::cache::{Change, Writer};
use kube_fanout::resource::FieldTable;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;

use child::Child;
use herd::{Form, Herd};
use order::Order;
use rounds::{Effort, median, nanos_each, process_cpu};

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> io::Result<()> {
    match child::part() {
        Some((part, threads)) if part == "bare" => bare::run(threads, false),
        Some((part, threads)) if part == "bare-tls" => bare::run(threads, true),
        Some((part, threads)) => Builder::new_multi_thread()
            .worker_threads(threads)
            .enable_all()
            .build()?
            .block_on(serve(part == "gateway-tls")),
        None => measure(Effort::of_arguments()),
    }
}

fn measure(effort: Effort) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    println!(
        "{:<11}{:<9}{:<10}{:<24}{:>16}{:>16}{:>9}  target",
        "", "workers", "watchers", "events per step", "ours us/event", "bare us/event", "ratio"
    );
    let sizes: &[usize] = effort.pick(&[500, 2_000], &[50]);
    for form in forms() {
        for threads in [1, 2] {
            for &size in sizes {
                local.block_on(&runtime, compare(form, threads, size, effort))?;
            }
        }
    }
    println!(
        "HTTP/2, 100 streams a connection or 1, stands beside the loop that writes HTTP/1.1 without TLS; its target is in microseconds"
    );
    Ok(())
}

/// Those that are named on the command line, or all.
fn forms() -> Vec<Form> {
    let all = [
        ("plain", Form::Plain),
        ("tls", Form::Tls),
        ("http2", Form::Http2),
        ("http2-alone", Form::Http2Alone),
    ];
    let words: Vec<String> = std::env::args().collect();
    let is_named = |name: &str| words.iter().any(|word| word == name);
    let named_alone = all.iter().any(|(name, _)| is_named(name));
    let chosen = all
        .into_iter()
        .filter(|(name, _)| !named_alone || is_named(name));
    chosen.map(|(_, form)| form).collect()
}

/// What is measured of a pair of servers: the step, its name, deliveries of one round, the target.
const STEPS: [(Order, &str, usize, &str); 3] = [
    (Order::One, "1", 50_000, "<= 1.35"),
    (Order::Batch, "16, published at once", 200_000, "<= 1.50"),
    (Order::Singly, "16, one by one", 200_000, "<= 1.50"),
];

async fn compare(form: Form, threads: usize, size: usize, effort: Effort) -> io::Result<()> {
    let (ours, bare, title) = match form {
        Form::Plain => ("gateway", "bare", "plain"),
        Form::Tls => ("gateway-tls", "bare-tls", "TLS"),
        Form::Http2 => ("gateway", "bare", "HTTP/2"),
        Form::Http2Alone => ("gateway", "bare", "HTTP/2, 1"),
    };
    let mut ours = Server::start(ours, form, threads, size).await?;
    let bare_form = match form {
        Form::Plain | Form::Http2 | Form::Http2Alone => Form::Plain,
        Form::Tls => Form::Tls,
    };
    let mut bare = Server::start(bare, bare_form, threads, size).await?;
    for (order, name, deliveries, target) in STEPS {
        let target = match (form, order) {
            (Form::Http2, Order::One) | (Form::Http2Alone, _) => "",
            (Form::Http2, _) => "<= 0.80 us",
            _ => target,
        };
        let events = usize::try_from(order.events()).unwrap_or(1);
        let steps = effort.pick(deliveries / size / events, 2);
        ours.run(order, steps.div_ceil(8)).await?;
        bare.run(order, steps.div_ceil(8)).await?;
        let mut figures = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..effort.pick(5, 1) {
            let (ours, bare) = (ours.run(order, steps).await?, bare.run(order, steps).await?);
            figures[0].push(ours);
            figures[1].push(bare);
            figures[2].push(ours / bare);
        }
        let [ours, bare, ratio] = figures.map(median);
        println!(
            "{title:<11}{threads:<9}{size:<10}{name:<24}{ours:>16.2}{bare:>16.2}{ratio:>9.2}  {target}"
        );
    }
    Ok(())
}

/// A server process with its watchers.
struct Server {
    child: Child,
    controls: Vec<TcpStream>,
    herd: Herd,
    size: usize,
}

impl Server {
    async fn start(part: &str, form: Form, threads: usize, size: usize) -> io::Result<Self> {
        let child = Child::start(part, threads)?;
        let addresses: Vec<SocketAddr> = child.told()?;
        let (addresses, control_addresses) = addresses.split_at(addresses.len() / 2);
        let mut controls = Vec::new();
        let share = u16::try_from(size / addresses.len()).map_err(io::Error::other)?;
        for address in control_addresses {
            let mut control = TcpStream::connect(address).await?;
            control.set_nodelay(true)?;
            control.write_all(&Order::Accept(share).word()).await?;
            controls.push(control);
        }
        let herd = Herd::connect(form, size, addresses, 0).await?;
        Ok(Self {
            child,
            controls,
            herd,
            size,
        })
    }

    /// Microseconds of CPU per delivered event.
    async fn run(&mut self, order: Order, steps: usize) -> io::Result<f64> {
        let before = process_cpu(self.child.pid());
        for _ in 0..steps {
            self.herd.expect(order.events());
            for control in &mut self.controls {
                control.write_all(&order.word()).await?;
            }
            self.herd.arrived().await?;
        }
        let cpu = process_cpu(self.child.pid()).saturating_sub(before);
        let delivered = order.events() * (steps * self.size) as u64;
        Ok(nanos_each(cpu, delivered) / 1e3)
    }
}

/// The gateway's part: publishes as it is told.
async fn serve(is_encrypted: bool) -> io::Result<()> {
    child::end_with_parent();
    let tls = is_encrypted.then(tls::server).transpose()?;
    let objects = (0..64).map(|n| object(gateway::FIRST_VERSION - 64 + n));
    let (writer, served) =
        gateway::filled(gateway::kind("configmaps", "ConfigMap"), objects.collect());
    let address = gateway::serve(served, tls).await?;
    let control = TcpListener::bind(("127.0.0.1", 0)).await?;
    child::tell(&[address, control.local_addr()?]);
    let (control, _) = control.accept().await?;
    // On a worker, as upstream's driver is. The parent hanging up is how it ends.
    let _ = tokio::spawn(obey(control, writer)).await;
    Ok(())
}

fn object(version: u64) -> kube_fanout::resource::Object {
    match change(version) {
        Change::Put(object) | Change::Delete(object) => object,
    }
}

fn change(version: u64) -> Change {
    gateway::change(order::line(version).into(), FieldTable::default())
}

async fn obey(mut control: TcpStream, mut writer: Writer) -> io::Result<()> {
    let mut version = gateway::FIRST_VERSION;
    let mut word = [0; order::LEN];
    loop {
        control.read_exact(&mut word).await?;
        let order = Order::of(word)?;
        let changes: Vec<_> = (0..order.events())
            .map(|n| change(version + 1 + n))
            .collect();
        version += order.events();
        match order {
            Order::Accept(_) => {}
            Order::One | Order::Batch => {
                writer.apply(changes, Instant::now());
            }
            Order::Singly => {
                for change in changes {
                    writer.apply([change], Instant::now());
                }
            }
        }
    }
}
