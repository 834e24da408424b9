//! The syntax of values in flags, variables and files: lengths in bytes, durations, counts of objects.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Serialize, Serializer};

/// A value does not have the required syntax.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidValue {
    /// Not a length in bytes.
    #[error("not a length in bytes: write 4096, 64Ki, 16Mi, 1.5Gi or 1G")]
    ByteLen,
    /// Not a budget of reviews.
    #[error("not a budget: write auto, or a number of reviews a second; 0 is no limit")]
    ReviewBudget,
    /// Not a duration.
    #[error("not a duration: write 2ms, 75s, 10m or 1h")]
    Span,
    /// Not a ratio.
    #[error("not a ratio: write a number from 0 to 1 with at most six decimals, such as 0.01")]
    Ratio,
    /// Not a percentage.
    #[error(
        "not a percentage: write a number from 0 to 100 with at most four decimals, such as 0.5"
    )]
    Percent,
    /// Not a count of objects.
    #[error("not a count of objects: write pods=1000")]
    ObjectCount,
}

/// A length in bytes, a quantity as Kubernetes writes it: `4096`, `2Gi`, `1.5G`, `1e9`; or `64KiB`. A part of a byte counts as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteLen(pub usize);

/// The suffixes that lengths are written with.
const UNITS: [(&str, usize); 5] = [
    ("Ti", 1 << 40),
    ("Gi", 1 << 30),
    ("Mi", 1 << 20),
    ("Ki", 1 << 10),
    ("", 1),
];
/// Suffixes of a quantity of Kubernetes with what they multiply by: a power of two, or of ten.
const BINARY_SUFFIXES: [(&str, u32); 6] = [
    ("Ki", 10),
    ("Mi", 20),
    ("Gi", 30),
    ("Ti", 40),
    ("Pi", 50),
    ("Ei", 60),
];
const DECIMAL_SUFFIXES: [(&str, i32); 10] = [
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];
/// More digits than any length has. The bound keeps the arithmetic within 128 bits.
const DIGITS_MAX: usize = 19;

impl FromStr for ByteLen {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        byte_len(text).map(Self).ok_or(InvalidValue::ByteLen)
    }
}

fn byte_len(text: &str) -> Option<usize> {
    let text = text.strip_prefix('+').unwrap_or(text);
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, suffix) = text.split_at(end.unwrap_or(text.len()));
    let suffix = suffix.trim_start();
    let suffix = match suffix {
        "KiB" | "MiB" | "GiB" | "TiB" => &suffix[..2],
        suffix => suffix,
    };
    let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
    let decimals = decimals.trim_end_matches('0');
    let digits = format!("{whole}{decimals}");
    let digits = digits.trim_start_matches('0');
    let is_empty = number.trim_matches('.').is_empty();
    if is_empty || decimals.contains('.') || digits.len() > DIGITS_MAX {
        return None;
    }
    let digits: u128 = if digits.is_empty() {
        0
    } else {
        digits.parse().ok()?
    };
    let binary = BINARY_SUFFIXES.iter().find(|(word, _)| *word == suffix);
    let power = binary.map_or(0, |(_, power)| *power);
    let exponent = match binary {
        Some(_) => 0,
        None => decimal_exponent(suffix)?,
    };
    let exponent = exponent.checked_sub(i32::try_from(decimals.len()).ok()?)?;
    let digits = digits << power;
    let ten_to_the = |exponent: u32| 10_u128.checked_pow(exponent);
    let len = match u32::try_from(exponent) {
        Ok(exponent) => digits.checked_mul(ten_to_the(exponent)?)?,
        // Beyond what a power has room for, less than a byte is left.
        Err(_) => digits.div_ceil(ten_to_the(exponent.unsigned_abs()).unwrap_or(u128::MAX)),
    };
    usize::try_from(len).ok()
}

/// The power of ten of a suffix: `k`, `e3`, `E-3`.
fn decimal_exponent(suffix: &str) -> Option<i32> {
    let known = DECIMAL_SUFFIXES.iter().find(|(word, _)| *word == suffix);
    if let Some((_, exponent)) = known {
        return Some(*exponent);
    }
    suffix.strip_prefix(['e', 'E'])?.parse().ok()
}

impl fmt::Display for ByteLen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, unit) = UNITS
            .iter()
            .find(|(_, unit)| self.0 >= *unit && self.0.is_multiple_of(*unit))
            .unwrap_or(&("", 1));
        write!(f, "{}{word}", self.0 / unit)
    }
}

