//! kube-fanout is a list/watch fan-out gateway for Kubernetes, and a library for writing controllers.
//!
//! The gateway stands between kube-apiserver and its clients. It keeps one upstream watch per resource, holds the objects and their
//! recent history in memory, and serves LIST and WATCH to thousands of unmodified clients. Every other request is forwarded. The
//! library, [`informer`], is the client half of list-watch; it corresponds to `tools/cache` of client-go.
//!
//! ```text
//!                 one watch per resource         shared frames, one cursor per client
//! kube-apiserver ──list + watch──▶ upstream ─▶ decode ─▶ cache ─▶ view ─▶ watch ──▶ clients
//!               ◀─everything else─ passthrough ◀─────────────────────── serve ◀──
//! ```
//!
//! # Running a gateway
//!
//! The program `kube-fanout` needs no code. In a clone of the repository, `./kube-fanout` builds it when needed:
//!
//! ```text
//! $ ./kube-fanout demo                  # embedded API server, gateway and 1,000 watchers in one process
//! $ ./kube-fanout serve --kubeconfig ~/.kube/config --plain-http --auth none
//! $ kubectl --server http://127.0.0.1:8443 get pods -A -w
//! ```
//!
//! `--auth none` lets every client that can connect act as the gateway, and is refused by default on addresses other than
//! loopback. These pages of the repository describe a real deployment:
//!
//! | page | answers |
//! |---|---|
//! | `docs/CONFIGURATION.md` | which flags, variables and file keys there are, and which limits hold |
//! | `docs/SECURITY.md` | how callers are authenticated and authorized, and what the gateway can read |
//! | `docs/METRICS.md` | which metrics there are, and which of them to alert on |
//! | `docs/CONFORMANCE.md` | where the gateway behaves like kube-apiserver, and where it does not |
//! | `deploy/README.md` | how to run it in a cluster |
//!
//! To run a gateway inside another program, pass [`config::ServeSettings`] and a [`shutdown::Drain`] to [`gateway::run`].
//!
//! # Writing a controller
//!
//! A shared informer keeps a local copy of a collection up to date, and calls handlers when it changes. It works with a gateway and
//! with any API server:
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use k8s_openapi::api::core::v1::Pod;
//! use kube_fanout::informer::{ListWatch, SharedInformerFactory};
//! use kube_fanout::upstream::client::{Client, ConnectSource};
//!
//! # async fn count_pods() -> Result<(), Box<dyn std::error::Error>> {
//! let source = ConnectSource::url("http://127.0.0.1:8443")?;
//! let factory = SharedInformerFactory::new(Arc::new(Client::connect(source).await?));
//! let pods = factory.informer(ListWatch::<Pod>::of_kind().with_labels("tier=backend"));
//!
//! factory.start();
//! factory.wait_for_cache_sync().await?;
//! println!("{} pods", pods.store().len());
//! # Ok(())
//! # }
//! ```
//!
//! Read [`informer`] first: it shows handlers and indices, and has a table from client-go's names to the names here.
//! [`upstream::client`] connects to API servers. `docs/INFORMER.md` describes the behaviour case by case, and `docs/examples` has two
//! complete programs. A controller does not need the gateway:
//!
//! | cargo feature | what it adds |
//! |---|---|
//! | `informer` | reflector, queue of deltas, indexer and shared informers; they read through the trait [`upstream::driver::Fetch`] |
//! | `client` | `informer`, and a client with kubeconfig, service accounts, TLS and credential plugins |
//! | `gateway` (default) | `client`, the gateway, the embedded API server, the demo and the program `kube-fanout` |
//! | `otlp` | `gateway`, and spans for an OpenTelemetry collector |
//! | `profile` | `gateway`, and CPU profiles at the admin port |
//!
//! # How the code is organised
//!
//! The modules, in an order in which they can be read. The first four are pure: no sockets, no clock, no `async`.
//!
//! | module | what it holds |
//! |---|---|
//! | [`resource`] | the domain: names, versions, objects, and the positions of their parts in the bytes |
//! | [`decode`] | from the bytes that upstream sends to events and objects |
//! | [`cache`] | the watch cache of one resource: the newest snapshot and the history of events |
//! | [`checkpoint`] | the state of a cache on disk, for the next process |
//! | [`view`] | selectors, and the events that watches with the same parameters share |
//! | [`upstream`] | the side of the API server: client, discovery, reflector, driver |
//! | [`protocol`] | what a request means, and how responses and errors are written; pure |
//! | [`admission`] | permits for lists, watches and connections; requests that wait or get 429 |
//! | `transport` | a client's connection below HTTP: TLS, coalesced writes, limits against abuse |
//! | [`watch`] | one watch: its cursor, its initial events, and its delivery to the client |
//! | [`serve`] | from a request to its response: from memory or upstream, lists, compression |
//! | [`connection`] | accepting clients; HTTP/1.1, HTTP/2 and WebSocket |
//! | `tables` | watches of Tables, which clients with the same parameters share |
//! | [`passthrough`] | requests that are forwarded, and their bodies in both directions |
//! | [`auth`] | who is calling, what the caller may do, and streams whose permission is revoked |
//! | [`audit`] | the audit log of the requests that the gateway answers itself |
//! | [`gateway`] | the composition root: it builds all parts and owns every task |
//! | [`informer`] | the client half of list-watch, as a library |
//! | [`embedded`], [`demo`] | the embedded API server; API server, gateway and watchers in one process |
//!
//! Smaller modules support these: [`allocator`] counts what is allocated; [`cli`] and [`config`] turn flags, environment and file into
//! settings; [`cache_rule`] decides which resources may be cached; [`metrics`], [`admin`] and [`build_info`] show what runs; [`check`] tells whether a gateway will work; [`fairness`] divides
//! bounded permits among clients; [`tls`] and [`reload`] follow files that change; [`shutdown`] is the drain; [`log_filter`] is the filter
//! of the log; [`telemetry`] is the spans of requests; [`log_limit`] bounds lines about what happens often or lasts; `task` restarts long-lived tasks; `error_chain` writes errors as one line, `printable`
//! text that others chose, and `numbers` numbers with their nouns; [`quiet`] detects clients that were left behind.
//!
//! `docs/ARCHITECTURE.md` follows an event and a list through these modules, file by file, and states the invariants.
//! `docs/PROTOCOL.md` describes the list and watch protocol, and `docs/decisions` gives the reasons for the design.

