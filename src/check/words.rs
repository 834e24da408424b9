//! Numbers of things as text.

pub(super) use crate::numbers::counted;

pub(super) const CERTIFICATES: (&str, &str) = ("certificate", "certificates");
pub(super) const RESOURCES: (&str, &str) = ("resource", "resources");
