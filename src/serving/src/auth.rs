//! Authentication and authorization: who sends a request, and what that caller may do.
//!
//! ```text
//! certificates, headers ──▶ authenticator ──▶ Caller ──▶ decisions ──▶ Lease of a stream ◀── rechecks
//!                            │ token_cache                  │ authorizer or policy              │
//!                            └──── TokenReview ─────────────┴──── SubjectAccessReview ──────────┘
//!                                              upstream
//! ```
//!
//! [`guard::Guard`] is the entry point for other modules; start reading there. It authenticates with [`authenticator`], which
//! reads certificates, headers of front proxies and bearer tokens; it authorizes with [`decisions`], which caches the answers of the
//! API server ([`authorizer`]) or evaluates roles in memory ([`policy`], [`rbac`]); in every mode these tell whether roles explain an
//! answer. Every open stream holds a [`lease::Lease`].
//! [`rechecks`] checks again whatever a lease depends on, and revokes it when the permission is gone.
//!
//! The modules that parse and decide (`access`, `bearer`, `caller`, `certificate`, `front_proxy`, `impersonation`, `lease`,
//! `node_rules`, `rbac`, `user`) are pure. Calls to the API server and caches are in modules of their own.

pub mod access;
pub mod access_review;
pub mod authenticator;
pub mod authorizer;
pub mod bearer;
pub mod caller;
pub mod certificate;
pub mod changes;
pub mod decisions;
pub mod digest;
pub mod explanation;
mod extra_key;
mod flights;
pub mod followed;
pub mod front_proxy;
pub mod guard;
pub mod impersonation;
pub mod lease;
pub mod leases;
pub mod node_rules;
pub mod policy;
pub mod question;
pub mod rbac;
pub mod rechecks;
mod review_outage;
mod review_permits;
pub mod role_authorizer;
pub mod token_cache;
pub mod token_review;
pub mod upstream;
pub mod user;

#[cfg(test)]
mod tests;
