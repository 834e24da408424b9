//! The upstream side: everything between the gateway and kube-apiserver.
//!
//! [`client`] owns the connections and the gateway's credentials. [`discovery`] and [`gates`] find out what the server
//! offers. One [`driver`] task lists and watches each cached resource: the pure state machine in [`reflector`] decides each
//! step, [`backoff`] computes how long to wait between attempts, and the driver sends the requests, decodes the responses
//! and passes the objects to a [`sink`]. The gateway's sink, [`cache_sink`], fills a watch cache; the informer has its own.
//!
//! Start with `reflector.rs`, which has the state diagram, then read `driver.rs`.

pub mod backoff;
#[cfg(feature = "gateway")]
pub mod cache_sink;
#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "gateway")]
pub mod discovery;
pub mod driver;
#[cfg(feature = "client")]
mod fetch;
#[cfg(feature = "gateway")]
pub mod gates;
pub mod object_versions;
pub mod reflector;
pub mod sink;