/// A duration: `2ms`, `75s`, `10m`, `1h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeSpan(pub Duration);

impl FromStr for TimeSpan {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        humantime::parse_duration(text)
            .map(Self)
            .map_err(|_| InvalidValue::Span)
    }
}

impl fmt::Display for TimeSpan {
    /// Writes the units that Go knows, which has no days: `1m15s`, `168h`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, nanos) = (self.0.as_secs(), u64::from(self.0.subsec_nanos()));
        let parts = [
            (seconds / 3_600, "h"),
            (seconds / 60 % 60, "m"),
            (seconds % 60, "s"),
            (nanos / 1_000_000, "ms"),
            (nanos / 1_000 % 1_000, "us"),
            (nanos % 1_000, "ns"),
        ];
        if self.0.is_zero() {
            return f.write_str("0s");
        }
        for (count, unit) in parts.into_iter().filter(|(count, _)| *count > 0) {
            write!(f, "{count}{unit}")?;
        }
        Ok(())
    }
}

/// A part of a whole, in millionths: `0`, `0.01`, `1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratio(pub u32);

const WHOLE: u32 = 1_000_000;

impl Ratio {
    /// The ratio as a number from 0 to 1.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / f64::from(WHOLE)
    }
}

impl FromStr for Ratio {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let ratio = decimal(text, 6).filter(|ratio| *ratio <= WHOLE);
        ratio.map(Self).ok_or(InvalidValue::Ratio)
    }
}

/// A number with at most this many decimals, in units of the last of them.
fn decimal(text: &str, decimals_max: usize) -> Option<u32> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_digits(whole) || !is_digits(decimals) || !(1..=decimals_max).contains(&decimals.len()) {
        return None;
    }
    // The digits without the point.
    let digits = format!("{whole}{decimals:0<decimals_max$}");
    digits.parse().ok().filter(|_| !whole.is_empty())
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.as_f64())
    }
}

/// A percentage, in millionths of the whole: `0`, `0.5`, `100`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Percentage(pub u32);

impl Percentage {
    /// The percentage as a part from 0 to 1.
    #[must_use]
    pub fn part(self) -> f64 {
        Ratio(self.0).as_f64()
    }
}

impl FromStr for Percentage {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let millionths = decimal(text, 4).filter(|millionths| *millionths <= WHOLE);
        millionths.map(Self).ok_or(InvalidValue::Percent)
    }
}

impl fmt::Display for Percentage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", f64::from(self.0) / 10_000.0)
    }
}

impl Serialize for ByteLen {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for TimeSpan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Percentage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(f64::from(self.0) / 10_000.0)
    }
}

impl Serialize for Ratio {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.as_f64())
    }
}

/// How many reviews a second the checks of open streams may send that no event causes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReviewBudget {
    /// A twentieth of the reads that memory answers, but at least one review a second, and at most 50.
    #[default]
    Auto,
    /// This many reviews a second.
    PerSecond(u32),
    /// As many as are due.
    Unlimited,
}

impl FromStr for ReviewBudget {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            _ => match text.parse() {
                Ok(0) => Ok(Self::Unlimited),
                Ok(rate) => Ok(Self::PerSecond(rate)),
                Err(_) => Err(InvalidValue::ReviewBudget),
            },
        }
    }
}

impl fmt::Display for ReviewBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::PerSecond(rate) => rate.fmt(f),
            Self::Unlimited => f.write_str("0"),
        }
    }
}

impl Serialize for ReviewBudget {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The number of objects of a resource: `pods=1000`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectCount {
    /// The resource's plural name, such as `pods`.
    pub resource: String,
    /// Number of objects.
    pub count: usize,
}

impl ObjectCount {
    /// `count` objects of `resource`.
    #[must_use]
    pub fn new(resource: &str, count: usize) -> Self {
        Self {
            resource: resource.to_owned(),
            count,
        }
    }
}

impl FromStr for ObjectCount {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (resource, count) = text.split_once('=').ok_or(InvalidValue::ObjectCount)?;
        if resource.is_empty() {
            return Err(InvalidValue::ObjectCount);
        }
        let count = count.parse().map_err(|_| InvalidValue::ObjectCount)?;
        Ok(Self::new(resource, count))
    }
}

impl fmt::Display for ObjectCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.resource, self.count)
    }
}
