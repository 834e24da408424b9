//! Command lines as words: setting and scaling flags.

/// Shortest scaled time, seconds: shorter ones measure nothing.
const SECONDS_MIN: f64 = 1.0;

/// Splits at blanks. There is no quoting, and values are words of their own: no flag of the load test needs more.
pub fn split(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// A command line with quoting, to read and to repeat.
pub fn join(words: &[String]) -> String {
    let quoted = |word: &String| {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_=./:,@%+".contains(letter);
        if !word.is_empty() && word.chars().all(plain) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// The value of a flag; the last one counts.
pub fn value<'a>(words: &'a [String], flag: &str) -> Option<&'a str> {
    let at = words.iter().rposition(|word| word == flag)?;
    words.get(at + 1).map(String::as_str)
}

/// Sets the value of a flag, in place of an old one.
pub fn set(words: &mut Vec<String>, flag: &str, value: &str) {
    match words.iter().rposition(|word| word == flag) {
        Some(at) if at + 1 < words.len() => value.clone_into(&mut words[at + 1]),
        _ => words.extend([flag.to_owned(), value.to_owned()]),
    }
}

/// Adds flags, in place of old ones.
pub fn add(words: &mut Vec<String>, more: &[String]) {
    let mut rest = more.iter().peekable();
    while let Some(word) = rest.next() {
        match rest.next_if(|next| !next.starts_with("--")) {
            Some(value) => set(words, word, value),
            None if !words.contains(word) => words.push(word.clone()),
            None => {}
        }
    }
}

/// Multiplies every number in a flag's value: counts become at least 1, times at least a second.
pub fn scale(value: &str, factor: f64) -> String {
    let mut text = String::new();
    let mut rest = value;
    while let Some(begin) = rest.find(|letter: char| letter.is_ascii_digit()) {
        let (before, number) = rest.split_at(begin);
        let end = number
            .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
            .unwrap_or(number.len());
        let (number, after) = number.split_at(end);
        text.push_str(before);
        text.push_str(&match number.parse::<f64>() {
            Ok(number) if after.starts_with('s') => {
                format!("{}", (number * factor).max(SECONDS_MIN))
            }
            Ok(number) if number > 0.0 => format!("{}", (number * factor).round().max(1.0)),
            _ => number.to_owned(),
        });
        rest = after;
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_scaled_and_never_to_nothing() {
        for (value, expected) in [
            ("5000", "100"),
            ("10", "1"),
            ("0", "0"),
            ("30s", "1s"),
            ("100s", "2s"),
            ("pods=1000,configmaps=100", "pods=20,configmaps=2"),
            ("resourceVersion", "resourceVersion"),
        ] {
            assert_eq!(scale(value, 0.02), expected, "{value}");
        }
        assert_eq!(scale("5000", 2.0), "10000");
    }

    #[test]
    fn added_flags_replace_those_that_are_there() {
        let mut words = split("steady --watchers 5 --http2 --objects 7");
        add(
            &mut words,
            &split("--http2 --objects 8 --watchers 6 --baseline --rounds 9"),
        );
        assert_eq!(
            words.join(" "),
            "steady --watchers 6 --http2 --objects 8 --baseline --rounds 9"
        );
    }
}
