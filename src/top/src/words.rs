//! Numbers and names as text.

use ratatui::text::Span;

use crate::numbers::rounded;
pub(super) use crate::numbers::{counted, separated};
pub(super) use crate::printable::clean;

/// Columns of the terminal that the text takes.
pub(super) fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// The text in exactly so many columns: padded, or cut with an ellipsis.
pub(super) fn fit(text: &str, columns: usize) -> String {
    let mut fitted = text.to_owned();
    if width(text) > columns {
        while width(&fitted) + 1 > columns && fitted.pop().is_some() {}
        if columns > 0 {
            fitted.push('…');
        }
    }
    let missing = columns.saturating_sub(width(&fitted));
    fitted + &" ".repeat(missing)
}

/// `1 client`, `2 clients`.
pub(super) fn clients(count: usize) -> String {
    counted(count, ("client", "clients"))
}

/// `1 event/s`, `2 events/s`.
pub(super) fn event_rate(rate: f64) -> String {
    let count = rounded(rate);
    let noun = if count == "1" { "event" } else { "events" };
    format!("{count} {noun}/s")
}

/// `1.5 MB`.
pub(super) fn bytes(mut number: f64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB", "PB"];
    let mut at = 0;
    while number >= 1000.0 && at + 1 < units.len() {
        number /= 1000.0;
        at += 1;
    }
    let decimals = usize::from(at > 0 && number < 100.0);
    format!("{number:.decimals$} {}", units[at])
}

/// `20 ms`, `1.5 s`, `3 min`.
pub(super) fn time(seconds: f64) -> String {
    match seconds {
        s if s < 0.95 => format!("{:.0} ms", s.max(0.0) * 1000.0),
        s if s < 10.0 => format!("{s:.1} s"),
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7_200.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.0} h", s / 3_600.0),
        s => format!("{:.0} days", s / 86_400.0),
    }
}

/// As the function says, or a dash.
pub(super) fn or_dash(value: Option<f64>, text: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| "–".to_owned(), text)
}
