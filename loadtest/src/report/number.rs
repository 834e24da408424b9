//! Figures for people: few significant digits, and the unit separated from the name.

/// A figure with three or four significant digits.
pub fn short(value: f64) -> String {
    let size = value.abs();
    if value == value.trunc() && size < 1e6 {
        return format!("{value:.0}");
    }
    let (digits, rest) = match size {
        1e9.. => (format!("{:.2}", value / 1e9), " G"),
        1e6.. => (format!("{:.2}", value / 1e6), " M"),
        100.0.. => return format!("{value:.0}"),
        10.0.. => (format!("{value:.1}"), ""),
        0.1.. => (format!("{value:.2}"), ""),
        0.001.. => (format!("{value:.4}"), ""),
        _ => return format!("{value:.1e}").replace(".0e", "e"),
    };
    let digits = digits.trim_end_matches('0').trim_end_matches('.');
    format!("{digits}{rest}")
}

/// Units; other text behind the last comma is part of the name.
const UNITS: &[&str] = &[
    "s",
    "ms",
    "µs",
    "ns",
    "B",
    "KiB",
    "MiB",
    "GiB",
    "%",
    "% of a core",
];

/// A name without its unit: `latency p99, ms` becomes `latency p99`.
pub fn quantity(name: &str) -> &str {
    parts(name).0
}

/// The unit of a name; empty if there is none.
pub fn unit(name: &str) -> &str {
    parts(name).1
}

fn parts(name: &str) -> (&str, &str) {
    let parts = name.rsplit_once(", ");
    parts
        .filter(|(_, unit)| UNITS.contains(unit))
        .unwrap_or((name, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_follows_the_last_comma() {
        let (settled, ms) = ("KiB per watch, settled", "latency p99, ms");
        assert_eq!((quantity(settled), unit(settled)), (settled, ""));
        assert_eq!((quantity(ms), unit(ms)), ("latency p99", "ms"));
        assert_eq!((quantity("watchers"), unit("watchers")), ("watchers", ""));
    }
}
