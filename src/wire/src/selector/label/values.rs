//! The values of a term: sorted, unique, and always in two allocations.

use std::fmt;

/// Values that a label must have, or must not have. Never empty.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LabelValues {
    text: Box<str>,
    /// The end of each value in `text`.
    ends: Box<[u32]>,
}

impl LabelValues {
    /// Copies values that are sorted and unique.
    pub(super) fn from_sorted<'a>(values: impl Iterator<Item = &'a str>) -> Self {
        let (mut text, mut ends) = (String::new(), Vec::new());
        for value in values {
            text.push_str(value);
            // Selectors come in the heads of requests, which are bounded far below 4 GiB.
            ends.push(u32::try_from(text.len()).unwrap_or(u32::MAX));
        }
        Self {
            text: text.into(),
            ends: ends.into(),
        }
    }

    /// Number of values.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "there is always one")]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// The values in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).map(|index| self.value(index))
    }

    /// Whether `value` is one of them, by binary search.
    #[must_use]
    pub fn contains(&self, value: &str) -> bool {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            match self.value(middle).cmp(value) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return true,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        false
    }

    fn value(&self, index: usize) -> &str {
        let start = index
            .checked_sub(1)
            .map_or(0, |before| self.ends[before] as usize);
        &self.text[start..self.ends[index] as usize]
    }
}

impl fmt::Debug for LabelValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_is_found_and_no_other() {
        let texts: Vec<_> = (0..1000)
            .map(|index| format!("v{:04}", 2 * index))
            .collect();
        for count in [1, 2, 3, 1000] {
            let values = LabelValues::from_sorted(texts[..count].iter().map(|text| &**text));
            assert!(values.iter().eq(&texts[..count]));
            for index in 0..2 * count {
                let text = format!("v{index:04}");
                assert_eq!(values.contains(&text), index % 2 == 0, "{text}");
            }
            assert!(!values.contains("") && !values.contains("w"));
        }
        let empty = LabelValues::from_sorted(["", "a"].into_iter());
        assert!(empty.contains("") && empty.contains("a") && !empty.contains("b"));
    }
}
