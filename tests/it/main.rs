//! Integration tests of the crate through its public interfaces and its sockets. Each suite is a module. Most tests start an API
//! server of the test kit, a gateway or both in this process; some run the program itself. Each test needs a process of its own, which
//! `cargo nextest` provides.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod admission;
mod aggregated;
mod assess;
mod auth;
mod catch_up;
mod check;
mod compressed;
mod configuration;
mod demo;
mod drain;
mod drift;
mod event_age;
mod handover;
mod hostile;
mod informer;
mod informer_chaos;
mod inject;
mod kube_rs;
mod log_filter;
mod loops;
mod memory_budget;
mod memory_restart;
mod metadata;
mod metrics;
mod passthrough;
mod rbac_answers;
mod rebalance;
mod redefinition;
mod relay;
mod secrets;
mod serving_rules;
mod shadow;
mod staleness;
mod status;
mod support;
mod top;
mod trust;
mod upstreams;
mod warm_restart;
