//! Numbers of things as text.

pub(super) use crate::numbers::counted;

pub(super) const RESOURCES: (&str, &str) = ("resource", "resources");
