//! CPU time per delivered event of the whole downstream path, compared with a loop that only writes to sockets.
//!
//! A plain program: `cargo bench --bench fanout [-- --quick] [plain] [tls] [http2] [http2-alone]`. Without names it measures all four
//! forms. Each server is a process of its own (this program again), so that its CPU time, kernel included, can be separated from the
//! clients'. The next step's events are published when every client has received those of the last step. The two servers are measured
//! alternately; the ratio is the result.
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
#[path = "rig/record.rs"]
mod record;
#[allow(dead_code, reason = "the benches use different parts of it")]
#[path = "rig/rounds.rs"]
mod rounds;
#[path = "rig/tls.rs"]
mod tls;

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use kube_fanout::cache::{CacheWriter, Change};
use kube_fanout::resource::FieldTable;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;

use child::Child;
use herd::{Form, Herd};
use order::Order;
use record::{Claim, Record};
use rounds::{Effort, median, nanos_each, process_cpu, process_user};

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
        "{:<11}{:<9}{:<10}{:<24}{:>16}{:>16}{:>9}{:>11}{:>11}  target",
        "",
        "workers",
        "watchers",
        "events per step",
        "ours us/event",
        "bare us/event",
        "ratio",
        "ours user",
        "bare user"
    );
    let mut bench = Bench {
        effort,
        record: Record::new("fanout", ABOUT, effort),
    };
    let sizes: &[usize] = effort.pick(&[500, 2_000], &[50]);
    for form in forms() {
        for threads in [1, 2] {
            for &size in sizes {
                local.block_on(&runtime, bench.compare(form, threads, size))?;
            }
        }
    }
    println!(
        "HTTP/2 has no ratio: the loop would have a socket for each watcher, not one for a hundred. The load test has a loop for it."
    );
    bench.record.write()
}

/// Printed above the figures in docs/PERFORMANCE.md.
const ABOUT: &str = "CPU per delivered event of the whole downstream path, one step at a time, beside a loop that only writes to sockets; each server is \
a process of its own. User time, which the kernel's work for sockets is not in, stands beside it.";
const CPU: &str = "CPU per event, µs";
const USER: &str = "user CPU per event, µs";
/// Watchers of the runs that docs/PERFORMANCE.md quotes.
const QUOTED_SIZE: usize = 2_000;

/// The forms named on the command line, or all.
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

/// Steps measured on each pair of servers: the step, its name, deliveries per round, the largest permitted ratio.
const STEPS: [(Order, &str, usize, f64); 3] = [
    (Order::One, "1", 50_000, 1.35),
    (Order::Batch, "16, published at once", 200_000, 1.5),
    (Order::Singly, "16, one by one", 200_000, 1.5),
];
/// Upper limit over HTTP/2 with a hundred streams per connection, in steps of 16 events: microseconds per event.
const HTTP2_MAX: f64 = 0.8;

struct Bench {
    effort: Effort,
    record: Record,
}

/// CPU time that a server used in a round: microseconds per delivered event.
#[derive(Clone, Copy, Debug)]
struct Cost {
    cpu: f64,
    user: f64,
}

impl Bench {
    async fn compare(&mut self, form: Form, threads: usize, size: usize) -> io::Result<()> {
        let (ours, bare, title) = match form {
            Form::Plain => ("gateway", Some("bare"), "plain"),
            Form::Tls => ("gateway-tls", Some("bare-tls"), "TLS"),
            Form::Http2 => ("gateway", None, "HTTP/2"),
            Form::Http2Alone => ("gateway", None, "HTTP/2, 1"),
        };
        let mut ours = Server::start(ours, form, threads, size).await?;
        let mut bare = match bare {
            Some(bare) => Some(Server::start(bare, form, threads, size).await?),
            None => None,
        };
        for step in STEPS {
            let (order, _, deliveries, _) = step;
            let events = usize::try_from(order.events()).unwrap_or(1);
            let steps = self.effort.pick(deliveries / size / events, 2);
            let (mut of_ours, mut of_bare) = (Vec::new(), Vec::new());
            ours.run(order, steps.div_ceil(8)).await?;
            if let Some(bare) = &mut bare {
                bare.run(order, steps.div_ceil(8)).await?;
            }
            for _ in 0..self.effort.pick(5, 1) {
                of_ours.push(ours.run(order, steps).await?);
                if let Some(bare) = &mut bare {
                    of_bare.push(bare.run(order, steps).await?);
                }
            }
            self.print_and_record((form, title), (threads, size), step, [of_ours, of_bare]);
        }
        Ok(())
    }

