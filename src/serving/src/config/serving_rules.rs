//! Serving rules: whose lists and watches memory answers, and whose are forwarded although memory could answer them (decision 61).
//!
//! ```yaml
//! serving:
//!   mode: rules
//!   switchOver: 45s
//!   rules:
//!     - {name: nodes, users: ["system:node:*"], percent: 1}
//!     - {name: argo, agents: ["argocd-*"], resources: ["*.apps"], percent: 10, by: client}
//!     - {name: rest, percent: 0}
//! ```
//!
//! The first rule that matches a request decides. What no rule matches is answered from memory. With `mode: shadow` a rule forwards what it
//! matches, and the percentage says how much of it is compared with what memory would have answered (decision 63).

mod decision;
mod glob;
mod percent;
mod rules;

pub use decision::{Answerer, KnownUser, ReadSubject};
pub use rules::{InvalidRules, PASSTHROUGH, RULES_LEN_MAX, ServingRules};

#[cfg(test)]
mod tests;
