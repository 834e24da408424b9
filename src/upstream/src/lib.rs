//! The upstream side: everything between the gateway and kube-apiserver.
//!
//! [`client`] owns the connections and the gateway's credentials. [`discovery`] and [`gates`] find out what the server
//! offers. One [`driver`] task lists and watches each cached resource: the pure state machine in [`reflector`] decides each
//! step, [`backoff`] computes how long to wait between attempts, and the driver sends the requests, decodes the responses
//! and passes the objects to a [`sink`]. The gateway's sink, `cache_sink`, fills a watch cache; the informer has its own.
//!
//! Start with `reflector.rs`, which has the state diagram, then read `driver.rs`. Small modules serve the crates above as well:
//! [`net`] and [`blocking`] are what a simulation replaces, [`log_limit`] bounds the log, [`error_chain`] writes errors as one line.

pub mod backoff;
pub mod blocking;
#[cfg(feature = "gateway")]
pub mod cache_sink;
#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "gateway")]
pub mod discovery;
pub mod driver;
pub mod error_chain;
#[cfg(feature = "client")]
mod fetch;
#[cfg(feature = "gateway")]
pub mod gates;
#[cfg(feature = "client")]
pub mod inflate;
#[cfg(feature = "client")]
pub mod log_limit;
#[cfg(feature = "client")]
pub mod net;
pub mod object_versions;
pub mod reflector;
#[cfg(all(feature = "gateway", any(test, feature = "testing")))]
pub mod samples;
pub mod sink;

// Under the names that they have everywhere.
#[cfg(feature = "gateway")]
use kube_fanout_cache::cache;
#[cfg(all(test, feature = "gateway"))]
use kube_fanout_cache::view;
#[cfg(all(test, feature = "gateway"))]
use kube_fanout_wire::selector;
use kube_fanout_wire::{decode, resource};
