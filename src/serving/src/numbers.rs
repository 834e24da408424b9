//! Numbers as text for people: with separators, and with the noun that they count.

use std::fmt::Display;

/// A whole number with separators: `12,345`.
pub fn separated(number: impl Display) -> String {
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

/// The nearest whole number, with separators; zero for a negative one.
pub fn rounded(number: f64) -> String {
    separated(format_args!("{:.0}", number.max(0.0)))
}

/// `1 right`, `2 rights`.
pub fn counted<N>(count: N, (one, many): (&str, &str)) -> String
where
    N: Display + PartialEq + From<u8>,
{
    let noun = if count == N::from(1) { one } else { many };
    format!("{} {noun}", separated(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_separators() {
        let whole = [0, 12, 999, 1_000, 123_456, 1_234_567].map(separated);
        assert_eq!(whole, ["0", "12", "999", "1,000", "123,456", "1,234,567"]);
        assert_eq!(
            [-3.0, 0.4, 999.6, 12_345.2].map(rounded),
            ["0", "0", "1,000", "12,345"]
        );
    }

    #[test]
    fn one_thing_is_singular() {
        let rights = [0_u64, 1, 2, 1_200].map(|count| counted(count, ("right", "rights")));
        assert_eq!(rights, ["0 rights", "1 right", "2 rights", "1,200 rights"]);
    }
}
