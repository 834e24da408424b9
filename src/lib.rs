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
//! An order in which it can be read: [`resource`], [`decode`], [`selector`], [`cache`], [`view`], [`upstream`], [`protocol`],
//! [`watch`], [`serve`], [`connection`], [`auth`], [`gateway`]. They belong to smaller crates, and keep their names here. The first five, and
//! [`protocol`], are pure: no sockets, no clock, no `async`.
//!
//! `docs/ARCHITECTURE.md` follows an event, a list, a caller and a setting through the code, file by file, lists crates and modules, and
//! states the invariants. `docs/PROTOCOL.md` describes the list and watch protocol, and `docs/decisions` gives the reasons for the
//! design.

pub use kube_fanout_cache::{cache, fairness, view};
pub use kube_fanout_gateway as gateway;
pub use kube_fanout_gateway::checkpoint;
pub use kube_fanout_informer as informer;
pub use kube_fanout_protocol as protocol;
pub use kube_fanout_serving::{
    admin, admission, allocator, audit, auth, build_info, cache_rule, cli, config, connection,
    log_filter, metrics, passthrough, reload, serve, serving_control, shutdown, status, telemetry,
    tls, watch,
};
use kube_fanout_serving::{numbers, printable};
pub use kube_fanout_upstream as upstream;
use kube_fanout_upstream::blocking;
pub use kube_fanout_upstream::{error_chain, log_limit, net};
pub use kube_fanout_wire::{decode, resource, selector};

pub mod assess;
pub mod check;
pub mod demo;
pub mod embedded;
pub mod inject;
pub mod quiet;
pub mod serving_command;
