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
//! The feature `otlp` sends spans to an OpenTelemetry collector, `profile` offers CPU profiles at the admin port.
//!
//! # Writing a controller
//!
//! The crate `kube-fanout-informer`, here [`informer`], works with a gateway and with any API server, and needs no gateway.
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

use kube_fanout_cache::sync;
pub use kube_fanout_cache::{cache, fairness, view};
pub use kube_fanout_informer as informer;
pub use kube_fanout_protocol as protocol;
pub use kube_fanout_upstream as upstream;
use kube_fanout_upstream::blocking;
pub use kube_fanout_upstream::{error_chain, log_limit, net};
pub use kube_fanout_wire::{decode, resource, selector};

pub mod admin;
pub mod admission;
pub mod allocator;
pub mod audit;
pub mod auth;
pub mod build_info;
pub mod cache_rule;
pub mod check;
pub mod checkpoint;
pub mod cli;
pub mod config;
pub mod connection;
pub mod demo;
pub mod embedded;
pub mod gateway;
pub mod log_filter;
pub mod metrics;
mod numbers;
pub mod passthrough;
mod printable;
pub mod quiet;
pub mod reload;
pub mod serve;
pub mod shutdown;
pub mod status;
mod tables;
mod task;
pub mod telemetry;
pub mod tls;
mod transport;
pub mod watch;