#![cfg_attr(
    all(test, not(feature = "gateway")),
    allow(
        dead_code,
        unused_imports,
        reason = "tests of the library alone share samples with those of the gateway"
    )
)]

// In every build.
pub mod informer;

#[cfg(feature = "gateway")]
use kube_fanout_cache::sync;
#[cfg(feature = "gateway")]
pub use kube_fanout_cache::{cache, fairness, view};
#[cfg(feature = "gateway")]
pub use kube_fanout_protocol as protocol;
pub use kube_fanout_upstream as upstream;
#[cfg(feature = "gateway")]
use kube_fanout_upstream::blocking;
#[cfg(feature = "gateway")]
pub use kube_fanout_upstream::error_chain;
#[cfg(feature = "client")]
pub use kube_fanout_upstream::{log_limit, net};
pub use kube_fanout_wire::{decode, resource, selector};

// Only with the feature `gateway`. Each has an attribute of its own, because rustfmt does not find modules in macros, `cfg_select!` included.
#[cfg(feature = "gateway")]
pub mod admin;
#[cfg(feature = "gateway")]
pub mod admission;
#[cfg(feature = "gateway")]
pub mod allocator;
#[cfg(feature = "gateway")]
pub mod audit;
#[cfg(feature = "gateway")]
pub mod auth;
#[cfg(feature = "gateway")]
pub mod build_info;
#[cfg(feature = "gateway")]
pub mod cache_rule;
#[cfg(feature = "gateway")]
pub mod check;
#[cfg(feature = "gateway")]
pub mod checkpoint;
#[cfg(feature = "gateway")]
pub mod cli;
#[cfg(feature = "gateway")]
pub mod config;
#[cfg(feature = "gateway")]
pub mod connection;
#[cfg(feature = "gateway")]
pub mod demo;
#[cfg(feature = "gateway")]
pub mod embedded;
#[cfg(feature = "gateway")]
pub mod gateway;
#[cfg(feature = "gateway")]
pub mod log_filter;
#[cfg(feature = "gateway")]
pub mod metrics;
#[cfg(feature = "gateway")]
mod numbers;
#[cfg(feature = "gateway")]
pub mod passthrough;
#[cfg(feature = "gateway")]
mod printable;
#[cfg(feature = "gateway")]
pub mod quiet;
#[cfg(feature = "gateway")]
pub mod reload;
#[cfg(feature = "gateway")]
pub mod serve;
#[cfg(feature = "gateway")]
pub mod shutdown;
#[cfg(feature = "gateway")]
pub mod status;
#[cfg(feature = "gateway")]
mod tables;
#[cfg(feature = "gateway")]
mod task;
#[cfg(feature = "gateway")]
pub mod telemetry;
#[cfg(feature = "gateway")]
pub mod tls;
#[cfg(feature = "gateway")]
mod transport;
#[cfg(feature = "gateway")]
pub mod watch;
