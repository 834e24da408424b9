//! Who is calling (authentication), and what they may do (authorization).
//!
//! ```text
//! connection's certificates, headers ──▶ authentication ──▶ Caller ──▶ authorization ──▶ Lease of a stream
//!                                             │ TokenReview                │ SubjectAccessReview
//!                                             └────────── upstream ────────┘
//! ```
//!
//! Decisions are pure: users, questions and answers come in as values. The calls that ask the API server, and the caches of
//! its answers, are apart from them.

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
mod extra_key;
pub mod front_proxy;
pub mod guard;
pub mod impersonation;
pub mod lease;
pub mod leases;
pub mod policy;
pub mod question;
pub mod rbac;
pub mod rechecks;
mod review_permits;
pub mod token_cache;
pub mod token_review;
pub mod upstream;
pub mod user;

#[cfg(test)]
mod tests;
