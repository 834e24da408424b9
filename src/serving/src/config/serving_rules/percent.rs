//! Percentages in rules: numbers from 0 to 100 with at most four decimals.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

use crate::cli::Percentage;

const PER_PERCENT: f64 = 10_000.0;

pub(super) fn serialize<S: Serializer>(
    percent: &Percentage,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match percent.0 % 10_000 {
        0 => serializer.serialize_u32(percent.0 / 10_000),
        _ => serializer.serialize_f64(f64::from(percent.0) / PER_PERCENT),
    }
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Percentage, D::Error> {
    let number = f64::deserialize(deserializer)?;
    if !(0.0..=100.0).contains(&number) {
        return Err(D::Error::custom("percent: write a number from 0 to 100"));
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "from 0 to 1,000,000"
    )]
    let millionths = (number * PER_PERCENT).round() as u32;
    // A percentage that somebody has written is not none of them.
    let least = u32::from(number > 0.0);
    Ok(Percentage(millionths.max(least)))
}
