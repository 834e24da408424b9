//! Figures of very different sizes, for people.

use crate::numbers::separated;

/// Three digits or more where they matter: `0.0031`, `0.52`, `12.4`, `1,235`.
pub(super) fn figure(number: f64) -> String {
    let size = number.abs();
    match size {
        size if size >= 999.5 => {
            let sign = if number < 0.0 { "-" } else { "" };
            format!("{sign}{}", separated(format_args!("{size:.0}")))
        }
        size if size >= 100.0 => format!("{number:.0}"),
        size if size >= 10.0 => format!("{number:.1}"),
        size if size >= 0.1 => format!("{number:.2}"),
        size if size >= 0.00005 => format!("{number:.4}"),
        _ => "0".to_owned(),
    }
}

/// A part of a whole, in percent.
pub(super) fn percent(part: f64, whole: f64) -> String {
    match whole > 0.0 {
        true => format!("{:.0} %", 100.0 * part / whole),
        false => "nothing".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_the_digits_that_matter() {
        let numbers = [
            0.0, 0.00001, 0.0031, 0.521, 9.999, 12.44, 123.4, 1_234.6, -1_234.6, -0.5,
        ];
        assert_eq!(
            numbers.map(figure),
            [
                "0", "0", "0.0031", "0.52", "10.00", "12.4", "123", "1,235", "-1,235", "-0.50"
            ]
        );
        assert_eq!(percent(1.0, 8.0), "12 %");
        assert_eq!(percent(1.0, 0.0), "nothing");
    }
}
