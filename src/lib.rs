//! kube-fanout: one upstream watch per resource, thousands of downstream watchers.
//!
//! ```text
//! kube-apiserver ──list+watch──▶ upstream ─▶ decode ─▶ cache (snapshot + ring) ─▶ view (filter · encode) ─▶ downstream ──▶ clients
//! ```
//!
//! Modules in reading order: [`resource`], [`decode`], [`cache`], [`view`], [`upstream`], [`protocol`], [`watch`], [`serve`], [`connection`]; beside the
//! flow [`passthrough`], [`metrics`], [`admin`], [`config`], [`cli`], [`shutdown`]; [`gateway`] wires them.
//! [`informer`] is the client half, a library of its own; [`apiserver`] is the embedded API server of the demo and the tests.

pub mod resource;

pub mod decode;

pub mod cache;

pub mod view;

pub mod upstream;

pub mod informer;

pub mod protocol;

mod transport;

pub mod watch;

pub mod serve;

pub mod connection;

pub mod admin;
pub mod admission;
pub mod apiserver;
pub mod audit;
pub mod auth;
pub mod build_info;
pub mod cli;
pub mod config;
pub mod demo;
pub mod fairness;
pub mod gateway;
pub mod metrics;
pub mod passthrough;
pub mod quiet;
pub mod reload;
pub mod shutdown;
mod tables;
mod task;
pub mod tls;
