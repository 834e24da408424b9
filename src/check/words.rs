//! Numbers of things as text.

/// `1 right`, `2 rights`.
pub(super) fn counted(count: usize, (one, many): (&str, &str)) -> String {
    let noun = if count == 1 { one } else { many };
    format!("{count} {noun}")
}

pub(super) const CERTIFICATES: (&str, &str) = ("certificate", "certificates");
pub(super) const RESOURCES: (&str, &str) = ("resource", "resources");