    fn print_and_record(
        &mut self,
        (form, title): (Form, &str),
        (threads, size): (usize, usize),
        (order, name, _, most): (Order, &str, usize, f64),
        costs: [Vec<Cost>; 2],
    ) {
        let of = |costs: &[Cost], of: fn(&Cost) -> f64| costs.iter().map(of).collect::<Vec<_>>();
        let run = format!("{title}, {threads} workers, {size} watchers, {name}");
        let places = ["ours", "bare"].map(|column| format!("{run} / {column}"));
        for (place, costs) in places.iter().zip(&costs) {
            if !costs.is_empty() {
                let (cpu, user) = (of(costs, |cost| cost.cpu), of(costs, |cost| cost.user));
                self.record.rounds(place, CPU, &cpu);
                self.record.rounds(place, USER, &user);
            }
        }
        let pairs = costs[0].iter().zip(&costs[1]);
        let ratio = median(pairs.map(|(ours, bare)| ours.cpu / bare.cpu).collect());
        let [ours, bare] = &costs;
        let (is_compared, is_http2) = (!bare.is_empty(), form == Form::Http2);
        let target = match (is_compared, is_http2 && order != Order::One) {
            (true, _) => format!("<= {most:.2}"),
            (false, true) => format!("<= {HTTP2_MAX:.2} us"),
            (false, false) => String::new(),
        };
        println!(
            "{title:<11}{threads:<9}{size:<10}{name:<24}{:>16.2}{:>16.2}{ratio:>9.2}{:>11.2}{:>11.2}  {target}",
            median(of(ours, |cost| cost.cpu)),
            median(of(bare, |cost| cost.cpu)),
            median(of(ours, |cost| cost.user)),
            median(of(bare, |cost| cost.user)),
        );
        if size == self.effort.pick(QUOTED_SIZE, size) {
            let http2_max = (is_http2 && order != Order::One).then_some(HTTP2_MAX);
            self.record.claim(Claim {
                what: &format!("{title}, {threads} workers, {name}"),
                figure: CPU,
                of: &places[0],
                to: is_compared.then_some(&*places[1]),
                at_most: if is_compared { Some(most) } else { http2_max },
            });
        }
    }
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
        let addresses: Vec<SocketAddr> = child.words()?;
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

    /// Performs `steps` steps.
    async fn run(&mut self, order: Order, steps: usize) -> io::Result<Cost> {
        let pid = self.child.pid();
        let (before, user_before) = (process_cpu(pid), process_user(pid));
        for _ in 0..steps {
            self.herd.expect(order.events());
            for control in &mut self.controls {
                control.write_all(&order.word()).await?;
            }
            self.herd.wait_for_events().await?;
        }
        let delivered = order.events() * (steps * self.size) as u64;
        let each_us = |now: Duration, then| nanos_each(now.saturating_sub(then), delivered) / 1e3;
        Ok(Cost {
            cpu: each_us(process_cpu(pid), before),
            user: each_us(process_user(pid), user_before),
        })
    }
}

/// The child process that runs the gateway: publishes events on order.
async fn serve(is_encrypted: bool) -> io::Result<()> {
    child::end_with_parent();
    let tls = is_encrypted.then(tls::server).transpose()?;
    let objects = (0..64).map(|n| object(gateway::FIRST_VERSION - 64 + n));
    let (writer, served) =
        gateway::filled(gateway::kind("configmaps", "ConfigMap"), objects.collect());
    let address = gateway::serve(served, tls).await?;
    let control = TcpListener::bind(("127.0.0.1", 0)).await?;
    child::report(&[address, control.local_addr()?]);
    let (control, _) = control.accept().await?;
    // On a worker thread, like upstream's driver. It ends when the parent closes the connection.
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

async fn obey(mut control: TcpStream, mut writer: CacheWriter) -> io::Result<()> {
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
