//! Numbers and names as text.

use std::fmt::Display;

use ratatui::text::Span;

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

/// A whole number with separators: `12,345`.
pub(super) fn separated(number: impl Display) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 right`, `2 rights`.
pub(super) fn counted<N>(count: N, (one, many): (&str, &str)) -> String
where
    N: Display + PartialEq + From<u8>,
{
    let noun = if count == N::from(1) { one } else { many };
    format!("{} {noun}", separated(count))
}

/// `1 client`, `2 clients`.
pub(super) fn clients(count: usize) -> String {
    counted(count, ("client", "clients"))
}

/// `1 event/s`, `2 events/s`.
pub(super) fn event_rate(rate: f64) -> String {
    let count = separated(format_args!("{:.0}", rate.max(0.0)));
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

/// The value as `text` formats it, or a dash.
pub(super) fn or_dash(value: Option<f64>, text: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| "–".to_owned(), text)
}

/// Maximum number of accents on one letter. More of them would be drawn over the lines above.
const ACCENTS_MAX: usize = 2;

/// Text that others chose, safe to print. Replaced are control characters, marks of the writing direction, characters without width, and
/// accents beyond [`ACCENTS_MAX`]: such text cannot move the cursor, hide other text or reverse it.
pub(super) fn clean(text: &str) -> String {
    let mut accents = 0;
    let drawn = text.chars().map(|one| {
        let is_accent = width(one.encode_utf8(&mut [0; 4])) == 0;
        accents = if is_accent { accents + 1 } else { 0 };
        if is_drawable(one) && accents <= ACCENTS_MAX {
            one
        } else {
            '\u{fffd}'
        }
    });
    drawn.collect()
}

fn is_drawable(one: char) -> bool {
    !one.is_control()
        && !matches!(one,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}
