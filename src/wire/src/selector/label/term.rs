//! One condition on a label.

use std::fmt;

use super::values::LabelValues;

/// A condition on one label.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct LabelTerm {
    pub(super) key: Box<str>,
    pub(super) test: LabelTest,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum LabelTest {
    In(LabelValues),
    NotIn(LabelValues),
    Exists,
    Absent,
    Greater(i64),
    Less(i64),
}

impl LabelTest {
    pub(super) fn holds(&self, label: Option<&str>) -> bool {
        let number = || label.and_then(|value| value.parse::<i64>().ok());
        match self {
            Self::In(set) => label.is_some_and(|value| set.contains(value)),
            Self::NotIn(set) => !label.is_some_and(|value| set.contains(value)),
            Self::Exists => label.is_some(),
            Self::Absent => label.is_none(),
            Self::Greater(bound) => number().is_some_and(|value| value > *bound),
            Self::Less(bound) => number().is_some_and(|value| value < *bound),
        }
    }
}

impl fmt::Display for LabelTerm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        match &self.test {
            LabelTest::In(set) => write_set(f, key, ["=", " in "], set),
            LabelTest::NotIn(set) => write_set(f, key, ["!=", " notin "], set),
            LabelTest::Exists => f.write_str(key),
            LabelTest::Absent => write!(f, "!{key}"),
            LabelTest::Greater(bound) => write!(f, "{key}>{bound}"),
            LabelTest::Less(bound) => write!(f, "{key}<{bound}"),
        }
    }
}

fn write_set(
    f: &mut fmt::Formatter<'_>,
    key: &str,
    [one, many]: [&str; 2],
    set: &LabelValues,
) -> fmt::Result {
    let is_one = set.len() == 1;
    f.write_str(key)?;
    f.write_str(if is_one { one } else { many })?;
    if !is_one {
        f.write_str("(")?;
    }
    for (index, value) in set.iter().enumerate() {
        if index > 0 {
            f.write_str(",")?;
        }
        f.write_str(value)?;
    }
    f.write_str(if is_one { "" } else { ")" })
}
