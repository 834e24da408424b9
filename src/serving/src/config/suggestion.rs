//! The name that was probably meant by one that does not exist.

/// Names are compared without what separates their words: `tls_cert` and `tls.cert` are `tlsCert`.
pub(super) fn letters(name: &str) -> Vec<char> {
    let is_letter = |letter: &char| !matches!(letter, '-' | '_' | '.' | ' ');
    let lower = name.chars().filter(is_letter).flat_map(char::to_lowercase);
    lower.collect()
}

/// The known name that is nearest to this one; `None` if none is near.
#[must_use]
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = letters(name);
    // One mistake, and one more for every five letters.
    let most = 1 + name.len() / 5;
    let near = known
        .into_iter()
        .map(|other| (distance(&name, &letters(other)), other))
        .filter(|(distance, _)| *distance <= most);
    near.min_by_key(|(distance, _)| *distance)
        .map(|(_, other)| other)
}

/// How many letters must be inserted, left out, replaced, or exchanged with their neighbour.
fn distance(one: &[char], other: &[char]) -> usize {
    let mut rows = [Vec::new(), (0..=other.len()).collect::<Vec<usize>>()];
    for (i, letter) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, with) in other.iter().enumerate() {
            let [before, above] = &rows;
            let replaced = above[j] + usize::from(letter != with);
            let mut least = replaced.min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *letter == other[j - 1] && one[i - 1] == *with {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        let [_, above] = rows;
        rows = [above, row];
    }
    rows[1][other.len()]
}

/// `; did you mean …?`, or nothing.
#[must_use]
pub fn did_you_mean(name: Option<&str>) -> String {
    name.map_or_else(String::new, |name| format!("; did you mean {name}?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_a_mistake_is_recognized() {
        let known = [
            "listen",
            "tlsCert",
            "tlsKey",
            "memoryMax",
            "deployments.apps",
        ];
        for (name, meant) in [
            ("lisen", Some("listen")),
            ("listne", Some("listen")),
            ("tls-cert", Some("tlsCert")),
            ("tls.cert", Some("tlsCert")),
            ("memory_max", Some("memoryMax")),
            ("deployment.apps", Some("deployments.apps")),
            ("port", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, known), meant, "{name}");
        }
        assert_eq!(did_you_mean(Some("listen")), "; did you mean listen?");
    }
}
